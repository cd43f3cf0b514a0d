//! Everything that the log was sent, in its order, and the final books of a day that follow from it by the simplest
//! rules.
//!
//! The first of all records with one id counts, unless that id was voided on its day. It counts as a filtered event
//! where a rule of now catches it. Where the record that came first may be forgotten, or the user of an event was
//! erased, both verdicts are right.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tallyring_realtime::View;
use tallyring_records::{
    Day, Increment, MINUTES, Rules, Schema, TIME_MAX, TIME_MIN, Users, of_by_minute,
};

use super::book::Book;
use super::check::whole;
use super::clicks;
use super::naive::{Cell, Counted, IdState, cells};
use super::oracle::Oracle;

/// The log as it was sent. Ids are names.
#[derive(Default)]
pub(super) struct History {
    records: Vec<Logged>,
    voided: BTreeSet<(String, Day)>,
    /// Whether old events have lost the names of users, so that a rule by a name may keep what it said before.
    pub has_pseudonyms: bool,
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
    must: Book,
    may: Book,
    must_users: UsersByBucket,
    may_users: UsersByBucket,
    must_actions: Oracle,
    may_actions: Oracle,
}

type UsersByBucket = BTreeMap<Bucket, BTreeSet<String>>;

/// Namespace, key and start of a bucket.
type Bucket = (String, String, i64);

/// Whether a record counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counts {
    Yes,
    Perhaps,
    No,
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
            self.records.remove(found.expect("BUG: it was noted"));
        }
    }

    /// The clock was set, `moved_ms` from where it stood.
    pub(super) fn age(&mut self, now_ms: i64, moved_ms: i64) {
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

    /// The final books of a day by the rules of a schema and the records before `until`. Ids of other days are known
    /// for sure where the clock has moved less than `known_ms` since they came, and where the log surely has them,
    /// which begins with the record `log_begins`.
    pub(super) fn final_books(
        &self,
        day: Day,
        until: usize,
        schema: &Schema,
        known: (i64, u64),
    ) -> Bounds {
        let rules = Rules::compile(schema, &|_| None).expect("rules without lists");
        let mut bounds = Bounds {
            records: until,
            must: Book::default(),
            may: Book::default(),
            must_users: BTreeMap::new(),
            may_users: BTreeMap::new(),
            must_actions: Oracle::default(),
            may_actions: Oracle::default(),
        };
        let mut of_id: HashMap<&str, Vec<&Logged>> = HashMap::new();
        for logged in &self.records[..until] {
            let id = logged.increment.id.as_deref();
            let same = id.map(|id| of_id.entry(id).or_default());
            if Day::of(logged.increment.at) == day {
                let before = same.as_ref().map_or(&[][..], |same| same);
                let by_id = self.by_id(logged, before, known);
                if by_id != Counts::No {
                    let caught = rules.stateless(&logged.increment).caught;
                    let caught = caught.map(|index| &*schema.filters[index].name);
                    self.count(&mut bounds, logged, by_id == Counts::Yes, caught);
                }
            }
            if let Some(same) = same {
                same.push(logged);
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

    fn by_id(
        &self,
        logged: &Logged,
        before: &[&Logged],
        (known_ms, log_begins): (i64, u64),
    ) -> Counts {
        let day = Day::of(logged.increment.at);
        let is_known = |first: &&&Logged| {
            Day::of(first.increment.at) == day
                || first.arrived.is_within(known_ms)
                || first.sequence_min >= log_begins
        };
        let Some(id) = &logged.increment.id else {
            return Counts::Yes;
        };
        let is_voided = self.voided.contains(&(id.clone(), day));
        if is_voided || before.iter().any(|first| is_known(&first)) {
            return Counts::No;
        }
        match before.is_empty() && !self.perhaps_voided.contains(id) {
            true => Counts::Yes,
            false => Counts::Perhaps,
        }
    }

    /// Counts a record as itself, or as what the rule that catches it filters.
    fn count(&self, bounds: &mut Bounds, logged: &Logged, is_sure: bool, caught: Option<&str>) {
        let increment = &logged.increment;
        let has_lost_user = logged.is_erased || self.has_pseudonyms;
        if has_lost_user && increment.event.is_some() {
            // Any verdict of before may stand.
            bounds.count(logged, increment, false);
            for rule in clicks::RULES {
                bounds.count(logged, &increment.filtered_by(rule), false);
            }
            return;
        }
        match caught {
            Some(rule) => bounds.count(logged, &increment.filtered_by(rule), is_sure),
            None => bounds.count(logged, increment, is_sure),
        }
    }
}

impl Bounds {
    fn count(&mut self, logged: &Logged, increment: &Increment, is_sure: bool) {
        let schema = clicks::schema(logged.schema);
        self.may_serve(schema, increment);
        // The log forgets an erased user, and the books of a version before do not.
        let has_user = is_sure && !logged.is_erased;
        if has_user {
            self.must_actions.add(schema, increment);
        }
        for cell in cells(schema, increment) {
            if is_sure {
                self.must.add(&cell, increment.n);
            }
            self.may.add(&cell, increment.n);
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
