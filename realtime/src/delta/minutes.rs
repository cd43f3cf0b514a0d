//! Minutes in a shard of a delta: those of totals, and for the last hours those of values and the users of each minute.
//!
//! A total or a value that counts by the minute has a list of its minutes, the newest first. So one more minute takes
//! 16 bytes and no look into a table, whatever the lengths of key and value. A list whose minutes come in any order
//! becomes a table of all minutes of the hour, because each step along a list waits for memory. The minutes of values
//! and the users lie hour by hour, so that all of an old hour is forgotten at once.
//!
//! Invariant: what an hour has forgotten never comes back, so its lists are never mixed with newer ones.

use std::collections::HashMap;

use tallyring_records::{Grain, TimeCode, Users};

use super::memory::NONE;

/// Lists of minutes. A list is named by the number of its first entry, by [`TABLE`] and the number of its table, or by
/// [`NONE`] where it is empty.
#[derive(Clone)]
pub(super) struct MinuteLists {
    entries: Vec<Minute>,
    /// The first of the entries that became parts of tables.
    free: u32,
    #[expect(
        clippy::vec_box,
        reason = "a vector that doubles would take a table's bytes twice"
    )]
    tables: Vec<Box<Table>>,
    /// Number of counts.
    len: usize,
}

/// The count of each minute of the hour.
type Table = [u64; 60];
/// Names of tables have this bit, and numbers of entries do not.
const TABLE: u32 = 1 << 31;
/// A count this many minutes of its list behind the newest makes the list a table.
const STEPS_MAX: usize = 16;
/// Bytes of a table as the allocator gives them: less than what `growth.rs` says of the entries before it.
const TABLE_BYTES: usize = 512;

/// The count of one minute of the hour.
#[derive(Clone, Copy)]
struct Minute {
    count: u64,
    next: u32,
    minute: u8,
}

const _: () = assert!(size_of::<Minute>() == 16);

/// The minutes of values, and the users by minute, of the hours that are not forgotten.
#[derive(Clone, Default)]
pub(super) struct Breakdowns {
    /// The first hour that is kept, in hours since 2000.
    from: u32,
    /// Hours since 2000, ascending.
    hours: Vec<(u32, Hour)>,
}

/// Hours of breakdowns that were forgotten.
pub(crate) type Forgotten = Vec<(u32, Hour)>;

/// One hour of breakdowns.
#[derive(Clone, Default)]
pub(crate) struct Hour {
    lists: MinuteLists,
    /// Users by number of the total's set of users and minute of the hour.
    users: HashMap<(u32, u8), Users>,
    users_bytes: usize,
}

/// Memory of the users of a minute in their table, besides the sketch.
const USERS_ENTRY_BYTES: usize = 16;

impl Default for MinuteLists {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            free: NONE,
            tables: Vec::new(),
            len: 0,
        }
    }
}

impl MinuteLists {
    /// Adds to the count of a minute of the list of that name. Returns the name of the list then.
    #[inline]
    pub(super) fn add(&mut self, first: u32, minute: u8, n: u64) -> u32 {
        let (mut before, mut number) = (NONE, first);
        // Nearly all counts are those of the newest minute.
        for _ in 0..STEPS_MAX {
            match self.entries.get_mut(number as usize) {
                Some(entry) if entry.minute == minute => {
                    entry.count += n;
                    return first;
                }
                Some(entry) if entry.minute > minute => (before, number) = (number, entry.next),
                _ if number != NONE && number & TABLE != 0 => break,
                _ => return self.insert(first, (before, number), minute, n),
            }
        }
        self.add_to_table(first, minute, n)
    }

    /// Adds an entry between two neighbours.
    fn insert(&mut self, first: u32, (before, next): (u32, u32), minute: u8, n: u64) -> u32 {
        let entry = Minute {
            count: n,
            next,
            minute,
        };
        let number = match self.entries.get_mut(self.free as usize) {
            Some(free) => {
                let number = self.free;
                self.free = free.next;
                *free = entry;
                number
            }
            None => {
                let number = self.entries.len();
                self.entries.push(entry);
                let number = u32::try_from(number)
                    .ok()
                    .filter(|number| number & TABLE == 0);
                number.expect("BUG: a delta is flushed before 2^31 minutes")
            }
        };
        self.len += 1;
        match self.entries.get_mut(before as usize) {
            Some(before) => {
                before.next = number;
                first
            }
            None => number,
        }
    }

    /// Adds to a table, which a list becomes first.
    fn add_to_table(&mut self, first: u32, minute: u8, n: u64) -> u32 {
        let name = match first & TABLE {
            0 => self.make_table(first),
            _ => first,
        };
        let count = &mut self.tables[(name ^ TABLE) as usize][usize::from(minute)];
        self.len += usize::from(*count == 0);
        *count += n;
        name
    }

    fn make_table(&mut self, first: u32) -> u32 {
        let mut table = Box::new([0; 60]);
        let mut number = first;
        while let Some(entry) = self.entries.get_mut(number as usize) {
            table[usize::from(entry.minute)] = entry.count;
            let next = std::mem::replace(&mut entry.next, self.free);
            self.free = std::mem::replace(&mut number, next);
        }
        let name = u32::try_from(self.tables.len()).ok();
        let name = name.filter(|name| *name < TABLE - 1);
        self.tables.push(table);
        name.expect("BUG: a delta is flushed before 2^31 tables of minutes") | TABLE
    }

    /// Minutes of the hour and their counts, the newest first.
    pub(super) fn of(&self, first: u32) -> impl Iterator<Item = (u8, u64)> {
        let next = |entry: &&Minute| self.entries.get(entry.next as usize);
        let entries = std::iter::successors(self.entries.get(first as usize), next);
        let entries = entries.map(|entry| (entry.minute, entry.count));
        let table = self.tables.get((first ^ TABLE) as usize).into_iter();
        let counts = table.flat_map(|table| (0..60_u8).rev().zip(table.iter().rev().copied()));
        entries.chain(counts.filter(|&(_, count)| count > 0))
    }

    /// Number of counts.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<Minute>() * self.entries.capacity()
            + size_of::<Box<Table>>() * self.tables.capacity()
            + TABLE_BYTES * self.tables.len()
    }
}

impl Breakdowns {
    /// No breakdowns yet; those of all hours are kept, or none where not `kept`.
    pub(super) fn new(kept: bool) -> Self {
        Self {
            from: if kept { 0 } else { u32::MAX },
            hours: Vec::new(),
        }
    }

    /// True when minutes of the base bucket are kept.
    #[inline]
    pub(super) fn keeps(&self, base: TimeCode) -> bool {
        hour_of(base) >= self.from
    }

    /// As [`MinuteLists::add`], for a value of a base bucket. An hour that is forgotten takes nothing.
    #[inline]
    pub(super) fn add(&mut self, base: TimeCode, first: u32, minute: u8, n: u64) -> u32 {
        if !self.keeps(base) {
            return NONE;
        }
        self.hour_mut(base).lists.add(first, minute, n)
    }

    /// As [`MinuteLists::of`], for a value of a base bucket.
    pub(super) fn of(&self, base: TimeCode, first: u32) -> impl Iterator<Item = (u8, u64)> {
        let hour = self.hour(base).into_iter();
        hour.flat_map(move |hour| hour.lists.of(first))
    }

    /// Changes the users of a minute; `of` is the number of the total's set of users, and the minute of the hour.
    pub(super) fn change_users(
        &mut self,
        base: TimeCode,
        of: (u32, u8),
        change: impl FnOnce(&mut Users),
    ) {
        if !self.keeps(base) {
            return;
        }
        let hour = self.hour_mut(base);
        let users = hour.users.entry(of).or_default();
        let before = users.bytes();
        change(users);
        hour.users_bytes = (hour.users_bytes + users.bytes()).saturating_sub(before);
    }

    /// The users of a minute, as [`Breakdowns::change_users`] names it.
    pub(super) fn users(&self, base: TimeCode, of: (u32, u8)) -> Option<&Users> {
        self.hour(base)?.users.get(&of)
    }

    /// Takes out the users of a minute.
    pub(super) fn take_users(&mut self, base: TimeCode, of: (u32, u8)) -> Option<Users> {
        let place = self.place(hour_of(base)).ok()?;
        self.hours[place].1.users.remove(&of)
    }

    /// Forgets the hours that ended before `instant` (Unix seconds), and returns them: to free them takes a moment.
    pub(super) fn forget_before(&mut self, instant: i64) -> Forgotten {
        self.from = self.from.max(hour_at(instant));
        let gone = self.hours.partition_point(|&(hour, _)| hour < self.from);
        self.hours.drain(..gone).collect()
    }

    fn hour(&self, base: TimeCode) -> Option<&Hour> {
        let place = self.place(hour_of(base)).ok()?;
        Some(&self.hours[place].1)
    }

    #[inline]
    fn hour_mut(&mut self, base: TimeCode) -> &mut Hour {
        let hour = hour_of(base);
        let place = self.place(hour).unwrap_or_else(|place| {
            self.hours.insert(place, (hour, Hour::default()));
            place
        });
        &mut self.hours[place].1
    }

    /// The place of an hour, or where it belongs. Nearly always the newest hour is asked for.
    #[inline]
    fn place(&self, hour: u32) -> Result<usize, usize> {
        match self.hours.last() {
            Some(&(newest, _)) if newest == hour => Ok(self.hours.len() - 1),
            _ => self.hours.binary_search_by_key(&hour, |&(hour, _)| hour),
        }
    }

    /// Number of counts.
    pub(super) fn len(&self) -> usize {
        self.hours.iter().map(|(_, hour)| hour.lists.len()).sum()
    }

    pub(super) fn bytes(&self) -> usize {
        let of_hour = |(_, hour): &(u32, Hour)| {
            let users = (size_of::<Users>() + USERS_ENTRY_BYTES) * hour.users.capacity() * 8 / 7;
            hour.lists.bytes() + users + hour.users_bytes
        };
        let hours = size_of::<(u32, Hour)>() * self.hours.capacity();
        hours + self.hours.iter().map(of_hour).sum::<usize>()
    }
}

/// The minute of the hour of a base bucket.
pub(super) fn minute_in(base: TimeCode, minute: u8) -> TimeCode {
    TimeCode::from_minutes(60 * hour_of(base) + u32::from(minute), Grain::Minute)
}

#[inline]
fn hour_of(base: TimeCode) -> u32 {
    base.minutes() / 60
}

/// The hour that holds `instant` (Unix seconds).
fn hour_at(instant: i64) -> u32 {
    hour_of(TimeCode::containing(instant, Grain::Hour))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn prop_lists_and_tables_count_as_a_map_does(
            clicks in proptest::collection::vec((0..4_usize, 0..60_u8, 1..9_u64, prop::bool::ANY), 0..400),
        ) {
            let mut lists = MinuteLists::default();
            let mut firsts = [NONE; 4];
            let mut map = [const { BTreeMap::new() }; 4];
            for (list, minute, n, in_order) in clicks {
                // Some lists have their minutes nearly in order, and stay lists.
                let newest = map[list].last_key_value().map_or(0, |(&minute, _)| minute);
                let minute = if in_order { newest.max(minute) } else { minute };
                firsts[list] = lists.add(firsts[list], minute, n);
                *map[list].entry(minute).or_insert(0) += n;
            }
            for (first, map) in firsts.into_iter().zip(&map) {
                let expected: Vec<_> = map.iter().rev().map(|(&minute, &n)| (minute, n)).collect();
                prop_assert_eq!(lists.of(first).collect::<Vec<_>>(), expected);
            }
            prop_assert_eq!(lists.len(), map.iter().map(BTreeMap::len).sum::<usize>());
        }
    }

    #[test]
    fn minutes_in_order_stay_a_list_and_others_become_a_table() {
        let mut lists = MinuteLists::default();
        let in_order = (0..60).fold(NONE, |first, minute| lists.add(first, minute, 1));
        assert_eq!((lists.entries.len(), lists.tables.len()), (60, 0));
        let backwards = (0..60)
            .rev()
            .fold(NONE, |first, minute| lists.add(first, minute, 1));
        assert_eq!((lists.entries.len(), lists.tables.len()), (76, 1));
        assert!(lists.of(in_order).eq(lists.of(backwards)));
        // Entries that a table took in are used again.
        lists.add(NONE, 3, 1);
        assert_eq!((lists.entries.len(), lists.len()), (76, 121));
    }

    #[test]
    fn a_list_adds_up_its_minutes_and_knows_no_others() {
        let mut lists = MinuteLists::default();
        let (mut a, mut b) = (NONE, NONE);
        for (minute, n) in [(3, 1), (4, 2), (3, 5), (59, 1)] {
            a = lists.add(a, minute, n);
            b = lists.add(b, 7, n);
        }
        assert_eq!(lists.of(a).collect::<Vec<_>>(), [(59, 1), (4, 2), (3, 6)]);
        assert_eq!(lists.of(b).collect::<Vec<_>>(), [(7, 9)]);
        assert_eq!(lists.of(NONE).count(), 0);
        assert_eq!(lists.len(), 4);
    }

    #[test]
    fn what_an_hour_forgot_never_comes_back() {
        let hour: TimeCode = "c41l".parse().unwrap();
        let next = TimeCode::containing(hour.start() + 3_600, Grain::Hour);
        let mut breakdowns = Breakdowns::new(true);
        let old = breakdowns.add(hour, NONE, 5, 1);
        let new = breakdowns.add(next, NONE, 6, 2);
        breakdowns.change_users(next, (1, 6), |_| {});
        assert_eq!(
            (breakdowns.len(), breakdowns.users(next, (1, 6)).is_some()),
            (2, true)
        );
        assert_eq!(breakdowns.forget_before(next.start()).len(), 1);
        assert_eq!(breakdowns.add(hour, old, 7, 1), NONE);
        assert_eq!(breakdowns.of(hour, old).count(), 0);
        assert_eq!(breakdowns.of(next, new).collect::<Vec<_>>(), [(6, 2)]);
        // A clock that goes back changes nothing.
        breakdowns.forget_before(hour.start());
        assert!(!breakdowns.keeps(hour) && breakdowns.keeps(next));
        assert!(!Breakdowns::new(false).keeps(next));
    }
}
