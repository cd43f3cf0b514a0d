//! Which partitions a new generation must rewrite, and which files it shares with one before.

use std::collections::{BTreeMap, BTreeSet};

use tallyring_archive::{GenerationEntry, Partition, RunEntry};

/// One file of the new generation.
pub struct Target<'r> {
    /// Span of time.
    pub partition: Partition,
    /// Shard.
    pub shard: u16,
    /// Source runs that go in.
    pub inputs: Vec<&'r RunEntry>,
}

/// What is shared and what is merged.
pub struct Plan<'r> {
    /// Files of a kept generation whose source runs are the same.
    pub shared: Vec<RunEntry>,
    /// Files to make.
    pub merged: Vec<Target<'r>>,
}

/// Plans a generation of `shards` shards over all source runs.
pub fn plan<'r>(sources: &[&'r RunEntry], kept: &[GenerationEntry], shards: u16) -> Plan<'r> {
    let mut partitions: BTreeMap<Partition, Vec<&'r RunEntry>> = BTreeMap::new();
    for run in sources {
        partitions.entry(run.meta.partition).or_default().push(run);
    }
    let mut plan = Plan {
        shared: Vec::new(),
        merged: Vec::new(),
    };
    for (partition, runs) in partitions {
        let names: BTreeSet<&str> = runs.iter().map(|run| run.name.as_str()).collect();
        let same = kept
            .iter()
            .rev()
            .find(|generation| has_same(generation, partition, &names, sources, shards));
        match same {
            Some(generation) => {
                plan.shared.extend(
                    generation
                        .files
                        .iter()
                        .filter(|file| file.meta.partition == partition)
                        .cloned(),
                );
            }
            None => plan
                .merged
                .extend((0..shards).filter_map(|shard| target(partition, shard, shards, &runs))),
        }
    }
    plan
}

/// True when the generation's files of the partition are the merge of exactly these runs.
fn has_same(
    generation: &GenerationEntry,
    partition: Partition,
    names: &BTreeSet<&str>,
    sources: &[&RunEntry],
    shards: u16,
) -> bool {
    let in_partition = |name: &&String| {
        sources
            .iter()
            .any(|run| run.name == **name && run.meta.partition == partition)
    };
    let merged: BTreeSet<&str> = generation
        .merged
        .iter()
        .filter(in_partition)
        .map(String::as_str)
        .collect();
    let files = || {
        generation
            .files
            .iter()
            .filter(|file| file.meta.partition == partition)
    };
    merged == *names && files().all(|file| file.meta.shards == shards)
}

/// Runs that were sharded otherwise may hold any key.
fn target<'r>(
    partition: Partition,
    shard: u16,
    shards: u16,
    runs: &[&'r RunEntry],
) -> Option<Target<'r>> {
    let concerns = |run: &&&RunEntry| run.meta.shards != shards || run.meta.shard == shard;
    let inputs: Vec<&RunEntry> = runs.iter().filter(concerns).copied().collect();
    (!inputs.is_empty()).then_some(Target {
        partition,
        shard,
        inputs,
    })
}
