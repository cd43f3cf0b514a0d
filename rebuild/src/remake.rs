//! Remakes generations to check them. A generation is a function of its source runs: a remade file has the same lines,
//! and the same bytes if the same zstd writes it at the same level.

use std::sync::Arc;

use tallyring_archive::merge::{Horizon, merge};
use tallyring_archive::{
    Blobs, Error, GenerationEntry, Manifest, Origin, Partition, Result, Run, RunEntry, RunSpec,
    RunWriter,
};

use crate::horizon::loses;

/// zstd level of files that are written only to compare their lines.
const LINES_LEVEL: i32 = 1;

/// Merges the source runs of every file of the active generation again, in `scratch`, and compares: bytes where this
/// build would write the same bytes, otherwise lines. Returns the number of compared files. The error names the first
/// file that is not the merge of its source runs.
pub fn remake(blobs: &Blobs, scratch: &Blobs, manifest: &Manifest) -> Result<u64> {
    let Some(generation) = manifest.archive.active_generation() else {
        return Ok(0);
    };
    scratch.prepare()?;
    // After a recount, runs of datasets stand in for files.
    let is_merge = |file: &&RunEntry| file.origin == Origin::Merge;
    let files: Vec<&RunEntry> = generation.files.iter().filter(is_merge).collect();
    for file in &files {
        let runs = sources(manifest, generation, file);
        if !is_merge_of(blobs, scratch, file, &runs, generation.horizon())? {
            let what = "the source runs of the file merge to another content; `tallyring recount` makes the file again from them";
            return Err(Error::malformed(&file.name, what));
        }
    }
    Ok(files.len() as u64)
}

fn is_merge_of(
    blobs: &Blobs,
    scratch: &Blobs,
    file: &RunEntry,
    runs: &[&RunEntry],
    horizon: Horizon,
) -> Result<bool> {
    // A run that is alone in its partition and shard is the file.
    if let [run] = runs
        && partition_and_shard(run) == partition_and_shard(file)
        && run.hash == file.hash
        && !loses(run, horizon)
    {
        return Ok(true);
    }
    let level = level_of_this_build(file);
    let written = merged(
        blobs,
        scratch,
        file,
        runs,
        (level.unwrap_or(LINES_LEVEL), horizon),
    )?;
    let Some(written) = written else {
        return Ok(false);
    };
    let is_same = match level {
        Some(_) => written.hash == file.hash,
        None => have_same_lines(
            &Run::open_named(blobs, file)?,
            &Run::open_named(scratch, &written)?,
        )?,
    };
    scratch.remove(&written.name)?;
    Ok(is_same)
}

/// True when two runs have the same lines, whatever their compression.
pub(crate) fn have_same_lines(one: &Arc<Run>, other: &Arc<Run>) -> Result<bool> {
    let (mut one, mut other) = (one.cursor(), other.cursor());
    loop {
        let more = (one.advance()?, other.advance()?);
        if one.line()? != other.line()? {
            return Ok(false);
        }
        if more == (false, false) {
            return Ok(true);
        }
    }
}

/// Merges the source runs of one file of a kept generation again, in `scratch`. Returns the name of the remade file in
/// `scratch`, or none when the file is not of a generation or its bytes cannot be made again. Fails when a source run
/// is damaged.
pub(crate) fn remake_file(
    blobs: &Blobs,
    scratch: &Blobs,
    manifest: &Manifest,
    file: &RunEntry,
) -> Result<Option<String>> {
    let generation = manifest
        .archive
        .generations
        .iter()
        .find(|generation| generation.files.iter().any(|kept| kept.name == file.name));
    let (Some(generation), Some(level)) = (generation, level_of_this_build(file)) else {
        return Ok(None);
    };
    let runs = sources(manifest, generation, file);
    if runs.iter().any(|run| run.hash == file.hash) {
        return Ok(None);
    }
    scratch.prepare()?;
    let horizon = generation.horizon();
    let written = merged(blobs, scratch, file, &runs, (level, horizon))?;
    Ok(written
        .filter(|written| written.hash == file.hash)
        .map(|written| written.name))
}

/// Source runs that the generation has merged into the file.
fn sources<'m>(
    manifest: &'m Manifest,
    generation: &GenerationEntry,
    file: &RunEntry,
) -> Vec<&'m RunEntry> {
    let concerns = |run: &&RunEntry| {
        file.meta.partition.holds(run.meta.partition)
            && (run.meta.shards != file.meta.shards || run.meta.shard == file.meta.shard)
            && generation.merged.contains(&run.name)
    };
    manifest.archive.all_sources().filter(concerns).collect()
}

fn merged(
    blobs: &Blobs,
    scratch: &Blobs,
    file: &RunEntry,
    runs: &[&RunEntry],
    (level, horizon): (i32, Horizon),
) -> Result<Option<RunEntry>> {
    let inputs = Run::open_all(blobs, runs.iter().copied())?;
    let (partition, shard, shards) = partition_and_shard(file);
    let spec = RunSpec {
        origin: Origin::Merge,
        partition,
        shard,
        shards,
        level,
    };
    merge(&inputs, RunWriter::create(scratch, spec)?, horizon)
}

fn partition_and_shard(run: &RunEntry) -> (Partition, u16, u16) {
    (run.meta.partition, run.meta.shard, run.meta.shards)
}

/// The zstd level of the file, if this build writes with the same zstd and settings.
fn level_of_this_build(file: &RunEntry) -> Option<i32> {
    let level = file.meta.level()?;
    (RunWriter::compression(level) == file.meta.compression).then_some(level)
}
