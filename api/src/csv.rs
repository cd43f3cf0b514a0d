//! Cells of CSV: RFC 4180, and safe to open in a spreadsheet.
//!
//! A spreadsheet runs a cell that begins with `=`, `+`, `-`, `@`, a tab or a carriage return. Such a cell gets an
//! apostrophe before it, unless it is only that character (our `-` stays `-`) or a number. A cell that
//! begins with apostrophes before such a text gets one more: so taking one apostrophe off a cell that would
//! be guarded without it gives back every value as it was counted.

const RISKY: [char; 6] = ['=', '+', '-', '@', '\t', '\r'];

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

/// Appends a cell, guarded and quoted where it must be.
pub fn cell(out: &mut String, text: &str) {
    let is_quoted = text.contains([',', '"', '\n', '\r']);
    if is_quoted {
        out.push('"');
    }
    if runs(text.trim_start_matches('\'')) {
        out.push('\'');
    }
    for character in text.chars() {
        if character == '"' {
            out.push('"');
        }
        out.push(character);
    }
    if is_quoted {
        out.push('"');
    }
}

/// True for what a spreadsheet would take for a formula.
fn runs(text: &str) -> bool {
    let is_number = || text.parse::<f64>().is_ok_and(f64::is_finite);
    text.starts_with(RISKY) && text.chars().nth(1).is_some() && !is_number()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_spreadsheet_would_run_is_guarded() {
        for (value, written) in [
            ("plain", "plain"),
            ("-", "-"),
            ("=", "="),
            ("-5", "-5"),
            ("+49.5", "+49.5"),
            ("=1+1", "'=1+1"),
            ("-x", "'-x"),
            ("-1+cmd", "'-1+cmd"),
            ("+infinity", "'+infinity"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("\t=1", "'\t=1"),
            ("'=1+1", "''=1+1"),
            ("'quoted", "'quoted"),
            ("'", "'"),
            ("a,\"b\"", "\"a,\"\"b\"\"\""),
            ("=\"a\"", "\"'=\"\"a\"\"\""),
        ] {
            let mut out = String::new();
            cell(&mut out, value);
            assert_eq!(out, written);
        }
    }
}
