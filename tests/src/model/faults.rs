//! Faults and restarts: calls that fail, a full disk, killed processes, lost power, rotten bits.

use std::io::ErrorKind;

use tallyring_archive::{Build, Manifest};
use tallyring_realtime::{Error, Read, Store, World};
use tallyring_records::Counts;

use super::chance::world;
use super::check::whole;
use super::datasets::wanted_of;
use super::generations::number_of;
use super::naive::IdState;
use super::{Driver, clicks};

/// Bytes that are free on a disk that is not full.
const FREE_BYTES: u64 = 1 << 40;

impl Driver {
    /// Lets one of the next calls fail.
    pub(super) fn set_fault(&mut self) {
        if self.fault_at.is_some() {
            return;
        }
        let call = 1 + self.chance.below(40);
        let kind = *self
            .chance
            .pick(&[ErrorKind::Other, ErrorKind::StorageFull]);
        self.fault_at = Some(self.disk.calls() + call);
        self.note(format!("call {call} from now fails: {kind:?}"));
        self.disk.fail_nth_call(call, kind);
        self.stats.faults += 1;
    }

    /// Lets the disk stop at one of the next calls: what follows is a crash.
    pub(super) fn set_stop(&mut self) {
        let call = 1 + self.chance.below(60);
        let at = self.disk.calls() + call;
        self.fault_at = Some(self.fault_at.map_or(at, |earlier| earlier.min(at)));
        self.note(format!("the disk stops at call {call} from now"));
        self.disk.stop_at_nth_call(call);
        self.stats.faults += 1;
    }

    /// Takes or gives the disk's free space.
    pub(super) fn toggle_full(&mut self) {
        self.full = !self.full;
        let free = if self.full {
            self.chance.below(20_000)
        } else {
            FREE_BYTES
        };
        self.note(format!("{free} bytes are free"));
        self.disk.set_free_bytes(free);
    }

    /// The process ends, or power is lost; then the store is opened again, until that works.
    pub(super) fn reopen(&mut self) -> Result<(), String> {
        let mut uncertain = self.is_troubled();
        if let Some(store) = &self.store {
            let durable = store.status().durable.sequence;
            self.unsynced.retain(|(end, _)| *end > durable);
        }
        self.draw_options();
        let mut power_lost = false;
        for attempt in 0.. {
            self.store = None;
            let lost = self.chance.percent(60);
            power_lost |= lost;
            let end = if lost { "power is lost" } else { "killed" };
            self.note(end.to_owned());
            self.disk = if lost {
                self.disk.crash(&mut || self.chance.bits())
            } else {
                self.disk.kill()
            };
            self.end_copy(lost);
            self.fault_at = None;
            if self.full && (attempt > 0 || self.chance.percent(50)) {
                self.toggle_full();
            }
            if attempt < 3 && self.chance.percent(15) {
                if self.chance.percent(50) {
                    self.set_fault();
                } else {
                    self.set_stop();
                }
            }
            if self.open()? {
                break;
            }
            uncertain = true;
        }
        self.stats.restarts += 1;
        self.stats.power_losses += u64::from(power_lost);
        self.settle(power_lost, uncertain)
    }

    fn draw_options(&mut self) {
        if self.chance.percent(25) {
            self.options.shards = 1 + u16::try_from(self.chance.below(5)).expect("BUG: below 5");
        }
        if self.schema + 1 < clicks::SCHEMAS && self.chance.percent(15) {
            self.schema += 1;
        }
        self.note(format!(
            "{} shards, schema {}",
            self.options.shards, self.schema
        ));
    }

    pub(super) fn world(&self) -> World {
        world(self.disk.clone(), self.clock.clone())
    }

    /// Opens the store; false when a fault prevented it. A view opened for reading only before
    /// must show the same.
    pub(super) fn open(&mut self) -> Result<bool, String> {
        let view = (self.fault_at.is_none() && self.chance.percent(30))
            .then(|| Store::open_read_only(self.world(), self.options));
        let opened = self.open_copy().and_then(|copy| {
            self.store_lists()?;
            let schema = clicks::schema(self.schema);
            let (store, recovery) = Store::open(self.world(), self.options, schema.clone())?;
            let store = match copy {
                Some(copy) => store.with_log_copy(copy),
                None => store,
            };
            Ok((store, recovery))
        });
        self.troubled = false;
        match opened {
            Ok((store, recovery)) => {
                self.stats.replayed += recovery.replayed;
                self.note(format!("opened: {recovery:?}"));
                self.store = Some(store);
            }
            Err(error) => {
                let error = error.to_string();
                self.allow("opening", &error)?;
                if self.is_log_full(&error) {
                    // The error says so.
                    self.options.oplog_bytes_max *= 2;
                }
                return Ok(false);
            }
        }
        let Some(view) = view else {
            return Ok(true);
        };
        match view {
            Ok(view) => self.compare_view(&view).map(|()| true),
            // A directory that holds no store yet cannot be opened so.
            Err(_) if self.naive.all.is_empty() => Ok(true),
            Err(error) => Err(format!("it opens, but not for reading only: {error}")),
        }
    }

    /// The view saw what the store sees, before anything is settled.
    fn compare_view(&self, view: &Store) -> Result<(), String> {
        let keys = self.naive.all.keys().into_iter();
        let reads: Vec<Read> = keys.map(|(name, key)| whole(&name, &key, None)).collect();
        self.compared.set(self.compared.get() + reads.len() as u64);
        let [before, after] = [view, self.store()].map(|store| {
            let reader = store.view();
            let totals = reads.iter().map(|read| Ok(reader.read(read, None)?.totals));
            let totals: Result<Vec<Counts>, Error> = totals.collect();
            totals.map_err(|error| error.to_string())
        });
        if before? == after? {
            return Ok(());
        }
        Err("the store opened for reading only showed other counts".to_owned())
    }

    /// Learns from the open store what no answer told, and checks everything.
    fn settle(&mut self, power_lost: bool, uncertain: bool) -> Result<(), String> {
        let schema = clicks::schema(self.schema);
        self.follow_start(uncertain)?;
        let mut lost = false;
        for (_, batch) in std::mem::take(&mut self.unsynced) {
            if self.is_marked(&batch.mark)? {
                if lost {
                    return Err(format!("{} is there, an earlier one is lost", batch.mark));
                }
                continue;
            }
            if !power_lost {
                return Err(format!("{} is lost without a loss of power", batch.mark));
            }
            lost = true;
            self.note(format!("  {} is lost", batch.mark));
            let declared = clicks::schema(batch.counted.schema);
            self.naive.retract(declared, &batch.counted);
            if let Some(key) = &batch.key {
                self.naive.batches.remove(key);
                self.keyed.remove(key);
            }
        }
        for batch in std::mem::take(&mut self.pending) {
            if !self.is_marked(&batch.mark)? {
                continue;
            }
            self.stats.lost_replies += 1;
            self.note(format!("  {} is counted", batch.mark));
            let declared = batch.counted.schema;
            // Which store takes what was decided when it was written.
            let ring = std::mem::replace(&mut self.naive.ring, batch.ring);
            self.naive.log_end = batch.counted.sequence_min;
            let schema = clicks::schema(declared);
            let staged = self.naive.stage(schema, declared, &batch.increments);
            self.naive.ring = ring;
            let counted = staged.ok_or("a batch is counted that is above the largest count")?;
            let accepted = counted.accepted();
            let known = IdState {
                moved_ms: batch.moved_ms,
                ..IdState::new(batch.arrived_ms)
            };
            self.naive.apply(clicks::schema(declared), &counted, known);
            if let Some(key) = &batch.key {
                self.remember(key, &batch.increments, accepted, known);
            }
        }
        self.naive.age(self.now_ms, 0);
        if self.store().schema().as_ref() != schema {
            return Err("another schema is in force".to_owned());
        }
        self.forget_load("");
        self.check_files()?;
        self.verify()?;
        self.check_all()
    }

    /// The ring and the generations after a start: as they were, unless a fault left that open.
    fn follow_start(&mut self, uncertain: bool) -> Result<(), String> {
        if uncertain {
            let manifest = self.store().manifest();
            if let Some(made) = self.attempted.take()
                && manifest.number > made.build.base
                && !self.is_known(&made.build)
                && is_published(&manifest, &made.build)
            {
                let number = number_of(&made.build);
                self.note(format!("  generation {number:?} is published"));
                self.follow_publication(&made);
            }
            self.naive.read_from(manifest.archive.active);
            self.naive.wanted = wanted_of(&manifest);
            let status = self.store().status();
            if self.naive.today != Some(status.today) {
                self.naive.rotate(status.today);
            }
            let stores = status.stores.iter();
            self.naive.ring = stores.map(|store| (store.id, store.cut)).collect();
        }
        self.attempted = None;
        if let Some(fixed) = self.attempted_fix.take()
            && fixed.is_in(&self.store().manifest())
        {
            self.note(format!("  the fix of {} is published", fixed.day));
            self.naive.fix(&fixed);
        }
        self.check_generations()?;
        self.follow_ring()
    }

    /// Another build had its number before, so that it can only be refused.
    fn is_known(&self, build: &Build) -> bool {
        number_of(build).is_some_and(|number| self.naive.generations.contains_key(&number))
    }

    fn is_marked(&self, mark: &str) -> Result<bool, String> {
        let mark = whole(clicks::MARKS, mark, None);
        let series = self.store().view().read(&mark, None);
        match series.map_err(|error| error.to_string())?.totals.sum() {
            0 => Ok(false),
            1 => Ok(true),
            count => Err(format!("{} is counted {count} times", mark.key)),
        }
    }
}

/// The exported store is cleared, so its generation is there.
fn is_published(manifest: &Manifest, build: &Build) -> bool {
    match number_of(build) {
        Some(number) => manifest.archive.generation(number).is_some(),
        None => build
            .exported
            .iter()
            .all(|id| manifest.intake.stores.iter().all(|store| store.id != *id)),
    }
}
