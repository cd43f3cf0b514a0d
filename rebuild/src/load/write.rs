//! Writes memory as runs, one for each partition and shard, and merges the runs of several fillings.

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;
use tallyring_archive::merge::{Horizon, merge, total_payloads, write_subtotal};
use tallyring_archive::{
    BLOCK_BYTES, Blobs, Origin, Partition, Result, Run, RunEntry, RunSpec, RunWriter,
};
use tallyring_records::line::{self, escape};
use tallyring_records::{Schema, TimeCode, is_hash};

use super::known::Numbers;
use super::lane::{Lane, Part, Rows, Total};
use super::memory::Memory;
use super::order::{KeyRows, Order, by_key};
use super::row::Names;
use super::{LoadOptions, Progress, Step};

/// Time codes whose text is cached: the hours of a year.
const CODES: usize = 366 * 24;

/// Length of the longest time code, bytes: a minute after 2031.
const CODE_BYTES_MAX: usize = 8;

/// Keys whose first rows are fetched together: a processor waits for about twenty reads of memory at once.
const FETCHED_AT_ONCE: usize = 32;

/// zstd level of runs that are merged soon.
pub(super) const SPILL_LEVEL: i32 = 1;

/// Writes all rows in memory, which are combined already.
pub(super) fn runs(
    blobs: &Blobs,
    memory: &mut Memory<'_>,
    options: &LoadOptions<'_>,
    origin: &Origin,
    level: i32,
    progress: Progress<'_>,
) -> Result<Vec<RunEntry>> {
    let (lanes, names) = memory.lanes();
    let shards: Vec<Shard<'_>> = (0..usize::from(options.shards))
        .into_par_iter()
        .map(|shard| Shard::new(lanes.iter().skip(shard).step_by(options.shards.into())))
        .collect();
    let units: Vec<(usize, Partition)> = shards
        .iter()
        .enumerate()
        .flat_map(|(number, shard)| {
            shard
                .partitions()
                .into_iter()
                .map(move |partition| (number, partition))
        })
        .collect();
    let done = AtomicUsize::new(0);
    let group = blobs.group();
    let written: Vec<Option<RunEntry>> = units
        .par_iter()
        .map(|&(number, partition)| {
            let spec = spec(options, origin.clone(), partition, number, level);
            let mut unit = Unit::new(&shards[number], partition, RunWriter::create(blobs, spec)?);
            unit.write(names, options.schema)?;
            let written = unit.out.finish_in(&group)?;
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            let all = units.len();
            progress(Step::Write { done, all });
            Ok(written)
        })
        .collect::<Result<_>>()?;
    group.commit()?;
    Ok(written.into_iter().flatten().collect())
}

/// Merges spilled runs, and removes them. Fails when two texts have the same hash, or a sum is too large.
pub(super) fn merged(
    blobs: &Blobs,
    spilled: &[RunEntry],
    options: &LoadOptions<'_>,
    progress: Progress<'_>,
) -> Result<Vec<RunEntry>> {
    let mut units: BTreeMap<(Partition, u16), Vec<&RunEntry>> = BTreeMap::new();
    for run in spilled {
        let unit = (run.meta.partition, run.meta.shard);
        units.entry(unit).or_default().push(run);
    }
    let units: Vec<_> = units.into_iter().collect();
    let done = AtomicUsize::new(0);
    let written: Vec<Option<RunEntry>> = units
        .par_iter()
        .map(|((partition, shard), runs)| {
            let inputs = Run::open_all(blobs, runs.iter().copied())?;
            let spec = spec(
                options,
                Origin::Sorted(options.id.to_owned()),
                *partition,
                usize::from(*shard),
                options.level,
            );
            let written = merge(&inputs, RunWriter::create(blobs, spec)?, Horizon::ALL)?;
            for run in runs {
                blobs.remove(&run.name)?;
            }
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            let all = units.len();
            progress(Step::Write { done, all });
            Ok(written)
        })
        .collect::<Result<_>>()?;
    Ok(written.into_iter().flatten().collect())
}

fn spec(
    options: &LoadOptions<'_>,
    origin: Origin,
    partition: Partition,
    shard: usize,
    level: i32,
) -> RunSpec {
    RunSpec {
        origin,
        partition,
        shard: u16::try_from(shard).expect("BUG: shards are numbered in 16 bits"),
        shards: options.shards,
        level,
    }
}

/// The lanes of a shard and the order of their keys.
struct Shard<'l> {
    lanes: Vec<&'l Lane>,
    /// Order of totals in a run.
    order: Order,
    /// Order of breakdowns in a run, where a dot follows the key; none without breakdowns.
    dotted: Option<Order>,
}

impl<'l> Shard<'l> {
    fn new<'a>(lanes: impl Iterator<Item = &'a &'l Lane>) -> Self
    where
        'l: 'a,
    {
        let lanes: Vec<&Lane> = lanes.copied().collect();
        let has_parts = lanes.iter().any(|lane| {
            lane.partitions
                .iter()
                .any(|(_, rows)| !rows.parts.is_empty())
        });
        Self {
            order: Order::of(&lanes, b""),
            dotted: has_parts.then(|| Order::of(&lanes, b".")),
            lanes,
        }
    }

    fn partitions(&self) -> BTreeSet<Partition> {
        let of_lanes = self.lanes.iter().flat_map(|lane| lane.partitions.iter());
        of_lanes.map(|(partition, _)| *partition).collect()
    }
}

/// One run that is being written: a partition of a shard.
struct Unit<'s, 'l> {
    shard: &'s Shard<'l>,
    /// Rows by lane; none where a lane has nothing of the partition.
    rows: Vec<Option<&'l Rows>>,
    out: RunWriter,
    /// Hashes of written keys and values, whose lookups come last, each with a lane that has the lookup.
    used: BTreeMap<&'s [u8], u32>,
    /// Numbers of written values, by lane.
    used_values: Vec<Numbers>,
    payload: Vec<u8>,
}

impl<'s, 'l> Unit<'s, 'l> {
    fn new(shard: &'s Shard<'l>, partition: Partition, out: RunWriter) -> Self {
        let lanes = shard.lanes.iter();
        Self {
            shard,
            used_values: lanes.clone().map(|_| Numbers::default()).collect(),
            rows: lanes.map(|lane| lane.partitions.get(partition)).collect(),
            out,
            used: BTreeMap::new(),
            payload: Vec::new(),
        }
    }

    /// Writes lines section by section (`c.u|…` before `u|…`). That is their order as bytes, because no name of a
    /// section is the beginning of another's.
    fn write(&mut self, names: &Names, schema: &Schema) -> Result<()> {
        let mut sections: BTreeMap<String, (&str, Option<u16>)> = BTreeMap::new();
        for namespace in &schema.namespaces {
            let name = &namespace.name;
            sections.insert(format!("{name}|"), (name, None));
            for subtotal in &namespace.subtotals {
                let number = names.find(subtotal).expect("BUG: all names are known");
                sections.insert(format!("{subtotal}.{name}|"), (name, Some(number)));
            }
        }
        let shard = self.shard;
        let totals = self.totals_by_key();
        // Sections of one subtotal are adjacent, so its rows are sorted once for all namespaces.
        let mut parts = (None, Vec::new());
        for (namespace, subtotal) in sections.into_values() {
            match (subtotal, &shard.dotted) {
                (None, _) => {
                    self.totals(of_namespace(&shard.order, &totals, namespace))?;
                }
                (Some(_), None) => {}
                (Some(number), Some(order)) => {
                    if parts.0 != subtotal {
                        parts = (subtotal, self.parts_by_key(order, number));
                    }
                    let keys = of_namespace(order, &parts.1, namespace);
                    self.parts(order, keys, names.get(number))?;
                }
            }
        }
        self.lookups()
    }

    fn totals_by_key(&self) -> Vec<KeyRows<'l, Total>> {
        let totals = |rows: &Option<&'l Rows>| rows.map_or(&[][..], |rows| &rows.totals);
        by_key(&self.shard.order, self.rows.iter().map(totals), Total::key)
    }

    fn totals(&mut self, keys: &[KeyRows<'l, Total>]) -> Result<()> {
        let shard = self.shard;
        let mut codes = CodeTexts::new();
        for keys in keys.chunks(FETCHED_AT_ONCE) {
            // Rows of adjacent keys lie anywhere in memory. Reads that are requested together arrive together.
            black_box(
                keys.iter()
                    .fold(0, |all, key_rows| all ^ key_rows.rows[0].sort_key),
            );
            for key_rows in keys {
                self.payload.clear();
                for (index, total) in key_rows.rows.iter().enumerate() {
                    let code = codes.get(total.bucket().code());
                    line::push_entry(&mut self.payload, index == 0, code, total.count);
                }
                let key = shard.order.key(key_rows.rank);
                if self.payload.len() <= BLOCK_BYTES {
                    self.out.push(key, &self.payload)?;
                } else {
                    let hours = key_rows.rows.iter();
                    let hours = hours.map(|total| (total.bucket().code(), total.count));
                    for payload in total_payloads(&hours.collect::<Vec<_>>()) {
                        self.out.push(key, &payload)?;
                    }
                }
                self.uses(line::stored_key(key), key_rows.lane);
            }
        }
        Ok(())
    }

    fn parts_by_key(&self, order: &Order, number: u16) -> Vec<KeyRows<'l, Part>> {
        let parts = |rows: &Option<&'l Rows>| rows.map_or(&[][..], |rows| rows.parts_of(number));
        by_key(order, self.rows.iter().map(parts), |part| part.key)
    }

    fn parts(&mut self, order: &'s Order, keys: &[KeyRows<'l, Part>], name: &str) -> Result<()> {
        let (mut line_key, mut values) = (Vec::new(), Vec::<(&'l [u8], u64)>::new());
        for key_rows in keys {
            let lane = self.shard.lanes[key_rows.lane as usize];
            let key = order.key(key_rows.rank);
            for bucket in key_rows.rows.chunk_by(|a, b| a.bucket == b.bucket) {
                line_key.clear();
                line_key.extend_from_slice(name.as_bytes());
                line_key.push(b'.');
                line_key.extend_from_slice(key);
                line_key.push(b'.');
                let of_bucket = bucket[0].bucket;
                of_bucket.code().write_to(&mut line_key);
                values.clear();
                for part in bucket {
                    self.used_values[key_rows.lane as usize].add(part.value);
                    values.push((lane.values.get(part.value), part.count));
                }
                self.payload.clear();
                write_subtotal(&mut self.payload, &mut values);
                self.out.push(&line_key, &self.payload)?;
            }
            self.uses(line::stored_key(key), key_rows.lane);
        }
        Ok(())
    }

    fn lookups(&mut self) -> Result<()> {
        let used = std::mem::take(&mut self.used_values);
        for ((number, lane), used) in (0..).zip(&self.shard.lanes).zip(used) {
            for value in used.iter() {
                let parts = lane.values.get(value).split(|&byte| byte == b'*');
                parts.for_each(|part| self.uses(part, number));
            }
        }
        for (hash, lane) in std::mem::take(&mut self.used) {
            let raw = self.shard.lanes[lane as usize].lookups.get(hash);
            let raw = raw.expect("BUG: every hash has its lookup");
            let mut key = vec![line::LOOKUP_MARK];
            key.extend_from_slice(hash);
            self.out.push(&key, escape(raw).as_bytes())?;
        }
        Ok(())
    }

    fn uses(&mut self, stored: &'s [u8], lane: u32) {
        if is_hash(stored) {
            self.used.entry(stored).or_insert(lane);
        }
    }
}

/// Texts of time codes: most hours of a partition recur.
struct CodeTexts {
    /// By the hour of the year.
    known: Vec<CodeText>,
    scratch: Vec<u8>,
}

#[derive(Clone, Copy, Default)]
struct CodeText {
    code: Option<TimeCode>,
    text: [u8; CODE_BYTES_MAX],
    length: u8,
}

impl CodeTexts {
    fn new() -> Self {
        Self {
            known: vec![CodeText::default(); CODES],
            scratch: Vec::new(),
        }
    }

    fn get(&mut self, code: TimeCode) -> &[u8] {
        let known = &mut self.known[(code.minutes() / 60) as usize % CODES];
        if known.code != Some(code) {
            self.scratch.clear();
            code.write_to(&mut self.scratch);
            known.code = Some(code);
            known.length = self.scratch.len() as u8;
            known.text[..self.scratch.len()].copy_from_slice(&self.scratch);
        }
        &known.text[..usize::from(known.length)]
    }
}

/// The rows of a namespace's keys, which are adjacent.
fn of_namespace<'k, 'l, T>(
    order: &Order,
    keys: &'k [KeyRows<'l, T>],
    namespace: &str,
) -> &'k [KeyRows<'l, T>] {
    let ranks = order.of_namespace(namespace);
    let start = keys.partition_point(|key_rows| key_rows.rank < ranks.start);
    let end = keys.partition_point(|key_rows| key_rows.rank < ranks.end);
    &keys[start..end]
}
