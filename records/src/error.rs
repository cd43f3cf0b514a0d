//! Why a request is refused: the field, the value and what to change.

use std::fmt;

/// How a request is wrong: whoever answers tells the two apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is not well formed or names something undeclared.
    Malformed,
    /// Understood, but outside what is accepted.
    Refused,
}

/// One field that is wrong, with its value and what to change.
///
/// ```
/// use tallyring_records::{Fault, FieldError};
///
/// let error = FieldError::malformed("n", "0", "is below 1; give a count from 1 on");
/// assert_eq!((error.field.as_str(), error.fault), ("n", Fault::Malformed));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// Which kind of wrong.
    pub fault: Fault,
    /// The field as a client names it, such as `keys.l` or `at`; shortened, as a client may name it anything.
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
            field: short_field(field),
            value: Some(shown(value)),
            detail: short_detail(detail),
        }
    }

    /// A field outside what is accepted.
    pub fn refused(field: impl Into<String>, value: &str, detail: impl Into<String>) -> Self {
        Self {
            fault: Fault::Refused,
            field: short_field(field),
            value: Some(shown(value)),
            detail: short_detail(detail),
        }
    }

    /// A field that is not there.
    pub fn missing(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            fault: Fault::Malformed,
            field: short_field(field),
            value: None,
            detail: short_detail(detail),
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
const FIELD_BYTES_MAX: usize = 256;
const DETAIL_BYTES_MAX: usize = 1_024;

/// The name of a field as it may appear in an error: at most 256 bytes and an ellipsis.
pub fn short_field(field: impl Into<String>) -> String {
    shortened(field.into(), FIELD_BYTES_MAX)
}

/// What is wrong as it may appear in an error: at most 1 KiB and an ellipsis.
pub fn short_detail(detail: impl Into<String>) -> String {
    shortened(detail.into(), DETAIL_BYTES_MAX)
}

fn shortened(text: String, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text;
    }
    format!("{}…", &text[..text.floor_char_boundary(bytes_max)])
}

/// A client's text as it may appear in an error: short, and escaped but for quotes, which JSON escapes again.
fn shown(value: &str) -> String {
    let mut text = String::new();
    for character in value.chars().take(SHOWN_CHARS_MAX) {
        match character {
            '"' | '\'' => text.push(character),
            other => text.extend(other.escape_debug()),
        }
    }
    if value.chars().nth(SHOWN_CHARS_MAX).is_some() {
        text.push('…');
    }
    text
}
