//! Verdicts of a day that follow from ids: duplicates, whose id an earlier record of the log has, however long ago it
//! came, and records whose id was voided.
//!
//! The ids of the day come from the log, as 128 keyed bits. They are sorted and merged with the runs of remembered ids,
//! which reach as far back as the log. The first of all records with one id counts. A void of the id is merged with
//! them: it takes the first, where that is read here, and what repeats the first is a duplicate as before.
//!
//! Where a version is made again, the ids of other days come from the log: the runs know others by then.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;
use tallyring_archive::{Blobs, Cursor, Error as ArchiveError, Run};
use tallyring_records::line::entries;
use tallyring_records::{Day, LongKeys};

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

/// Ids of other days, for a version that is made again.
pub(super) struct KnownFromLog {
    /// Ids of records from this one on were known.
    pub ids_from: u64,
    /// Times of the events by which the day is judged (Unix seconds); of others the ids alone matter.
    pub beside: Range<i64>,
}

/// Collects the ids of a day.
pub(super) struct IdsOfDay<'b> {
    keys: &'b LongKeys,
    /// None where runs of ids have those of other days.
    from_log: Option<KnownFromLog>,
    day: Day,
    rows: Rows<'b>,
}

impl<'b> IdsOfDay<'b> {
    /// Holds `bytes_max` bytes in memory; files of `incoming/` begin with `load`.
    pub(super) fn new(
        blobs: &'b Blobs,
        (keys, from_log): (&'b LongKeys, Option<KnownFromLog>),
        (load, day): (&str, Day),
        bytes_max: u64,
    ) -> Self {
        Self {
            keys,
            from_log,
            day,
            rows: Rows::new(blobs, load, "ids", bytes_max),
        }
    }

    /// Takes the ids of records, and those that were voided. Fails when the disk does.
    pub(super) fn take(&mut self, part: &Part) -> Result<()> {
        let (keys, day, from_log) = (self.keys, self.day, self.from_log.as_ref());
        let sent = part.sent.par_iter();
        self.rows
            .add(sent.flat_map_iter(|sent| rows_of(keys, (day, from_log), sent)))?;
        let voids = part.voids.par_iter().filter_map(|(sequence, void)| {
            let kind = match Day::of(void.at) == day {
                true => kind::VOID,
                false if !is_beside(from_log, void.at) => return None,
                false => kind::VOID_BESIDE,
            };
            Some(row(voided_bits(keys, void), *sequence, kind))
        });
        self.rows.add(voids)
    }

    /// Finds the verdicts that follow from all ids that `remembered` and the day have. Fails when a run of ids is
    /// damaged.
    pub(super) fn verdicts(self, remembered: Vec<Arc<Run>>) -> Result<IdVerdicts> {
        let mut sources = self.rows.into_sources()?;
        let ids_from = self.from_log.map_or(0, |known| known.ids_from);
        for run in remembered {
            let mut ids = Ids::new(&run, ids_from);
            sources.push(Box::new(move || ids.next()));
        }
        found_in(Merge::new(sources)?)
    }
}

/// Whether the day is judged by an event of that time, which is of another day and was read.
fn is_beside(from_log: Option<&KnownFromLog>, at: i64) -> bool {
    from_log.is_none_or(|known| known.beside.contains(&at))
}

fn rows_of(
    keys: &LongKeys,
    (day, from_log): (Day, Option<&KnownFromLog>),
    sent: &Sent,
) -> impl Iterator<Item = Row> + use<> {
    let (sequence, at) = (sent.sequence, sent.increment.at);
    let own_kind = match Day::of(at) == day {
        true => kind::OF_DAY,
        false if is_beside(from_log, at) => kind::BESIDE,
        false => kind::REMEMBERED,
    };
    let is_known =
        own_kind != kind::REMEMBERED || from_log.is_none_or(|known| known.ids_from <= sequence);
    let bits = is_known.then(|| id_bits(keys, &sent.increment)).flatten();
    let (own, nobodys) = bits.unzip();
    let own = own.map(|bits| row(bits, sequence, own_kind));
    let nobodys = nobodys.flatten().filter(|_| own_kind != kind::REMEMBERED);
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
    /// Earlier records are left out.
    from: u64,
    /// Further records of the line, the next one last.
    more: Vec<Row>,
}

impl Ids {
    fn new(run: &Arc<Run>, from: u64) -> Self {
        Self {
            run: Arc::clone(run),
            cursor: run.cursor(),
            from,
            more: Vec::new(),
        }
    }

    fn next(&mut self) -> Result<Option<Row>> {
        loop {
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
            sequences.retain(|sequence| *sequence >= self.from);
            sequences.sort_unstable_by_key(|sequence| Reverse(*sequence));
            let remembered = |sequence| row(bits, sequence, kind::REMEMBERED);
            self.more = sequences.into_iter().map(remembered).collect();
        }
    }
}

/// The verdicts that follow from all rows. Rows of one id come in the order of their records.
fn found_in(mut rows: Merge) -> Result<IdVerdicts> {
    let mut found = IdVerdicts {
        marks: Marks::default(),
        known_from: u64::MAX,
    };
    let mut id = None;
    // The first record that has the id, and how it is known.
    let mut first: Option<(u64, u64)> = None;
    while let Some([high, low, sequence, how]) = rows.next()? {
        if how == kind::REMEMBERED {
            found.known_from = found.known_from.min(sequence);
        }
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
    found.marks.sort();
    Ok(found)
}

/// Verdicts as marks; of two on one record the lower one stands, so a duplicate is never voided.
const DUPLICATE: u8 = 0;
const OF_OTHER_DAY: u8 = 1;
const VOIDED: u8 = 2;

/// Records that do not count because of their ids.
#[derive(Debug)]
pub(super) struct IdVerdicts {
    marks: Marks,
    /// The first record whose id came from the runs of ids.
    known_from: u64,
}

impl IdVerdicts {
    fn push(&mut self, sequence: u64, verdict: u8) -> Result<()> {
        let what = "duplicates beyond the window of ids, and voids";
        self.marks.push(sequence, verdict, what)
    }

    /// The first record whose id the runs of ids have; `u64::MAX` where they are empty.
    pub(super) fn known_from(&self) -> u64 {
        self.known_from
    }

    /// Lets records be asked for from the first on.
    pub(super) fn begin_again(&mut self) {
        self.marks.begin_again();
    }

    /// The verdict on a record; none where its id lets it count. The records are asked for in ascending order.
    pub(super) fn of(&mut self, sequence: u64) -> Option<Verdict> {
        Some(match self.marks.of(sequence)? {
            DUPLICATE => Verdict::Duplicate,
            OF_OTHER_DAY => Verdict::DuplicateOfOtherDay,
            _ => Verdict::Voided,
        })
    }
}
