//! Verdicts of a day that follow from ids: duplicates, whose id an earlier record of the log has, however long ago it
//! came, and records whose id was voided.
//!
//! The ids of the day come from the log, as 128 keyed bits. They are sorted and merged with the runs of remembered ids.
//! The first of all records with one id counts. A void of the id is merged with them: it takes the first, where that is
//! read here, and what repeats the first is a duplicate as before.
//!
//! Runs have the ids of all records of the log, unless an older build forgot some, or a run is damaged: these come from
//! the log. Where a version is made again, all ids that it knew do, because the runs know others by then.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;
use tallyring_archive::{Blobs, Cursor, Error as ArchiveError, IdRunEntry, Run};
use tallyring_records::line::entries;
use tallyring_records::{Day, LongKeys};

use super::log::{DayLog, Part, Sent};
use super::marks::Marks;
use super::rows::{Merge, Row, Rows, key};
use super::verdict::Verdict;
use crate::error::Result;
use crate::intake::{id_bits, voided_bits};

/// How a record knows an id. The later of two kinds of one record knows more.
mod kind {
    /// A record of any day from the runs of ids, or of another day from the log.
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
    keys: &'b LongKeys,
    day: Day,
    rows: Rows<'b>,
    /// True where the day or those beside have an id.
    has_ids: bool,
    /// The first record whose id [`Self::take_others`] took; the largest number where there is none.
    others_from: u64,
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
            keys,
            day,
            rows: Rows::new(blobs, load, "ids", bytes_max),
            has_ids: false,
            others_from: u64::MAX,
        }
    }

    /// True where an id was taken, so that those of other days matter.
    pub(super) fn has_ids(&self) -> bool {
        self.has_ids
    }

    /// Takes the ids of records of the day and of those beside, and the ids that were voided. Fails when the disk does.
    pub(super) fn take(&mut self, part: &Part) -> Result<()> {
        let (keys, day) = (self.keys, self.day);
        self.has_ids |= part.sent.iter().any(|sent| sent.increment.id.is_some());
        let sent = part.sent.par_iter();
        self.rows
            .add(sent.flat_map_iter(|sent| rows_of(keys, day, sent)))?;
        let voids = part.voids.par_iter().map(|(sequence, void)| {
            let kind = match Day::of(void.at) == day {
                true => kind::VOID,
                false => kind::VOID_BESIDE,
            };
            row(voided_bits(keys, void), *sequence, kind)
        });
        self.rows.add(voids)
    }

    /// Takes the ids of the records `others` whose events are of no time of `log`, which [`Self::take`] was given. Few
    /// are kept but those that the day has, too: no other decides of it. Fails when the log is damaged, or the disk
    /// fails.
    pub(super) fn take_others(
        &mut self,
        log: &DayLog<'_>,
        others: &Range<u64>,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<()> {
        let of_day = self.rows.filter()?;
        let is_other = |sent: &&Sent| {
            others.contains(&sent.sequence) && !log.times.contains(&sent.increment.at)
        };
        let mut take = |part: &Part| {
            let mut known = part.sent.iter().filter(is_other);
            let first = known.find(|sent| sent.increment.id.is_some());
            let first = first.map_or(u64::MAX, |sent| sent.sequence);
            self.others_from = self.others_from.min(first);
            let keys = self.keys;
            let rows = part.sent.par_iter().filter(is_other).filter_map(|sent| {
                let (bits, _) = id_bits(keys, &sent.increment)?;
                Some(row(bits, sent.sequence, kind::REMEMBERED))
            });
            self.rows.add(rows.filter(|row| of_day.contains(&key(row))))
        };
        log.of_all_days(others.end).read(progress, &mut take)
    }

    /// Finds the verdicts that follow from all ids that were taken, and those of records from `from` on that
    /// `remembered` has. Fails when a run of ids is damaged.
    pub(super) fn verdicts(self, remembered: &Remembered<'_>, from: u64) -> Result<IdVerdicts> {
        let mut sources = self.rows.into_sources()?;
        for (_, run) in &remembered.whole {
            let mut ids = Ids::new(run, from);
            sources.push(Box::new(move || ids.next()));
        }
        found_in(Merge::new(sources)?, self.others_from)
    }
}

/// The runs of remembered ids.
pub(super) struct Remembered<'m> {
    whole: Vec<(&'m IdRunEntry, Arc<Run>)>,
    lost: Vec<&'m IdRunEntry>,
}

impl<'m> Remembered<'m> {
    /// Opens the runs but for those that are damaged or gone. Fails when one cannot be read now.
    pub(super) fn open(blobs: &Blobs, entries: &'m [IdRunEntry]) -> Result<Self> {
        let (whole, lost) = (Vec::new(), Vec::new());
        let mut opened = Self { whole, lost };
        for entry in entries {
            match Run::open_named(blobs, &entry.run) {
                Err(error) if error.is_damage() => opened.lose(entry, &error),
                run => opened.whole.push((entry, run?)),
            }
        }
        Ok(opened)
    }

    /// Leaves out the run that was found to be damaged. Fails with an error that is about something else.
    pub(super) fn leave_out(&mut self, error: ArchiveError) -> Result<()> {
        let is_it = |(entry, _): &(&IdRunEntry, _)| error.file() == Some(&*entry.run.name);
        match self
            .whole
            .iter()
            .position(is_it)
            .filter(|_| error.is_damage())
        {
            Some(at) => {
                let (entry, _) = self.whole.swap_remove(at);
                self.lose(entry, &error);
                Ok(())
            }
            None => Err(error.into()),
        }
    }

    /// The runs that are damaged or gone.
    pub(super) fn lost(&self) -> &[&'m IdRunEntry] {
        &self.lost
    }

    fn lose(&mut self, entry: &'m IdRunEntry, error: &ArchiveError) {
        tracing::error!(%error, "a reconcile takes the ids of a run from the log, as far as that has them");
        self.lost.push(entry);
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

/// The verdicts that follow from all rows. Rows of one id come in the order of their records. Ids of other days that
/// are in no row are known from the record `others_from` on.
fn found_in(mut rows: Merge, others_from: u64) -> Result<IdVerdicts> {
    let mut found = IdVerdicts {
        marks: Marks::default(),
        known_from: others_from,
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
    /// The first record whose id is remembered.
    known_from: u64,
}

impl IdVerdicts {
    fn push(&mut self, sequence: u64, verdict: u8) -> Result<()> {
        let what = "duplicates beyond the window of ids, and voids";
        self.marks.push(sequence, verdict, what)
    }

    /// These verdicts, where the ids of some records before `from` were not known.
    pub(super) fn known_since(self, from: u64) -> Self {
        let known_from = match self.known_from {
            // Nobody sent an id from there on.
            u64::MAX if from > 0 => from,
            known_from => known_from.max(from),
        };
        Self { known_from, ..self }
    }

    /// The first record whose id is known; none where no id is.
    pub(super) fn known_from(&self) -> Option<u64> {
        (self.known_from < u64::MAX).then_some(self.known_from)
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
