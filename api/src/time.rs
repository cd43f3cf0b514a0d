//! Times in query strings, in which a plus may have become a space.

use std::borrow::Cow;

use tallyring_records::input::time;
pub(crate) use tallyring_records::input::time::EXPECTED;

/// Reads a time of a query string as Unix seconds, rounded down; `None` when it is neither RFC 3339 nor Unix seconds.
pub(crate) fn parse_in_query(text: &str) -> Option<i64> {
    time::parse(with_plus(text).as_bytes())
}

/// Puts the plus back before the offset of a time: a plus that was not percent-encoded has become a space.
pub(crate) fn with_plus(text: &str) -> Cow<'_, str> {
    match text.rsplit_once(' ') {
        Some((time, offset)) if time.contains(['T', 't']) => format!("{time}+{offset}").into(),
        _ => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plus_that_became_a_space_is_put_back() {
        for text in [
            "1331923247",
            "2012-03-16T18:40:47Z",
            "2012-03-16T18:40:47 00:00",
            "2012-03-17T00:10:47+05:30",
        ] {
            assert_eq!(parse_in_query(text), Some(1_331_923_247), "{text}");
        }
        assert_eq!(parse_in_query("2012-03-16 18:40:47"), None);
    }
}
