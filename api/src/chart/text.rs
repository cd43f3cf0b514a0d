//! Text from clients: made fit for XML, measured, and shortened.

/// Characters of a full name in a tooltip or in alternative text, at most.
const FULL_CHARS_MAX: usize = 1_000;

/// `text` on one line, without what XML 1.0 forbids or what would reorder the text around it, and at
/// most 1,000 characters long.
pub(crate) fn clean(text: &str) -> String {
    let mut clean: String = text
        .chars()
        .take(FULL_CHARS_MAX)
        .map(|character| match character {
            '\t' | '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}' => ' ',
            // Marks that embed or override a direction.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
            '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
            control if control.is_control() => '\u{fffd}',
            other => other,
        })
        .collect();
    if text.chars().nth(FULL_CHARS_MAX).is_some() {
        clean.push('…');
    }
    clean
}

/// Appends `text`, which is [`clean`], as character data or as the value of a quoted attribute.
pub(crate) fn push_escaped(out: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            other => out.push(other),
        }
    }
}

/// Width of `text` set in `size` pixels, in pixels. The reader's font is unknown, so characters are as
/// wide as in a wide one (DejaVu Sans): most fonts leave more room than was measured.
pub(super) fn width(text: &str, size: f64) -> f64 {
    text.chars().map(|character| size * em(character)).sum()
}

/// `text` cut to `width_max` pixels, ending in an ellipsis if anything was cut.
pub(super) fn ellipsised(text: &str, size: f64, width_max: f64) -> String {
    if width(text, size) <= width_max {
        return text.to_owned();
    }
    let mut room = width_max - width("…", size);
    let mut short: String = text
        .chars()
        .take_while(|&character| {
            room -= size * em(character);
            room >= 0.0
        })
        .collect();
    short.truncate(short.trim_end().len());
    short.push('…');
    short
}

/// Advance of a character in ems.
fn em(character: char) -> f64 {
    match character {
        'i' | 'j' | 'l' | '\'' | '|' | ' ' | '.' | ',' | ':' | ';' | '!' | '·' => 0.34,
        'f' | 'r' | 't' | '(' | ')' | '[' | ']' | '/' | '\\' | '-' | '"' => 0.42,
        'm' | 'w' | 'M' | 'W' | '@' | '%' | '…' => 1.0,
        '0'..='9' | 'a'..='z' => 0.64,
        'A'..='Z' | '_' | '–' => 0.72,
        '!'..='~' => 0.84,
        '\u{a0}'..='\u{24f}' => 0.8,
        _ => 1.1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_text_fits_and_says_so() {
        let name = "https://news.example.org/a/very/long/path";
        for room in 10..300 {
            let short = ellipsised(name, 12.0, f64::from(room));
            assert!(short == name || short.ends_with('…'), "{short}");
            assert!(width(&short, 12.0) <= f64::from(room).max(12.0), "{short}");
        }
    }

    #[test]
    fn clean_text_has_one_line_and_no_controls() {
        assert_eq!(clean("a\nb\u{0}\u{1b}\u{202e}c\u{ffff}"), "a b���c�");
        assert_eq!(clean(&"x".repeat(2_000)).chars().count(), 1_001);
    }
}
