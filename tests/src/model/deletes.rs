//! Orders about the counts of keys: they go on some days, or count again. The next reconcile of each day obeys.

use tallyring_archive::DeleteEntry;
use tallyring_records::{Day, Delete, INSTALLATION, filtered_of};

use super::{Driver, clicks};

/// Orders as they were given, in the order of the log.
#[derive(Default)]
pub(super) struct Deletes(Vec<Ordered>);

struct Ordered {
    order: Delete,
    /// How much of the history had been sent.
    until: usize,
    /// False where the answer is not known.
    is_sure: bool,
}

/// Whether counts are deleted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Gone {
    Yes,
    Perhaps,
    No,
}

impl Deletes {
    /// Whether the counts of a key on a day are deleted, of the event with this number in the history.
    pub(super) fn of(&self, index: usize, (namespace, key): (&str, &str), day: Day) -> Gone {
        let namespace = filtered_of(namespace).unwrap_or(namespace);
        let (mut surely, mut perhaps) = (0, 0);
        let of_key = self.0.iter().filter(|of| {
            (&*of.order.namespace, &*of.order.key) == (namespace, key) && of.order.has(day)
        });
        for Ordered {
            order,
            until,
            is_sure,
        } in of_key
        {
            match (order.undo, is_sure) {
                (false, true) => (surely, perhaps) = (*until, *until),
                (false, false) => perhaps = *until,
                (true, true) => (surely, perhaps) = (0, 0),
                (true, false) => surely = 0,
            }
        }
        match (index < surely, index < perhaps) {
            (true, _) => Gone::Yes,
            (false, true) => Gone::Perhaps,
            (false, false) => Gone::No,
        }
    }

    /// An event left the history.
    pub(super) fn removed(&mut self, index: usize) {
        let later = self.0.iter_mut().filter(|of| of.until > index);
        later.for_each(|of| of.until -= 1);
    }

    /// Checks that a store knows all of these, and no others.
    ///
    /// # Errors
    /// The orders of which one is missing or is not one of these.
    pub(super) fn check(&self, known: &[DeleteEntry]) -> Result<(), String> {
        let mut known = known.iter().map(|entry| &entry.order).peekable();
        for of in &self.0 {
            let is_known = known.next_if_eq(&&of.order).is_some();
            if of.is_sure && !is_known {
                return Err(format!("the store has forgotten {:?}", of.order));
            }
        }
        match known.next() {
            None => Ok(()),
            Some(other) => Err(format!("nobody ordered {other:?}")),
        }
    }
}

impl Driver {
    /// Lets the counts of a key of some day go, or come back.
    pub(super) fn delete_some(&mut self, day: Day) -> Result<(), String> {
        let of_log = self.naive.of_log();
        let mut keys = of_log.buckets();
        keys.retain(|(name, _, start)| {
            let is_own = name != clicks::MARKS && filtered_of(name).is_none();
            is_own && Day::of(*start) == day
        });
        if keys.is_empty() || !self.pending.is_empty() {
            return Ok(());
        }
        let (namespace, key, _) = self.chance.pick(&keys).clone();
        let to = match self.chance.percent(50) {
            true => day,
            false => day.next(),
        };
        let order = Delete {
            namespace,
            key,
            from: day,
            to,
            undo: self.chance.percent(40),
            // No two orders are alike.
            reason: format!("{:x}", self.chance.bits()),
            actor: INSTALLATION.into(),
        };
        self.note(format!("{order:?}"));
        let done = self.store().intake().delete(order.clone());
        let ordered = Ordered {
            order,
            until: self.naive.history.len(),
            is_sure: done.is_ok(),
        };
        self.naive.history.deletes.0.push(ordered);
        match done {
            Ok(_) => {
                self.stats.deletes += 1;
                self.follow_ring()
            }
            Err(error) => self.allow("a delete", &error.to_string()),
        }
    }
}
