//! The catalog: small keyed state in sled, read one key at a time.
//!
//! The catalog holds the history of jobs and the API keys. After every write, all of it also goes to `catalog.json`,
//! which a backup can copy, and from which a lost or damaged catalog is made again. sled's own flush does not sync to
//! the disk, so a sync of its files follows each write. No count depends on sled.

mod keys;
mod snapshot;

pub use keys::{KeyEntry, Scope};

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};
use tallyring_archive::Work;
use thiserror::Error;

/// A job that ran, or is running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Number, from 1.
    pub job: u64,
    /// State of the job.
    pub state: JobState,
    /// Unix milliseconds of the injected clock.
    pub started_ms: i64,
    /// Unix milliseconds of the injected clock, once it ended.
    pub ended_ms: Option<i64>,
    /// Number of the generation that the job published; none without one.
    pub generation: Option<u64>,
    /// Why the job failed; none where it did not.
    pub error: Option<String>,
    /// How the files of the generation were made.
    #[serde(default)]
    pub work: Option<Work>,
    /// True while the backup after the job is written.
    #[serde(default)]
    pub backing_up: bool,
    /// Outcome of the newest backup that ended: the backup after this job, or until then the one before.
    #[serde(default)]
    pub backup: Option<BackupOutcome>,
    /// Progress of the running merge or backup. Not stored.
    #[serde(skip)]
    pub progress: Option<JobProgress>,
}

impl Job {
    /// Creates the job after `last`, running since `started_ms`. It shows the backup before until there is a newer one.
    pub fn begin(last: Option<Self>, started_ms: i64) -> Self {
        Self {
            job: last.as_ref().map_or(0, |last| last.job) + 1,
            state: JobState::Running,
            started_ms,
            ended_ms: None,
            generation: None,
            error: None,
            work: None,
            backing_up: false,
            backup: last.and_then(|last| last.backup),
            progress: None,
        }
    }

    /// Ends the job: with the published generation and how its files were made, or with an error.
    pub fn end(&mut self, ended_ms: i64, result: Result<(u64, Option<Work>), String>) {
        self.ended_ms = Some(ended_ms);
        self.progress = None;
        match result {
            Ok((generation, work)) => {
                self.state = JobState::Done;
                self.generation = Some(generation);
                self.work = work;
            }
            Err(error) => {
                self.state = JobState::Failed;
                self.error = Some(error);
            }
        }
    }
}

/// Progress of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobProgress {
    /// Bytes that are done.
    pub done: u64,
    /// Bytes in all, as far as known.
    pub total: u64,
}

/// Outcome of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupOutcome {
    /// Unix milliseconds of the injected clock.
    pub ended_ms: i64,
    /// Number of the generation that the backup has; none when the backup failed.
    pub generation: Option<u64>,
    /// Files that were written.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Why the backup failed; the older backup is then kept.
    pub error: Option<String>,
}

impl BackupOutcome {
    /// The outcome of a backup that ended at `ended_ms` (Unix milliseconds), with nothing copied so far.
    pub fn at(ended_ms: i64) -> Self {
        Self {
            ended_ms,
            generation: None,
            files: 0,
            bytes: 0,
            error: None,
        }
    }
}

/// State of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// The job is running.
    Running,
    /// The job succeeded.
    Done,
    /// The job failed; nothing was published.
    Failed,
}

/// Errors of the catalog, and of the store that it belongs to.
#[derive(Debug, Error)]
pub enum CatalogError {
    /// The catalog itself is damaged, or cannot be read or written.
    #[error(
        "catalog {path}: {what}; it holds job history and API keys, no counts: move the directory away, and it is made again \
         from {path}.json (without that file every request is refused until there is a new key: tallyring key new)"
    )]
    Catalog {
        /// Path of the catalog.
        path: String,
        /// The problem.
        what: String,
    },
    /// The identity of the store, which says whether the store ever had a key.
    #[error(transparent)]
    Store(#[from] Box<crate::error::Error>),
}

/// Small keyed state of a data directory.
#[derive(Debug)]
pub struct Catalog {
    path: PathBuf,
    database: sled::Db,
    /// Held while the snapshot is written.
    snapshot: Mutex<()>,
}

const JOBS: &str = "jobs";
const JOBS_KEPT: usize = 1_000;
/// Cache of sled, bytes; its default is 1 GiB.
const CACHE_BYTES: u64 = 4 << 20;

impl Catalog {
    /// Opens the catalog in `path`, which is created if absent.
    ///
    /// # Errors
    /// When sled cannot open the catalog, or the catalog lacks a key of its snapshot.
    pub fn open(path: &Path) -> Result<Self, CatalogError> {
        let wrong = |what: String| CatalogError::Catalog {
            path: path.display().to_string(),
            what,
        };
        let is_new = !path.exists();
        // sled may panic on a damaged database instead of failing.
        let opened = std::panic::catch_unwind(|| {
            sled::Config::new()
                .path(path)
                .cache_capacity(CACHE_BYTES)
                .flush_every_ms(Some(500))
                .open()
        });
        let database = opened
            .map_err(|_| wrong("the database is damaged".into()))?
            .map_err(|error| wrong(error.to_string()))?;
        let catalog = Self {
            path: path.to_owned(),
            database,
            snapshot: Mutex::new(()),
        };
        catalog.compare_with_snapshot()?;
        if let Err(error) = catalog.mark_store() {
            tracing::warn!(%error, "cannot note in the identity of the store that it has API keys");
        }
        if is_new {
            catalog.sync()?;
            sync_directory(path.parent()).map_err(|error| wrong(error.to_string()))?;
        }
        Ok(catalog)
    }

    /// Writes a job under its number, durably, and forgets the oldest jobs beyond a thousand.
    ///
    /// # Errors
    /// When the catalog cannot be written.
    pub fn put_job(&self, job: &Job) -> Result<(), CatalogError> {
        self.insert(JOBS, &job.job.to_be_bytes(), job)?;
        let jobs = self.tree(JOBS)?;
        while jobs.len() > JOBS_KEPT {
            jobs.pop_min()
                .map_err(|error| self.wrong(error.to_string()))?;
        }
        self.sync()?;
        self.write_snapshot()
    }

    /// The newest job; none when there never was one.
    ///
    /// # Errors
    /// When the catalog cannot be read.
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

    fn jobs(&self) -> Result<Vec<Job>, CatalogError> {
        let read = |entry: sled::Result<(_, sled::IVec)>| {
            let (_, value) = entry.map_err(|error| self.wrong(error.to_string()))?;
            serde_json::from_slice(&value).map_err(|error| self.wrong(error.to_string()))
        };
        self.tree(JOBS)?.iter().map(read).collect()
    }

    fn insert(&self, tree: &str, key: &[u8], value: &impl Serialize) -> Result<(), CatalogError> {
        let value = serde_json::to_vec(value).map_err(|error| self.wrong(error.to_string()))?;
        self.tree(tree)?
            .insert(key, value)
            .map_err(|error| self.wrong(error.to_string()))?;
        Ok(())
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
        CatalogError::Catalog {
            path: self.path.display().to_string(),
            what,
        }
    }
}

/// Syncs a directory: if a power cut undid a name, a server that had keys would be open to all.
fn sync_directory(path: Option<&Path>) -> std::io::Result<()> {
    match path {
        Some(path) if !path.as_os_str().is_empty() => File::open(path)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Identity;

    fn key() -> KeyEntry {
        KeyEntry {
            id: "k1".into(),
            secret_hash: [7; 32],
            scopes: vec![Scope::Read],
            namespaces: None,
            login: None,
            limit: None,
            max_n: None,
            identity: None,
            note: None,
            created_ms: 1,
            revoked_ms: None,
        }
    }

    #[test]
    fn a_catalog_that_has_forgotten_a_key_opens_nothing() {
        let data = tempfile::tempdir().unwrap();
        let path = data.path().join("catalog");
        let revoked = KeyEntry {
            id: "k2".into(),
            revoked_ms: Some(2),
            ..key()
        };
        let damages: [fn(&Catalog); 2] = [
            |catalog| {
                catalog.tree(keys::KEYS).unwrap().remove("k1").unwrap();
            },
            |catalog| {
                let id = "k2".to_owned();
                let again = KeyEntry { id, ..key() };
                catalog.insert(keys::KEYS, b"k2", &again).unwrap();
            },
        ];
        for damage in damages {
            let catalog = Catalog::open(&path).unwrap();
            catalog.put_key(&key()).unwrap();
            catalog.put_key(&revoked).unwrap();
            damage(&catalog);
            catalog.sync().unwrap();
            drop(catalog);
            let error = Catalog::open(&path).unwrap_err().to_string();
            assert!(
                error.contains("does not hold key k") && error.contains("move the directory"),
                "{error}"
            );
            // As the error advises.
            std::fs::remove_dir_all(&path).unwrap();
            let made = Catalog::open(&path).unwrap();
            assert_eq!(made.keys().unwrap().len(), 2);
        }
    }

    #[test]
    fn a_key_without_a_bound_of_counts_is_read() {
        let mut old = serde_json::to_value(key()).unwrap();
        old.as_object_mut().unwrap().remove("max_n").unwrap();
        assert_eq!(serde_json::from_value::<KeyEntry>(old).unwrap(), key());
    }

    #[test]
    fn a_store_knows_without_its_catalog_that_it_had_keys() {
        let data = tempfile::tempdir().unwrap();
        let blobs = tallyring_archive::Blobs::local(data.path()).unwrap();
        let path = data.path().join("catalog");
        let lose = |catalog: Catalog| {
            drop(catalog);
            std::fs::remove_dir_all(&path).unwrap();
            let _ = std::fs::remove_file(data.path().join("catalog.json"));
        };
        // The key is made before its store.
        let catalog = Catalog::open(&path).unwrap();
        assert!(!catalog.had_keys().unwrap());
        catalog.put_key(&key()).unwrap();
        drop(catalog);
        Identity::create(&blobs, |bytes| bytes.fill(7)).unwrap();
        lose(Catalog::open(&path).unwrap());
        let again = Catalog::open(&path).unwrap();
        assert_eq!(again.keys().unwrap(), []);
        assert!(again.had_keys().unwrap());
        // The store exists when it gets its first key, which is revoked since.
        std::fs::remove_file(data.path().join("STORE")).unwrap();
        Identity::create(&blobs, |bytes| bytes.fill(8)).unwrap();
        assert!(!again.had_keys().unwrap());
        let revoked_ms = Some(2);
        again
            .put_key(&KeyEntry {
                revoked_ms,
                ..key()
            })
            .unwrap();
        lose(again);
        assert!(Catalog::open(&path).unwrap().had_keys().unwrap());
    }

    #[test]
    fn a_lost_catalog_is_made_again_from_its_snapshot() {
        let data = tempfile::tempdir().unwrap();
        let path = data.path().join("catalog");
        let key = key();
        let job = Job {
            job: 3,
            state: JobState::Done,
            started_ms: 1,
            ended_ms: Some(2),
            generation: Some(1),
            error: None,
            work: None,
            backing_up: false,
            backup: None,
            progress: None,
        };
        let catalog = Catalog::open(&path).unwrap();
        catalog.put_key(&key).unwrap();
        catalog.put_job(&job).unwrap();
        drop(catalog);
        std::fs::remove_dir_all(&path).unwrap();
        let again = Catalog::open(&path).unwrap();
        assert_eq!(again.keys().unwrap(), [key]);
        assert_eq!(again.last_job().unwrap(), Some(job));
        drop(again);
        std::fs::remove_dir_all(&path).unwrap();
        let snapshot = data.path().join("catalog.json");
        let text = std::fs::read_to_string(&snapshot).unwrap();
        std::fs::write(&snapshot, text.replace("\"k1\"", "\"k2\"")).unwrap();
        for _ in 0..2 {
            let error = Catalog::open(&path).unwrap_err().to_string();
            assert!(error.contains("checksum"), "{error}");
        }
    }
}
