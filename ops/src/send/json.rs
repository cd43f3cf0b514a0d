//! JSON lines: one object a line, whose scalar fields become texts.

use std::borrow::Cow;

use tallyring_records::input::field::{self, NotText};
use tallyring_records::input::json::{Json, parse_borrowed};

use crate::escape::quoted;

/// Parses one line. The error is a sentence for the user when the line is no JSON object.
pub(super) fn parse(line: &[u8]) -> Result<Json<'_>, String> {
    let value = parse_borrowed(line).map_err(|error| {
        let column = error.column();
        let text = error.to_string();
        let what = text.split(" at line ").next().unwrap_or(&text);
        format!("not valid JSON at column {column}: {what}")
    })?;
    match value {
        Json::Object(_) => Ok(value),
        _ => Err("valid JSON, but not an object".to_owned()),
    }
}

/// Returns the scalar at `field` of `record` as text: a field of that very name, else a dotted path into
/// nested objects. `None` where it is missing, null or empty. The error is a sentence for the user when the field holds
/// an object or a list, or a number too large to be kept exactly.
pub(super) fn text<'a, 'b>(
    record: &'a Json<'b>,
    field: &str,
) -> Result<Option<Cow<'a, str>>, String> {
    let get = |value: &'a Json<'b>, name: &str| match value {
        Json::Object(fields) => fields.get(name),
        _ => None,
    };
    let text = match field::find(record, field, get) {
        None => Ok(None),
        Some(Json::Text(text)) => Ok((!text.is_empty()).then_some(Cow::Borrowed(&**text))),
        Some(Json::Other(scalar)) => field::text(scalar),
        Some(Json::Object(_)) => Err(NotText::Object),
        Some(Json::List(_)) => Err(NotText::List),
    };
    text.map_err(|why| format!("field {} is {why}", quoted(field)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, field: &str, expected: Option<&str>) {
        let record = parse(line.as_bytes()).expect("object");
        assert_eq!(
            text(&record, field).expect("scalar").as_deref(),
            expected,
            "{field} of {line}"
        );
    }

    #[test]
    fn scalars_become_text() {
        let line = r#"{"g":"A6qOVH","t":1331923247,"f":1.5,"nk":true,"e":"","z":null}"#;
        check(line, "g", Some("A6qOVH"));
        check(line, "t", Some("1331923247"));
        check(line, "f", Some("1.5"));
        check(line, "nk", Some("true"));
        for missing in ["e", "z", "absent", "g.x"] {
            check(line, missing, None);
        }
    }

    #[test]
    fn dotted_paths_reach_into_objects_and_exact_names_win() {
        check(
            r#"{"actor":{"login":"petroav"}}"#,
            "actor.login",
            Some("petroav"),
        );
        check(r#"{"a.b":"flat","a":{"b":"nested"}}"#, "a.b", Some("flat"));
    }

    #[test]
    fn what_cannot_be_text_is_an_error() {
        let record =
            parse(br#"{"ll":[1,2],"o":{},"big":123456789012345678901234}"#).expect("object");
        for field in ["ll", "o", "big"] {
            assert!(text(&record, field).is_err(), "{field}");
        }
    }

    #[test]
    fn a_broken_line_names_its_column() {
        for (line, why) in [
            (
                "{\"a\":1,,}",
                "not valid JSON at column 8: key must be a string",
            ),
            ("[1]", "valid JSON, but not an object"),
            (
                "{\"a\":1,\"a\":2}",
                "not valid JSON at column 13: `a` is given twice",
            ),
        ] {
            assert_eq!(parse(line.as_bytes()).expect_err(line), why);
        }
        assert!(parse(b"{\"a\":\"\xff\"}").is_err(), "not UTF-8");
    }
}
