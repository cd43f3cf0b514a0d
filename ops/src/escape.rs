//! Makes text from files and servers safe to show on a terminal.
//!
//! Invariant: the result of [`visible`] has no character that moves the cursor, changes colours or reorders the text
//! around it.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Returns `text` with control and text-direction characters written as `\u{…}`.
///
/// Borrows when there is nothing to escape. The length is not limited; see [`quoted`] for that.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_hidden(character) {
            out.extend(character.escape_default());
        } else {
            out.push(character);
        }
    }
    Cow::Owned(out)
}

/// Writes a line without the spaces at its end and made visible: clients choose the names in it. Writing to a string
/// cannot fail.
pub(crate) fn line(out: &mut String, text: &str) {
    let _ = writeln!(out, "{}", visible(text).trim_end());
}

/// Returns JSON with such characters as JSON escapes them. They stand within texts only.
pub(crate) fn visible_json(json: &str) -> Cow<'_, str> {
    if !json.chars().any(is_hidden) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 16);
    for character in json.chars() {
        match is_hidden(character) {
            // All of them are in the basic plane, which four digits name.
            true => out.push_str(&format!("\\u{:04x}", u32::from(character))),
            false => out.push(character),
        }
    }
    Cow::Owned(out)
}

/// Returns the first 80 characters of `text` in double quotes, safe to show, for use in a message.
pub(crate) fn quoted(text: &str) -> String {
    const SHOWN_CHARACTERS_MAX: usize = 80;
    let mut characters = text.chars();
    let start: String = characters.by_ref().take(SHOWN_CHARACTERS_MAX).collect();
    let rest = if characters.next().is_some() {
        "…"
    } else {
        ""
    };
    format!("\"{}{rest}\"", visible(&start))
}

/// True for a character on which a terminal would act instead of showing it.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_says_the_same_without_hidden_characters() {
        let text = "a\u{9b}2Jy\u{202e}z\u{7f}\u{feff} Genève";
        let json = serde_json::to_string(text).unwrap();
        let safe = visible_json(&json);
        assert_eq!(safe, r#""a\u009b2Jy\u202ez\u007f\ufeff Genève""#);
        assert_eq!(serde_json::from_str::<String>(&safe).unwrap(), text);
    }

    #[test]
    fn control_and_direction_characters_are_spelled_out() {
        assert_eq!(visible("a\u{1b}[31mb\r\n"), "a\\u{1b}[31mb\\r\\n");
        assert_eq!(
            visible("x\u{9b}2Jy\u{202e}z\u{7f}"),
            "x\\u{9b}2Jy\\u{202e}z\\u{7f}"
        );
        assert_eq!(visible("Genève 東京"), "Genève 東京");
    }

    #[test]
    fn long_text_is_cut_at_a_character_boundary() {
        let long = "é".repeat(200);
        assert_eq!(quoted(&long), format!("\"{}…\"", "é".repeat(80)));
        assert_eq!(quoted("a\tb"), "\"a\\tb\"");
    }
}
