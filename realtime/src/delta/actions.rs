//! Actions of users in a shard of a delta: for each user and day a list of records of a few bytes.
//!
//! A record is the second of the day, the number of what the user did, the count and the tag of the insertion; a count
//! of one and no tag take no bytes. Numbers are those of the delta, for all its shards: users of all shards do the
//! same, and what is done often has a small number. Records lie one behind the other in chunks of the list. The end of
//! a list is half a chunk until it needs a whole one: most users do little. So an action takes about 10 bytes, a list
//! [`List`] and a quarter of a chunk beside that, and no action is allocated by itself.
//!
//! A list has [`RECORDS_MAX`] records at most. Further actions of so busy a user are counted by the hour: their memory
//! is bounded by what there is to do, and not by how often it is done.
//!
//! Invariant: the records of a list stand in the order in which they came, which need not be that of time.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::ops::RangeInclusive;

use hashbrown::{DefaultHashBuilder, HashTable};
use tallyring_records::{Action, Day, Interner, UserKey, add_capped};

use super::memory::NONE;
use super::pages::Pages;

/// Actions of the users of one shard.
#[derive(Clone)]
pub(super) struct Actions {
    lists: Pages<List>,
    table: HashTable<u32>,
    chunks: Pages<Chunk>,
    halves: Pages<Half>,
    /// The first half that no list has any more; each names the next one.
    free: u32,
    /// Records of all lists.
    records: usize,
    /// Counts by number of the list, hour of the day, and number of what was done.
    hours: BTreeMap<(u32, u8, u32), u64>,
    hasher: DefaultHashBuilder,
}

/// The content of a record: an action, and the number of what was done in place of its text.
#[derive(Clone, Copy)]
pub(super) struct Done {
    /// Second of the day.
    pub second: u32,
    /// True where it happened at any time of the hour that begins with the second.
    pub by_hour: bool,
    /// Number of the text in the delta.
    pub what: u32,
    /// The tag of the insertion ([`tallyring_records::insertion_tag`]).
    pub tag: Option<u64>,
}

/// The actions of one user on one UTC day.
#[derive(Clone, Copy)]
pub(super) struct List {
    user: UserKey,
    day: Day,
    /// The first chunk.
    first: u32,
    /// The last chunk, or the half behind all chunks.
    last: u32,
    records: u32,
    /// Bytes of the last chunk, or of the half, that are used.
    used: u8,
    /// True where the list ends in a half.
    ends_in_half: bool,
    /// True where actions of the list are counted by the hour, too.
    has_hours: bool,
}

/// Bytes of a list, and the number of the next chunk.
#[derive(Clone, Copy)]
struct Chunk {
    next: u32,
    bytes: [u8; CHUNK_BYTES],
}

/// Bytes at the end of a list, and the number of the chunk before.
#[derive(Clone, Copy)]
struct Half {
    before: u32,
    bytes: [u8; HALF_BYTES],
}

/// Records of a user and day, at most.
const RECORDS_MAX: u32 = if cfg!(test) { 50 } else { 1 << 16 };
const HOUR_SECONDS: u32 = 3_600;
/// Memory of a count by the hour in its tree.
const HOUR_BYTES: usize = 48;
const CHUNK_BYTES: usize = 60;
const HALF_BYTES: usize = 28;
const _: () = assert!(size_of::<Chunk>() == 64 && size_of::<Half>() == 32);
const _: () = assert!(size_of::<List>() == 32);

/// A record begins with three bytes, little-endian: the second of the day, two marks, and the low bits of the number of
/// what was done. Its other bits follow.
const HEAD_BYTES: usize = 3;
const SECOND_BITS: u32 = 17;
const HAS_TAG: u32 = 1 << SECOND_BITS;
const HAS_COUNT: u32 = 2 << SECOND_BITS;
const WHAT_SHIFT: u32 = SECOND_BITS + 2;
const WHAT_BITS: u32 = 8 * HEAD_BYTES as u32 - WHAT_SHIFT;
/// Longest record: the head, a number of 27 bits, one of 64 bits, and a tag.
const RECORD_BYTES_MAX: usize = HEAD_BYTES + 4 + 10 + TAG_BYTES;
/// Bytes of a tag whose bits are not all 0.
const TAG_BYTES: usize = 6;

impl Actions {
    /// Adds an action that counts `n`.
    pub(super) fn add(&mut self, (user, day): (UserKey, Day), done: Done, n: u64) {
        let what = done.what;
        let number = self.list(user, day);
        let list = self.lists.get_mut(number);
        if done.by_hour || list.records >= RECORDS_MAX {
            list.has_hours = true;
            let hour = (done.second / HOUR_SECONDS) as u8;
            add_capped(self.hours.entry((number, hour, what)).or_insert(0), n);
            return;
        }
        list.records += 1;
        self.records += 1;
        let marks = HAS_TAG * u32::from(done.tag.is_some()) + HAS_COUNT * u32::from(n != 1);
        let head = done.second | marks | what << WHAT_SHIFT;
        let mut record = [0; RECORD_BYTES_MAX];
        record[..HEAD_BYTES].copy_from_slice(&head.to_le_bytes()[..HEAD_BYTES]);
        let mut length = HEAD_BYTES;
        push(&mut record, &mut length, u64::from(what >> WHAT_BITS));
        if n != 1 {
            push(&mut record, &mut length, n);
        }
        if let Some(tag) = done.tag {
            record[length..length + TAG_BYTES].copy_from_slice(&tag.to_be_bytes()[..TAG_BYTES]);
            length += TAG_BYTES;
        }
        self.append(number, &record[..length]);
    }

    /// Calls `visit` with every action of a user on a day, and its count. `whats` has the texts of the delta.
    pub(super) fn visit(
        &self,
        place: (UserKey, Day),
        whats: &Interner,
        visit: &mut dyn FnMut(Action<'_>, u64),
    ) {
        self.visit_most(place, usize::MAX, whats, visit);
    }

    /// As [`Self::visit`] where the list has at most `most` actions; returns false otherwise, and visits none.
    pub(super) fn visit_most(
        &self,
        (user, day): (UserKey, Day),
        most: usize,
        whats: &Interner,
        visit: &mut dyn FnMut(Action<'_>, u64),
    ) -> bool {
        let Some(list) = self.find(user, day) else {
            return true;
        };
        let is_short = self.lists.get(list).records as usize <= most;
        if is_short {
            self.visit_number(list, &mut |done, n| visit(done.action(whats), n));
        }
        is_short
    }

    fn visit_number(&self, number: u32, visit: &mut dyn FnMut(Done, u64)) {
        let list = self.lists.get(number);
        self.visit_records(list, visit);
        if !list.has_hours {
            return;
        }
        for (&(_, hour, what), &n) in self.hours.range(hours_of(number)) {
            let done = Done {
                second: u32::from(hour) * HOUR_SECONDS,
                by_hour: true,
                what,
                tag: None,
            };
            visit(done, n);
        }
    }

    fn visit_records(&self, list: &List, visit: &mut dyn FnMut(Done, u64)) {
        let mut bytes = Vec::with_capacity(CHUNK_BYTES * (list.records as usize / 4 + 1));
        let mut number = list.first;
        while number != NONE {
            let chunk = self.chunks.get(number);
            bytes.extend_from_slice(&chunk.bytes);
            number = chunk.next;
        }
        if list.ends_in_half {
            bytes.extend_from_slice(&self.halves.get(list.last).bytes);
        }
        let mut rest = &bytes[..];
        for _ in 0..list.records {
            let (&[a, b, c], behind) = rest.split_first_chunk().expect("BUG: a record is whole");
            rest = behind;
            let head = u32::from_le_bytes([a, b, c, 0]);
            let what = (take(&mut rest) as u32) << WHAT_BITS | head >> WHAT_SHIFT;
            let n = if head & HAS_COUNT > 0 {
                take(&mut rest)
            } else {
                1
            };
            let tag = (head & HAS_TAG > 0).then(|| {
                let (tag, behind) = rest.split_at(TAG_BYTES);
                rest = behind;
                let mut bytes = [0; size_of::<u64>()];
                bytes[..TAG_BYTES].copy_from_slice(tag);
                u64::from_be_bytes(bytes)
            });
            let done = Done {
                second: head & ((1 << SECOND_BITS) - 1),
                by_hour: false,
                what,
                tag,
            };
            visit(done, n);
        }
    }

    /// Lists that hold something, but for those of `erased` users (ascending).
    pub(super) fn lists(&self, erased: &[UserKey]) -> impl Iterator<Item = &List> {
        let is_shown = |list: &&List| erased.binary_search(&list.user).is_err();
        let lists = self.lists.iter().filter(is_shown);
        lists.filter(|list| list.records > 0 || list.has_hours)
    }

    /// Moves the list with this number into `to`, where what was done has the numbers that `number_of` tells. Returns
    /// how many records were moved; none when there is no such list.
    pub(super) fn move_list(
        &mut self,
        number: u32,
        to: &mut Self,
        number_of: &mut dyn FnMut(u32) -> u32,
    ) -> Option<usize> {
        if number as usize >= self.lists.len() {
            return None;
        }
        let list = *self.lists.get(number);
        let place = (list.user, list.day);
        self.visit_number(number, &mut |done, n| {
            let what = number_of(done.what);
            to.add(place, Done { what, ..done }, n);
        });
        let before = self.len();
        self.clear(number);
        Some(before - self.len())
    }

    /// Forgets the actions of a user. Their memory is freed with the delta.
    pub(super) fn forget(&mut self, user: &UserKey) {
        let hash = self.hasher.hash_one(user);
        let of_user = self.table.iter_hash(hash).copied();
        let of_user: Vec<u32> = of_user
            .filter(|&number| self.lists.get(number).user == *user)
            .collect();
        of_user.into_iter().for_each(|number| self.clear(number));
    }

    fn clear(&mut self, number: u32) {
        let list = self.lists.get_mut(number);
        self.records -= list.records as usize;
        let had_hours = list.has_hours;
        (list.first, list.last) = (NONE, NONE);
        (list.records, list.has_hours, list.ends_in_half) = (0, false, false);
        if had_hours {
            self.hours.retain(|&(of, ..), _| of != number);
        }
    }

    /// Number of records, and of counts by the hour.
    pub(super) fn len(&self) -> usize {
        self.records + self.hours.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.lists.bytes()
            + 5 * self.table.capacity() * 8 / 7
            + self.chunks.bytes()
            + self.halves.bytes()
            + HOUR_BYTES * self.hours.len()
    }

    fn find(&self, user: UserKey, day: Day) -> Option<u32> {
        // All days of a user have one hash, so that all of them can be found.
        let hash = self.hasher.hash_one(user);
        let is_wanted = |&number: &u32| self.lists.get(number).is_of(user, day);
        self.table.find(hash, is_wanted).copied()
    }

    fn list(&mut self, user: UserKey, day: Day) -> u32 {
        if let Some(number) = self.find(user, day) {
            return number;
        }
        let Self {
            lists,
            table,
            hasher,
            ..
        } = self;
        let number = lists.push(List {
            user,
            day,
            first: NONE,
            last: NONE,
            records: 0,
            used: 0,
            ends_in_half: false,
            has_hours: false,
        });
        let hash = hasher.hash_one(user);
        table.insert_unique(hash, number, |&number| {
            hasher.hash_one(lists.get(number).user)
        });
        number
    }

    fn append(&mut self, number: u32, record: &[u8]) {
        let mut rest = record;
        while !rest.is_empty() {
            let List {
                last,
                used,
                ends_in_half,
                ..
            } = *self.lists.get(number);
            let used = usize::from(used);
            let bytes: &mut [u8] = match ends_in_half {
                true if used == HALF_BYTES => {
                    self.make_whole(number);
                    continue;
                }
                true => &mut self.halves.get_mut(last).bytes,
                false if last == NONE || used == CHUNK_BYTES => {
                    let half = self.new_half(last);
                    let list = self.lists.get_mut(number);
                    (list.last, list.used, list.ends_in_half) = (half, 0, true);
                    continue;
                }
                false => &mut self.chunks.get_mut(last).bytes,
            };
            let room = &mut bytes[used..];
            let taken = room.len().min(rest.len());
            room[..taken].copy_from_slice(&rest[..taken]);
            self.lists.get_mut(number).used += taken as u8;
            rest = &rest[taken..];
        }
    }

    /// A half behind this chunk, which may be [`NONE`].
    fn new_half(&mut self, before: u32) -> u32 {
        let half = Half {
            before,
            bytes: [0; HALF_BYTES],
        };
        if self.free == NONE {
            return self.halves.push(half);
        }
        let number = self.free;
        let free = self.halves.get_mut(number);
        self.free = free.before;
        *free = half;
        number
    }

    /// Makes a chunk of the half that a list ends in.
    fn make_whole(&mut self, number: u32) {
        let list = self.lists.get_mut(number);
        let half = self.halves.get_mut(list.last);
        let mut chunk = Chunk {
            next: NONE,
            bytes: [0; CHUNK_BYTES],
        };
        chunk.bytes[..HALF_BYTES].copy_from_slice(&half.bytes);
        let new = self.chunks.push(chunk);
        match half.before {
            NONE => list.first = new,
            before => self.chunks.get_mut(before).next = new,
        }
        half.before = std::mem::replace(&mut self.free, list.last);
        (list.last, list.ends_in_half) = (new, false);
    }
}

impl Default for Actions {
    fn default() -> Self {
        Self {
            lists: Pages::default(),
            table: HashTable::new(),
            chunks: Pages::default(),
            halves: Pages::default(),
            free: NONE,
            records: 0,
            hours: BTreeMap::new(),
            hasher: DefaultHashBuilder::default(),
        }
    }
}

impl Done {
    /// The action, with its text.
    fn action(self, whats: &Interner) -> Action<'_> {
        Action {
            second: self.second,
            by_hour: self.by_hour,
            what: whats.get(self.what),
            tag: self.tag,
        }
    }
}

impl List {
    /// The user.
    pub(super) fn user(&self) -> UserKey {
        self.user
    }

    /// The UTC day.
    pub(super) fn day(&self) -> Day {
        self.day
    }

    /// The user and the UTC day.
    pub(super) fn place(&self) -> (UserKey, Day) {
        (self.user, self.day)
    }

    fn is_of(&self, user: UserKey, day: Day) -> bool {
        (self.user, self.day) == (user, day)
    }
}

/// The counts by the hour of the list with this number.
fn hours_of(list: u32) -> RangeInclusive<(u32, u8, u32)> {
    (list, 0, 0)..=(list, u8::MAX, u32::MAX)
}

/// Appends a number in LEB128.
fn push(record: &mut [u8; RECORD_BYTES_MAX], length: &mut usize, mut number: u64) {
    while number >= 0x80 {
        record[*length] = number as u8 | 0x80;
        *length += 1;
        number >>= 7;
    }
    record[*length] = number as u8;
    *length += 1;
}

fn take(rest: &mut &[u8]) -> u64 {
    let (mut number, mut shift) = (0, 0);
    loop {
        let (&byte, behind) = rest.split_first().expect("BUG: a record is whole");
        *rest = behind;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return number;
        }
        shift += 7;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// So many that a number has up to three bytes.
    const WHATS: u32 = 5_000;

    type Content = BTreeMap<(UserKey, Day), Vec<(u32, Vec<u8>, Option<u64>, u64)>>;

    /// Texts by numbers, of the one delta or of the other.
    fn whats(of: u32) -> Interner {
        let mut whats = Interner::default();
        for number in 0..WHATS {
            let what = (number + of) % WHATS;
            whats.intern(format!("click..ad={what}").as_bytes());
        }
        whats
    }

    /// The number in the other delta.
    fn moved(number: u32) -> u32 {
        (number + WHATS - 3) % WHATS
    }

    fn content(all: &[(&Actions, &Interner)]) -> Content {
        let mut content = Content::new();
        for (actions, whats) in all {
            for list in actions.lists(&[]) {
                let records = content.entry(list.place()).or_default();
                actions.visit(list.place(), whats, &mut |action, n| {
                    records.push((action.second, action.what.to_vec(), action.tag, n));
                });
            }
        }
        content.values_mut().for_each(|records| records.sort());
        content
    }

    proptest! {
        #[test]
        fn prop_lists_hold_what_was_added_and_keep_it_as_they_move(
            added in proptest::collection::vec(
                (0..4_u8, 0..2_u32, 0..86_400_u32, prop_oneof![0..5_u32, 0..WHATS], proptest::option::of(any::<u64>().prop_map(|tag| tag << 16)), prop_oneof![Just(1), 1..u64::MAX]),
                0..RECORDS_MAX as usize,
            ),
            before in 0..50_usize,
        ) {
            let (mut from, mut to, mut model) = (Actions::default(), Actions::default(), Content::new());
            let (of_from, of_to) = (whats(0), whats(3));
            for (index, &(user, day, second, what, tag, n)) in added.iter().enumerate() {
                let place = (UserKey::from_bytes([user; 12]), Day::from_number(9_000 + day));
                let text = format!("click..ad={what}").into_bytes();
                let (into, what) = if index < before { (&mut to, moved(what)) } else { (&mut from, what) };
                into.add(place, Done { second, by_hour: false, what, tag }, n);
                model.entry(place).or_default().push((second, text, tag, n));
            }
            model.values_mut().for_each(|records| records.sort());
            prop_assert_eq!(from.len() + to.len(), added.len());
            let mut number = 0;
            loop {
                prop_assert_eq!(&content(&[(&from, &of_from), (&to, &of_to)]), &model);
                if from.move_list(number, &mut to, &mut moved).is_none() {
                    break;
                }
                number += 1;
            }
            prop_assert_eq!((from.len(), to.len()), (0, added.len()));
            prop_assert!(to.bytes() >= 10 * added.len().min(1));
        }

        #[test]
        fn prop_a_busy_user_is_counted_by_the_hour_and_nothing_is_lost(
            added in proptest::collection::vec((0..86_400_u32, 0..3_u8, 1..5_u64), 0..400),
            before in 0..100_usize,
        ) {
            let place = (UserKey::from_bytes([1; 12]), Day::from_number(9_000));
            let (mut from, mut to) = (Actions::default(), Actions::default());
            let mut model: BTreeMap<(u32, u8), u64> = BTreeMap::new();
            for (index, &(second, what, n)) in added.iter().enumerate() {
                let into = if index < before { &mut to } else { &mut from };
                let done = Done { second, by_hour: false, what: u32::from(what), tag: Some(7) };
                into.add(place, done, n);
                *model.entry((second / HOUR_SECONDS, what)).or_insert(0) += n;
            }
            for moved in [false, true] {
                if moved {
                    from.move_list(0, &mut to, &mut |what| what);
                    prop_assert_eq!((from.len(), from.lists(&[]).count()), (0, 0));
                    prop_assert!(to.len() <= RECORDS_MAX as usize + 24 * 3);
                }
                let mut found: BTreeMap<(u32, u8), u64> = BTreeMap::new();
                for actions in [&from, &to] {
                    actions.visit(place, &whats(0), &mut |action, n| {
                        assert!(!action.by_hour || action.second % HOUR_SECONDS == 0 && action.tag.is_none());
                        let hour = (action.second / HOUR_SECONDS, action.what[action.what.len() - 1] - b'0');
                        *found.entry(hour).or_insert(0) += n;
                    });
                }
                prop_assert_eq!(&found, &model);
            }
        }
    }
}
