//! The catalog: small keyed state that is read one key at a time, in sled.
//!
//! Holds the history of jobs, and the API keys. sled's own flush does not reach the disk's platters, so
//! each write is followed by a sync of its files (RELIABILITY: sled is never under the counters).

mod keys;

pub use keys::{KeyEntry, Scope};

use std::fs::File;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A job that ran, or runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Number, from 1.
    pub job: u64,
    /// How it stands.
    pub state: JobState,
    /// Unix milliseconds of the injected clock.
    pub started_ms: i64,
    /// Unix milliseconds of the injected clock, once it ended.
    pub ended_ms: Option<i64>,
    /// The generation it published, if it did.
    pub generation: Option<u64>,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

/// How a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// Under way.
    Running,
    /// Ended well.
    Done,
    /// Ended badly; nothing was published.
    Failed,
}

/// The catalog cannot be read or written.
#[derive(Debug, Error)]
#[error(
    "catalog {path}: {what}; it holds job history and API keys, no counts: move the directory away to start a new one \
     (without keys, so on loopback only)"
)]
pub struct CatalogError {
    path: String,
    what: String,
}

/// Small keyed state of a data directory.
#[derive(Debug)]
pub struct Catalog {
    path: PathBuf,
    database: sled::Db,
}

const JOBS: &str = "jobs";
const JOBS_KEPT: usize = 1_000;
/// sled would take 1 GiB.
const CACHE_BYTES: u64 = 4 << 20;

impl Catalog {
    /// Opens the catalog in `path`, which is made if absent.
    ///
    /// # Errors
    /// When sled cannot open it.
    pub fn open(path: &Path) -> Result<Self, CatalogError> {
        let wrong = |what: String| CatalogError {
            path: path.display().to_string(),
            what,
        };
        let is_new = !path.exists();
        // A damaged sled database may panic instead of failing.
        let opened = std::panic::catch_unwind(|| {
            sled::Config::new()
                .path(path)
                .cache_capacity(CACHE_BYTES)
                .flush_every_ms(Some(500))
                .open()
        });
        let database = opened
            .map_err(|_| wrong("is damaged".into()))?
            .map_err(|error| wrong(error.to_string()))?;
        let catalog = Self {
            path: path.to_owned(),
            database,
        };
        if is_new {
            catalog.sync()?;
            sync_directory(path.parent()).map_err(|error| wrong(error.to_string()))?;
        }
        Ok(catalog)
    }

    /// Writes a job under its number, durably, and forgets the oldest beyond a thousand.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn put_job(&self, job: &Job) -> Result<(), CatalogError> {
        let jobs = self.tree(JOBS)?;
        let value = serde_json::to_vec(job).map_err(|error| self.wrong(error.to_string()))?;
        jobs.insert(job.job.to_be_bytes(), value)
            .map_err(|error| self.wrong(error.to_string()))?;
        while jobs.len() > JOBS_KEPT {
            jobs.pop_min()
                .map_err(|error| self.wrong(error.to_string()))?;
        }
        self.sync()
    }

    /// The newest job; none when there never was one.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn last_job(&self) -> Result<Option<Job>, CatalogError> {
        let last = self
            .tree(JOBS)?
            .last()
            .map_err(|error| self.wrong(error.to_string()))?;
        match last {
            Some((_, value)) => serde_json::from_slice(&value)
                .map(Some)
                .map_err(|error| self.wrong(error.to_string())),
            None => Ok(None),
        }
    }

    fn tree(&self, name: &str) -> Result<sled::Tree, CatalogError> {
        self.database
            .open_tree(name)
            .map_err(|error| self.wrong(error.to_string()))
    }

    fn sync(&self) -> Result<(), CatalogError> {
        self.database
            .flush()
            .map_err(|error| self.wrong(error.to_string()))?;
        let file =
            File::open(self.path.join("db")).map_err(|error| self.wrong(error.to_string()))?;
        file.sync_all()
            .and_then(|()| sync_directory(Some(&self.path)))
            .map_err(|error| self.wrong(error.to_string()))
    }

    fn wrong(&self, what: String) -> CatalogError {
        CatalogError {
            path: self.path.display().to_string(),
            what,
        }
    }
}

/// A name that a power cut takes back would open a server that had keys.
fn sync_directory(path: Option<&Path>) -> std::io::Result<()> {
    match path {
        Some(path) if !path.as_os_str().is_empty() => File::open(path)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}
