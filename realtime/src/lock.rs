//! One process holds a data directory: an advisory lock on `LOCK`, which says who.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use tallyring_archive::names;

/// Who holds a data directory, as `LOCK` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Process id.
    pub pid: u32,
    /// Base URL of its HTTP API, once it listens.
    pub url: Option<String>,
}

/// The held lock; released when dropped or when the process ends.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Lock {
    /// Takes the lock of the data directory `root`, which is created if absent. `Ok(Err(holder))`
    /// when another process has it.
    ///
    /// # Errors
    /// When the directory or the file cannot be created.
    pub fn take(root: &Path) -> io::Result<Result<Self, Holder>> {
        std::fs::create_dir_all(root)?;
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(root.join(names::LOCK))?;
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let mut lock = Self { file };
                lock.write(None)?;
                Ok(Ok(lock))
            }
            Err(error) if error == rustix::io::Errno::WOULDBLOCK => {
                let mut text = String::new();
                file.read_to_string(&mut text)?;
                Ok(Err(
                    serde_json::from_str(&text).unwrap_or(Holder { pid: 0, url: None })
                ))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Says under which URL the holder answers.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn announce(&mut self, url: &str) -> io::Result<()> {
        self.write(Some(url.to_owned()))
    }

    fn write(&mut self, url: Option<String>) -> io::Result<()> {
        let text = serde_json::to_string(&Holder {
            pid: std::process::id(),
            url,
        })
        .map_err(io::Error::other)?;
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(text.as_bytes())
    }
}
