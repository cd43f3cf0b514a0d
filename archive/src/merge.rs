//! The k-way merge of sorted runs into one: counts of equal records are summed, and sketches are united.
//!
//! One merge compacts the runs of a delta store, makes source runs and builds generations. Its output depends only on
//! the records and not on their division into runs, so identical records give identical bytes.

mod days;
mod values;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use tallyring_records::line::{self, Kind};
use tallyring_records::{
    TimeCode, Users, is_actions_before, is_actions_section, is_breakdown_before, is_hash,
    is_minutes_before, is_minutes_section, shard_of,
};

use days::Days;
use values::Values;

use crate::erasures::{Erasures, Hidden};
use crate::error::{Error, Result};
use crate::partition::Partition;
use crate::run::{Cursor, Run, RunEntry, RunMeta, RunWriter, Sums};

/// Times from which finer forms are kept. Coarser forms, which hold the sums, are always kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Horizon {
    /// Minutes of base buckets that began earlier are left out, Unix seconds.
    pub minutes_from: i64,
    /// Base buckets that began earlier are folded into UTC days, Unix seconds; at most `minutes_from`.
    pub hours_from: i64,
    /// Breakdowns by minute, and users, of minutes that began earlier are left out, Unix seconds.
    pub breakdowns_from: i64,
    /// Actions of users of days that began earlier are left out, Unix seconds.
    pub actions_from: i64,
}

impl Horizon {
    /// Keeps everything as it is.
    pub const ALL: Self = Self {
        minutes_from: i64::MIN,
        hours_from: i64::MIN,
        breakdowns_from: i64::MIN,
        actions_from: i64::MIN,
    };
}

/// Merges `inputs` into `out`: keys of its shard, and finer forms from the `horizon` on. `None` when no line is left.
/// Fails for a damaged input, an overflow, two texts with one hash, sums that do not balance, or the disk.
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
    merge_told(inputs, out, horizon, &|_| {})
}

/// As [`merge`]; calls `read` with the compressed bytes of every block that it reads.
pub fn merge_told(
    inputs: &[Arc<Run>],
    out: RunWriter,
    horizon: Horizon,
    read: &dyn Fn(u64),
) -> Result<Option<RunEntry>> {
    merge_hiding(inputs, &[], out, horizon, read)
}

/// As [`merge_told`], without the actions of erased users that are hidden in the inputs; `entries` are those of the
/// inputs. The result says that these erasures were applied to it.
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

/// As [`merge_told`], without the lines that are hidden in each of the inputs; `hidden` has as many items, or none.
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
                used: resharded.then(HashSet::new),
                left_out: Sums::new(),
            },
        },
        payload: Vec::new(),
    };
    for (index, run) in inputs.iter().enumerate() {
        merge.insert(Source {
            cursor: run.cursor(),
            key: Vec::new(),
            hidden: hidden.get(index).cloned().unwrap_or_default(),
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

/// Sum of the books of several runs.
pub fn add_sums<'m>(metas: impl IntoIterator<Item = &'m RunMeta>) -> Sums {
    let mut sums = Sums::new();
    for (section, &count) in metas.into_iter().flat_map(|meta| &meta.sums) {
        *sums.entry(section.clone()).or_insert(0) += count;
    }
    sums
}

fn balance(inputs: &[Arc<Run>], output: Option<&RunEntry>, left_out: Sums) -> Result<()> {
    let before = add_sums(inputs.iter().map(|run| run.meta()));
    let mut after = left_out;
    for (section, &count) in output.iter().flat_map(|entry| &entry.meta.sums) {
        *after.entry(section.clone()).or_insert(0) += count;
    }
    if before == after {
        return Ok(());
    }
    Err(Error::Imbalance {
        name: output.map_or_else(|| "merge".to_owned(), |entry| entry.name.clone()),
        what: format!(
            "the inputs sum to {before:?}, the output and what was left out to {after:?}"
        ),
    })
}

struct Merge<'d> {
    /// Called with the compressed bytes of each block that is read.
    read: &'d dyn Fn(u64),
    /// Ordered by key, with the smallest key last.
    sources: Vec<Source>,
    out: Out,
    payload: Vec<u8>,
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
}

/// Decides for each line whether the output keeps it.
struct Filter {
    /// Shard whose keys are kept.
    shard: u16,
    /// Number of shards.
    shards: u16,
    /// Earlier minutes, and breakdowns of them, are left out.
    horizon: Horizon,
    /// Hashes that kept lines use, whose lookups are kept; `None` when all inputs have the shard of the output.
    used: Option<HashSet<Box<[u8]>>>,
    /// Sums of what was left out: minutes, breakdowns by minute and actions.
    left_out: Sums,
}

impl Merge<'_> {
    /// Moves a source to its next line that is not hidden and puts it back in order; drops it at its end.
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
            if !source.hidden.has(key) {
                source.key.clear();
                source.key.extend_from_slice(key);
                break;
            }
            self.out.filter.leave_out(key, payload)?;
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
        if self.sources.last().is_none_or(|next| next.key != first.key) {
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
        let mut next = Some(first);
        while let Some(source) = next {
            let (_, payload) = source.cursor.line()?.expect("BUG: on a line");
            for entry in line::hours(payload) {
                let (code, count) = entry.ok_or_else(|| unreadable(key, payload))?;
                add(hours.entry(code).or_insert(0), count, key)?;
            }
            self.insert(source)?;
            next = self.pop_equal(key);
        }
        let hours: Vec<(TimeCode, u64)> = hours.into_iter().collect();
        for part in total_payloads(&hours) {
            self.out.push(key, &part)?;
        }
        Ok(())
    }

    fn subtotals(&mut self, key: &[u8], first: Source) -> Result<()> {
        let mut values = Values::default();
        let mut next = Some(first);
        while let Some(source) = next {
            let (_, payload) = source.cursor.line()?.expect("BUG: on a line");
            values.add(key, payload)?;
            self.insert(source)?;
            next = self.pop_equal(key);
        }
        values.write(key, &mut self.payload)?;
        self.out.push(key, &self.payload)
    }

    fn users(&mut self, key: &[u8], first: Source) -> Result<()> {
        let mut users = Users::default();
        let mut next = Some(first);
        while let Some(source) = next {
            let (_, payload) = source.cursor.line()?.expect("BUG: on a line");
            let more = Users::from_payload(payload).ok_or_else(|| unreadable(key, payload))?;
            users.union(&more);
            self.insert(source)?;
            next = self.pop_equal(key);
        }
        self.out.push(key, users.to_payload().as_bytes())
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

impl Filter {
    /// Notes the counts of a line that is left out.
    fn leave_out(&mut self, key: &[u8], payload: &[u8]) -> Result<()> {
        let section = String::from_utf8_lossy(line::section(key)).into_owned();
        let sum = self.left_out.entry(section).or_insert(0);
        for entry in line::entries(payload) {
            let (_, count) = entry.ok_or_else(|| unreadable(key, payload))?;
            *sum += u128::from(count);
        }
        Ok(())
    }

    fn keeps(&mut self, key: &[u8], payload: &[u8]) -> Result<bool> {
        let horizon = self.horizon;
        if is_minutes_before(key, horizon.minutes_from)
            || is_breakdown_before(key, horizon.breakdowns_from)
            || is_actions_before(key, horizon.actions_from)
        {
            if line::kind_of(key) != Some(Kind::Users) {
                self.leave_out(key, payload)?;
            }
            return Ok(false);
        }
        let Some(used) = &mut self.used else {
            return Ok(true);
        };
        if line::kind_of(key) == Some(Kind::Lookup) {
            return Ok(used.contains(&key[1..]));
        }
        let shard_key = line::shard_key(key).ok_or_else(|| unreadable(key, payload))?;
        if shard_of(shard_key, self.shards) != self.shard {
            return Ok(false);
        }
        uses(used, line::stored_key(shard_key));
        if line::kind_of(key) == Some(Kind::Subtotal) {
            for (value, _) in line::entries(payload).flatten() {
                for part in value.split(|&byte| byte == b'*') {
                    uses(used, part);
                }
            }
        }
        Ok(true)
    }
}

fn uses(used: &mut HashSet<Box<[u8]>>, stored: &[u8]) {
    if is_hash(stored) && !used.contains(stored) {
        used.insert(stored.into());
    }
}
