//! Without a configuration file a store keeps the settings that it was last given: the embedded defaults never declare
//! other namespaces, change the number of shards or let detail expire.

use std::path::Path;

use tallyring_archive::{KeepDays, Manifest, names};
use tallyring_records::{Schema, SchemaError};

use super::Config;
use crate::data_directory::blobs;
use crate::error::{CommandError, Result};
use crate::strands;

/// A command that does not know how long detail is kept lets nothing expire.
const OPLOG_DAYS: u32 = 36_500;
const ID_HOURS: u32 = 24 * 366;

impl Config {
    /// The configuration of a server on `data`: the file, or the settings of the store, or the embedded default. Fails
    /// as [`Config::load`] does, and when the newest manifest cannot be read.
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
    /// lets expire already. Fails as [`Config::for_server`] does.
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
    /// be read. Fails as [`Config::load`] does.
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

    /// Checks that the file calls no namespace as a word of the API, unless the store in `data` has such a one already.
    /// A usage error names the namespace.
    pub(super) fn check_words(&self, data: Option<&Path>) -> Result<()> {
        let refused =
            |error: SchemaError| CommandError::Usage(format!("the configuration: {error}"));
        let Err(refusal) = self.schema.check_words(None) else {
            return Ok(());
        };
        let data = data.map(strands::first).transpose()?;
        let Some(data) = data.filter(|data| data.join(names::IDENTITY).exists()) else {
            return Err(refused(refusal));
        };
        let manifest = Manifest::load(&blobs(&data)?)?;
        let in_force = schema_in_force(manifest.as_ref());
        self.schema.check_words(in_force).map_err(refused)
    }

    /// Without a file: the manifest of the store, whose shards and schema apply; `None` where there is no store yet.
    fn of_store(&mut self, data: &Path) -> Result<Option<Manifest>> {
        if self.declares {
            self.check_words(Some(data))?;
            return Ok(None);
        }
        let data = strands::first(data)?;
        if !data.join(names::IDENTITY).exists() {
            return Ok(None);
        }
        let manifest = Manifest::load(&blobs(&data)?)?;
        let newest = manifest
            .iter()
            .flat_map(|manifest| &manifest.archive.generations)
            .last();
        if let Some(file) = newest.and_then(|newest| newest.files.first()) {
            self.options.shards = file.meta.shards;
        }
        if let Some(schema) = schema_in_force(manifest.as_ref()) {
            self.schema = schema.clone();
        }
        Ok(manifest)
    }
}

fn schema_in_force(manifest: Option<&Manifest>) -> Option<&Schema> {
    let newest = manifest?.intake.schemas.last()?;
    Some(&newest.schema)
}
