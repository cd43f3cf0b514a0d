//! Books that are counted from the log: in memory, and in runs of `incoming/` where memory does not hold them.

use std::mem;

use tallyring_archive::merge::{Horizon, merge};
use tallyring_archive::{Blobs, Origin, Run, RunEntry, RunSpec, RunWriter};
use tallyring_records::{Increment, LongKeys, Schema};

use crate::delta::{Delta, FlushTarget, Form, write_runs};
use crate::error::Result;

/// Where books go.
#[derive(Clone, Copy)]
pub(super) struct Shelf<'b> {
    pub blobs: &'b Blobs,
    pub keys: &'b LongKeys,
    /// Files of `incoming/` begin with it.
    pub load: &'b str,
    pub shards: u16,
    /// zstd level.
    pub level: i32,
}

/// The counts of a part of the log. Breakdowns by minute are not counted.
pub(super) struct Book<'b> {
    shelf: Shelf<'b>,
    /// Memory above which counts are written, bytes.
    bytes_max: u64,
    delta: Delta,
    /// Number of the first part, and parts that were written.
    first_part: u32,
    parts: u32,
    spilled: Vec<RunEntry>,
}

impl<'b> Book<'b> {
    /// `number` tells the books of one load apart.
    pub(super) fn new(shelf: Shelf<'b>, number: u32, bytes_max: u64) -> Self {
        Self {
            shelf,
            bytes_max,
            delta: Delta::new(form(shelf.shards)),
            first_part: number << 16,
            parts: 0,
            spilled: Vec::new(),
        }
    }

    /// Counts increments as `schema` declares. Fails when the disk does.
    pub(super) fn count(&mut self, schema: &Schema, increments: &[&Increment]) -> Result<()> {
        if increments.is_empty() {
            return Ok(());
        }
        self.delta.add_by_all(self.shelf.keys, schema, increments);
        if self.delta.bytes() as u64 <= self.bytes_max {
            return Ok(());
        }
        let part = self.first_part + self.parts;
        let spill = Origin::Spill {
            load: self.shelf.load.to_owned(),
            part,
        };
        let runs = self.write(spill)?;
        self.spilled.extend(runs);
        self.parts += 1;
        Ok(())
    }

    fn write(&mut self, origin: Origin) -> Result<Vec<RunEntry>> {
        let delta = mem::replace(&mut self.delta, Delta::new(form(self.shelf.shards)));
        let group = self.shelf.blobs.group();
        let target = FlushTarget {
            group: &group,
            origin,
            level: self.shelf.level,
            breakdowns_from: i64::MAX,
        };
        let mut runs = Vec::new();
        write_runs(&target, &delta, &mut |run| {
            runs.push(run);
            Ok(())
        })?;
        group.commit()?;
        Ok(runs)
    }

    /// The books as runs, one for each shard at most.
    pub(super) fn finish(mut self) -> Result<Vec<RunEntry>> {
        let sorted = Origin::Sorted(self.shelf.load.to_owned());
        if self.spilled.is_empty() {
            return self.write(sorted);
        }
        let part = self.first_part + self.parts;
        let rest = self.write(Origin::Spill {
            load: self.shelf.load.to_owned(),
            part,
        })?;
        self.spilled.extend(rest);
        let blobs = self.shelf.blobs;
        let mut merged = Vec::new();
        for shard in 0..self.shelf.shards {
            let of_shard = self.spilled.iter().filter(|run| run.meta.shard == shard);
            let inputs = Run::open_all(blobs, of_shard.clone())?;
            let Some(first) = of_shard.clone().next() else {
                continue;
            };
            let spec = RunSpec {
                origin: sorted.clone(),
                partition: first.meta.partition,
                shard,
                shards: self.shelf.shards,
                level: self.shelf.level,
            };
            merged.extend(merge(
                &inputs,
                RunWriter::create(blobs, spec)?,
                Horizon::ALL,
            )?);
        }
        for run in &self.spilled {
            blobs.remove(&run.name)?;
        }
        Ok(merged)
    }
}

fn form(shards: u16) -> Form {
    Form {
        shards,
        breakdowns: false,
    }
}
