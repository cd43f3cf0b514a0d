//! A node that follows the log of a topic: it counts what another node writes, and can take the log over.

use std::sync::Arc;
use std::time::Duration;

use tallyring_archive::Manifest;
use tallyring_records::Offset;

use crate::error::{Error, Result};
use crate::identity::Identity;
use crate::oplog::{Frame, Owner, Tail, Topic, TopicLog};
use crate::options::{Options, World};
use crate::store::{Store, log_options, no_identity, no_manifest};

/// A store that follows. Its answers are those of the writer at the same position of the log.
pub struct Follower {
    store: Arc<Store>,
    tail: Tail,
}

/// A log that was not taken over.
pub struct NotTakenOver {
    /// The node, which follows as before.
    pub follower: Follower,
    /// The reason.
    pub error: Error,
}

impl Follower {
    /// Opens the store of this node, and counts the log of the topic up to its end. The object store has the store
    /// already ([`Store::begin_shared`]). The caller holds the lock of the data directory. Fails when the mirror is not
    /// of this topic, a file is damaged, missing or of another version, memory does not suffice, or disk, topic or
    /// object store fail. The node's mirror of the log stays whatever happens.
    pub fn open(world: World, options: Options, topic: Arc<dyn Topic>) -> Result<Self> {
        let (identity, manifest) = load(&world)?;
        let log = log_options(&options, &identity, Some(manifest.plausible_ms()));
        let tail = Tail::open(Arc::clone(&world.disk), topic, log)?;
        let store = Store::open_following(world, options, &identity, manifest)?;
        store.intake().note_voids(tail.void_count());
        Ok(Self {
            store: Arc::new(store),
            tail,
        })
    }

    /// Brings the mirror of a node that is stopped up to the end of the log, and counts nothing: a copy of the
    /// directory has all of the log then. The caller holds the lock of the data directory. Returns the offset behind
    /// the last record. Fails as [`Self::open`] does.
    pub fn bring_up(world: &World, options: &Options, topic: Arc<dyn Topic>) -> Result<Offset> {
        let (identity, manifest) = load(world)?;
        let log = log_options(options, &identity, Some(manifest.plausible_ms()));
        let mut tail = Tail::open(Arc::clone(&world.disk), topic, log)?;
        tail.sync()?;
        Ok(tail.end())
    }

    /// The store, for reads. It takes no writes.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The tail of the log.
    pub fn tail(&self) -> &Tail {
        &self.tail
    }

    /// Reads the next message of the topic, waiting for one for `wait` at most, and counts its records. Returns false
    /// where nothing came. A failure changes nothing, and the call can be repeated; fails when the topic or the node's
    /// disk does, when the object store does not give a manifest that the log notes, and when another build wrote
    /// records that this one cannot read.
    pub fn step(&mut self, wait: Duration) -> Result<bool> {
        let store = &self.store;
        Ok(self.tail.step(wait, &mut |frame| store.follow(frame))?)
    }

    /// Syncs segments of the mirror that are written no more, and removes those that are needed no more: their records
    /// are in runs, and as old as the options say. For a helper thread. Fails when the disk does.
    pub fn tidy(&mut self) -> Result<()> {
        self.tail.sync()?;
        let needed = self.store.manifest().intake.log_from();
        let older_than_ms = self.store.intake().mirror_from_ms(self.tail.segments());
        self.tail.trim(needed, older_than_ms, usize::MAX)?;
        Ok(())
    }

    /// Counts the log up to its end, and takes it over in the name of `owner`, which no take-over had before. The store
    /// takes writes then. Where that fails, the node goes on following: another node wrote meanwhile, the topic or the
    /// object store fails, or the log has no room.
    pub fn take_over(self, owner: Owner) -> Result<Arc<Store>, Box<NotTakenOver>> {
        let Self { store, tail } = self;
        let now_ms = store.world().clock.now_ms();
        let apply = &mut |frame: Frame<'_>| store.follow(frame);
        let log = match TopicLog::take_over(tail, owner, now_ms, apply) {
            Ok(log) => log,
            Err(not) => {
                return Err(Box::new(NotTakenOver {
                    follower: Self {
                        store,
                        tail: not.tail,
                    },
                    error: not.error.into(),
                }));
            }
        };
        let Err(error) = store.begin_writing(Box::new(log)) else {
            return Ok(store);
        };
        let follower = Self::step_down(store).expect("BUG: the log was just opened");
        Err(Box::new(NotTakenOver { follower, error }))
    }

    /// Lets a node follow again that wrote the log, on purpose or because another node took the log over. The next
    /// steps count records that count and were not acknowledged here. None, and nothing changes, where the store does
    /// not write a log that other nodes follow.
    pub fn step_down(store: Arc<Store>) -> Option<Self> {
        let log = store.intake().close_shared_log()?;
        let tail = log.step_down().expect("BUG: a shared log has a tail");
        Some(Self { store, tail })
    }
}

/// Identity and newest manifest of the store that the nodes share. The topic has all by then that the writer of the
/// manifest knew.
fn load(world: &World) -> Result<(Identity, Manifest)> {
    let blobs = world.blobs();
    blobs.prepare()?;
    let identity = Identity::load(&blobs)?.ok_or_else(no_identity)?;
    let manifest = Manifest::load(&blobs)?.ok_or_else(no_manifest)?;
    Ok((identity, manifest))
}
