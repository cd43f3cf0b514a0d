//! `catalog.json` beside the catalog: all content of the catalog as sealed text, replaced after every write.

use std::path::Path;
use std::sync::PoisonError;

use serde::{Deserialize, Serialize};
use tallyring_archive::{Blobs, names, sealed};

use super::{Catalog, CatalogError, JOBS, Job, KeyEntry, full, keys::KEYS, wrong};

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Snapshot {
    pub keys: Vec<KeyEntry>,
    pub jobs: Vec<Job>,
}

const KIND: &str = "catalog";
const FORMAT: u32 = 1;

impl Catalog {
    pub(super) fn write_snapshot(&self) -> Result<(), CatalogError> {
        let _one_at_a_time = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
        let snapshot = Snapshot {
            keys: self.keys()?,
            jobs: self.all(JOBS)?,
        };
        // Another thread may have written a key meanwhile; it is synced too, so that the snapshot is never ahead of the
        // catalog.
        self.sync()?;
        let json = serde_json::to_vec_pretty(&snapshot).expect("BUG: plain data");
        let bytes = sealed::seal(KIND, FORMAT, &json);
        let put = self.blobs()?.put_over(names::CATALOG_SNAPSHOT, &bytes);
        put.map_err(|error| match error.is_disk_full() {
            true => full(&self.path),
            false => self.wrong(error.to_string()),
        })
    }

    /// Compares the catalog with its snapshot. An empty catalog takes the content of the snapshot, if there is one. Any
    /// other catalog must have every key of its snapshot, which is always written after it: a damaged catalog may have
    /// lost keys without an error, and a server without any key is open to all. Fails when a key is missing, differs or
    /// is no longer revoked, or the snapshot cannot be read.
    pub(super) fn compare_with_snapshot(&self) -> Result<(), CatalogError> {
        let keys = self.keys()?;
        // The catalog is new, or a failed start left it empty.
        let is_empty = keys.is_empty() && self.all::<Job>(JOBS)?.is_empty();
        let snapshot = match read(&self.path) {
            Ok(Some(snapshot)) if is_empty => return self.fill_from(&snapshot),
            Ok(Some(snapshot)) => snapshot,
            Ok(None) => return Ok(()),
            Err(error) if is_empty => return Err(error),
            Err(error) => {
                tracing::warn!(%error, "cannot read the snapshot of the catalog; it is written again from the catalog");
                return self.write_snapshot();
            }
        };
        for known in &snapshot.keys {
            let found = keys.iter().find(|key| key.id == known.id);
            let is_same = found.is_some_and(|found| {
                found.secret_hash == known.secret_hash
                    && found.revoked_ms.is_some() >= known.revoked_ms.is_some()
            });
            if !is_same {
                let (name, id) = (names::CATALOG_SNAPSHOT, &known.id);
                return Err(self.wrong(format!(
                    "the database does not hold key {id} as {name} does"
                )));
            }
        }
        Ok(())
    }

    fn fill_from(&self, snapshot: &Snapshot) -> Result<(), CatalogError> {
        for key in &snapshot.keys {
            self.insert(KEYS, key.id.as_bytes(), key)?;
        }
        for job in &snapshot.jobs {
            self.insert(JOBS, &job.job.to_be_bytes(), job)?;
        }
        self.sync()
    }

    /// The directory that has the catalog.
    pub(super) fn blobs(&self) -> Result<Blobs, CatalogError> {
        blobs(&self.path)
    }
}

/// The snapshot of the catalog in `path`, if there is one.
pub(super) fn read(path: &Path) -> Result<Option<Snapshot>, CatalogError> {
    let name = names::CATALOG_SNAPSHOT;
    let Some(content) = blobs(path)?
        .read_if_there(name)
        .map_err(|error| wrong(path, error.to_string()))?
    else {
        return Ok(None);
    };
    let text = sealed::unseal(name, KIND, FORMAT, &content)
        .map_err(|error| wrong(path, error.to_string()))?;
    serde_json::from_slice(text)
        .map(Some)
        .map_err(|error| wrong(path, format!("{name} is not readable: {error}")))
}

fn blobs(path: &Path) -> Result<Blobs, CatalogError> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    Blobs::local(parent).map_err(|error| wrong(path, error.to_string()))
}
