//! `tallyring verify --repair`: replaces damaged bytes by good ones from other files or the backup.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use tallyring_archive::{Blobs, Manifest, RunEntry, manifest, names, verify_run};
use tallyring_realtime::oplog::{OplogError, ReadFrom, scan};
use tallyring_realtime::{Identity, Options, Store, SystemClock};
use tallyring_rebuild::{heal, heal_segment};

use crate::cli::VerifyArgs;
use crate::config::Config;
use crate::data_directory::{blobs, lock, require_store, world};
use crate::error::{CommandError, Result};
use crate::lineage;
use crate::out::note;
use crate::recount::recount;
use crate::scratch::in_scratch;
use crate::strands;

/// A sentence for each part that was healed, and one for what failed.
#[derive(Default)]
pub(crate) struct Repaired {
    pub healed: Vec<String>,
    pub failed: Option<String>,
}

/// Heals files of a store with one strand, or of a strand. The check that follows finds the files that could not be
/// healed. Fails when a server runs, the backup is no backup of this store, or the disk fails.
pub(crate) fn run(args: &VerifyArgs, data: &Path) -> Result<Repaired> {
    require_store(data)?;
    let _lock = lock(data)?;
    let config = Config::load(args.config.as_deref())?;
    let backup = args.backup.as_deref().or(config.backup.as_deref());
    let backup = backup.map(|path| open_backup(data, path)).transpose()?;
    let backup = backup.as_ref();
    let blobs = blobs(data)?;
    blobs.prepare()?;
    // A sorted file can be identified by its hash in any place; manifests and log segments cannot.
    let of_same = match backup {
        Some(backup) if !lineage::is_same(&blobs, backup)? => {
            note!(
                "warning: one of this store and the backup's was restored from the other: its manifests and its log are not \
                 healed from there"
            );
            None
        }
        backup => backup,
    };
    let mut healed = Vec::new();
    if let Some(backup) = of_same {
        healed.extend(put_manifest_back(&blobs, backup)?);
    }
    if let Ok(Some(manifest)) = Manifest::load(&blobs) {
        healed.extend(in_scratch(|scratch| {
            Ok(heal_files(&blobs, scratch, &manifest, backup))
        })?);
    }
    if let Some(backup) = of_same {
        healed.extend(heal_log(&blobs, backup)?);
    }
    // Without a readable log, the check that follows reports a lost manifest and every other missing file.
    let world = world(data, Arc::new(SystemClock))?;
    if let Ok(Some(step)) = Store::go_on_from_newest(world, Options::default()) {
        healed.push(format!(
            "the store goes on from manifest {}: manifest {} was lost, and no backup has it; what only that one counted, such \
             as a dataset or a generation, counts no more, and its files come to {}/",
            step.newest,
            step.lost,
            names::ASIDE
        ));
    }
    let mut failed = None;
    if !is_whole(&blobs) {
        let config = Config::for_recount(args.config.as_deref(), data)?;
        match recount(data, &config, None) {
            Ok(recounted) => healed.push(format!("what is derived: {recounted}")),
            Err(error) => failed = Some(format!("the log could not be counted again: {error}")),
        }
    }
    Ok(Repaired { healed, failed })
}

/// Restores the newest manifest that the log names from the backup, where it was lost.
fn put_manifest_back(blobs: &Blobs, backup: &Blobs) -> Result<Option<String>> {
    // The check that follows finds any other damage.
    let Ok(Some(step)) = Store::stepped_back(blobs) else {
        return Ok(None);
    };
    let Ok(manifest) = Manifest::load_number(backup, step.lost) else {
        return Ok(None);
    };
    manifest.commit(blobs)?;
    let name = names::manifest(step.lost);
    Ok(Some(format!("{name} from the backup")))
}

/// True when every manifest, and every file that the newest one names, can be read.
fn is_whole(blobs: &Blobs) -> bool {
    let numbers = manifest::numbers(blobs).unwrap_or_default();
    let mut manifests = numbers
        .iter()
        .map(|&number| Manifest::load_number(blobs, number));
    let is_good = |entry: &RunEntry| verify_run(blobs, entry).is_ok();
    manifests.all(|manifest| manifest.is_ok())
        && matches!(Manifest::load(blobs), Ok(Some(newest)) if newest.files().all(is_good))
}

/// Opens a backup of the store in `data`. Fails when it is no backup, or one of another store.
pub(crate) fn open_backup(data: &Path, path: &Path) -> Result<Blobs> {
    if !path.join(names::BACKUP).exists() {
        return Err(CommandError::Usage(format!(
            "{} is no backup; name a directory that `tallyring backup` made",
            path.display()
        )));
    }
    let copy = strands::place_of(data, path)?;
    same_store(data, &copy)?;
    blobs(&copy)
}

fn same_store(data: &Path, backup: &Path) -> Result<()> {
    let store_id = |directory: &Path| -> Result<[u8; 16]> {
        let identity = Identity::load(&blobs(directory)?)?;
        let id = identity.map(|identity| identity.store_id);
        id.ok_or_else(|| {
            CommandError::Failed(format!(
                "{} has no {}",
                directory.display(),
                names::IDENTITY
            ))
        })
    };
    if store_id(data)? == store_id(backup)? {
        return Ok(());
    }
    Err(CommandError::Usage(format!(
        "{} is a backup of another store",
        backup.display()
    )))
}

fn heal_files(
    blobs: &Blobs,
    scratch: &Blobs,
    manifest: &Manifest,
    backup: Option<&Blobs>,
) -> Vec<String> {
    let files: BTreeMap<_, _> = manifest
        .files()
        .map(|entry| (entry.name.as_str(), entry))
        .collect();
    let mut healed = Vec::new();
    for entry in files.into_values() {
        if verify_run(blobs, entry).is_ok() {
            continue;
        }
        match heal(blobs, scratch, manifest, entry, backup) {
            Ok(Some(from)) => healed.push(format!("{} from {}", entry.name, from.told())),
            Ok(None) => {}
            // Other files may be healed all the same.
            Err(error) => note!("warning: {} could not be healed: {error}", entry.name),
        }
    }
    healed
}

/// Heals the log segment by segment, because a damaged one hides those behind it; then restores missing segments that
/// are needed.
fn heal_log(blobs: &Blobs, backup: &Blobs) -> Result<Vec<String>> {
    let needed = Manifest::load(blobs)?.map(|manifest| manifest.intake.log_from());
    let mut healed = BTreeSet::new();
    for from in [Some(ReadFrom::Oldest), needed.map(ReadFrom::Sequence)]
        .into_iter()
        .flatten()
    {
        while let Err(
            OplogError::Corrupt { file, .. }
            | OplogError::Missing { file, .. }
            // A bad sector.
            | OplogError::Io { file, .. },
        ) = scan(blobs.disk(), None, from, &mut |_| Ok(()))
        {
            if healed.contains(&file) || !heal_segment(blobs, backup, &file)? {
                break;
            }
            healed.insert(file);
        }
    }
    Ok(healed
        .into_iter()
        .map(|file| format!("{file} from the backup"))
        .collect())
}
