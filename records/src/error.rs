//! The reason why a request is refused: the field, its value, and what the client must change.

use std::fmt;

/// The kind of a wrong request; the API answers each kind with its own status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The request is not well formed, or names something that is not declared.
    Malformed,
    /// The request is well formed and outside the bounds of the server.
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
    /// The kind of the error.
    pub fault: Fault,
    /// The field as a client names it, such as `keys.l` or `at`, at most 256 bytes.
    pub field: String,
    /// The value found: at most 64 characters, with control characters escaped.
    pub value: Option<String>,
    /// The reason, and what the client must change: a predicate whose subject is the field.
    pub detail: String,
}

impl FieldError {
    /// An error about a malformed field.
    pub fn malformed(field: impl Into<String>, value: &str, detail: impl Into<String>) -> Self {
        Self {
            fault: Fault::Malformed,
            field: short_field(field),
            value: Some(shown(value)),
            detail: short_detail(detail),
        }
    }

    /// An error about a field outside the bounds of the server.
    pub fn refused(field: impl Into<String>, value: &str, detail: impl Into<String>) -> Self {
        Self {
            fault: Fault::Refused,
            field: short_field(field),
            value: Some(shown(value)),
            detail: short_detail(detail),
        }
    }

    /// An error about a field that is missing.
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

/// Shortens the name of a field for an error: at most 256 bytes and an ellipsis.
pub fn short_field(field: impl Into<String>) -> String {
    shortened(field.into(), FIELD_BYTES_MAX)
}

/// Shortens a reason for an error: at most 1 KiB and an ellipsis.
pub fn short_detail(detail: impl Into<String>) -> String {
    shortened(detail.into(), DETAIL_BYTES_MAX)
}

fn shortened(text: String, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text;
    }
    format!("{}…", &text[..text.floor_char_boundary(bytes_max)])
}

/// Shortens an error about a client's text to 512 characters, and escapes all control characters. The middle goes,
/// where that text stands: both ends say what is wrong.
pub fn short_error(error: &str) -> String {
    const HALF: usize = 256;
    let chars = error.chars().count();
    if chars <= 2 * HALF {
        return escaped(error.chars());
    }
    let (head, tail) = (error.chars().take(HALF), error.chars().skip(chars - HALF));
    format!("{}…{}", escaped(head), escaped(tail))
}

/// Shortens a client's text for an error, and escapes all control characters.
fn shown(value: &str) -> String {
    let mut text = escaped(value.chars().take(SHOWN_CHARS_MAX));
    if value.chars().nth(SHOWN_CHARS_MAX).is_some() {
        text.push('…');
    }
    text
}

/// Escapes all control characters. Quotes stay, because JSON escapes them.
fn escaped(chars: impl Iterator<Item = char>) -> String {
    let mut text = String::new();
    for character in chars {
        match character {
            '"' | '\'' => text.push(character),
            other => text.extend(other.escape_debug()),
        }
    }
    text
}
