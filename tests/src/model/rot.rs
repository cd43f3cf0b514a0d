//! Files that are harmed at rest at the end of a run.

use tallyring_archive::{Disk, names};
use tallyring_realtime::{Batch, Error, Store};

use super::book::Wrong;
use super::check::all_reads;
use super::commit::parts_of;
use super::{Driver, clicks};
use crate::sim_disk::SECTOR_BYTES;

/// Files that rot, one after the other.
const HARMED: u64 = 6;
/// Known ids that are sent again after each.
const SENT_AGAIN: usize = 12;

impl Driver {
    /// A file is harmed at rest, and then another instead: an answer is right or an error, never another number.
    pub(super) fn rot(&mut self) -> Result<(), String> {
        let manifest = self.store().manifest();
        let mut files: Vec<String> = manifest.files().map(|entry| entry.name.clone()).collect();
        files.push(names::IDENTITY.to_owned());
        files.push(names::manifest(manifest.number));
        self.store = None;
        let whole = self.disk.clone();
        self.disk = whole.crash(&mut || self.chance.bits());
        self.lose_manifest(manifest.number)?;
        for _ in 0..HARMED {
            self.disk = whole.crash(&mut || self.chance.bits());
            self.harm(&files);
            let Ok(view) = Store::open_read_only(self.world(), self.options) else {
                self.stats.refused_starts += 1;
                continue;
            };
            for read in all_reads(&self.naive.all) {
                if let Err(Wrong::Differs(text)) = self.check_store(&view, &[read], None) {
                    return Err(format!("a rotten bit is answered: {text}"));
                }
            }
            drop(view);
            self.send_known_again()?;
        }
        Ok(())
    }

    /// The newest manifest is lost. Where the log names it, a start is refused and changes nothing; where the one
    /// before is whole, an operator may go on from there.
    fn lose_manifest(&mut self, newest: u64) -> Result<(), String> {
        let name = names::manifest(newest);
        self.note(format!("{name} is lost"));
        let told = |error: &dyn std::fmt::Display| error.to_string();
        self.disk.remove(&name).map_err(|error| told(&error))?;
        let is_limited = self.options.oplog_bytes_max < u64::MAX;
        self.options.oplog_bytes_max = u64::MAX;
        if newest == 1 || self.full || is_limited {
            // The first one has no note, and a full disk or log may have no room for any.
            return Ok(());
        }
        if !matches!(Store::stepped_back(&self.disk.blobs()), Ok(Some(_))) {
            return Err(format!("{name} is lost and the log does not tell"));
        }
        let before = self.disk.files();
        let schema = clicks::schema(self.schema);
        let open = || Store::open(self.world(), self.options, schema.clone());
        for _ in 0..2 {
            match open() {
                Err(Error::SteppedBack(_)) => {}
                Err(error) => return Err(format!("the loss of {name} is told as: {error}")),
                Ok(_) => return Err(format!("{name} is lost and nobody notices")),
            }
        }
        if self.disk.files() != before {
            return Err("a start that was refused changed files".to_owned());
        }
        if Store::go_on_from_newest(self.world(), self.options).is_ok() {
            open().map_err(|error| format!("it does not go on from before {name}: {error}"))?;
        }
        self.stats.refused_starts += 1;
        Ok(())
    }

    /// A known id is a duplicate or cannot be looked up: it is never new.
    fn send_known_again(&mut self) -> Result<(), String> {
        let schema = clicks::schema(self.schema);
        let Ok((store, _)) = Store::open(self.world(), self.options, schema.clone()) else {
            return Ok(());
        };
        let now = self.now_ms.div_euclid(1_000);
        let mut known: Vec<String> = self.naive.ids.keys().cloned().collect();
        known.retain(|id| !self.is_stale(id));
        for _ in 0..SENT_AGAIN.min(known.len()) {
            let id = self.chance.pick(&known).clone();
            let mut again = clicks::plain(&mut self.chance, schema, now);
            let (identity, text) = parts_of(&id);
            again.id = Some(text.to_owned());
            let batch = Batch {
                identity,
                increments: vec![again],
                ..Batch::default()
            };
            for outcome in store.intake().commit(vec![batch]) {
                if outcome.is_ok_and(|found| found.duplicates == 0) {
                    return Err(format!("{id} is known, but counts as new"));
                }
            }
        }
        Ok(())
    }

    /// Harms one of these files; often the last one, which tells what all others are.
    fn harm(&mut self, files: &[String]) {
        let file = match files.last() {
            Some(last) if self.chance.percent(30) => last.clone(),
            _ => self.chance.pick(files).clone(),
        };
        let sizes = self.disk.files();
        let size = sizes.iter().find(|(name, _)| *name == file);
        let &(_, bytes) = size.expect("BUG: what a manifest names is there");
        let small = |number: u64| usize::try_from(number).expect("BUG: a small file");
        let place = self.chance.below(bytes * 8);
        match self.chance.below(4) {
            0 => {
                self.note(format!("{file} ends after {} bytes", place / 8));
                self.disk.truncate(&file, small(place / 8));
            }
            1 => {
                let other = self.chance.pick(files).clone();
                let sector = small(place / 8) / SECTOR_BYTES;
                self.note(format!("sector {sector} of {file} lands in {other}"));
                self.disk.misdirect(&file, sector, &other);
            }
            2 => {
                let other = self.chance.pick(files).clone();
                self.note(format!("{file} lands in the place of {other}"));
                self.disk.misplace(&file, &other);
            }
            _ => {
                self.note(format!("bit {place} of {file} rots"));
                self.disk.flip_bit(&file, small(place));
            }
        }
        self.stats.harmed += 1;
    }
}
