//! The store: one data directory in service.
//!
//! A store is a [`Ledger`], which owns an [`Intake`], which owns [`Live`] counts. Each of them owns its locks, which
//! are taken in that order. Opening, replay and recount put the three together.

mod closed;
mod erased;
mod follow;
mod held;
mod lost_finals;
mod open;
mod recount;
mod replay;
mod shared;
mod shown;
mod standing;
mod status;
mod undeclared;

use std::sync::Arc;

use tallyring_archive::{Manifest, SchemaEntry};
use tallyring_records::Schema;

use crate::budget::{ReadBudget, Reading};
use crate::error::Refusal;
use crate::intake::{Intake, Part};
use crate::ledger::Ledger;
use crate::oplog::LogCopy;
use crate::options::{Options, World};
use crate::view::{Live, View};

pub use closed::{ClosedBucket, ClosedCursor, ClosedPage, ClosedReader};
pub use erased::Leftovers;
pub use open::Recovery;
pub(crate) use open::{log_options, no_identity, no_manifest};
pub use recount::Recount;
pub use shown::Shown;
pub use standing::SteppedBack;
pub use status::{RingLabel, Status, StoreStatus};

/// One data directory: increments in, counts out.
pub struct Store {
    ledger: Ledger,
}

impl Store {
    /// Adds a second copy of the log to a store that was just opened.
    pub fn with_log_copy(mut self, copy: LogCopy) -> Self {
        self.ledger.intake_mut().add_log_copy(copy);
        self
    }

    /// The root: which files count, and every change of that.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The intake: increments, ids, and the log.
    pub fn intake(&self) -> &Intake {
        self.ledger.intake()
    }

    /// The newest counts.
    pub fn live(&self) -> &Live {
        self.intake().live()
    }

    /// Takes a view of the newest counts, for a new request.
    pub fn view(&self) -> View<'_> {
        self.view_for(Reading::new(self.read_budget()))
    }

    /// Takes a view of the newest counts, for this request.
    pub fn view_for(&self, reading: Reading) -> View<'_> {
        self.live().view_for(reading)
    }

    /// The schema in force.
    pub fn schema(&self) -> Arc<Schema> {
        self.live().schema()
    }

    /// All declarations that are known, ascending; the one in force is the last.
    pub fn schemas(&self) -> Arc<Vec<SchemaEntry>> {
        Arc::clone(&self.live().snapshot().schemas)
    }

    /// The schema by which a record of the log counts; the oldest one that is known where the record is older.
    pub fn schema_at(&self, sequence: u64) -> Schema {
        self.live().snapshot().schema_at(sequence).clone()
    }

    /// Puts a schema in force, as [`Intake::declare`] does, and names it in the manifest. Returns false where it is in
    /// force already. Fails as that does.
    pub fn declare(&self, schema: Schema) -> crate::error::Result<bool> {
        let is_new = self.intake().declare(schema)?;
        if let Err(error) = self.ledger.name_schema() {
            tracing::warn!(%error, "the manifest does not name the schema in force yet; the next flush will");
        }
        Ok(is_new)
    }

    /// The outside world that the store was opened with.
    pub fn world(&self) -> &World {
        self.intake().world()
    }

    /// The limits.
    pub fn options(&self) -> &Options {
        self.intake().options()
    }

    /// The budget of all running reads.
    pub fn read_budget(&self) -> &Arc<ReadBudget> {
        self.live().read_budget()
    }

    /// The manifest in the newest view.
    pub fn manifest(&self) -> Arc<Manifest> {
        self.live().manifest()
    }

    /// The seal of a message between nodes of this store.
    pub fn seal(&self, parts: &[&[u8]]) -> blake3::Hash {
        self.live().keys().seal(parts)
    }

    /// The part of the store in its log. Waits for nobody.
    pub fn part(&self) -> Part {
        self.intake().part()
    }

    /// Checks whether the next increment can be counted, as far as that can be known. A node that follows leaves that
    /// to the one that writes, and so does a store without a log.
    pub fn ready(&self) -> Result<(), Refusal> {
        if matches!(self.part(), Part::Follows { .. }) || self.shown().is_some() {
            return Ok(());
        }
        if let Some(cause) = self.ledger.must_restart() {
            return Err(Refusal::Unavailable(cause));
        }
        self.intake().ready()
    }
}
