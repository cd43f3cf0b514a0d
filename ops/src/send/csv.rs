//! CSV with a header line: fields by the name of their column.

use std::collections::HashMap;

use tallyring_records::input::csv::{Record, WrongQuotes};

use crate::escape::quoted;

/// The column names of one file.
#[derive(Debug)]
pub(super) struct Header {
    columns: HashMap<String, usize>,
    column_count: usize,
}

impl Header {
    /// Reads the header line and makes sure that it has every one of the `wanted` columns, once. The error is a
    /// sentence for the user that names the missing or doubled column and the columns of the file.
    pub(super) fn parse<'a>(
        line: &str,
        wanted: impl Iterator<Item = &'a str>,
    ) -> Result<Self, String> {
        // Spreadsheets put a byte order mark in front.
        let line = line.strip_prefix('\u{feff}').unwrap_or(line);
        let record = read(line).map_err(|wrong| format!("in the header line, {wrong}"))?;
        let names: Vec<&str> = (0..record.count()).map(|at| text(&record, at)).collect();
        for name in wanted {
            match names.iter().filter(|&&column| column == name).count() {
                1 => {}
                0 => {
                    let existing: Vec<String> = names.iter().map(|name| quoted(name)).collect();
                    return Err(format!(
                        "no column {}; its columns are {}",
                        quoted(name),
                        existing.join(", ")
                    ));
                }
                _ => {
                    return Err(format!(
                        "more than one column {}; rename one of them",
                        quoted(name)
                    ));
                }
            }
        }
        let column_count = names.len();
        let columns = names.into_iter().map(str::to_owned).zip(0..).collect();
        Ok(Self {
            columns,
            column_count,
        })
    }

    /// Reads a whole record. The error is a sentence for the user when the quotes are wrong, or the field count is not
    /// that of the header.
    pub(super) fn record(&self, line: &str) -> Result<Record, String> {
        let record = read(line).map_err(|wrong| wrong.to_string())?;
        if record.count() == self.column_count {
            return Ok(record);
        }
        Err(format!(
            "the field count is {}, that of the header {}",
            record.count(),
            self.column_count
        ))
    }

    /// Returns the field of `record` in the column `name`; `None` where it is empty.
    pub(super) fn text<'a>(&self, record: &'a Record, name: &str) -> Option<&'a str> {
        let field = text(record, *self.columns.get(name)?);
        (!field.is_empty()).then_some(field)
    }
}

fn read(line: &str) -> Result<Record, WrongQuotes> {
    let mut record = Record::default();
    let (_, read) = record.read(line.as_bytes());
    read.map(|()| record)
}

fn text(record: &Record, at: usize) -> &str {
    str::from_utf8(record.field(at)).expect("BUG: UTF-8 that was cut at ASCII bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_must_have_the_mapped_columns_once() {
        let header = Header::parse("\u{feff}ts,key,n", ["ts", "n"].into_iter()).expect("complete");
        let fields = header.record("1,\"a b\",").expect("three fields");
        assert_eq!(header.text(&fields, "key"), Some("a b"));
        assert_eq!(header.text(&fields, "n"), None);
        for (line, why) in [
            ("1,2", "the field count is 2, that of the header 3"),
            ("1,\"a\"b,2", "behind its closing quote"),
        ] {
            let error = header.record(line).expect_err(line);
            assert!(error.contains(why), "{error}");
        }
        let error = Header::parse("ts,key", ["at"].into_iter()).expect_err("missing");
        assert_eq!(error, "no column \"at\"; its columns are \"ts\", \"key\"");
        assert!(
            Header::parse("a,a", ["a"].into_iter()).is_err(),
            "ambiguous"
        );
    }
}
