//! Records of the log for people and for programs.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tallyring_records::{
    Day, Details, Increment, LoggedDataset, LoggedFinal, Record, ShownSums, StoreId, Text, UserKey,
    Void,
};

/// Writes a record as a line of text, with the texts of clients escaped.
pub(super) fn text(record: &Record) -> String {
    let text = text_without_identity(record);
    match record.identity() {
        Some(identity) => format!("{text} identity={identity}"),
        None => text,
    }
}

fn text_without_identity(record: &Record) -> String {
    match record {
        Record::Increment(increment) => format!("increment {}", increment_text(increment)),
        Record::Late(increment) => format!("late {}", increment_text(increment)),
        Record::Filtered { rule, increment } => {
            format!("filtered rule={rule} {}", increment_text(increment))
        }
        Record::Duplicate { id, of, .. } => format!("duplicate id={} of={of}", id.escape_debug()),
        Record::Refused {
            id,
            field,
            detail,
            namespaces,
            ..
        } => format!(
            "refused id={} of={} {field}: {}",
            id.escape_debug(),
            namespaces.join(","),
            detail.escape_debug()
        ),
        Record::Batch { key, accepted, .. } => {
            format!(
                "batch key={} accepted={} duplicates={} late={} filtered={} set_aside={} skipped={}",
                key.escape_debug(),
                accepted.accepted,
                accepted.duplicates,
                accepted.late,
                accepted.filtered,
                accepted.set_aside,
                accepted.skipped.len()
            )
        }
        Record::Rotate { today } => format!("rotate today={today}"),
        Record::Turn { today, opened } => {
            format!("turn today={today} opened={}", days(opened).join(","))
        }
        Record::Cut { stores } => {
            let stores: Vec<String> = stores.iter().map(StoreId::to_string).collect();
            format!("cut {}", stores.join(" "))
        }
        Record::Reopen { day } => format!("reopen day={day}"),
        Record::Erase { users } => format!("erase users={}", keys(users).join(",")),
        Record::Hold(hold) => format!(
            "hold id={} user={} what={} until={}",
            hold_name(hold.id),
            hold.user,
            hold.what.escape_debug(),
            time(hold.until_ms.div_euclid(1_000))
        ),
        Record::HoldEnded { id } => format!("hold_ended id={}", hold_name(*id)),
        Record::Void(void) => format!("void {}", void_text(void)),
        Record::VoidAsked(void) => format!("void_asked {}", void_text(void)),
        Record::Final(version) => format!("final {}", final_text(version)),
        Record::Dataset(dataset) => format!("dataset {}", dataset_text(dataset)),
        Record::Schema(schema) => format!("schema {}", schema.names()),
        Record::BeganWith(schema) => format!("began_with {}", schema.names()),
        Record::Manifest { number } => format!("manifest number={number}"),
        Record::Mark => "mark".to_owned(),
    }
}

fn final_text(version: &LoggedFinal) -> String {
    let LoggedFinal {
        day,
        version: number,
        at_ms,
        upto,
        ids_from,
        rules,
        content,
        types,
        forced,
    } = version;
    let at = time(at_ms.div_euclid(1_000));
    let mut text = format!(
        "day={day} version={number} at={at} upto={upto} ids_from={ids_from} rules={rules} content={content}"
    );
    if *forced {
        text.push_str(" forced");
    }
    for (kind, sums) in types {
        let kind = kind.escape_debug();
        text.push_str(&format!(" {kind}.before={}", sums.before));
        for (cause, n) in &sums.causes {
            text.push_str(&format!(" {kind}.{}={n:+}", cause.escape_debug()));
        }
        text.push_str(&format!(" {kind}.after={}", sums.after));
    }
    text
}

fn dataset_text(dataset: &LoggedDataset) -> String {
    let LoggedDataset {
        name,
        at_ms,
        rows,
        content,
        days,
    } = dataset;
    let at = time(at_ms.div_euclid(1_000));
    let name = name.escape_debug();
    let mut text = format!("name={name} at={at} rows={rows} content={content}");
    for (namespace, spans) in days {
        let spans = spans.iter().map(|(first, last)| format!("{first}..{last}"));
        let spans: Vec<String> = spans.collect();
        text.push_str(&format!(
            " {}={}",
            namespace.escape_debug(),
            spans.join(",")
        ));
    }
    text
}

fn final_json(version: &LoggedFinal) -> Value {
    let types = version.types.iter();
    let types: BTreeMap<&String, ShownSums> =
        types.map(|(kind, sums)| (kind, sums.shown())).collect();
    json!({
        "day": version.day.to_string(), "version": version.version,
        "at": time(version.at_ms.div_euclid(1_000)), "upto": version.upto,
        "ids_from": version.ids_from, "rules": version.rules, "content": version.content,
        "forced": version.forced, "types": types,
    })
}

/// The name of a reservation, as the API answers it.
fn hold_name(id: u128) -> String {
    format!("r{id:024x}")
}

fn keys(users: &[UserKey]) -> Vec<String> {
    users.iter().map(UserKey::to_string).collect()
}

fn days(days: &[Day]) -> Vec<String> {
    days.iter().map(Day::to_string).collect()
}

fn increment_text(increment: &Increment) -> String {
    let mut text = format!("at={} n={}", time(increment.at), increment.n);
    for (prefix, pairs) in [("key", &increment.keys), ("by", &increment.by)] {
        for (name, value) in pairs {
            text.push_str(&format!(" {prefix}.{name}={}", value.escape_debug()));
        }
    }
    for (name, value) in [("id", &increment.id), ("user", &increment.user)] {
        if let Some(value) = value {
            text.push_str(&format!(" {name}={}", value.escape_debug()));
        }
    }
    if let Some(origin) = &increment.origin {
        text.push_str(&format!(
            " producer={} epoch={} sequence={}",
            origin.producer.escape_debug(),
            origin.epoch,
            origin.sequence
        ));
    }
    if let Some(event) = &increment.event {
        text.push_str(&format!(" type={}", event.kind));
        if let Some(view) = &event.view {
            text.push_str(&format!(" view={}", view.escape_debug()));
        }
        if event.correction {
            text.push_str(" correction");
        }
    }
    if let Some(details) = &increment.details {
        text.push_str(&details_text(details));
    }
    text
}

fn void_text(void: &Void) -> String {
    format!(
        "id={} at={} reason={} actor={}",
        void.id.escape_debug(),
        time(void.at),
        void.reason.escape_debug(),
        void.actor.escape_debug()
    )
}

fn details_text(details: &Details) -> String {
    let mut text = String::new();
    for (name, value) in &details.set_aside {
        let (name, value) = (name.escape_debug(), value.escape_debug());
        text.push_str(&format!(" set_aside.{name}={value}"));
    }
    for (name, value) in details.named() {
        text.push_str(&format!(" {name}={}", value.escape_debug()));
    }
    text
}

/// Writes a record as an object: its position in the log, its time, its kind and its content.
pub(super) fn json(position: &str, written: Timestamp, record: &Record) -> Value {
    let (kind, says) = match record {
        Record::Increment(increment) => ("increment", increment_json(increment)),
        Record::Late(increment) => ("late", increment_json(increment)),
        Record::Filtered { rule, increment } => {
            let mut says = increment_json(increment);
            says["rule"] = json!(rule);
            ("filtered", says)
        }
        Record::Duplicate { id, of, .. } => ("duplicate", json!({ "id": id, "of": of })),
        Record::Refused {
            id,
            field,
            detail,
            namespaces,
            ..
        } => (
            "refused",
            json!({ "id": id, "field": field, "detail": detail, "namespaces": namespaces }),
        ),
        Record::Batch { key, accepted, .. } => (
            "batch",
            json!({
                "key": key, "accepted": accepted.accepted, "duplicates": accepted.duplicates,
                "late": accepted.late, "filtered": accepted.filtered, "set_aside": accepted.set_aside,
                "skipped": accepted.skipped.iter().map(|item| item.index).collect::<Vec<_>>(),
            }),
        ),
        Record::Rotate { today } => ("rotate", json!({ "today": today.to_string() })),
        Record::Turn { today, opened } => (
            "turn",
            json!({ "today": today.to_string(), "opened": days(opened) }),
        ),
        Record::Cut { stores } => {
            let stores: Vec<String> = stores.iter().map(StoreId::to_string).collect();
            ("cut", json!({ "stores": stores }))
        }
        Record::Reopen { day } => ("reopen", json!({ "day": day.to_string() })),
        Record::Erase { users } => ("erase", json!({ "users": keys(users) })),
        Record::Hold(hold) => (
            "hold",
            json!({
                "id": hold_name(hold.id), "user": hold.user.to_string(), "what": hold.what,
                "until": time(hold.until_ms.div_euclid(1_000)).to_string(),
            }),
        ),
        Record::HoldEnded { id } => ("hold_ended", json!({ "id": hold_name(*id) })),
        Record::Void(void) => ("void", void_json(void)),
        Record::VoidAsked(void) => ("void_asked", void_json(void)),
        Record::Final(version) => ("final", final_json(version)),
        Record::Dataset(dataset) => ("dataset", json!(dataset)),
        Record::Schema(schema) => ("schema", json!({ "schema": schema })),
        Record::BeganWith(schema) => ("began_with", json!({ "schema": schema })),
        Record::Manifest { number } => ("manifest", json!({ "number": number })),
        Record::Mark => ("mark", json!({})),
    };
    let mut object = Map::new();
    object.insert("position".to_owned(), position.into());
    object.insert("written_at".to_owned(), written.to_string().into());
    object.insert("record".to_owned(), kind.into());
    if let Some(identity) = record.identity() {
        object.insert("identity".to_owned(), identity.as_str().into());
    }
    if let Value::Object(says) = says {
        object.extend(says);
    }
    object.into()
}

fn increment_json(increment: &Increment) -> Value {
    let named = |pairs: &[(Text, Text)]| -> Map<String, Value> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| (name.to_string(), value.as_str().into()))
            .collect()
    };
    let mut object = json!({
        "at": time(increment.at), "n": increment.n, "keys": named(&increment.keys), "by": named(&increment.by),
    });
    for (name, value) in [("id", &increment.id), ("user", &increment.user)] {
        if let Some(value) = value {
            object[name] = json!(value);
        }
    }
    if let Some(origin) = &increment.origin {
        object["producer"] = json!(origin.producer);
        object["epoch"] = json!(origin.epoch);
        object["sequence"] = json!(origin.sequence);
    }
    if let Some(event) = &increment.event {
        object["type"] = json!(event.kind);
        object["view"] = json!(event.view);
        object["correction"] = json!(event.correction);
    }
    if let Some(details) = &increment.details {
        object["set_aside"] = named(&details.set_aside).into();
        for (name, value) in details.named() {
            object[name] = json!(value);
        }
    }
    object
}

fn void_json(void: &Void) -> Value {
    json!({ "id": void.id, "at": time(void.at), "reason": void.reason, "actor": void.actor })
}

fn time(at: i64) -> String {
    Timestamp::from_second(at).map_or_else(|_| at.to_string(), |at| at.to_string())
}
