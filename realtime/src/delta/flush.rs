//! Writes a delta as runs, one for each month and shard that it touches.

use std::collections::{BTreeMap, BTreeSet};

use tallyring_archive::merge::{total_payloads, write_subtotal};
use tallyring_archive::{Origin, Partition, PutGroup, Result, RunEntry, RunSpec, RunWriter};
use tallyring_records::line::{self, escape};
use tallyring_records::{
    Interner, MINUTES, TimeCode, USERS, UserKey, Users, add_capped, by_minute, is_hash,
    minute_digits,
};

use super::actions::List;
use super::lookups::Lookups;
use super::memory::{Bucket, Delta, NONE, Shard};
use super::minutes::minute_in;

/// Destination of the runs of a delta.
pub(crate) struct FlushTarget<'a> {
    /// The group of blobs that takes the runs.
    pub group: &'a PutGroup<'a>,
    /// How the runs come to be.
    pub origin: Origin,
    /// zstd level, 1–19.
    pub level: i32,
    /// Breakdowns by minute of earlier base buckets are left out, Unix seconds.
    pub breakdowns_from: i64,
}

/// Writes all of `delta`. `wrote` is called with each run as soon as the run can be read.
pub(crate) fn write_runs(
    target: &FlushTarget<'_>,
    delta: &Delta,
    wrote: &mut dyn FnMut(RunEntry) -> Result<()>,
) -> Result<()> {
    let shards = u16::try_from(delta.shards().len()).expect("BUG: shards are numbered in 16 bits");
    let erased = delta.erased.users();
    for (number, shard) in (0..shards).zip(delta.shards()) {
        let of_buckets = counted(shard).map(|bucket| bucket.code());
        let of_actions = shard.actions.lists(&erased).map(|list| list.day().code());
        let months: BTreeSet<Partition> = of_buckets
            .chain(of_actions)
            .map(Partition::month_of)
            .collect();
        for partition in months {
            let spec = RunSpec {
                origin: target.origin.clone(),
                partition,
                shard: number,
                shards,
                level: target.level,
            };
            let mut month = Month {
                shard,
                lookups: delta.lookups(),
                erased: &erased,
                whats: delta.whats(),
                partition,
                breakdowns_from: target.breakdowns_from,
                out: RunWriter::create(target.group.blobs(), spec)?,
                key: Vec::new(),
                payload: Vec::new(),
                used: BTreeSet::new(),
            };
            month.write()?;
            if let Some(run) = month.out.finish_in(target.group)? {
                wrote(run)?;
            }
        }
    }
    Ok(())
}

/// The buckets that count something. A bucket whose counts were folded into another delta counts nothing.
fn counted(shard: &Shard) -> impl Iterator<Item = &Bucket> {
    shard.buckets.iter().filter(|bucket| bucket.count > 0)
}

/// The kind of the lines of a section.
#[derive(Clone, Copy)]
enum Lines {
    Totals,
    Values,
    ValuesByMinute,
    Minutes,
    Users,
    UsersByMinute,
}

/// The place of a line: the name of the subtotal, the bucket that counts, and the time code.
type Place<'p> = (&'p [u8], &'p Bucket, TimeCode);

fn name_by_minute(subtotal: &[u8]) -> Vec<u8> {
    by_minute(&String::from_utf8_lossy(subtotal)).into_bytes()
}

struct Month<'s> {
    shard: &'s Shard,
    lookups: &'s Lookups,
    /// Users whose actions are not written.
    erased: &'s [UserKey],
    whats: &'s Interner,
    partition: Partition,
    breakdowns_from: i64,
    out: RunWriter,
    /// Key and payload of a line, to be written.
    key: Vec<u8>,
    payload: Vec<u8>,
    /// Hashes of written keys and values, whose lookups come last.
    used: BTreeSet<&'s [u8]>,
}

impl<'s> Month<'s> {
    /// Writes lines section by section (`c.u|…` before `u|…`). That is their order as bytes, because no name of a
    /// section is the beginning of another's.
    fn write(&mut self) -> Result<()> {
        let mut sections: BTreeMap<Vec<u8>, (Lines, Vec<&'s Bucket>)> = BTreeMap::new();
        let span = self.partition.start()..self.partition.end();
        let (shard, breakdowns_from) = (self.shard, self.breakdowns_from);
        for bucket in counted(shard).filter(|bucket| span.contains(&bucket.code().start())) {
            let of_key = line::section(shard.keys.get(bucket.key));
            let mut put = |subtotal: &[u8], lines| {
                let dot: &[u8] = if subtotal.is_empty() { b"" } else { b"." };
                let section = [subtotal, dot, of_key].concat();
                let (_, buckets) = sections.entry(section).or_insert((lines, Vec::new()));
                buckets.push(bucket);
            };
            let by_minute_too = bucket.code().start() >= breakdowns_from;
            if let Some(number) = bucket.subtotal.checked_sub(1) {
                let subtotal = shard.subtotals.get(number.into());
                put(subtotal, Lines::Values);
                if by_minute_too && shard.counts_values_by_minute(bucket) {
                    put(&name_by_minute(subtotal), Lines::ValuesByMinute);
                }
                continue;
            }
            put(b"", Lines::Totals);
            if bucket.first != NONE {
                put(MINUTES.as_bytes(), Lines::Minutes);
            }
            if shard.users_of(bucket).is_some() {
                put(USERS.as_bytes(), Lines::Users);
                if by_minute_too && bucket.first != NONE {
                    put(&name_by_minute(USERS.as_bytes()), Lines::UsersByMinute);
                }
            }
        }
        self.actions()?;
        for (lines, buckets) in sections.into_values() {
            match lines {
                Lines::Totals => self.totals(buckets)?,
                lines => self.subtotals(lines, buckets)?,
            }
        }
        self.lookups()
    }

    /// Writes the lines of actions. Their section sorts before all others.
    fn actions(&mut self) -> Result<()> {
        let shard = self.shard;
        let of_month = |list: &&List| Partition::month_of(list.day().code()) == self.partition;
        let lists = shard.actions.lists(self.erased).filter(of_month);
        let mut lists: Vec<(String, &List)> =
            lists.map(|list| (list.user().prefix(), list)).collect();
        lists.sort_unstable_by(|(a, of_a), (b, of_b)| a.cmp(b).then(of_a.day().cmp(&of_b.day())));
        for (prefix, list) in lists {
            let mut values: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
            shard
                .actions
                .visit(list.place(), self.whats, &mut |action, n| {
                    let mut value = Vec::new();
                    action.write_value(&mut value);
                    add_capped(values.entry(value).or_insert(0), n);
                });
            let mut values: Vec<(&[u8], u64)> =
                values.iter().map(|(value, n)| (&value[..], *n)).collect();
            self.key.clear();
            self.key.extend_from_slice(prefix.as_bytes());
            list.day().code().write_to(&mut self.key);
            self.payload.clear();
            write_subtotal(&mut self.payload, &mut values);
            self.out.push(&self.key, &self.payload)?;
        }
        Ok(())
    }

    fn totals(&mut self, mut buckets: Vec<&'s Bucket>) -> Result<()> {
        let shard = self.shard;
        buckets.sort_unstable_by(|a, b| {
            let keys = || shard.keys.get(a.key).cmp(shard.keys.get(b.key));
            if a.key == b.key {
                a.code().cmp(&b.code())
            } else {
                keys()
            }
        });
        for group in buckets.chunk_by(|a, b| a.key == b.key) {
            let key = shard.keys.get(group[0].key);
            self.uses(line::stored_key(key));
            let hours: Vec<(TimeCode, u64)> = group
                .iter()
                .map(|bucket| (bucket.code(), bucket.count))
                .collect();
            for payload in total_payloads(&hours) {
                self.out.push(key, &payload)?;
            }
        }
        Ok(())
    }

    /// Writes the lines of buckets: one for each, or one for each of their minutes.
    fn subtotals(&mut self, lines: Lines, mut buckets: Vec<&'s Bucket>) -> Result<()> {
        let shard = self.shard;
        self.sort_by_line(&mut buckets);
        let subtotal = |bucket: &Bucket| shard.subtotals.get(u32::from(bucket.subtotal) - 1);
        for bucket in buckets {
            let code = bucket.code();
            match lines {
                Lines::Totals => {}
                Lines::Values => {
                    let counters = shard.counters_of(bucket);
                    let values =
                        counters.map(|counter| (shard.values.get(counter.value), counter.count));
                    let values = values.collect();
                    self.values((subtotal(bucket), bucket, code), values)?;
                }
                Lines::ValuesByMinute => {
                    let mut minutes: BTreeMap<u8, Vec<(&[u8], u64)>> = BTreeMap::new();
                    for counter in shard.counters_of(bucket) {
                        let value = shard.values.get(counter.value);
                        for (minute, count) in shard.breakdowns.of(code, counter.minute) {
                            minutes.entry(minute).or_default().push((value, count));
                        }
                    }
                    let name = name_by_minute(subtotal(bucket));
                    for (minute, values) in minutes {
                        self.values((&name, bucket, minute_in(code, minute)), values)?;
                    }
                }
                Lines::Minutes => {
                    let minutes = shard.minutes.of(bucket.first);
                    let minutes: Vec<_> = minutes
                        .map(|(minute, count)| (minute_digits(minute), count))
                        .collect();
                    let values = minutes.iter().map(|(digits, count)| (&digits[..], *count));
                    let place = (MINUTES.as_bytes(), bucket, code);
                    self.line_of_values(place, &mut values.collect::<Vec<_>>())?;
                }
                Lines::Users => {
                    if let Some(users) = shard.users_of(bucket) {
                        let payload = users.to_payload();
                        self.line((USERS.as_bytes(), bucket, code), payload.as_bytes())?;
                    }
                }
                Lines::UsersByMinute => {
                    let minutes: BTreeMap<u8, &Users> = shard.users_by_minute(bucket).collect();
                    let name = name_by_minute(USERS.as_bytes());
                    for (minute, users) in minutes {
                        let payload = users.to_payload();
                        let place = (&name[..], bucket, minute_in(code, minute));
                        self.line(place, payload.as_bytes())?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes a line of values, and notes the hashes among them.
    fn values(&mut self, place: Place<'_>, mut values: Vec<(&'s [u8], u64)>) -> Result<()> {
        self.line_of_values(place, &mut values)?;
        for (value, _) in values {
            for part in value.split(|&byte| byte == b'*') {
                self.uses(part);
            }
        }
        Ok(())
    }

    fn line_of_values(&mut self, place: Place<'_>, values: &mut [(&[u8], u64)]) -> Result<()> {
        let mut payload = std::mem::take(&mut self.payload);
        payload.clear();
        write_subtotal(&mut payload, values);
        self.line(place, &payload)?;
        self.payload = payload;
        Ok(())
    }

    /// Writes the line of a subtotal.
    fn line(&mut self, (subtotal, bucket, code): Place<'_>, payload: &[u8]) -> Result<()> {
        let key = &mut self.key;
        key.clear();
        for part in [subtotal, b".", self.shard.keys.get(bucket.key), b"."] {
            key.extend_from_slice(part);
        }
        code.write_to(key);
        self.out.push(key, payload)
    }

    /// Sorts by the key of the line, `c.u|jehiah.c41l`: in a comparison a dot follows the key.
    fn sort_by_line(&self, buckets: &mut [&'s Bucket]) {
        let dotted = |key: u32| self.shard.keys.get(key).iter().chain(b".");
        buckets.sort_unstable_by(|a, b| {
            if a.key == b.key {
                a.code().cmp(&b.code())
            } else {
                dotted(a.key).cmp(dotted(b.key))
            }
        });
    }

    fn lookups(&mut self) -> Result<()> {
        for hash in std::mem::take(&mut self.used) {
            let hash = std::str::from_utf8(hash).expect("BUG: stored text is UTF-8");
            let raw = self
                .lookups
                .get(hash.as_bytes())
                .expect("BUG: every hash in a delta has its lookup");
            self.out
                .push(line::lookup_key(hash).as_bytes(), escape(raw).as_bytes())?;
        }
        Ok(())
    }

    fn uses(&mut self, stored: &'s [u8]) {
        if is_hash(stored) {
            self.used.insert(stored);
        }
    }
}
