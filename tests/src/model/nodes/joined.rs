//! Comparisons of what all strands of a node say together with the model, and with other nodes.

use std::sync::Arc;

use tallyring_realtime::{Clock, Read, Stores};

use super::alike::{each, retain_counts};
use super::check::some_reads;
use super::commit::is_marked;
use super::divided::{Divided, Waiting};
use super::strand::Strand;
use super::{MARGIN_MS, clicks};
use crate::answers::{answers, difference};
use crate::model::book::{Book, Wrong};
use crate::model::check::all_reads;
use crate::model::naive::cells;

/// Ids that are asked for at once.
const IDS: usize = 3;
/// Marks of what never counts, which are looked for.
const VOID_MAX: usize = 50;

impl Divided {
    /// The stores of a node; none where one of them does not answer.
    pub(super) fn joined(&self, site: usize) -> Option<Stores> {
        let sites = self.strands.iter().map(|strand| &strand.sites[site]);
        let stores = sites.map(|site| site.store().filter(|_| site.answers()));
        let stores: Option<Vec<_>> = stores.map(|store| store.map(Arc::clone)).collect();
        stores.map(Stores::new)
    }

    /// Reads on a node what was acknowledged by any, or what it answers where another node was.
    pub(super) fn read(&mut self) -> Result<(), String> {
        let site = self.strands[0].any_site();
        if self.joined(site).is_none() {
            return Ok(());
        }
        let positions = self.alike.positions();
        if self.chance.percent(30) && !positions.is_empty() {
            let wanted = self.chance.pick(&positions).clone();
            for (strand, there) in self.strands.iter_mut().zip(wanted) {
                strand.follow(site, |at, _| at.sequence < there)?;
            }
            return self.check_alike(site);
        }
        for strand in &mut self.strands {
            if strand.catch_up(site)?.is_none() {
                return Ok(());
            }
        }
        let Some(stores) = self.joined(site) else {
            return Ok(());
        };
        let keys = self.naive.all.keys();
        if keys.is_empty() {
            return Ok(());
        }
        let reads = some_reads(&mut self.chance, &keys);
        self.check_reads(site, &stores, Some(&reads))
    }

    /// Counts with those of all batches that were not answered; none where all were.
    fn most(&self) -> Option<Book> {
        if self.waiting.is_empty() {
            return None;
        }
        let schema = clicks::schema(0);
        let mut most = self.naive.all.clone();
        for sent in &self.waiting {
            let counted = self.naive.stage(schema, 0, &sent.increments);
            let counted = counted.expect("BUG: counts are small");
            for (_, increment) in &counted.increments {
                let cells = cells(schema, increment);
                cells.iter().for_each(|cell| most.add(cell, increment.n));
            }
        }
        Some(most)
    }

    /// Compares reads of a node that has counted all that was acknowledged, or of all keys. Nothing that was
    /// acknowledged is missing, and what was not counts once at most.
    fn check_reads(
        &mut self,
        site: usize,
        stores: &Stores,
        reads: Option<&[Read]>,
    ) -> Result<(), String> {
        let view = stores.view();
        let at = |wrong: String| format!("node {site} at {}: {wrong}", stores.position());
        let least = &self.naive.all;
        let every = match reads {
            Some(_) => Vec::new(),
            None => all_reads(least),
        };
        let reads = reads.unwrap_or(&every);
        self.stats.reads += reads.len() as u64;
        let checked = least.check(self.most().as_ref(), &view, reads, None);
        checked.map_err(Wrong::text).map_err(at)?;
        let oracle = &self.naive.actions;
        if self.waiting.is_empty() && !every.is_empty() && !oracle.is_empty() {
            let users = clicks::users();
            let checked = oracle.check(&view, &users, &oracle.span(), i64::MIN);
            checked.map(drop).map_err(at)?;
        }
        Ok(())
    }

    /// Nodes at one position of all logs answer alike.
    fn check_alike(&mut self, site: usize) -> Result<(), String> {
        let Some(stores) = self.joined(site) else {
            return Ok(());
        };
        let now = self.clock.now_ms().div_euclid(1_000);
        let compared = self.alike.check(&stores, &self.naive, now);
        let compared = compared.map_err(|wrong| format!("{site}: {wrong}"))?;
        self.stats.reads += compared;
        Ok(())
    }

    /// The writer of a strand does something by which no answer of its node changes.
    pub(super) fn unchanged(
        &mut self,
        strand: usize,
        does: impl Fn(&mut Strand) -> Result<(), String>,
    ) -> Result<(), String> {
        let looks = self.chance.percent(25);
        let writer = self.strands[strand].writer.filter(|_| looks);
        let Some(stores) = writer.and_then(|site| self.joined(site)) else {
            return does(&mut self.strands[strand]);
        };
        let now = self.clock.now_ms().div_euclid(1_000);
        let counts = || {
            let mut answers = answers(&each(&stores), now, &[]);
            retain_counts(&mut answers);
            // A cut turns the ring.
            answers.remove("today");
            answers
        };
        let before = counts();
        does(&mut self.strands[strand])?;
        let after = counts();
        self.stats.reads += after.len() as u64;
        match difference(&before, &after) {
            None => Ok(()),
            Some(what) => Err(format!("strand {strand} was flushed, and {what}")),
        }
    }

    /// Ends all faults, and lets every client have its answer: then every node has exactly what the model counts.
    pub(super) fn calm(&mut self) -> Result<(), String> {
        self.strands.iter_mut().for_each(Strand::settle);
        self.pass(2_000);
        self.strands.iter_mut().try_for_each(Strand::calm)?;
        self.is_calm = true;
        let stores = self.joined(0).ok_or("node 0 is not whole")?;
        for sent in std::mem::take(&mut self.waiting) {
            self.answer(&stores, sent)?;
        }
        self.is_calm = false;
        self.strands.iter_mut().try_for_each(Strand::follow_all)?;
        for site in 0..self.strands[0].sites.len() {
            self.check_whole(site)?;
            self.check_alike(site)?;
        }
        self.strands.iter_mut().try_for_each(Strand::check_always)
    }

    /// Lets a client try again until it is answered. Where a batch must not be sent again as it is, its mark tells
    /// whether its rest counts: then all of it does.
    fn answer(&mut self, stores: &Stores, mut sent: Waiting) -> Result<(), String> {
        if let Some(mark) = sent.mark.take() {
            if is_marked(&stores.view(), &mark)? {
                self.note(format!("  {mark} counts"));
                self.counts(&sent);
                return Ok(());
            }
            self.void.push(mark);
            let surplus = self.void.len().saturating_sub(VOID_MAX);
            self.void.drain(..surplus);
            sent.increments.retain(|increment| increment.id.is_some());
        }
        match sent.increments.is_empty() {
            true => Ok(()),
            false => self.submit(stores, sent),
        }
    }

    /// Compares all that a node counts, which is all there is.
    fn check_whole(&mut self, site: usize) -> Result<(), String> {
        for strand in &self.strands {
            strand.whole(site)?;
        }
        let stores = self.joined(site).ok_or("a node is not whole")?;
        self.check_reads(site, &stores, None)?;
        for mark in &self.void {
            if is_marked(&stores.view(), mark)? {
                return Err(format!("{mark} counts at {site}, and did not before"));
            }
        }
        let young = self
            .naive
            .ids
            .iter()
            .filter(|(_, id)| id.is_within(MARGIN_MS));
        for (id, _) in young.take(IDS) {
            let intake = stores.all()[stores.strand_of(id)].intake();
            let history = intake.id_history(None, id);
            let history = history.map_err(|error| error.to_string())?;
            if history.counts.is_empty() {
                return Err(format!("{site} does not know {id}"));
            }
        }
        Ok(())
    }

    /// A node that is new has everything, from the objects and the topics; and all objects are whole.
    pub(super) fn check_new_node(&mut self) -> Result<(), String> {
        let mut site = 0;
        for strand in &mut self.strands {
            site = strand.add_site()?;
        }
        self.check_whole(site)?;
        self.check_alike(site)?;
        self.strands
            .iter()
            .try_for_each(|strand| strand.verify(site))
    }
}
