//! Remakes generations to check them. A generation is a function of its source runs: a remade file has the same lines,
//! and the same bytes if the same zstd writes it at the same level.

use std::sync::Arc;

use tallyring_archive::merge::{Horizon, merge_erasing};
use tallyring_archive::{
    Blobs, Erasures, Error, GenerationEntry, Hidden, Manifest, Origin, Partition, Result, Run,
    RunEntry, RunSpec, RunWriter, Sign,
};

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
        let without = (generation.horizon(), &manifest.intake.erasures);
        if !is_merge_of(blobs, scratch, file, &runs, without)? {
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
    (horizon, erasures): (Horizon, &Erasures),
) -> Result<bool> {
    // Hidden actions may be in the file and not in its source runs, or the other way round.
    let hidden = erasures.hidden_in(file);
    let hides = runs.iter().any(|run| !erasures.hidden_in(run).is_empty());
    // A run that is alone in its partition and shard is the file.
    if let [run] = runs
        && run.sign() == Sign::Plus
        && partition_and_shard(run) == partition_and_shard(file)
        && run.hash == file.hash
        && !horizon.loses(run)
    {
        return Ok(true);
    }
    let is_alike = hidden.is_empty() && !hides;
    let level = level_of_this_build(file).filter(|_| is_alike);
    let written = merged(
        blobs,
        scratch,
        file,
        runs,
        level.unwrap_or(LINES_LEVEL),
        (horizon, erasures),
    )?;
    let Some(written) = written else {
        return is_hidden(&Run::open_named(blobs, file)?, &hidden);
    };
    let is_same = match level {
        Some(_) => written.hash == file.hash,
        None => have_same_lines(
            (&Run::open_named(blobs, file)?, &hidden),
            &Run::open_named(scratch, &written)?,
        )?,
    };
    scratch.remove(&written.name)?;
    Ok(is_same)
}

/// True when all lines of a run are hidden.
fn is_hidden(run: &Arc<Run>, hidden: &Hidden) -> Result<bool> {
    let mut cursor = run.cursor();
    while cursor.advance()? {
        if cursor.line()?.is_some_and(|(key, _)| !hidden.has(key)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// True when two runs have the same lines, whatever their compression, but for those that are hidden in the first.
pub(crate) fn have_same_lines(
    (one, hidden): (&Arc<Run>, &Hidden),
    other: &Arc<Run>,
) -> Result<bool> {
    let (mut one, mut other) = (one.cursor(), other.cursor());
    loop {
        let mut more = (one.advance()?, other.advance()?);
        while one.line()?.is_some_and(|(key, _)| hidden.has(key)) {
            more.0 = one.advance()?;
        }
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
    // The file was merged when later erasures were not known.
    let mut erasures = manifest.intake.erasures.clone();
    erasures.retain(|_, at| at < file.erased_until);
    let without = (generation.horizon(), &erasures);
    let written = merged(blobs, scratch, file, &runs, level, without)?;
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
    level: i32,
    (horizon, erasures): (Horizon, &Erasures),
) -> Result<Option<RunEntry>> {
    let inputs = Run::open_all(blobs, runs.iter().copied())?;
    let spec = RunSpec {
        origin: Origin::Merge,
        ..RunSpec::again(file, level)
    };
    let out = RunWriter::create(scratch, spec)?;
    merge_erasing(&inputs, runs, erasures, out, horizon, &|_| {})
}

fn partition_and_shard(run: &RunEntry) -> (Partition, u16, u16) {
    (run.meta.partition, run.meta.shard, run.meta.shards)
}

/// The zstd level of the file, if this build writes with the same zstd and settings.
fn level_of_this_build(file: &RunEntry) -> Option<i32> {
    let level = file.meta.level()?;
    (RunWriter::compression(level) == file.meta.compression).then_some(level)
}
