//! Answers as CSV, safe to open in a spreadsheet.

use super::answer::{Answer, Body};

/// The answer's rows. What a limit left out stands in a last row `(other)`.
pub fn render(answer: &Answer) -> String {
    let mut out = String::new();
    match &answer.body {
        Body::Summary {} => {
            out.push_str("total\n");
            row(&mut out, &[&answer.total.to_string()]);
        }
        Body::Counts { counts } => {
            out.push_str("start,count\n");
            for count in counts {
                row(&mut out, &[&count.start, &count.count.to_string()]);
            }
        }
        Body::Rolled { values, other } => {
            out.push_str("value,count\n");
            for value in values {
                row(&mut out, &[&value.value, &value.count.to_string()]);
            }
            if *other > 0 {
                row(&mut out, &[OTHER, &other.to_string()]);
            }
        }
        Body::Buckets { buckets } => {
            out.push_str("start,value,count\n");
            for bucket in buckets {
                for value in &bucket.values {
                    row(
                        &mut out,
                        &[&bucket.start, &value.value, &value.count.to_string()],
                    );
                }
                if bucket.other > 0 {
                    row(&mut out, &[&bucket.start, OTHER, &bucket.other.to_string()]);
                }
            }
        }
    }
    out
}

/// Stands for everything that is not listed; no stored value has parentheses and a limit.
const OTHER: &str = "(other)";

/// Appends a row of cells.
pub fn row(out: &mut String, cells: &[&str]) {
    for (index, text) in cells.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        cell(out, text);
    }
    out.push('\n');
}

/// A cell that no spreadsheet takes for a formula, quoted where RFC 4180 asks for it.
fn cell(out: &mut String, text: &str) {
    let guard = match text.chars().next() {
        Some('=' | '+' | '@' | '\t' | '\r') => true,
        Some('-') => text != "-",
        _ => false,
    };
    let quoted = text.contains([',', '"', '\n', '\r']);
    if quoted {
        out.push('"');
    }
    if guard {
        out.push('\'');
    }
    for character in text.chars() {
        if character == '"' {
            out.push('"');
        }
        out.push(character);
    }
    if quoted {
        out.push('"');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_that_look_like_formulas_are_guarded_and_quotes_doubled() {
        let mut out = String::new();
        row(&mut out, &["=1+1", "-", "-x", "a,\"b\"", "plain"]);
        assert_eq!(out, "'=1+1,-,'-x,\"a,\"\"b\"\"\",plain\n");
    }
}
