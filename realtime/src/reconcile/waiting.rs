//! Orders about the counts of keys that wait for the next reconcile of one of their days.
//!
//! An order that a newer one about its key replaced on a day waits for nothing there, nor one that would change no
//! count of the day.

use std::collections::{BTreeMap, BTreeSet};

use tallyring_archive::{DeleteEntry, Manifest};
use tallyring_records::{Day, filtered_namespace};

use super::days::no_reconcile;
use crate::error::Result;
use crate::store::Store;
use crate::view::Read;

/// The UTC days on which each order about the counts of a key waits, ascending, by the sequence number of its record.
/// Orders that wait for nothing are left out. Fails when counts cannot be read, or the log cannot be listed.
pub fn waiting_deletes(store: &Store) -> Result<BTreeMap<u64, Vec<Day>>> {
    let manifest = store.manifest();
    let orders = store.intake().deletes();
    let mut by_key: BTreeMap<(&str, &str), Vec<&DeleteEntry>> = BTreeMap::new();
    for entry in &orders {
        let of = (&*entry.order.namespace, &*entry.order.key);
        by_key.entry(of).or_default().push(entry);
    }
    // One look for each day, however many orders are about it.
    let (blobs, mut can_change) = (store.world().blobs(), BTreeSet::new());
    let days: BTreeSet<Day> = orders.iter().flat_map(|entry| entry.order.days()).collect();
    for day in days {
        if no_reconcile(&blobs, &manifest, day)?.is_none() {
            can_change.insert(day);
        }
    }
    let mut waiting: BTreeMap<u64, Vec<Day>> = BTreeMap::new();
    for (of, orders) in by_key {
        for (day, entry) in waiting_of_key(store, (&manifest, &can_change), of, &orders)? {
            waiting.entry(entry.at.sequence).or_default().push(day);
        }
    }
    Ok(waiting)
}

/// As above, for the orders about one key, which ascend, on the days that can change.
fn waiting_of_key<'o>(
    store: &Store,
    (manifest, can_change): (&Manifest, &BTreeSet<Day>),
    of: (&str, &str),
    orders: &[&'o DeleteEntry],
) -> Result<BTreeMap<Day, &'o DeleteEntry>> {
    // The records before this one are those that the newest version of the day read.
    let read_until = |day: Day| {
        let newest = manifest.archive.finals_of(day).last();
        newest.map_or(0, |version| version.upto)
    };
    let mut open: BTreeMap<Day, &DeleteEntry> = BTreeMap::new();
    for entry in orders {
        open.extend(entry.order.days().map(|day| (day, *entry)));
    }
    open.retain(|day, entry| can_change.contains(day) && read_until(*day) <= entry.at.sequence);
    let is_deleted = |day: Day| {
        let until = read_until(day);
        let mut before = orders.iter().filter(|entry| entry.at.sequence < until);
        let newest = before.rfind(|entry| entry.order.has(day));
        newest.is_some_and(|entry| !entry.order.undo)
    };
    let deletes = open.iter().filter(|(_, entry)| !entry.order.undo);
    let deletes: Vec<Day> = deletes.map(|(day, _)| *day).collect();
    let mut counted = counted_days(store, of, &deletes)?;
    // The filtered events of a key go with it.
    let filtered = filtered_namespace(of.0);
    counted.extend(counted_days(store, (&filtered, of.1), &deletes)?);
    open.retain(|day, entry| match entry.order.undo {
        true => is_deleted(*day),
        false => counted.contains(day),
    });
    Ok(open)
}

/// Days from the first to the last of these, which ascend, on which a key counts something.
fn counted_days(
    store: &Store,
    (namespace, key): (&str, &str),
    days: &[Day],
) -> Result<BTreeSet<Day>> {
    let (Some(first), Some(last)) = (days.first(), days.last()) else {
        return Ok(BTreeSet::new());
    };
    let read = Read {
        namespace: namespace.to_owned(),
        key: key.to_owned(),
        subtotal: None,
        from: first.start(),
        to: last.next().start(),
        rolled: None,
    };
    let series = store.view().read(&read, None)?;
    let counted = series.totals.iter().filter(|(_, n)| *n > 0);
    Ok(counted.map(|(code, _)| Day::of(code.start())).collect())
}
