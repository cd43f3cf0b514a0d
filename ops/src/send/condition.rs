//! `--where FIELD=VALUE`: which lines are sent.

use super::record::Record;
use crate::escape::quoted;

/// A field and the values that it may have.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Condition {
    /// The name of the field.
    pub field: String,
    values: Vec<String>,
}

impl Condition {
    /// Parses `FIELD=VALUE`, or `FIELD=VALUE,VALUE`. The error is a sentence for the user when the option has neither
    /// form.
    pub(super) fn parse(option: &str) -> Result<Self, String> {
        let (field, values) = option.split_once('=').unwrap_or_default();
        let values: Vec<String> = values.split(',').map(str::to_owned).collect();
        if field.is_empty() || values.iter().any(String::is_empty) {
            return Err(format!(
                "--where {}: write FIELD=VALUE, or FIELD=VALUE,VALUE for one of several",
                quoted(option)
            ));
        }
        let field = field.to_owned();
        Ok(Self { field, values })
    }

    /// Whether the field of a line has one of the values; a line without the field has none. The error is a sentence
    /// for the user when the field is no scalar.
    pub(super) fn holds(&self, record: &Record<'_>) -> Result<bool, String> {
        let text = record.text(&self.field)?;
        Ok(text.is_some_and(|text| self.values.iter().any(|value| is_value(&text, value))))
    }
}

/// Whether a text is a value, or a number of three digits in the class that a value such as `3xx` names.
fn is_value(text: &str, value: &str) -> bool {
    let is_digit = |byte: &u8| byte.is_ascii_digit();
    text == value
        || matches!(
            (text.as_bytes(), value.as_bytes()),
            ([class, rest @ ..], [of, b'x', b'x'])
                if class == of && is_digit(class) && rest.len() == 2 && rest.iter().all(is_digit)
        )
}

#[cfg(test)]
mod tests {
    use super::super::json;
    use super::*;

    #[track_caller]
    fn check(option: &str, line: &str, expected: bool) {
        let record = Record::Json(json::parse(line.as_bytes()).expect("JSON"));
        let condition = Condition::parse(option).expect("a condition");
        assert_eq!(condition.holds(&record), Ok(expected), "{option} {line}");
    }

    #[test]
    fn a_field_has_one_of_the_values_or_is_of_the_class() {
        check("status=3xx", r#"{"status":301}"#, true);
        check("status=3xx", r#"{"status":"3xx"}"#, true);
        check("status=2xx,301", r#"{"status":301}"#, true);
        check("status=2xx,301", r#"{"status":302}"#, false);
        for other in ["30", "3011", "3a1", "200", ""] {
            check("status=3xx", &format!(r#"{{"status":"{other}"}}"#), false);
        }
        check("axx=axx", r#"{"axx":"a11"}"#, false);
        check("a.b==", r#"{"a":{"b":"="}}"#, true);
        check("status=3xx", "{}", false);
    }

    #[test]
    fn other_forms_are_refused() {
        for option in ["status", "=301", "status=", "status=301,", ""] {
            let error = Condition::parse(option).expect_err(option);
            assert!(error.contains("FIELD=VALUE"), "{error}");
        }
    }
}
