//! The naive count of everything that was sent, and the store compared with it.

use std::collections::{BTreeMap, HashSet};

use tallyring_archive::Run;
use tallyring_realtime::Reconciled;
use tallyring_records::{Class, Filter, line};

use super::{Book, World};
use crate::sent::{DAY, DAYS, HOURS, Sent, TWICE_SECONDS};
use crate::{actions, users};

impl World {
    /// The naive count of the day: each id once, no id that was voided, and no event that a rule of now catches. The
    /// second book has those events. Deleted counts are missing in both.
    fn expected(&self) -> [Book; 2] {
        let mut deleted: BTreeMap<&str, usize> = BTreeMap::new();
        for (until, ad, undo) in &self.deletes {
            deleted.insert(ad, if *undo { 0 } else { *until });
        }
        self.expected_without(&deleted)
    }

    /// As [`World::expected`], without the first clicks on some ads.
    fn expected_without(&self, deleted: &BTreeMap<&str, usize>) -> [Book; 2] {
        let mut seen = HashSet::new();
        let is_first =
            |(_, sent): &(_, &Sent)| sent.id.as_ref().is_none_or(|id| seen.insert(id.clone()));
        let mut unique: Vec<(usize, &Sent)> =
            self.sent.iter().enumerate().filter(is_first).collect();
        unique.retain(|(_, sent)| !sent.id.as_ref().is_some_and(|id| self.voided.contains(id)));
        // A stable sort: equal times stay in the order of the log.
        unique.sort_by_key(|(_, sent)| sent.at);
        let mut kept: BTreeMap<&str, i64> = BTreeMap::new();
        let [mut counted, mut filtered] = <[Book; 2]>::default();
        for (index, sent) in unique {
            // A chain of repeats is followed for so long.
            if sent.at < DAY - DAYS - TWICE_SECONDS {
                continue;
            }
            let before = kept.get(&*sent.ad).copied();
            let is_repeat = before.is_some_and(|before| sent.at < before + TWICE_SECONDS);
            if !is_repeat {
                kept.insert(&sent.ad, sent.at);
            }
            let is_deleted = deleted.get(&*sent.ad).is_some_and(|until| index < *until);
            if is_deleted || !(DAY..DAY + DAYS).contains(&sent.at) {
                continue;
            }
            let catches = |filter: &&Filter| match &*filter.name {
                "bots" => sent.device == "bot",
                "own" => sent.ad == "a0",
                "ad" => sent.ad == "a1",
                _ => is_repeat,
            };
            let (book, value) = match self.filters.iter().find(catches) {
                None => (&mut counted, &sent.device),
                Some(filter) => (&mut filtered, &filter.name),
            };
            let hour = sent.at - sent.at.rem_euclid(HOURS);
            let place = (sent.ad.clone(), hour, value.clone());
            *book.entry(place).or_insert(0) += sent.n;
        }
        [counted, filtered]
    }

    /// Checks that the final books have the same lines as books of the naive count.
    pub(crate) fn check_books(&self, reconciled: &Reconciled, when: &str) {
        let mut found = <[Book; 2]>::default();
        let finals = &self.store().manifest().archive.finals;
        let newest = finals.iter().rfind(|entry| entry.day == reconciled.day);
        for run in &newest.expect("it is final").books {
            let mut cursor = Run::open_named(&self.disk.blobs(), run)
                .expect("open")
                .cursor();
            while cursor.advance().expect("read") {
                let (key, payload) = cursor.line().expect("read").expect("a line");
                let Some((subtotal @ (b"device" | b"rule"), total, code)) =
                    line::split_subtotal(key)
                else {
                    continue;
                };
                let book = &mut found[usize::from(subtotal == b"rule")];
                let ad = String::from_utf8_lossy(line::stored_key(total)).into_owned();
                for (value, count) in line::entries(payload).flatten() {
                    let value = String::from_utf8_lossy(value).into_owned();
                    book.insert((ad.clone(), code.start(), value), count);
                }
            }
        }
        let expected = self.expected();
        assert_eq!(found, expected, "{when}");
        let mut filtered: BTreeMap<Class, BTreeMap<String, u128>> = BTreeMap::new();
        // Sums of events have those of deleted keys.
        for ((_, _, rule), n) in &self.expected_without(&BTreeMap::new())[1] {
            let filter = self.filters.iter().find(|filter| filter.name == *rule);
            let of_class = filtered.entry(filter.expect("a rule").class).or_default();
            *of_class.entry(rule.clone()).or_insert(0) += u128::from(*n);
        }
        let told = reconciled.filtered.get("click").cloned();
        assert_eq!(told.unwrap_or_default(), filtered, "{when}");
    }

    pub(crate) fn check(&self, when: &str) {
        let served = [self.served(), self.served_of("ad_click~", "rule")];
        let expected = self.expected();
        users::check(self, &expected[0], when);
        // Users did what they did, whatever counts of keys were deleted.
        let did = self.expected_without(&BTreeMap::new());
        actions::check(self, &did[0], when);
        assert_eq!(served, expected, "{when}");
        self.check_deletes(when);
    }
}
