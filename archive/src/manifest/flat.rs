//! Manifests of format 1, in which the fields of the way in and of the archive stood side by side.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use tallyring_records::Day;

use super::{
    ArchiveEntry, DatasetEntry, GenerationEntry, IdsEntry, IntakeEntry, Manifest, SchemaEntry,
    StoreEntry,
};
use crate::erasures::Erasures;
use crate::run::RunEntry;

/// A manifest of format 1.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlatManifest {
    number: u64,
    written_at_ms: i64,
    plausible_at_ms: Option<i64>,
    store_id: String,
    today: Day,
    schemas: Vec<SchemaEntry>,
    stores: Vec<StoreEntry>,
    runs: Vec<RunEntry>,
    #[serde(default)]
    datasets: Vec<DatasetEntry>,
    generations: Vec<GenerationEntry>,
    active: u64,
    ids: IdsEntry,
    #[serde(default)]
    newest_events: BTreeMap<String, i64>,
}

impl From<FlatManifest> for Manifest {
    fn from(flat: FlatManifest) -> Self {
        Self {
            number: flat.number,
            written_at_ms: flat.written_at_ms,
            plausible_at_ms: flat.plausible_at_ms,
            store_id: flat.store_id,
            intake: IntakeEntry {
                today: flat.today,
                begun: None,
                early: None,
                left_log: BTreeSet::new(),
                schemas: flat.schemas,
                stores: flat.stores,
                ids: flat.ids,
                newest_events: flat.newest_events,
                erasures: Erasures::default(),
                keys: Vec::new(),
                consumed: Vec::new(),
                deletes: Vec::new(),
            },
            archive: ArchiveEntry {
                runs: flat.runs,
                datasets: flat.datasets,
                generations: flat.generations,
                active: flat.active,
                finals: Vec::new(),
                awaited: Vec::new(),
                told_by_log: BTreeSet::new(),
                lost_datasets: Vec::new(),
            },
        }
    }
}
