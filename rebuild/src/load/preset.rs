//! Files that other programs exported: a preset says which of their columns count, and how.
//!
//! Invariant: a record counts as a whole or not at all. Columns that no preset names are ignored, because such files
//! gain columns with each version of their program; a column that a preset needs is asked for by name.

use std::str::FromStr;

use tallyring_records::input::csv::Record;
use tallyring_records::{Schema, how_many};

use super::chunk::newlines;
use super::csv::record;
use super::field::shown;
use super::row::Fields;

/// A program whose exported files a load reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// Visits of short URLs: CSV, or JSON lines of its API. Each counts once.
    Shlink,
    /// Page views, as CSV of version 1 or 2. Each counts once.
    GoatCounter,
    /// Sums by the day, as CSV.
    Plausible,
}

/// How the files of a program count.
#[derive(Debug, Clone)]
pub struct Preset {
    program: Program,
    namespace: String,
    /// The key of records whose file has no column of keys; empty where the caller named none.
    key: String,
    /// Subtotals of the namespace that have these titles.
    country: Option<String>,
    referrer: Option<String>,
    device: Option<String>,
}

/// Sees a record's line, its rows or what is wrong with it, and its text.
pub(super) type EachRecord<'e, E> =
    dyn FnMut(u64, Result<&[Fields<'_>], String>, &[u8]) -> Result<(), E> + 'e;

impl FromStr for Program {
    type Err = &'static str;

    /// Reads a name such as `shlink`. The error is a sentence for the user.
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "shlink" => Ok(Self::Shlink),
            "goatcounter" => Ok(Self::GoatCounter),
            "plausible" => Ok(Self::Plausible),
            _ => Err("write shlink, goatcounter or plausible"),
        }
    }
}

impl Preset {
    /// Counts files of `program` in `namespace`, and records without a key under `key`. Breakdowns by country, referrer
    /// and device go to the subtotals with these titles. The error is a sentence for the user.
    pub fn new(
        program: Program,
        schema: &Schema,
        namespace: &str,
        key: Option<&str>,
    ) -> Result<Self, String> {
        let declared = schema.namespace(namespace).ok_or_else(|| {
            let names = schema.names();
            let given = shown(namespace.as_bytes());
            format!("the namespace must be one of {names}; got {given}")
        })?;
        let titled = |title: &str| {
            let mut subtotals = declared.subtotals.iter();
            subtotals
                .find(|subtotal| schema.title_of(subtotal) == title)
                .cloned()
        };
        Ok(Self {
            program,
            namespace: namespace.to_owned(),
            key: key.unwrap_or_default().to_owned(),
            country: titled("country"),
            referrer: titled("referrer"),
            device: titled("device"),
        })
    }

    /// The key that the caller named, or else this one.
    pub(super) fn key_or<'f>(&'f self, key: &'f [u8]) -> &'f [u8] {
        match &*self.key {
            "" => key,
            named => named.as_bytes(),
        }
    }

    /// The program.
    pub(super) fn program(&self) -> Program {
        self.program
    }

    /// The subtotal that has the title country.
    pub(super) fn country(&self) -> Option<&str> {
        self.country.as_deref()
    }

    /// The subtotal that has the title referrer.
    pub(super) fn referrer(&self) -> Option<&str> {
        self.referrer.as_deref()
    }

    /// The rows of one visit, or of a sum: a total, and a part of each breakdown.
    pub(super) fn row<'f>(&'f self, key: &'f [u8], hour: &'f [u8], count: &'f [u8]) -> Fields<'f> {
        Fields {
            namespace: self.namespace.as_bytes(),
            key: match key {
                [] => self.key.as_bytes(),
                key => key,
            },
            hour,
            count,
            subtotal: b"",
            value: b"",
            unit: b"",
        }
    }
}

/// Where the columns of a file stand that count.
#[derive(Debug)]
pub(super) struct Columns {
    preset: Preset,
    names: Vec<String>,
    key: Option<usize>,
    date: usize,
    /// Without one, each record counts once.
    count: Option<usize>,
    /// A record with something in one of these does not count: a bot's, and Shlink's type of visits of no short URL.
    left_out: [Option<usize>; 2],
    /// False where the file is nothing but a breakdown.
    has_total: bool,
    parts: Vec<Part>,
}

/// A column that breaks down.
#[derive(Debug)]
struct Part {
    place: usize,
    subtotal: String,
    is_country: bool,
}

impl Columns {
    /// Reads a header. The error tells the user which column is missing, or what to do with such a file.
    pub(super) fn read(preset: &Preset, header: &[u8]) -> Result<Self, String> {
        let mut record = Record::default();
        let (_, read) = record.read(header.trim_ascii_end());
        read.map_err(|wrong| format!("in the header, {wrong}"))?;
        let names = (0..record.count())
            .map(|place| String::from_utf8_lossy(record.field(place).trim_ascii()).into_owned())
            .collect();
        let header = Header(names);
        match preset.program {
            Program::Shlink => Self::of_shlink(preset, header),
            Program::GoatCounter => Self::of_goatcounter(preset, header),
            Program::Plausible => Self::of_plausible(preset, header),
        }
    }

    fn of_shlink(preset: &Preset, header: Header) -> Result<Self, String> {
        let short = header.find("Short URL");
        let visited = header.find("Visited URL");
        let key = short.or(visited.filter(|_| preset.key.is_empty()));
        // Countries are there by name alone, whereas live counts have their codes.
        let parts = part(preset.referrer.as_ref(), header.need("Referer")?, false);
        Self {
            date: header.need("Date")?,
            left_out: [header.find("Potential bot"), header.find("Type")],
            ..Self::new(preset, header, key)
        }
        .with(parts)
    }

    fn of_goatcounter(preset: &Preset, mut header: Header) -> Result<Self, String> {
        let first = header.0.first_mut().filter(|name| name.ends_with("Path"));
        let first =
            first.ok_or("its first column is not `2Path`; name a CSV export of GoatCounter")?;
        let version = first.trim_end_matches("Path");
        if !matches!(version, "1" | "2") {
            return Err(format!(
                "it is an export of version {}; versions 1 and 2 are read",
                shown(version.as_bytes())
            ));
        }
        "Path".clone_into(first);
        let (country, referrer) = (header.need("Location")?, header.need("Referrer")?);
        let mut parts = part(preset.country.as_ref(), country, true);
        parts.extend(part(preset.referrer.as_ref(), referrer, false));
        Self {
            date: header.need("Date")?,
            left_out: [Some(header.need("Bot")?), None],
            ..Self::new(preset, header, Some(0))
        }
        .with(parts)
    }

    fn of_plausible(preset: &Preset, header: Header) -> Result<Self, String> {
        let date = header.need("date")?;
        if let Some(page) = header.find("page") {
            return Self {
                date,
                count: Some(header.need("pageviews")?),
                ..Self::new(preset, header, Some(page))
            }
            .with(Vec::new());
        }
        let others = [
            "entry_page",
            "exit_page",
            "browser",
            "operating_system",
            "name",
        ];
        if let Some(other) = others.into_iter().find(|name| header.find(name).is_some()) {
            return Err(format!(
                "it has the column `{other}`, which does not count; leave the file out, and name imported_pages, \
                 imported_visitors, imported_locations, imported_sources or imported_devices"
            ));
        }
        // Visits of a file sum to those of imported_visitors; views of a page may be of the next day.
        let count = Some(header.need("visits")?);
        let dimensions = [
            ("country", "country", &preset.country),
            ("device", "device", &preset.device),
            ("referrer", "referrer", &preset.referrer),
            ("source", "referrer", &preset.referrer),
        ];
        let found = dimensions
            .into_iter()
            .find_map(|(column, title, subtotal)| Some((header.find(column)?, title, subtotal)));
        let parts = match found {
            None => Vec::new(),
            Some((place, title, Some(subtotal))) => part(Some(subtotal), place, title == "country"),
            Some((_, title, None)) => {
                return Err(format!(
                    "it counts by {title}, and `{}` has no subtotal with that title; leave the file out, or give a \
                     subtotal the title in [titles] of the configuration",
                    preset.namespace
                ));
            }
        };
        Self {
            date,
            count,
            has_total: found.is_none(),
            ..Self::new(preset, header, None)
        }
        .with(parts)
    }

    /// Columns of which the key is known so far.
    fn new(preset: &Preset, header: Header, key: Option<usize>) -> Self {
        Self {
            preset: preset.clone(),
            names: header.0,
            key,
            date: 0,
            count: None,
            left_out: [None, None],
            has_total: true,
            parts: Vec::new(),
        }
    }

    fn with(self, parts: Vec<Part>) -> Result<Self, String> {
        if self.key.is_none() && self.preset.key.is_empty() {
            return Err("it has no column with keys; give the key of its rows with --key".into());
        }
        Ok(Self { parts, ..self })
    }

    /// Calls `each` with every record of a chunk whose first byte stands at line `first_line`.
    pub(super) fn rows<E>(
        &self,
        chunk: &[u8],
        first_line: u64,
        each: &mut EachRecord<'_, E>,
    ) -> Result<(), E> {
        let (mut rest, mut line) = (chunk, first_line);
        let mut fields = Record::default();
        while !rest.is_empty() {
            let (end, text, read) = record(rest, line, self.names.len(), &mut fields);
            if !text.is_empty() {
                let rows = read.and_then(|()| self.fields(&fields));
                let rows = rows.as_deref().map_err(Clone::clone);
                each(line, rows, text)?;
            }
            line += newlines(&rest[..end]);
            rest = &rest[end..];
        }
        Ok(())
    }

    /// The rows of a record.
    fn fields<'f>(&'f self, record: &'f Record) -> Result<Vec<Fields<'f>>, String> {
        let field = |place: usize| record.field(place);
        let mut left_out = self.left_out.into_iter().flatten();
        let is_left_out = left_out.any(|place| !is_no(field(place)));
        let count = match self.count {
            Some(count) => field(count),
            None => times(is_left_out),
        };
        let key = self.key.map_or(&b""[..], field);
        let key = match self.preset.program {
            Program::Shlink => code(key),
            Program::GoatCounter | Program::Plausible => key,
        };
        let mut total = self.preset.row(key, field(self.date), count);
        if self.preset.program == Program::Plausible {
            total.unit = b"day";
        }
        let mut rows = Vec::with_capacity(1 + self.parts.len());
        rows.extend(self.has_total.then_some(total));
        for part in &self.parts {
            let value = field(part.place);
            let value = match part.is_country {
                true => country(&self.names[part.place], value)?,
                false => named_as_here(value),
            };
            rows.push(Fields {
                subtotal: part.subtotal.as_bytes(),
                value,
                ..total
            });
        }
        Ok(rows)
    }

    /// Says what is wrong with a row, in the names of the file's columns.
    pub(super) fn named(&self, detail: &str) -> String {
        let name = |place: usize| format!("`{}`", self.names[place]);
        let mut detail = detail.replace("`hour`", &name(self.date));
        for (field, place) in [
            ("`key`", self.key),
            ("`count`", self.count),
            ("`value`", self.parts.last().map(|part| part.place)),
        ] {
            if let Some(place) = place {
                detail = detail.replace(field, &name(place));
            }
        }
        detail
    }
}

/// Names of columns, as they are in a file.
struct Header(Vec<String>);

impl Header {
    /// The place of a column. Neither case nor spaces make a difference: a command writes `Short url`, a page
    /// `shortUrl`.
    fn find(&self, name: &str) -> Option<usize> {
        let plain = |name: &str| name.to_ascii_lowercase().replace(' ', "");
        self.0.iter().position(|known| plain(known) == plain(name))
    }

    fn need(&self, name: &str) -> Result<usize, String> {
        self.find(name).ok_or_else(|| {
            format!(
                "column `{name}` is missing among its {}; name the file as it was exported",
                how_many(self.0.len() as u64, "column")
            )
        })
    }
}

fn part(subtotal: Option<&String>, place: usize, is_country: bool) -> Vec<Part> {
    let subtotal = subtotal.cloned();
    let part = subtotal.map(|subtotal| Part {
        place,
        subtotal,
        is_country,
    });
    part.into_iter().collect()
}

/// How often a visit counts.
pub(super) fn times(is_left_out: bool) -> &'static [u8] {
    match is_left_out {
        true => b"0",
        false => b"1",
    }
}

fn is_no(text: &[u8]) -> bool {
    matches!(text, b"" | b"0" | b"false")
}

/// The code of a short URL that was visited: its path. Its pixel has one more segment.
pub(super) fn code(url: &[u8]) -> &[u8] {
    let behind = memchr::memmem::find(url, b"://").map_or(0, |at| at + 3);
    let path = memchr::memchr(b'/', &url[behind..]).map_or(url.len(), |at| behind + at + 1);
    let code = &url[path..];
    let code = &code[..memchr::memchr2(b'?', b'#', code).unwrap_or(code.len())];
    code.strip_suffix(b"/track").unwrap_or(code)
}

/// The country of a place such as `US` or `US-TX`; none is empty. `column` is its name in the file.
pub(super) fn country<'c>(column: &str, place: &'c [u8]) -> Result<&'c [u8], String> {
    match place {
        [] => Ok(b""),
        [a, b] | [a, b, b'-', ..] if a.is_ascii_uppercase() && b.is_ascii_uppercase() => {
            Ok(&place[..2])
        }
        _ => Err(format!(
            "`{column}` is {}; write the two letters of a country, such as US, or leave it empty",
            shown(place)
        )),
    }
}

/// A referrer or a device as live counts have it. Shlink's page writes `Direct` for no referrer, and Plausible devices
/// in words of its own.
fn named_as_here(text: &[u8]) -> &[u8] {
    match text {
        b"Direct" => b"",
        b"Desktop" | b"Laptop" => b"desktop",
        b"Mobile" => b"mobile",
        b"Tablet" => b"tablet",
        text => text,
    }
}
