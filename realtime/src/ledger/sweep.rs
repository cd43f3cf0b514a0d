//! Old objects of an object store: when they go, and what lets a manifest name none of them.

use std::sync::PoisonError;

use tallyring_archive::{Manifest, Sweep, Swept, Turn};

use super::{Ledger, Root};
use crate::error::Result;
use crate::sync::MutexGuard;

/// Pause before each sweep, milliseconds; the first one waits for as long as that after the node began to write.
const PAUSE_MS: i64 = 3_600_000;

/// The sweeps of this node.
#[derive(Default)]
pub(super) struct Sweeps {
    /// The epoch in which the node writes; none while it does not.
    epoch: Option<u32>,
    /// Elapsed time of the next sweep, milliseconds.
    due_ms: i64,
    sweep: Sweep,
    /// The work of the sweep that is under way; none between two.
    under_way: Option<Swept>,
}

/// While this is held, objects stay that were put since it was taken.
pub struct ObjectsStay<'l> {
    ledger: &'l Ledger,
    since_ms: i64,
}

impl Drop for ObjectsStay<'_> {
    fn drop(&mut self) {
        let mut staying = self.ledger.staying();
        let own = staying
            .iter()
            .position(|since_ms| *since_ms == self.since_ms);
        staying.swap_remove(own.expect("BUG: it was noted"));
    }
}

impl Ledger {
    /// Lets objects stay that are put from now on, until the result is dropped: those of work that names its first
    /// files at its end, which may be days later.
    pub fn keep_objects(&self) -> ObjectsStay<'_> {
        let since_ms = self.intake.believed_ms();
        self.staying().push(since_ms);
        ObjectsStay {
            ledger: self,
            since_ms,
        }
    }

    /// Takes one turn of a sweep, which removes old objects, where one is due; true where another turn should follow
    /// soon. Only a node that writes sweeps. Fails when the object store does, and when another node has taken the log
    /// over; the next sweep goes on later.
    pub fn sweep(&self) -> Result<bool> {
        let world = self.intake.world();
        if world.objects.is_none() {
            return Ok(false);
        }
        let now_ms = world.clock.elapsed_ms();
        let mut sweeps = self.sweeps();
        if sweeps.epoch != self.intake.epoch() {
            *sweeps = Sweeps {
                epoch: self.intake.epoch(),
                due_ms: now_ms.saturating_add(PAUSE_MS),
                ..Sweeps::default()
            };
        }
        if sweeps.epoch.is_none() || now_ms < sweeps.due_ms {
            return Ok(false);
        }
        let turned = self.take_turn(&mut sweeps);
        if !matches!(turned, Ok(true)) {
            sweeps.sweep.stop();
            sweeps.under_way = None;
            sweeps.due_ms = now_ms.saturating_add(PAUSE_MS);
        }
        turned
    }

    /// The work of this node's sweeps since its start.
    pub fn swept(&self) -> Swept {
        *self.swept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_turn(&self, sweeps: &mut Sweeps) -> Result<bool> {
        let (blobs, sweep) = (&self.blobs, &mut sweeps.sweep);
        let Some(all) = &mut sweeps.under_way else {
            let now_ms = self.intake.believed_ms();
            let since_ms = self.staying().iter().copied().min();
            sweep.begin(
                blobs,
                since_ms.map_or(now_ms, |since_ms| since_ms.min(now_ms)),
            )?;
            sweeps.under_way = Some(Swept::default());
            return Ok(true);
        };
        let swept = match sweep.next_turn() {
            Turn::Look => sweep.look(blobs)?,
            Turn::Remove => {
                // No manifest of this node comes meanwhile.
                let _root = self.root();
                self.intake.look_at_log()?;
                sweep.remove(blobs)?
            }
            Turn::Done => {
                tell(*all);
                return Ok(false);
            }
        };
        all.add(swept);
        let mut total = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        total.add(swept);
        Ok(true)
    }

    /// Looks for the objects that `next` names and the manifest before does not, and puts those back that went since
    /// they were uploaded.
    pub(super) fn ensure_objects(&self, root: &Root, next: &Manifest) -> Result<()> {
        if self.intake.world().objects.is_none() {
            return Ok(());
        }
        let named = root.manifest.file_names();
        for name in next.file_names() {
            if !named.contains(name) && self.blobs.ensure_object(name)? {
                tracing::warn!(
                    name,
                    "a file went from the object store before it was named, and is there again"
                );
            }
        }
        Ok(())
    }

    fn staying(&self) -> MutexGuard<'_, Vec<i64>> {
        self.staying.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sweeps(&self) -> MutexGuard<'_, Sweeps> {
        // A poisoned lock is handled as in the intake.
        self.sweeps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tell(swept: Swept) {
    let Swept {
        manifests,
        objects,
        bytes,
        restored,
        gone,
    } = swept;
    if objects + manifests > 0 {
        tracing::info!(
            objects,
            bytes,
            manifests,
            "removed old objects that no kept manifest names"
        );
    }
    if restored > 0 {
        tracing::warn!(
            restored,
            "files that count were gone from the object store, and are there again"
        );
    }
    if gone > 0 {
        tracing::error!(
            gone,
            "the object store lacks files that count, and this node has no copies"
        );
    }
}
