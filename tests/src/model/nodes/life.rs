//! Nodes that start, follow, take the log over, hang and die.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tallyring_realtime::oplog::Owner;
use tallyring_realtime::{Follower, NotTakenOver, Store, World};
use tallyring_records::Offset;

use super::strand::Strand;
use super::world;
use crate::sim_disk::{SimDisk, random};

/// One node.
pub(super) struct Site {
    pub disk: SimDisk,
    pub place: Place,
    /// It does nothing at all, and goes on later as if nothing had been.
    pub hangs: bool,
    /// Its disk stops, or did.
    pub is_doomed: bool,
    /// The write of a batch failed: the node follows soon.
    pub is_refused: bool,
    /// Up to where it had counted the log.
    pub seen: Offset,
}

pub(super) enum Place {
    Down,
    Follows(Box<Follower>),
    /// As far as the node knows.
    Writes(Arc<Store>),
}

/// A node that takes the log over in the middle of what another one does.
pub(super) struct Race {
    site: usize,
    state: Arc<Mutex<Taking>>,
}

enum Taking {
    NotYet(Box<Follower>),
    Tried(Box<Result<Arc<Store>, Box<NotTakenOver>>>),
    /// While it does it.
    Now,
}

impl Site {
    pub(super) fn new() -> Self {
        Self {
            disk: SimDisk::default(),
            place: Place::Down,
            hangs: false,
            is_doomed: false,
            is_refused: false,
            seen: Offset::default(),
        }
    }

    pub(super) fn store(&self) -> Option<&Arc<Store>> {
        match &self.place {
            Place::Down => None,
            Place::Follows(follower) => Some(follower.store()),
            Place::Writes(store) => Some(store),
        }
    }

    /// True where a read can be sent to it.
    pub(super) fn answers(&self) -> bool {
        !self.hangs && !self.is_doomed && self.store().is_some()
    }

    fn die_on(&mut self, disk: SimDisk) {
        self.place = Place::Down;
        (self.hangs, self.is_doomed, self.is_refused) = (false, false, false);
        self.disk = disk;
    }
}

impl Race {
    /// Takes the log over, unless that was done. `flushes` then makes runs and a manifest at once.
    fn take(state: &Mutex<Taking>, owner: Owner, flushes: bool) {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = match std::mem::replace(&mut *state, Taking::Now) {
            Taking::NotYet(follower) => {
                let taken = follower.take_over(owner);
                if let (Ok(store), true) = (&taken, flushes) {
                    // A failure is found when all is calm.
                    let _ = store.ledger().flush();
                }
                Taking::Tried(Box::new(taken))
            }
            tried => tried,
        };
    }
}

impl Strand {
    pub(super) fn world(&self, disk: SimDisk) -> World {
        World {
            objects: Some(Arc::new(self.objects.clone())),
            ..world(disk, self.clock.clone())
        }
    }

    /// An owner of the log that no take-over had before.
    pub(super) fn owner(&mut self) -> Owner {
        self.owners += 1;
        Owner(self.owners)
    }

    /// A node that believes to write the log, and does not hang; mostly the one that does.
    pub(super) fn claimant(&mut self) -> Option<(usize, Arc<Store>)> {
        let sites = self.sites.iter().enumerate();
        let claims = sites.filter_map(|(number, site)| match &site.place {
            Place::Writes(store) if !site.hangs => Some((number, Arc::clone(store))),
            _ => None,
        });
        let claims: Vec<(usize, Arc<Store>)> = claims.collect();
        if claims.is_empty() {
            return None;
        }
        let right = claims.iter().find(|(site, _)| self.writer == Some(*site));
        match right {
            Some(right) if self.chance.percent(50) => Some(right.clone()),
            _ => Some(self.chance.pick(&claims).clone()),
        }
    }

    /// A node that follows, and that neither hangs nor stops soon.
    fn follower(&mut self) -> Option<usize> {
        let follows =
            |site: &Site| matches!(site.place, Place::Follows(_)) && !site.hangs && !site.is_doomed;
        let sites = 0..self.sites.len();
        let following: Vec<usize> = sites.filter(|site| follows(&self.sites[*site])).collect();
        (!following.is_empty()).then(|| *self.chance.pick(&following))
    }

    /// Duties of a node: it follows the log, or looks whether it still writes it. One that is down starts, and
    /// one takes the log over where no node writes it.
    pub(super) fn tend(&mut self) -> Result<(), String> {
        let site = self.any_site();
        if self.sites[site].hangs {
            return Ok(());
        }
        let steps = self.chance.below(12);
        match &self.sites[site].place {
            Place::Down => self.start(site),
            Place::Writes(_) if self.sites[site].is_refused || self.chance.percent(5) => {
                self.step_down(site);
                Ok(())
            }
            Place::Writes(store) => {
                let ticked = Arc::clone(store).intake().tick();
                self.note(format!("{site} ticks: {ticked:?}"));
                let Err(refusal) = ticked else {
                    return Ok(());
                };
                self.sites[site].is_refused = true;
                self.allow(site, "a tick", &refusal.to_string())
            }
            Place::Follows(_) if self.writer.is_none() && self.chance.percent(60) => {
                self.take_over_by_any()
            }
            Place::Follows(_) => {
                self.note(format!("{site} follows"));
                self.follow(site, |_, step| step < steps).map(drop)
            }
        }
    }

    /// Lets a node follow the log while `goes_on` says so of what it has counted and the number of steps. Returns
    /// whether it read all of the log.
    pub(super) fn follow(
        &mut self,
        site: usize,
        goes_on: impl Fn(Offset, u64) -> bool,
    ) -> Result<bool, String> {
        let Place::Follows(follower) = &mut self.sites[site].place else {
            return Ok(false);
        };
        for step in 0.. {
            if !goes_on(follower.store().live().applied(), step) {
                break;
            }
            match follower.step(Duration::ZERO) {
                Ok(true) => {}
                Ok(false) => return Ok(true),
                Err(error) => {
                    let error = error.to_string();
                    return self.stalled(site, &error).map(|()| false);
                }
            }
        }
        Ok(false)
    }

    /// A node that follows cannot go on.
    fn stalled(&mut self, site: usize, error: &str) -> Result<(), String> {
        self.note(format!("  {site} cannot follow: {error}"));
        if is_left_behind(error) {
            self.die(site);
            return self.start(site);
        }
        self.stats.failures += 1;
        match self.troubled || self.sites[site].is_doomed {
            true => Ok(()),
            false => Err(format!("{site} cannot follow without a fault: {error}")),
        }
    }

    pub(super) fn step_down(&mut self, site: usize) {
        let Place::Writes(store) = &self.sites[site].place else {
            return;
        };
        let follower = Follower::step_down(Arc::clone(store)).expect("BUG: it has the log");
        self.note(format!("{site} steps down"));
        self.sites[site].place = Place::Follows(Box::new(follower));
        self.sites[site].is_refused = false;
        self.writer = self.writer.filter(|writer| *writer != site);
    }

    pub(super) fn start(&mut self, site: usize) -> Result<(), String> {
        let world = self.world(self.sites[site].disk.clone());
        let opened = Follower::open(world, self.options, Arc::new(self.topic.node(site)));
        self.stats.restarts += 1;
        match opened {
            Ok(follower) => {
                let applied = follower.store().live().applied();
                self.note(format!("{site} starts at {applied}"));
                self.sites[site].place = Place::Follows(Box::new(follower));
                Ok(())
            }
            Err(error) => {
                self.note(format!("{site} does not start: {error}"));
                self.stats.refused_starts += 1;
                // It hung until the log had nothing any more that its mirror ends with; the error says what to do.
                if error.to_string().contains("away for too long") {
                    self.sites[site].disk = SimDisk::default();
                    return self.start(site);
                }
                match self.troubled || self.sites[site].is_doomed {
                    true => Ok(()),
                    false => Err(format!("{site} does not start without a fault: {error}")),
                }
            }
        }
    }

    /// A node dies, and starts again from its directory or an empty one, perhaps at once.
    pub(super) fn kill(&mut self) -> Result<(), String> {
        let site = self.any_site();
        let way = self.chance.below(4);
        self.kill_site(site, way);
        match self.chance.percent(60) {
            true => self.start(site),
            false => Ok(()),
        }
    }

    /// A node dies: its directory goes, too (0), power is lost (1), or only the process ends.
    pub(super) fn kill_site(&mut self, site: usize, way: u64) {
        let disk = &self.sites[site].disk;
        let (how, disk) = match way {
            0 => ("and its directory is gone", SimDisk::default()),
            1 => (
                "and loses power",
                disk.crash(&mut random(self.chance.bits())),
            ),
            _ => ("", disk.kill()),
        };
        self.note(format!("{site} is killed {how}"));
        self.sites[site].die_on(disk);
        self.writer = self.writer.filter(|writer| *writer != site);
        self.held.take_if(|(of, _)| *of == site);
    }

    /// A node dies, and keeps its directory.
    pub(super) fn die(&mut self, site: usize) {
        let disk = self.sites[site].disk.kill();
        self.sites[site].die_on(disk);
        self.writer = self.writer.filter(|writer| *writer != site);
    }

    pub(super) fn hang(&mut self, site: usize) {
        self.sites[site].hangs ^= true;
        self.note(format!("{site} hangs: {}", self.sites[site].hangs));
    }

    pub(super) fn take_over_by_any(&mut self) -> Result<(), String> {
        self.follower().map_or(Ok(()), |site| self.take_over(site))
    }

    pub(super) fn take_over(&mut self, site: usize) -> Result<(), String> {
        let place = std::mem::replace(&mut self.sites[site].place, Place::Down);
        let Place::Follows(follower) = place else {
            return Err("BUG: it does not follow".to_owned());
        };
        let owner = self.owner();
        let taken = follower.take_over(owner);
        self.taken(site, taken)
    }

    /// A node took the log over, or tried.
    fn taken(
        &mut self,
        site: usize,
        taken: Result<Arc<Store>, Box<NotTakenOver>>,
    ) -> Result<(), String> {
        match taken {
            Ok(store) => {
                let applied = store.live().applied();
                self.note(format!("{site} took the log over at {applied}"));
                self.stats.take_overs += 1;
                self.sites[site].place = Place::Writes(store);
                self.writer = Some(site);
                Ok(())
            }
            Err(not) => {
                self.note(format!("{site} did not take the log over: {}", not.error));
                self.stats.failures += 1;
                self.sites[site].place = Place::Follows(Box::new(not.follower));
                if is_left_behind(&not.error.to_string()) {
                    self.die(site);
                    return self.start(site);
                }
                match self.troubled || self.race.is_some() || self.sites[site].is_doomed {
                    true => Ok(()),
                    false => Err(format!("not taken over without a fault: {}", not.error)),
                }
            }
        }
    }

    /// A node takes the log over in the middle of what another one does next. False where none follows.
    pub(super) fn begin_race(&mut self) -> Result<bool, String> {
        let Some(site) = self.follower() else {
            return Ok(false);
        };
        let place = std::mem::replace(&mut self.sites[site].place, Place::Down);
        let Place::Follows(follower) = place else {
            return Err("BUG: it does not follow".to_owned());
        };
        let state = Arc::new(Mutex::new(Taking::NotYet(follower)));
        let (taking, owner) = (Arc::clone(&state), self.owner());
        let flushes = self.chance.percent(40);
        let take = move || Race::take(&taking, owner, flushes);
        self.race = Some(Race { site, state });
        match self.chance.percent(50) {
            true => {
                self.note(format!("{site} will take the log over before a message"));
                self.topic.before_next_message(take);
            }
            false => {
                let call = 1 + self.chance.below(30);
                self.note(format!("{site} will take the log over before call {call}"));
                self.objects.before_nth_call(call, take);
            }
        }
        Ok(true)
    }

    /// Ends a race. The node took the log over, or the other one did not come so far.
    pub(super) fn end_race(&mut self) -> Result<(), String> {
        self.topic.before_next_message(|| {});
        self.objects.before_nth_call(u64::MAX / 2, || {});
        let Some(Race { site, state }) = &self.race else {
            return Ok(());
        };
        let (site, state) = (*site, Arc::clone(state));
        let taking = std::mem::replace(
            &mut *state.lock().unwrap_or_else(PoisonError::into_inner),
            Taking::Now,
        );
        let done = match taking {
            Taking::NotYet(follower) => {
                self.sites[site].place = Place::Follows(follower);
                Ok(())
            }
            Taking::Tried(taken) => self.taken(site, *taken),
            Taking::Now => Err(format!("{site} panicked in a take-over")),
        };
        self.race = None;
        done
    }
}

/// True where the place in the log was removed at which a node goes on: a start takes the newest manifest.
fn is_left_behind(error: &str) -> bool {
    error.contains("the topic begins at offset")
}
