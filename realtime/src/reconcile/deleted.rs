//! Keys whose counts people deleted on a day, as they were ordered up to some record.

use std::borrow::Cow;
use std::collections::HashMap;

use tallyring_archive::Manifest;
use tallyring_records::{Day, Increment, Text};

/// Deleted keys of one day.
#[derive(PartialEq)]
pub(super) struct Deleted<'m> {
    /// By namespace and key, the record before which the counts go.
    until: HashMap<(&'m str, &'m str), u64>,
}

impl<'m> Deleted<'m> {
    /// By the orders before the record `upto`: of several about a key the newest one holds.
    pub(super) fn new(manifest: &'m Manifest, day: Day, upto: u64) -> Self {
        let mut until = HashMap::new();
        let orders = manifest.intake.deletes.iter();
        let of_day = orders.filter(|entry| entry.at.sequence < upto && entry.order.has(day));
        for entry in of_day {
            let of = (&*entry.order.namespace, &*entry.order.key);
            match entry.order.undo {
                true => until.remove(&of),
                false => until.insert(of, entry.at.sequence),
            };
        }
        Self { until }
    }

    /// True where no counts of the day are deleted.
    pub(super) fn is_empty(&self) -> bool {
        self.until.is_empty()
    }

    /// Whether the counts of a key are deleted, of the record `sequence`.
    pub(super) fn has(&self, sequence: u64, (namespace, key): &(Text, Text)) -> bool {
        if self.is_empty() {
            return false;
        }
        let until = self.until.get(&(&**namespace, &**key));
        until.is_some_and(|until| sequence < *until)
    }
}

/// An increment with some of its keys; none where it keeps no key. With `alike` it keeps all keys or none, and one of
/// them says which: days without deletes have many increments.
pub(super) fn with_keys(
    increment: &Increment,
    alike: bool,
    keeps: impl Fn(&(Text, Text)) -> bool,
) -> Option<Cow<'_, Increment>> {
    let asked = increment.keys.iter();
    let asked = asked.take(if alike { 1 } else { usize::MAX });
    let kept = asked.clone().filter(|key| keeps(key)).count();
    if kept == 0 {
        return None;
    }
    if kept == asked.count() {
        return Some(Cow::Borrowed(increment));
    }
    let mut some = increment.clone();
    some.keys.retain(keeps);
    Some(Cow::Owned(some))
}
