//! Reads of one key: archive and deltas of one view together.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use tallyring_archive::Run;
use tallyring_records::{Counts, TimeCode, minute_of};

use super::gather::{Gather, Visit};
use super::parts::File;
use super::{Live, View};
use crate::budget::{Charge, Reading};
use crate::error::{Error, Result};

/// A question for one key's counts over a range, with or without a breakdown.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Read {
    /// Declared namespace.
    pub namespace: String,
    /// Raw key.
    pub key: String,
    /// Declared subtotal to break down by; its name by minute reads the values of each minute.
    pub subtotal: Option<String>,
    /// First instant, Unix seconds.
    pub from: i64,
    /// First instant after the range, Unix seconds.
    pub to: i64,
    /// Instants (Unix seconds) over which values of the subtotal are summed; none keeps the values of each base bucket.
    pub rolled: Option<Range<i64>>,
}

/// Counts of one key by base bucket.
#[derive(Debug, Default)]
pub struct Series {
    /// Totals by base bucket. For a read of a subtotal by minute, the totals of its minutes; what they lack of the
    /// counts of an hour stands under the code of the hour.
    pub totals: Counts,
    /// True where a base bucket that began before the range reaches into it: its counts are not here.
    pub is_cut: bool,
    /// Values of the subtotal. A bucket and value may come several times; the points then add up. The values of a
    /// bucket sum to its total: counts without a value stand under `-` (crossed, under `-*-`).
    pub points: Vec<ValuePoint>,
    /// Stored values by number.
    pub values: Vec<Box<str>>,
    /// Sum of each value by its number, where the question sums values; there are no points then.
    pub sums: Vec<u64>,
    pub(super) lookups: HashMap<Box<str>, Box<str>>,
    /// Charges for the memory of this answer.
    pub(super) charges: Vec<Charge>,
    /// Runs that were read, each with the number of its part in the view.
    pub(super) runs: Vec<(usize, Arc<Run>)>,
}

/// One value of a subtotal in one base bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValuePoint {
    /// Base bucket.
    pub code: TimeCode,
    /// Number of the value in [`Series::values`].
    pub value: u32,
    /// Number of counts.
    pub count: u64,
}

impl Series {
    /// For a read by [`MINUTES`](tallyring_records::MINUTES): the total of every kept minute, and by base bucket the
    /// counts without minutes.
    pub fn by_minute(&self) -> Counts {
        let minute = |point: &ValuePoint| {
            let value = self.values[point.value as usize].as_bytes();
            let code = minute_of(point.code, value).unwrap_or(point.code);
            (code, point.count)
        };
        self.points.iter().map(minute).collect()
    }
}

impl View<'_> {
    /// Reads one key. A key that was never counted gives an empty series. With `as_of` the read covers a kept
    /// generation alone, without any delta. Fails with [`Error::NoGeneration`] when `as_of` is not kept, and when a
    /// needed block is damaged (the answer is never a zero instead) or the budget of reads has no room for the answer.
    pub fn read(&self, read: &Read, as_of: Option<u64>) -> Result<Series> {
        self.gather(read, as_of, Run::visit_prefix)
    }

    /// Reads one key from memory alone. Returns none where a block would have to be read from the disk, so a thread
    /// that must not wait may call this function. Fails as [`View::read`] does.
    pub fn read_cached(&self, read: &Read, as_of: Option<u64>) -> Result<Option<Series>> {
        match self.gather(read, as_of, Run::visit_cached) {
            Err(Error::Archive(tallyring_archive::Error::NotCached)) => Ok(None),
            series => series.map(Some),
        }
    }

    fn gather(&self, read: &Read, as_of: Option<u64>, visit: Visit) -> Result<Series> {
        let (stored, range) = (self.keys().stored(&read.key), read.from..read.to);
        let subtotal = read.subtotal.as_deref();
        let gather = Gather::new(&self.reading, &read.namespace, &stored, subtotal, range);
        let mut gather = gather.rolled(read.rolled.clone());
        gather.begin(self, as_of)?;
        for file in std::mem::take(&mut gather.runs) {
            gather.run(file, visit)?;
            gather.series.runs.push(file.kept());
        }
        gather.take_away(visit)?;
        gather.finish()
    }

    /// The texts behind a stored value of a series, one for each dimension of its subtotal. A part without a lookup is
    /// returned in its stored form. A stored form never contains a `*` of a text. Fails when a block that may hold the
    /// lookup is damaged.
    pub fn expand(&self, series: &Series, value: &str) -> Result<Vec<String>> {
        let text = |part: &str| match series.lookups.get(part) {
            Some(raw) => Ok(raw.to_string()),
            None => self.text_of(part, self.files_of(series)),
        };
        value.split('*').map(text).collect()
    }

    /// The files that were read for a series.
    pub(super) fn files_of<'v>(&'v self, series: &'v Series) -> impl Iterator<Item = File<'v>> {
        let runs = series.runs.iter();
        runs.map(|(part, run)| self.file(*part, run))
    }
}

impl Live {
    /// Count of one total in one base bucket.
    pub(crate) fn count_of(&self, total_key: &str, code: TimeCode) -> Result<u64> {
        let (namespace, stored) = total_key
            .split_once('|')
            .expect("BUG: a total key has a bar");
        let end = code.start() + code.grain().seconds();
        let view = self.view_for(Reading::new(&self.read_budget));
        let mut gather = Gather::new(&view.reading, namespace, stored, None, code.start()..end);
        gather.begin(&view, None)?;
        gather.sum()
    }
}
