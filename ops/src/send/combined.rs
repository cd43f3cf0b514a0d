//! Web access logs in the combined format, as Apache and nginx write it:
//! `host ident user [time] "method path protocol" status bytes "referrer" "agent"`.
//!
//! Lines of the common format (without the last two) are read too; what follows the agent is ignored.

use std::borrow::Cow;

/// The field names a mapping may use with this format.
pub(super) const FIELDS: [&str; 10] = [
    "host", "user", "time", "method", "path", "link", "status", "bytes", "referrer", "agent",
];

/// A parsed line: its fields in the order of [`FIELDS`]. A field that the log writes as `-` is `None`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LogLine<'a>([Option<Cow<'a, str>>; FIELDS.len()]);

impl<'a> LogLine<'a> {
    /// Parses one line. The error is a sentence for the user that names the missing part.
    pub(super) fn parse(line: &'a str) -> Result<Self, String> {
        let missing = |part: &str| format!("not an access log line: no {part}");
        let (client, rest) = line.split_once(" [").ok_or_else(|| missing("[time]"))?;
        let (time, rest) = rest
            .split_once(']')
            .ok_or_else(|| missing("end of [time]"))?;
        let mut client = client.splitn(3, ' ');
        let host = client.next().unwrap_or_default();
        // The user comes last because a name may hold spaces.
        let user = client
            .nth(1)
            .ok_or_else(|| missing("host, ident and user before the time"))?;
        let (request, rest) = take_quoted(rest).ok_or_else(|| missing("quoted request"))?;
        let (status, rest) = take_word(rest);
        if status.len() != 3 || !status.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(missing("three-digit status after the request"));
        }
        let (bytes, rest) = take_word(rest);
        let (referrer, agent) = match take_quoted(rest) {
            Some((referrer, rest)) => {
                let (agent, _) =
                    take_quoted(rest).ok_or_else(|| missing("quoted agent at the end"))?;
                (unescaped(referrer), unescaped(agent))
            }
            None if rest.trim().is_empty() => (None, None),
            None => return Err(missing("quoted referrer after the bytes")),
        };
        let (method, path) = split_request(request);
        let link = path.as_ref().and_then(link);
        let (host, user, time) = (given(host), given(user), given(time));
        let (status, bytes) = (given(status), given(bytes));
        Ok(Self([
            host, user, time, method, path, link, status, bytes, referrer, agent,
        ]))
    }

    /// Returns the field called `name`, one of [`FIELDS`].
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let at = FIELDS.iter().position(|field| *field == name)?;
        self.0[at].as_deref()
    }
}

/// The path without its first slash, as a redirector names its links.
fn link<'a>(path: &Cow<'a, str>) -> Option<Cow<'a, str>> {
    let link = match path {
        Cow::Borrowed(path) => Cow::Borrowed(path.strip_prefix('/')?),
        Cow::Owned(path) => Cow::Owned(path.strip_prefix('/')?.to_owned()),
    };
    (!link.is_empty()).then_some(link)
}

fn given(text: &str) -> Option<Cow<'_, str>> {
    (!text.is_empty() && text != "-").then_some(Cow::Borrowed(text))
}

/// Splits `method target protocol`, and cuts the query off the target. A request that was garbage has neither.
fn split_request(request: &str) -> (Option<Cow<'_, str>>, Option<Cow<'_, str>>) {
    let Some((method, target)) = request.split_once(' ') else {
        return (None, None);
    };
    if method.is_empty()
        || !method
            .bytes()
            .all(|byte| byte.is_ascii_uppercase() || byte == b'-')
    {
        return (None, None);
    }
    let target = target
        .rsplit_once(" HTTP/")
        .map_or(target, |(target, _)| target);
    let path = target.split('?').next().unwrap_or_default();
    (given(method), unescaped(path))
}

fn take_word(text: &str) -> (&str, &str) {
    let text = text.trim_start_matches(' ');
    text.split_at(text.find(' ').unwrap_or(text.len()))
}

/// Takes a quoted text, in which a backslash guards the next character; returns it still escaped.
fn take_quoted(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start_matches(' ').strip_prefix('"')?;
    let mut guarded = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if guarded => guarded = false,
            b'\\' => guarded = true,
            b'"' => return Some((&text[..at], &text[at + 1..])),
            _ => {}
        }
    }
    None
}

/// Undoes the escapes of Apache and nginx. Bytes that are not UTF-8 stay as the log spells them.
fn unescaped(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('\\') {
        return given(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let (byte, length) = if byte == b'\\' {
            escape(after)
        } else {
            (byte, 0)
        };
        bytes.push(byte);
        rest = &after[length..];
    }
    Some(String::from_utf8(bytes).map_or(Cow::Borrowed(text), Cow::Owned))
}

/// Returns the byte that the escape after a backslash stands for, and the length of that escape. An
/// unknown one is the backslash itself.
fn escape(after: &[u8]) -> (u8, usize) {
    match after {
        [b'x', high, low, ..] => match (hex_digit(*high), hex_digit(*low)) {
            (Some(high), Some(low)) => (high << 4 | low, 3),
            _ => (b'\\', 0),
        },
        [quoted @ (b'"' | b'\\'), ..] => (*quoted, 1),
        [b'n', ..] => (b'\n', 1),
        [b'r', ..] => (b'\r', 1),
        [b't', ..] => (b'\t', 1),
        [b'v', ..] => (0x0b, 1),
        [b'b', ..] => (0x08, 1),
        [b'f', ..] => (0x0c, 1),
        _ => (b'\\', 0),
    }
}

fn hex_digit(digit: u8) -> Option<u8> {
    // Below 16, so the cast is exact.
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"83.149.9.216 - frank [17/May/2015:10:05:03 +0000] "GET /images/search.png?w=1 HTTP/1.1" 200 203023 "http://example.com/a?b" "Mozilla/5.0 (X11) \"q\"""#;

    #[track_caller]
    fn check(line: &str, field: &str, expected: Option<&str>) {
        let parsed = LogLine::parse(line).expect(line);
        assert_eq!(parsed.text(field), expected, "{field} of {line}");
    }

    #[test]
    fn every_field_of_a_combined_line_is_found() {
        let expected = [
            "83.149.9.216",
            "frank",
            "17/May/2015:10:05:03 +0000",
            "GET",
            "/images/search.png",
            "images/search.png",
            "200",
            "203023",
            "http://example.com/a?b",
            "Mozilla/5.0 (X11) \"q\"",
        ];
        for (field, expected) in FIELDS.iter().zip(expected) {
            check(LINE, field, Some(expected));
        }
    }

    #[test]
    fn dashes_are_missing_and_common_lines_end_early() {
        let line = r#"::1 - - [17/May/2015:10:05:03 +0000] "-" 408 -"#;
        for field in [
            "user", "method", "path", "link", "bytes", "referrer", "agent",
        ] {
            check(line, field, None);
        }
        check(line, "host", Some("::1"));
        check(
            r#"h - a b [t] "GET / HTTP/1.0" 200 5 "-" "-" "10.0.0.1" 0.003"#,
            "user",
            Some("a b"),
        );
    }

    #[test]
    fn escapes_are_undone_only_when_they_make_text() {
        let line = r#"h - - [t] "GET /caf\xc3\xa9 HTTP/1.0" 200 5 "http://\xe4\xe5/" "a\\b\q\x4""#;
        check(line, "path", Some("/café"));
        check(line, "referrer", Some(r"http://\xe4\xe5/"));
        check(line, "agent", Some(r"a\b\q\x4"));
    }

    #[test]
    fn garbage_requests_have_no_path_but_the_line_stands() {
        let line = r#"h - - [t] "\x16\x03\x01 x" 400 226 "-" "-""#;
        check(line, "path", None);
        check(line, "status", Some("400"));
    }

    #[test]
    fn a_broken_line_says_which_part_is_missing() {
        for (line, part) in [
            ("", "no [time]"),
            ("h [t", "no end of [time]"),
            (r#"h [t] "GET / HTTP/1.0" 200 5"#, "no host, ident and user"),
            (r#"h - - [t] "GET / HTTP/1.0"#, "no quoted request"),
            (
                r#"h - - [t] "GET / HTTP/1.0" two 5"#,
                "no three-digit status",
            ),
            (
                r#"h - - [t] "GET / HTTP/1.0" 200 5 "-" "cut"#,
                "no quoted agent",
            ),
            (
                r#"h - - [t] "GET / HTTP/1.0" 200 5 "cut"#,
                "no quoted referrer",
            ),
        ] {
            let error = LogLine::parse(line).expect_err(line);
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
