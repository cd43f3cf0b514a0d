//! Bulk CSV: `namespace,key,hour,count`, for breakdowns also `subtotal,value`, in any order (RFC 4180).

use std::ops::Range;

use ::csv::{ByteRecord, ReaderBuilder};
use tallyring_records::how_many;

use super::chunk::newlines;
use super::field::shown;
use super::row::Fields;
use super::separators::Separators;

/// The columns of a file.
#[derive(Debug)]
pub struct Columns {
    /// Index of each column, by its number in [`NAMES`]; the last two may be missing.
    indices: [Option<usize>; NAMES.len()],
    count: usize,
}

const NAMES: [&str; 6] = ["namespace", "key", "hour", "count", "subtotal", "value"];
const REQUIRED: usize = 4;

/// A function that gets the line of a row, its fields or what is wrong with them, and its text.
pub type EachRow<'e, E> = dyn FnMut(u64, Result<Fields<'_>, String>, &[u8]) -> Result<(), E> + 'e;

impl Columns {
    /// Reads a header.
    ///
    /// # Errors
    /// A sentence for the user that names the missing, unknown or repeated column.
    pub fn read(header: &[u8]) -> Result<Self, String> {
        let mut record = ByteRecord::new();
        let mut reader = ReaderBuilder::new().has_headers(false).from_reader(header);
        let expected = "a header is `namespace,key,hour,count`, for breakdowns also `subtotal,value`, in any order";
        if !matches!(reader.read_byte_record(&mut record), Ok(true)) {
            return Err(format!("the file has no header; {expected}"));
        }
        let read = usize::try_from(reader.position().byte()).unwrap_or(usize::MAX);
        if read < header.trim_ascii_end().len() {
            return Err(
                "the lines of the file end in CR; save the file with lines that end in LF or CRLF"
                    .into(),
            );
        }
        let mut indices = [None; NAMES.len()];
        for (index, name) in record.iter().enumerate() {
            let known = NAMES
                .iter()
                .position(|known| known.as_bytes() == name.trim_ascii());
            let known = known.ok_or_else(|| {
                format!("unknown column {} in the header; {expected}", shown(name))
            })?;
            if indices[known].replace(index).is_some() {
                return Err(format!(
                    "the header has the column `{}` twice",
                    NAMES[known]
                ));
            }
        }
        if let Some(missing) = (0..REQUIRED).find(|&name| indices[name].is_none()) {
            return Err(format!(
                "column `{}` is missing; {expected}",
                NAMES[missing]
            ));
        }
        if indices[REQUIRED].is_some() != indices[REQUIRED + 1].is_some() {
            return Err(format!(
                "the header has only one of `subtotal` and `value`; {expected}"
            ));
        }
        Ok(Self {
            indices,
            count: record.len(),
        })
    }

    /// Calls `each` with every row of a chunk whose first byte is in line `first_line`.
    ///
    /// # Errors
    /// Errors of `each`.
    pub fn rows<E>(
        &self,
        chunk: &[u8],
        first_line: u64,
        each: &mut EachRow<'_, E>,
    ) -> Result<(), E> {
        let (mut rest, mut line) = (chunk, first_line);
        let mut unquoted = Unquoted::default();
        // A row is read alike whatever the other rows of the chunk are.
        while let Some(quote) = memchr::memchr(b'"', rest) {
            let start = memchr::memrchr(b'\n', &rest[..quote]).map_or(0, |at| at + 1);
            if start > 0 {
                self.plain_rows(&rest[..start], line, each)?;
                line += newlines(&rest[..start]);
            }
            let row = &rest[start..];
            let end = self.quoted_row(row, line, &mut unquoted, each)?;
            line += newlines(&row[..end]);
            rest = &row[end..];
        }
        self.plain_rows(rest, line, each)
    }

    /// Reads rows without any quote.
    fn plain_rows<E>(
        &self,
        chunk: &[u8],
        first_line: u64,
        each: &mut EachRow<'_, E>,
    ) -> Result<(), E> {
        let (mut line, mut found) = (first_line, 0);
        // Starts of the fields of a line, and the start of the next line. Slices would be read as wholes just after
        // their halves were written, which processors wait for; numbers are not.
        let mut starts = [0; NAMES.len() + 1];
        for end in Separators::of(chunk).chain([chunk.len()]) {
            found += 1;
            if let Some(next) = starts.get_mut(found) {
                *next = end + 1;
            }
            if chunk.get(end) == Some(&b',') {
                continue;
            }
            let text = chunk.get(starts[0]..end).unwrap_or_default();
            let text = text.strip_suffix(b"\r").unwrap_or(text);
            if found == self.count {
                let line_end = starts[0] + text.len();
                let field =
                    |index: usize| &chunk[starts[index]..line_end.min(starts[index + 1] - 1)];
                each(line, Ok(self.fields(field)), text)?;
            } else if !text.is_empty() {
                each(line, Err(self.wrong_count(found)), text)?;
            }
            (line, starts[0], found) = (line + 1, end + 1, 0);
        }
        Ok(())
    }

    /// Reads the first row of `rest`, which has a quote. Returns the start of the next row.
    fn quoted_row<E>(
        &self,
        rest: &[u8],
        line: u64,
        unquoted: &mut Unquoted,
        each: &mut EachRow<'_, E>,
    ) -> Result<usize, E> {
        let (end, read) = unquoted.read(rest);
        let text = &rest[..end];
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        let row: &Unquoted = unquoted;
        let found = row.fields.len();
        let fields = match read {
            Ok(()) if found == self.count => Ok(self.fields(|index| row.field(index))),
            Ok(()) => Err(self.wrong_count(found)),
            Err(wrong) => Err(wrong.text(line, newlines(text))),
        };
        each(line, fields, text)?;
        Ok(end)
    }

    fn fields<'f>(&self, get: impl Fn(usize) -> &'f [u8]) -> Fields<'f> {
        let field = |name: usize| self.indices[name].map_or(&b""[..], &get);
        Fields {
            namespace: field(0),
            key: field(1),
            hour: field(2),
            count: field(3),
            subtotal: field(4),
            value: field(5),
        }
    }

    fn wrong_count(&self, found: usize) -> String {
        format!(
            "the row has {}, but the header has {}; quote fields that contain a comma",
            how_many(found as u64, "field"),
            self.count
        )
    }
}

/// The fields of a row without their quotes.
#[derive(Default)]
struct Unquoted {
    /// Texts of all fields.
    text: Vec<u8>,
    /// Range of each field in `text`.
    fields: Vec<Range<usize>>,
}

/// Faults of the quotes in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WrongQuotes {
    /// A closing quote is followed by neither a comma nor a line end.
    NotAtEnd,
    /// An opening quote has no closing quote.
    Unclosed,
}

impl WrongQuotes {
    /// Text for the user, for a row that begins in `line` and has `more` further lines.
    fn text(self, line: u64, more: u64) -> String {
        let what = match self {
            Self::NotAtEnd => {
                "a quoted field goes on behind its closing quote; write a quote in a quoted field twice"
            }
            Self::Unclosed => "a quoted field lacks its closing quote; close it",
        };
        match more {
            0 => what.to_owned(),
            more => format!("{what} (the field was read until line {})", line + more),
        }
    }
}

impl Unquoted {
    fn field(&self, index: usize) -> &[u8] {
        &self.text[self.fields[index].clone()]
    }

    /// Reads the first row of `rest`, and returns the start of the next row. If the quotes of the row are wrong, the
    /// next row begins behind the next line end, so that only rows that the field may reach into are lost.
    fn read(&mut self, rest: &[u8]) -> (usize, Result<(), WrongQuotes>) {
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

    /// Takes the unquoted field that begins at `at`, and returns its end. Quotes in it have no meaning.
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

    /// Takes the field whose opening quote stands before `opened`. Returns its end, or what is wrong and where.
    fn quoted(&mut self, rest: &[u8], opened: usize) -> Result<usize, (WrongQuotes, usize)> {
        let mut at = opened;
        loop {
            let Some(behind) = memchr::memchr(b'"', &rest[at..]) else {
                // The text behind the quote is as likely rows as part of the field.
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

/// End of the first record, with its line end.
pub fn first_record_end(bytes: &[u8]) -> usize {
    let mut scan = Scan::default();
    let end = bytes.iter().position(|&byte| scan.ends_record(byte));
    end.map_or(bytes.len(), |at| at + 1)
}

/// End of the last whole record of a chunk that begins with a record; 0 when there is none.
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

/// Follows quotes as rows are read: a quote opens a field only at the start of the field, and a row with wrong quotes
/// ends with its line.
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
    /// Behind a byte that must not follow a closing quote, or behind a CR before the line end.
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
    use super::*;
    use proptest::prelude::*;

    fn rows(header: &str, chunk: &str) -> Vec<(u64, Result<[String; 6], String>)> {
        let columns = Columns::read(header.as_bytes()).unwrap();
        let mut rows = Vec::new();
        let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
        columns
            .rows::<()>(chunk.as_bytes(), 2, &mut |line, fields, _| {
                let fields = fields
                    .map(|f| [f.namespace, f.key, f.hour, f.count, f.subtotal, f.value].map(text));
                rows.push((line, fields));
                Ok(())
            })
            .unwrap();
        rows
    }

    #[test]
    fn lines_are_counted_where_rows_are_quoted_and_lines_are_empty() {
        let columns = Columns::read(b"namespace,key,hour,count\r\n").unwrap();
        let mut lines = Vec::new();
        let chunk = b"l,\"a\",k110,1\r\nl,b,k110,1\r\n\r\n\nl,\"c\nd\",k110,1\nl,e,k110,1";
        let found = columns.rows(chunk, 2, &mut |line, _, text| {
            lines.push((line, text.to_vec()));
            Ok::<(), ()>(())
        });
        found.unwrap();
        let numbers: Vec<u64> = lines.iter().map(|(line, _)| *line).collect();
        assert_eq!(numbers, [2, 3, 6, 8], "{lines:?}");
    }

    #[test]
    fn lines_that_end_in_cr_alone_are_refused() {
        for header in [
            "namespace,key,hour,count\rl,a,k110,5\n",
            "namespace,key,hour,count\rl,a,k110,5",
        ] {
            let refused = Columns::read(header.as_bytes()).map(|_| ()).unwrap_err();
            assert!(refused.contains("LF or CRLF"), "{refused}");
        }
    }

    #[test]
    fn columns_come_in_any_order_and_lines_are_counted() {
        let header = "hour,count,key,namespace\n";
        let plain = rows(header, "1,2,k,l\r\n\n3,4,m,l");
        let row = |fields: [&str; 6]| Ok(fields.map(str::to_owned));
        let expected = vec![
            (2, row(["l", "k", "1", "2", "", ""])),
            (4, row(["l", "m", "3", "4", "", ""])),
        ];
        assert_eq!(plain, expected);
        let quoted = rows(header, "1,2,\"a,\nb\",l\n3,4,m,l\n");
        assert_eq!(quoted[0], (2, row(["l", "a,\nb", "1", "2", "", ""])));
        assert_eq!(quoted[1], (4, row(["l", "m", "3", "4", "", ""])));
    }

    #[test]
    fn wrong_headers_say_what_is_wrong() {
        for (header, what) in [
            ("", "no header"),
            ("namespace,key,hour\n", "`count` is missing"),
            ("namespace,key,hour,count,note\n", "`note`"),
            ("namespace,key,hour,count,key\n", "twice"),
            (
                "namespace,key,hour,count,value\n",
                "one of `subtotal` and `value`",
            ),
        ] {
            let error = Columns::read(header.as_bytes()).unwrap_err();
            assert!(error.contains(what), "{header}: {error}");
        }
    }

    const HEADER: &str = "namespace,key,hour,count\n";

    #[test]
    fn quotes_that_are_wrong_make_one_bad_row_and_those_behind_it_count() {
        let good = |key: &str| Some(key.to_owned());
        for (chunk, expected) in [
            (
                "l,\"foo\" bar,1,5\nl,a,1,1\n",
                vec![(2, None), (3, good("a"))],
            ),
            (
                "l,\"foo\"\r,1,5\nl,\"a\",1,1\r\n",
                vec![(2, None), (3, good("a"))],
            ),
            // Quotes behind the error open nothing.
            (
                "l,\"b\"c,\"d\nl,a,1,1\nl,\"e\",1,1",
                vec![(2, None), (3, good("a")), (4, good("e"))],
            ),
            // Nothing closes the quote, so the field is not known to reach over the end of its line.
            (
                "l,a,1,1\nl,\"b,1,1\nl,c,1,1\n",
                vec![(2, good("a")), (3, None), (4, good("c"))],
            ),
            ("l,\"b,1,1\nl,c,1,1\n", vec![(2, None), (3, good("c"))]),
            ("l,a,1,\"1", vec![(2, None)]),
            // The field may reach there.
            (
                "l,\"b,1,1\nl,c,1,1\nl,\"d\",1,1\nl,e,1,1\n",
                vec![(2, None), (5, good("e"))],
            ),
            (
                "l,5\" disk,1,1\nl,c\"d\",1,1\nl,\"\",1,1\n",
                vec![(2, good("5\" disk")), (3, good("c\"d\"")), (4, good(""))],
            ),
        ] {
            let found: Vec<(u64, Option<String>)> = rows(HEADER, chunk)
                .into_iter()
                .map(|(line, fields)| (line, fields.ok().map(|[_, key, ..]| key)))
                .collect();
            assert_eq!(found, expected, "{chunk:?}");
        }
        let error = rows(HEADER, "l,\"b,1,1\nl,\"d\",1,1\n");
        let error = error[0].1.as_ref().unwrap_err();
        assert!(error.contains("until line 3"), "{error}");
    }

    #[test]
    fn a_cr_within_a_line_is_part_of_its_field_whatever_other_rows_are() {
        let lines = "l,a\rb,1,1\nl,c,1,1\r\n";
        let alone = rows(HEADER, lines);
        let beside = rows(HEADER, &format!("{lines}l,\"d\",1,1\n"));
        assert_eq!(alone[0].1.as_ref().unwrap()[1], "a\rb");
        assert_eq!(alone[..], beside[..alone.len()]);
    }

    proptest! {
        #[test]
        fn prop_cuts_change_no_row(text in "([ab,\"\r\n]|a,b,a,b\n|\"a\",\"\"\",){0,40}") {
            let end = last_record_end(text.as_bytes());
            prop_assert!(end == 0 || text.as_bytes()[end - 1] == b'\n');
            // Errors of bad rows name lines, so only the lines are compared.
            let read = |part: &str, before: u64| -> Vec<(u64, Option<[String; 6]>)> {
                let rows = rows(HEADER, part).into_iter();
                rows.map(|(line, fields)| (line + before, fields.ok())).collect()
            };
            let mut parts = read(&text[..end], 0);
            parts.extend(read(&text[end..], newlines(&text.as_bytes()[..end])));
            prop_assert_eq!(parts, read(&text, 0));
        }

        #[test]
        fn prop_rows_that_the_csv_crate_writes_are_read(
            written in prop::collection::vec(prop::array::uniform4("[ab,\"\r\n ]{0,4}"), 0..8),
        ) {
            let mut text = Vec::new();
            {
                let mut writer = ::csv::Writer::from_writer(&mut text);
                for row in &written {
                    writer.write_record(row).unwrap();
                }
                writer.flush().unwrap();
            }
            let text = String::from_utf8(text).unwrap();
            let read: Vec<[String; 4]> = rows(HEADER, &text)
                .into_iter()
                .map(|(_, fields)| {
                    let [namespace, key, hour, count, ..] = fields.unwrap();
                    [namespace, key, hour, count]
                })
                .collect();
            prop_assert_eq!(read, written);
        }
    }
}
