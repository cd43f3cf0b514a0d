//! Without a configuration file a store keeps the settings that it was last given: the embedded defaults never declare
//! other namespaces, change the number of shards or let detail expire.

use std::path::Path;

use tallyring_archive::{KeepDays, Manifest, names};

use super::Config;
use crate::data_directory::blobs;
use crate::error::Result;

/// A command that does not know how long detail is kept lets nothing expire.
const OPLOG_DAYS: u32 = 36_500;
const ID_HOURS: u32 = 24 * 366;

impl Config {
    /// The configuration of a server on `data`: the file, or the settings of the store, or the embedded default.
    ///
    /// # Errors
    /// As [`Config::load`]; when the newest manifest cannot be read.
    pub(crate) fn for_server(file: Option<&Path>, data: &Path) -> Result<Self> {
        let mut config = Self::load(file)?;
        if let Some(manifest) = config.of_store(data)?
            && let Some(newest) = manifest.archive.generations.last()
            && newest.keep != KeepDays::default()
        {
            config.rebuild.keep = newest.keep;
        }
        Ok(config)
    }

    /// The configuration of a command on `data`: as a server's, but without a file only detail expires that the store
    /// lets expire already.
    ///
    /// # Errors
    /// As [`Config::for_server`].
    pub(crate) fn for_command(file: Option<&Path>, data: &Path) -> Result<Self> {
        let mut config = Self::load(file)?;
        if let Some(manifest) = config.of_store(data)? {
            let newest = manifest.archive.generations.last();
            config.rebuild.keep = newest.map_or_else(KeepDays::default, |newest| newest.keep);
            config.options.oplog_days = OPLOG_DAYS;
            config.options.id_hours = ID_HOURS;
        }
        Ok(config)
    }

    /// The configuration of a command that makes the manifest again: as [`Config::for_command`] where the manifest can
    /// be read.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub(crate) fn for_recount(file: Option<&Path>, data: &Path) -> Result<Self> {
        if file.is_none()
            && let Ok(config) = Self::for_command(None, data)
        {
            return Ok(config);
        }
        let mut config = Self::load(file)?;
        config.options.oplog_days = OPLOG_DAYS;
        config.options.id_hours = ID_HOURS;
        Ok(config)
    }

    /// Without a file: the manifest of the store, whose shards and schema apply; `None` where there is no store yet.
    fn of_store(&mut self, data: &Path) -> Result<Option<Manifest>> {
        if self.declares || !data.join(names::IDENTITY).exists() {
            return Ok(None);
        }
        let manifest = Manifest::load(&blobs(data)?)?;
        let newest = manifest
            .iter()
            .flat_map(|manifest| &manifest.archive.generations)
            .last();
        if let Some(file) = newest.and_then(|newest| newest.files.first()) {
            self.options.shards = file.meta.shards;
        }
        let schema = manifest
            .iter()
            .flat_map(|manifest| &manifest.intake.schemas)
            .last();
        if let Some(entry) = schema {
            self.schema = entry.schema.clone();
        }
        Ok(manifest)
    }
}
