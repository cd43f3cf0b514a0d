//! Sums of all keys of a namespace together: by base bucket, or in one number.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use tallyring_records::TimeCode;
use tallyring_records::line::hours;

use super::View;
use super::less::{below_zero, buckets_less};
use super::minutes::{Each, Minutes, divides};
use super::parts::File;
use super::ranking::CountedSpan;
use super::read::Series;
use super::scan::Section;
use crate::delta::Delta;
use crate::error::Result;

/// Sums over all keys in a range.
#[derive(Default)]
pub(super) struct Tally {
    range: Range<i64>,
    /// Sum of the base buckets that start in the range.
    pub total: u64,
    /// Sum of the base buckets that the range divides.
    pub divided: u64,
    /// Span of the base buckets that start in the range.
    pub counted: Option<CountedSpan>,
    /// Sums by base bucket, where the caller needs them.
    by_bucket: Option<BTreeMap<TimeCode, u64>>,
}

/// Sums of all keys in a range by base bucket.
pub(super) struct Sums {
    pub totals: BTreeMap<TimeCode, u64>,
    /// True where the range divides a base bucket that counts something.
    pub is_cut: bool,
}

/// The memory and the files that may count something of a section.
pub(super) struct Sources<'v> {
    pub deltas: Vec<&'v Delta>,
    /// Files whose counts are added.
    pub plus: Vec<File<'v>>,
    /// Files whose counts are taken away.
    pub minus: Vec<File<'v>>,
}

impl Tally {
    /// Begins with nothing counted in `range` (Unix seconds).
    pub(super) fn new(range: &Range<i64>) -> Self {
        Self {
            range: range.clone(),
            ..Self::default()
        }
    }

    /// As [`Tally::new`], with sums by base bucket.
    pub(super) fn by_bucket(range: &Range<i64>) -> Self {
        Self {
            by_bucket: Some(BTreeMap::new()),
            ..Self::new(range)
        }
    }

    /// Takes away what another tally of the range counts. Both have sums by base bucket. False where less was counted.
    pub(super) fn take_away(&mut self, less: &Self) -> bool {
        let (Some(sums), Some(of_less)) = (&mut self.by_bucket, &less.by_bucket) else {
            return false;
        };
        let is_enough = buckets_less(sums, of_less);
        self.counted = None;
        for code in sums.keys() {
            CountedSpan::note(&mut self.counted, *code);
        }
        let left = (
            self.total.checked_sub(less.total),
            self.divided.checked_sub(less.divided),
        );
        let (Some(total), Some(divided)) = left else {
            return false;
        };
        (self.total, self.divided) = (total, divided);
        is_enough
    }

    /// Notes a count of a base bucket.
    pub(super) fn note(&mut self, code: TimeCode, count: u64) {
        if divides(&self.range, code) {
            self.divided = self.divided.saturating_add(count);
        }
        if count == 0 || !self.range.contains(&code.start()) {
            return;
        }
        self.total = self.total.saturating_add(count);
        CountedSpan::note(&mut self.counted, code);
        if let Some(sums) = &mut self.by_bucket {
            let sum = sums.entry(code).or_insert(0);
            *sum = sum.saturating_add(count);
        }
    }
}

impl View<'_> {
    /// The sum of all keys of a namespace by base bucket in `range` (Unix seconds), from one view. Where `by_minute` is
    /// true, counts by minute, and by base bucket the counts without minutes: the namespace keeps minutes and the range
    /// has whole base buckets then. The series has these totals alone, and says whether the range cuts a day. Takes the
    /// memory of one count for each bucket. The time grows with the number of buckets, and of keys in memory. Fails as
    /// [`View::top`] does.
    pub fn totals(
        &self,
        namespace: &str,
        range: Range<i64>,
        by_minute: bool,
        as_of: Option<u64>,
    ) -> Result<Series> {
        let minutes = || match by_minute {
            true => Minutes::Each(Each::default()),
            false => Minutes::None,
        };
        let section = Section::new(namespace, range, &minutes());
        let sources = self.sources(&section, as_of)?;
        let (sums, minutes) = self.sums_of(&section, &sources, &minutes)?;
        let totals = match minutes {
            Minutes::Each(each) => each.with_rest_of(&sums.totals),
            Minutes::None | Minutes::Ends(_) => sums.totals,
        };
        let mut series = Series::default();
        (series.totals, series.is_cut) = (totals.into_iter().collect(), sums.is_cut);
        Ok(series)
    }

    /// The sums of a section by base bucket, which stay below no largest count.
    pub(super) fn uncapped_totals(&self, section: &Section, sources: &Sources<'_>) -> Result<Sums> {
        let (sums, _) = self.sums_of(section, sources, &|| Minutes::None)?;
        Ok(sums)
    }

    /// The sums of a section by base bucket, and by minute as `empty` minutes tell.
    fn sums_of(
        &self,
        section: &Section,
        sources: &Sources<'_>,
        empty: &dyn Fn() -> Minutes,
    ) -> Result<(Sums, Minutes)> {
        let sums = |deltas: &[&Delta], files: &[File<'_>]| -> Result<(Tally, Minutes)> {
            let (mut tally, mut minutes) = (Tally::by_bucket(&section.range), empty());
            self.tally_all(section, (deltas, files), &mut tally, &mut minutes)?;
            Ok((tally, minutes))
        };
        let (mut tally, mut minutes) = sums(&sources.deltas, &sources.plus)?;
        if !sources.minus.is_empty() {
            let (less, minutes_less) = sums(&[], &sources.minus)?;
            if !(tally.take_away(&less) && minutes.take_away(&minutes_less)) {
                return Err(below_zero(section.name.as_bytes(), &sources.minus));
            }
        }
        let sums = Sums {
            is_cut: tally.divided > 0,
            totals: tally.by_bucket.unwrap_or_default(),
        };
        Ok((sums, minutes))
    }

    /// Sums memory and files whose counts are all added, or all taken away.
    fn tally_all(
        &self,
        section: &Section,
        (deltas, files): (&[&Delta], &[File<'_>]),
        tally: &mut Tally,
        minutes: &mut Minutes,
    ) -> Result<()> {
        self.note_minutes(minutes, section, (deltas, files))?;
        for delta in deltas {
            self.tally_memory(delta, section, &mut |code, count| tally.note(code, count))?;
        }
        for file in files {
            self.tally_file(*file, section, &mut |code, count| tally.note(code, count))?;
        }
        Ok(())
    }

    /// The memory and the runs that may count something of a section: of the view, or of a kept generation.
    pub(super) fn sources(&self, section: &Section, as_of: Option<u64>) -> Result<Sources<'_>> {
        let whole = &section.whole;
        let mut sources = match as_of {
            Some(number) => Sources {
                deltas: Vec::new(),
                plus: self.kept(number)?,
                minus: Vec::new(),
            },
            None => Sources {
                deltas: self.deltas_in(whole).collect(),
                plus: self.flushed_in(whole).chain(self.plus()).collect(),
                minus: self.minus_in(whole).collect(),
            },
        };
        let plus = &mut sources.plus;
        plus.retain(|file| file.run.meta().overlaps(whole.start, whole.end));
        Ok(sources)
    }

    /// Calls `note` with base buckets of a section in memory, and their sums over some keys.
    pub(super) fn tally_memory(
        &self,
        delta: &Delta,
        section: &Section,
        note: &mut dyn FnMut(TimeCode, u64),
    ) -> Result<()> {
        self.reading.check()?;
        let _charge = self.reading.charge_of(delta.most_keys())?;
        delta.section_totals(section.name.as_bytes(), note);
        Ok(())
    }

    /// Calls `note` with base buckets of a section in a run, and their sums over some keys: over all keys where the run
    /// keeps them.
    pub(super) fn tally_file(
        &self,
        File { run, cache, .. }: File<'_>,
        section: &Section,
        note: &mut dyn FnMut(TimeCode, u64),
    ) -> Result<()> {
        let name = section.name.as_bytes();
        if let Some(summary) = run.summary(cache, name)? {
            for (code, sum) in summary.totals() {
                note(code, u64::try_from(sum).unwrap_or(u64::MAX));
            }
            return Ok(());
        }
        let mut gone = Ok(());
        run.visit_from(cache, name, &mut |key, payload| {
            gone = self.reading.check();
            if gone.is_err() || !key.starts_with(name) {
                return ControlFlow::Break(());
            }
            for (code, count) in hours(payload).flatten() {
                note(code, count);
            }
            ControlFlow::Continue(())
        })?;
        gone
    }
}
