//! The knowledge of a reconcile, and final versions that are made again as of theirs.

use tallyring_archive::{Blobs, FinalEntry, Manifest};
use tallyring_records::{Day, LoggedFinal, Schema};

use super::days::reaches_back;
use super::{Reconcile, Reconciled, hash_of};
use crate::error::{Error, Result};
use crate::oplog::oldest_segment;

/// The part of the log that is judged, and by what.
pub(super) struct AsOf<'m> {
    /// The declaration whose rules judge.
    pub schema: Schema,
    /// Records of the log before this one are judged.
    pub upto: u64,
    /// The version before.
    pub before: Option<&'m FinalEntry>,
    /// The record from which on ids of other days were known; none but for a version that is made again. These ids come
    /// from the log then, because runs of ids forget, and learn of later ones.
    pub ids_from: Option<u64>,
}

impl<'m> AsOf<'m> {
    /// As of the manifest, which a flush wrote just before, by the rules of `schema`.
    pub(super) fn now(schema: Schema, manifest: &'m Manifest, day: Day) -> Self {
        Self {
            schema,
            upto: upto(manifest),
            before: manifest.archive.finals_of(day).last(),
            ids_from: None,
        }
    }

    fn then(manifest: &'m Manifest, logged: &LoggedFinal) -> Result<Self> {
        let in_force = in_force(manifest, logged.upto)?;
        let mut before = manifest.archive.finals_of(logged.day).iter();
        Ok(Self {
            schema: in_force.clone(),
            upto: logged.upto,
            before: before.rfind(|entry| entry.version < logged.version),
            ids_from: Some(logged.ids_from),
        })
    }
}

/// The records that a reconcile of now judges are those before this one.
fn upto(manifest: &Manifest) -> u64 {
    manifest.intake.ids.flushed.sequence
}

/// The declaration in force for a reconcile of now. A manifest may name a later one, which came while it was written.
pub(super) fn in_force_now(manifest: &Manifest) -> Result<&Schema> {
    in_force(manifest, upto(manifest))
}

/// The declaration in force at the end of the records before `upto`.
fn in_force(manifest: &Manifest, upto: u64) -> Result<&Schema> {
    let schemas = &manifest.intake.schemas;
    let known = schemas.partition_point(|entry| entry.since.sequence <= upto);
    // The first one was in force before the log begins.
    let in_force = schemas.get(known.saturating_sub(1));
    let in_force =
        in_force.ok_or_else(|| Error::Missing("the manifest declares no namespaces".into()))?;
    Ok(&in_force.schema)
}

impl Reconcile<'_> {
    /// Makes a version again of which the log has this record, from what it knew: the log before its `upto`, the rules
    /// in force there, and the version before, which the manifest names. It is compared with the record alone, because
    /// what is served counts what came later. `manifest` and `progress` are those of [`Self::run`]. Fails when the log
    /// does not reach back to the first record of the day, when it does not give the content of the record, when a file
    /// is damaged, and when the disk fails.
    pub fn again(
        &self,
        blobs: &Blobs,
        manifest: &Manifest,
        logged: &LoggedFinal,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Reconciled> {
        check_again(blobs, manifest, logged)?;
        let as_of = AsOf::then(manifest, logged)?;
        let refuse = |what: &str| {
            let LoggedFinal { day, version, .. } = logged;
            Err(Error::Reconcile(format!(
                "version {version} of {day} cannot be made again: {what}"
            )))
        };
        if hash_of(&as_of.schema) != logged.rules {
            return refuse("the rules in force there are not those that judged it");
        }
        let (counted, proof) = self.judge_and_count(blobs, manifest, &as_of, progress)?;
        if proof.content != logged.content {
            return refuse(
                "the log gives other counts or verdicts; ids or persons that it knew may have left the log since",
            );
        }
        Ok(Reconciled {
            // The sum that no rule could judge grows when evidence is erased.
            types: logged.types.clone(),
            ..self.result(logged.version, &as_of, counted, proof)
        })
    }
}

/// Checks that the log may have all that a version is made of.
pub fn check_again(blobs: &Blobs, manifest: &Manifest, logged: &LoggedFinal) -> Result<()> {
    let LoggedFinal { day, version, .. } = logged;
    let oldest = oldest_segment(blobs.disk())?;
    if oldest.is_some_and(|oldest| reaches_back(&manifest.intake, &oldest, *day)) {
        return Ok(());
    }
    Err(Error::Reconcile(format!(
        "version {version} of {day} cannot be made again: the log no longer reaches back to the first event of {day}"
    )))
}
