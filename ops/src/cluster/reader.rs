//! A server that only reads the bucket of a cluster, with a cache of its own.

use std::path::Path;
use std::sync::Arc;

use tallyring_archive::{OsDisk, PartCache};
use tallyring_cluster::S3Settings;
use tallyring_realtime::{Clock, Lock, World};

use super::bucket;
use super::directory::{NodeFile, check_free, mark};
use super::strands::Strand;
use crate::data_directory::{random, try_lock};
use crate::error::{CommandError, Result, doing};

/// The worlds of a server that only reads the store of this bucket, one for each strand, and the lock of the directory
/// `cache`, where it keeps `bytes_max` bytes of parts of the files of all. Fails where the directory is no cache of
/// this bucket and not empty, where another process holds it, and where a strand has no part of the bucket.
pub(crate) fn worlds_of_reader(
    settings: &S3Settings,
    (cache, bytes_max): (&Path, u64),
    clock: &Arc<dyn Clock>,
) -> Result<(Vec<World>, Lock)> {
    let node = NodeFile::of_cache(settings);
    // The lock makes a file, which a directory of somebody else must not get.
    check_free(cache, &node)?;
    let strands = Strand::found(settings)?;
    let shown = cache.display();
    let lock = try_lock(cache)?.map_err(|holder| {
        CommandError::Failed(format!(
            "{shown} is held by process {}; stop it, or name another directory with --cache",
            holder.pid
        ))
    })?;
    mark(cache, &node)?;
    let made = || doing(format!("make the cache {shown}"));
    let disk = Arc::new(OsDisk::new(cache).map_err(made())?);
    let parts = PartCache::open(Arc::clone(&disk) as _, bytes_max).map_err(made())?;
    let worlds = strands.iter().map(|strand| {
        let world = World {
            disk: Arc::clone(&disk) as _,
            objects: Some(Arc::new(parts.over(bucket(&strand.s3)?))),
            clock: Arc::clone(clock),
            random,
        };
        strand.check(&world.blobs())?;
        Ok(world)
    });
    Ok((worlds.collect::<Result<_>>()?, lock))
}

#[cfg(test)]
mod tests {
    use tallyring_realtime::SystemClock;

    use super::*;

    #[test]
    fn a_directory_of_others_that_is_named_as_a_cache_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("archive")).unwrap();
        let bucket = "s3://metrics/a".parse().unwrap();
        let cache = (directory.path(), 1 << 30);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let refused = worlds_of_reader(&bucket, cache, &clock).err();
        let refused = refused.map(|error| error.to_string()).unwrap_or_default();
        assert!(refused.contains("has archive"), "{refused}");
        let there = std::fs::read_dir(directory.path()).unwrap();
        let there: Vec<_> = there.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(there, ["archive"]);
    }
}
