//! A generation is a pure function of its source runs: made again, every file has the same bytes.

use tallyring_archive::merge::{Horizon, merge};
use tallyring_archive::{
    Disk, Error, GenerationEntry, Manifest, Partition, Result, Run, RunEntry, RunSpec, RunWriter,
    names,
};

use crate::horizon::loses;

/// Merges the source runs of every file of the active generation again, in `scratch`, and compares.
/// Returns how many files were made again; those that another zstd wrote are not compared.
///
/// # Errors
/// The first file that is not the merge of its source runs, or a disk.
pub fn remake(disk: &dyn Disk, scratch: &dyn Disk, manifest: &Manifest) -> Result<u64> {
    let Some(generation) = manifest.generation(manifest.active) else {
        return Ok(0);
    };
    scratch
        .create_directory(names::ARCHIVE)
        .map_err(Error::io("create", names::ARCHIVE))?;
    let mut remade = 0;
    for file in &generation.files {
        let Some(level) = level_of_this_build(file) else {
            continue;
        };
        let horizon = generation.horizon();
        let hash = match sources(manifest, generation, file).as_slice() {
            // A run that is alone in its place is the file.
            [run] if place(run) == place(file) && !loses(run, horizon) => Some(run.hash.clone()),
            runs => {
                let made = merged(disk, scratch, file, runs, (level, horizon))?;
                if let Some(made) = &made {
                    scratch
                        .remove(&made.name)
                        .map_err(Error::io("remove", &made.name))?;
                }
                made.map(|made| made.hash)
            }
        };
        if hash.as_ref() != Some(&file.hash) {
            let what = "its source runs merge to something else";
            return Err(Error::malformed(&file.name, what));
        }
        remade += 1;
    }
    Ok(remade)
}

/// Merges the source runs of one file of a kept generation again, in `scratch`; the name of the same bytes
/// there. `None` when it is no such file, or they come out otherwise.
///
/// # Errors
/// When a source run is damaged, or a disk refuses.
pub fn remake_file(
    disk: &dyn Disk,
    scratch: &dyn Disk,
    manifest: &Manifest,
    file: &RunEntry,
) -> Result<Option<String>> {
    let generation = manifest
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
    scratch
        .create_directory(names::ARCHIVE)
        .map_err(Error::io("create", names::ARCHIVE))?;
    let horizon = generation.horizon();
    let made = merged(disk, scratch, file, &runs, (level, horizon))?;
    Ok(made
        .filter(|made| made.hash == file.hash)
        .map(|made| made.name))
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
    manifest.all_sources().filter(concerns).collect()
}

fn merged(
    disk: &dyn Disk,
    scratch: &dyn Disk,
    file: &RunEntry,
    runs: &[&RunEntry],
    (level, horizon): (i32, Horizon),
) -> Result<Option<RunEntry>> {
    let inputs = Run::open_all(disk, runs.iter().copied())?;
    let (partition, shard, shards) = place(file);
    let spec = RunSpec {
        directory: names::ARCHIVE,
        what: String::new(),
        partition,
        shard,
        shards,
        level,
    };
    merge(&inputs, RunWriter::create(scratch, spec)?, horizon)
}

fn place(run: &RunEntry) -> (Partition, u16, u16) {
    (run.meta.partition, run.meta.shard, run.meta.shards)
}

/// The level that the file was written at, if by the zstd and the tuning that this build has.
fn level_of_this_build(file: &RunEntry) -> Option<i32> {
    let level = file.meta.level()?;
    (RunWriter::compression(level) == file.meta.compression).then_some(level)
}
