//! `catalog.json` beside the catalog: all it holds, as sealed text, replaced whole after every write.

use std::path::Path;
use std::sync::PoisonError;

use serde::{Deserialize, Serialize};
use tallyring_archive::{Disk, Error, OsDisk, disk::replace_whole, names, sealed};

use super::{Catalog, CatalogError, JOBS, Job, KeyEntry, keys::KEYS};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Snapshot {
    keys: Vec<KeyEntry>,
    jobs: Vec<Job>,
}

const KIND: &str = "catalog";
const FORMAT: u32 = 1;

impl Catalog {
    pub(super) fn write_snapshot(&self) -> Result<(), CatalogError> {
        let _one_at_a_time = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
        let snapshot = Snapshot {
            keys: self.keys()?,
            jobs: self.jobs()?,
        };
        let json = serde_json::to_vec_pretty(&snapshot).expect("BUG: plain data");
        let bytes = sealed::seal(KIND, FORMAT, &json);
        let wrong = |error: Error| self.wrong(error.to_string());
        let disk = self.disk()?;
        replace_whole(&disk, names::CATALOG_SNAPSHOT, &bytes).map_err(wrong)?;
        disk.sync_directory("")
            .map_err(Error::io("sync", names::CATALOG_SNAPSHOT))
            .map_err(wrong)
    }

    /// A new catalog takes over what stood in the one before; without a snapshot it stays empty.
    pub(super) fn fill_from_snapshot(&self) -> Result<(), CatalogError> {
        let name = names::CATALOG_SNAPSHOT;
        let content = match self.disk()?.read(name) {
            Ok(content) => content,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(self.wrong(format!("cannot read {name}: {error}"))),
        };
        let text = sealed::unseal(name, KIND, FORMAT, &content)
            .map_err(|error| self.wrong(error.to_string()))?;
        let snapshot: Snapshot = serde_json::from_slice(text)
            .map_err(|error| self.wrong(format!("{name} is not readable: {error}")))?;
        for key in &snapshot.keys {
            self.insert(KEYS, key.id.as_bytes(), key)?;
        }
        for job in &snapshot.jobs {
            self.insert(JOBS, &job.job.to_be_bytes(), job)?;
        }
        self.sync()
    }

    /// The directory that the catalog stands in.
    fn disk(&self) -> Result<OsDisk, CatalogError> {
        let parent = match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        OsDisk::new(parent).map_err(|error| self.wrong(error.to_string()))
    }
}
