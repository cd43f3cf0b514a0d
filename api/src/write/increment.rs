//! One increment as JSON, read so that every error names its field.

use serde_json::{Map, Value};
use tallyring_records::input::time;
use tallyring_records::{Details, FieldError, Increment, Origin, Schema, Text, check_time};

use super::client::Client;
use super::rules::WriteRules;
use crate::problem::{Problem, Result};

/// Reads and checks one item. The error names the first field that is wrong.
pub(super) fn parse(
    item: Value,
    rules: &WriteRules,
    schema: &Schema,
    now: i64,
) -> Result<Increment> {
    let Value::Object(mut fields) = item else {
        let detail = "must be a JSON object with \"keys\"";
        return Err(Problem::malformed("item", &shown(&item), detail));
    };
    let mut details = Details::default();
    let client = Client::take(&mut fields, rules, &mut details)?;
    let mut increment = Increment {
        at: at(fields.remove("at"), now)?,
        n: count(fields.remove("n"))?,
        keys: texts("keys", fields.remove("keys"))?,
        by: values(fields.remove("by"), rules, &mut details)?,
        id: text("id", fields.remove("id"))?,
        user: text("user", fields.remove("user"))?,
        origin: origin(&mut fields)?,
        ..Increment::default()
    };
    if let Some((name, value)) = fields.into_iter().next() {
        return Err(Problem::malformed(
            &name,
            &shown(&value),
            "is not a field; use at, n, keys, by, id (or producer, epoch and sequence), user, evidence and url",
        ));
    }
    client.enrich(&mut increment, &mut details, rules, schema);
    increment.details = details.boxed();
    rules.check(&mut increment, schema)?;
    check_time(increment.at, now)?;
    Ok(increment)
}

pub(super) fn at(value: Option<Value>, now: i64) -> Result<i64> {
    match value {
        None | Some(Value::Null) => Ok(now),
        Some(value) => {
            let text = match value {
                Value::String(text) => text,
                other => other.to_string(),
            };
            let seconds = time::parse(text.as_bytes());
            seconds.ok_or_else(|| Problem::malformed("at", &text, time::EXPECTED))
        }
    }
}

pub(super) fn count(value: Option<Value>) -> Result<u64> {
    match value {
        None | Some(Value::Null) => Ok(1),
        Some(value) => value.as_u64().ok_or_else(|| {
            let detail = "must be a whole number from 1 to 9007199254740991";
            Problem::malformed("n", &shown(&value), detail)
        }),
    }
}

/// `{"l":"abc","u":"jehiah"}`; a null value is left out.
pub(super) fn texts(field: &str, value: Option<Value>) -> Result<Vec<(Text, Text)>> {
    texts_or(field, value, |wrong| Err(wrong.into()))
}

/// The breakdown values `by`; one that is no text is set aside, unless the rules are strict.
pub(super) fn values(
    value: Option<Value>,
    rules: &WriteRules,
    details: &mut Details,
) -> Result<Vec<(Text, Text)>> {
    texts_or("by", value, |wrong| Ok(rules.set_aside(details, wrong)?))
}

fn texts_or(
    field: &str,
    value: Option<Value>,
    mut wrong: impl FnMut(FieldError) -> Result<()>,
) -> Result<Vec<(Text, Text)>> {
    let entries: Map<String, Value> = match value {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(entries)) => entries,
        Some(other) => {
            let detail = "must be an object of texts";
            return Err(Problem::malformed(field, &shown(&other), detail));
        }
    };
    let mut texts = Vec::with_capacity(entries.len());
    for (name, value) in entries {
        match value {
            Value::String(text) => texts.push((name.into(), text.into())),
            Value::Null => {}
            other => {
                let detail = "must be a text; put numbers in quotes";
                let field = format!("{field}.{name}");
                wrong(FieldError::malformed(field, &shown(&other), detail))?;
            }
        }
    }
    Ok(texts)
}

pub(super) fn text(field: &str, value: Option<Value>) -> Result<Option<String>> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(Problem::malformed(
            field,
            &shown(&other),
            "must be a text; put numbers in quotes",
        )),
    }
}

/// A text of at most `bytes_max` bytes; an empty one is left out.
pub(super) fn short_text(
    field: &str,
    value: Option<Value>,
    bytes_max: usize,
) -> std::result::Result<Option<String>, FieldError> {
    let (value, detail) = match value {
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
    Err(FieldError::malformed(field, &value, detail))
}

/// `"producer":"p","epoch":1,"sequence":17`, from a producer that numbers what it sends.
pub(super) fn origin(fields: &mut Map<String, Value>) -> Result<Option<Box<Origin>>> {
    let producer = text("producer", fields.remove("producer"))?;
    let epoch = number("epoch", fields.remove("epoch"))?;
    let sequence = number("sequence", fields.remove("sequence"))?;
    match (producer, sequence) {
        (Some(producer), Some(sequence)) => Ok(Some(Box::new(Origin {
            producer,
            epoch: epoch.unwrap_or(0),
            sequence,
        }))),
        (None, None) if epoch.is_none() => Ok(None),
        (None, _) => {
            Err(FieldError::missing("producer", "is missing beside `epoch` and `sequence`").into())
        }
        (_, None) => Err(FieldError::missing("sequence", "is missing beside `producer`").into()),
    }
}

fn number(field: &str, value: Option<Value>) -> Result<Option<u64>> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_u64().map(Some).ok_or_else(|| {
            Problem::malformed(field, &shown(&value), "must be a whole number from 0 on")
        }),
    }
}

pub(super) fn shown(value: &Value) -> String {
    value.to_string()
}
