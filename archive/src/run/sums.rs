//! Sums of values: what a run keeps about a section of values over all keys, so that a breakdown of all keys together
//! need not read its lines.
//!
//! ```text
//! sums c.u|
//! values DE                  values that the list of the section does not have, each with a space
//! counts ebcBb               the sum of each value in the run: those of the list first, then those of `values`
//!
//! times c.u| days            a line for each UTC day that counts; `buckets`: for each base bucket
//! c41 eb                     sums of the values in the same order; zeros at the end are left out
//! c42 aacBb
//! ```
//!
//! Numbers are those of columns. Both are frames of text behind the blocks and the list of their section. The index
//! names them as it names the list, with `sums` or `times` behind the section.
//!
//! Invariant: sums are exact, or they are not there: a sum that 64 bits do not hold is left out, with all others of its
//! section. Both frames together take at most [`SHARE`] of the bytes of their section.

mod tally;

use std::ops::Range;
use std::sync::Arc;

use tallyring_records::{Day, Grain, TimeCode, line};

use super::block::{Block, IndexedBlock};
use super::cache::BlockCache;
use super::columns::take_number;
use super::reader::Run;
use crate::error::{Error, Result};

pub(crate) use tally::ValueTally;

/// Sums may take one in so many bytes of their section.
pub(super) const SHARE: u64 = 25;

/// The frames of a section of values, by what the index has behind the section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Sums,
    Times,
}

/// Spans of the sums by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Buckets,
    Days,
}

impl Part {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sums => "sums",
            Self::Times => "times",
        }
    }

    /// The part that stands behind a section in the index.
    pub(super) fn of(name: &[u8]) -> Option<Self> {
        let all = [Self::Sums, Self::Times].into_iter();
        all.into_iter().find(|part| part.name().as_bytes() == name)
    }

    /// The name of the frame in the index.
    pub(super) fn key(self, section: &[u8]) -> Vec<u8> {
        [section, self.name().as_bytes()].concat()
    }

    /// The lines of a frame of this section; none where its text is in another form.
    pub(super) fn checked(self, text: Vec<u8>, section: &[u8]) -> Option<IndexedBlock> {
        text.ends_with(b"\n").then_some(())?;
        let lines = Block::new(text);
        match self {
            Self::Sums => {
                let head = lines.line(0).strip_prefix(SUMS)?;
                (head == section && lines.len() == SUMS_LINES).then_some(())?;
                lines.line(VALUES_AT).strip_prefix(VALUES)?;
                let counts = lines.line(COUNTS_AT).strip_prefix(COUNTS)?;
                are_numbers(counts).then_some(())?;
            }
            Self::Times => {
                Step::of(&lines, section)?;
                let mut before = None;
                for at in 1..lines.len() {
                    let (code, counts) = split_time(lines.line(at))?;
                    (before < Some(code) && are_numbers(counts)).then_some(())?;
                    before = Some(code);
                }
            }
        }
        Some(IndexedBlock::new(lines))
    }
}

impl Step {
    fn name(self) -> &'static [u8] {
        match self {
            Self::Buckets => b"buckets",
            Self::Days => b"days",
        }
    }

    fn of(lines: &Block, section: &[u8]) -> Option<Self> {
        let name = lines.line(0).strip_prefix(TIMES)?.strip_prefix(section)?;
        let name = name.strip_prefix(b" ")?;
        let all = [Self::Buckets, Self::Days].into_iter();
        all.into_iter().find(|step| step.name() == name)
    }
}

/// True for a section of values that may have sums: one of a declared subtotal.
pub(crate) fn is_summed(section: &[u8]) -> bool {
    line::kind_of(section) == Some(line::Kind::Subtotal) && section.first() != Some(&b'_')
}

impl Run {
    /// Calls `visit` with each value of a section (`c.u|`) and its sum over all keys, in the base buckets that start in
    /// `range` (Unix seconds). False, without a call, where the run does not keep these sums: its lines have to be
    /// read. Fails when a block that is needed is damaged.
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
    /// // Sums are kept where they are small beside the lines.
    /// let clicks = |key: u64| 1 + key * key % 9_973;
    /// for key in 0..9_000 {
    ///     let values = format!("US:{} JP:1", clicks(key));
    ///     writer.push(format!("c.u|{key:04}.c41l").as_bytes(), values.as_bytes())?;
    /// }
    /// for key in 0..9_000 {
    ///     let total = format!("c41l:{}", clicks(key) + 1);
    ///     writer.push(format!("u|{key:04}").as_bytes(), total.as_bytes())?;
    /// }
    /// let entry = writer.finish()?.expect("lines were pushed");
    ///
    /// let (run, cache) = (Run::open_named(&blobs, &entry)?, BlockCache::new(1 << 20));
    /// let april = entry.meta.partition.start()..entry.meta.partition.end();
    /// let mut sums = Vec::new();
    /// assert!(run.sum_values(&cache, b"c.u|", &april, &mut |value, sum| sums.push((value.to_vec(), sum)))?);
    /// let all = (0..9_000).map(clicks).sum();
    /// assert_eq!(sums, [(b"JP".to_vec(), 9_000), (b"US".to_vec(), all)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sum_values(
        &self,
        cache: &BlockCache,
        section: &[u8],
        range: &Range<i64>,
        visit: &mut dyn FnMut(&[u8], u64),
    ) -> Result<bool> {
        let summed = self.try_sum_values(cache, section, range, visit);
        summed.inspect_err(|error| cache.note_damage(error))
    }

    fn try_sum_values(
        &self,
        cache: &BlockCache,
        section: &[u8],
        range: &Range<i64>,
        visit: &mut dyn FnMut(&[u8], u64),
    ) -> Result<bool> {
        let Some(sums) = Sums::of(self, cache, section)? else {
            return Ok(false);
        };
        let (first, last) = (self.meta().first, self.meta().last);
        if range.start <= first && last < range.end {
            let mut counts = sums.counts();
            for value in sums.values()? {
                let sum = take_number(&mut counts).ok_or_else(|| self.contradicts(section))?;
                visit(value, sum);
            }
            return Ok(true);
        }
        let Some(times) = self.named_list(cache, &Part::Times.key(section))? else {
            return Ok(false);
        };
        let step = Step::of(times.lines(), section).ok_or_else(|| self.contradicts(section))?;
        let Some(lines) = lines_in(times.lines(), step, range, first..last.saturating_add(1))
        else {
            return Ok(false);
        };
        let values = sums.values()?;
        let mut added = vec![0_u64; values.len()];
        for (_, mut counts) in lines.iter().filter_map(|line| split_time(line)) {
            let mut at = added.iter_mut();
            while !counts.is_empty() {
                let sum = at.next().zip(take_number(&mut counts));
                let (sum, count) = sum.ok_or_else(|| self.contradicts(section))?;
                *sum = sum.saturating_add(count);
            }
        }
        for (value, sum) in values.into_iter().zip(added).filter(|(_, sum)| *sum > 0) {
            visit(value, sum);
        }
        Ok(true)
    }

    /// A tally with which the sums of a section can be compared; none where the run keeps none.
    pub(crate) fn tally_of_values(
        &self,
        cache: &BlockCache,
        section: &[u8],
    ) -> Result<Option<ValueTally>> {
        if Sums::of(self, cache, section)?.is_none() {
            return Ok(None);
        }
        let times = self.named_list(cache, &Part::Times.key(section))?;
        let step = times.and_then(|times| Step::of(times.lines(), section));
        Ok(Some(ValueTally::to_compare(step)))
    }

    fn contradicts(&self, section: &[u8]) -> Error {
        let what = format!(
            "the sums of `{}` contradict each other",
            line::shown(section)
        );
        Error::damaged(self.name(), 0, what)
    }
}

/// The sums of a section in a run.
struct Sums<'r> {
    run: &'r Run,
    section: &'r [u8],
    lines: Arc<IndexedBlock>,
    list: Option<Arc<IndexedBlock>>,
}

impl<'r> Sums<'r> {
    fn of(run: &'r Run, cache: &BlockCache, section: &'r [u8]) -> Result<Option<Self>> {
        let Some(lines) = run.named_list(cache, &Part::Sums.key(section))? else {
            return Ok(None);
        };
        Ok(Some(Self {
            run,
            section,
            lines,
            list: run.named_list(cache, section)?,
        }))
    }

    fn counts(&self) -> &[u8] {
        let line = self.lines.lines().line(COUNTS_AT);
        line.strip_prefix(COUNTS).unwrap_or_default()
    }

    /// The values in the order of the counts.
    fn values(&self) -> Result<Vec<&[u8]>> {
        let own = self.lines.lines().line(VALUES_AT);
        let own = own.strip_prefix(VALUES).unwrap_or_default();
        let own = own
            .split(|&byte| byte == b' ')
            .filter(|own| !own.is_empty());
        let listed = self.list.iter().map(|list| list.lines());
        let listed = listed.flat_map(|list| (0..list.len()).map(|at| list.line(at)));
        let values: Vec<&[u8]> = listed.chain(own).collect();
        let counts = self.counts().iter().filter(|&&byte| is_last(byte)).count();
        match counts == values.len() {
            true => Ok(values),
            false => Err(self.run.contradicts(self.section)),
        }
    }
}

/// The lines whose sums count in a range, of a run that counts within `counted`. None where the range divides a day.
fn lines_in<'l>(
    lines: &'l Block,
    step: Step,
    range: &Range<i64>,
    counted: Range<i64>,
) -> Option<Vec<&'l [u8]>> {
    let mut within = Vec::new();
    for line in (1..lines.len()).map(|at| lines.line(at)) {
        let (code, _) = split_time(line)?;
        let span = match step {
            Step::Buckets => code.start()..code.start() + 1,
            Step::Days => {
                let day = Day::of(code.start());
                day.start().max(counted.start)..day.next().start().min(counted.end)
            }
        };
        if range.start <= span.start && span.end <= range.end {
            within.push(line);
        } else if range.start < span.end && span.start < range.end {
            return None;
        }
    }
    Some(within)
}

/// The time and the sums of a line.
fn split_time(line: &[u8]) -> Option<(TimeCode, &[u8])> {
    let space = memchr::memchr(b' ', line)?;
    Some((TimeCode::parse(&line[..space]).ok()?, &line[space + 1..]))
}

fn are_numbers(mut text: &[u8]) -> bool {
    while !text.is_empty() {
        if take_number(&mut text).is_none() {
            return false;
        }
    }
    true
}

/// True for the last digit of a number.
fn is_last(byte: u8) -> bool {
    byte.is_ascii_lowercase()
}

/// The day or the base bucket whose sums a count belongs to.
fn span_of(code: TimeCode, step: Step) -> TimeCode {
    match step {
        Step::Buckets => code,
        Step::Days => TimeCode::containing(code.start(), Grain::Day),
    }
}

const SUMS: &[u8] = b"sums ";
const VALUES: &[u8] = b"values ";
const COUNTS: &[u8] = b"counts ";
const TIMES: &[u8] = b"times ";

/// Number of the line of values.
const VALUES_AT: usize = 1;
/// Number of the line of sums.
const COUNTS_AT: usize = 2;
const SUMS_LINES: usize = 3;
