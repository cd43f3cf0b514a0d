//! The actions of users that the fix of a day adds and takes away.
//!
//! An event is an action of its user where it counts. Invariant: the fixes of a day that have actions move them to its
//! newest version. Where none has, events are actions by the verdict with which they came, because earlier builds
//! corrected no actions. No fix has what a user did before an erasure.

use tallyring_archive::{Erasures, FinalEntry, Manifest, Origin, RunEntry, Sign};
use tallyring_records::{Day, LongKeys, Schema, UserKey};

use super::log::{Declared, Sent};
use super::verdict::{Judged, Verdict};

/// Tells which actions change.
pub(super) struct Actions<'b> {
    keys: &'b LongKeys,
    /// Declarations by which actions are kept; no key counts by them.
    schemas: Declared,
    erasures: Erasures,
    /// Whether actions are those of the version before, and not as they came.
    follow_versions: bool,
}

impl<'b> Actions<'b> {
    /// The actions of a day whose version `before` stands; none where a kept file of the day has lost them.
    pub(super) fn new(
        manifest: &Manifest,
        day: Day,
        before: Option<&FinalEntry>,
        keys: &'b LongKeys,
    ) -> Option<Self> {
        let mut generations = manifest.archive.generations.iter();
        if !generations.all(|kept| kept.horizon().actions_from <= day.start()) {
            return None;
        }
        let mut fixes = manifest.archive.runs.iter();
        Some(Self {
            keys,
            schemas: Declared::new(&manifest.intake.schemas, |schema| {
                schema.namespaces.clear();
            }),
            erasures: manifest.intake.erasures.clone(),
            follow_versions: before
                .is_some_and(|before| fixes.any(|run| moves_actions(run, before))),
        })
    }

    /// The declaration by which actions are counted at a record.
    pub(super) fn schema_at(&self, sequence: u64) -> &Schema {
        self.schemas.at(sequence)
    }

    /// Whether the action of a record is added or taken away; none where nothing changes.
    pub(super) fn change(&self, sent: &Sent, judged: &Judged) -> Option<Sign> {
        let was = match self.follow_versions {
            true => judged.before == Verdict::Counted,
            false => sent.filtered.is_none(),
        };
        let is = judged.after == Verdict::Counted;
        if was == is || !self.is_action(sent) {
            return None;
        }
        Some(if is { Sign::Plus } else { Sign::Minus })
    }

    fn is_action(&self, sent: &Sent) -> bool {
        let increment = &sent.increment;
        let (Some(event), Some(user)) = (&increment.event, &increment.user) else {
            return false;
        };
        let kind = self.schema_at(sent.sequence).event_type(&event.kind);
        if !kind.is_some_and(|kind| kind.actions) {
            return false;
        }
        let erased_at = match self.erasures.is_empty() {
            true => None,
            false => self.erasures.erased_at(&UserKey::of(self.keys, user)),
        };
        erased_at.is_none_or(|at| at < sent.sequence)
    }

    /// Notes in runs of the fix which erasures they follow.
    pub(super) fn note_erasures(&self, runs: &mut [RunEntry]) {
        for run in runs {
            run.erased_until = self.erasures.until();
        }
    }
}

/// True for a run of a fix that has actions, of a version up to this one.
fn moves_actions(run: &RunEntry, before: &FinalEntry) -> bool {
    match run.origin {
        Origin::Fix { day, version, .. } => {
            day == before.day && version <= before.version && run.meta.has_actions()
        }
        _ => false,
    }
}
