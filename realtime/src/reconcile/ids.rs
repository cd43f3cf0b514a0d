//! Verdicts of a day that follow from ids: duplicates, whose id an earlier record of the log has, however long ago it
//! came, and records whose id was voided.
//!
//! The ids of the day come from the log, as 128 keyed bits. They are sorted and merged with the runs of remembered ids,
//! which reach as far back as the log. The first of all records with one id counts. A void of the id is merged with
//! them: it takes the first, where that is read here, and what repeats the first is a duplicate as before.

use std::cmp::Reverse;
use std::sync::Arc;

use rayon::prelude::*;
use tallyring_archive::{Blobs, Cursor, Error as ArchiveError, Run, RunEntry};
use tallyring_records::line::entries;
use tallyring_records::{Day, LongKeys, Void};

use super::log::{Part, Sent};
use super::marks::Marks;
use super::rows::{Merge, Row, Rows};
use super::verdict::Verdict;
use crate::error::Result;
use crate::intake::{id_bits, voided_bits};

/// How a record knows an id. The later of two kinds of one record knows more.
mod kind {
    /// A record of any day, from the runs of ids.
    pub(super) const REMEMBERED: u64 = 0;
    /// The id of a record of a day beside, as rules with memory need it.
    pub(super) const BESIDE: u64 = 1;
    /// The id of a record of the day.
    pub(super) const OF_DAY: u64 = 2;
    /// The id of a record, as a sender without an identity would have sent it.
    pub(super) const OF_NOBODY: u64 = 3;
    /// A void of the id, on the day.
    pub(super) const VOID: u64 = 4;
    /// A void of the id, on a day beside.
    pub(super) const VOID_BESIDE: u64 = 5;
}

/// Collects the ids of a day.
pub(super) struct IdsOfDay<'b> {
    blobs: &'b Blobs,
    keys: &'b LongKeys,
    day: Day,
    rows: Rows<'b>,
}

impl<'b> IdsOfDay<'b> {
    /// Holds `bytes_max` bytes in memory; files of `incoming/` begin with `load`.
    pub(super) fn new(
        blobs: &'b Blobs,
        keys: &'b LongKeys,
        (load, day): (&str, Day),
        bytes_max: u64,
    ) -> Self {
        Self {
            blobs,
            keys,
            day,
            rows: Rows::new(blobs, load, "ids", bytes_max),
        }
    }

    /// Takes the ids of records, and those that were voided. Fails when the disk does.
    pub(super) fn take(&mut self, part: &Part) -> Result<()> {
        let (keys, day) = (self.keys, self.day);
        let sent = part.sent.par_iter();
        self.rows
            .add(sent.flat_map_iter(|sent| rows_of(keys, day, sent)))?;
        let kind_of = |void: &Void| match Day::of(void.at) == day {
            true => kind::VOID,
            false => kind::VOID_BESIDE,
        };
        let voids = part.voids.par_iter();
        let voids =
            voids.map(|(sequence, void)| row(voided_bits(keys, void), *sequence, kind_of(void)));
        self.rows.add(voids)
    }

    /// Finds the verdicts that follow from all ids that `remembered` and the day have. Fails when a run of ids is
    /// damaged.
    pub(super) fn verdicts(self, remembered: &[&RunEntry]) -> Result<IdVerdicts> {
        let mut sources = self.rows.into_sources()?;
        for run in Run::open_all(self.blobs, remembered.iter().copied())? {
            let mut ids = Ids::new(&run);
            sources.push(Box::new(move || ids.next()));
        }
        found_in(Merge::new(sources)?)
    }
}

fn rows_of(keys: &LongKeys, day: Day, sent: &Sent) -> impl Iterator<Item = Row> + use<> {
    let sequence = sent.sequence;
    let own_kind = match Day::of(sent.increment.at) == day {
        true => kind::OF_DAY,
        false => kind::BESIDE,
    };
    let (own, nobodys) = id_bits(keys, &sent.increment).unzip();
    let own = own.map(|bits| row(bits, sequence, own_kind));
    let nobodys = nobodys.flatten();
    let nobodys = nobodys.map(|bits| row(bits, sequence, kind::OF_NOBODY));
    own.into_iter().chain(nobodys)
}

fn row(bits: u128, sequence: u64, kind: u64) -> Row {
    [(bits >> 64) as u64, bits as u64, sequence, kind]
}

/// The lines of a run of ids.
struct Ids {
    run: Arc<Run>,
    cursor: Cursor,
    /// Further records of the line, the next one last.
    more: Vec<Row>,
}

impl Ids {
    fn new(run: &Arc<Run>) -> Self {
        Self {
            run: Arc::clone(run),
            cursor: run.cursor(),
            more: Vec::new(),
        }
    }

    fn next(&mut self) -> Result<Option<Row>> {
        if let Some(row) = self.more.pop() {
            return Ok(Some(row));
        }
        if !self.cursor.advance()? {
            return Ok(None);
        }
        let Some((key, payload)) = self.cursor.line()? else {
            return Ok(None);
        };
        let hex = key
            .strip_prefix(b"id|")
            .and_then(|hex| std::str::from_utf8(hex).ok());
        let bits = hex.and_then(|hex| u128::from_str_radix(hex, 16).ok());
        let sequences: Option<Vec<u64>> = entries(payload)
            .map(|entry| entry.map(|(_, sequence)| sequence))
            .collect();
        let Some((bits, mut sequences)) = bits.zip(sequences) else {
            let what = "the run has a line that is not an id";
            return Err(ArchiveError::malformed(self.run.name(), what).into());
        };
        sequences.sort_unstable_by_key(|sequence| Reverse(*sequence));
        let remembered = |sequence| row(bits, sequence, kind::REMEMBERED);
        self.more = sequences.into_iter().map(remembered).collect();
        Ok(self.more.pop())
    }
}

/// The verdicts that follow from all rows. Rows of one id come in the order of their records.
fn found_in(mut rows: Merge) -> Result<IdVerdicts> {
    let mut found = IdVerdicts::default();
    let mut id = None;
    // The first record that has the id, and how it is known.
    let mut first: Option<(u64, u64)> = None;
    while let Some([high, low, sequence, how]) = rows.next()? {
        if id != Some((high, low)) {
            id = Some((high, low));
            first = None;
        }
        match (how, first) {
            (kind::VOID, Some((of, kind::OF_DAY)))
            | (kind::VOID_BESIDE, Some((of, kind::BESIDE))) => found.push(of, VOIDED)?,
            (kind::BESIDE | kind::OF_DAY | kind::OF_NOBODY, Some((of, of_kind))) => {
                if of < sequence {
                    let is_of_day = of_kind == kind::OF_DAY;
                    found.push(sequence, if is_of_day { DUPLICATE } else { OF_OTHER_DAY })?;
                } else if how != kind::OF_NOBODY {
                    // The runs of ids have the record, too.
                    first = Some((of, how));
                }
            }
            (kind::REMEMBERED | kind::BESIDE | kind::OF_DAY, None) => {
                first = Some((sequence, how));
            }
            _ => {}
        }
    }
    found.0.sort();
    Ok(found)
}

/// Verdicts as marks; of two on one record the lower one stands, so a duplicate is never voided.
const DUPLICATE: u8 = 0;
const OF_OTHER_DAY: u8 = 1;
const VOIDED: u8 = 2;

/// Records that do not count because of their ids.
#[derive(Debug, Default)]
pub(super) struct IdVerdicts(Marks);

impl IdVerdicts {
    fn push(&mut self, sequence: u64, verdict: u8) -> Result<()> {
        let what = "duplicates beyond the window of ids, and voids";
        self.0.push(sequence, verdict, what)
    }

    /// Lets records be asked for from the first on.
    pub(super) fn begin_again(&mut self) {
        self.0.begin_again();
    }

    /// The verdict on a record; none where its id lets it count. The records are asked for in ascending order.
    pub(super) fn of(&mut self, sequence: u64) -> Option<Verdict> {
        Some(match self.0.of(sequence)? {
            DUPLICATE => Verdict::Duplicate,
            OF_OTHER_DAY => Verdict::DuplicateOfOtherDay,
            _ => Verdict::Voided,
        })
    }
}
