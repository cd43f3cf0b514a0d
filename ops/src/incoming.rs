//! `incoming/`: the directory where loads are sorted beside a running server, each with an id and a lock of its own.
//!
//! A load that was killed leaves files whose lock nobody holds; the next load or server removes them.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use tallyring_archive::names;

use crate::data_directory::random;
use crate::error::{Result, doing};

/// The files of one load; dropping it removes them.
pub(crate) struct Incoming {
    data: PathBuf,
    load: String,
    /// The advisory lock says that the load is still being sorted.
    _lock: File,
}

impl Incoming {
    /// Begins a load, after removing the files of killed loads.
    pub(crate) fn begin(data: &Path) -> Result<Self> {
        sweep(data);
        let mut bytes = [0; 8];
        random(&mut bytes);
        let load = format!("{:016x}", u64::from_be_bytes(bytes));
        let path = data.join(names::incoming_lock(&load));
        fs::create_dir_all(data.join(names::INCOMING)).map_err(doing("make incoming/"))?;
        loop {
            let lock = File::create(&path).map_err(doing("write to incoming/"))?;
            // Another process that sweeps may have taken the lock in between; it removes the file and goes.
            flock(&lock, FlockOperation::LockExclusive).map_err(doing("lock incoming/"))?;
            if is_same(&lock, &path) {
                return Ok(Self {
                    data: data.to_owned(),
                    load,
                    _lock: lock,
                });
            }
        }
    }

    /// The id with which the names of the files begin.
    pub(crate) fn load(&self) -> &str {
        &self.load
    }

    /// The name of a further file, which goes with the load.
    pub(crate) fn path(&self, what: &str) -> String {
        format!("{}/{}.{what}", names::INCOMING, self.load)
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        // The next load or server removes files that could not be removed here.
        let _ = remove(&self.data, &self.load);
    }
}

/// Removes the files of loads that are no longer being sorted.
pub(crate) fn sweep(data: &Path) {
    let directory = data.join(names::INCOMING);
    let Ok(entries) = fs::read_dir(&directory) else {
        return;
    };
    let names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    let loads: BTreeSet<&str> = names
        .iter()
        .filter_map(|name| name.get(..16).filter(|load| names::is_load(load)))
        .collect();
    for load in loads {
        if let Err(error) = sweep_one(data, load) {
            tracing::warn!(%error, load, "the files of an ended load cannot be removed");
        }
    }
}

fn sweep_one(data: &Path, load: &str) -> io::Result<()> {
    let path = data.join(names::incoming_lock(load));
    match File::open(&path) {
        Ok(lock) => match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            // Another process swept first, and the load has made its lock again since.
            Ok(()) if !is_same(&lock, &path) => Ok(()),
            Ok(()) => remove(data, load),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(()),
            Err(error) => Err(error.into()),
        },
        // A load that begins now has made its lock and no files yet.
        Err(error) if error.kind() == io::ErrorKind::NotFound => remove_files(data, load),
        Err(error) => Err(error),
    }
}

/// Removes all files of a load, and its lock last.
fn remove(data: &Path, load: &str) -> io::Result<()> {
    remove_files(data, load)?;
    match fs::remove_file(data.join(names::incoming_lock(load))) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn remove_files(data: &Path, load: &str) -> io::Result<()> {
    let lock = data.join(names::incoming_lock(load));
    for entry in fs::read_dir(data.join(names::INCOMING))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| name.starts_with(load)) && path != lock {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

fn is_same(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(named)) = (file.metadata(), fs::metadata(path)) else {
        return false;
    };
    (open.dev(), open.ino()) == (named.dev(), named.ino())
}
