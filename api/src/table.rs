//! Tables as CSV: RFC 4180, and safe to open in a spreadsheet.
//!
//! A spreadsheet runs a cell that begins with `=`, `+`, `-`, `@`, a tab or a carriage return. Such a cell gets an
//! apostrophe before it, unless the cell is only that character (our `-` stays `-`) or a number. A cell that
//! begins with apostrophes before such a text gets one more. So taking one apostrophe off a guarded cell gives back
//! the value as it was counted.

use std::borrow::Cow;

use csv::Writer;
use tallyring_records::COUNT_MAX;

const RISKY: [char; 6] = ['=', '+', '-', '@', '\t', '\r'];

/// The last column of a table of counts where an answer overflows: `true` in rows whose count may be more.
const OVERFLOW: &str = "overflow";

/// A table that is being written.
pub struct Table {
    rows: Writer<Vec<u8>>,
    tells_overflow: bool,
}

impl Table {
    /// A table with these columns and no row.
    pub fn new(columns: &[&str]) -> Self {
        Self::of_counts(columns, false)
    }

    /// A table with these columns, and one more where the answer overflows: the sums that no number holds stand as
    /// 2^53−1, and a reader of the file is to see which.
    pub(crate) fn of_counts(columns: &[&str], overflows: bool) -> Self {
        let mut table = Self {
            rows: Writer::from_writer(Vec::new()),
            tells_overflow: overflows,
        };
        match overflows {
            true => table.row(&[columns, &[OVERFLOW]].concat()),
            false => table.row(columns),
        }
        table
    }

    /// Adds a row of a table of counts; `count` is the largest of the row.
    pub(crate) fn counted(&mut self, cells: &[&str], count: u64) {
        match (self.tells_overflow, count) {
            (false, _) => self.row(cells),
            (true, COUNT_MAX) => self.row(&[cells, &["true"]].concat()),
            (true, _) => self.row(&[cells, &["false"]].concat()),
        }
    }

    /// Adds a row, a cell for each column.
    pub fn row(&mut self, cells: &[&str]) {
        let cells = cells.iter().map(|cell| guarded(cell));
        for cell in cells {
            let written = self.rows.write_field(&*cell);
            written.expect("BUG: writing to memory failed");
        }
        let ended = self.rows.write_record(None::<&[u8]>);
        ended.expect("BUG: a row has a cell for each column");
    }

    /// The whole text.
    pub fn end(self) -> String {
        let text = self
            .rows
            .into_inner()
            .expect("BUG: writing to memory failed");
        String::from_utf8(text).expect("BUG: cells are texts")
    }
}

/// A cell that no spreadsheet runs.
fn guarded(text: &str) -> Cow<'_, str> {
    match is_formula(text.trim_start_matches('\'')) {
        true => format!("'{text}").into(),
        false => text.into(),
    }
}

/// True for a text that a spreadsheet would take for a formula.
fn is_formula(text: &str) -> bool {
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
            assert_eq!(Table::new(&[value]).end(), format!("{written}\n"));
        }
    }
}
