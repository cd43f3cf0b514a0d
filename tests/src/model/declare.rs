//! Declarations: rules, lists and subtotals change at a start, or while the store goes on.

use tallyring_realtime::{Error, store_list};

use super::{Driver, clicks};

impl Driver {
    /// Makes the content of the declared list durable, as a server does before its store is opened.
    pub(super) fn store_lists(&self) -> Result<(), Error> {
        let Some(content) = clicks::networks(self.schema) else {
            return Ok(());
        };
        let blobs = self.disk.blobs();
        blobs.prepare()?;
        store_list(&blobs, content).map(drop)
    }

    /// Declares the next schema, or puts the list in force that is all that the last one changes.
    pub(super) fn declare(&mut self) -> Result<(), String> {
        let next = self.schema + 1;
        if next >= clicks::SCHEMAS || self.is_risky() || self.full {
            return Ok(());
        }
        self.note(format!("declare schema {next}"));
        let before = std::mem::replace(&mut self.schema, next);
        let store = self.store();
        let declared = match clicks::networks(next).filter(|_| next + 1 == clicks::SCHEMAS) {
            Some(content) => store.intake().put_list(clicks::NETWORKS, content),
            None => self
                .store_lists()
                .and_then(|()| store.declare(clicks::schema(next).clone()))
                .map(drop),
        };
        match declared {
            Ok(()) => self.follow_ring(),
            Err(error) => {
                self.schema = before;
                self.allow("a declaration", &error.to_string())
            }
        }
    }
}
