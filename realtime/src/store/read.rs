//! Reads: one view of archive and deltas together.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use tallyring_archive::Run;
use tallyring_records::{Counts, Offset, TimeCode, is_hash, minute_of};

use super::gather::{Gather, Visit};
use super::point_budget::Reserved;
use super::{Live, Store};
use crate::delta::DeltaStore;
use crate::error::{Error, Result};
use crate::sync::RwLockReadGuard;

/// One key's counts, perhaps broken down, over a range.
#[derive(Debug, Clone)]
pub struct Read {
    /// Declared namespace.
    pub namespace: String,
    /// Raw key.
    pub key: String,
    /// Declared subtotal to break down by.
    pub subtotal: Option<String>,
    /// First instant, Unix seconds.
    pub from: i64,
    /// First instant after the range, Unix seconds.
    pub to: i64,
}

/// Answers to several reads, all from one view.
#[derive(Debug)]
pub struct Answer {
    /// The archive generation in the view, 0 before the first.
    pub generation: u64,
    /// The manifest in the view.
    pub manifest: u64,
    /// Everything before this offset is counted.
    pub applied: Offset,
    /// Minutes of base buckets that began earlier have expired (Unix seconds); none has, without.
    pub minutes_from: Option<i64>,
    /// In the order of the reads.
    pub series: Vec<Series>,
}

/// Counts of one key by base bucket.
#[derive(Debug, Default)]
pub struct Series {
    /// Totals.
    pub totals: Counts,
    /// Values of the subtotal; a bucket and value may come several times and is summed then. For
    /// every bucket they sum to the total: what has no value stands under `-` (crossed, under `-*-`).
    pub points: Vec<ValuePoint>,
    /// Stored values by number.
    pub values: Vec<Box<str>>,
    pub(super) lookups: HashMap<Box<str>, Box<str>>,
    /// For the points.
    pub(super) reserved: Reserved,
    /// Those that were read.
    pub(super) runs: Vec<Arc<Run>>,
}

/// One value of a subtotal in one base bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValuePoint {
    /// Base bucket.
    pub code: TimeCode,
    /// Number of the value in [`Series::values`].
    pub value: u32,
    /// How many.
    pub count: u64,
}

impl Series {
    /// Of a read by [`MINUTES`](tallyring_records::MINUTES): the total of every minute that was kept,
    /// and what of a base bucket was counted without minutes.
    pub fn by_minute(&self) -> Counts {
        let minute = |point: &ValuePoint| {
            let value = self.values[point.value as usize].as_bytes();
            let code = minute_of(point.code, value).unwrap_or(point.code);
            (code, point.count)
        };
        self.points.iter().map(minute).collect()
    }
}

impl Store {
    /// Reads several keys from one view. Keys never counted give empty series. With `as_of` the view
    /// is a kept generation as it was, without any delta.
    ///
    /// # Errors
    /// [`Error::NoGeneration`] when `as_of` is not kept; when a block that is needed is damaged:
    /// never a zero instead.
    pub fn read(&self, reads: &[Read], as_of: Option<u64>) -> Result<Answer> {
        self.gather(reads, as_of, Run::visit_prefix, &mut |_| {})
    }

    /// The same from memory alone: none where a block would have to be read from the disk. So it may be asked
    /// where nothing may wait.
    ///
    /// # Errors
    /// [`Error::NoGeneration`] when `as_of` is not kept.
    pub fn read_cached(&self, reads: &[Read], as_of: Option<u64>) -> Result<Option<Answer>> {
        match self.gather(reads, as_of, Run::visit_cached, &mut |_| {}) {
            Err(Error::Archive(tallyring_archive::Error::NotCached)) => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// Reads several keys from one view, and lets `also` look at it while it is held.
    pub(super) fn gather(
        &self,
        reads: &[Read],
        as_of: Option<u64>,
        visit: Visit,
        also: &mut dyn FnMut(&Live),
    ) -> Result<Answer> {
        let mut gathers: Vec<Gather<'_>> = reads
            .iter()
            .map(|read| {
                let (stored, range) = (self.keys.stored(&read.key), read.from..read.to);
                let subtotal = read.subtotal.as_deref();
                let mut gather = Gather::new(&read.namespace, &stored, subtotal, range);
                gather.series.reserved = self.point_budget.reserve();
                gather
            })
            .collect();
        let mut answer = {
            let live = self.live();
            also(&live);
            match as_of {
                None => gathers.iter_mut().for_each(|gather| gather.memory(&live)),
                Some(number) => {
                    let files = live.kept(number)?;
                    gathers.iter_mut().for_each(|gather| gather.note(files));
                }
            }
            let generation = as_of.unwrap_or(live.archive.generation);
            Answer {
                generation,
                manifest: live.manifest.number,
                applied: live.applied,
                minutes_from: live.archive.minutes_from.get(&generation).copied(),
                series: Vec::with_capacity(reads.len()),
            }
        };
        for mut gather in gathers {
            for run in std::mem::take(&mut gather.runs) {
                gather.run(self, &run, visit)?;
                gather.series.runs.push(run);
            }
            answer.series.push(gather.finish()?);
        }
        Ok(answer)
    }

    /// The texts behind a stored value of a series, one for each dimension of its subtotal; the stored
    /// form itself where no lookup is found. No stored form holds a `*` of a text.
    ///
    /// # Errors
    /// When a block that may hold the lookup is damaged.
    pub fn expand(&self, series: &Series, value: &str) -> Result<Vec<String>> {
        let text = |part: &str| {
            let known = series.lookups.get(part).map(|raw| raw.to_string());
            self.text_of(part, known, &series.runs)
        };
        value.split('*').map(text).collect()
    }

    /// The text behind what is stored: the one that is `known`; of a hash, that of the first run that has it; else the
    /// stored form itself.
    pub(super) fn text_of(
        &self,
        stored: &str,
        known: Option<String>,
        runs: &[Arc<Run>],
    ) -> Result<String> {
        if let Some(text) = known {
            return Ok(text);
        }
        if is_hash(stored) {
            for run in runs {
                if let Some(text) = run.look_up(&self.cache, stored.as_bytes())? {
                    return Ok(text);
                }
            }
        }
        Ok(stored.to_owned())
    }

    /// Count of one total in one base bucket.
    pub(super) fn count_of(&self, total_key: &str, code: TimeCode) -> Result<u64> {
        let (namespace, stored) = total_key
            .split_once('|')
            .expect("BUG: a total key has a bar");
        let end = code.start() + code.grain().seconds();
        let mut gather = Gather::new(namespace, stored, None, code.start()..end);
        gather.memory(&self.live());
        gather.sum(self)
    }
}

/// Totals of several stored keys on their way, all from one view.
pub(super) struct Totals {
    /// As they are stored, and the texts behind hashes.
    keys: Vec<(String, Option<String>, Gather<'static>)>,
    /// All runs of the deltas that concern the range.
    pub runs: Vec<Arc<Run>>,
}

/// One key's total.
pub(super) struct Total {
    /// As it is stored.
    pub stored: String,
    /// The text behind a hash, where memory has it.
    pub text: Option<String>,
    /// Its count in the range.
    pub count: u64,
}

impl Totals {
    /// Takes what memory holds of `keys`, and lets the view go.
    pub fn gather(
        live: RwLockReadGuard<'_, Live>,
        namespace: &str,
        range: &Range<i64>,
        keys: Vec<String>,
    ) -> Self {
        let stores = || live.ring.stores();
        let key = |stored: String| {
            let mut gather = Gather::new(namespace, &stored, None, range.clone());
            gather.memory(&live);
            let hash = Some(&stored).filter(|stored| is_hash(stored));
            let text = hash.and_then(|hash| {
                let mut deltas = stores().flat_map(DeltaStore::deltas);
                deltas.find_map(|delta| delta.lookups().get(hash.as_bytes()))
            });
            let text = text.map(str::to_owned);
            (stored, text, gather)
        };
        Self {
            keys: keys.into_iter().map(key).collect(),
            runs: stores()
                .flat_map(|store| store.runs.iter().map(|run| Arc::clone(&run.run)))
                .collect(),
        }
    }

    /// Reads the rest from runs.
    pub fn read(&mut self, store: &Store) -> Result<Vec<Total>> {
        let mut totals = Vec::with_capacity(self.keys.len());
        for (stored, text, gather) in self.keys.drain(..) {
            totals.push(Total {
                stored,
                text,
                count: gather.sum(store)?,
            });
        }
        Ok(totals)
    }
}

impl Live {
    /// The files of a kept generation.
    pub(super) fn kept(&self, number: u64) -> Result<&[Arc<Run>]> {
        let kept = &self.archive.kept;
        match kept.get(&number) {
            Some(files) => Ok(files.as_slice()),
            None => {
                let kept: Vec<String> = kept.keys().map(u64::to_string).collect();
                Err(Error::NoGeneration {
                    number,
                    kept: kept.join(", "),
                })
            }
        }
    }
}
