//! CloudEvents 1.0 over HTTP, in its three modes: structured, batch and binary.
//!
//! Where a rule is for its `type`, the rule says what becomes which field of the event. Else `type` (its last dotted
//! part) and `time` are those of the event, `data` holds `entities`, `by`, `user` and `view`, and other attributes and
//! extensions are passed over. An event's identity is its `source` and `id` together: two sources
//! may use the same id. As one id they are `source`, the ASCII unit separator, and `id`: no source holds one, and no id
//! of another event does by accident.

use std::borrow::Cow;
use std::sync::Arc;

use axum::http::HeaderMap;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};
use tallyring_records::input::json;
use tallyring_records::{ID_BYTES_MAX, Schema};

use super::cloud_event_rules::{CloudEventRule, CloudEventRules};
use super::increment::shown;
use super::items::Item;
use super::refused::Unreadable;
use crate::body::media_type;
use crate::problem::{Problem, Result};

/// Media type of one event with its attributes in the body.
pub(crate) const STRUCTURED: &str = "application/cloudevents+json";
/// Media type of an array of such.
pub(crate) const BATCH: &str = "application/cloudevents-batch+json";

/// A CloudEvent, and the rule for its type, if there is one.
pub(crate) struct Wrapped {
    event: Value,
    rule: Option<Arc<CloudEventRule>>,
}

impl Wrapped {
    /// This CloudEvent among these rules.
    pub(super) fn new(event: Value, rules: &CloudEventRules) -> Self {
        let rule = rules.of(&event).cloned();
        Self { event, rule }
    }
}

impl From<Value> for Wrapped {
    fn from(event: Value) -> Self {
        Self { event, rule: None }
    }
}

impl Item for Wrapped {
    fn id(&self) -> Option<Cow<'_, str>> {
        id_of(&self.event)
    }

    fn namespaces(&self, schema: &Schema) -> Vec<String> {
        match &self.rule {
            Some(rule) => rule.namespaces(schema),
            None => self.event.namespaces(schema),
        }
    }

    fn of_line(_: &str) -> Option<Self> {
        None
    }
}

/// The id under which an event of this source is known.
pub(crate) fn identity(source: &str, id: &str) -> String {
    format!("{source}\u{1f}{id}")
}

/// The id of an event, whatever else is wrong with it.
pub(crate) fn id_of(event: &Value) -> Option<Cow<'_, str>> {
    let id = event.get("id")?.as_str()?;
    let source = event.get("source").and_then(Value::as_str);
    match source.filter(|_| event.get("specversion").is_some()) {
        Some(source) => Some(identity(source, id).into()),
        None => Some(id.into()),
    }
}

/// The type of event that a CloudEvent's type means: its last dotted part.
pub(crate) fn kind(kind: &str) -> &str {
    kind.rsplit('.').next().unwrap_or_default()
}

const ATTRIBUTES: [&str; 5] = ["specversion", "id", "source", "type", "time"];

/// True when the attributes are in headers and the body is the data. In the other modes headers may say again what the
/// body says.
pub(crate) fn is_binary(headers: &HeaderMap) -> bool {
    ATTRIBUTES
        .iter()
        .take(2)
        .any(|name| headers.contains_key(header(name)))
        && !media_type(headers).starts_with("application/cloudevents")
}

/// The attributes in the headers of an event in binary mode, to tell it from others; nothing in the other modes.
pub(crate) fn in_headers(headers: &HeaderMap, rules: &CloudEventRules) -> Vec<u8> {
    let mut said = Vec::new();
    if is_binary(headers) {
        let rule = rule_in_headers(headers, rules);
        for name in ATTRIBUTES.into_iter().chain(further(rule)) {
            let value = headers
                .get(header(name))
                .map_or(&b""[..], |value| value.as_bytes());
            // No value of a header holds the end of a line.
            said.extend_from_slice(value);
            said.push(b'\n');
        }
    }
    said
}

/// The rule for the type that headers say.
fn rule_in_headers<'r>(
    headers: &HeaderMap,
    rules: &'r CloudEventRules,
) -> Option<&'r Arc<CloudEventRule>> {
    let kind = headers.get(header("type"))?.to_str().ok()?;
    rules.of_type(&decode(kind)?)
}

/// The attributes that a rule reads beside those that every event has.
fn further(rule: Option<&Arc<CloudEventRule>>) -> impl Iterator<Item = &str> {
    let read = rule.into_iter().flat_map(|rule| rule.attributes());
    read.filter(|name| !ATTRIBUTES.contains(name))
}

fn header(attribute: &str) -> String {
    format!("ce-{attribute}")
}

/// A header's value as text: quoted or not (RFC 9110 §5.6.4), then percent-encoded.
fn decode(value: &str) -> Option<String> {
    let quoted = value
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    let text = match quoted {
        None => Cow::Borrowed(value),
        Some(quoted) => {
            let mut is_escaped = false;
            let kept = quoted.chars().filter(|&c| {
                is_escaped = c == '\\' && !is_escaped;
                !is_escaped
            });
            Cow::Owned(kept.collect())
        }
    };
    let decoded = percent_decode_str(&text).decode_utf8().ok()?;
    Some(decoded.into_owned())
}

/// The structured form of what came in binary mode. Fails when a header is no text or the body no JSON; the error has
/// the id as far as headers tell it.
pub(crate) fn from_headers(
    headers: &HeaderMap,
    body: &[u8],
    rules: &CloudEventRules,
) -> Result<Value, Unreadable> {
    let rule = rule_in_headers(headers, rules);
    let mut event = Map::new();
    let mut wrong = None;
    for attribute in ATTRIBUTES.into_iter().chain(further(rule)) {
        let header = header(attribute);
        let Some(value) = headers.get(&header) else {
            continue;
        };
        match value.to_str().ok().and_then(decode) {
            Some(text) => {
                event.insert(attribute.into(), Value::String(text));
            }
            None => {
                let shown = String::from_utf8_lossy(value.as_bytes());
                let problem =
                    || Problem::malformed(&header, &shown, "must be percent-encoded UTF-8");
                wrong.get_or_insert_with(problem);
            }
        }
    }
    let data = match rule {
        // A rule that needs more says itself what is missing.
        Some(rule) if body.is_empty() || !rule.reads_data() => Ok(Value::Null),
        _ => json::parse(body).map_err(|error| {
            let detail = "must be the event's data as JSON, each name once";
            Problem::malformed("body", &error.to_string(), detail)
        }),
    };
    match (wrong, data) {
        (None, Ok(data)) => {
            event.insert("data".into(), data);
            Ok(Value::Object(event))
        }
        (Some(problem), _) | (None, Err(problem)) => Err(Unreadable {
            id: id_of(&Value::Object(event)).map(Cow::into_owned),
            problem,
        }),
    }
}

/// The event that a CloudEvent carries, as `/v1/events` takes it. The error names the first attribute that is missing
/// or wrong.
pub(super) fn unwrap(wrapped: Wrapped, rules: &CloudEventRules, schema: &Schema) -> Result<Value> {
    let Wrapped { event, rule } = wrapped;
    let Value::Object(mut attributes) = event else {
        let detail = "must be a CloudEvent";
        return Err(Problem::malformed("item", &shown(&event), detail));
    };
    for name in &ATTRIBUTES[..4] {
        match attributes.get(*name) {
            Some(Value::String(text)) if text.is_empty() => {
                return Err(Problem::malformed(name, "", "is empty; give it a text"));
            }
            Some(Value::String(_)) => {}
            Some(other) => {
                return Err(Problem::malformed(name, &shown(other), "must be a text"));
            }
            None => {
                let detail = "is missing; a CloudEvent has specversion, id, source and type";
                return Err(Problem::malformed(name, "", detail));
            }
        }
    }
    if attributes["specversion"] != "1.0" {
        let found = shown(&attributes["specversion"]);
        return Err(Problem::malformed("specversion", &found, "must be 1.0"));
    }
    let id = own_id(&attributes)?;
    let is_bytes = attributes.contains_key("data_base64");
    if let Some(rule) = rule {
        if is_bytes && rule.reads_data() {
            return Err(undecoded());
        }
        let mut fields = rule.fields(&attributes)?;
        fields.insert("id".into(), id.into());
        return Ok(Value::Object(fields));
    }
    if let Some(full) = attributes["type"].as_str() {
        rules.check_type(full, kind(full), schema)?;
    }
    attributes.insert("id".into(), id.into());
    let mut fields = match attributes.remove("data") {
        Some(Value::Object(data)) => data,
        None if is_bytes => return Err(undecoded()),
        other => {
            let detail = "must be a JSON object with \"entities\", and perhaps by, user and view";
            let found = other.map(|data| shown(&data)).unwrap_or_default();
            return Err(Problem::malformed("data", &found, detail));
        }
    };
    for (attribute, field) in [("id", "id"), ("time", "at"), ("type", "type")] {
        let Some(value) = attributes.remove(attribute) else {
            continue;
        };
        let value = match value {
            Value::String(text) if field == "type" => Value::String(kind(&text).to_owned()),
            other => other,
        };
        if fields.insert(field.into(), value).is_some() {
            let detail =
                format!("is the attribute `{attribute}` already; leave it out of the data");
            return Err(Problem::malformed(&format!("data.{field}"), "", detail));
        }
    }
    Ok(Value::Object(fields))
}

fn undecoded() -> Problem {
    let detail = "is not read; send the data as JSON, in the field data";
    Problem::malformed("data_base64", "", detail)
}

/// Refuses a CloudEvent that was sent as if it were a plain event.
pub(crate) fn check_plain(event: &Value) -> Result<()> {
    let Some(version) = event.get("specversion") else {
        return Ok(());
    };
    let detail = "is of a CloudEvent; send it as application/cloudevents+json, or a list of them as \
                  application/cloudevents-batch+json";
    Err(Problem::malformed("specversion", &shown(version), detail))
}

/// The identity of an event whose source and id are texts.
fn own_id(attributes: &Map<String, Value>) -> Result<String> {
    let text = |name: &str| attributes[name].as_str().unwrap_or_default();
    let (source, id) = (text("source"), text("id"));
    if source.contains(|c: char| c.is_whitespace() || c.is_control()) {
        let detail = "must be a URI reference, which has no spaces; encode them as %20";
        return Err(Problem::malformed("source", source, detail));
    }
    let identity = identity(source, id);
    if identity.len() > ID_BYTES_MAX {
        let detail = format!(
            "has {} bytes together with `source`; at most {} are remembered, use shorter ones",
            identity.len() - 1,
            ID_BYTES_MAX - 1
        );
        return Err(Problem::malformed("id", id, detail));
    }
    Ok(identity)
}
