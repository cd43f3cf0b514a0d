//! The check of files that are due, and the healing of those that are damaged or gone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use tallyring_archive::RunEntry;
use tallyring_realtime::priority;
use tallyring_rebuild::heal;

use super::Rebuilds;
use crate::error::Result;
use crate::repair::open_backup;
use crate::scratch::in_scratch;

impl Rebuilds {
    /// Reads the files that are due on `night` (a day's number) in a thread of its own, after other threads that do so.
    pub(crate) fn start_scrub(self: &Arc<Self>, night: i64) {
        self.start_thread("scrub", move |this| this.scrub(night));
    }

    /// Heals files in which a read met damage, unless files are being read: a later call does it then.
    pub(crate) fn heal_found_by_reads(self: &Arc<Self>) {
        let is_free = self.scrubbing.try_lock().is_some();
        if is_free && self.store.ledger().take_found_by_reads() {
            self.start_healing();
        }
    }

    /// Reads the files again that are taken for damaged, and heals those that are, in a thread of its own. A read of
    /// the file before it was healed may have noted it.
    pub(crate) fn start_healing(self: &Arc<Self>) {
        self.start_thread("heal", |this| {
            priority::run_behind();
            let _one_at_a_time = this.scrubbing.lock();
            this.store.ledger().look_for_lost();
            for file in this.store.ledger().damaged_entries() {
                this.check(&file);
            }
        });
    }

    /// Heals a file and logs the result.
    fn heal(&self, file: &RunEntry) {
        let name = &*file.name;
        // A reader may panic over damage.
        match catch_unwind(AssertUnwindSafe(|| self.healed(file))) {
            Ok(Ok(Some(from))) => tracing::info!(file = name, from, "healed a file"),
            Ok(Ok(None)) if self.store.world().objects.is_some() => tracing::error!(
                file = name,
                "a file is damaged or gone, and nothing has its content that this node can reach: put an earlier version \
                 of its object back, if the bucket keeps versions; start a node that has a copy and may write; or restore \
                 a backup"
            ),
            Ok(Ok(None)) => tracing::error!(
                file = name,
                "a file is damaged or gone, and neither another file nor a backup has its content: stop the server and run \
                 `tallyring verify --repair`, which counts again what the log holds; or restore a backup"
            ),
            Ok(Err(error)) => tracing::error!(%error, file = name, "a file cannot be healed"),
            Err(_) => tracing::error!(file = name, "healing a file panicked"),
        }
    }

    /// Puts the bytes of a file back, or counts its store again. Returns where the content came from; `None` when
    /// nothing has it.
    fn healed(&self, file: &RunEntry) -> Result<Option<&'static str>> {
        // Nothing may remove the files and log segments that are read here.
        let _files_stay = (self.backing_up.lock(), self.rebuilding.lock());
        let manifest = self.store.manifest();
        let blobs = &self.store.world().blobs();
        // One that a copy waits for may hang, and this holds back all rebuilds.
        let has_ended = self.backups.lock().running == 0;
        let backup = self.backup.as_deref().filter(|_| has_ended);
        let backup = backup.and_then(|path| open_backup(&self.data, path).ok());
        let backup = backup.as_ref();
        let from = in_scratch(|scratch| Ok(heal(blobs, scratch, &manifest, file, backup)?))?;
        match from {
            Some(from) => {
                self.store.ledger().reopen(file)?;
                Ok(Some(from.told()))
            }
            None => Ok(self
                .store
                .ledger()
                .recount_store_of(file)?
                .then_some("the log")),
        }
    }

    fn scrub(&self, night: i64) {
        priority::run_behind();
        let _one_at_a_time = self.scrubbing.lock();
        for file in self.store.ledger().files_to_scrub(night) {
            self.check(&file);
        }
    }

    /// Reads a file, and heals it unless it is whole. Rests as long as it reads, so that disk and processor stay with
    /// requests.
    fn check(&self, file: &RunEntry) {
        let mut began = Instant::now();
        let mut rest = || {
            thread::sleep(began.elapsed());
            began = Instant::now();
        };
        // The pass only reads. A reader that panics over damage must end neither the server nor the reading of the
        // other files.
        let read = catch_unwind(AssertUnwindSafe(|| {
            self.store.ledger().scrub(file, &mut rest)
        }));
        match read {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::error!(%error, file = file.name, "a file cannot be read as it was written");
                self.heal(file);
            }
            Err(_) => tracing::error!(
                file = file.name,
                "reading a file again panicked; check the file with `tallyring verify`"
            ),
        }
    }
}
