//! `tallyring verify --repair`: puts good bytes in the place of damaged ones, where somebody has them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use tallyring_archive::{Disk, Error, Manifest, OsDisk, names, verify_run};
use tallyring_realtime::oplog::{OplogError, ReadFrom, scan};
use tallyring_rebuild::{Healed, heal, heal_segment};

use crate::cli::VerifyArgs;
use crate::config::Config;
use crate::data_directory::{disk, lock, manifest, require_store};
use crate::error::{CommandError, Result, doing};
use crate::lineage;
use crate::out::note;
use crate::scratch::in_scratch;

/// Heals what it can; a sentence for each file that was healed. What it cannot heal the check that follows finds.
///
/// # Errors
/// When a server runs, the backup is none, or the disk refuses.
pub fn run(args: &VerifyArgs) -> Result<Vec<String>> {
    require_store(&args.data)?;
    let _lock = lock(&args.data)?;
    let backup = backup_of(args)?;
    let backup = backup.as_ref().map(|disk| disk as &dyn Disk);
    let disk = disk(&args.data)?;
    let mut healed = in_scratch(|scratch| heal_files(&disk, scratch, backup))?;
    // Sorted files are known by their hashes, whoever has them; segments of the log are not.
    if let Some(backup) = backup {
        if lineage::is_same(&disk, backup)? {
            healed.extend(heal_log(&disk, backup)?);
        } else {
            note!(
                "warning: one of this store and the backup's was restored from the other: its log is not healed from there"
            );
        }
    }
    Ok(healed)
}

fn backup_of(args: &VerifyArgs) -> Result<Option<OsDisk>> {
    let config = Config::load(args.config.as_deref())?;
    let Some(path) = args.backup.clone().or(config.backup) else {
        return Ok(None);
    };
    if !path.join(names::BACKUP).exists() {
        return Err(CommandError::Usage(format!(
            "{} is no backup; name a directory that `tallyring backup` made",
            path.display()
        )));
    }
    same_store(&args.data, &path)?;
    let disk = OsDisk::new(&path).map_err(doing(format!("open {}", path.display())))?;
    Ok(Some(disk))
}

fn same_store(data: &Path, backup: &Path) -> Result<()> {
    let read = |directory: &Path| {
        std::fs::read(directory.join(names::IDENTITY)).map_err(doing(format!(
            "read {} of {}",
            names::IDENTITY,
            directory.display()
        )))
    };
    if read(data)? == read(backup)? {
        return Ok(());
    }
    Err(CommandError::Usage(format!(
        "{} is a backup of another store",
        backup.display()
    )))
}

fn heal_files(disk: &OsDisk, scratch: &OsDisk, backup: Option<&dyn Disk>) -> Result<Vec<String>> {
    let manifest = manifest(disk)?;
    let files: BTreeMap<_, _> = manifest
        .files()
        .map(|entry| (entry.name.as_str(), entry))
        .collect();
    let mut healed = Vec::new();
    for entry in files.into_values() {
        if verify_run(disk, entry).is_ok() {
            continue;
        }
        let from = match heal(disk, scratch, &manifest, entry, backup)? {
            Some(Healed::Twin) => "its other name",
            Some(Healed::Backup) => "the backup",
            Some(Healed::Remade) => "its source runs, merged again",
            None => continue,
        };
        healed.push(format!("{} from {from}", entry.name));
    }
    for directory in names::SORTED_FILE_DIRECTORIES {
        disk.sync_directory(directory)
            .map_err(Error::io("sync", directory))?;
    }
    Ok(healed)
}

/// Segment by segment, as each hides what is wrong behind it; then those that are gone but needed.
fn heal_log(disk: &OsDisk, backup: &dyn Disk) -> Result<Vec<String>> {
    let needed = Manifest::load(disk)?.map(|manifest| manifest.log_from());
    let mut healed = BTreeSet::new();
    for from in [Some(ReadFrom::Oldest), needed.map(ReadFrom::Sequence)]
        .into_iter()
        .flatten()
    {
        while let Err(OplogError::Corrupt { file, .. } | OplogError::Missing { file, .. }) =
            scan(disk, None, from, &mut |_| Ok(()))
        {
            if healed.contains(&file) || !heal_segment(disk, backup, &file)? {
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
