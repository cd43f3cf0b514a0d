//! Writes memory as runs, one for each partition and shard, and merges those of several fillings.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;
use tallyring_archive::merge::{Keep, merge, total_payloads, write_subtotal};
use tallyring_archive::{
    BLOCK_BYTES, Disk, Error, Partition, Result, Run, RunEntry, RunSpec, RunWriter, names,
};
use tallyring_records::line::{self, escape};
use tallyring_records::{HASH_CHARS, Schema, TimeCode};

use super::lane::{Lane, Part, Rows};
use super::memory::Memory;
use super::row::Names;
use super::{LoadOptions, Progress, Step};

/// Time codes whose text is kept at hand: the hours of a year.
const CODES: usize = 366 * 24;

/// Length of the longest time code: a minute after 2031.
const CODE_BYTES_MAX: usize = 8;

/// Memory that a key takes while its run is written: its place in the order of all keys, and what they are sorted by.
pub const ORDER_BYTES: usize = size_of::<(u128, KeyAt)>() + size_of::<KeyAt>();

/// zstd level of runs that are merged soon.
pub const SPILL_LEVEL: i32 = 1;

/// Writes everything in memory, which was combined.
///
/// # Errors
/// The disk.
pub fn runs(
    disk: &dyn Disk,
    memory: &mut Memory<'_>,
    options: &LoadOptions<'_>,
    what: &str,
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
        .flat_map(|(number, shard)| shard.partitions().into_iter().map(move |of| (number, of)))
        .collect();
    let done = AtomicUsize::new(0);
    let made: Vec<Option<RunEntry>> = units
        .par_iter()
        .map(|&(number, partition)| {
            let spec = spec(options, what, partition, number, level);
            let out = RunWriter::create(disk, spec)?;
            let made = Unit::new(&shards[number], partition, out).write(names, options.schema)?;
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            let all = units.len();
            progress(Step::Write { done, all });
            Ok(made)
        })
        .collect::<Result<_>>()?;
    Ok(made.into_iter().flatten().collect())
}

/// Merges spilled runs, and removes them.
///
/// # Errors
/// Two texts with one hash, a sum too large, or the disk.
pub fn merged(
    disk: &dyn Disk,
    spilled: &[RunEntry],
    options: &LoadOptions<'_>,
    progress: Progress<'_>,
) -> Result<Vec<RunEntry>> {
    let mut units: BTreeMap<(Partition, u16), Vec<&RunEntry>> = BTreeMap::new();
    for run in spilled {
        let place = (run.meta.partition, run.meta.shard);
        units.entry(place).or_default().push(run);
    }
    let units: Vec<_> = units.into_iter().collect();
    let done = AtomicUsize::new(0);
    let made: Vec<Option<RunEntry>> = units
        .par_iter()
        .map(|((partition, shard), runs)| {
            let inputs: Vec<Arc<Run>> = runs
                .iter()
                .map(|run| Run::open_named(disk, run))
                .collect::<Result<_>>()?;
            let spec = spec(
                options,
                options.id,
                *partition,
                usize::from(*shard),
                options.level,
            );
            let made = merge(
                &inputs,
                RunWriter::create(disk, spec)?,
                Keep::all(*shard, options.shards),
            )?;
            for run in runs {
                disk.remove(&run.name)
                    .map_err(Error::io("remove", &run.name))?;
            }
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            let all = units.len();
            progress(Step::Write { done, all });
            Ok(made)
        })
        .collect::<Result<_>>()?;
    Ok(made.into_iter().flatten().collect())
}

fn spec(
    options: &LoadOptions<'_>,
    what: &str,
    partition: Partition,
    shard: usize,
    level: i32,
) -> RunSpec {
    RunSpec {
        directory: names::INCOMING,
        what: what.to_owned(),
        partition,
        shard: u16::try_from(shard).expect("BUG: shards are numbered in 16 bits"),
        shards: options.shards,
        level,
    }
}

/// The lanes of a shard and the order of their keys.
struct Shard<'l> {
    lanes: Vec<&'l Lane>,
    /// As totals stand in a run.
    order: Vec<KeyAt>,
    /// As breakdowns stand in a run: there a dot follows the key. Empty when there are none.
    dotted: Vec<KeyAt>,
}

/// A key: its lane within the shard, and its number there.
#[derive(Clone, Copy)]
struct KeyAt {
    lane: u32,
    key: u32,
}

impl<'l> Shard<'l> {
    fn new<'a>(lanes: impl Iterator<Item = &'a &'l Lane>) -> Self
    where
        'l: 'a,
    {
        let lanes: Vec<&Lane> = lanes.copied().collect();
        let has_parts = lanes
            .iter()
            .any(|lane| lane.partitions.values().any(|rows| !rows.parts.is_empty()));
        let order = order(&lanes, b"");
        let dotted = if has_parts {
            order_dotted(&lanes)
        } else {
            Vec::new()
        };
        Self {
            lanes,
            order,
            dotted,
        }
    }

    fn partitions(&self) -> BTreeSet<Partition> {
        let of_lanes = self.lanes.iter().flat_map(|lane| lane.partitions.keys());
        of_lanes.copied().collect()
    }

    fn key(&self, at: KeyAt) -> &'l [u8] {
        self.lanes[at.lane as usize].keys.get(at.key)
    }
}

fn order_dotted(lanes: &[&Lane]) -> Vec<KeyAt> {
    order(lanes, b".")
}

/// Keys of all lanes in the order of their bytes, each with `behind` behind it.
fn order(lanes: &[&Lane], behind: &[u8]) -> Vec<KeyAt> {
    let text = |at: KeyAt| lanes[at.lane as usize].keys.get(at.key);
    let mut keys: Vec<(u128, KeyAt)> = Vec::new();
    for (lane, number) in lanes.iter().zip(0..) {
        let of_lane = (0..lane.keys.len() as u32).map(|key| KeyAt { lane: number, key });
        keys.extend(of_lane.map(|at| (beginning(text(at), behind), at)));
    }
    // Most keys differ in their first bytes, which stand here; the others are looked up.
    keys.sort_unstable_by(|(a, at_a), (b, at_b)| {
        a.cmp(b).then_with(|| {
            text(*at_a)
                .iter()
                .chain(behind)
                .cmp(text(*at_b).iter().chain(behind))
        })
    });
    keys.into_iter().map(|(_, at)| at).collect()
}

/// The first 16 bytes as a number that sorts like them.
fn beginning(key: &[u8], behind: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    for (place, byte) in bytes.iter_mut().zip(key.iter().chain(behind)) {
        *place = *byte;
    }
    u128::from_be_bytes(bytes)
}

/// One run being written: a partition of a shard.
struct Unit<'s, 'l, 'd> {
    shard: &'s Shard<'l>,
    /// By lane.
    rows: Vec<LaneRows<'l>>,
    out: RunWriter<'d>,
    /// Hashes of keys and values written, whose lookups come last, and a lane that has them.
    used: BTreeMap<&'l [u8], u32>,
    payload: Vec<u8>,
}

/// Rows of a lane, and where those of each key begin.
#[derive(Default)]
struct LaneRows<'l> {
    rows: Option<&'l Rows>,
    total_starts: Vec<u32>,
    /// By subtotal that has rows.
    part_starts: BTreeMap<u16, Vec<u32>>,
}

impl<'l> LaneRows<'l> {
    fn new(lane: &'l Lane, partition: Partition) -> Self {
        let Some(rows) = lane.partitions.get(&partition) else {
            return Self::default();
        };
        let mut part_starts = BTreeMap::new();
        let mut start = 0;
        for parts in rows.parts.chunk_by(|a, b| a.subtotal == b.subtotal) {
            let starts = starts(lane.keys.len(), start, parts.iter().map(|part| part.key));
            part_starts.insert(parts[0].subtotal, starts);
            start += parts.len() as u32;
        }
        Self {
            rows: Some(rows),
            total_starts: starts(
                lane.keys.len(),
                0,
                rows.totals.iter().map(super::lane::Total::key),
            ),
            part_starts,
        }
    }

    fn parts(&self, subtotal: u16, key: u32) -> &'l [Part] {
        match (self.rows, self.part_starts.get(&subtotal)) {
            (Some(rows), Some(starts)) => &rows.parts[range(starts, key)],
            _ => &[],
        }
    }
}

/// Where the rows of each key begin, counted from `first`, and where the last one's end.
fn starts(keys: usize, first: u32, sorted: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut starts = Vec::with_capacity(keys + 1);
    let mut at = first;
    for key in sorted {
        while starts.len() <= key as usize {
            starts.push(at);
        }
        at += 1;
    }
    starts.resize(keys + 1, at);
    starts
}

fn range(starts: &[u32], key: u32) -> std::ops::Range<usize> {
    starts[key as usize] as usize..starts[key as usize + 1] as usize
}

impl<'s, 'l, 'd> Unit<'s, 'l, 'd> {
    fn new(shard: &'s Shard<'l>, partition: Partition, out: RunWriter<'d>) -> Self {
        let lanes = shard.lanes.iter();
        Self {
            shard,
            rows: lanes.map(|lane| LaneRows::new(lane, partition)).collect(),
            out,
            used: BTreeMap::new(),
            payload: Vec::new(),
        }
    }

    /// Lines come section by section (`c.u|…` before `u|…`), which is their order as bytes: no section's
    /// name is the beginning of another's.
    fn write(mut self, names: &Names, schema: &Schema) -> Result<Option<RunEntry>> {
        let mut sections: BTreeMap<String, (&str, Option<u16>)> = BTreeMap::new();
        for namespace in &schema.namespaces {
            let name = namespace.name.as_str();
            sections.insert(format!("{name}|"), (name, None));
            for subtotal in &namespace.subtotals {
                let number = names.find(subtotal).expect("BUG: all names are known");
                sections.insert(format!("{subtotal}.{name}|"), (name, Some(number)));
            }
        }
        for (namespace, subtotal) in sections.into_values() {
            match subtotal {
                None => self.totals(namespace)?,
                Some(number) => self.parts(namespace, number, names.get(number))?,
            }
        }
        self.lookups()?;
        self.out.finish()
    }

    fn totals(&mut self, namespace: &str) -> Result<()> {
        let shard = self.shard;
        let mut codes = CodeTexts::new();
        for &at in of_namespace(shard, &shard.order, namespace) {
            let lane = &self.rows[at.lane as usize];
            let Some(rows) = lane.rows else { continue };
            let totals = &rows.totals[range(&lane.total_starts, at.key)];
            if totals.is_empty() {
                continue;
            }
            let code = |minutes| shard.lanes[at.lane as usize].code(at.key, minutes);
            self.payload.clear();
            for (index, total) in totals.iter().enumerate() {
                let code = code(total.minutes());
                line::push_entry(&mut self.payload, index == 0, codes.get(code), total.count);
            }
            let key = shard.key(at);
            if self.payload.len() <= BLOCK_BYTES {
                self.out.push(key, &self.payload)?;
            } else {
                let hours: Vec<(TimeCode, u64)> = totals
                    .iter()
                    .map(|total| (code(total.minutes()), total.count))
                    .collect();
                for payload in total_payloads(&hours) {
                    self.out.push(key, &payload)?;
                }
            }
            self.uses(line::stored_key(key), at.lane);
        }
        Ok(())
    }

    fn parts(&mut self, namespace: &str, number: u16, name: &str) -> Result<()> {
        let shard = self.shard;
        let mut key = Vec::new();
        for &at in of_namespace(shard, &shard.dotted, namespace) {
            let lane = shard.lanes[at.lane as usize];
            let parts = self.rows[at.lane as usize].parts(number, at.key);
            for bucket in parts.chunk_by(|a, b| a.minutes == b.minutes) {
                key.clear();
                key.extend_from_slice(name.as_bytes());
                key.push(b'.');
                key.extend_from_slice(shard.key(at));
                key.push(b'.');
                lane.code(at.key, bucket[0].minutes).write_to(&mut key);
                let mut values: Vec<(&'l [u8], u64)> = bucket
                    .iter()
                    .map(|part| (lane.values.get(part.value), part.count))
                    .collect();
                self.payload.clear();
                write_subtotal(&mut self.payload, &mut values);
                self.out.push(&key, &self.payload)?;
                for (value, _) in values {
                    for part in value.split(|&byte| byte == b'*') {
                        self.uses(part, at.lane);
                    }
                }
            }
            if !parts.is_empty() {
                self.uses(line::stored_key(shard.key(at)), at.lane);
            }
        }
        Ok(())
    }

    fn lookups(&mut self) -> Result<()> {
        for (hash, lane) in std::mem::take(&mut self.used) {
            let raw = self.shard.lanes[lane as usize].lookups.get(hash);
            let raw = raw.expect("BUG: every hash has its lookup");
            let mut key = vec![line::LOOKUP_MARK];
            key.extend_from_slice(hash);
            self.out.push(&key, escape(raw).as_bytes())?;
        }
        Ok(())
    }

    fn uses(&mut self, stored: &'l [u8], lane: u32) {
        if stored.len() == HASH_CHARS {
            self.used.entry(stored).or_insert(lane);
        }
    }
}

/// Texts of time codes: most hours of a partition come again and again.
struct CodeTexts {
    /// By the hour of the year.
    known: Vec<CodeText>,
    scratch: Vec<u8>,
}

#[derive(Clone, Copy, Default)]
struct CodeText {
    of: Option<TimeCode>,
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
        if known.of != Some(code) {
            self.scratch.clear();
            code.write_to(&mut self.scratch);
            known.of = Some(code);
            known.length = self.scratch.len() as u8;
            known.text[..self.scratch.len()].copy_from_slice(&self.scratch);
        }
        &known.text[..usize::from(known.length)]
    }
}

/// Keys of a namespace: they stand together.
fn of_namespace<'o>(shard: &Shard<'_>, order: &'o [KeyAt], namespace: &str) -> &'o [KeyAt] {
    let section = format!("{namespace}|");
    let section = section.as_bytes();
    let start = order.partition_point(|&at| line::section(shard.key(at)) < section);
    let end = order.partition_point(|&at| line::section(shard.key(at)) <= section);
    &order[start..end]
}
