//! The fields of an event that are logged only, such as insertion, referrer and meta.

use serde_json::{Map, Value};
use tallyring_records::{Details, FieldError, ID_BYTES_MAX, KEY_BYTES_MAX};

use super::client::Client;
use super::increment::shown;
use super::rules::WriteRules;
use crate::problem::{Problem, Result};

/// Longest meta as compact text, bytes.
const META_BYTES_MAX: usize = 4_096;

/// Takes the details out of the fields of an event, and what they tell of the client. Fields that are left when all
/// others were taken become part of meta, unless the rules are strict; so does the address of the page, where evidence
/// is kept. The error names the first wrong field, when the rules are strict.
pub(super) fn take(
    fields: &mut Map<String, Value>,
    rules: &WriteRules,
    details: &mut Details,
) -> Result<Client> {
    details.insertion = text(fields, "insertion", ID_BYTES_MAX, rules, details)?;
    details.referrer = text(fields, "referrer", KEY_BYTES_MAX, rules, details)?;
    let client = Client::take(fields, rules, details)?;
    let meta = fields.remove("meta");
    if rules.strict
        && let Some((name, value)) = fields.iter().next()
    {
        let detail = "is not a field; use id (or producer, epoch and sequence), type, at, n, entities, by, user, \
                      view, insertion, reservation, referrer, url, evidence and meta";
        return Err(Problem::malformed(name, &shown(value), detail));
    }
    let mut kept = std::mem::take(fields);
    if let Some(url) = client.url.as_ref().filter(|_| rules.evidence) {
        kept.insert("url".to_owned(), url.as_str().into());
    }
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
    if !kept.is_empty() {
        details.meta = compact(kept, rules, details)?;
    }
    Ok(client)
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

/// A text of at most `bytes_max` bytes; an empty one is left out.
fn text(
    fields: &mut Map<String, Value>,
    name: &str,
    bytes_max: usize,
    rules: &WriteRules,
    details: &mut Details,
) -> Result<Option<String>> {
    let (value, detail) = match fields.remove(name) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) if text.is_empty() => return Ok(None),
        Some(Value::String(text)) if text.len() <= bytes_max => return Ok(Some(text)),
        Some(Value::String(text)) => {
            let detail = format!("is {} bytes; at most {bytes_max} are logged", text.len());
            (text, detail)
        }
        Some(other) => (
            shown(&other),
            "must be a text; put numbers in quotes".to_owned(),
        ),
    };
    let wrong = FieldError::malformed(name, &value, detail);
    rules.set_aside(details, wrong)?;
    Ok(None)
}
