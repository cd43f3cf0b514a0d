//! The place of a node among several: it follows the log, or writes it.
//!
//! The caller decides which node should write, and that is a hint. A node that takes the log over deposes the one
//! before, and the log tells each of them which one is right.

use std::mem;
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::follower::Follower;
use crate::oplog::Owner;
use crate::seldom::Seldom;
use crate::store::Store;
use crate::sync::{Mutex, MutexGuard};

/// Longest wait for a message, for which another thread may wait, too.
const STEP_WAIT: Duration = Duration::from_millis(50);
/// Pause after a step that read nothing.
const IDLE_PAUSE: Duration = Duration::from_millis(1);
/// Pause after a step that failed.
const FAILED_PAUSE: Duration = Duration::from_secs(1);
/// Pause between looks after old segments of the mirror.
const TIDY_PAUSE: Duration = Duration::from_secs(60);

/// The line of the log about steps that fail.
static STALLED: Seldom = Seldom::untold();

/// One of several nodes that share a store.
pub(crate) struct Node {
    store: Arc<Store>,
    place: Mutex<Place>,
    /// True while another thread waits for the place, which the following thread would take again at once.
    is_wanted: AtomicBool,
}

enum Place {
    Follows(Box<Follower>),
    Writes,
}

impl Node {
    pub(crate) fn new(follower: Follower) -> Self {
        Self {
            store: Arc::clone(follower.store()),
            place: Mutex::new(Place::Follows(Box::new(follower))),
            is_wanted: AtomicBool::new(false),
        }
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Follows the log until `stop` is set, also after the node wrote it and was deposed.
    pub(crate) fn run(&self, stop: &AtomicBool) {
        let mut tidied = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            if self.is_wanted.load(Ordering::Relaxed) {
                thread::sleep(IDLE_PAUSE);
                continue;
            }
            let mut place = self.place();
            self.follow_if_deposed(&mut place);
            let Place::Follows(follower) = &mut *place else {
                drop(place);
                thread::sleep(STEP_WAIT);
                continue;
            };
            let mut stepped = follower.step(STEP_WAIT);
            if tidied.elapsed() >= TIDY_PAUSE {
                tidied = Instant::now();
                stepped = stepped.and_then(|came| follower.tidy().map(|()| came));
            }
            drop(place);
            match stepped {
                Ok(true) => {}
                Ok(false) => thread::sleep(IDLE_PAUSE),
                Err(error) => {
                    if let Some(times) = STALLED.due() {
                        tracing::error!(%error, times, "this node cannot follow the log; its answers stay as they are");
                    }
                    thread::sleep(FAILED_PAUSE);
                }
            }
        }
    }

    /// Takes the log over in the name of `owner`, which no take-over had before. Nothing happens where the node writes
    /// already. Fails as [`Follower::take_over`] does; the node follows on.
    pub(crate) fn take_over(&self, owner: Owner) -> Result<()> {
        let mut place = self.place_soon();
        self.follow_if_deposed(&mut place);
        let follower = match mem::replace(&mut *place, Place::Writes) {
            Place::Follows(follower) => *follower,
            Place::Writes => return Ok(()),
        };
        match follower.take_over(owner) {
            Ok(_) => Ok(()),
            Err(not) => {
                *place = Place::Follows(Box::new(not.follower));
                Err(not.error)
            }
        }
    }

    /// Gives the log up for another node, if this one writes it.
    pub(crate) fn step_down(&self) {
        self.follow(&mut self.place_soon());
    }

    fn follow_if_deposed(&self, place: &mut Place) {
        if self.store.intake().has_failed() {
            tracing::warn!("this node does not write the log any more, and follows it");
            self.follow(place);
        }
    }

    fn follow(&self, place: &mut Place) {
        if let Some(follower) = Follower::step_down(Arc::clone(&self.store)) {
            *place = Place::Follows(Box::new(follower));
        }
    }

    fn place_soon(&self) -> MutexGuard<'_, Place> {
        self.is_wanted.store(true, Ordering::Relaxed);
        let place = self.place();
        self.is_wanted.store(false, Ordering::Relaxed);
        place
    }

    fn place(&self) -> MutexGuard<'_, Place> {
        // A poisoned lock is handled as in the intake.
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error of a service that is no node.
pub(crate) fn no_node() -> Error {
    Error::Missing("this store has one writer, and no other node follows its log".into())
}
