//! The manifest with which a recount begins, and final versions whose files or manifests are lost.

use std::collections::{BTreeMap, BTreeSet};

use tallyring_archive::{
    ArchiveEntry, Blobs, FinalEntry, Manifest, Origin, RunEntry, manifest, names, verify_bytes,
};
use tallyring_records::{Day, LoggedFinal};

use crate::error::{Error, Result};
use crate::oplog::oldest_segment;
use crate::reconcile::reaches_back;

/// Final versions of which the log has records, by day and version.
pub(super) type LoggedFinals = BTreeMap<(Day, u32), LoggedFinal>;

/// The newest readable manifest. It has the datasets, and the counts that the log does not hold. Fails when a newer
/// manifest is there and whole for all that is known: another user may read it, or a newer build.
pub(super) fn newest_readable(blobs: &Blobs, finals: &LoggedFinals) -> Result<Option<Manifest>> {
    let numbers = manifest::numbers(blobs).unwrap_or_default();
    let mut readable = None;
    for &number in numbers.iter().rev() {
        match Manifest::load_number(blobs, number) {
            Ok(manifest) => {
                readable = Some(manifest);
                break;
            }
            Err(error) if error.is_beyond_reading() => {}
            Err(error) => return Err(error.into()),
        }
    }
    let is_newest = readable.as_ref().map(|manifest| manifest.number) == numbers.last().copied();
    if is_newest && readable.is_some() {
        return Ok(readable);
    }
    // Only the newest manifest says which loads and fixes count, and which days are final without a record in the log.
    let known = readable.iter().flat_map(Manifest::file_names);
    let known: BTreeSet<&str> = known.collect();
    let files = [names::RUNS, names::FINALS]
        .into_iter()
        .flat_map(|directory| {
            let files = blobs.list(directory).unwrap_or_default().into_iter();
            files.map(move |file| format!("{directory}/{file}"))
        });
    let is_apart = |file: &String| match names::origin_of(file) {
        Some(Origin::Load(_)) => true,
        Some(
            Origin::Fix { day, version, .. }
            | Origin::Final { day, version }
            | Origin::Verdicts { day, version },
        ) => !finals.contains_key(&(day, version)),
        _ => file.starts_with(names::FINALS),
    };
    let mut apart = files.filter(is_apart);
    match apart.find(|file| !known.contains(file.as_str())) {
        None => Ok(readable),
        Some(file) => Err(Error::Missing(format!(
            "{file} belongs to a dataset or a final day, or corrects a day, and no readable manifest says whether it counts: \
             restore `manifests/` from a backup, or move the files runs/bulk-*, runs/fix-* and finals/* away, run this \
             command again, and load the datasets again"
        ))),
    }
}

/// Lets go of final versions that have lost a file and of which the log has records. Where the log reaches back to the
/// day, its later versions go, too, with the fixes of all of them: a fix changes what the fix before left. Where it
/// does not, only a version goes that has lost books or verdicts and no run of its fix. Everything else stays; what is
/// damaged of it is found when all files are checked. Fails when the log cannot be listed.
pub(super) fn let_go_of_lost(
    blobs: &Blobs,
    base: &mut Manifest,
    finals: &LoggedFinals,
) -> Result<()> {
    let Manifest {
        intake, archive, ..
    } = base;
    let is_lost = |run: &RunEntry| verify_bytes(blobs, run).is_err();
    let oldest = oldest_segment(blobs.disk())?;
    let mut gone: BTreeSet<(Day, u32)> = BTreeSet::new();
    let mut gone_with_fix = gone.clone();
    for version in &archive.finals {
        let name = (version.day, version.version);
        let of_day = gone_with_fix.range((version.day, 0)..=name);
        let is_behind_lost = of_day.count() > 0;
        let lost_fix = fixes_of(archive, name).any(is_lost);
        if !is_behind_lost && !lost_fix && !version.files().any(is_lost) {
            continue;
        }
        let reaches = oldest
            .as_ref()
            .is_some_and(|oldest| reaches_back(intake, oldest, version.day));
        if reaches && later_are_logged(archive, version, finals) {
            gone_with_fix.insert(name);
        } else if !lost_fix && finals.contains_key(&name) {
            gone.insert(name);
        }
    }
    let is_kept = |run: &RunEntry| match run.origin {
        Origin::Fix { day, version, .. } => !gone_with_fix.contains(&(day, version)),
        _ => true,
    };
    archive.runs.retain(is_kept);
    gone.extend(gone_with_fix);
    (archive.finals).retain(|version| !gone.contains(&(version.day, version.version)));
    Ok(())
}

fn fixes_of(archive: &ArchiveEntry, name: (Day, u32)) -> impl Iterator<Item = &RunEntry> {
    archive.runs.iter().filter(move |run| match run.origin {
        Origin::Fix { day, version, .. } => (day, version) == name,
        _ => false,
    })
}

/// True where the log has records of a version and of all later ones of the day.
fn later_are_logged(archive: &ArchiveEntry, from: &FinalEntry, finals: &LoggedFinals) -> bool {
    let of_day = archive.finals_of(from.day).iter();
    let mut later = of_day.filter(|version| version.version >= from.version);
    later.all(|version| finals.contains_key(&(version.day, version.version)))
}
