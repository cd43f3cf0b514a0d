//! A line and its place, which every message about it names.

use std::fmt;
use std::sync::Arc;

use crate::escape::visible;

/// Where a line stands. Shown as `file:line`, safe for a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The file as the user named it; `-` is standard input.
    pub file: Arc<str>,
    /// The line's number, from 1.
    pub line: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", visible(&self.file), self.line)
    }
}

/// A line without its line end, which need not be UTF-8.
#[derive(Debug)]
pub(super) struct SourceLine {
    /// The place of its first byte.
    pub place: Place,
    /// The bytes of the line.
    pub text: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_safe_to_show() {
        assert_eq!(
            Place {
                file: "a\u{1b}b".into(),
                line: 7
            }
            .to_string(),
            "a\\u{1b}b:7"
        );
    }
}
