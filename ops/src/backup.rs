//! `tallyring backup` and `tallyring restore`: checked copies of a data directory, and back.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use indicatif::HumanBytes;
use serde_json::{Value, json};
use tallyring_archive::{Blobs, names};
use tallyring_realtime::catalog::Catalog;
use tallyring_realtime::{Holder, Lock, Options, Store, SystemClock};
use tallyring_rebuild::backup::{
    Again, BackupError, Copied, Joined, Progress, copy, join_lists, join_log,
};
use tallyring_records::how_many;

use crate::cli::{BackupArgs, RestoreArgs};
use crate::data_directory::{
    self, bring_up_node, is_of_node, open_read_only, require_store, world,
};
use crate::error::{CommandError, Result, doing};
use crate::lineage;
use crate::lists::BrokenList;
use crate::log_copy::check_division;
use crate::out::{note, say};
use crate::progress::{bytes_bar, on};
use crate::strands::{self, Division};

/// For people who look into a backup.
const BACKUP_TEXT: &str =
    "A backup: `tallyring restore` makes a data directory of it. Serving it would change it.\n";

/// For people who look into a directory that is being restored.
const RESTORING_TEXT: &str = "Half restored: run `tallyring restore` again.\n";

/// How often, and after which pauses, a backup looks again for the log of a node, or for the lock that strands share.
const LOOKS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// Brings a backup up to date, beside a server or without one: of all strands of the store. Fails when the target is no
/// backup of this store, a file is damaged, or a disk fails.
pub(crate) fn run(args: &BackupArgs, as_json: bool) -> Result<()> {
    let (data, place) = (args.data.as_path(), args.backup.as_path());
    require_store(data)?;
    check_place(place, data)?;
    let bar = bytes_bar("copying");
    let directories = strands::directories(data)?;
    let copied = directories.iter();
    let copied = copied.map(|directory| make(directory, place, &|_| true, &on(&bar)));
    let copied = copied.collect::<Result<Vec<_>>>()?;
    bar.finish_and_clear();
    if as_json {
        return say!("{}", in_json(&copied)?);
    }
    let (what, sum) = (of_strands(&copied), sum(&copied));
    say!(
        "{what} in {}: {} ({}) written, {} there before",
        place.display(),
        how_many(sum.files, "file"),
        HumanBytes(sum.bytes),
        how_many(sum.kept, "file")
    )
}

fn of_strands(copied: &[Copied]) -> String {
    match copied {
        [only] => format!("generation {} is backed up", only.generation),
        several => format!("{} strands are backed up", several.len()),
    }
}

fn in_json(copied: &[Copied]) -> Result<Value> {
    Ok(match copied {
        [only] => serde_json::to_value(only)?,
        several => json!({ "strands": several }),
    })
}

/// The files of all strands.
fn sum(copied: &[Copied]) -> Copied {
    let add = |sum: Copied, more: &Copied| Copied {
        files: sum.files + more.files,
        bytes: sum.bytes + more.bytes,
        kept: sum.kept + more.kept,
        ..sum
    };
    copied.iter().fold(Copied::default(), add)
}

/// Makes the backup `place` of the data directory `data`, or brings it up to date. A strand has a directory of its own
/// in the backup of its store. Fails as [`run`] does.
pub(crate) fn make(
    data: &Path,
    place: &Path,
    again: Again<'_>,
    progress: Progress<'_>,
) -> Result<Copied> {
    make_watched((data, place), again, progress, || ())
}

/// As [`make`]; `read` is told of each part of a file that is read ([`Blobs::telling_parts`]).
pub(crate) fn make_watched(
    (data, place): (&Path, &Path),
    again: Again<'_>,
    progress: Progress<'_>,
    read: impl Fn() + Clone + Send + Sync + 'static,
) -> Result<Copied> {
    require_store(data)?;
    check_place(place, data)?;
    let division = strands::of(data)?;
    begin(data, division, place)?;
    let place = &strands::place_of(data, place)?;
    let _lock = take(place, names::BACKUP)?;
    let (source, target) = (data_directory::blobs(data)?, blobs(place)?);
    let [source, target] = [source, target].map(|blobs| blobs.telling_parts(read.clone()));
    mark(&target, names::BACKUP, BACKUP_TEXT)?;
    division.map_or(Ok(()), |division| division.put(&target))?;
    lineage::carry(&source, &target, place)?;
    let mut looks = 0;
    loop {
        let _stopped = bring_up_node(data)?;
        match copy(&source, &target, again, progress) {
            // A node may have a moment to go until it has the records that the newest manifest needs.
            Err(BackupError::Incomplete { .. }) if is_of_node(data) && looks < LOOKS => {
                looks += 1;
                std::thread::sleep(PAUSE);
            }
            copied => return Ok(copied?),
        }
    }
}

/// Begins the backup of the store of a strand, or goes on with it; checks that it is none of a store with another
/// number of strands. Strands of one store may begin at the same time: each holds the lock of the whole meanwhile.
fn begin(data: &Path, division: Option<Division>, place: &Path) -> Result<()> {
    let Some(division) = division else {
        return match strands::of(place)? {
            None => Ok(()),
            Some(there) => Err(CommandError::Usage(format!(
                "{} is the backup of a store with {} strands, and this one has one; name another directory",
                place.display(),
                there.strands
            ))),
        };
    };
    let _lock = take_in_turn(place, names::BACKUP)?;
    if place.join(names::IDENTITY).exists() {
        return Err(CommandError::Usage(format!(
            "{} is the backup of a store with one strand, and this one has {}; name another directory",
            place.display(),
            division.strands
        )));
    }
    let whole = blobs(place)?;
    whole.put(names::BACKUP, BACKUP_TEXT.as_bytes())?;
    Division::all(division.strands).put(&whole)?;
    // API keys are beside the strands; one strand carries them.
    let keys = data.parent().filter(|_| division.strand == Some(0));
    let keys = keys.map(|parent| parent.join(names::CATALOG_SNAPSHOT));
    if let Some(keys) = keys.filter(|keys| keys.exists()) {
        let content = std::fs::read(&keys).map_err(doing(format!("read {}", keys.display())))?;
        whole.put_over(names::CATALOG_SNAPSHOT, &content)?;
    }
    Ok(())
}

/// Selects today's part of the files and segments that a backup reads again; a month selects all of them.
pub(crate) fn todays_part(name: &str) -> bool {
    const DAYS: u64 = 30;
    let day = std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .map_or(0, |since| since.as_secs() / 86_400);
    // File names and segment names are hexadecimal; segments differ in their last digits.
    let digits = name.get(name.len().saturating_sub(8)..).unwrap_or_default();
    let place = u64::from_str_radix(digits, 16).unwrap_or(0);
    place % DAYS == day % DAYS
}

/// Makes a data directory from a backup. Fails when the directory holds a store already, the backup is damaged, or a
/// disk fails; and once all else is restored, when the content of a list is not.
pub(crate) fn restore(args: &RestoreArgs, as_json: bool) -> Result<()> {
    let (backup, data) = (args.backup.as_path(), args.data.as_path());
    if !backup.join(names::BACKUP).exists() {
        let besides = match args.log {
            Some(_) => " (a copied log goes on from a backup, it does not take the place of one)",
            None => "",
        };
        return Err(CommandError::Usage(format!(
            "{} is no backup; name a directory that `tallyring backup` made{besides}",
            backup.display()
        )));
    }
    let division = strands::of(backup)?;
    check_whole(backup, division)?;
    let logs = args.log.as_deref().map(|log| log_copies(log, division));
    let logs = logs.transpose()?.unwrap_or_default();
    if is_within(data, backup) {
        return Err(CommandError::Usage(format!(
            "{} is in the backup, which stays as it is; name a directory elsewhere",
            data.display()
        )));
    }
    let _lock = take(data, names::RESTORING)?;
    let target = blobs(data)?;
    mark(&target, names::RESTORING, RESTORING_TEXT)?;
    let restored = match division {
        None => vec![restore_one(backup, data, logs.first())?],
        Some(division) => restore_strands(backup, data, (division, &logs))?,
    };
    target.remove(names::RESTORING)?;
    target.sync("")?;
    tell_restored(data, &restored, as_json)?;
    let lists = restored.iter().flat_map(|restored| &restored.lists);
    let lists: BTreeSet<String> = lists.map(BrokenList::to_string).collect();
    if lists.is_empty() {
        return Ok(());
    }
    let lists: Vec<String> = lists.into_iter().collect();
    Err(CommandError::Failed(format!(
        "all is restored but contents of lists: {}",
        lists.join("; ")
    )))
}

/// Fails for the part of a backup that one strand has.
fn check_whole(backup: &Path, division: Option<Division>) -> Result<()> {
    let shown = backup.display();
    match division {
        Some(Division {
            strand: Some(strand),
            ..
        }) => Err(CommandError::Usage(format!(
            "{shown} is strand {strand} of a backup; name the whole backup, which is the directory above"
        ))),
        _ => Ok(()),
    }
}

/// A store or a strand that was restored.
struct Restored {
    copied: Copied,
    joined: Option<Joined>,
    /// Lists whose contents could not be restored.
    lists: Vec<BrokenList>,
}

/// Restores all strands of a backup, and the API keys beside them. `logs` are the second copies of their logs, all or
/// none.
fn restore_strands(
    backup: &Path,
    data: &Path,
    (division, logs): (Division, &[Blobs]),
) -> Result<Vec<Restored>> {
    let target = blobs(data)?;
    division.put(&target)?;
    let restored = (0..division.strands).map(|strand| {
        let [from, to] = [backup, data].map(|of| strands::directory(of, strand));
        if strands::of(&from)? != Some(division.at(strand)) {
            return Err(CommandError::Failed(format!(
                "{} is no copy of strand {strand}: the backup was never finished, or its parts were moved",
                from.display()
            )));
        }
        let part = blobs(&to)?;
        mark(&part, names::RESTORING, RESTORING_TEXT)?;
        division.at(strand).put(&part)?;
        let restored = restore_one(&from, &to, logs.get(strand))?;
        part.remove(names::RESTORING)?;
        part.sync("")?;
        Ok(restored)
    });
    let restored = restored.collect::<Result<Vec<_>>>()?;
    remove_directory(&data.join(names::CATALOG))?;
    if let Some(keys) = blobs(backup)?.read_if_there(names::CATALOG_SNAPSHOT)? {
        target.put_over(names::CATALOG_SNAPSHOT, &keys)?;
    }
    Catalog::open(&data.join(names::CATALOG))?;
    Ok(restored)
}

/// Restores a store with one strand, or a strand, into a directory that says so. Files that an earlier try restored are
/// used.
fn restore_one(backup: &Path, data: &Path, log: Option<&Blobs>) -> Result<Restored> {
    let [source, target] = [blobs(backup)?, blobs(data)?];
    // An earlier restore that was interrupted may have taken more than the log of the backup.
    remove_directory(&data.join(names::OPLOG))?;
    let bar = bytes_bar("restoring");
    let copied = copy(&source, &target, &|_| true, &on(&bar))?;
    bar.finish_and_clear();
    let joined = log.map(|log| join_log(&target, log)).transpose()?;
    log.map_or(Ok(()), |log| join_lists(&target, log))?;
    // Remove the catalog that an interrupted restore has made from an older snapshot.
    remove_directory(&data.join(names::CATALOG))?;
    // Both calls prove that the directory can be served. The first server on it raises the log's epoch, as every server
    // does, so no position is used twice.
    Catalog::open(&data.join(names::CATALOG))?;
    let lists = BrokenList::all(&target, &*open_read_only(data)?.schemas());
    lineage::begin(&target)?;
    // A backup beside a running server may hold more of the log than its manifest says, and the log may name a later
    // manifest. This adds to the log alone, which another try would take from the backup again.
    Store::go_on_from_newest(world(data, Arc::new(SystemClock))?, Options::default())?;
    Ok(Restored {
        copied,
        joined,
        lists,
    })
}

fn tell_restored(data: &Path, restored: &[Restored], as_json: bool) -> Result<()> {
    let left = restored
        .iter()
        .filter_map(|of| of.joined.as_ref()?.left.as_ref());
    for left in left {
        note!("warning: not all of the copied log could be read: {left}");
    }
    if as_json {
        let told = restored.iter().map(Restored::in_json);
        let mut told = told.collect::<Result<Vec<_>>>()?;
        return match told.len() {
            1 => say!("{}", told.remove(0)),
            _ => say!("{}", json!({ "strands": told })),
        };
    }
    let copied: Vec<Copied> = restored.iter().map(|of| of.copied.clone()).collect();
    let sum = sum(&copied);
    let what = match restored {
        [only] => format!("generation {}", only.copied.generation),
        several => format!("{} strands", several.len()),
    };
    let joined = restored.iter().map(|of| Some(of.joined.as_ref()?.records));
    let joined: Option<u64> = joined.sum();
    say!(
        "{} is restored: {what}, {} ({}){}",
        data.display(),
        how_many(sum.files, "file"),
        HumanBytes(sum.bytes),
        joined.map_or(String::new(), |records| {
            let records = how_many(records, "record");
            format!(", and {records} that were logged after the backup")
        })
    )?;
    note!(
        "it counts apart from what was backed up: give it a backup of its own, or move that one away"
    );
    Ok(())
}

impl Restored {
    fn in_json(&self) -> Result<Value> {
        let mut told = serde_json::to_value(&self.copied)?;
        if let Some(joined) = &self.joined {
            told["log"] = serde_json::to_value(joined)?;
        }
        if !self.lists.is_empty() {
            told["broken_lists"] = serde_json::to_value(&self.lists)?;
        }
        Ok(told)
    }
}

/// Opens the second copies of the logs of a backup's strands for reading.
fn log_copies(path: &Path, division: Option<Division>) -> Result<Vec<Blobs>> {
    if !path.is_dir() {
        return Err(no_log(path));
    }
    check_division(path, division)?;
    let Some(division) = division else {
        return Ok(vec![log_copy(path)?]);
    };
    let copies = (0..division.strands).map(|strand| {
        let path = strands::directory(path, strand);
        check_division(&path, Some(division.at(strand)))?;
        log_copy(&path)
    });
    copies.collect()
}

fn log_copy(path: &Path) -> Result<Blobs> {
    match path.join(names::OPLOG).is_dir() {
        true => blobs(path),
        false => Err(no_log(path)),
    }
}

fn no_log(path: &Path) -> CommandError {
    CommandError::Usage(format!(
        "{} holds no log; name the directory that [log_copy] of the configuration names, with --log",
        path.display()
    ))
}

fn remove_directory(path: &Path) -> Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(doing(format!("make {} again", path.display()))(error))
        }
        _ => Ok(()),
    }
}

/// Locks a directory that is empty or holds a copy of the same kind.
fn take(directory: &Path, marker: &str) -> Result<Lock> {
    try_take(directory, marker)?.map_err(|holder| busy(directory, holder.pid))
}

/// As [`take`], and waits for a process that holds the lock for a moment.
fn take_in_turn(directory: &Path, marker: &str) -> Result<Lock> {
    for _ in 0..LOOKS {
        if let Ok(lock) = try_take(directory, marker)? {
            return Ok(lock);
        }
        std::thread::sleep(PAUSE);
    }
    take(directory, marker)
}

fn try_take(directory: &Path, marker: &str) -> Result<Result<Lock, Holder>> {
    // Nothing is put into a directory of others. Another process may have made it one before the lock was taken.
    check_free(directory, marker)?;
    let taken = Lock::take(directory).map_err(doing(format!("lock {}", directory.display())))?;
    check_free(directory, marker)?;
    Ok(taken)
}

/// Fails for a directory that is neither empty nor holds a copy of the same kind.
fn check_free(directory: &Path, marker: &str) -> Result<()> {
    let entries = match std::fs::read_dir(directory) {
        // A copy that was interrupted at once leaves at most one unfinished file.
        Ok(entries) => entries
            .filter(|entry| {
                let name = entry.as_ref().map(std::fs::DirEntry::file_name);
                !name.is_ok_and(|name| name.to_string_lossy() == format!("{marker}.tmp"))
            })
            .count(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
        Err(error) => return Err(doing(format!("read {}", directory.display()))(error)),
    };
    let lock_only = entries == 1 && directory.join(names::LOCK).exists();
    // A copy has the marker before all else, so it is looked for last: another process may be making one.
    match entries == 0 || lock_only || directory.join(marker).exists() {
        true => Ok(()),
        false => Err(CommandError::Usage(format!(
            "{} is not empty, and no earlier run of this command made it; name another directory",
            directory.display()
        ))),
    }
}

fn busy(directory: &Path, pid: u32) -> CommandError {
    CommandError::Failed(format!(
        "process {pid} writes to {} now; wait for it",
        directory.display()
    ))
}

fn mark(blobs: &Blobs, marker: &'static str, text: &str) -> Result<()> {
    Ok(blobs.put_over(marker, text.as_bytes())?)
}

fn blobs(path: &Path) -> Result<Blobs> {
    Blobs::local(path).map_err(doing(format!("open {}", path.display())))
}

/// Checks that a backup is outside the data directory. Fails when the target is in the data directory.
pub(crate) fn check_place(target: &Path, data: &Path) -> Result<()> {
    if is_within(target, data) {
        return Err(CommandError::Usage(format!(
            "{} is in the data directory, and a backup must survive the loss of that; name a directory elsewhere",
            target.display()
        )));
    }
    Ok(())
}

/// True when the path is the directory or lies in it; the path need not exist.
fn is_within(path: &Path, directory: &Path) -> bool {
    let (Ok(directory), Ok(path)) = (directory.canonicalize(), std::path::absolute(path)) else {
        return false;
    };
    // The part of the path that exists is resolved with its links; in the rest only `..` leads elsewhere.
    let mut resolved = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                resolved.pop();
            }
            part => resolved.push(part),
        }
        if let Ok(there) = resolved.canonicalize() {
            resolved = there;
        }
    }
    resolved.starts_with(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strands_begin_the_first_backup_of_their_store_at_the_same_time() {
        const STRANDS: usize = 4;
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        for round in 0..10 {
            let place = &data.join(round.to_string());
            std::thread::scope(|scope| {
                for strand in 0..STRANDS {
                    let division = Division::all(STRANDS).at(strand);
                    scope.spawn(move || {
                        begin(data, Some(division), place).unwrap();
                        let copy = strands::directory(place, strand);
                        drop(take(&copy, names::BACKUP).unwrap());
                    });
                }
            });
            assert_eq!(strands::of(place).unwrap(), Some(Division::all(STRANDS)));
        }
        let other = data.join("photos");
        std::fs::create_dir(&other).unwrap();
        std::fs::write(other.join("a.jpg"), "theirs").unwrap();
        take(&other, names::BACKUP).unwrap_err();
        assert_eq!(std::fs::read_dir(&other).unwrap().count(), 1);
    }
}
