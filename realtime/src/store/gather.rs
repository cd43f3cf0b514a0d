//! One read on its way: first what memory holds, then run by run.
//!
//! Invariant: what all reads hold of breakdowns at a time is bounded (`point_budget.rs`); a point more is an error.

use std::collections::{BTreeMap, HashMap};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use tallyring_archive::{BlockCache, Run};
use tallyring_records::line::{self, entries, hours};
use tallyring_records::{
    Day, Grain, KeyCrc, StoreId, TimeCode, add_capped, is_hash, missing_value, sum_capped,
};

use super::read::{Series, ValuePoint};
use super::{Live, Store};
use crate::delta::DeltaStore;
use crate::error::{Error, Result};

/// How the lines of a run with a prefix are visited: from the disk too, or from the cache alone.
pub(super) type Visit = fn(
    &Run,
    &BlockCache,
    (&[u8], &[u8]),
    &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) -> tallyring_archive::Result<()>;

/// Of an hour in a line, about: `c41l:5 `.
const HOUR_BYTES: usize = 7;
/// What is read of a line, mostly: a month.
const READ_BYTES: usize = 400 * HOUR_BYTES;

/// Points that are made room for at first.
const POINTS_AT_FIRST: usize = 32;

pub(super) struct Gather<'r> {
    range: Range<i64>,
    subtotal: Option<&'r str>,
    total_key: String,
    /// Tells its shard.
    crc: KeyCrc,
    subtotal_prefix: Option<String>,
    pub runs: Vec<Arc<Run>>,
    /// Totals in any order.
    totals: Vec<(TimeCode, u64)>,
    pub series: Series,
    numbers: HashMap<Box<str>, u32>,
    /// There was no room for some point.
    refused: Option<Error>,
}

impl<'r> Gather<'r> {
    /// Of a key as it is stored, in `range` (Unix seconds).
    pub fn new(
        namespace: &str,
        stored: &str,
        subtotal: Option<&'r str>,
        range: Range<i64>,
    ) -> Self {
        let total_key = line::total_key(namespace, stored);
        Self {
            range,
            subtotal,
            crc: KeyCrc::of(total_key.as_bytes()),
            total_key,
            subtotal_prefix: subtotal
                .map(|subtotal| line::subtotal_prefix(subtotal, namespace, stored)),
            runs: Vec::new(),
            totals: Vec::new(),
            series: Series::default(),
            numbers: HashMap::new(),
            refused: None,
        }
    }

    /// Takes what memory holds, and notes which runs to read.
    pub fn memory(&mut self, live: &Live) {
        for store in live.ring.stores() {
            if !concerns(&self.range, store) {
                continue;
            }
            for delta in store.deltas() {
                let totals = &mut self.totals;
                let wanted = &self.range;
                delta.totals(self.total_key.as_bytes(), &mut |code, count| {
                    if wanted.contains(&code.start()) {
                        totals.push((code, count));
                    }
                });
                let Some(subtotal) = self.subtotal else {
                    continue;
                };
                let mut points = Vec::new();
                delta.subtotals(
                    self.total_key.as_bytes(),
                    subtotal,
                    &mut |code, value, count| {
                        if wanted.contains(&code.start()) {
                            points.push((code, String::from_utf8_lossy(value).into_owned(), count));
                        }
                    },
                );
                for (code, value, count) in points {
                    for part in value.split('*').filter(|part| is_hash(part)) {
                        if let Some(raw) = delta.lookups().get(part.as_bytes()) {
                            self.series.lookups.insert(part.into(), raw.into());
                        }
                    }
                    self.point(code, &value, count);
                }
            }
            let flushed: Vec<Arc<Run>> =
                store.runs.iter().map(|run| Arc::clone(&run.run)).collect();
            self.note(&flushed);
        }
        self.note(&live.archive.runs);
    }

    /// Notes the runs that may hold something of the range.
    pub fn note(&mut self, runs: &[Arc<Run>]) {
        let concerned = runs
            .iter()
            .filter(|run| may_hold(run, &self.range, self.crc));
        self.runs.extend(concerned.map(Arc::clone));
    }

    pub fn run(&mut self, store: &Store, run: &Run, visit: Visit) -> Result<()> {
        let wanted = self.range.clone();
        let (key, totals) = (self.total_key.as_bytes(), &mut self.totals);
        // A day's code stands before those of its hours.
        let first = Day::of(wanted.start).code();
        visit(run, &store.cache, (key, key), &mut |found, payload| {
            if found != key {
                return ControlFlow::Break(());
            }
            let payload = line::hours_from(payload, first);
            totals.reserve(payload.len().min(READ_BYTES) / HOUR_BYTES);
            for hour in hours(payload) {
                let Some((code, count)) = hour else { continue };
                if code.start() >= wanted.end {
                    break;
                }
                if wanted.contains(&code.start()) {
                    totals.push((code, count));
                }
            }
            ControlFlow::Continue(())
        })?;
        let Some(prefix) = self.subtotal_prefix.clone() else {
            return Ok(());
        };
        // A folded day's code stands before those of its hours.
        let mut from = prefix.clone().into_bytes();
        Day::of(wanted.start).code().write_to(&mut from);
        visit(
            run,
            &store.cache,
            (prefix.as_bytes(), &from),
            &mut |found, payload| {
                let Some(code) = found.strip_prefix(prefix.as_bytes()) else {
                    return ControlFlow::Break(());
                };
                let Ok(code) = TimeCode::parse(code) else {
                    return ControlFlow::Continue(());
                };
                if code.start() >= wanted.end {
                    return ControlFlow::Break(());
                }
                if wanted.contains(&code.start()) {
                    for (value, count) in entries(payload).flatten() {
                        self.point(code, &String::from_utf8_lossy(value), count);
                    }
                }
                if self.refused.is_some() {
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            },
        )?;
        match self.refused.take() {
            Some(refused) => Err(refused),
            None => Ok(()),
        }
    }

    fn point(&mut self, code: TimeCode, value: &str, count: u64) {
        if self.refused.is_some() {
            return;
        }
        let number = match self.numbers.get(value) {
            Some(&number) => number,
            None => {
                let number =
                    u32::try_from(self.series.values.len()).expect("BUG: fewer than 2^32 values");
                self.series.values.push(value.into());
                self.numbers.insert(value.into(), number);
                number
            }
        };
        let points = &mut self.series.points;
        if points.len() == points.capacity() {
            match self.series.reserved.grow(points.len().max(POINTS_AT_FIRST)) {
                Ok(more) => points.reserve_exact(more),
                Err(error) => {
                    self.refused = Some(error);
                    return;
                }
            }
        }
        points.push(ValuePoint {
            code,
            value: number,
            count,
        });
    }

    /// All totals together, those of the runs that were noted too.
    ///
    /// # Errors
    /// When a block is damaged.
    pub fn sum(mut self, store: &Store) -> Result<u64> {
        for run in std::mem::take(&mut self.runs) {
            self.run(store, &run, Run::visit_prefix)?;
        }
        Ok(sum_capped(self.totals.iter().map(|(_, count)| *count)))
    }

    /// Adds what has no value, so that the values of every bucket sum to its total.
    ///
    /// # Errors
    /// When there was no room for all of it.
    pub fn finish(mut self) -> Result<Series> {
        self.series.totals = std::mem::take(&mut self.totals).into();
        if let Some(subtotal) = self.subtotal {
            let missing = missing_value(subtotal);
            let mut named: BTreeMap<TimeCode, u64> = BTreeMap::new();
            for point in &self.series.points {
                add_capped(named.entry(point.code).or_insert(0), point.count);
            }
            let remainders: Vec<(TimeCode, u64)> = self
                .series
                .totals
                .iter()
                .map(|(code, total)| {
                    (
                        code,
                        total.saturating_sub(named.get(&code).copied().unwrap_or(0)),
                    )
                })
                .filter(|&(_, remainder)| remainder > 0)
                .collect();
            for (code, remainder) in remainders {
                self.point(code, &missing, remainder);
            }
        }
        match self.refused {
            Some(refused) => Err(refused),
            None => Ok(self.series),
        }
    }
}

/// True when the run may hold something of the key in the range.
fn may_hold(run: &Run, range: &Range<i64>, key: KeyCrc) -> bool {
    let meta = run.meta();
    meta.overlaps(range.start, range.end) && key.shard(meta.shards) == meta.shard
}

/// True when the store may hold something of the range.
pub(super) fn concerns(range: &Range<i64>, store: &DeltaStore) -> bool {
    match store.id {
        StoreId::Late(_) => true,
        StoreId::Day(day) => day.start() < range.end && range.start < day.next().start(),
    }
}

const _: () = assert!(
    Grain::Day as u8 == 0,
    "a day's code stands before its hours'"
);
