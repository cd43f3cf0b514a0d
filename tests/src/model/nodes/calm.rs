//! Checks that hold of a strand always, and the end of all its faults.

use std::collections::BTreeSet;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use tallyring_archive::names::object_key;
use tallyring_archive::{Blobs, Manifest, manifest, verify_run};
use tallyring_realtime::Store;

use super::life::{Place, Site};
use super::strand::Strand;
use crate::sim_disk::SimDisk;
use crate::sim_topic::Way;

impl Strand {
    /// Brings a node up to what was acknowledged by any; none where faults keep it from that.
    pub(super) fn catch_up(&mut self, site: usize) -> Result<Option<Arc<Store>>, String> {
        let after = self.acknowledged;
        self.follow(site, |at, _| at < after)?;
        let Some(store) = self.sites[site].store().map(Arc::clone) else {
            return Ok(None);
        };
        if store.live().applied() >= after {
            return Ok(Some(store));
        }
        match matches!(self.sites[site].place, Place::Follows(_)) && !self.troubled {
            true => Err(format!("{site} does not come to {after} without a fault")),
            false => Ok(None),
        }
    }

    /// Compares after every operation what holds always.
    pub(super) fn check_always(&mut self) -> Result<(), String> {
        for (number, site) in self.sites.iter_mut().enumerate() {
            let Some(applied) = site.store().map(|store| store.live().applied()) else {
                continue;
            };
            if applied < site.seen {
                return Err(format!(
                    "{number} went back from {} to {applied}",
                    site.seen
                ));
            }
            site.seen = applied;
        }
        self.check_objects()
    }

    /// Every object is there that a kept manifest names.
    fn check_objects(&mut self) -> Result<(), String> {
        if self.looked == self.objects.calls() {
            return Ok(());
        }
        self.looked = self.objects.calls();
        let (there, blobs) = self.blobs();
        let wrong = |error: tallyring_archive::Error| error.to_string();
        let numbers = manifest::numbers(&blobs).map_err(wrong)?;
        self.named.retain(|number, _| numbers.contains(number));
        for number in numbers {
            if let Entry::Vacant(unread) = self.named.entry(number) {
                let manifest = Manifest::load_number(&blobs, number).map_err(wrong)?;
                let files = manifest.files();
                unread.insert(files.filter_map(|file| object_key(&file.name)).collect());
            }
            let missing = self.named[&number].iter().find(|key| !there.contains(*key));
            if let Some(missing) = missing {
                return Err(format!(
                    "manifest {number} names {missing}, which is missing"
                ));
            }
        }
        Ok(())
    }

    /// The keys of all objects, and the blobs as they are.
    fn blobs(&self) -> (BTreeSet<String>, Blobs) {
        let objects = self.objects.copy();
        let there = objects.keys().into_iter().collect();
        let blobs = Blobs::over(Arc::new(SimDisk::default()), Arc::new(objects));
        (there, blobs)
    }

    /// Ends all faults.
    pub(super) fn settle(&mut self) {
        self.note("all is calm".to_owned());
        self.topic.ways([Way::Told; 0]);
        self.topic.settle();
        self.objects.settle();
    }

    /// Lets every node do what it has to: then all of them have everything.
    pub(super) fn calm(&mut self) -> Result<(), String> {
        let sites = 0..self.sites.len();
        for site in sites.clone() {
            self.topic.node(site).cut_off(false);
            self.sites[site].hangs = false;
            if self.sites[site].is_doomed {
                self.die(site);
            }
        }
        for site in sites.clone() {
            self.learn_part(site)?;
        }
        self.troubled = false;
        for site in sites.clone() {
            if matches!(self.sites[site].place, Place::Down) {
                self.start(site)?;
            }
        }
        if self.writer.is_none() {
            let site = self.any_site();
            self.take_over(site)?;
        }
        self.follow_all()
    }

    /// Every node counts the log up to its end.
    pub(super) fn follow_all(&mut self) -> Result<(), String> {
        for site in 0..self.sites.len() {
            self.follow(site, |_, _| true)?;
        }
        Ok(())
    }

    /// A node looks whether it writes the log. One that was deposed learns it, and follows.
    fn learn_part(&mut self, site: usize) -> Result<(), String> {
        let Place::Writes(store) = &self.sites[site].place else {
            return Ok(());
        };
        let ticked = Arc::clone(store).intake().tick();
        match ticked {
            Ok(()) if self.writer == Some(site) => Ok(()),
            Ok(()) => Err(format!("{site} does not learn that it was deposed")),
            Err(refusal) => {
                self.allow(site, "a look", &refusal.to_string())?;
                self.step_down(site);
                Ok(())
            }
        }
    }

    /// The store of a node that has all API keys and all that was acknowledged, when all is calm.
    pub(super) fn whole(&self, site: usize) -> Result<&Arc<Store>, String> {
        let store = self.sites[site].store().ok_or("BUG: it is down")?;
        if store.live().applied() < self.acknowledged {
            return Err(format!("{site} is behind although all is calm"));
        }
        let found = store.intake().keys();
        for (key, is_sure) in self.keys.values() {
            let is_there = found.contains(key);
            if *is_sure && !is_there {
                return Err(format!("{site} lacks the API key {}", key.id));
            }
        }
        let known = |id: &str| self.keys.contains_key(id);
        match found.iter().find(|key| !known(&key.id)) {
            Some(key) => Err(format!("{site} has the API key {}", key.id)),
            None => Ok(store),
        }
    }

    /// One more node, which is new. Returns its number.
    pub(super) fn add_site(&mut self) -> Result<usize, String> {
        let site = self.sites.len();
        self.sites.push(Site::new());
        self.start(site)?;
        Ok(site)
    }

    /// All objects that the manifest of a node names are whole.
    pub(super) fn verify(&self, site: usize) -> Result<(), String> {
        let (_, blobs) = self.blobs();
        blobs.prepare().map_err(|error| error.to_string())?;
        let store = self.sites[site].store().ok_or("BUG: it is down")?;
        for entry in store.manifest().files() {
            verify_run(&blobs, entry).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}
