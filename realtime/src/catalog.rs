//! The catalog: small keyed state in sled, read one key at a time.
//!
//! The catalog holds the history of jobs and the API keys. After every write, all of it also goes to `catalog.json`,
//! which a backup can copy, and from which a lost or damaged catalog is made again. sled's own flush does not sync to
//! the disk, so a sync of its files follows each write. No count depends on sled. sled needs space to open, so on a
//! full disk the catalog is read from that text, and takes no writes.

mod keys;
mod snapshot;

pub use tallyring_records::{KeyEntry, Scope};

use std::fs::File;
use std::io;
use std::panic::UnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tallyring_archive::{Build, Work, is_full, names};
use thiserror::Error;

use snapshot::Snapshot;

/// A job that ran, or is running.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// How the files of the generation were made; none where it was active before.
    pub work: Option<Work>,
    /// The node that does or did the work for this one; none where this one does it itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Why fixes were left out ([`Build::refused`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
    /// Progress of the running merge. Not stored.
    #[serde(skip)]
    pub progress: Option<JobProgress>,
}

impl Job {
    /// Creates the job after `last`, running since `started_ms`.
    pub fn begin(last: Option<&Self>, started_ms: i64) -> Self {
        Self {
            job: last.map_or(0, |last| last.job) + 1,
            started_ms,
            ..Self::default()
        }
    }

    /// Ends the job: with the generation that is active now and the build that was published, none where nothing was to
    /// be done; or with an error.
    pub fn end(&mut self, ended_ms: i64, result: Result<(u64, Option<Build>), String>) {
        self.ended_ms = Some(ended_ms);
        self.progress = None;
        match result {
            Ok((generation, build)) => {
                self.state = JobState::Done;
                self.generation = Some(generation);
                let is_new = |build: &&Build| build.generation.is_some();
                self.work = build.as_ref().filter(is_new).map(|build| build.work);
                self.refused = build.map_or(Vec::new(), |build| build.refused);
            }
            Err(error) => {
                self.state = JobState::Failed;
                self.error = Some(error);
            }
        }
    }
}

/// Progress of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobProgress {
    /// Bytes that are done.
    pub done: u64,
    /// Bytes in all, as far as known.
    pub total: u64,
}

/// State of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// The job is running.
    #[default]
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
    /// The disk is full.
    #[error(
        "catalog {path}: the disk is full, and job history and API keys cannot be written: make space and start the server \
         again; nothing of the data directory is to be moved or removed"
    )]
    Full {
        /// Path of the catalog.
        path: String,
    },
    /// The identity of the store, which says whether the store ever had a key.
    #[error(transparent)]
    Store(#[from] Box<crate::error::Error>),
}

/// Small keyed state of a data directory.
#[derive(Debug)]
pub struct Catalog {
    path: PathBuf,
    content: Content,
    /// False for the catalog of a directory that this process only reads.
    takes_writes: bool,
    /// Held while the snapshot is written.
    snapshot: Mutex<()>,
}

/// Where the catalog is read from.
#[derive(Debug)]
enum Content {
    Database(sled::Db),
    /// The disk was full when the catalog was opened, or this process only reads.
    Text(Snapshot),
}

const JOBS: &str = "jobs";
const JOBS_KEPT: usize = 1_000;
/// Cache of sled, bytes; its default is 1 GiB.
const CACHE_BYTES: u64 = 4 << 20;

impl Catalog {
    /// Opens the catalog in `path`, which is created if absent. On a full disk it is read from its snapshot. A key that
    /// the snapshot lacks was never acknowledged, and `STORE` says whether the store ever had keys. Fails when sled
    /// cannot open the catalog, or the catalog lacks a key of its snapshot.
    pub fn open(path: &Path) -> Result<Self, CatalogError> {
        Self::open_by(path, open_database)
    }

    /// The API keys that the snapshot beside the catalog in `path` has, without jobs. Nothing is written, and the
    /// catalog takes no writes. Fails when the snapshot is there and cannot be read.
    pub fn read_only(path: &Path) -> Result<Self, CatalogError> {
        let text = snapshot::read(path)?.unwrap_or_default();
        let jobs = Vec::new();
        Ok(Self {
            path: path.to_owned(),
            content: Content::Text(Snapshot { jobs, ..text }),
            takes_writes: false,
            snapshot: Mutex::new(()),
        })
    }

    /// False for the catalog of a directory that this process only reads.
    pub fn takes_writes(&self) -> bool {
        self.takes_writes
    }

    fn open_by(
        path: &Path,
        open: impl FnOnce(&Path) -> sled::Result<sled::Db> + UnwindSafe,
    ) -> Result<Self, CatalogError> {
        let is_new = !path.exists();
        let with = |content| Self {
            path: path.to_owned(),
            content,
            takes_writes: true,
            snapshot: Mutex::new(()),
        };
        // sled may panic on a damaged database instead of failing.
        let opened = match std::panic::catch_unwind(|| open(path)) {
            Ok(Ok(database)) => with(Content::Database(database)).checked(is_new),
            Ok(Err(error)) => Err(failed(path, &error)),
            Err(_) => Err(wrong(path, "the database is damaged")),
        };
        match opened {
            Err(CatalogError::Full { .. }) => {
                tracing::warn!(
                    "the disk is full: API keys are read from {}, and none can be made or revoked until the server is \
                     started with space",
                    names::CATALOG_SNAPSHOT
                );
                let text = snapshot::read(path)?.unwrap_or_default();
                Ok(with(Content::Text(text)))
            }
            opened => opened,
        }
    }

    /// The opened catalog, compared with its snapshot.
    fn checked(self, is_new: bool) -> Result<Self, CatalogError> {
        self.compare_with_snapshot()?;
        if let Err(error) = self.mark_store() {
            tracing::warn!(%error, "cannot note in the identity of the store that it has API keys");
        }
        if is_new {
            self.sync()?;
            let parent = sync_directory(self.path.parent());
            parent.map_err(|error| self.wrong_io(&error))?;
        }
        Ok(self)
    }

    /// Writes a job under its number, durably, and forgets the oldest jobs beyond a thousand.
    pub fn put_job(&self, job: &Job) -> Result<(), CatalogError> {
        self.insert(JOBS, &job.job.to_be_bytes(), job)?;
        let jobs = self.tree(JOBS)?;
        while jobs.len() > JOBS_KEPT {
            self.done(jobs.pop_min())?;
        }
        self.sync()?;
        self.write_snapshot()
    }

    /// The newest job; none when there never was one.
    pub fn last_job(&self) -> Result<Option<Job>, CatalogError> {
        if let Content::Text(text) = &self.content {
            return Ok(text.jobs.last().cloned());
        }
        let last = self.done(self.tree(JOBS)?.last())?;
        last.map(|(_, job)| self.read(&job)).transpose()
    }

    /// All values of a tree, by their keys.
    fn all<T: DeserializeOwned>(&self, tree: &str) -> Result<Vec<T>, CatalogError> {
        let entries = self.tree(tree)?.iter();
        entries
            .map(|entry| self.read(&self.done(entry)?.1))
            .collect()
    }

    fn insert(&self, tree: &str, key: &[u8], value: &impl Serialize) -> Result<(), CatalogError> {
        let value = serde_json::to_vec(value).map_err(|error| self.wrong(error.to_string()))?;
        self.done(self.tree(tree)?.insert(key, value)).map(drop)
    }

    fn tree(&self, name: &str) -> Result<sled::Tree, CatalogError> {
        self.done(self.database()?.open_tree(name))
    }

    fn database(&self) -> Result<&sled::Db, CatalogError> {
        match &self.content {
            Content::Database(database) => Ok(database),
            Content::Text(_) => Err(full(&self.path)),
        }
    }

    fn sync(&self) -> Result<(), CatalogError> {
        self.done(self.database()?.flush())?;
        let file = File::open(self.path.join("db")).map_err(|error| self.wrong_io(&error))?;
        file.sync_all()
            .and_then(|()| sync_directory(Some(&self.path)))
            .map_err(|error| self.wrong_io(&error))
    }

    /// The result of sled, with the error of the catalog.
    fn done<T>(&self, result: sled::Result<T>) -> Result<T, CatalogError> {
        result.map_err(|error| failed(&self.path, &error))
    }

    fn read<T: DeserializeOwned>(&self, value: &[u8]) -> Result<T, CatalogError> {
        serde_json::from_slice(value).map_err(|error| self.wrong(error.to_string()))
    }

    fn wrong(&self, what: impl Into<String>) -> CatalogError {
        wrong(&self.path, what)
    }

    fn wrong_io(&self, error: &io::Error) -> CatalogError {
        match is_full(error) {
            true => full(&self.path),
            false => self.wrong(error.to_string()),
        }
    }
}

/// Opens sled's database, and waits for up to a second for a lock on it: only this process can hold it, as the data
/// directory is locked, and sled lets its file go in a thread of its own after a database was dropped.
fn open_database(path: &Path) -> sled::Result<sled::Db> {
    let open = || {
        let config = sled::Config::new().path(path);
        let config = config.cache_capacity(CACHE_BYTES);
        config.flush_every_ms(Some(500)).open()
    };
    for _ in 0..20 {
        match open() {
            Err(sled::Error::Io(error)) if error.to_string().contains("acquire lock") => {
                thread::sleep(Duration::from_millis(50));
            }
            opened => return opened,
        }
    }
    open()
}

fn wrong(path: &Path, what: impl Into<String>) -> CatalogError {
    CatalogError::Catalog {
        path: path.display().to_string(),
        what: what.into(),
    }
}

fn full(path: &Path) -> CatalogError {
    CatalogError::Full {
        path: path.display().to_string(),
    }
}

/// An error of sled.
fn failed(path: &Path, error: &sled::Error) -> CatalogError {
    match error {
        sled::Error::Io(error) if is_full(error) => full(path),
        error => wrong(path, error.to_string()),
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
        KeyEntry::new("k1".into(), [7; 32], vec![Scope::Read], 1)
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
    fn on_a_full_disk_the_keys_are_read_from_the_snapshot_and_nothing_is_to_be_removed() {
        let data = tempfile::tempdir().unwrap();
        let path = data.path().join("catalog");
        let catalog = Catalog::open(&path).unwrap();
        catalog.put_key(&key()).unwrap();
        let job = Job::begin(None, 1);
        catalog.put_job(&job).unwrap();
        drop(catalog);
        let full = |_: &Path| Err(sled::Error::Io(io::ErrorKind::StorageFull.into()));
        let read = Catalog::open_by(&path, full).unwrap();
        assert_eq!(read.keys().unwrap(), [key()]);
        assert!(read.had_keys().unwrap());
        assert_eq!(read.last_job().unwrap(), Some(job.clone()));
        for refused in [read.put_key(&key()), read.put_job(&job)] {
            let error = refused.unwrap_err().to_string();
            assert!(error.contains("make space"), "{error}");
            assert!(!error.contains("move the directory away"), "{error}");
        }
        // A store that had keys stays closed without its snapshot.
        let blobs = tallyring_archive::Blobs::local(data.path()).unwrap();
        Identity::create(&blobs, |bytes| bytes.fill(7)).unwrap();
        drop(Catalog::open(&path).unwrap());
        std::fs::remove_file(data.path().join("catalog.json")).unwrap();
        let read = Catalog::open_by(&path, full).unwrap();
        assert!(read.keys().unwrap().is_empty() && read.had_keys().unwrap());
        assert_eq!(Catalog::open(&path).unwrap().keys().unwrap(), [key()]);
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
            refused: vec!["a reason".into()],
            ..Job::default()
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
