//! Formats of manifests: the one that says what a manifest has, and those that can be read.

use super::flat::FlatManifest;
use super::{FinalEntry, Manifest, SchemaEntry};
use crate::error::{Error, Result};
use crate::run::RunEntry;
use crate::sealed;

const KIND: &str = "manifest";
/// No single flipped bit makes another format of it.
const FORMAT: u32 = 11;
/// The format with fixes of days. A build that does not know them would add what is to be taken away.
const FORMAT_OF_FIXES: u32 = 12;
/// The format with final days. A build that does not know them would remove their files.
const FORMAT_OF_FINALS: u32 = 14;
/// The format with final days of which the log tells. A build that does not know them cannot read the log either.
const FORMAT_OF_LOGGED_FINALS: u32 = 17;
/// The format that says when the store began, that a dataset is final, or that a final day has its sums alone. A build
/// that does not know the former would let them be dropped, and find the books of the latter empty.
const FORMAT_OF_FINAL_DATASETS: u32 = 18;
/// The format that says that somebody insisted on a final version. A build that does not know it cannot read the log
/// either.
const FORMAT_OF_FORCED_FINALS: u32 = 21;
/// The format in which the log tells of final datasets, days left it although its times do not say so, or a declaration
/// has settings.
const FORMAT_OF_LOGGED_DATASETS: u32 = 22;
/// The format of a manifest that names a run with format 5, which may have sums of values. A build that does not know
/// it would take its files for damaged. A flipped bit makes 21 or 22 of 23, so that number is skipped.
const FORMAT_OF_SUMS: u32 = 24;
/// The format that says that a record of the log tells with which declaration the store began. A build that does not
/// know it cannot read the log either.
const FORMAT_OF_BEGINNING: u32 = 28;
/// The other formats with this text: those before runs had columns of actions, before actions of users were kept,
/// before runs had summaries, and before runs had columns, and those of fixes and of final days. A build that knows the
/// earlier ones alone cannot read what came later.
const OTHER_FORMATS: [u32; 12] = [
    FORMAT_OF_BEGINNING,
    FORMAT_OF_SUMS,
    FORMAT_OF_LOGGED_DATASETS,
    FORMAT_OF_FORCED_FINALS,
    FORMAT_OF_FINAL_DATASETS,
    FORMAT_OF_LOGGED_FINALS,
    FORMAT_OF_FINALS,
    FORMAT_OF_FIXES,
    8,
    7,
    4,
    2,
];
/// The format in which the fields of the way in and of the archive stood side by side.
const FLAT_FORMAT: u32 = 1;

/// The content of the file, in the oldest format that can say it.
pub(super) fn encode(manifest: &Manifest) -> Vec<u8> {
    let json = serde_json::to_vec_pretty(manifest).expect("BUG: a manifest is plain data");
    let archive = &manifest.archive;
    let is_proven = |version: &FinalEntry| version.proof.is_some();
    let tells_more = manifest.intake.begun.is_some()
        || !archive.told_by_log.is_empty()
        || archive.datasets.iter().any(|dataset| dataset.is_final)
        || archive.finals.iter().any(|version| version.sums_only);
    let is_forced = archive.finals.iter().any(|version| version.forced)
        || archive.awaited.iter().any(|version| version.forced);
    let has_settings = |of: &SchemaEntry| !of.schema.settings.is_empty();
    let tells_of_datasets = !archive.lost_datasets.is_empty()
        || manifest.intake.schemas.iter().any(has_settings)
        || !manifest.intake.left_log.is_empty()
        || archive
            .datasets
            .iter()
            .any(|dataset| dataset.proof.is_some());
    let has_sums = |run: &RunEntry| !run.meta.is_before_sums();
    let format = if manifest.intake.schemas.iter().any(|entry| entry.is_logged) {
        FORMAT_OF_BEGINNING
    } else if manifest.files().any(has_sums) {
        FORMAT_OF_SUMS
    } else if tells_of_datasets {
        FORMAT_OF_LOGGED_DATASETS
    } else if is_forced {
        FORMAT_OF_FORCED_FINALS
    } else if tells_more {
        FORMAT_OF_FINAL_DATASETS
    } else if !archive.awaited.is_empty() || archive.finals.iter().any(is_proven) {
        FORMAT_OF_LOGGED_FINALS
    } else if !archive.finals.is_empty() {
        FORMAT_OF_FINALS
    } else if archive.runs.iter().any(|run| run.origin.is_fix()) {
        FORMAT_OF_FIXES
    } else {
        FORMAT
    };
    sealed::seal(KIND, format, &json)
}

/// Reads the content of the file `name`. Fails when it is damaged, or of a format that this build does not know.
pub(super) fn decode(name: &str, content: &[u8]) -> Result<Manifest> {
    let wrong = |error| Error::damaged(name, 0, format!("it is not readable: {error}"));
    let json = |format| sealed::unseal(name, KIND, format, content);
    match json(FORMAT) {
        Err(Error::Version { found, .. }) if found == FLAT_FORMAT => {
            let flat: FlatManifest = serde_json::from_slice(json(found)?).map_err(wrong)?;
            Ok(flat.into())
        }
        Err(Error::Version { found, .. }) if OTHER_FORMATS.contains(&found) => {
            serde_json::from_slice(json(found)?).map_err(wrong)
        }
        text => serde_json::from_slice(text.map_err(of_newer_build)?).map_err(wrong),
    }
}

/// Names the newest format that this build reads.
fn of_newer_build(error: Error) -> Error {
    match error {
        Error::Version { name, found, .. } => Error::Version {
            name,
            found,
            supported: OTHER_FORMATS.into_iter().fold(FORMAT, u32::max),
        },
        other => other,
    }
}
