//! The words of an expression.

/// A word.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    /// A name of a metric, a label or a function, or a word such as `by`.
    Name(String),
    /// A text between quotes.
    Text(String),
    Number(f64),
    /// A length of time, seconds.
    Duration(i64),
    /// An operator, or a bracket.
    Sign(&'static str),
}

/// Longest length of time, seconds: a hundred years.
const DURATION_MAX: i64 = 36_500 * 86_400;
/// Signs, the longer ones first.
const SIGNS: [&str; 21] = [
    "=~", "!~", "!=", "==", ">=", "<=", "{", "}", "(", ")", "[", "]", ",", "=", ">", "<", "+", "-",
    "*", "/", ":",
];

/// A word that cannot be read.
#[derive(Debug)]
pub(super) struct Unreadable {
    /// The byte where it begins.
    pub at: usize,
    pub expected: String,
}

/// All words of an expression, each with the byte where it begins.
pub(super) fn tokens(text: &str) -> Result<Vec<(usize, Token)>, Unreadable> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let at = text.len() - rest.len();
        let unreadable = |expected: &str| Unreadable {
            at,
            expected: expected.to_owned(),
        };
        let (token, length) = match first {
            '"' | '\'' | '`' => quoted(rest, first).ok_or_else(|| {
                unreadable("a text that ends with its quote, without unknown escapes")
            })?,
            '0'..='9' | '.' => number(rest).ok_or_else(|| {
                unreadable(
                    "a number such as 10, or a length of time up to 100y such as 5m, 1h or 7d",
                )
            })?,
            'a'..='z' | 'A'..='Z' | '_' => {
                let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
                let length = rest
                    .find(|letter| !is_of_name(letter))
                    .unwrap_or(rest.len());
                (Token::Name(rest[..length].to_owned()), length)
            }
            _ => {
                let mut signs = SIGNS.into_iter();
                let sign = signs.find(|sign| rest.starts_with(sign));
                let sign = sign.ok_or_else(|| unreadable("a selector, a number or an operator"))?;
                (Token::Sign(sign), sign.len())
            }
        };
        tokens.push((at, token));
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

/// The text between quotes at the beginning, and how many bytes it takes with them.
fn quoted(text: &str, quote: char) -> Option<(Token, usize)> {
    let mut found = String::new();
    let mut letters = text.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        match letter {
            _ if letter == quote => return Some((Token::Text(found), at + 1)),
            '\\' if quote != '`' => found.push(match letters.next()?.1 {
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                same @ ('\\' | '"' | '\'') => same,
                _ => return None,
            }),
            other => found.push(other),
        }
    }
    None
}

/// The number or the length of time at the beginning, and how many bytes it takes.
fn number(text: &str) -> Option<(Token, usize)> {
    let length = text
        .find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '.')
        .unwrap_or(text.len());
    let word = &text[..length];
    if let Some(seconds) = duration(word) {
        return Some((Token::Duration(seconds), length));
    }
    let is_number = word
        .bytes()
        .all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e'));
    let number = is_number.then(|| word.parse().ok())??;
    Some((Token::Number(number), length))
}

/// Seconds of a length of time such as `1h30m`: numbers with units, the longer units first. None for a part of a
/// second, and for more than a hundred years.
pub(super) fn duration(text: &str) -> Option<i64> {
    const UNITS: [(&str, i64); 7] = [
        ("y", 365 * 86_400_000),
        ("w", 7 * 86_400_000),
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1_000),
        ("ms", 1),
    ];
    let (mut rest, mut total, mut units) = (text, 0_i64, UNITS.as_slice());
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit())?;
        let (number, behind) = rest.split_at(digits);
        let letters = behind.find(|letter: char| letter.is_ascii_digit());
        let (unit, behind) = behind.split_at(letters.unwrap_or(behind.len()));
        let at = units.iter().position(|(name, _)| *name == unit)?;
        let length = units[at].1.checked_mul(number.parse().ok()?)?;
        total = total.checked_add(length)?;
        (rest, units) = (behind, &units[at + 1..]);
    }
    let is_whole = total % 1_000 == 0 && (0..=DURATION_MAX * 1_000).contains(&total);
    (!text.is_empty() && is_whole).then_some(total / 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_have_units_longest_first() {
        for (text, seconds) in [
            ("5m", 300),
            ("1h30m", 5_400),
            ("24h0m0s", 86_400),
            ("1w", 7 * 86_400),
            ("1y", 365 * 86_400),
            ("2000ms", 2),
            ("0s", 0),
        ] {
            assert_eq!(duration(text), Some(seconds), "{text}");
        }
        for text in [
            "",
            "5",
            "m",
            "1m1h",
            "1h1h",
            "1.5h",
            "1ms",
            "101y",
            "99999999999999999999s",
            "-1h",
            "1month",
        ] {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn texts_are_unescaped_but_between_backticks() {
        let text = |text| match tokens(text).ok()?.as_slice() {
            [(0, Token::Text(found))] => Some(found.clone()),
            _ => None,
        };
        assert_eq!(text(r#""a\"\\b\n""#).unwrap(), "a\"\\b\n");
        assert_eq!(text(r"'a\'b'").unwrap(), "a'b");
        assert_eq!(text(r"`a\.b`").unwrap(), r"a\.b");
        for wrong in [r#""a"#, r#""\.""#, "'", r#""\"#] {
            assert_eq!(text(wrong), None, "{wrong}");
        }
    }
}
