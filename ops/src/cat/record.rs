//! Records of the log for people and for programs.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tallyring_records::{
    Consumed, Day, Delete, Increment, KeyEntry, LoggedDataset, LoggedFinal, LoggedHold, Record,
    ShownHold, ShownSums, StoreId, Text, UserKey, Void,
};

/// The fields of a record by name, in the order of its text.
type Fields<'r> = Vec<(&'static str, Told<'r>)>;

enum Told<'r> {
    /// The text leaves out what is false, missing or an object.
    Value(Value),
    /// Names and values.
    Pairs(&'r [(Text, Text)]),
    /// The text says how many there are.
    Items(Vec<Value>),
}

macro_rules! fields {
    ($($name:literal: $value:expr),* $(,)?) => {
        vec![$(($name, Told::Value(json!($value)))),*]
    };
}

/// Writes a record as a line of text, with the texts of clients escaped.
pub(super) fn text(record: &Record) -> String {
    let (kind, fields) = content(record);
    let mut text = kind.to_owned();
    match record {
        Record::Refused {
            id,
            field,
            detail,
            namespaces,
            ..
        } => text.push_str(&format!(
            " id={} of={} {field}: {}",
            id.escape_debug(),
            namespaces.join(","),
            detail.escape_debug()
        )),
        Record::Cut { stores } => {
            for store in stores {
                text.push_str(&format!(" {store}"));
            }
        }
        Record::Dataset(dataset) => push_dataset(&mut text, dataset),
        Record::DatasetGone(gone) => {
            push_dataset(&mut text, &gone.dataset);
            let (actor, reason) = (gone.actor.escape_debug(), &gone.reason);
            text.push_str(&format!(" actor={actor} reason={reason:?}"));
        }
        Record::Schema(schema) | Record::BeganWith(schema) => {
            text.push_str(&format!(" {}", schema.names()));
        }
        _ => {
            for (name, told) in &fields {
                told.push(&mut text, name);
            }
        }
    }
    if let Record::Final(version) = record {
        push_sums(&mut text, version);
    }
    match record.identity() {
        Some(identity) => format!("{text} identity={identity}"),
        None => text,
    }
}

impl Told<'_> {
    fn push(&self, text: &mut String, name: &str) {
        let value = match self {
            Self::Pairs(pairs) => {
                // One of the keys is a key.
                let name = if name == "keys" { "key" } else { name };
                for (of, value) in *pairs {
                    let (of, value) = (of.escape_debug(), value.escape_debug());
                    text.push_str(&format!(" {name}.{of}={value}"));
                }
                return;
            }
            Self::Items(items) => items.len().to_string(),
            Self::Value(Value::Null | Value::Bool(false) | Value::Object(_)) => return,
            Self::Value(Value::Bool(true)) => return text.push_str(&format!(" {name}")),
            Self::Value(Value::String(value)) => value.escape_debug().to_string(),
            Self::Value(Value::Array(values)) => {
                let values: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
                values.join(",")
            }
            Self::Value(number) => number.to_string(),
        };
        text.push_str(&format!(" {name}={value}"));
    }
}

fn push_sums(text: &mut String, version: &LoggedFinal) {
    for (kind, sums) in &version.types {
        let kind = kind.escape_debug();
        text.push_str(&format!(" {kind}.before={}", sums.before));
        for (cause, n) in &sums.causes {
            text.push_str(&format!(" {kind}.{}={n:+}", cause.escape_debug()));
        }
        text.push_str(&format!(" {kind}.after={}", sums.after));
    }
}

fn push_dataset(text: &mut String, dataset: &LoggedDataset) {
    text.push_str(&format!(
        " name={} at={} rows={} content={}",
        dataset.name.escape_debug(),
        time(dataset.at_ms.div_euclid(1_000)),
        dataset.rows,
        dataset.content
    ));
    for (namespace, spans) in &dataset.days {
        let spans = spans.iter().map(|(first, last)| format!("{first}..{last}"));
        let (namespace, spans) = (namespace.escape_debug(), spans.collect::<Vec<_>>());
        text.push_str(&format!(" {namespace}={}", spans.join(",")));
    }
}

/// Writes a record as an object: its position in the log, its time, its kind and its content.
pub(super) fn json(position: &str, written: Timestamp, record: &Record) -> Value {
    let (kind, fields) = content(record);
    let mut object = Map::new();
    object.insert("position".to_owned(), position.into());
    object.insert("written_at".to_owned(), written.to_string().into());
    object.insert("record".to_owned(), kind.into());
    if let Some(identity) = record.identity() {
        object.insert("identity".to_owned(), identity.as_str().into());
    }
    for (name, told) in fields {
        let value = match told {
            Told::Value(value) => value,
            Told::Pairs(pairs) => {
                let pairs = pairs.iter();
                pairs
                    .map(|(of, value)| (of.as_str(), value.as_str()))
                    .collect()
            }
            Told::Items(items) => items.into(),
        };
        object.insert(name.to_owned(), value);
    }
    object.into()
}

/// The kind of a record, and what it says.
fn content(record: &Record) -> (&'static str, Fields<'_>) {
    match record {
        Record::Increment(increment) => ("increment", of_increment(increment)),
        Record::Late(increment) => ("late", of_increment(increment)),
        Record::Filtered { rule, increment } => {
            let mut fields = fields! { "rule": rule };
            fields.extend(of_increment(increment));
            ("filtered", fields)
        }
        Record::Duplicate { id, of, .. } => ("duplicate", fields! { "id": id, "of": of }),
        Record::Refused {
            id,
            field,
            detail,
            namespaces,
            ..
        } => (
            "refused",
            fields! { "id": id, "field": field, "detail": detail, "namespaces": namespaces },
        ),
        Record::Batch { key, accepted, .. } => {
            let mut fields = fields! {
                "key": key, "accepted": accepted.accepted, "duplicates": accepted.duplicates,
                "late": accepted.late, "filtered": accepted.filtered, "set_aside": accepted.set_aside,
            };
            let skipped = accepted.skipped.iter().map(|item| json!(item.index));
            fields.push(("skipped", Told::Items(skipped.collect())));
            ("batch", fields)
        }
        Record::Rotate { today } => ("rotate", fields! { "today": today.to_string() }),
        Record::Turn { today, opened } => {
            let opened: Vec<String> = opened.iter().map(Day::to_string).collect();
            let today = today.to_string();
            ("turn", fields! { "today": today, "opened": opened })
        }
        Record::Cut { stores } => {
            let stores: Vec<String> = stores.iter().map(StoreId::to_string).collect();
            ("cut", fields! { "stores": stores })
        }
        Record::Reopen { day } => ("reopen", fields! { "day": day.to_string() }),
        Record::Erase { users } => {
            let users: Vec<String> = users.iter().map(UserKey::to_string).collect();
            ("erase", fields! { "users": users })
        }
        Record::Hold(hold) => ("hold", of_hold(hold)),
        Record::HoldEnded { id } => ("hold_ended", fields! { "id": hold_name(*id) }),
        Record::HoldShown(shown) => ("hold_shown", of_shown(shown)),
        Record::Void(void) => ("void", of_void(void)),
        Record::VoidAsked(void) => ("void_asked", of_void(void)),
        Record::Delete(delete) => (
            if delete.undo { "undelete" } else { "delete" },
            of_delete(delete),
        ),
        Record::Final(version) => ("final", of_final(version)),
        Record::Dataset(dataset) => ("dataset", of_dataset(dataset)),
        Record::DatasetGone(gone) => {
            let mut fields = of_dataset(&gone.dataset);
            fields.extend(fields! { "actor": gone.actor, "reason": gone.reason });
            ("dataset_gone", fields)
        }
        Record::Schema(schema) => ("schema", fields! { "schema": schema }),
        Record::BeganWith(schema) => ("began_with", fields! { "schema": schema }),
        Record::Manifest { number } => ("manifest", fields! { "number": number }),
        Record::Mark => ("mark", Vec::new()),
        Record::Key(key) => of_key(key),
        Record::Consumed(consumed) => ("consumed", of_consumed(consumed)),
    }
}

fn of_hold(hold: &LoggedHold) -> Fields<'_> {
    let until = time(hold.until_ms.div_euclid(1_000));
    let (id, user) = (hold_name(hold.id), hold.user.to_string());
    fields! { "id": id, "user": user, "what": hold.what, "until": until }
}

fn of_shown(shown: &ShownHold) -> Fields<'_> {
    let (id, before) = (hold_name(shown.id), shown.before.to_string());
    fields! { "id": id, "strand": shown.strand, "before": before }
}

fn of_consumed(Consumed { of, next }: &Consumed) -> Fields<'_> {
    fields! {
        "topic": of.topic, "partition": of.partition, "next": next, "topic_id": of.topic_id, "cluster": of.cluster
    }
}

/// An API key or a share, without the hash of its secret.
fn of_key(key: &KeyEntry) -> (&'static str, Fields<'_>) {
    let scopes: Vec<&str> = key.scopes.iter().map(|scope| scope.name()).collect();
    let mut fields = fields! { "id": key.id, "scopes": scopes, "identity": key.identity() };
    if let Some(namespaces) = &key.namespaces {
        fields.push(("namespaces", Told::Value(json!(namespaces))));
    }
    if let Some(shared) = &key.shared {
        let expires = time(shared.expires_ms.div_euclid(1_000));
        fields.push(("expires", Told::Value(json!(expires))));
        let of = shared.key.as_ref();
        fields.extend(of.map(|of| ("key", Told::Value(json!(of)))));
    }
    if let Some(revoked_ms) = key.revoked_ms {
        let revoked = time(revoked_ms.div_euclid(1_000));
        fields.push(("revoked", Told::Value(json!(revoked))));
    }
    let kind = if key.shared.is_some() { "share" } else { "key" };
    (kind, fields)
}

fn of_increment(increment: &Increment) -> Fields<'_> {
    let mut fields = fields! { "at": time(increment.at), "n": increment.n };
    fields.push(("keys", Told::Pairs(&increment.keys)));
    fields.push(("by", Told::Pairs(&increment.by)));
    for (name, value) in [("id", &increment.id), ("user", &increment.user)] {
        fields.extend(value.iter().map(|value| (name, Told::Value(json!(value)))));
    }
    if let Some(origin) = &increment.origin {
        fields.extend(fields! {
            "producer": origin.producer, "epoch": origin.epoch, "sequence": origin.sequence,
        });
    }
    if let Some(event) = &increment.event {
        fields.extend(fields! {
            "type": event.kind, "view": event.view, "correction": event.correction,
        });
    }
    if let Some(details) = &increment.details {
        fields.push(("set_aside", Told::Pairs(&details.set_aside)));
        fields.extend(
            details
                .named()
                .map(|(name, text)| (name, Told::Value(text.into()))),
        );
    }
    fields
}

fn of_dataset(dataset: &LoggedDataset) -> Fields<'_> {
    fields! {
        "name": dataset.name, "at_ms": dataset.at_ms, "rows": dataset.rows,
        "content": dataset.content, "days": dataset.days,
    }
}

fn of_void(void: &Void) -> Fields<'_> {
    fields! {
        "id": void.id, "at": time(void.at), "reason": void.reason, "actor": void.actor,
    }
}

fn of_delete(delete: &Delete) -> Fields<'_> {
    fields! {
        "namespace": delete.namespace, "key": delete.key, "from": delete.from, "to": delete.to,
        "reason": delete.reason, "actor": delete.actor,
    }
}

fn of_final(version: &LoggedFinal) -> Fields<'_> {
    let types = version.types.iter();
    let types: BTreeMap<&String, ShownSums> =
        types.map(|(kind, sums)| (kind, sums.shown())).collect();
    fields! {
        "day": version.day.to_string(), "version": version.version,
        "at": time(version.at_ms.div_euclid(1_000)), "upto": version.upto,
        "ids_from": version.ids_from, "rules": version.rules, "content": version.content,
        "forced": version.forced, "actor": version.actor, "types": types,
    }
}

/// The name of a reservation, as the API answers it.
fn hold_name(id: u128) -> String {
    format!("r{id:024x}")
}

fn time(at: i64) -> String {
    Timestamp::from_second(at).map_or_else(|_| at.to_string(), |at| at.to_string())
}
