//! Why an increment is refused: the field, the value and what to change.

use std::fmt;

/// How an increment is wrong, which decides the answer's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The request is not well formed or names something undeclared (HTTP 400).
    Malformed,
    /// Understood, but outside what is accepted (HTTP 422).
    Refused,
}

/// One field that is wrong, with its value and what to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// Which kind of wrong.
    pub fault: Fault,
    /// The field as a client names it, such as `keys.l` or `at`.
    pub field: String,
    /// The value found, shortened to at most 64 characters, control characters escaped.
    pub value: Option<String>,
    /// What is wrong and how to fix it.
    pub detail: String,
}

impl FieldError {
    /// A malformed field.
    pub fn malformed(field: impl Into<String>, value: &str, detail: impl Into<String>) -> Self {
        Self {
            fault: Fault::Malformed,
            field: field.into(),
            value: Some(shown(value)),
            detail: detail.into(),
        }
    }

    /// A field outside what is accepted.
    pub fn refused(field: impl Into<String>, value: &str, detail: impl Into<String>) -> Self {
        Self {
            fault: Fault::Refused,
            field: field.into(),
            value: Some(shown(value)),
            detail: detail.into(),
        }
    }

    /// A field that is not there.
    pub fn missing(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            fault: Fault::Malformed,
            field: field.into(),
            value: None,
            detail: detail.into(),
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{} `{}`: {}", self.field, value, self.detail),
            None => write!(f, "{}: {}", self.field, self.detail),
        }
    }
}

impl std::error::Error for FieldError {}

const SHOWN_CHARS_MAX: usize = 64;

/// A client's text as it may appear in an error: escaped and short.
fn shown(value: &str) -> String {
    let mut text: String = value
        .chars()
        .take(SHOWN_CHARS_MAX)
        .flat_map(char::escape_debug)
        .collect();
    if value.chars().nth(SHOWN_CHARS_MAX).is_some() {
        text.push('…');
    }
    text
}
