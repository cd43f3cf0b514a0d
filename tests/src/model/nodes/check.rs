//! Comparisons of nodes with the model and with each other, and of manifests with the objects.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tallyring_archive::names::object_key;
use tallyring_archive::{Blobs, Manifest, manifest, verify_run};
use tallyring_realtime::{Read, Store};

use super::commit::is_marked;
use super::life::{Place, Site};
use super::{Nodes, clicks};
use crate::answers::{answers, difference};
use crate::model::book::{Book, Wrong};
use crate::model::check::{all_reads, whole};
use crate::model::naive::cells;
use crate::sim_disk::SimDisk;
use crate::sim_topic::Way;

/// Positions whose answers are remembered, at most.
const ANSWERED_MAX: usize = 6;

/// Answers of a node, and what it was asked.
pub(super) struct Answered {
    now: i64,
    ids: Vec<String>,
    manifest: u64,
    answers: BTreeMap<String, String>,
}

impl Nodes {
    /// Reads on a node: with the position of the last acknowledgement, or wherever the node is.
    pub(super) fn read(&mut self) -> Result<(), String> {
        let site = self.any_site();
        if self.chance.percent(30) && self.sites[site].answers() {
            // Another node was there already.
            let wanted: Vec<u64> = self.answered.keys().copied().collect();
            self.follow(site, |at, _| {
                wanted.iter().all(|there| at.sequence != *there)
            })?;
            return self.check_alike(site);
        }
        self.read_here(site)?;
        match self.chance.percent(30) {
            true => self.check_alike(site),
            false => Ok(()),
        }
    }

    /// Reads on a node what was acknowledged by any: it counts that, or does not answer.
    pub(super) fn read_here(&mut self, site: usize) -> Result<(), String> {
        let after = self.acknowledged;
        if !self.sites[site].answers() {
            return Ok(());
        }
        self.follow(site, |at, _| at < after)?;
        let Some(store) = self.sites[site].store().map(Arc::clone) else {
            return Ok(());
        };
        if store.live().applied() < after {
            let follows = matches!(self.sites[site].place, Place::Follows(_));
            return match follows && !self.troubled {
                true => Err(format!("{site} does not come to {after} without a fault")),
                false => Ok(()),
            };
        }
        let keys = self.naive.all.keys();
        if keys.is_empty() {
            return Ok(());
        }
        let mut reads = Vec::new();
        for _ in 0..4 {
            let (name, key) = self.chance.pick(&keys).clone();
            let subtotals = crate::model::Driver::subtotals(&name);
            let subtotal = match subtotals.is_empty() {
                true => None,
                false => Some(self.chance.pick(subtotals).clone()),
            };
            reads.push(whole(&name, &key, subtotal));
        }
        self.check_reads(site, &store, Some(&reads[..]))
    }

    /// Compares reads of a node that has counted all that was acknowledged, or of all keys. Batches may count that were
    /// not acknowledged: whole, or not at all.
    fn check_reads(
        &self,
        site: usize,
        store: &Store,
        reads: Option<&[Read]>,
    ) -> Result<(), String> {
        let mut book = None;
        let mut marks = BTreeSet::new();
        for sent in &self.pending {
            let mark = sent.mark.as_deref().unwrap_or_default();
            let is_new = self.naive.all.keys().iter().all(|(_, key)| key != mark);
            if !is_new || !is_marked(store, mark)? || !marks.insert(mark) {
                continue;
            }
            let schema = clicks::schema(0);
            let counted = sent.counted.as_ref();
            let counted = counted.ok_or("a batch counts above the largest count")?;
            let book: &mut Book = book.get_or_insert_with(|| self.naive.all.clone());
            for (_, increment) in &counted.increments {
                let cells = cells(schema, increment);
                cells.iter().for_each(|cell| book.add(cell, increment.n));
            }
        }
        let is_exact = book.is_none();
        let book = book.as_ref().unwrap_or(&self.naive.all);
        let every = match reads {
            Some(_) => Vec::new(),
            None => all_reads(book),
        };
        let reads = reads.unwrap_or(&every);
        self.compared.set(self.compared.get() + reads.len() as u64);
        let at = |wrong: String| format!("node {site} at {}: {wrong}", store.live().applied());
        let checked = book.check(store, reads, None).map_err(Wrong::text);
        checked.map_err(at)?;
        let oracle = &self.naive.actions;
        if is_exact && !every.is_empty() && !oracle.is_empty() {
            let users = clicks::users();
            let checked = oracle.check(&store.view(), &users, &oracle.span(), i64::MIN);
            checked.map(drop).map_err(at)?;
        }
        Ok(())
    }

    /// Nodes at one position of the log answer alike.
    fn check_alike(&mut self, site: usize) -> Result<(), String> {
        let answers_now = self.sites[site].answers();
        let store = self.sites[site].store().filter(|_| answers_now);
        let Some(store) = store.map(Arc::clone) else {
            return Ok(());
        };
        let (at, manifest) = (store.live().applied().sequence, store.manifest().number);
        if let Some(before) = self.answered.get(&at) {
            let mut answers = answers(&store, before.now, &before.ids);
            let mut expected = before.answers.clone();
            if before.manifest != manifest {
                // A manifest counts before its note: what it has exported is in delta stores of one of the two only.
                let of_files = ["manifest", "store ", "id "];
                let is_of_counts =
                    |what: &String| !of_files.iter().any(|start| what.starts_with(start));
                answers.retain(|what, _| is_of_counts(what));
                expected.retain(|what, _| is_of_counts(what));
            }
            self.compared
                .set(self.compared.get() + answers.len() as u64);
            return match difference(&expected, &answers) {
                None => Ok(()),
                Some(what) => Err(format!(
                    "{site} at {at} answers otherwise than another: {what}"
                )),
            };
        }
        let ids = self.naive.ids.iter();
        let young = ids.filter(|(_, id)| id.is_within(super::MARGIN_MS));
        let ids: Vec<String> = young.map(|(id, _)| id.clone()).take(9).collect();
        let now = self.now_ms.div_euclid(1_000);
        let answered = Answered {
            answers: answers(&store, now, &ids),
            now,
            ids,
            manifest,
        };
        self.answered.insert(at, answered);
        if self.answered.len() > ANSWERED_MAX {
            self.answered.pop_first();
        }
        Ok(())
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

    /// Ends all faults, and lets every node do what it has to: then all of them have everything.
    pub(super) fn calm(&mut self) -> Result<(), String> {
        self.note("all is calm".to_owned());
        self.topic.ways([Way::Told; 0]);
        self.topic.settle();
        self.objects.settle();
        self.pass(2_000);
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
        for site in sites.clone() {
            self.follow(site, |_, _| true)?;
        }
        for site in sites {
            self.check_whole(site)?;
            self.check_alike(site)?;
        }
        self.check_always()
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

    /// Compares all that a node counts, which is all there is.
    fn check_whole(&self, site: usize) -> Result<(), String> {
        let store = self.sites[site].store();
        let store = store.ok_or("BUG: it is down")?;
        if store.live().applied() < self.acknowledged {
            return Err(format!("{site} is behind although all is calm"));
        }
        self.check_reads(site, store, None)?;
        for mark in &self.void {
            if is_marked(store, mark)? {
                return Err(format!("{mark} counts at {site}, and did not before"));
            }
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
            None => Ok(()),
        }
    }

    /// A node that is new has everything, from the objects and the topic; and all objects are whole.
    pub(super) fn check_new_node(&mut self) -> Result<(), String> {
        let site = self.sites.len();
        self.sites.push(Site::new());
        self.start(site)?;
        self.check_whole(site)?;
        self.check_alike(site)?;
        let (_, blobs) = self.blobs();
        blobs.prepare().map_err(|error| error.to_string())?;
        let store = self.sites[site].store();
        let manifest = store.ok_or("BUG: it is down")?.manifest();
        for entry in manifest.files() {
            verify_run(&blobs, entry).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}
