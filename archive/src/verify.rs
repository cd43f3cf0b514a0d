//! Proves a run: every byte, the order, the books, and subtotals against totals for every bucket, or against minutes
//! for every minute.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{AddAssign, ControlFlow};
use std::sync::Arc;

use tallyring_records::line::{self, Kind};
use tallyring_records::{
    Action, Grain, MINUTES, TimeCode, Users, is_actions_before, is_breakdown_before, is_hash,
    minute_of, shard_of,
};

use crate::blobs::Blobs;
use crate::error::{Error, Result};
use crate::names;
use crate::run::{BlockCache, Run, RunEntry, Sums, Tally, ValueTally, hash_text, is_summed};

/// Numbers of what was checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Checked {
    /// Files read.
    pub files: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Lines read.
    pub lines: u64,
    /// Base buckets of totals.
    pub buckets: u64,
    /// Subtotal lines compared with their total.
    pub subtotals: u64,
    /// Subtotal lines whose named values sum to less than their total, because they were counted before the
    /// subtotal was declared, or loaded without a breakdown. The remainder reads as `-`.
    pub with_remainder: u64,
}

impl AddAssign for Checked {
    fn add_assign(&mut self, other: Self) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.lines += other.lines;
        self.buckets += other.buckets;
        self.subtotals += other.subtotals;
        self.with_remainder += other.with_remainder;
    }
}

/// Reads a whole run and checks it against its entry in the manifest. The error is the first thing that is wrong, and
/// names the file.
///
/// ```
/// use tallyring_archive::{Blobs, RunSpec, RunWriter, verify_run};
///
/// let directory = tempfile::tempdir()?;
/// let blobs = Blobs::local(directory.path())?;
/// blobs.prepare()?;
/// let spec = RunSpec {
///     origin: "load 0123456789abcdef".parse()?,
///     partition: "2012-04".parse()?,
///     shard: 0,
///     shards: 1,
///     level: 3,
/// };
/// let mut writer = RunWriter::create(&blobs, spec)?;
/// writer.push(b"c.u|jehiah.c41l", b"US:4 JP:1")?;
/// writer.push(b"u|jehiah", b"c41l:5")?;
/// let entry = writer.finish()?.expect("lines were pushed");
///
/// let checked = verify_run(&blobs, &entry)?;
/// assert_eq!((checked.lines, checked.subtotals), (2, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn verify_run(blobs: &Blobs, entry: &RunEntry) -> Result<Checked> {
    let run = verify_bytes(blobs, entry)?;
    let damaged = |what: String| Error::damaged(&entry.name, 0, what);
    let mut check = RunCheck::new(&run);
    let mut cursor = run.cursor();
    let mut last = Vec::new();
    while cursor.advance()? {
        let (key, payload) = cursor.line()?.expect("BUG: the cursor stands on a line");
        let ordered = *last < *key || (*last == *key && line::kind_of(key) == Some(Kind::Total));
        if !ordered {
            return Err(damaged(format!(
                "`{}` stands behind `{}`",
                line::shown(key),
                line::shown(&last)
            )));
        }
        check.line(key, payload)?;
        last.clear();
        last.extend_from_slice(key);
    }
    check.lookups()?;
    check.end_section()?;
    check.books()?;
    Ok(Checked {
        files: 1,
        bytes: entry.bytes,
        lines: run.meta().lines,
        ..check.checked
    })
}

/// Checks that every byte of a run is the byte that was written. Does not check the meaning of the lines.
pub fn verify_bytes(blobs: &Blobs, entry: &RunEntry) -> Result<Arc<Run>> {
    let run = Run::open_named(blobs, entry)?;
    if run.content_hash()? == entry.hash {
        return Ok(run);
    }
    Err(run
        .first_damage()
        .unwrap_or_else(|| Error::damaged(&entry.name, 0, "its hash is not the manifest's")))
}

/// Checks the bytes on the disk, also where memory holds the file. Calls `after_part` after every mebibyte.
pub fn verify_on_disk(blobs: &Blobs, entry: &RunEntry, after_part: &mut dyn FnMut()) -> Result<()> {
    let mut hasher = blake3::Hasher::new();
    blobs.read_from_disk(&entry.name, &mut |part| {
        hasher.update(part);
        after_part();
    })?;
    match hash_text(&hasher.finalize()) == entry.hash {
        true => Ok(()),
        false => Err(Error::damaged(
            &entry.name,
            0,
            "its hash is not the manifest's",
        )),
    }
}

/// The key of a total, and its counts.
type Total = (Vec<u8>, BTreeMap<TimeCode, u64>);

struct RunCheck<'r> {
    run: &'r Run,
    cache: BlockCache,
    sums: Sums,
    checked: Checked,
    /// Key and buckets of the total that the last subtotal line was compared with; and key and minutes of the one that
    /// the last line of a breakdown by minute was compared with.
    compared: [Option<Total>; 2],
    /// Key and last bucket of the total line before, for a total that continues.
    last_total: Option<(Vec<u8>, TimeCode)>,
    /// Instants that the partition holds. Ids are kept by their arrival, so a run of ids may hold any instant.
    span: std::ops::Range<i64>,
    /// Hashes whose lookup lines have not come yet.
    used: BTreeSet<Box<[u8]>>,
    /// The section of totals that is being read, and what its summary has to say.
    section: Option<(Vec<u8>, Tally)>,
    /// The section of values that is being read, and what its sums have to say.
    values: Option<(Vec<u8>, Option<ValueTally>)>,
}

impl<'r> RunCheck<'r> {
    fn new(run: &'r Run) -> Self {
        let partition = run.meta().partition;
        let by_arrival = run.name().starts_with(names::IDS);
        Self {
            run,
            cache: BlockCache::new(8 << 20),
            sums: Sums::new(),
            checked: Checked::default(),
            compared: [None, None],
            last_total: None,
            span: if by_arrival {
                i64::MIN..i64::MAX
            } else {
                partition.start()..partition.end()
            },
            used: BTreeSet::new(),
            section: None,
            values: None,
        }
    }

    fn line(&mut self, key: &[u8], payload: &[u8]) -> Result<()> {
        let sum = match line::kind_of(key) {
            Some(Kind::Lookup) => {
                line::unescape(payload).ok_or_else(|| self.wrong(key, "its text is not UTF-8"))?;
                self.used.remove(&key[1..]);
                return Ok(());
            }
            Some(Kind::Users) => return self.users(key, payload),
            Some(Kind::Total) => self.total_line(key, payload)?,
            Some(Kind::Subtotal) => {
                let sum = sum(line::entries(payload).map(|entry| entry.map(|(_, count)| count)));
                let sum = sum.ok_or_else(|| self.wrong(key, "is no line of counts"))?;
                if is_actions_before(key, i64::MAX) {
                    // Hashes within actions have no lookups, and an action may be as long as a hash.
                    self.actions(key, payload)?;
                } else {
                    self.subtotal(key, sum)?;
                    self.tally_values(key, payload)?;
                    for part in line::entries(payload)
                        .flatten()
                        .flat_map(|(value, _)| value.split(|&byte| byte == b'*'))
                    {
                        self.uses(part);
                    }
                }
                sum
            }
            None => return Err(self.wrong(key, "is no record key")),
        };
        let section = String::from_utf8_lossy(line::section(key)).into_owned();
        *self.sums.entry(section).or_insert(0) += sum;
        Ok(())
    }

    fn total_line(&mut self, key: &[u8], payload: &[u8]) -> Result<u128> {
        let hours = read_hours(payload)
            .ok_or_else(|| self.wrong(key, "is no line of ascending buckets"))?;
        let (Some((&first, _)), Some((&last, _))) =
            (hours.first_key_value(), hours.last_key_value())
        else {
            return Err(self.wrong(key, "has no bucket"));
        };
        if !self.span.contains(&first.start()) || !self.span.contains(&last.start()) {
            return Err(self.wrong(key, "has buckets outside the partition"));
        }
        if self
            .last_total
            .as_ref()
            .is_some_and(|(before, code)| before == key && *code >= first)
        {
            return Err(self.wrong(key, "continues with buckets that do not ascend"));
        }
        let meta = self.run.meta();
        if shard_of(key, meta.shards) != meta.shard {
            return Err(self.wrong(key, "belongs to another shard"));
        }
        self.last_total = Some((key.to_vec(), last));
        self.tally(key, &hours)?;
        self.uses(line::stored_key(key));
        self.checked.buckets += hours.len() as u64;
        Ok(hours.values().map(|&count| u128::from(count)).sum())
    }

    fn tally(&mut self, key: &[u8], hours: &BTreeMap<TimeCode, u64>) -> Result<()> {
        let section = line::section(key);
        if self.section.as_ref().is_none_or(|(of, _)| of != section) {
            self.end_section()?;
            self.section = Some((section.to_vec(), Tally::new(self.run.meta())));
        }
        if let Some((_, tally)) = &mut self.section {
            tally.begin(line::stored_key(key));
            hours
                .iter()
                .for_each(|(code, count)| tally.count(*code, *count));
        }
        Ok(())
    }

    fn tally_values(&mut self, key: &[u8], payload: &[u8]) -> Result<()> {
        let section = line::section(key);
        if !is_summed(section) {
            return Ok(());
        }
        if self.values.as_ref().is_none_or(|(of, _)| of != section) {
            self.end_section()?;
            let tally = self.run.tally_of_values(&self.cache, section)?;
            self.values = Some((section.to_vec(), tally));
        }
        let code = line::split_subtotal(key).map(|(_, _, code)| code);
        let tally = self.values.as_mut().and_then(|(_, tally)| tally.as_mut());
        if let Some((tally, code)) = tally.zip(code) {
            tally.begin(code);
            for (value, count) in line::entries(payload).flatten() {
                tally.count(value, count);
            }
        }
        Ok(())
    }

    /// Checks that the summary or the sums of the section that was read, if it has them, say what its lines say.
    fn end_section(&mut self) -> Result<()> {
        if let Some((section, Some(tally))) = self.values.take()
            && !tally.agrees_with(self.run, &self.cache, &section)?
        {
            return Err(self.wrong(&section, "has sums that say otherwise than its lines"));
        }
        let Some((section, tally)) = self.section.take() else {
            return Ok(());
        };
        match self.run.summary(&self.cache, &section)? {
            Some(summary) if !tally.agrees_with(&summary) => {
                Err(self.wrong(&section, "has a summary that says otherwise than its lines"))
            }
            _ => Ok(()),
        }
    }

    fn uses(&mut self, stored: &[u8]) {
        if is_hash(stored) && !self.used.contains(stored) {
            self.used.insert(stored.into());
        }
    }

    /// Checks that every hash of keys and values has its lookup.
    fn lookups(&self) -> Result<()> {
        match self.used.first() {
            Some(hash) => Err(self.wrong(hash, "is a hash without its lookup")),
            None => Ok(()),
        }
    }

    /// Checks that a line of users is a sketch in its only form, of a bucket with counts.
    fn users(&mut self, key: &[u8], payload: &[u8]) -> Result<()> {
        let users = Users::from_payload(payload);
        let in_form = users.is_some_and(|users| users.to_payload().as_bytes() == payload);
        if !in_form {
            return Err(self.wrong(key, "is no sketch of users"));
        }
        if self.total_of(key)? == 0 {
            return Err(self.wrong(key, "has users, but its bucket counted nothing"));
        }
        Ok(())
    }

    /// Checks that a line of actions is of a day of the partition and holds actions alone.
    fn actions(&self, key: &[u8], payload: &[u8]) -> Result<()> {
        let day = line::split_subtotal(key).map(|(_, _, code)| code);
        if !day.is_some_and(|day| day.grain() == Grain::Day && self.span.contains(&day.start())) {
            return Err(self.wrong(key, "is of no day of the partition"));
        }
        let mut values = line::entries(payload).flatten();
        match values.all(|(value, _)| Action::parse(value).is_some()) {
            true => Ok(()),
            false => Err(self.wrong(key, "holds what is no action")),
        }
    }

    /// Checks that the values of a subtotal sum to its total, or to less where the total was counted without it.
    fn subtotal(&mut self, key: &[u8], sum: u128) -> Result<()> {
        let total = self.total_of(key)?;
        if sum > total {
            let key = line::shown(key);
            return Err(Error::Imbalance {
                name: self.run.name().to_owned(),
                what: format!("the values of `{key}` sum to {sum}, the total is {total}"),
            });
        }
        self.checked.subtotals += 1;
        self.checked.with_remainder += u64::from(sum < total);
        Ok(())
    }

    /// The total of the bucket or the minute of a line; 0 when it counted nothing.
    fn total_of(&mut self, key: &[u8]) -> Result<u128> {
        let (_, total_key, code) =
            line::split_subtotal(key).ok_or_else(|| self.wrong(key, "names no bucket"))?;
        let by_minute = is_breakdown_before(key, i64::MAX);
        let compared = &self.compared[usize::from(by_minute)];
        if compared
            .as_ref()
            .is_none_or(|(known, _)| known != total_key)
        {
            let counts = match by_minute {
                true => self.read_minutes(total_key)?,
                false => self.read_total(total_key)?,
            };
            self.compared[usize::from(by_minute)] = Some((total_key.to_vec(), counts));
        }
        let compared = self.compared[usize::from(by_minute)].as_ref();
        let total = compared.and_then(|(_, counts)| counts.get(&code));
        Ok(total.map_or(0, |&total| u128::from(total)))
    }

    fn read_minutes(&self, total_key: &[u8]) -> Result<BTreeMap<TimeCode, u64>> {
        let prefix = [MINUTES.as_bytes(), b".", total_key, b"."].concat();
        let mut minutes: BTreeMap<TimeCode, u64> = BTreeMap::new();
        let mut readable = true;
        self.run
            .visit_from(&self.cache, &prefix, &mut |key, payload| {
                let Some(base) = key.strip_prefix(prefix.as_slice()) else {
                    return ControlFlow::Break(());
                };
                let base = TimeCode::parse(base).ok();
                for entry in line::entries(payload) {
                    let (Some(base), Some((value, count))) = (base, entry) else {
                        readable = false;
                        continue;
                    };
                    // Counts without minutes stand under `-`.
                    if let Some(minute) = minute_of(base, value) {
                        let sum = minutes.entry(minute).or_insert(0);
                        *sum = sum.saturating_add(count);
                    }
                }
                ControlFlow::Continue(())
            })?;
        match readable {
            true => Ok(minutes),
            false => Err(self.wrong(&prefix, "begins a line that is not of minutes")),
        }
    }

    fn read_total(&self, total_key: &[u8]) -> Result<BTreeMap<TimeCode, u64>> {
        let mut hours = BTreeMap::new();
        let mut readable = true;
        self.run
            .visit_from(&self.cache, total_key, &mut |key, payload| {
                if key != total_key {
                    return ControlFlow::Break(());
                }
                match read_hours(payload) {
                    Some(part) => hours.extend(part),
                    None => readable = false,
                }
                ControlFlow::Continue(())
            })?;
        if readable {
            Ok(hours)
        } else {
            Err(self.wrong(total_key, "is no line of buckets"))
        }
    }

    /// Checks that the books of the run match its lines.
    fn books(&self) -> Result<()> {
        if self.sums != self.run.meta().sums {
            return Err(Error::Imbalance {
                name: self.run.name().to_owned(),
                what: format!(
                    "its lines sum to {:?}, its books say {:?}",
                    self.sums,
                    self.run.meta().sums
                ),
            });
        }
        Ok(())
    }

    fn wrong(&self, key: &[u8], what: &str) -> Error {
        Error::malformed(self.run.name(), format!("`{}`: {what}", line::shown(key)))
    }
}

/// The buckets of a total line; `None` unless they ascend.
fn read_hours(payload: &[u8]) -> Option<BTreeMap<TimeCode, u64>> {
    let mut hours: BTreeMap<TimeCode, u64> = BTreeMap::new();
    for entry in line::hours(payload) {
        let (code, count) = entry?;
        if hours
            .last_key_value()
            .is_some_and(|(last, _)| *last >= code)
        {
            return None;
        }
        hours.insert(code, count);
    }
    Some(hours)
}

/// Sum of counts; `None` when one of them is missing.
fn sum(counts: impl Iterator<Item = Option<u64>>) -> Option<u128> {
    counts
        .into_iter()
        .try_fold(0, |sum, count| Some(sum + u128::from(count?)))
}
