//! The parts of files that a node keeps whose archive is larger than its disk. Its server has a cache for all strands.
//! Its jobs and commands, which are processes of their own, have another one in the directory of each strand.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use tallyring_archive::{Objects, OsDisk, PartCache, create_private, names};
use tallyring_cluster::{CacheMax, FileSettings, S3Settings};
use tallyring_realtime::Store;

use super::bucket;
use crate::data_directory::keep_named;
use crate::error::{Result, doing};

/// Room for the parts of a job or a command, at most, bytes. A merge reads a part of each of its files at a time.
const JOB_BYTES_MAX: u64 = 1 << 30;

/// How often parts go of files that no manifest names any more.
const LOOK_EVERY: Duration = Duration::from_secs(3_600);
/// How often it is seen that a store is gone.
const TICK: Duration = Duration::from_millis(100);

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
    let parts = data.join(names::JOBS).join(names::PARTS);
    let made = cache_max.map_or(Ok(()), |_| create_private(&parts));
    made.map_err(doing(format!("make the directory {}", parts.display())))
}

/// Removes the parts that the server, jobs and commands kept in a directory before the node was to have copies of all.
pub(super) fn clear(directory: &Path) -> Result<()> {
    for kept in [names::PARTS, names::JOBS].map(|name| directory.join(name)) {
        match std::fs::remove_dir_all(&kept) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            removed => removed.map_err(doing(format!("remove {}", kept.display())))?,
        }
    }
    Ok(())
}

/// Lets parts go of files that no manifest of the strands names, those of jobs and commands too: at once, and then
/// every hour until a store is gone.
pub(super) fn forget_unnamed(
    cache: PartCache,
    cache_max: Option<CacheMax>,
    strands: Vec<(Weak<Store>, PathBuf)>,
) -> Result<()> {
    let look = move || {
        let mut due = Instant::now();
        let stores = || strands.iter().map(|(store, _)| store.upgrade());
        while let Some(stores) = stores().collect::<Option<Vec<_>>>() {
            if Instant::now() >= due {
                keep_named(&cache, &stores);
                for (store, (_, data)) in stores.iter().zip(&strands) {
                    match of_jobs(data, cache_max) {
                        Ok(jobs) => {
                            if let Some(jobs) = jobs {
                                keep_named(&jobs, std::slice::from_ref(store));
                            }
                        }
                        Err(error) => {
                            tracing::warn!(%error, "parts stay of files that may be gone")
                        }
                    }
                }
                due = Instant::now() + LOOK_EVERY;
            }
            drop(stores);
            thread::sleep(TICK);
        }
    };
    let thread = thread::Builder::new().name("parts".to_owned());
    thread
        .spawn(look)
        .map(drop)
        .map_err(doing("start a thread"))
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
