//! The fields of an event that are logged only, such as insertion, referrer and meta.

use serde_json::{Map, Value};
use tallyring_records::{Details, Evidence, FieldError, ID_BYTES_MAX, KEY_BYTES_MAX};

use super::client::Client;
use super::increment::{short_text, shown};
use super::rules::WriteRules;
use crate::problem::{Problem, Result};

/// Longest meta as compact text, bytes.
const META_BYTES_MAX: usize = 4_096;
/// The address of the page in a meta.
const PAGE: &str = "url";

/// Takes the details out of the fields of an event, and what they and its request tell of the client. Fields that are
/// left when all others were taken become part of meta, unless the rules are strict; so does the address of the page,
/// where evidence is kept. The error names the first wrong field, when the rules are strict.
pub(super) fn take(
    fields: &mut Map<String, Value>,
    request: Option<Evidence>,
    rules: &WriteRules,
    details: &mut Details,
) -> Result<Client> {
    details.insertion = text(fields, "insertion", ID_BYTES_MAX, rules, details)?;
    details.referrer = text(fields, "referrer", KEY_BYTES_MAX, rules, details)?;
    let client = Client::take(fields, rules, details)?.or(request.map(Client::of_page));
    let meta = fields.remove("meta");
    if rules.strict
        && let Some((name, value)) = fields.iter().next()
    {
        let detail = "is not a field; use id (or producer, epoch and sequence), type, at, n, entities, by, user, \
                      view, insertion, reservation, referrer, url, evidence and meta";
        return Err(Problem::malformed(name, &shown(value), detail));
    }
    let mut kept = std::mem::take(fields);
    match meta {
        None | Some(Value::Null) => {}
        Some(Value::Object(given)) => kept.extend(given),
        Some(other) => {
            let detail = "must be a JSON object";
            rules.set_aside(
                details,
                FieldError::malformed("meta", &shown(&other), detail),
            )?;
        }
    }
    if let Some(url) = client.url.as_ref().filter(|_| rules.evidence) {
        add_page(&mut kept, url);
    }
    if !kept.is_empty() {
        details.meta = compact(kept, rules, details)?;
    }
    Ok(client)
}

/// Adds the page to a meta that says nothing of it, where both are short enough: it never costs the meta.
fn add_page(kept: &mut Map<String, Value>, url: &str) {
    if kept.contains_key(PAGE) {
        return;
    }
    kept.insert(PAGE.to_owned(), url.into());
    let text = serde_json::to_string(kept);
    if text.is_ok_and(|text| text.len() > META_BYTES_MAX) {
        kept.remove(PAGE);
    }
}

/// The meta as compact text; none where it is too long.
fn compact(
    kept: Map<String, Value>,
    rules: &WriteRules,
    details: &mut Details,
) -> Result<Option<String>> {
    let text = Value::Object(kept).to_string();
    if text.len() > META_BYTES_MAX {
        let detail = format!(
            "has {} bytes; at most {META_BYTES_MAX} are logged",
            text.len()
        );
        rules.set_aside(details, FieldError::malformed("meta", &text, detail))?;
        return Ok(None);
    }
    Ok(Some(text))
}

/// A text of at most `bytes_max` bytes. An empty one is left out, and a wrong one set aside unless the rules are
/// strict.
fn text(
    fields: &mut Map<String, Value>,
    name: &str,
    bytes_max: usize,
    rules: &WriteRules,
    details: &mut Details,
) -> Result<Option<String>> {
    short_text(name, fields.remove(name), bytes_max).or_else(|wrong| {
        rules.set_aside(details, wrong)?;
        Ok(None)
    })
}
