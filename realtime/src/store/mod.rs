//! The store: one data directory, live.
//!
//! A store is a [`Ledger`], which owns an [`Intake`], which owns [`Live`] counts. Each owns its locks, which are taken in
//! that order. Opening, replay and recount put the three together.

mod open;
mod recount;
mod replay;
mod standing;
mod status;

use std::sync::Arc;

use tallyring_archive::Manifest;
use tallyring_records::Schema;

use crate::budget::{ReadBudget, Reading};
use crate::error::Refusal;
use crate::intake::Intake;
use crate::ledger::Ledger;
use crate::oplog::LogCopy;
use crate::options::{Options, World};
use crate::view::{Live, View};

pub use open::Recovery;
pub use recount::Recount;
pub use standing::SteppedBack;
pub use status::{RingLabel, Status, StoreStatus};

/// One data directory: increments in, counts out.
pub struct Store {
    ledger: Ledger,
}

impl Store {
    /// Writes the log of a store that was just opened to a second place, too.
    pub fn with_log_copy(mut self, copy: LogCopy) -> Self {
        self.ledger.intake_mut().add_log_copy(copy);
        self
    }

    /// The root: which files count, and every change of that.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The way in: increments, ids, and the log.
    pub fn intake(&self) -> &Intake {
        self.ledger.intake()
    }

    /// The counts as they are now.
    pub fn live(&self) -> &Live {
        self.intake().live()
    }

    /// A reader of what is counted now, for a request of its own.
    pub fn view(&self) -> View<'_> {
        self.view_for(Reading::new(self.read_budget()))
    }

    /// A reader of what is counted now, for this request.
    pub fn view_for(&self, reading: Reading) -> View<'_> {
        self.live().view_for(reading)
    }

    /// The declaration in force.
    pub fn schema(&self) -> Arc<Schema> {
        Arc::clone(self.live().schema())
    }

    /// The outside world that the store was opened with.
    pub fn world(&self) -> &World {
        self.intake().world()
    }

    /// The limits.
    pub fn options(&self) -> &Options {
        self.intake().options()
    }

    /// The limit of what all reads hold, and how much they hold.
    pub fn read_budget(&self) -> &Arc<ReadBudget> {
        self.live().read_budget()
    }

    /// The manifest in the newest view.
    pub fn manifest(&self) -> Arc<Manifest> {
        self.live().manifest()
    }

    /// Whether the next increment can be counted, as far as that can be known.
    ///
    /// # Errors
    /// Why not.
    pub fn ready(&self) -> Result<(), Refusal> {
        if let Some(cause) = self.ledger.must_restart() {
            return Err(Refusal::Unavailable(cause));
        }
        self.intake().ready()
    }
}
