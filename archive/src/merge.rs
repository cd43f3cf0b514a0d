//! The k-way merge of sorted runs into one: counts of equal records are summed, and sketches are united.
//!
//! Counts of a run with the sign minus are taken away. No count falls below zero: the merge fails instead. Records
//! whose counts become zero vanish, and the sketches of buckets that then count nothing. Actions of users are taken
//! away as [`tallyring_records::ActionSums`] does.
//!
//! One merge compacts the runs of a delta store, makes source runs and builds generations. Its output depends only on
//! the records and not on their division into runs, so identical records give identical bytes.

mod books;
mod days;
mod emptied;
mod filter;
mod horizon;
mod values;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use tallyring_records::line::{self, Kind};
use tallyring_records::{TimeCode, Users, is_actions, is_actions_section, is_minutes_section};

use books::balance;
use days::Days;
use emptied::Emptied;
use filter::Filter;
use values::Values;

use crate::erasures::{Erasures, Hidden};
use crate::error::{Error, Result};
use crate::partition::Partition;
use crate::run::{Cursor, Run, RunEntry, RunWriter};
use crate::sign::Sign;

pub use books::add_sums;
pub use horizon::Horizon;

/// Merges `inputs` into `out`: keys of its shard, and finer forms from the `horizon` on. `None` when no line is left.
/// Fails for a damaged input, an overflow, a count that would fall below zero, two texts with one hash, sums that do
/// not balance, or the disk.
///
/// ```
/// use tallyring_archive::merge::{Horizon, merge};
/// use tallyring_archive::{Blobs, Run, RunSpec, RunWriter};
///
/// let directory = tempfile::tempdir()?;
/// let blobs = Blobs::local(directory.path())?;
/// blobs.prepare()?;
/// let spec = || RunSpec {
///     origin: "load 0123456789abcdef".parse().expect("an origin"),
///     partition: "2012-04".parse().expect("a month"),
///     shard: 0,
///     shards: 1,
///     level: 3,
/// };
/// let mut writer = RunWriter::create(&blobs, spec())?;
/// writer.push(b"c.u|jehiah.c41l", b"US:4 JP:1")?;
/// writer.push(b"u|jehiah", b"c41l:5")?;
/// let entry = writer.finish()?.expect("lines were pushed");
///
/// let run = Run::open_named(&blobs, &entry)?;
/// let merged = merge(&[run.clone(), run], RunWriter::create(&blobs, spec())?, Horizon::ALL)?;
/// assert_eq!(merged.expect("lines were merged").meta.sums["u|"], 10);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn merge(inputs: &[Arc<Run>], out: RunWriter, horizon: Horizon) -> Result<Option<RunEntry>> {
    merge_hiding(inputs, &[], out, horizon, &|_| {})
}

/// As [`merge`], without the actions of erased users that are hidden in the inputs; `entries` are those of the inputs,
/// or none. The result says that these erasures were applied to it. `read` is called with the compressed bytes of every
/// block that is read.
pub fn merge_erasing(
    inputs: &[Arc<Run>],
    entries: &[&RunEntry],
    erasures: &Erasures,
    out: RunWriter,
    horizon: Horizon,
    read: &dyn Fn(u64),
) -> Result<Option<RunEntry>> {
    let hidden = entries.iter().map(|entry| erasures.hidden_in(entry));
    let merged = merge_hiding(inputs, &hidden.collect::<Vec<_>>(), out, horizon, read)?;
    let erased_until = erasures.until();
    Ok(merged.map(|merged| RunEntry {
        erased_until,
        ..merged
    }))
}

/// As [`merge_erasing`], without the lines that are hidden in each of the inputs; `hidden` has as many items, or none.
fn merge_hiding(
    inputs: &[Arc<Run>],
    hidden: &[Hidden],
    out: RunWriter,
    horizon: Horizon,
    read: &dyn Fn(u64),
) -> Result<Option<RunEntry>> {
    let (shard, shards) = out.place();
    let resharded = inputs
        .iter()
        .any(|run| (run.meta().shard, run.meta().shards) != (shard, shards));
    let takes_away = inputs.iter().any(|run| run.sign() == Sign::Minus);
    let horizon = horizon.with_fixes(inputs);
    let hours_from = horizon.hours_from;
    let mut merge = Merge {
        read,
        sources: Vec::with_capacity(inputs.len()),
        out: Out {
            run: out,
            days: (hours_from > i64::MIN).then(|| Days::new(hours_from)),
            filter: Filter {
                shard,
                shards,
                horizon,
                used: (resharded || takes_away).then(HashSet::new),
                emptied: Emptied::of(inputs),
                left_out: BTreeMap::new(),
            },
        },
        payload: Vec::new(),
        minus: Vec::new(),
    };
    for (index, run) in inputs.iter().enumerate() {
        merge.insert(Source {
            cursor: run.cursor(),
            key: Vec::new(),
            hidden: hidden.get(index).cloned().unwrap_or_default(),
            is_resharded: (run.meta().shard, run.meta().shards) != (shard, shards),
        })?;
    }
    while merge.step()? {}
    let mut out = merge.out;
    if let Some(mut days) = out.days {
        days.flush(&mut out.run)?;
    }
    let entry = out.run.finish()?;
    if !resharded {
        balance(inputs, entry.as_ref(), out.filter.left_out)?;
    }
    Ok(entry)
}

/// True for a section that a merge may leave counts out of: minutes and actions of users expire, and actions of erased
/// users go.
pub fn may_lose(section: &str) -> bool {
    is_minutes_section(section) || is_actions_section(section)
}

struct Merge<'d> {
    /// Called with the compressed bytes of each block that is read.
    read: &'d dyn Fn(u64),
    /// Ordered by key, with the smallest key last.
    sources: Vec<Source>,
    out: Out,
    payload: Vec<u8>,
    /// Names of the inputs that take away counts of the key.
    minus: Vec<String>,
}

/// Where merged lines go.
struct Out {
    run: RunWriter,
    /// Where old buckets are folded.
    days: Option<Days>,
    filter: Filter,
}

impl Out {
    fn push(&mut self, key: &[u8], payload: &[u8]) -> Result<()> {
        if !self.filter.keeps(key, payload)? {
            return Ok(());
        }
        match &mut self.days {
            Some(days) => days.push(&mut self.run, key, payload),
            None => self.run.push(key, payload),
        }
    }
}

/// One input, and the key of its current line.
struct Source {
    cursor: Cursor,
    key: Vec<u8>,
    hidden: Hidden,
    /// Whether it may have keys of other shards than the output.
    is_resharded: bool,
}

impl Source {
    fn sign(&self) -> Sign {
        self.cursor.run().sign()
    }
}

impl Merge<'_> {
    /// Moves a source to its next line that is of the output's shard and not hidden, and puts it back in order; drops
    /// it at its end.
    fn insert(&mut self, mut source: Source) -> Result<()> {
        loop {
            let before = source.cursor.bytes_read();
            let is_on_a_line = source.cursor.advance()?;
            let bytes = source.cursor.bytes_read() - before;
            if bytes > 0 {
                (self.read)(bytes);
            }
            if !is_on_a_line {
                return Ok(());
            }
            let line = source.cursor.line()?;
            let (key, payload) = line.expect("BUG: the cursor stands on a line");
            // Counts that are taken away may be counted in a run that this merge does not read.
            if source.is_resharded && !self.out.filter.is_of_shard(key, payload)? {
                continue;
            }
            if !source.hidden.has(key) {
                source.key.clear();
                source.key.extend_from_slice(key);
                break;
            }
            self.out.filter.leave_out(source.sign(), key, payload)?;
        }
        let at = self.sources.partition_point(|other| other.key > source.key);
        self.sources.insert(at, source);
        Ok(())
    }

    /// Merges all lines of the smallest key; false when no line is left.
    fn step(&mut self) -> Result<bool> {
        let Some(first) = self.sources.pop() else {
            return Ok(false);
        };
        let is_alone = self.sources.last().is_none_or(|next| next.key != first.key);
        if is_alone && first.sign() == Sign::Plus {
            self.pass(first)?;
            return Ok(true);
        }
        let key = first.key.clone();
        match line::kind_of(&key) {
            Some(Kind::Lookup) => self.lookups(&key, first)?,
            Some(Kind::Total) => self.totals(&key, first)?,
            Some(Kind::Users) => self.users(&key, first)?,
            _ => self.subtotals(&key, first)?,
        }
        Ok(true)
    }

    /// Copies the line of a key that a single source has.
    fn pass(&mut self, source: Source) -> Result<()> {
        let (key, payload) = source
            .cursor
            .line()?
            .expect("BUG: the source stands on a line");
        self.out.push(key, payload)?;
        self.insert(source)
    }

    fn lookups(&mut self, key: &[u8], first: Source) -> Result<()> {
        self.payload.clear();
        self.payload
            .extend_from_slice(first.cursor.line()?.expect("BUG: on a line").1);
        self.insert(first)?;
        while let Some(source) = self.pop_equal(key) {
            let (_, payload) = source.cursor.line()?.expect("BUG: on a line");
            if payload != self.payload {
                return Err(Error::Collision {
                    hash: line::shown(&key[1..]),
                    first: line::shown(&self.payload),
                    second: line::shown(payload),
                });
            }
            self.insert(source)?;
        }
        self.out.push(key, &self.payload)
    }

    fn totals(&mut self, key: &[u8], first: Source) -> Result<()> {
        let mut hours: BTreeMap<TimeCode, u64> = BTreeMap::new();
        let mut less: Vec<(TimeCode, u64)> = Vec::new();
        self.minus.clear();
        let mut next = Some(first);
        while let Some(source) = next {
            self.note_minus(&source);
            let (_, payload) = source.cursor.line()?.expect("BUG: on a line");
            for entry in line::hours(payload) {
                let (code, count) = entry.ok_or_else(|| unreadable(key, payload))?;
                match source.sign() {
                    Sign::Plus => add(hours.entry(code).or_insert(0), count, key)?,
                    Sign::Minus => less.push((code, count)),
                }
            }
            self.insert(source)?;
            next = self.pop_equal(key);
        }
        for &(code, count) in &less {
            let sum = hours.get_mut(&code);
            let left = sum.and_then(|sum| Some((sum.checked_sub(count)?, sum)));
            let (left, sum) = left.ok_or_else(|| self.below_zero(key))?;
            *sum = left;
        }
        if !less.is_empty() {
            hours.retain(|_, count| *count > 0);
        }
        let hours: Vec<(TimeCode, u64)> = hours.into_iter().collect();
        if hours.is_empty() {
            return Ok(());
        }
        for part in total_payloads(&hours) {
            self.out.push(key, &part)?;
        }
        Ok(())
    }

    fn subtotals(&mut self, key: &[u8], first: Source) -> Result<()> {
        let (mut values, mut less) = (Values::default(), Values::default());
        self.minus.clear();
        let mut next = Some(first);
        while let Some(source) = next {
            self.note_minus(&source);
            let (_, payload) = source.cursor.line()?.expect("BUG: on a line");
            match source.sign() {
                Sign::Plus => values.add(key, payload)?,
                Sign::Minus => less.add(key, payload)?,
            }
            self.insert(source)?;
            next = self.pop_equal(key);
        }
        let is_enough = match is_actions(key) {
            _ if less.is_empty() => true,
            true => values.take_actions_away(key, less)?,
            false => values.take_away(key, less)?,
        };
        if !is_enough {
            return Err(self.below_zero(key));
        }
        if values.is_empty() {
            return Ok(());
        }
        values.write(key, &mut self.payload)?;
        self.out.push(key, &self.payload)
    }

    fn users(&mut self, key: &[u8], first: Source) -> Result<()> {
        let mut users = Users::default();
        let mut next = Some(first);
        while let Some(source) = next {
            let (_, payload) = source.cursor.line()?.expect("BUG: on a line");
            if source.sign() == Sign::Minus {
                let what = format!("`{}`: no user can be taken away", line::shown(key));
                return Err(Error::malformed(source.cursor.run().name(), what));
            }
            let more = Users::from_payload(payload).ok_or_else(|| unreadable(key, payload))?;
            users.union(&more);
            self.insert(source)?;
            next = self.pop_equal(key);
        }
        self.out.push(key, users.to_payload().as_bytes())
    }

    fn note_minus(&mut self, source: &Source) {
        if source.sign() == Sign::Minus {
            self.minus.push(source.cursor.run().name().to_owned());
        }
    }

    fn below_zero(&self, key: &[u8]) -> Error {
        Error::BelowZero {
            key: line::shown(key),
            minus: self.minus.join(", "),
        }
    }

    fn pop_equal(&mut self, key: &[u8]) -> Option<Source> {
        if self.sources.last()?.key == key {
            self.sources.pop()
        } else {
            None
        }
    }
}

/// The payloads of a total with these ascending buckets: one, or one for each month when one would be
/// longer than a block.
pub fn total_payloads(hours: &[(TimeCode, u64)]) -> Vec<Vec<u8>> {
    let whole = total_payload(hours);
    if whole.len() <= crate::run::BLOCK_BYTES {
        return vec![whole];
    }
    hours
        .chunk_by(|a, b| Partition::month_of(a.0) == Partition::month_of(b.0))
        .map(total_payload)
        .collect()
}

/// Appends the payload of a subtotal: largest count first, ties by value. Sorts `values`.
///
/// ```
/// use tallyring_archive::merge::write_subtotal;
///
/// let mut payload = Vec::new();
/// write_subtotal(&mut payload, &mut [(b"JP", 1), (b"US", 4)]);
/// assert_eq!(payload, b"US:4 JP:1");
/// ```
pub fn write_subtotal(out: &mut Vec<u8>, values: &mut [(&[u8], u64)]) {
    values.sort_unstable_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    for (index, (value, count)) in values.iter().enumerate() {
        line::push_entry(out, index == 0, value, *count);
    }
}

fn total_payload(hours: &[(TimeCode, u64)]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(8 * hours.len());
    let mut code = Vec::with_capacity(8);
    for (index, (hour, count)) in hours.iter().enumerate() {
        code.clear();
        hour.write_to(&mut code);
        line::push_entry(&mut payload, index == 0, &code, *count);
    }
    payload
}

fn add(sum: &mut u64, count: u64, key: &[u8]) -> Result<()> {
    *sum = sum.checked_add(count).ok_or_else(|| Error::Overflow {
        key: line::shown(key),
    })?;
    Ok(())
}

fn unreadable(key: &[u8], payload: &[u8]) -> Error {
    Error::no_counts("the input of a merge", key, payload)
}
