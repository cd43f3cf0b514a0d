//! The advisory lock on `LOCK`: one process holds a data directory, and the file names that process.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use tallyring_archive::{create_private, is_full, names};

/// The process that holds a data directory, as `LOCK` names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Process id; 0 where the file cannot be parsed.
    pub pid: u32,
    /// Base URL of the HTTP API, once the process listens.
    pub url: Option<String>,
}

/// The held lock, released when dropped or when the process ends.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Lock {
    /// Takes the lock of the data directory `root`, which is created if absent. Returns `Ok(Err(holder))` when another
    /// process has the lock.
    pub fn take(root: &Path) -> io::Result<Result<Self, Holder>> {
        create_private(root)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(root.join(names::LOCK))?;
        for attempt in 1.. {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                // [`Lock::holder`] takes the lock for a moment, so a few more attempts follow.
                Err(Errno::WOULDBLOCK) if attempt < ATTEMPTS => std::thread::sleep(PAUSE),
                Err(Errno::WOULDBLOCK) => return Ok(Err(read(file)?)),
                Err(error) => return Err(error.into()),
            }
        }
        let mut lock = Self { file };
        match lock.write(None) {
            // It is held all the same, and names nobody, not the holder before either.
            Err(error) if is_full(&error) => {
                let _ = lock.file.set_len(0);
            }
            written => written?,
        }
        Ok(Ok(lock))
    }

    /// Returns the process that holds the data directory `root`, if any. Changes nothing. Fails when the lock file
    /// exists and cannot be read.
    pub fn holder(root: &Path) -> io::Result<Option<Holder>> {
        let file = match File::open(root.join(names::LOCK)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(None),
            Err(Errno::WOULDBLOCK) => read(file).map(Some),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes the URL under which the holder answers.
    pub fn announce(&mut self, url: &str) -> io::Result<()> {
        self.write(Some(url.to_owned()))
    }

    fn write(&mut self, url: Option<String>) -> io::Result<()> {
        let text = serde_json::to_string(&Holder {
            pid: std::process::id(),
            url,
        })
        .map_err(io::Error::other)?;
        // Written in place and cut afterwards: on a full disk the file may get no block besides the one that it has.
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(text.as_bytes())?;
        self.file.set_len(text.len() as u64)
    }
}

const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(20);

fn read(mut file: File) -> io::Result<Holder> {
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(serde_json::from_str(&text).unwrap_or(Holder { pid: 0, url: None }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_whose_file_has_no_room_for_a_name_is_held() {
        let directory = tempfile::tempdir().unwrap();
        // A device without room.
        std::os::unix::fs::symlink("/dev/full", directory.path().join(names::LOCK)).unwrap();
        let mut lock = Lock::take(directory.path()).unwrap().unwrap();
        assert!(is_full(&lock.announce("http://127.0.0.1:1").unwrap_err()));
    }
}
