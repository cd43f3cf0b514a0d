//! The parts of files that a node keeps whose archive is larger than its disk. Its server has a cache for all strands.
//! Its jobs and commands, which are processes of their own, have another one in the directory of each strand.

use std::path::Path;
use std::sync::Arc;

use tallyring_archive::{Objects, OsDisk, PartCache, names};
use tallyring_cluster::{CacheMax, FileSettings, S3Settings};

use super::bucket;
use crate::error::{Result, doing};

/// Room for the parts of a job or a command, at most, bytes. A merge reads a part of each of its files at a time.
const JOB_BYTES_MAX: u64 = 1 << 30;

/// The cache of a node's server; none where the node has copies of all files.
pub(super) fn of_server(data: &Path, files: &FileSettings) -> Result<Option<PartCache>> {
    open(data, files.cache_max.map(u64::from))
}

/// The cache of a job or a command in the directory of a strand of a node with so much room.
pub(super) fn of_jobs(data: &Path, cache_max: Option<CacheMax>) -> Result<Option<PartCache>> {
    let bytes_max = cache_max.map(|max| u64::from(max).min(JOB_BYTES_MAX));
    open(&data.join(names::JOBS), bytes_max)
}

/// Makes the directory of such a cache and looks at nothing in it, since jobs and commands may run: those of another
/// user find the directory of this one.
pub(super) fn prepare_jobs(data: &Path, cache_max: Option<CacheMax>) -> Result<()> {
    let jobs = data.join(names::JOBS);
    let made = cache_max.map(|_| PartCache::prepare(&OsDisk::new(&jobs)?));
    let made = made.transpose().map(|_| ());
    made.map_err(doing(format!("make the directory {}", jobs.display())))
}

/// The bucket, whose files of the archive are read in parts where there is a cache.
pub(super) fn objects(s3: &S3Settings, parts: Option<&PartCache>) -> Result<Arc<dyn Objects>> {
    let objects = bucket(s3)?;
    Ok(match parts {
        None => objects,
        Some(parts) => Arc::new(parts.over_archive(objects)),
    })
}

fn open(directory: &Path, bytes_max: Option<u64>) -> Result<Option<PartCache>> {
    let cache = bytes_max.map(|bytes_max| {
        let disk = OsDisk::new(directory)?;
        PartCache::open(Arc::new(disk), bytes_max)
    });
    let shown = directory.display();
    cache
        .transpose()
        .map_err(doing(format!("keep parts of files in {shown}")))
}
