//! Formats of manifests: the one that says what a manifest has, and those that can be read.

use super::flat::FlatManifest;
use super::{Manifest, SchemaEntry};
use crate::error::{Error, Result};
use crate::run::RunEntry;
use crate::sealed;

const KIND: &str = "manifest";
/// No single flipped bit makes another format of it.
const FORMAT: u32 = 11;
/// A format, and whether a manifest needs it.
type Needed = (u32, fn(&Manifest) -> bool);
/// Formats of which a manifest needs one, the newest first, and what needs it. A build that does not know the format
/// must not read the manifest.
const NEEDED: [Needed; 17] = [
    // The log tells of shares: it could not be read either. A flipped bit makes 74 of 75 and 76, so these numbers are
    // skipped.
    (77, |manifest| {
        let mut keys = manifest.intake.keys.iter();
        keys.any(|key| key.shared.is_some())
    }),
    // The log tells of orders about the counts of keys: it could not be read either. A flipped bit makes 72 of 73, so
    // that number is skipped.
    (74, |manifest| !manifest.intake.deletes.is_empty()),
    // A final version says of which keys many events had counted twice.
    (72, |manifest| {
        let mut finals = manifest.archive.finals.iter();
        finals.any(|version| version.repeated.is_some())
    }),
    // A final version says what its rules filter. A flipped bit makes 1x of 5x, 2x of 6x, and 30 of 70, so these are
    // skipped, and 4x, of which one makes 5x and 6x.
    (71, |manifest| {
        let mut finals = manifest.archive.finals.iter();
        finals.any(|version| version.filtered.is_some())
    }),
    // A final version says since when it knew ids. A flipped bit makes 35 of 37, and 30 of 38, so these numbers are
    // skipped.
    (39, |manifest| {
        let mut proofs = manifest.archive.finals.iter().flat_map(|of| &of.proof);
        proofs.any(|proof| proof.ids_from_ms.is_some())
    }),
    // The log tells who ordered a final version: it could not be read either.
    (36, |manifest| {
        let mut awaited = manifest.archive.awaited.iter();
        let mut finals = manifest.archive.finals.iter();
        finals.any(|version| version.actor.is_some())
            || awaited.any(|version| version.actor.is_some())
    }),
    // A fix takes actions of users away: what it adds would be shown, and what it takes away, too. A flipped bit makes
    // 30 of 34, so that number is skipped.
    (35, |manifest| {
        let mut fixes = manifest.archive.runs.iter();
        fixes.any(|run| run.origin.is_fix() && run.meta.has_actions())
    }),
    // The log tells how far topics of Kafka were consumed: it could not be read either. A flipped bit makes 21 or 30 of
    // 31, and 12, 22 or 30 of 32, so these numbers are skipped.
    (33, |manifest| !manifest.intake.consumed.is_empty()),
    // The log tells of API keys: it could not be read either. A flipped bit makes 21 or 28 of 29, so that number is
    // skipped.
    (30, |manifest| !manifest.intake.keys.is_empty()),
    // A record of the log tells with which declaration the store began: the log could not be read either.
    (28, |manifest| {
        let mut schemas = manifest.intake.schemas.iter();
        schemas.any(|entry| entry.is_logged)
    }),
    // A run with format 5, which may have sums of values: its files would be taken for damaged. A flipped bit makes 21
    // or 22 of 23, so that number is skipped.
    (24, |manifest| {
        let has_sums = |run: &RunEntry| !run.meta.is_before_sums();
        manifest.files().any(has_sums)
    }),
    // The log tells of final datasets, days left it although its times do not say so, or a declaration has settings.
    (22, |manifest| {
        let has_settings = |of: &SchemaEntry| !of.schema.settings.is_empty();
        let mut datasets = manifest.archive.datasets.iter();
        !manifest.archive.lost_datasets.is_empty()
            || manifest.intake.schemas.iter().any(has_settings)
            || !manifest.intake.left_log.is_empty()
            || datasets.any(|dataset| dataset.proof.is_some())
    }),
    // Somebody insisted on a final version: the log could not be read either.
    (21, |manifest| {
        let mut awaited = manifest.archive.awaited.iter();
        let mut finals = manifest.archive.finals.iter();
        finals.any(|version| version.forced) || awaited.any(|version| version.forced)
    }),
    // It says when the store began, that a dataset is final, which would be dropped, or that a final day has its sums
    // alone, whose books would be found empty.
    (18, |manifest| {
        let archive = &manifest.archive;
        manifest.intake.begun.is_some()
            || !archive.told_by_log.is_empty()
            || archive.datasets.iter().any(|dataset| dataset.is_final)
            || archive.finals.iter().any(|version| version.sums_only)
    }),
    // Final days of which the log tells: it could not be read either.
    (17, |manifest| {
        let mut finals = manifest.archive.finals.iter();
        !manifest.archive.awaited.is_empty() || finals.any(|version| version.proof.is_some())
    }),
    // Final days: their files would be removed.
    (14, |manifest| !manifest.archive.finals.is_empty()),
    // Fixes of days: what is to be taken away would be added.
    (12, |manifest| {
        manifest.archive.runs.iter().any(|run| run.origin.is_fix())
    }),
];
/// Earlier formats with this text: those before runs had columns of actions, before actions of users were kept, before
/// runs had summaries, and before runs had columns.
const EARLIER: [u32; 4] = [8, 7, 4, 2];
/// The format in which the fields of the way in and of the archive stood side by side.
const FLAT_FORMAT: u32 = 1;

/// The content of the file, in the oldest format that can say it.
pub(super) fn encode(manifest: &Manifest) -> Vec<u8> {
    let json = serde_json::to_vec_pretty(manifest).expect("BUG: a manifest is plain data");
    let needed = NEEDED.iter().find(|(_, needs)| needs(manifest));
    let format = needed.map_or(FORMAT, |(format, _)| *format);
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
        Err(Error::Version { found, .. })
            if EARLIER.contains(&found) || NEEDED.iter().any(|(format, _)| *format == found) =>
        {
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
            supported: NEEDED[0].0,
        },
        other => other,
    }
}
