//! Work without a server that makes files and lets them count.

use std::sync::Arc;

use parking_lot::Mutex;
use tallyring_archive::{Blobs, Build, Manifest};
use tallyring_realtime::Store;
use tallyring_rebuild::{BuildOptions, Progress, build};

use crate::error::Result;
use crate::out::note;

/// Merges what `manifest` names into the next generation and publishes it. Returns none when there was nothing to do. A
/// merge that fails leaves no file.
pub(crate) fn merge(
    store: &Store,
    manifest: &Manifest,
    options: BuildOptions,
    progress: Progress<'_>,
) -> Result<Option<Build>> {
    leaving_nothing(store, |blobs| {
        let built = build(blobs, manifest, options, progress)?;
        match &built {
            Some(built) => store.ledger().publish(built)?,
            None => store.ledger().prove_datasets()?,
        }
        for why in built.iter().flat_map(|built| &built.refused) {
            note!("warning: the fixes of a month are not merged: {why}");
        }
        Ok(built)
    })
}

/// Runs `work` over the blobs of `store`. When it fails, the files that it made and that do not count are removed.
pub(crate) fn leaving_nothing<T>(
    store: &Store,
    work: impl FnOnce(&Blobs) -> Result<T>,
) -> Result<T> {
    let made = Arc::new(Mutex::new(Vec::new()));
    let making = Arc::clone(&made);
    let make = move |name: &str| making.lock().push(name.to_owned());
    let done = work(&store.world().blobs().telling(make));
    if done.is_err()
        && let Err(error) = store.ledger().remove_unpublished(&made.lock())
    {
        note!("warning: half-written files could not be removed: {error}");
    }
    done
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use tallyring_realtime::{Batch, Options, VirtualClock};
    use tallyring_records::{Increment, Schema};

    use super::*;
    use crate::config::Config;
    use crate::data_directory::world;

    /// 2012-03-16T18:00:00Z
    const NOW: i64 = 1_331_920_800;

    /// A store that has closed a day of twenty keys.
    fn store(directory: &Path) -> Store {
        let clock = Arc::new(VirtualClock::new(NOW * 1_000, 0.0));
        let world = world(directory, clock).unwrap();
        let options = Options::for_memory(1 << 28);
        let (store, _) = Store::open(world, options, Schema::default_clicks()).unwrap();
        let keys = (0..20).map(|key| [("l", format!("k{key}"))]);
        let batch = Batch {
            increments: keys
                .map(|key| Increment::new(NOW - 86_400, 1, key))
                .collect(),
            ..Batch::default()
        };
        store.intake().commit(vec![batch]).remove(0).unwrap();
        store.ledger().cut().unwrap();
        store
    }

    fn options(store: &Store) -> BuildOptions {
        let config = Config::load(None).unwrap();
        config.rebuild.build_options(store.options())
    }

    #[test]
    fn a_merge_that_fails_leaves_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let store = store(directory.path());
        let (blobs, options) = (store.world().blobs(), options(&store));
        let before = files(&blobs);
        let built = build(&blobs, &store.manifest(), options, &|_, _| {});
        for made in files(&blobs).difference(&before) {
            blobs.remove(made).unwrap();
        }
        // A directory has the name of a file of the generation.
        let generation = built.unwrap().unwrap().generation.unwrap();
        fs::create_dir(directory.path().join(&generation.files[1].name)).unwrap();
        merge(&store, &store.manifest(), options, &|_, _| {}).unwrap_err();
        assert_eq!(files(&blobs), before);
    }

    #[test]
    fn a_merge_that_cannot_be_published_leaves_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let store = store(directory.path());
        let mut manifest = (*store.manifest()).clone();
        let unknown = r#"{"number": 5, "created_at_ms": 0, "merged": [], "files": []}"#;
        let unknown = serde_json::from_str(unknown).unwrap();
        manifest.archive.generations.push(unknown);
        let before = files(&store.world().blobs());
        let error = merge(&store, &manifest, options(&store), &|_, _| {}).unwrap_err();
        assert!(error.to_string().contains("is generation 6"), "{error}");
        assert_eq!(files(&store.world().blobs()), before);
    }

    fn files(blobs: &Blobs) -> BTreeSet<String> {
        tallyring_archive::sorted_files(blobs).unwrap()
    }
}
