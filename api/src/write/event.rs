//! One event as JSON: an increment on every entity it names.

use serde_json::Value;
use tallyring_records::{
    Details, Event, EventType, Evidence, FieldError, Increment, Schema, Text, check_time,
};

use super::batch::{Parsed, Reading};
use super::event_details;
use super::increment::{at, count, origin, shown, text, texts, values};
use super::rules::WriteRules;
use crate::problem::{Problem, Result};

/// Longest view, bytes.
pub(crate) const VIEW_BYTES_MAX: usize = 64;

/// Reads and checks one event, and takes from its request what the event itself does not tell of its client. The error
/// names the first field that is wrong.
pub(super) fn parse(
    item: Value,
    rules: &WriteRules,
    reading: Reading<'_>,
    request: Option<Evidence>,
) -> Result<Parsed> {
    let Reading { schema, now, .. } = reading;
    let Value::Object(mut fields) = item else {
        let detail = "must be a JSON object with \"id\", \"type\" and \"entities\"";
        return Err(Problem::malformed("item", &shown(&item), detail));
    };
    let id = text("id", fields.remove("id"))?;
    let origin = origin(&mut fields)?;
    if origin.is_none() && id.as_ref().is_none_or(String::is_empty) {
        let detail = "is missing: with it an event counts once however often it is sent; give `id`, or `producer`, \
                      `epoch` and `sequence`";
        return Err(missing("id", detail));
    }
    let event = kind(schema, text("type", fields.remove("type"))?)?;
    let mut details = Details::default();
    let mut increment = Increment {
        at: at(fields.remove("at"), now)?,
        n: count(fields.remove("n"))?,
        keys: keys(event, texts("entities", fields.remove("entities"))?)?,
        by: values(fields.remove("by"), rules, &mut details)?,
        id,
        origin,
        user: text("user", fields.remove("user"))?,
        event: Some(Box::new(Event {
            kind: event.name.clone(),
            view: view(text("view", fields.remove("view"))?)?,
            correction: false,
        })),
        ..Increment::default()
    };
    let reservation = reservation(fields.remove("reservation"), rules, &mut details)?;
    let client = event_details::take(&mut fields, request, rules, &mut details)?;
    let view = increment
        .event
        .as_ref()
        .and_then(|event| event.view.clone());
    for (field, text) in [("view", &view), ("referrer", &details.referrer)] {
        count_as_value(&mut increment, schema, field, text.as_deref())?;
    }
    client.enrich(&mut increment, &mut details, rules, schema);
    increment.details = details.boxed();
    rules
        .check(&mut increment, schema)
        .map_err(|error| as_entity(event, error))?;
    check_time(increment.at, now)?;
    Ok(Parsed {
        increment,
        reservation,
    })
}

fn kind(schema: &Schema, name: Option<String>) -> Result<&EventType> {
    let known = || {
        let names: Vec<&str> = schema.events.iter().map(|event| &*event.name).collect();
        match names.as_slice() {
            [] => "none is declared; add [events.<type>] to the configuration".to_owned(),
            names => format!("declared are {}", names.join(", ")),
        }
    };
    let name =
        name.ok_or_else(|| missing("type", &format!("name the type of event; {}", known())))?;
    schema.event_type(&name).ok_or_else(|| {
        let detail = format!("must be a declared event type; {}", known());
        Problem::malformed("type", &name, detail)
    })
}

/// The key in each entity's namespace.
fn keys(event: &EventType, entities: Vec<(Text, Text)>) -> Result<Vec<(Text, Text)>> {
    let known = event.entities.join(", ");
    if entities.is_empty() {
        let detail = format!(
            "must name at least one of the entities of {}, {known}",
            event.name
        );
        return Err(missing("entities", &detail));
    }
    let key = |(entity, key): (Text, Text)| {
        if event.entities.iter().any(|known| entity == known) {
            return Ok((event.namespace_of(&entity).into(), key));
        }
        let detail = format!("is no entity of {}; use one of {known}", event.name);
        Err(Problem::malformed(
            &format!("entities.{entity}"),
            &key,
            detail,
        ))
    };
    entities.into_iter().map(key).collect()
}

/// Makes a field the value of the subtotal of its name, where a namespace of the event declares one.
fn count_as_value(
    increment: &mut Increment,
    schema: &Schema,
    field: &str,
    text: Option<&str>,
) -> Result<()> {
    let Some(text) = text.filter(|_| increment.declares(schema, field)) else {
        return Ok(());
    };
    match increment.value(field) {
        Some(value) if value == text => Ok(()),
        Some(value) => {
            let detail =
                format!("differs from `{field}`; give one of them, or the same value in both");
            Err(Problem::malformed(&format!("by.{field}"), value, detail))
        }
        None => {
            increment.by.retain(|(name, _)| name != field);
            increment.by.push((field.into(), text.into()));
            Ok(())
        }
    }
}

fn view(view: Option<String>) -> Result<Option<String>> {
    match view {
        Some(view) if view.is_empty() || view.len() > VIEW_BYTES_MAX => {
            let detail = format!(
                "has {} bytes; give 1 to {VIEW_BYTES_MAX}, or leave it out",
                view.len()
            );
            Err(Problem::malformed("view", &view, detail))
        }
        view => Ok(view),
    }
}

/// The reservation that the event confirms. The event counts whatever the text is.
fn reservation(
    given: Option<Value>,
    rules: &WriteRules,
    details: &mut Details,
) -> Result<Option<String>> {
    match given {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => {
            let wrong = FieldError::malformed("reservation", &shown(&other), "must be a text");
            rules.set_aside(details, wrong)?;
            Ok(None)
        }
    }
}

/// An error of a key, with its field as the client named it.
fn as_entity(event: &EventType, error: FieldError) -> Problem {
    let entity = error
        .field
        .strip_prefix("keys.")
        .and_then(|namespace| namespace.strip_suffix(event.name.as_str()))
        .and_then(|entity| entity.strip_suffix('_'))
        .map(|entity| format!("entities.{entity}"));
    match entity {
        Some(field) => FieldError { field, ..error }.into(),
        None => error.into(),
    }
}

fn missing(field: &str, detail: &str) -> Problem {
    FieldError::missing(field, detail).into()
}
