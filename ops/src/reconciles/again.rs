//! Final versions that the log alone has are made again, one at a time, as reconciles are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

use tallyring_api::ReconcileOrder;
use tallyring_realtime::{Reconciled, check_again, priority};
use tallyring_records::{Day, LoggedFinal};

use super::{Reconciles, work};
use crate::error::{Result, doing};
use crate::incoming::Incoming;

/// The versions that are being made again.
#[derive(Default)]
pub(super) struct Again {
    is_running: bool,
    /// Versions that could not be made again, with the day of that try and the reason.
    failed: BTreeMap<(Day, u32), (Day, String)>,
}

impl Reconciles {
    /// Why awaited versions could not be made again.
    pub(crate) fn failed_again(&self) -> BTreeMap<(Day, u32), String> {
        let again = self.again.lock();
        let failed = again.failed.iter();
        failed
            .map(|(name, (_, error))| (*name, error.clone()))
            .collect()
    }

    /// Begins to make the awaited version again that knows the fewest records. A version that failed is tried again on
    /// the next day, and later versions of its day wait for it.
    pub(crate) fn start_again(self: &Arc<Self>) {
        let manifest = self.store.manifest();
        let awaited = &manifest.archive.awaited;
        if awaited.is_empty() {
            return;
        }
        let today = Day::of(self.store.world().clock.now_ms().div_euclid(1_000));
        let mut again = self.again.lock();
        if again.is_running {
            return;
        }
        again.failed.retain(|(day, version), (tried, _)| {
            let is_awaited = |known: &LoggedFinal| (known.day, known.version) == (*day, *version);
            *tried == today && awaited.iter().any(is_awaited)
        });
        let firsts = awaited
            .iter()
            .filter(|logged| manifest.archive.awaited_of(logged.day).next() == Some(logged));
        let due = firsts.filter(|logged| !again.failed.contains_key(&(logged.day, logged.version)));
        let Some(logged) = due.min_by_key(|logged| logged.upto).cloned() else {
            return;
        };
        again.is_running = true;
        drop(again);
        let this = Arc::clone(self);
        let spawned = thread::Builder::new().name("finals".into()).spawn({
            let logged = logged.clone();
            move || {
                priority::run_as_usual();
                this.rebuilds.span().in_scope(|| {
                    let made = this.make_again(&logged);
                    this.end_again(&logged, today, made);
                });
            }
        });
        if let Err(error) = spawned {
            self.end_again(&logged, today, Err(doing("start a thread")(error)));
        }
    }

    fn make_again(&self, logged: &LoggedFinal) -> Result<()> {
        let LoggedFinal { day, version, .. } = logged;
        check_again(&self.store.world().blobs(), &self.store.manifest(), logged)?;
        tracing::info!(%day, version, "the final version is being made again");
        let _files_stay = self.rebuilds.hold_files();
        let incoming = Incoming::begin(&self.data)?;
        let reconciled = self.judge_again(logged, &incoming)?;
        Ok(self
            .store
            .ledger()
            .publish_again(&reconciled.into_final())?)
    }

    fn judge_again(&self, logged: &LoggedFinal, incoming: &Incoming) -> Result<Reconciled> {
        let order = ReconcileOrder::of(logged.day);
        let reconcile = self.ordered(&order, (logged.day, incoming.load()));
        self.attempt(&|_| {}, |manifest| {
            let version = Some(logged.version);
            Ok(work(&reconcile, (manifest.number, version)))
        })
    }

    fn end_again(&self, logged: &LoggedFinal, today: Day, made: Result<()>) {
        let LoggedFinal { day, version, .. } = logged;
        let mut again = self.again.lock();
        again.is_running = false;
        match made {
            Ok(()) => tracing::info!(%day, version, "the final version is made again"),
            Err(error) => {
                tracing::error!(%day, version, %error, "the final version is not made again");
                let failed = (today, error.to_string());
                again.failed.insert((*day, *version), failed);
            }
        }
    }
}
