//! Fields of a record as mappings name them: `tallyring send --map`, and the rules for CloudEvents.

use std::borrow::Cow;
use std::fmt;

use serde_json::Value;

use crate::increment::COUNT_MAX;

/// Numbers from here on may have been rounded when they were read (2^53).
const EXACT_FLOAT_LIMIT: f64 = 9_007_199_254_740_992.0;

/// Why a value cannot be a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotText {
    /// Only what is within may be.
    Object,
    /// Nobody says which of its items.
    List,
    /// It may have lost digits: as a key it would silently merge with others.
    Rounded,
}

impl fmt::Display for NotText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Object => "an object: name a field inside it, with a dot",
            Self::List => "a list",
            Self::Rounded => "a number too large to be kept exactly; write it as a string",
        })
    }
}

/// The value at `field` of `record`: of that very name, else at the end of a dotted path into nested objects. `get`
/// finds a field of one object by its name.
pub fn find<'r, T>(
    record: &'r T,
    field: &str,
    get: impl Fn(&'r T, &str) -> Option<&'r T>,
) -> Option<&'r T> {
    get(record, field).or_else(|| field.split('.').try_fold(record, get))
}

/// A scalar as text, numbers and booleans as they are written; `None` where it is null or empty. Fails when it is no
/// scalar, or a number that may have been rounded.
///
/// ```
/// use serde_json::json;
/// use tallyring_records::input::field::{NotText, text};
///
/// assert_eq!(text(&json!(42)).unwrap().as_deref(), Some("42"));
/// assert_eq!(text(&json!(null)), Ok(None));
/// assert_eq!(text(&json!([1])), Err(NotText::List));
/// ```
pub fn text(value: &Value) -> Result<Option<Cow<'_, str>>, NotText> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok((!text.is_empty()).then_some(Cow::Borrowed(text))),
        Value::Bool(_) => Ok(Some(value.to_string().into())),
        // An integer beyond 64 bits arrives here as a float.
        Value::Number(number)
            if number.is_f64()
                && number
                    .as_f64()
                    .is_none_or(|value| value.abs() >= EXACT_FLOAT_LIMIT) =>
        {
            Err(NotText::Rounded)
        }
        Value::Number(number) => Ok(Some(number.to_string().into())),
        Value::Object(_) => Err(NotText::Object),
        Value::Array(_) => Err(NotText::List),
    }
}

/// A count from 1 to 2^53−1 as text. Some writers print every number as a float: `3.0` is a count, `3.5` is none.
pub fn count(text: &str) -> Option<u64> {
    let text = text.trim();
    let whole = match text.split_once('.') {
        Some((whole, fraction))
            if !fraction.is_empty() && fraction.bytes().all(|digit| digit == b'0') =>
        {
            whole
        }
        _ => text,
    };
    let count = whole.parse().ok()?;
    (1..=COUNT_MAX).contains(&count).then_some(count)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_exact_name_wins_over_a_path() {
        let record = json!({"a.b": 1, "a": {"b": 2, "c": {"d": 3}}, "e": 4});
        let found = |field| find(&record, field, |value, name| value.get(name));
        for (field, expected) in [("a.b", Some(1)), ("a.c.d", Some(3)), ("e.f", None)] {
            assert_eq!(found(field).and_then(Value::as_i64), expected, "{field}");
        }
    }

    #[test]
    fn scalars_are_texts_and_nothing_else_is() {
        for (value, expected) in [
            (json!("a"), Ok(Some("a"))),
            (json!(1.5), Ok(Some("1.5"))),
            (json!(true), Ok(Some("true"))),
            (json!(""), Ok(None)),
            (json!({}), Err(NotText::Object)),
            (json!(1e300), Err(NotText::Rounded)),
        ] {
            let found = text(&value);
            assert_eq!(
                found.as_ref().map(|text| text.as_deref()),
                expected.as_ref().map(|text| *text),
                "{value}"
            );
        }
    }

    #[test]
    fn a_count_is_whole_and_within_what_is_counted() {
        for (text, expected) in [
            ("3", Some(3)),
            (" 3.0 ", Some(3)),
            ("9007199254740991", Some(COUNT_MAX)),
            ("9007199254740992", None),
            ("0", None),
            ("3.5", None),
            ("3.", None),
            ("-1", None),
            ("", None),
        ] {
            assert_eq!(count(text), expected, "{text}");
        }
    }
}
