//! Comparisons of nodes with the model and with each other.

use std::collections::BTreeSet;
use std::sync::Arc;

use tallyring_realtime::{Read, Store, Stores};

use super::commit::is_marked;
use super::{Nodes, clicks};
use crate::model::Driver;
use crate::model::book::{Book, Wrong};
use crate::model::chance::Chance;
use crate::model::check::{all_reads, whole};
use crate::model::naive::cells;

impl Nodes {
    /// Reads on a node: with the position of the last acknowledgement, or wherever the node is.
    pub(super) fn read(&mut self) -> Result<(), String> {
        let strand = &mut self.strand;
        let site = strand.any_site();
        if strand.chance.percent(30) && strand.sites[site].answers() {
            // Another node was there already.
            let wanted = self.alike.positions();
            strand.follow(site, |at, _| {
                wanted.iter().all(|there| *there != [at.sequence])
            })?;
            return self.check_alike(site);
        }
        self.read_here(site)?;
        match self.strand.chance.percent(30) {
            true => self.check_alike(site),
            false => Ok(()),
        }
    }

    /// Reads on a node what was acknowledged by any: it counts that, or does not answer.
    pub(super) fn read_here(&mut self, site: usize) -> Result<(), String> {
        if !self.strand.sites[site].answers() {
            return Ok(());
        }
        let Some(store) = self.strand.catch_up(site)? else {
            return Ok(());
        };
        let keys = self.naive.all.keys();
        if keys.is_empty() {
            return Ok(());
        }
        let reads = some_reads(&mut self.strand.chance, &keys);
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
            if !is_new || !is_marked(&store.view(), mark)? || !marks.insert(mark) {
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
        let checked = book
            .check(None, &store.view(), reads, None)
            .map_err(Wrong::text);
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
        let strand = &self.strand;
        let answers_now = strand.sites[site].answers();
        let store = strand.sites[site].store().filter(|_| answers_now);
        let Some(store) = store.map(Arc::clone) else {
            return Ok(());
        };
        let now = strand.now_ms().div_euclid(1_000);
        let stores = Stores::new(vec![store]);
        let compared = self.alike.check(&stores, &self.naive, now);
        let compared = compared.map_err(|wrong| format!("{site}: {wrong}"))?;
        self.compared.set(self.compared.get() + compared);
        Ok(())
    }

    /// Ends all faults, and lets every node do what it has to: then all of them have everything.
    pub(super) fn calm(&mut self) -> Result<(), String> {
        self.strand.settle();
        self.pass(2_000);
        self.strand.calm()?;
        self.resolve()?;
        for site in 0..self.strand.sites.len() {
            self.check_whole(site)?;
            self.check_alike(site)?;
        }
        self.strand.check_always()
    }

    /// Compares all that a node counts, which is all there is.
    fn check_whole(&self, site: usize) -> Result<(), String> {
        let store = self.strand.whole(site)?;
        self.check_reads(site, store, None)?;
        for mark in &self.void {
            if is_marked(&store.view(), mark)? {
                return Err(format!("{mark} counts at {site}, and did not before"));
            }
        }
        Ok(())
    }

    /// A node that is new has everything, from the objects and the topic; and all objects are whole.
    pub(super) fn check_new_node(&mut self) -> Result<(), String> {
        let site = self.strand.add_site()?;
        self.check_whole(site)?;
        self.check_alike(site)?;
        self.strand.verify(site)
    }
}

/// Some reads of all time, of any of these keys.
pub(super) fn some_reads(chance: &mut Chance, keys: &[(String, String)]) -> Vec<Read> {
    let read = |_| {
        let (name, key) = chance.pick(keys).clone();
        let subtotals = Driver::subtotals(&name);
        let subtotal = match subtotals.is_empty() {
            true => None,
            false => Some(chance.pick(subtotals).clone()),
        };
        whole(&name, &key, subtotal)
    };
    (0..4).map(read).collect()
}
