//! Writes a delta as runs, one for each month and shard that it touches.

use std::collections::{BTreeMap, BTreeSet};

use tallyring_archive::merge::{total_payloads, write_subtotal};
use tallyring_archive::{Origin, Partition, PutGroup, Result, RunEntry, RunSpec, RunWriter};
use tallyring_records::line::{self, Kind, escape};
use tallyring_records::{StoreId, TimeCode, USERS, is_hash};

use super::lookups::Lookups;
use super::memory::{Bucket, Delta, Shard};

/// Destination of the runs of a delta.
pub(crate) struct FlushTarget<'a> {
    /// The group of blobs that takes the runs.
    pub group: &'a PutGroup<'a>,
    /// The delta store.
    pub store: StoreId,
    /// zstd level, 1–19.
    pub level: i32,
}

/// Writes all of `delta`. `wrote` is called with each run as soon as the run can be read.
///
/// # Errors
/// When a run cannot be written; errors of `wrote`.
pub(crate) fn write_runs(
    target: &FlushTarget<'_>,
    delta: &Delta,
    wrote: &mut dyn FnMut(RunEntry) -> Result<()>,
) -> Result<()> {
    let shards = u16::try_from(delta.shards().len()).expect("BUG: shards are numbered in 16 bits");
    for (number, shard) in (0..shards).zip(delta.shards()) {
        let months: BTreeSet<Partition> = counted(shard)
            .map(|bucket| Partition::month_of(bucket.code()))
            .collect();
        for partition in months {
            let spec = RunSpec {
                origin: Origin::Flush(target.store),
                partition,
                shard: number,
                shards,
                level: target.level,
            };
            let mut month = Month {
                shard,
                lookups: delta.lookups(),
                partition,
                out: RunWriter::create(target.group.blobs(), spec)?,
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

struct Month<'s> {
    shard: &'s Shard,
    lookups: &'s Lookups,
    partition: Partition,
    out: RunWriter,
    /// Hashes of written keys and values, whose lookups come last.
    used: BTreeSet<&'s [u8]>,
}

impl<'s> Month<'s> {
    /// Writes lines section by section (`c.u|…` before `u|…`). That is their order as bytes, because no name of a
    /// section is the beginning of another's.
    fn write(&mut self) -> Result<()> {
        let mut sections: BTreeMap<Vec<u8>, Vec<&'s Bucket>> = BTreeMap::new();
        let span = self.partition.start()..self.partition.end();
        for bucket in counted(self.shard).filter(|bucket| span.contains(&bucket.code().start())) {
            let key = self.shard.keys.get(bucket.key);
            let mut section = Vec::new();
            if bucket.subtotal > 0 {
                section.extend_from_slice(self.shard.subtotals.get(u32::from(bucket.subtotal) - 1));
                section.push(b'.');
            }
            section.extend_from_slice(line::section(key));
            if self.shard.users_of(bucket).is_some() {
                let users = [USERS.as_bytes(), b".", line::section(key)].concat();
                sections.entry(users).or_default().push(bucket);
            }
            sections.entry(section).or_default().push(bucket);
        }
        for (section, buckets) in sections {
            match line::kind_of(&section) {
                Some(Kind::Users) => self.users(buckets)?,
                Some(Kind::Subtotal) => self.subtotals(buckets)?,
                _ => self.totals(buckets)?,
            }
        }
        self.lookups()
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

    fn subtotals(&mut self, mut buckets: Vec<&'s Bucket>) -> Result<()> {
        let shard = self.shard;
        self.sort_by_line(&mut buckets);
        let (mut key, mut payload) = (Vec::new(), Vec::new());
        for bucket in buckets {
            let subtotal = shard.subtotals.get(u32::from(bucket.subtotal) - 1);
            self.line_key(&mut key, subtotal, bucket);
            let mut values: Vec<(&[u8], u64)> = shard
                .counters_of(bucket)
                .map(|counter| (shard.values.get(counter.value), counter.count))
                .collect();
            payload.clear();
            write_subtotal(&mut payload, &mut values);
            self.out.push(&key, &payload)?;
            for (value, _) in values {
                for part in value.split(|&byte| byte == b'*') {
                    self.uses(part);
                }
            }
        }
        Ok(())
    }

    fn users(&mut self, mut buckets: Vec<&'s Bucket>) -> Result<()> {
        let shard = self.shard;
        self.sort_by_line(&mut buckets);
        let mut key = Vec::new();
        for bucket in buckets {
            self.line_key(&mut key, USERS.as_bytes(), bucket);
            if let Some(users) = shard.users_of(bucket) {
                self.out.push(&key, users.to_payload().as_bytes())?;
            }
        }
        Ok(())
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

    fn line_key(&self, key: &mut Vec<u8>, subtotal: &[u8], bucket: &Bucket) {
        key.clear();
        key.extend_from_slice(subtotal);
        key.push(b'.');
        key.extend_from_slice(self.shard.keys.get(bucket.key));
        key.push(b'.');
        bucket.code().write_to(key);
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
