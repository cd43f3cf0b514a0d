//! CSV records (RFC 4180) with strict quotes.
//!
//! A quote opens a field at its start only. A quoted field ends with a quote behind which a comma, a line end or
//! nothing stands; a quote within it is written twice. A record whose quotes are wrong ends with its line, so that it
//! takes no more records with it than it may reach into.

use std::fmt;
use std::ops::Range;

/// The fields of one record, without their quotes.
#[derive(Debug, Default)]
pub struct Record {
    /// The text of all fields.
    text: Vec<u8>,
    /// Where each field stands in the text.
    fields: Vec<Range<usize>>,
}

/// A fault of the quotes of a record. Its text is a sentence for the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WrongQuotes {
    /// Neither a comma nor a line end stands behind a closing quote.
    NotAtEnd,
    /// A quoted field lacks its closing quote.
    Unclosed,
}

impl fmt::Display for WrongQuotes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAtEnd => {
                "a quoted field goes on behind its closing quote; write a quote in a quoted field twice"
            }
            Self::Unclosed => "a quoted field lacks its closing quote; close it",
        })
    }
}

impl Record {
    /// How many fields the record has.
    pub fn count(&self) -> usize {
        self.fields.len()
    }

    /// Returns the field with the number `at`, counted from 0. Panics when the record has no such field.
    pub fn field(&self, at: usize) -> &[u8] {
        &self.text[self.fields[at].clone()]
    }

    /// Reads the record that `rest` begins with. Returns where the next record begins, and what is wrong with the
    /// quotes of this one.
    pub fn read(&mut self, rest: &[u8]) -> (usize, Result<(), WrongQuotes>) {
        self.text.clear();
        self.fields.clear();
        let mut at = 0;
        loop {
            let start = self.text.len();
            let end = if rest.get(at) == Some(&b'"') {
                self.quoted(rest, at + 1)
            } else {
                Ok(self.plain(rest, at))
            };
            let end = match end {
                Ok(end) => end,
                Err((wrong, at)) => {
                    let line_end = memchr::memchr(b'\n', &rest[at..]);
                    let next = line_end.map_or(rest.len(), |behind| at + behind + 1);
                    return (next, Err(wrong));
                }
            };
            self.fields.push(start..self.text.len());
            if rest.get(end) != Some(&b',') {
                return (rest.len().min(end + 1), Ok(()));
            }
            at = end + 1;
        }
    }

    /// Takes the unquoted field that begins at `at` and returns where it ends. Quotes within it are part of its text.
    fn plain(&mut self, rest: &[u8], at: usize) -> usize {
        let end = memchr::memchr2(b',', b'\n', &rest[at..]);
        let end = end.map_or(rest.len(), |behind| at + behind);
        let mut field = &rest[at..end];
        if rest.get(end) != Some(&b',') {
            field = field.strip_suffix(b"\r").unwrap_or(field);
        }
        self.text.extend_from_slice(field);
        end
    }

    /// Takes the field whose opening quote stands before `opened`. Returns where it ends, or what is wrong and where.
    fn quoted(&mut self, rest: &[u8], opened: usize) -> Result<usize, (WrongQuotes, usize)> {
        let mut at = opened;
        loop {
            let Some(behind) = memchr::memchr(b'"', &rest[at..]) else {
                // The text behind the quote is as likely further records as part of the field.
                return Err((WrongQuotes::Unclosed, opened));
            };
            let quote = at + behind;
            self.text.extend_from_slice(&rest[at..quote]);
            at = quote + 1;
            match &rest[at..] {
                [b'"', ..] => {
                    self.text.push(b'"');
                    at += 1;
                }
                [] | [b',' | b'\n', ..] => return Ok(at),
                [b'\r'] | [b'\r', b'\n', ..] => return Ok(at + 1),
                _ => return Err((WrongQuotes::NotAtEnd, at)),
            }
        }
    }
}

/// Returns where the first record of `bytes` ends, its line end included.
pub fn first_record_end(bytes: &[u8]) -> usize {
    let mut scan = Scan::default();
    let end = bytes.iter().position(|&byte| scan.ends_record(byte));
    end.map_or(bytes.len(), |at| at + 1)
}

/// Returns where the last whole record of `bytes` ends, which begin with a record; 0 when no record is whole.
pub fn last_record_end(bytes: &[u8]) -> usize {
    let Some(quote) = memchr::memchr(b'"', bytes) else {
        return memchr::memrchr(b'\n', bytes).map_or(0, |at| at + 1);
    };
    let mut end = memchr::memrchr(b'\n', &bytes[..quote]).map_or(0, |at| at + 1);
    let mut scan = Scan::default();
    for (at, &byte) in bytes.iter().enumerate().skip(end) {
        if scan.ends_record(byte) {
            end = at + 1;
        }
    }
    end
}

/// True when a quoted field is open at the end of `line`, whose line end was taken off. `is_open` says whether a quoted
/// field was open at its start.
pub fn leaves_open(line: &[u8], is_open: bool) -> bool {
    let mut scan = Scan::default();
    if is_open {
        scan.state = State::Quoted;
    }
    for &byte in line {
        scan.ends_record(byte);
    }
    scan.state == State::Quoted
}

/// Follows the quotes of records byte by byte.
#[derive(Default)]
struct Scan {
    state: State,
}

#[derive(Default, Clone, Copy, PartialEq)]
enum State {
    #[default]
    FieldStart,
    Plain,
    Quoted,
    QuoteInQuoted,
    /// Behind a byte that must not stand behind a closing quote, or behind the CR of a line end.
    BehindQuoted,
}

impl Scan {
    fn ends_record(&mut self, byte: u8) -> bool {
        self.state = match (self.state, byte) {
            (State::Quoted, b'"') => State::QuoteInQuoted,
            (State::Quoted, _) | (State::FieldStart | State::QuoteInQuoted, b'"') => State::Quoted,
            (_, b'\n') | (State::FieldStart | State::Plain | State::QuoteInQuoted, b',') => {
                State::FieldStart
            }
            (State::QuoteInQuoted | State::BehindQuoted, _) => State::BehindQuoted,
            _ => State::Plain,
        };
        byte == b'\n' && self.state == State::FieldStart
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(record: &str) -> Result<Vec<String>, WrongQuotes> {
        let mut fields = Record::default();
        let (_, read) = fields.read(record.as_bytes());
        read.map(|()| {
            let field = |at| String::from_utf8(fields.field(at).to_vec()).unwrap();
            (0..fields.count()).map(field).collect()
        })
    }

    /// The fields that the csv crate reads.
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
            "\"\"\"\"",
        ] {
            assert_eq!(split(record), Ok(model(record)), "{record}");
        }
    }

    #[test]
    fn wrong_quotes_are_an_error() {
        for record in ["\"a", "x,\"a,b", "\"a\"\"", "\""] {
            assert_eq!(split(record), Err(WrongQuotes::Unclosed), "{record}");
            assert!(leaves_open(record.as_bytes(), false), "{record}");
        }
        for record in ["\"a\"tail,x", "\"a\" ,x", "\"a\"b\"c\""] {
            assert_eq!(split(record), Err(WrongQuotes::NotAtEnd), "{record}");
            assert!(!leaves_open(record.as_bytes(), false), "{record}");
        }
    }

    proptest! {
        #[test]
        fn prop_splits_as_the_csv_crate(record in "[ab,\" ]{1,12}") {
            // The csv crate skips an empty record.
            let record = format!("x,{record}");
            if let Ok(fields) = split(&record) {
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
                open = leaves_open(line.as_bytes(), open);
            }
            prop_assert!(!open, "finished after the last line");
            prop_assert_eq!(split(&record), Ok(fields));
        }

        #[test]
        fn prop_lines_one_by_one_are_as_open_as_all_together(record in "[a,\"\n]{0,12}") {
            let mut whole = String::new();
            let mut open = false;
            for line in record.split('\n') {
                open = leaves_open(line.as_bytes(), open);
                whole.push_str(line);
                prop_assert_eq!(open, split(&whole) == Err(WrongQuotes::Unclosed), "{}", whole);
                if !open {
                    // Here a record ends.
                    whole.clear();
                } else {
                    whole.push('\n');
                }
            }
        }
    }
}
