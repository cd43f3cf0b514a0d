//! CSV with a header line: commas, double quotes, quoted line breaks (RFC 4180).
//!
//! The splitter is ours because following a file needs to know that a record is *not finished yet*, which the
//! csv crate cannot say; the tests hold it to what that crate reads.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::escape::quoted;

/// Splits `record` into its fields; `None` when a quoted field is still open at the end.
pub fn split(record: &str) -> Option<Vec<Cow<'_, str>>> {
    let mut fields = Vec::new();
    let mut rest = record;
    loop {
        let field;
        (field, rest) = match rest.strip_prefix('"') {
            Some(inside) => quoted_field(inside)?,
            None => {
                let (field, rest) = rest.split_at(rest.find(',').unwrap_or(rest.len()));
                (Cow::Borrowed(field), rest)
            }
        };
        fields.push(field);
        match rest.strip_prefix(',') {
            Some(after) => rest = after,
            None => return Some(fields),
        }
    }
}

/// Whether a quoted field is open at the end of `line`, when one was (`open`) at its start or not.
pub fn leaves_open(line: &str, open: bool) -> bool {
    if open {
        // Inside quotes, the rest of a field reads as a field of its own.
        split(&format!("\"{line}")).is_none()
    } else {
        split(line).is_none()
    }
}

/// Reads a field whose opening quote was taken; returns it and what follows, from the comma on.
fn quoted_field(inside: &str) -> Option<(Cow<'_, str>, &str)> {
    let mut text = Cow::Borrowed("");
    let mut rest = inside;
    loop {
        let (part, after) = rest.split_once('"')?;
        if text.is_empty() {
            text = Cow::Borrowed(part)
        } else {
            text.to_mut().push_str(part)
        }
        match after.strip_prefix('"') {
            Some(after) => {
                text.to_mut().push('"');
                rest = after;
            }
            // Lenient as most readers are: what stands between the closing quote and the comma belongs to it.
            None => {
                let (tail, after) = after.split_at(after.find(',').unwrap_or(after.len()));
                if !tail.is_empty() {
                    text.to_mut().push_str(tail);
                }
                return Some((text, after));
            }
        }
    }
}

/// The column names of one file.
#[derive(Debug)]
pub struct Header {
    columns: HashMap<String, usize>,
    column_count: usize,
}

impl Header {
    /// Reads the header line and makes sure that it has every one of the `wanted` columns, once.
    ///
    /// # Errors
    /// Which column is missing or doubled and which exist, for the user.
    pub fn parse<'a>(line: &str, wanted: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        // Spreadsheets put a byte order mark in front.
        let line = line.strip_prefix('\u{feff}').unwrap_or(line);
        let names = split(line).ok_or("the header line has a quote that is not closed")?;
        for name in wanted {
            match names
                .iter()
                .filter(|column| column.as_ref() == name)
                .count()
            {
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
        let columns = names.into_iter().map(Cow::into_owned).zip(0..).collect();
        Ok(Self {
            columns,
            column_count,
        })
    }

    /// Splits a finished record.
    ///
    /// # Errors
    /// It has not as many fields as the header, or an open quote.
    pub fn record<'a>(&self, record: &'a str) -> Result<Vec<Cow<'a, str>>, String> {
        let fields = split(record).ok_or("a quoted field is not closed")?;
        if fields.len() == self.column_count {
            return Ok(fields);
        }
        Err(format!(
            "the field count is {}, that of the header {}",
            fields.len(),
            self.column_count
        ))
    }

    /// Returns the field of `fields` in the column `name`; `None` where it is empty.
    pub fn text<'a>(&self, fields: &'a [Cow<'_, str>], name: &str) -> Option<&'a str> {
        let field = fields.get(*self.columns.get(name)?)?;
        (!field.is_empty()).then_some(field.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What the csv crate reads from one record.
    fn model(record: &str) -> Vec<String> {
        let mut reader = ::csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .from_reader(record.as_bytes());
        let record = reader.records().next().expect("a record").expect("valid");
        record.iter().map(str::to_owned).collect()
    }

    #[test]
    fn fields_are_split_as_the_csv_crate_does() {
        for record in [
            "1420030800,Birrarung Marr,1630",
            ",,",
            "a,\"b,c\",d",
            "\"say \"\"hi\"\"\",x",
            "\"\",x",
            "5\" pipe,6\" pipe",
            "\"two\nlines\",x",
            "\"a\"tail,x",
            "\"\"\"\"",
        ] {
            assert_eq!(split(record).expect("closed"), model(record), "{record}");
        }
    }

    proptest! {
        #[test]
        fn prop_splits_as_the_csv_crate(record in "[ab,\" ]{1,12}") {
            // A leading space keeps the model from skipping an empty record.
            let record = format!("x,{record}");
            if let Some(fields) = split(&record) {
                let fields: Vec<String> = fields.into_iter().map(Cow::into_owned).collect();
                prop_assert_eq!(fields, model(&record));
            }
        }

        #[test]
        fn prop_what_is_written_is_read_back(fields in prop::collection::vec("[ab,\"\n é]{0,6}", 1..5)) {
            let written: Vec<String> =
                fields.iter().map(|field| format!("\"{}\"", field.replace('"', "\"\""))).collect();
            let record = written.join(",");
            let mut open = false;
            for line in record.split('\n') {
                open = leaves_open(line, open);
            }
            prop_assert!(!open, "finished after the last line");
            prop_assert_eq!(split(&record), Some(fields.into_iter().map(Cow::Owned).collect()));
        }
    }

    proptest! {
        #[test]
        fn prop_lines_one_by_one_are_as_open_as_all_together(record in "[a,\"\n]{0,12}") {
            let mut whole = String::new();
            let mut open = false;
            for line in record.split('\n') {
                open = leaves_open(line, open);
                whole.push_str(line);
                prop_assert_eq!(open, split(&whole).is_none(), "{}", whole);
                if !open {
                    // Here a record ends.
                    whole.clear();
                } else {
                    whole.push('\n');
                }
            }
        }
    }

    #[test]
    fn an_open_quote_is_unfinished() {
        for record in ["\"a", "x,\"a,b", "\"a\"\"", "\""] {
            assert_eq!(split(record), None, "{record}");
        }
    }

    #[test]
    fn the_header_must_have_the_mapped_columns_once() {
        let header = Header::parse("\u{feff}ts,key,n", ["ts", "n"].into_iter()).expect("complete");
        let fields = header.record("1,\"a b\",").expect("three fields");
        assert_eq!(header.text(&fields, "key"), Some("a b"));
        assert_eq!(header.text(&fields, "n"), None);
        assert_eq!(
            header.record("1,2"),
            Err("the field count is 2, that of the header 3".to_owned())
        );
        let error = Header::parse("ts,key", ["at"].into_iter()).expect_err("missing");
        assert_eq!(error, "no column \"at\"; its columns are \"ts\", \"key\"");
        assert!(
            Header::parse("a,a", ["a"].into_iter()).is_err(),
            "ambiguous"
        );
    }
}
