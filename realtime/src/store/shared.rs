//! The store of several nodes: a topic has its log, and an object store its other files. Each node has a mirror of the
//! log, and counts all of it in memory of its own. One node writes.

use tallyring_archive::{Manifest, manifest, remove_unfinished};
use tallyring_records::{Offset, Schema};

use super::Store;
use super::open::{check_identity, first_manifest};
use super::replay::Replay;
use super::standing::Standing;
use crate::error::Result;
use crate::identity::Identity;
use crate::ledger::remove_copies;
use crate::oplog::{Log, Owner, Topic, begin_log, scan};
use crate::options::{Options, World};

impl Store {
    /// Makes a store for several nodes, with a log in an empty topic. `owner` is new, as for a take-over. Fails with
    /// [`OplogError::TopicInUse`](crate::oplog::OplogError::TopicInUse), with
    /// [`Conflict`](tallyring_archive::Error::Conflict) where the object store has a store already, when `schema` is
    /// not allowed, and when the topic or the object store does. The call can be repeated then.
    pub fn begin_shared(
        world: &World,
        options: &Options,
        (topic, owner): (&dyn Topic, Owner),
        schema: &Schema,
    ) -> Result<()> {
        schema.check_words(None)?;
        let blobs = world.blobs();
        blobs.prepare()?;
        if let Some(number) = manifest::numbers(&blobs)?.pop() {
            return Err(tallyring_archive::Error::Conflict { number }.into());
        }
        let identity = match Identity::load(&blobs)? {
            Some(identity) => identity,
            None => Identity::create(&blobs, world.random)?,
        };
        let now_ms = world.clock.now_ms();
        begin_log(topic, identity.store_id, owner, now_ms)?;
        first_manifest(options, &identity, now_ms, schema).commit(&blobs)?;
        Ok(())
    }

    /// Opens the store of a node whose mirror of the log has all that the writer of `manifest` knew. Fails as
    /// [`Store::open_read_only`] does.
    pub(crate) fn open_following(
        world: World,
        options: Options,
        identity: &Identity,
        manifest: Manifest,
    ) -> Result<Self> {
        let blobs = world.blobs();
        check_identity(identity, &manifest)?;
        Standing::read(&blobs, identity, &manifest).check(&blobs, &manifest)?;
        remove_unfinished(&blobs)?;
        let mut store = Self::of_manifest(world, options, identity, manifest)?;
        store.intake().begin_following();
        let mut replay = Replay::following(&mut store);
        let id = Some(identity.store_id);
        let summary = replay.read(|from, apply| scan(blobs.disk(), id, from, apply))?;
        let noted = replay.noted;
        store.live().end_replay(Offset {
            epoch: summary.epoch,
            sequence: summary.end_sequence,
        });
        if let Some(newer) = store.ledger().newer(noted)? {
            store.ledger().follow(newer);
        }
        // Everything is open, so the start does not fail any more.
        if store.world().objects.is_some() {
            remove_copies(&blobs, &store.manifest())?;
        }
        Ok(store)
    }

    /// Begins to write the log, everything of which is counted. Fails when the log takes no writes, and when the newest
    /// manifest cannot be read.
    pub(crate) fn begin_writing(&self, log: Box<dyn Log>) -> Result<()> {
        self.intake().open_log(log);
        // The writer before may have died between a manifest and its note.
        let newest = manifest::numbers(&self.world().blobs())?.pop();
        if let Some(newer) = self.ledger().newer(newest.unwrap_or(0))? {
            self.ledger().follow(newer);
        }
        self.intake().begin_rules();
        self.ledger().note_commits();
        self.ledger().note_newest(false);
        self.begin_turning()
    }
}
