//! Turns lines into records of one format, from which a mapping takes fields by name.

use std::borrow::Cow;
use std::path::Path;

use clap::ValueEnum;
use tallyring_records::input::csv;
use tallyring_records::input::json::Json;

use super::combined::LogLine;
use super::csv::Header;
use super::json;
use super::lines::LINE_BYTES_MAX;
use super::mapping::Mapping;
use super::place::SourceLine;

/// How the lines of a file are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// JSON lines: one object a line.
    Json,
    /// CSV with a header line.
    Csv,
    /// Web access log in the combined format.
    Combined,
}

impl Format {
    /// Guesses from the name: `.csv`, `.log` (combined), else JSON lines. A final `.gz` or `.zst`, and the number that
    /// rotation added, are ignored.
    pub(super) fn of_name(path: &Path) -> Self {
        let name = path.to_string_lossy().to_ascii_lowercase();
        let packed = [".gz", ".zst"].iter();
        let name = packed.fold(&*name, |name, end| name.strip_suffix(end).unwrap_or(name));
        let name = match name.rsplit_once('.') {
            Some((name, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => name,
        };
        if name.ends_with(".csv") {
            Self::Csv
        } else if name.ends_with(".log") {
            Self::Combined
        } else {
            Self::Json
        }
    }
}

/// A parsed line.
#[derive(Debug)]
pub(super) enum Record<'a> {
    /// An object of JSON lines.
    Json(Json<'a>),
    /// The fields of a CSV record, by its header.
    Csv(&'a Header, csv::Record),
    /// A line of an access log.
    Combined(LogLine<'a>),
}

impl Record<'_> {
    /// Returns the field called `name` as text; `None` where it is missing or empty. The error is a sentence for the
    /// user when the field is no scalar.
    pub(super) fn text(&self, name: &str) -> Result<Option<Cow<'_, str>>, String> {
        match self {
            Self::Json(object) => json::text(object, name),
            Self::Csv(header, record) => Ok(header.text(record, name).map(Cow::Borrowed)),
            Self::Combined(line) => Ok(line.text(name).map(Cow::Borrowed)),
        }
    }
}

/// Whether a line completed a record.
#[derive(Debug)]
pub(super) enum Assembled {
    /// A record, at the place of its first line.
    Record(SourceLine),
    /// Nothing to send: a blank line, a CSV header, or the start of a record that goes on.
    Nothing,
    /// A bad record, and the reason.
    Bad(SourceLine, &'static str),
    /// The file cannot be read with this mapping: its header lacks a column.
    Unusable(String),
}

/// Puts lines of one file together to records and parses them.
#[derive(Debug)]
pub(super) struct Parser {
    format: Format,
    /// CSV: the header of the current file, once read.
    header: Option<Header>,
    /// CSV: the start of a record whose quoted field goes on in the next line.
    open: Option<SourceLine>,
}

impl Parser {
    /// A parser for one file.
    pub(super) fn new(format: Format) -> Self {
        Self {
            format,
            header: None,
            open: None,
        }
    }

    /// Takes the next line. A line numbered 1 starts a file anew, with its own header.
    pub(super) fn assemble(&mut self, line: SourceLine, mapping: &Mapping) -> Assembled {
        if self.format == Format::Csv {
            return self.assemble_csv(line, mapping);
        }
        if is_blank(&line) {
            Assembled::Nothing
        } else {
            Assembled::Record(line)
        }
    }

    fn assemble_csv(&mut self, mut line: SourceLine, mapping: &Mapping) -> Assembled {
        if line.place.line == 1 {
            self.header = None;
            if let Some(open) = self.open.take() {
                // The replaced file ended inside a quote; its successor's first line is no continuation.
                return self.restart(open, &line, mapping);
            }
        }
        if self.open.is_none() && is_blank(&line) {
            return Assembled::Nothing;
        }
        if self.header.is_none() {
            return match self.read_header(&line, mapping) {
                Ok(()) => Assembled::Nothing,
                Err(why) => Assembled::Unusable(why),
            };
        }
        // Only the new line is looked at, so a quote that is never closed costs no more than its bytes.
        let unfinished = csv::leaves_open(&line.text, self.open.is_some());
        if let Some(mut open) = self.open.take() {
            open.text.push(b'\n');
            open.text.append(&mut line.text);
            line = open;
        }
        if !unfinished {
            return Assembled::Record(line);
        }
        if line.text.len() > LINE_BYTES_MAX {
            return Assembled::Bad(
                line,
                "a quoted field that opens here is not closed within 1 MiB",
            );
        }
        self.open = Some(line);
        Assembled::Nothing
    }

    fn restart(&mut self, open: SourceLine, first: &SourceLine, mapping: &Mapping) -> Assembled {
        if !is_blank(first)
            && let Err(why) = self.read_header(first, mapping)
        {
            return Assembled::Unusable(why);
        }
        Assembled::Bad(open, NOT_CLOSED)
    }

    fn read_header(&mut self, line: &SourceLine, mapping: &Mapping) -> Result<(), String> {
        let text = std::str::from_utf8(&line.text).map_err(|_| "the header line is not UTF-8")?;
        self.header = Some(Header::parse(text, mapping.fields())?);
        Ok(())
    }

    /// Returns what the file's end leaves unfinished, and why that is bad.
    pub(super) fn finish(&mut self) -> Option<(SourceLine, &'static str)> {
        self.open.take().map(|line| (line, NOT_CLOSED))
    }

    /// Parses an assembled record. The error is a sentence for the user when the record is bad.
    pub(super) fn parse<'a>(&'a self, record: &'a [u8]) -> Result<Record<'a>, String> {
        if self.format == Format::Json {
            return json::parse(record).map(Record::Json);
        }
        let text = std::str::from_utf8(record).map_err(|error| {
            format!(
                "not UTF-8 from byte {} of the line on",
                error.valid_up_to() + 1
            )
        })?;
        match &self.header {
            Some(header) => header
                .record(text)
                .map(|record| Record::Csv(header, record)),
            None => LogLine::parse(text).map(Record::Combined),
        }
    }
}

const NOT_CLOSED: &str = "a quoted field that opens here is not closed before the file ends";

fn is_blank(line: &SourceLine) -> bool {
    line.text.iter().all(u8::is_ascii_whitespace)
}

#[cfg(test)]
mod tests {
    use super::super::place::Place;
    use super::*;

    fn mapping() -> Mapping {
        Mapping::parse(&["at=ts".to_owned(), "key.l=key".to_owned()]).expect("mapping")
    }

    fn line(number: u64, text: &str) -> SourceLine {
        SourceLine {
            place: Place {
                file: "a.csv".into(),
                line: number,
            },
            text: text.into(),
        }
    }

    #[track_caller]
    fn expect_record(parser: &mut Parser, number: u64, text: &str, place: u64, key: &str) {
        match parser.assemble(line(number, text), &mapping()) {
            Assembled::Record(whole) => {
                assert_eq!(whole.place.line, place);
                let record = parser.parse(&whole.text).expect("fields");
                assert_eq!(record.text("key").expect("scalar").as_deref(), Some(key));
            }
            other => panic!("{other:?}"),
        }
    }

    fn expect_nothing(parser: &mut Parser, number: u64, text: &str) {
        assert!(
            matches!(
                parser.assemble(line(number, text), &mapping()),
                Assembled::Nothing
            ),
            "{text}"
        );
    }

    #[test]
    fn the_format_is_guessed_from_the_name() {
        for (name, format) in [
            ("a.csv", Format::Csv),
            ("a.CSV.gz", Format::Csv),
            ("a.csv.zst", Format::Csv),
            ("access.log.gz", Format::Combined),
            ("access.log.1", Format::Combined),
            ("access.log.12.gz", Format::Combined),
            ("clicks.jsonl", Format::Json),
            ("-", Format::Json),
        ] {
            assert_eq!(Format::of_name(Path::new(name)), format, "{name}");
        }
    }

    #[test]
    fn a_csv_record_over_several_lines_has_the_place_of_its_first() {
        let mut parser = Parser::new(Format::Csv);
        expect_nothing(&mut parser, 1, "ts,key");
        expect_nothing(&mut parser, 2, "");
        expect_nothing(&mut parser, 3, "1,\"two");
        expect_record(&mut parser, 4, "lines\"", 3, "two\nlines");
        expect_record(&mut parser, 5, "1,b", 5, "b");
        expect_nothing(&mut parser, 6, "1,\"open");
        assert_eq!(parser.finish().map(|(line, _)| line.place.line), Some(6));
    }

    #[test]
    fn a_rotated_csv_file_brings_its_own_header() {
        let mut parser = Parser::new(Format::Csv);
        expect_nothing(&mut parser, 1, "ts,key");
        expect_nothing(&mut parser, 2, "1,\"open");
        let bad = parser.assemble(line(1, "key,ts"), &mapping());
        assert!(matches!(bad, Assembled::Bad(open, _) if open.place.line == 2));
        expect_record(&mut parser, 2, "b,1", 2, "b");
    }

    #[test]
    fn a_header_without_a_mapped_column_makes_the_file_unusable() {
        let mut parser = Parser::new(Format::Csv);
        let unusable = parser.assemble(line(1, "time,key"), &mapping());
        assert!(matches!(unusable, Assembled::Unusable(why) if why.contains("no column \"ts\"")));
    }

    #[test]
    fn blank_lines_are_nothing_in_every_format() {
        for format in [Format::Json, Format::Combined] {
            expect_nothing(&mut Parser::new(format), 5, " \t");
        }
    }
}
