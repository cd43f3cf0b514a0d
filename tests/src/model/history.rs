//! Everything that the log was sent, in its order, and the final books of a day that follow from it by the simplest
//! rules.
//!
//! The first of all records with one id counts, unless that id was voided on its day, but for keys that were deleted.
//! It counts as a filtered event where a rule of now catches it. Where the record that came first may be forgotten, or
//! the user of an event was erased, both verdicts are right. Rules with memory judge what came in the order of its
//! times.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tallyring_realtime::View;
use tallyring_records::{
    Day, Form, Increment, MINUTES, Role, Schema, TIME_MAX, TIME_MIN, Users, of_by_minute,
};

use super::book::Book;
use super::check::whole;
use super::clicks;
use super::deletes::{Deletes, Gone};
use super::naive::{Cell, Counted, IdState, cells};
use super::oracle::Oracle;
use super::taps::{self, Taps};

/// The log as it was sent. Ids are names.
#[derive(Default)]
pub(super) struct History {
    records: Vec<Logged>,
    voided: BTreeSet<(String, Day)>,
    pub deletes: Deletes,
    /// Whether old events have lost the names of users, so that a rule by a name may keep what it said before.
    pub has_pseudonyms: bool,
    clock_went_back: bool,
    /// Ids of voids whose answer is not known.
    perhaps_voided: BTreeSet<String>,
}

struct Logged {
    increment: Increment,
    /// The schema under which it counts.
    schema: usize,
    arrived: IdState,
    is_erased: bool,
    /// No record with a lower sequence number is this one.
    sequence_min: u64,
}

/// The books that a final day must have at least, and those that it may have at most.
pub(super) struct Bounds {
    /// How many records of the history they follow from.
    pub records: usize,
    /// How many events each rule with memory surely catches.
    pub caught: BTreeMap<&'static str, u64>,
    must: Book,
    may: Book,
    must_users: UsersByBucket,
    may_users: UsersByBucket,
    must_actions: Oracle,
    may_actions: Oracle,
}

/// How far back a reconcile knows surely.
pub(super) struct Known {
    /// Ids of other days that came since the clock has moved less, milliseconds.
    pub ids_ms: i64,
    /// Ids of other days from this record on.
    pub ids_from: u64,
    /// The first record of the log.
    pub log_from: u64,
}

type UsersByBucket = BTreeMap<Bucket, BTreeSet<String>>;

/// Namespace, key and start of a bucket.
type Bucket = (String, String, i64);

/// Whether a record counts, or a rule catches it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Counts {
    No,
    Perhaps,
    Yes,
}

impl History {
    /// Notes a batch that was written.
    pub(super) fn add(&mut self, counted: &Counted, arrived: IdState) {
        let sequence_min = counted.sequence_min;
        self.records
            .extend(counted.sent().cloned().map(|increment| Logged {
                increment,
                schema: counted.schema,
                arrived,
                is_erased: false,
                sequence_min,
            }));
    }

    /// Takes a batch back that a loss of power took. Panics when it was not noted.
    pub(super) fn remove(&mut self, counted: &Counted) {
        for increment in counted.sent() {
            let mut records = self.records.iter();
            let found = records.rposition(|logged| logged.increment == *increment);
            let found = found.expect("BUG: it was noted");
            self.records.remove(found);
            self.deletes.removed(found);
        }
    }

    /// The clock was set, `moved_ms` from where it stood.
    pub(super) fn age(&mut self, now_ms: i64, moved_ms: i64) {
        self.clock_went_back |= moved_ms < 0;
        for logged in &mut self.records {
            logged.arrived.age(now_ms, moved_ms);
        }
    }

    /// Users were erased, or perhaps were.
    pub(super) fn erase(&mut self, users: &[String]) {
        let is_of = |logged: &&mut Logged| {
            let user = logged.increment.user.as_ref();
            user.is_some_and(|user| users.contains(user))
        };
        self.records
            .iter_mut()
            .filter(is_of)
            .for_each(|logged| logged.is_erased = true);
    }

    /// Ids of records of a day.
    pub(super) fn ids_of(&self, day: Day) -> Vec<String> {
        let of_day = self.records.iter().map(|logged| &logged.increment);
        let of_day = of_day.filter(|increment| Day::of(increment.at) == day);
        of_day
            .filter_map(|increment| increment.id.clone())
            .collect()
    }

    /// Notes a void. False when no record has the id on that day.
    pub(super) fn void(&mut self, name: String, day: Day) -> bool {
        let is_known = self.ids_of(day).contains(&name);
        self.voided.insert((name, day));
        is_known
    }

    /// Notes a void whose answer is not known.
    pub(super) fn perhaps_void(&mut self, name: String) {
        self.perhaps_voided.insert(name);
    }

    /// The name of the rule with memory of the schema `number` that may catch the next increment as it comes: something
    /// came before by which it is caught, if all of that is remembered.
    pub(super) fn may_catch(&self, increment: &Increment, number: usize) -> Option<&'static str> {
        let mut rules = clicks::with_memory(increment, number);
        let (rule, key, _) = rules.find(|(.., role)| *role == Role::Judged)?;
        let (needs, explains) = match rule.form {
            Form::Needs { .. } => (true, Role::Needed),
            _ => (false, Role::Judged),
        };
        let known = self.records.iter().rev().map(|logged| &logged.increment);
        let known = known.filter(|known| {
            let mut rules = clicks::with_memory(known, number);
            rules.any(|found| found == (rule, key, explains))
        });
        let is_explained = taps::may_catch(rule, known.map(|known| known.at), increment.at);
        (is_explained || needs && self.clock_went_back).then_some(rule.name.as_str())
    }

    /// Records that were noted.
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// True when a log that begins with this record may lack none of the first `until` records that are of a day.
    pub(super) fn is_whole(&self, day: Day, until: usize, log_begins: u64) -> bool {
        let records = self.records[..until].iter();
        let mut of_day = records.filter(|logged| Day::of(logged.increment.at) == day);
        of_day.all(|logged| logged.sequence_min >= log_begins)
    }

    /// The final books of a day by the rules of the schema `number` and the records before `until`.
    pub(super) fn final_books(
        &self,
        day: Day,
        until: usize,
        number: usize,
        known: &Known,
    ) -> Bounds {
        let (rules, filters) = (clicks::rules(number), &clicks::schema(number).filters);
        let mut bounds = Bounds {
            records: until,
            caught: BTreeMap::new(),
            must: Book::default(),
            may: Book::default(),
            must_users: BTreeMap::new(),
            may_users: BTreeMap::new(),
            must_actions: Oracle::default(),
            may_actions: Oracle::default(),
        };
        let (mut of_day, mut taps) = (Vec::new(), Taps::new(day, number));
        let mut of_id: HashMap<&str, Vec<&Logged>> = HashMap::new();
        for (index, logged) in self.records[..until].iter().enumerate() {
            let id = logged.increment.id.as_deref();
            let same = id.map(|id| of_id.entry(id).or_default());
            let is_of_day = Day::of(logged.increment.at) == day;
            if is_of_day || taps.take(&logged.increment) {
                let before = same.as_ref().map_or(&[][..], |same| same);
                let by_id = self.by_id(logged, before, day, known);
                // The log may lack a record of a day beside.
                let is_there = match by_id {
                    Counts::Yes if !is_of_day && logged.sequence_min < known.log_from => {
                        Counts::Perhaps
                    }
                    by_id => by_id,
                };
                taps.add(index, &logged.increment, is_there);
                of_day.extend((is_of_day && by_id != Counts::No).then_some((index, by_id)));
            }
            if let Some(same) = same {
                same.push(logged);
            }
        }
        let by_memory = taps.caught();
        for (index, by_id) in of_day {
            let logged = &self.records[index];
            let caught = rules.stateless(&logged.increment).caught;
            let caught = caught.map(|index| &*filters[index].name);
            let is_sure = by_id == Counts::Yes;
            match by_memory.get(&index).filter(|_| caught.is_none()) {
                Some((rule, Counts::Yes)) => {
                    let is_told = is_sure && !self.has_pseudonyms;
                    let by_rule = bounds.caught.entry(&rule.name).or_default();
                    *by_rule += u64::from(is_told);
                    self.count(&mut bounds, index, is_sure, Some(&rule.name));
                }
                Some((rule, Counts::Perhaps)) => {
                    self.count(&mut bounds, index, false, Some(&rule.name));
                    self.count(&mut bounds, index, false, None);
                }
                _ => self.count(&mut bounds, index, is_sure, caught),
            }
        }
        let later = self.records[until..].iter();
        for logged in later.filter(|logged| Day::of(logged.increment.at) == day) {
            let schema = clicks::schema(logged.schema);
            bounds.may_serve(schema, &logged.increment);
        }
        bounds
    }

    /// Compares the actions of a final day that are served with those of its books; what came after its records may be
    /// served, too.
    ///
    /// # Errors
    /// The first user whose actions differ, or an answer that fails.
    pub(super) fn check_actions(
        &self,
        view: &View<'_>,
        day: Day,
        bounds: &Bounds,
    ) -> Result<(), String> {
        let range = day.start()..day.next().start();
        let users = clicks::users();
        let wrong = |wrong| format!("actions of the final day {day}: {wrong}");
        let must = &bounds.must_actions;
        let may = &bounds.may_actions;
        may.check(view, &users, &range, TIME_MAX).map_err(wrong)?;
        must.check_least(view, &users, &range).map_err(wrong)
    }

    /// Whether the id of a record lets it count, when `day` is judged.
    fn by_id(&self, logged: &Logged, before: &[&Logged], day: Day, known: &Known) -> Counts {
        let of = Day::of(logged.increment.at);
        let is_in_log = |first: &Logged, from: u64| of == day || first.sequence_min >= from;
        let is_known = |first: &&&Logged| {
            Day::of(first.increment.at) == of && is_in_log(first, known.log_from)
                || first.arrived.is_within(known.ids_ms)
                || first.sequence_min >= known.ids_from
        };
        let Some(id) = &logged.increment.id else {
            return Counts::Yes;
        };
        let is_voided = self.voided.contains(&(id.clone(), of));
        // Only a part of another day is looked at, and the void may be of another part.
        if is_voided && of != day && of != day.previous() {
            return Counts::Perhaps;
        }
        if is_voided || before.iter().any(|first| is_known(&first)) {
            return Counts::No;
        }
        match before.is_empty() && !self.perhaps_voided.contains(id) {
            true => Counts::Yes,
            false => Counts::Perhaps,
        }
    }

    /// Counts a record as itself, or as what the rule that catches it filters.
    fn count(&self, bounds: &mut Bounds, index: usize, is_sure: bool, caught: Option<&str>) {
        let logged = &self.records[index];
        let increment = &logged.increment;
        let day = Day::of(increment.at);
        let gone = |cell: &Cell| self.deletes.of(index, (&cell.name, &cell.key), day);
        let has_lost_user = logged.is_erased || self.has_pseudonyms;
        if has_lost_user && increment.event.is_some() {
            // Any verdict of before may stand.
            bounds.count((logged, &gone), increment, false);
            for rule in clicks::RULES {
                bounds.count((logged, &gone), &increment.filtered_by(rule), false);
            }
            return;
        }
        match caught {
            Some(rule) => bounds.count((logged, &gone), &increment.filtered_by(rule), is_sure),
            None => bounds.count((logged, &gone), increment, is_sure),
        }
    }
}

impl Bounds {
    /// Counts an increment of a record. `gone` says which counters it lost.
    fn count(
        &mut self,
        (logged, gone): (&Logged, &dyn Fn(&Cell) -> Gone),
        increment: &Increment,
        is_sure: bool,
    ) {
        let schema = clicks::schema(logged.schema);
        self.may_serve(schema, increment);
        // The log forgets an erased user, and the books of a version before do not.
        let has_user = is_sure && !logged.is_erased;
        if has_user {
            self.must_actions.add(schema, increment);
        }
        for cell in cells(schema, increment) {
            let gone = gone(&cell);
            if is_sure && gone == Gone::No {
                self.must.add(&cell, increment.n);
            }
            if gone != Gone::Yes {
                self.may.add(&cell, increment.n);
            }
            let has_user = has_user && gone == Gone::No;
            if let Some((bucket, user)) = user_of(schema, cell, increment).filter(|_| has_user) {
                self.must_users.entry(bucket).or_default().insert(user);
            }
        }
    }

    /// Notes users and actions that may be served, in the books or beside them.
    fn may_serve(&mut self, schema: &Schema, increment: &Increment) {
        self.may_actions.add(schema, increment);
        let cells = cells(schema, increment).into_iter();
        for (bucket, user) in cells.filter_map(|cell| user_of(schema, cell, increment)) {
            self.may_users.entry(bucket).or_default().insert(user);
        }
    }

    /// Compares the users of a final day that are served with those of its books; `is_apart` where no others are
    /// served, too.
    ///
    /// # Errors
    /// The first bucket that differs, or an answer that fails.
    pub(super) fn check_users(&self, view: &View<'_>, is_apart: bool) -> Result<(), String> {
        let none = BTreeSet::new();
        let keys: BTreeSet<_> = self
            .may_users
            .keys()
            .map(|(name, key, _)| (name, key))
            .collect();
        let mut found = BTreeMap::new();
        for (name, key) in keys {
            let users = view.users(whole(name, key, None), None);
            let users = users.map_err(|error| error.to_string())?;
            let united = users.unite(&(TIME_MIN..TIME_MAX), |start| usize::try_from(start).ok());
            found.insert((name, key), united.map_err(|error| error.to_string())?);
        }
        for (bucket @ (name, key, start), may) in &self.may_users {
            let must = self.must_users.get(bucket).unwrap_or(&none);
            let users = &found[&(name, key)];
            let start = usize::try_from(*start).expect("BUG: times are after 1970");
            let found = users.get(&start).map_or(0, Users::estimate) as usize;
            if found < must.len() || is_apart && found > may.len() {
                return Err(format!(
                    "{name} {key} at {start} has {found} users, expected {must:?} to {may:?}"
                ));
            }
        }
        Ok(())
    }

    /// Compares final books with them, in totals and breakdowns.
    ///
    /// # Errors
    /// The first counter that differs.
    pub(super) fn check(&self, found: &Book) -> Result<(), String> {
        let counters = found.counters().into_iter().chain(self.must.counters());
        for (cell, _) in counters.filter(|(cell, _)| is_compared(cell)) {
            let [must, is, may] = [&self.must, found, &self.may].map(|book| book.count(&cell));
            if is < must || is > may {
                let Cell {
                    name,
                    key,
                    by,
                    start,
                } = cell;
                return Err(format!(
                    "{name} {key} {by:?} at {start} counts {is} in the final books, expected {must} to {may}"
                ));
            }
        }
        Ok(())
    }
}

/// The user of an increment in a cell, with its bucket, where users of it are kept.
fn user_of(schema: &Schema, cell: Cell, increment: &Increment) -> Option<(Bucket, String)> {
    let keeps_users = schema.counted(&cell.name).is_some_and(|of| of.uniques);
    let user = increment.user.clone();
    let user = user.filter(|_| keeps_users && cell.by.is_none())?;
    Some(((cell.name, cell.key, cell.start), user))
}

/// Final books have no breakdowns by minute, and minutes only where they are kept.
fn is_compared(cell: &Cell) -> bool {
    let by = cell.by.as_ref();
    by.is_none_or(|(subtotal, _)| subtotal != MINUTES && of_by_minute(subtotal).is_none())
}
