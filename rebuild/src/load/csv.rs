//! Bulk CSV: `namespace,key,hour,count`, for breakdowns also `subtotal,value`, in any order (RFC 4180).

use ::csv::{ByteRecord, ReaderBuilder};
use tallyring_records::how_many;

use super::field::shown;
use super::row::Fields;
use super::separators::Separators;

/// Where the columns stand.
#[derive(Debug)]
pub struct Columns {
    /// By number in [`NAMES`]; the last two may be missing.
    places: [Option<usize>; NAMES.len()],
    count: usize,
}

const NAMES: [&str; 6] = ["namespace", "key", "hour", "count", "subtotal", "value"];
const REQUIRED: usize = 4;

/// Sees a row's line, its fields or what is wrong with it, and its text.
pub type EachRow<'e, E> = dyn FnMut(u64, Result<Fields<'_>, String>, &[u8]) -> Result<(), E> + 'e;

impl Columns {
    /// Reads a header.
    ///
    /// # Errors
    /// Which column is missing, unknown or doubled, for the user.
    pub fn read(header: &[u8]) -> Result<Self, String> {
        let mut record = ByteRecord::new();
        let mut reader = ReaderBuilder::new().has_headers(false).from_reader(header);
        let expected = "a header is `namespace,key,hour,count`, for breakdowns also `subtotal,value`, in any order";
        if !matches!(reader.read_byte_record(&mut record), Ok(true)) {
            return Err(format!("it has no header; {expected}"));
        }
        let read = usize::try_from(reader.position().byte()).unwrap_or(usize::MAX);
        if read < header.trim_ascii_end().len() {
            return Err("its lines end in CR; save it with lines that end in LF or CRLF".into());
        }
        let mut places = [None; NAMES.len()];
        for (place, name) in record.iter().enumerate() {
            let known = NAMES
                .iter()
                .position(|known| known.as_bytes() == name.trim_ascii());
            let known = known.ok_or_else(|| {
                format!("unknown column {} in the header; {expected}", shown(name))
            })?;
            if places[known].replace(place).is_some() {
                return Err(format!("column `{}` is there twice", NAMES[known]));
            }
        }
        if let Some(missing) = (0..REQUIRED).find(|&name| places[name].is_none()) {
            return Err(format!(
                "column `{}` is missing; {expected}",
                NAMES[missing]
            ));
        }
        if places[REQUIRED].is_some() != places[REQUIRED + 1].is_some() {
            return Err(format!("it has one of `subtotal` and `value`; {expected}"));
        }
        Ok(Self {
            places,
            count: record.len(),
        })
    }

    /// Calls `each` with every row of a chunk whose first byte stands at line `first_line`.
    ///
    /// # Errors
    /// What `each` says.
    pub fn rows<E>(
        &self,
        chunk: &[u8],
        first_line: u64,
        each: &mut EachRow<'_, E>,
    ) -> Result<(), E> {
        if memchr::memchr(b'"', chunk).is_some() {
            return self.quoted_rows(chunk, first_line, each);
        }
        let (mut line, mut found) = (first_line, 0);
        // Where the fields of a line start, and where the next line does. (Numbers rather than slices: those would be read
        // as wholes just after their halves were written, which processors wait for.)
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
                    |place: usize| &chunk[starts[place]..line_end.min(starts[place + 1] - 1)];
                each(line, Ok(self.fields(field)), text)?;
            } else if !text.is_empty() {
                each(line, Err(self.wrong_count(found)), text)?;
            }
            (line, starts[0], found) = (line + 1, end + 1, 0);
        }
        Ok(())
    }

    fn quoted_rows<E>(
        &self,
        chunk: &[u8],
        first_line: u64,
        each: &mut EachRow<'_, E>,
    ) -> Result<(), E> {
        let mut reader = ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .from_reader(chunk);
        let mut record = ByteRecord::new();
        // Reading memory does not fail, and bytes are not checked to be text here.
        while matches!(reader.read_byte_record(&mut record), Ok(true)) {
            let (mut line, start) = record
                .position()
                .map_or((0, 0), |position| (position.line() - 1, position.byte()));
            let start = usize::try_from(start).unwrap_or(0);
            let end = usize::try_from(reader.position().byte()).unwrap_or(0);
            let text = chunk.get(start..end).unwrap_or_default();
            // The rest of the line end before it, and empty lines.
            let before = text.iter().take_while(|byte| matches!(byte, b'\r' | b'\n'));
            line += before.filter(|&&byte| byte == b'\n').count() as u64;
            let text = text.trim_ascii();
            let fields = if record.len() == self.count {
                Ok(self.fields(|place| &record[place]))
            } else {
                Err(self.wrong_count(record.len()))
            };
            each(first_line + line, fields, text)?;
        }
        Ok(())
    }

    fn fields<'f>(&self, get: impl Fn(usize) -> &'f [u8]) -> Fields<'f> {
        let field = |name: usize| self.places[name].map_or(&b""[..], &get);
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
            "it has {}, the header {}; quote fields that hold a comma",
            how_many(found as u64, "field"),
            self.count
        )
    }
}

/// Where the first record ends, its line end included.
pub fn first_record_end(bytes: &[u8]) -> usize {
    let mut scan = Scan::default();
    let end = bytes.iter().position(|&byte| scan.ends_record(byte));
    end.map_or(bytes.len(), |at| at + 1)
}

/// Where the last whole record of a chunk ends, which begins with one; 0 when there is none.
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

/// Follows quotes as the csv crate does: one opens a field only at its start.
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
}

impl Scan {
    fn ends_record(&mut self, byte: u8) -> bool {
        self.state = match (self.state, byte) {
            (State::Quoted, b'"') => State::QuoteInQuoted,
            (State::Quoted, _) | (State::FieldStart | State::QuoteInQuoted, b'"') => State::Quoted,
            (_, b',' | b'\n') => State::FieldStart,
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

    proptest! {
        #[test]
        fn prop_cuts_are_between_the_records_of_the_csv_crate(text in "[ab,\"\n]{0,40}") {
            let end = last_record_end(text.as_bytes());
            let count = |text: &str| {
                let reader = ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
                reader.into_byte_records().flatten().collect::<Vec<_>>()
            };
            let mut parts = count(&text[..end]);
            parts.extend(count(&text[end..]));
            prop_assert_eq!(parts, count(&text));
        }
    }
}
