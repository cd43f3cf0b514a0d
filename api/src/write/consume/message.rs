//! The items of one message of a topic: the forms of a body of the API.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value};
use tallyring_realtime::{RefusedItem, ReservationId, SourceMessage};
use tallyring_records::input::json;
use tallyring_records::{Increment, Schema};

use crate::problem::{Problem, Result};
use crate::write::batch::{BODY_BYTES_MAX, Parsed, Reading};
use crate::write::cloud_event::{self, Wrapped};
use crate::write::items::{self, Item, Items};
use crate::write::refused::{Unreadable, refused};
use crate::write::rules::WriteRules;
use crate::write::{event, increment};

/// How the messages of a topic are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageFormat {
    /// An increment, an event, an array of such, or one a line.
    Json,
    /// CloudEvents: structured, batch or binary.
    CloudEvents,
}

/// The circumstances in which a message is read.
pub(super) struct By<'a> {
    pub rules: &'a Arc<WriteRules>,
    pub schema: &'a Schema,
    /// Unix seconds.
    pub now: i64,
}

/// The place of a message.
pub(super) struct MessagePlace {
    pub topic: String,
    pub partition: u32,
    pub offset: u64,
}

impl MessagePlace {
    pub(super) fn of(message: &SourceMessage) -> Self {
        Self {
            topic: message.topic.clone(),
            partition: message.partition,
            offset: message.offset,
        }
    }
}

/// An item that counts.
pub(super) struct Good {
    pub increment: Increment,
    /// The reservation that it confirms.
    pub reservation: Option<ReservationId>,
    /// Where its message is.
    pub place: Arc<MessagePlace>,
}

/// An item, or a message, that does not count.
pub(super) struct Bad {
    /// Where its message is.
    pub place: Arc<MessagePlace>,
    /// A word for metrics.
    pub reason: &'static str,
    /// The fault, in a sentence.
    pub detail: String,
    /// The record of it, where it has an id.
    pub refused: Option<RefusedItem>,
}

/// Reads the items of a message.
pub(super) fn read(
    message: &SourceMessage,
    format: MessageFormat,
    by: &By<'_>,
) -> (Vec<Good>, Vec<Bad>) {
    let place = Arc::new(MessagePlace::of(message));
    let bytes = message.bytes();
    if bytes > BODY_BYTES_MAX {
        let detail =
            format!("it has {bytes} bytes with its headers, and at most {BODY_BYTES_MAX} are read");
        return (Vec::new(), vec![Bad::new(&place, "too_large", detail)]);
    }
    let reading = Reading {
        schema: by.schema,
        now: by.now,
        is_alone: false,
    };
    // An item without a time happened when its message was sent, however much later it is read.
    let at = message.at_ms.map(|ms| ms.div_euclid(1_000));
    match format {
        MessageFormat::Json => {
            let parse = |mut item: Value| {
                dated(&mut item, "at", at);
                parse_json(item, by, reading)
            };
            read_items(|| json_items(&message.body), parse, (&place, by.schema))
        }
        MessageFormat::CloudEvents => {
            let cloud_events = &by.rules.cloud_events;
            let found = || {
                let mut items = cloud_event_items(message, by.rules)?;
                let events = items.iter_mut().filter_map(|(_, item)| item.as_mut().ok());
                events.for_each(|event| dated(event, "time", at));
                let wrap = |(line, item): (_, Result<Value, _>)| {
                    (line, item.map(|event| Wrapped::new(event, cloud_events)))
                };
                Ok(items.into_iter().map(wrap).collect())
            };
            let parse = |item: Wrapped| {
                let event = cloud_event::unwrap(item, cloud_events, by.schema)?;
                event::parse(event, by.rules, reading, None)
            };
            read_items(found, parse, (&place, by.schema))
        }
    }
}

impl Bad {
    pub(super) fn new(place: &Arc<MessagePlace>, reason: &'static str, detail: String) -> Self {
        Self {
            place: Arc::clone(place),
            reason,
            detail,
            refused: None,
        }
    }

    /// A message that the store does not take even alone.
    pub(super) fn of_memory(message: &SourceMessage) -> Self {
        let detail = "it counts more at once than memory or the log takes; divide it".to_owned();
        Self::new(&Arc::new(MessagePlace::of(message)), "too_large", detail)
    }
}

fn read_items<T: Item>(
    items: impl Fn() -> Result<Items<T>>,
    parse: impl Fn(T) -> Result<Parsed>,
    (place, schema): (&Arc<MessagePlace>, &Schema),
) -> (Vec<Good>, Vec<Bad>) {
    let found = match items() {
        Ok(found) => found,
        Err(problem) => {
            return (
                Vec::new(),
                vec![Bad::new(place, "unreadable", problem.sentence())],
            );
        }
    };
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    let mut refused_at = Vec::new();
    for (at, (line, item)) in found.into_iter().enumerate() {
        let reason = match &item {
            Ok(_) => "refused",
            Err(_) => "unreadable",
        };
        let read = item.and_then(|item| {
            let id = item.id().map(Cow::into_owned);
            parse(item).map_err(|problem| Unreadable { id, problem })
        });
        match read {
            Ok(parsed) => good.push(Good {
                increment: parsed.increment,
                reservation: parsed.reservation.and_then(|text| text.parse().ok()),
                place: Arc::clone(place),
            }),
            Err(Unreadable { id, problem }) => {
                let refused = refused(id, Vec::new(), &problem);
                refused_at.extend(refused.is_some().then_some((bad.len(), at)));
                let detail = problem.at(at, line).sentence();
                bad.push(Bad {
                    refused,
                    ..Bad::new(place, reason, detail)
                });
            }
        }
    }
    name(&mut bad, &refused_at, items, schema);
    (good, bad)
}

/// Notes which namespaces the refused items name: read for them alone.
fn name<T: Item>(
    bad: &mut [Bad],
    refused_at: &[(usize, usize)],
    items: impl Fn() -> Result<Items<T>>,
    schema: &Schema,
) {
    if refused_at.is_empty() {
        return;
    }
    let Ok(mut found) = items() else { return };
    for &(bad_at, at) in refused_at {
        if let (Some(refused), Some((_, Ok(item)))) = (&mut bad[bad_at].refused, found.get_mut(at))
        {
            refused.namespaces = item.namespaces(schema);
        }
    }
}

/// Gives an item without a time the time of its message.
fn dated(item: &mut Value, field: &str, at: Option<i64>) {
    if let (Value::Object(fields), Some(at)) = (item, at)
        && fields.get(field).is_none_or(Value::is_null)
    {
        fields.insert(field.into(), Value::String(at.to_string()));
    }
}

/// No increment has a type or entities.
fn parse_json(item: Value, by: &By<'_>, reading: Reading<'_>) -> Result<Parsed> {
    if item.get("type").is_none() && item.get("entities").is_none() {
        let parsed = increment::parse(item, by.rules, by.schema, by.now)?;
        return Ok(parsed.into());
    }
    cloud_event::check_plain(&item)?;
    event::parse(item, by.rules, reading, None)
}

/// One object or an array; or NDJSON, which the text is where it is not JSON and one of several lines is an object.
fn json_items(body: &[u8]) -> Result<Items<Value>> {
    let whole = items::objects(body);
    let text = body.trim_ascii();
    let mut lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let is_object = |line: &[u8]| line.starts_with(b"{") && json::parse(line).is_ok();
    match whole.is_err() && text.contains(&b'\n') && lines.any(is_object) {
        true => items::ndjson(body),
        false => whole,
    }
}

/// How the names of attributes begin in the headers of a message.
const ATTRIBUTE: &str = "ce_";

fn cloud_event_items(message: &SourceMessage, rules: &WriteRules) -> Result<Items<Value>> {
    let header = |name: &str| {
        let found = message.headers.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| value.as_slice())
    };
    let kind = header("content-type").unwrap_or_default();
    let is_binary = ["ce_specversion", "ce_id"]
        .iter()
        .any(|name| header(name).is_some());
    if !is_binary || kind.starts_with(b"application/cloudevents") {
        return items::objects(&message.body);
    }
    let mut event = Map::new();
    for (name, value) in &message.headers {
        let Some(attribute) = name.strip_prefix(ATTRIBUTE) else {
            continue;
        };
        let text = str::from_utf8(value).map_err(|_| {
            Problem::malformed(name, &String::from_utf8_lossy(value), "must be UTF-8")
        })?;
        if !attribute.starts_with("data") {
            event.insert(attribute.into(), text.into());
        }
    }
    let kind = event.get("type").and_then(Value::as_str);
    let rule = kind.and_then(|kind| rules.cloud_events.of_type(kind));
    let data = match rule {
        // A rule that needs more says itself what is missing.
        Some(rule) if message.body.is_empty() || !rule.reads_data() => Value::Null,
        _ => json::parse(&message.body).map_err(|error| {
            let detail = "must be the event's data as JSON, each name once";
            Problem::malformed("body", &error.to_string(), detail)
        })?,
    };
    event.insert("data".into(), data);
    Ok(vec![(None, Ok(Value::Object(event)))])
}
