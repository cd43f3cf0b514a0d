//! A summary: what a run keeps about all keys of a section of totals, so that a read of all keys need not read them.
//!
//! ```text
//! summary u|
//! totals c41l:5 c41m:9       the sum of all keys by base bucket, in 128 bits
//! top 4 abc:50 xyz:40        the heaviest keys of the run, largest count first, ties by key; each other key has at
//!                            most 4
//! top c41 2 abc:20 xyz:5     the same of a UTC day; a month has a line for every day that counts, a year none
//! ```
//!
//! It is a frame of text behind blocks of its section, which the index names as it names a list of values. A base
//! bucket belongs to the day in which it starts. Counts of keys are at most [`COUNT_MAX`].
//!
//! [`COUNT_MAX`]: tallyring_records::COUNT_MAX

mod tally;

use std::str::FromStr;
use std::sync::Arc;

use tallyring_records::{Day, Grain, TimeCode, line};

use crate::run::block::{Block, IndexedBlock};

pub(crate) use tally::Tally;

/// The sums and the heaviest keys of a section of totals. Cheap to clone.
///
/// ```
/// use tallyring_archive::{BlockCache, Blobs, Run, RunSpec, RunWriter};
///
/// let directory = tempfile::tempdir()?;
/// let blobs = Blobs::local(directory.path())?;
/// blobs.prepare()?;
/// let spec = RunSpec {
///     origin: "load 0123456789abcdef".parse()?,
///     partition: "2012-04".parse()?,
///     shard: 0,
///     shards: 1,
///     level: 3,
/// };
/// let mut writer = RunWriter::create(&blobs, spec)?;
/// for number in 0..9_000 {
///     writer.push(format!("u|{number:04}").as_bytes(), b"c41l:2")?;
/// }
/// writer.push(b"u|jehiah", b"c41l:5")?;
/// let entry = writer.finish()?.expect("lines were pushed");
///
/// let run = Run::open_named(&blobs, &entry)?;
/// let summary = run.summary(&BlockCache::new(1 << 20), b"u|")?.expect("there are many lines");
/// assert_eq!(summary.totals().collect::<Vec<_>>(), [("c41l".parse()?, 18_005)]);
/// assert_eq!(summary.top().keys().next(), Some((&b"jehiah"[..], 5)));
/// assert_eq!(summary.top().rest, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Summary {
    /// Lines that were checked when they were read.
    lines: Arc<IndexedBlock>,
}

/// The heaviest keys of a span.
#[derive(Debug, Clone, Copy)]
pub struct TopList<'s> {
    /// The most that a key counts that is not listed.
    pub rest: u64,
    entries: &'s [u8],
}

impl TopList<'_> {
    /// Stored keys and their counts, largest count first, ties by key.
    pub fn keys(&self) -> impl Iterator<Item = (&[u8], u64)> {
        line::entries(self.entries).flatten()
    }
}

impl Summary {
    /// The sum of all keys in each base bucket that counts, ascending.
    pub fn totals(&self) -> impl Iterator<Item = (TimeCode, u128)> + '_ {
        totals(self.lines.lines().line(TOTALS_AT)).flatten()
    }

    /// The heaviest keys of the whole run.
    pub fn top(&self) -> TopList<'_> {
        let list = TopList::parse(self.lines.lines().line(TOP_AT));
        list.expect("BUG: the lines were checked")
    }

    /// The heaviest keys of one UTC day; none where the run keeps no lists of days. A day without counts has an empty
    /// list.
    pub fn top_of(&self, day: Day) -> Option<TopList<'_>> {
        let lines = self.lines.lines();
        let mut days = (DAYS_AT..lines.len()).filter_map(|at| TopList::parse_day(lines.line(at)));
        let list = days.find(|(of, _)| *of == day).map(|(_, list)| list);
        let empty = TopList {
            rest: 0,
            entries: b"",
        };
        self.has_days().then(|| list.unwrap_or(empty))
    }

    /// Whether the run keeps lists of days.
    pub fn has_days(&self) -> bool {
        self.lines.lines().len() > DAYS_AT
    }

    /// Lines that [`checked`] has checked.
    pub(super) fn of(lines: Arc<IndexedBlock>) -> Self {
        Self { lines }
    }
}

impl<'s> TopList<'s> {
    fn parse(line: &'s [u8]) -> Option<Self> {
        Self::parse_rest(line.strip_prefix(TOP)?)
    }

    fn parse_day(line: &'s [u8]) -> Option<(Day, Self)> {
        let (code, rest) = first_word(line.strip_prefix(TOP)?);
        let code = TimeCode::parse(code).ok();
        let code = code.filter(|code| code.grain() == Grain::Day)?;
        Some((Day::of(code.start()), Self::parse_rest(rest)?))
    }

    fn parse_rest(text: &'s [u8]) -> Option<Self> {
        let (rest, entries) = first_word(text);
        let rest = number(rest)?;
        Some(Self { rest, entries })
    }

    /// Whether each entry can be read, they are in order, and none counts less than the rest.
    fn is_in_form(&self) -> bool {
        let mut before: Option<(u64, &[u8])> = None;
        line::entries(self.entries).all(|entry| {
            let Some((key, count)) = entry else {
                return false;
            };
            let follows =
                before.is_none_or(|(more, first)| count < more || (count == more && first < key));
            before = Some((count, key));
            follows && count >= self.rest
        })
    }
}

/// The lines of a summary of this section; none where its text is in another form.
pub(super) fn checked(text: Vec<u8>, section: &[u8]) -> Option<IndexedBlock> {
    text.ends_with(b"\n").then_some(())?;
    let lines = Block::new(text);
    let has_all = lines.len() >= DAYS_AT && lines.line(0).strip_prefix(HEAD) == Some(section);
    has_all.then_some(())?;
    let mut before = None;
    for total in totals(lines.line(TOTALS_AT)) {
        let code = Some(total?.0);
        (before < code).then_some(())?;
        before = code;
    }
    let top = TopList::parse(lines.line(TOP_AT))?;
    top.is_in_form().then_some(())?;
    let mut before = None;
    for at in DAYS_AT..lines.len() {
        let (day, list) = TopList::parse_day(lines.line(at))?;
        (before < Some(day) && list.is_in_form()).then_some(())?;
        before = Some(day);
    }
    Some(IndexedBlock::new(lines))
}

/// The entries of the line of totals.
fn totals(line: &[u8]) -> impl Iterator<Item = Option<(TimeCode, u128)>> {
    let entries = line.strip_prefix(TOTALS).unwrap_or_default();
    entries.split(|&byte| byte == b' ').map(|entry| {
        let colon = memchr::memchr(b':', entry)?;
        let code = TimeCode::parse(&entry[..colon]).ok()?;
        Some((code, number(&entry[colon + 1..])?))
    })
}

/// The text before the first space, and the text behind it.
fn first_word(text: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(b' ', text) {
        Some(space) => (&text[..space], &text[space + 1..]),
        None => (text, b""),
    }
}

/// A number in the only form that this build writes.
fn number<N: FromStr>(digits: &[u8]) -> Option<N> {
    let (first, rest) = digits.split_first()?;
    (first.is_ascii_digit() && (*first != b'0' || rest.is_empty())).then_some(())?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

const HEAD: &[u8] = b"summary ";
const TOTALS: &[u8] = b"totals ";
const TOP: &[u8] = b"top ";

/// Number of the line of totals.
const TOTALS_AT: usize = 1;
/// Number of the line of the run's heaviest keys.
const TOP_AT: usize = 2;
/// Number of the first line of a day.
const DAYS_AT: usize = 3;
