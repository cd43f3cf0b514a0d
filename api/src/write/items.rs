//! The items of a body: an object, a list of them, or one a line.

use std::borrow::Cow;

use axum::http::HeaderMap;
use serde_json::Value;
use tallyring_records::Schema;
use tallyring_records::input::{Line, json, lines};

use super::cloud_event;
use super::refused::{Unreadable, declared};
use crate::body::media_type;
use crate::problem::{Problem, Result};

/// Items of a body, each with its line in NDJSON.
pub(super) type Items<T> = Vec<(Option<usize>, Result<T, Unreadable>)>;

/// An item that was read as JSON.
pub(super) trait Item: From<Value> + Send + 'static {
    /// Its id, whatever else is wrong with it.
    fn id(&self) -> Option<Cow<'_, str>>;

    /// The namespaces that it names, as [`declared`] tells them, whatever else is wrong with it.
    fn namespaces(&self, schema: &Schema) -> Vec<String>;

    /// Reads a line without a tree of values, where it is so simple that nothing can be wrong; else none.
    fn of_line(line: &str) -> Option<Self>;
}

impl Item for Value {
    fn id(&self) -> Option<Cow<'_, str>> {
        cloud_event::id_of(self)
    }

    fn namespaces(&self, schema: &Schema) -> Vec<String> {
        let (keys, entities) = (named(self, "keys"), named(self, "entities"));
        let kind = self.get("type").and_then(Value::as_str).unwrap_or_default();
        let event = schema.event_type(cloud_event::kind(kind));
        let of_event = |entity| event.map_or_else(String::new, |event| event.namespace_of(entity));
        let of_entities = entities.into_iter().map(of_event);
        declared(
            keys.into_iter().map(str::to_owned).chain(of_entities),
            schema,
        )
    }

    fn of_line(_: &str) -> Option<Self> {
        None
    }
}

/// The names that an item gives its keys or entities, itself or in the data of a CloudEvent; an empty one for what
/// cannot be read as such.
fn named<'a>(item: &'a Value, field: &str) -> Vec<&'a str> {
    let outer = item.get(field);
    let inner = item.get("data").and_then(|data| data.get(field));
    let given = outer.into_iter().chain(inner);
    let mut names = Vec::new();
    for value in given {
        match value {
            Value::Object(named) => names.extend(named.keys().map(String::as_str)),
            Value::Null => {}
            _ => names.push(""),
        }
    }
    names
}

/// Most items of a body.
const ITEMS_MAX: usize = 10_000;

/// The items of a body that is JSON or NDJSON, as its media type says. Fails when it is neither, or has too many.
pub(super) fn read<T: Item>(headers: &HeaderMap, body: &[u8]) -> Result<Items<T>> {
    match is_by_line(headers) {
        true => ndjson(body),
        false => objects(body),
    }
}

/// True where the media type says that each line of the body is an item.
pub(super) fn is_by_line(headers: &HeaderMap) -> bool {
    const NAMES: [&str; 5] = [
        "application/x-ndjson",
        "application/ndjson",
        "application/jsonl",
        "application/jsonlines",
        "application/x-jsonlines",
    ];
    NAMES.contains(&&*media_type(headers))
}

/// True where a body is one item itself, and no list or lines of items, however many these are. Only the body of an
/// event in binary mode is no object then.
pub(super) fn is_one(headers: &HeaderMap, body: &[u8]) -> bool {
    let is_object = || body.trim_ascii_start().starts_with(b"{");
    cloud_event::is_binary(headers) || (!is_by_line(headers) && is_object())
}

/// One object, or an array of them.
pub(super) fn objects<T: Item>(bytes: &[u8]) -> Result<Items<T>> {
    let value: Value = json::parse(bytes).map_err(|error| {
        Problem::malformed(
            "body",
            &error.to_string(),
            "must be JSON, each name once: an object, an array, or NDJSON with Content-Type: application/x-ndjson",
        )
    })?;
    let items = match value {
        Value::Array(items) => items,
        other => vec![other],
    };
    check_count(items.len())?;
    let items = items.into_iter();
    Ok(items.map(|item| (None, Ok(item.into()))).collect())
}

/// One object a line; empty lines are passed over.
pub(super) fn ndjson<T: Item>(bytes: &[u8]) -> Result<Items<T>> {
    let mut items = Items::<T>::new();
    // Looked at once, and not text by text; where it is not all UTF-8, line by line.
    let utf8 = str::from_utf8(bytes).ok();
    for Line { number, place } in lines(bytes, 1) {
        let line = &bytes[place.clone()];
        let tree = || match json::parse(line) {
            Ok(value) => Ok(value.into()),
            Err(error) => Err(Problem::malformed(
                "item",
                &error.to_string(),
                "must be one JSON object a line, each name once",
            )
            .into()),
        };
        let text = match utf8 {
            Some(text) => Some(&text[place]),
            None => str::from_utf8(line).ok(),
        };
        let item = text.and_then(T::of_line).map_or_else(tree, Ok);
        items.push((usize::try_from(number).ok(), item));
        check_count(items.len())?;
    }
    Ok(items)
}

fn check_count(items: usize) -> Result<()> {
    if items <= ITEMS_MAX {
        return Ok(());
    }
    let detail = format!("The body has more than {ITEMS_MAX} items; send it in parts.");
    Err(Problem::too_large(detail))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tallyring_records::EventType;

    use super::super::increment;
    use super::super::plain::{self, Simple};
    use super::super::rules::WriteRules;
    use super::*;

    #[test]
    fn a_wrong_item_names_the_namespaces_that_it_would_have_counted_in_and_that_others_are_none() {
        let mut schema = Schema::default_clicks();
        schema.namespaces[0].name = "l_click".into();
        schema.events = vec![EventType {
            name: "click".into(),
            entities: vec!["l".into()],
            lateness_seconds: 300,
            actions: false,
        }];
        for (item, named) in [
            (json!({"keys": {"u": 1, "x": "y"}, "n": 0}), vec!["?", "u"]),
            (
                json!({"type": "click", "entities": {"l": "a"}, "user": 7}),
                vec!["l_click"],
            ),
            (
                json!({"type": "click", "entities": {"l": "a", "pin": "b"}}),
                vec!["?", "l_click"],
            ),
            (
                json!({"type": "click", "entities": {"l": "a"}, "keys": {"u": "b"}}),
                vec!["l_click", "u"],
            ),
            (
                json!({"type": "click", "entities": {"pin": "b"}, "data": {"entities": {"l": "a"}}}),
                vec!["?", "l_click"],
            ),
            (
                json!({"type": "click", "entities": {"l": "a"}, "keys": ["u"]}),
                vec!["?", "l_click"],
            ),
            (json!({"type": "view", "entities": {"l": "a"}}), vec!["?"]),
            (json!({"entities": {"l": "a"}}), vec!["?"]),
            (
                json!({"specversion": "1.0", "type": "org.click", "data": {"entities": {"l": "a"}}}),
                vec!["l_click"],
            ),
            (json!({"specversion": "1.0", "data": 7}), vec![]),
            (json!([1]), vec![]),
        ] {
            assert_eq!(item.namespaces(&schema), named, "{item}");
        }
    }

    #[test]
    fn lines_are_read_as_they_are_numbered_whatever_is_in_them() {
        for body in [
            &b""[..],
            b"\n\n",
            b"{\"keys\":{\"l\":\"a\"}}",
            b"{\"keys\":{\"l\":\"a\"}}\r\n  \r\n{\"keys\":{\"u\":\"b\"}}\r\n",
            "{\"keys\":{\"l\":\"caf\u{e9}\"}}\n[1]\n{\"keys\":{\"l\":\"\u{65e5}\"}}".as_bytes(),
            "\u{feff}{\"keys\":{\"l\":\"a\"}}\n{}".as_bytes(),
            b"{\"keys\":{\"l\":\"a\"}}\n{\"keys\":{\"l\":\"\xe9\"}}\n{\"keys\":{\"l\":\"b\"}}\n",
            b"\xff\n{",
        ] {
            let items = ndjson::<Simple>(body).unwrap();
            let lines = (1..).zip(body.split(|&byte| byte == b'\n'));
            let wanted = lines.filter(|(_, line)| !line.trim_ascii().is_empty());
            let wanted: Vec<_> = wanted.collect();
            assert_eq!(items.len(), wanted.len(), "{body:?}");
            for ((number, item), (line_number, line)) in items.into_iter().zip(wanted) {
                assert_eq!(number, Some(line_number));
                let tree = json::parse(line);
                assert_eq!(item.is_ok(), tree.is_ok(), "{line:?}");
                let (Ok(item), Ok(tree)) = (item, tree) else {
                    continue;
                };
                // This line is read the quick way if it can be, whatever stands in another line.
                let is_simple =
                    str::from_utf8(line).is_ok_and(|line| Simple::of_line(line).is_some());
                assert_eq!(matches!(item, Simple::Read(_)), is_simple, "{line:?}");
                let (rules, schema) = (WriteRules::default(), Schema::default_clicks());
                assert_eq!(
                    plain::parse(item, &rules, &schema, 1_331_923_247),
                    increment::parse(tree, &rules, &schema, 1_331_923_247)
                );
            }
        }
    }
}
