//! Bulk CSV: `namespace,key,hour,count`, for breakdowns also `subtotal,value`, for days also `unit`, in any
//! order (RFC 4180).

use tallyring_records::how_many;
use tallyring_records::input::csv::{Record, WrongQuotes};

use super::chunk::newlines;
use super::field::shown;
use super::row::Fields;
use super::separators::Separators;

/// Where the columns stand.
#[derive(Debug)]
pub(super) struct Columns {
    /// By number in [`COLUMNS`]; the last three may be missing.
    places: [Option<usize>; COLUMNS.len()],
    count: usize,
}

/// Names of the columns of a table of counts. The first four must be there.
pub const COLUMNS: [&str; 7] = [
    "namespace",
    "key",
    "hour",
    "count",
    "subtotal",
    "value",
    "unit",
];
const REQUIRED: usize = 4;

/// Sees a row's line, its fields or what is wrong with it, and its text.
pub(super) type EachRow<'e, E> =
    dyn FnMut(u64, Result<Fields<'_>, String>, &[u8]) -> Result<(), E> + 'e;

impl Columns {
    /// Reads a header. The error tells the user which column is missing, unknown or doubled.
    pub(super) fn read(header: &[u8]) -> Result<Self, String> {
        let expected = "a header is `namespace,key,hour,count`, for breakdowns also `subtotal,value`, for days also `unit`, in any order";
        let header = header.trim_ascii_end();
        if header.is_empty() {
            return Err(format!("it has no header; {expected}"));
        }
        if header.contains(&b'\r') {
            return Err("its lines end in CR; save it with lines that end in LF or CRLF".into());
        }
        let mut record = Record::default();
        let (_, read) = record.read(header);
        read.map_err(|wrong| format!("in the header, {wrong}"))?;
        let mut places = [None; COLUMNS.len()];
        for place in 0..record.count() {
            let name = record.field(place);
            let known = COLUMNS
                .iter()
                .position(|known| known.as_bytes() == name.trim_ascii());
            let known = known.ok_or_else(|| {
                format!("unknown column {} in the header; {expected}", shown(name))
            })?;
            if places[known].replace(place).is_some() {
                return Err(format!("column `{}` is there twice", COLUMNS[known]));
            }
        }
        if let Some(missing) = (0..REQUIRED).find(|&name| places[name].is_none()) {
            return Err(format!(
                "column `{}` is missing; {expected}",
                COLUMNS[missing]
            ));
        }
        if places[REQUIRED].is_some() != places[REQUIRED + 1].is_some() {
            return Err(format!("it has one of `subtotal` and `value`; {expected}"));
        }
        Ok(Self {
            places,
            count: record.count(),
        })
    }

    /// Calls `each` with every row of a chunk whose first byte stands at line `first_line`.
    pub(super) fn rows<E>(
        &self,
        chunk: &[u8],
        first_line: u64,
        each: &mut EachRow<'_, E>,
    ) -> Result<(), E> {
        let (mut rest, mut line) = (chunk, first_line);
        let mut unquoted = Record::default();
        // Rows are read alike whatever stands beside them in the chunk.
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

    /// Rows without any quote.
    fn plain_rows<E>(
        &self,
        chunk: &[u8],
        first_line: u64,
        each: &mut EachRow<'_, E>,
    ) -> Result<(), E> {
        let (mut line, mut found) = (first_line, 0);
        // Where the fields of a line start, and where the next line does. (Numbers rather than slices: those would be
        // read as wholes just after their halves were written, which processors wait for.)
        let mut starts = [0; COLUMNS.len() + 1];
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
                each(line, Err(wrong_count(found, self.count)), text)?;
            }
            (line, starts[0], found) = (line + 1, end + 1, 0);
        }
        Ok(())
    }

    /// The row that `rest` begins with, and in which a quote is; where the next one begins.
    fn quoted_row<E>(
        &self,
        rest: &[u8],
        line: u64,
        unquoted: &mut Record,
        each: &mut EachRow<'_, E>,
    ) -> Result<usize, E> {
        let (end, text, read) = record(rest, line, self.count, unquoted);
        let row: &Record = unquoted;
        let fields = read.map(|()| self.fields(|place| row.field(place)));
        each(line, fields, text)?;
        Ok(end)
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
            unit: field(6),
        }
    }
}

/// Reads the record that `rest` begins with, of a file whose header has `count` fields. Returns where the next one
/// begins, the text of this one, and what is wrong with it.
pub(super) fn record<'r>(
    rest: &'r [u8],
    line: u64,
    count: usize,
    fields: &mut Record,
) -> (usize, &'r [u8], Result<(), String>) {
    let (end, read) = fields.read(rest);
    let text = &rest[..end];
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    let read = match read {
        Ok(()) if fields.count() == count => Ok(()),
        Ok(()) => Err(wrong_count(fields.count(), count)),
        Err(wrong) => Err(wrong_quotes(wrong, line, newlines(text))),
    };
    (end, text, read)
}

fn wrong_count(found: usize, count: usize) -> String {
    format!(
        "it has {}, the header {count}; quote fields that hold a comma",
        how_many(found as u64, "field")
    )
}

/// Says what is wrong with the quotes of a row that begins in `line` and has `more` lines than that.
fn wrong_quotes(wrong: WrongQuotes, line: u64, more: u64) -> String {
    match more {
        0 => wrong.to_string(),
        more => format!("{wrong} (it was read until line {})", line + more),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tallyring_records::input::csv::last_record_end;

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
            ("namespace,key,hour,count,unit,unit\n", "twice"),
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
            // Quotes behind the place where it went wrong open nothing.
            (
                "l,\"b\"c,\"d\nl,a,1,1\nl,\"e\",1,1",
                vec![(2, None), (3, good("a")), (4, good("e"))],
            ),
            // Nothing closes it, so that it is not known to reach over its line's end.
            (
                "l,a,1,1\nl,\"b,1,1\nl,c,1,1\n",
                vec![(2, good("a")), (3, None), (4, good("c"))],
            ),
            ("l,\"b,1,1\nl,c,1,1\n", vec![(2, None), (3, good("c"))]),
            ("l,a,1,\"1", vec![(2, None)]),
            // It may reach there.
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
        let told = rows(HEADER, "l,\"b,1,1\nl,\"d\",1,1\n");
        let told = told[0].1.as_ref().unwrap_err();
        assert!(told.contains("until line 3"), "{told}");
    }

    #[test]
    fn a_cr_within_a_line_is_part_of_its_field_whatever_stands_beside_it() {
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
            // Messages about a bad row name lines.
            let read = |part: &str, before: u64| -> Vec<(u64, Option<[String; 6]>)> {
                let rows = rows(HEADER, part).into_iter();
                rows.map(|(line, fields)| (line + before, fields.ok())).collect()
            };
            let mut parts = read(&text[..end], 0);
            parts.extend(read(&text[end..], newlines(&text.as_bytes()[..end])));
            prop_assert_eq!(parts, read(&text, 0));
        }

        #[test]
        fn prop_what_the_csv_crate_writes_is_read(
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
