//! Actions of users, from one view of memory and runs.

use std::borrow::Cow;
use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use tallyring_archive::{BlockCache, Hidden, Run, RunEntry};
use tallyring_records::{Action, Day, Interner, TimeCode, UserKey, action_seconds, line};

use super::View;
use super::gather::{Visit, concerns, may_hold};
use super::less::below_zero;
use super::less_actions::Taken;
use crate::budget::{Charge, reserve};
use crate::delta::DeltaStore;
use crate::error::{Error, Result};

/// The actions of several users.
pub struct UserActions {
    /// Texts of what users did, by number, as [`What`](tallyring_records::What) reads it.
    pub whats: Interner,
    /// Actions of each user, in any order.
    pub users: Vec<Vec<Did>>,
    /// Memory of the actions.
    _charges: Vec<Charge>,
}

/// One action of a user, or several that are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Did {
    /// When, Unix seconds.
    pub at: i64,
    /// Number of what was done.
    pub what: u32,
    /// How often.
    pub n: u64,
    /// The tag of the insertion ([`tallyring_records::insertion_tag`]).
    pub tag: Option<u64>,
    /// True where it happened at any time of the hour that begins then.
    pub by_hour: bool,
}

impl Did {
    /// The instant behind the last at which it may have happened, Unix seconds.
    pub fn until(&self) -> i64 {
        self.at + action_seconds(self.by_hour)
    }
}

/// Memory of a text in the table of what was done, besides the text.
const WHAT_BYTES: usize = 64;

/// Actions of one user that are read from memory alone, at most. The threads that serve connections read so: everybody
/// would wait for a user who has very many.
const ACTIONS_AT_ONCE: usize = 1_000;

/// Takes an action of a user: when it happened (Unix seconds), the action, and how often it was done.
pub type VisitAction<'v> = dyn FnMut(i64, Action<'_>, u64) -> Result<()> + 'v;

impl View<'_> {
    /// Reads what users did in a range (Unix seconds). Fails where a block is damaged, or the budget of reads has no
    /// room for the actions. `at_once` reads from memory alone: none where a block would have to be read from the disk,
    /// or a user has so many actions that others would wait. Otherwise it blocks on files, and there is an answer.
    pub fn actions(
        &self,
        users: &[String],
        range: &Range<i64>,
        at_once: bool,
    ) -> Result<Option<UserActions>> {
        let mut found = Found {
            whats: Interner::default(),
            whats_charge: self.reading.charge(),
            of_user: Vec::new(),
            charge: self.reading.charge(),
        };
        let mut all = UserActions {
            whats: Interner::default(),
            users: Vec::with_capacity(users.len()),
            _charges: Vec::with_capacity(users.len() + 1),
        };
        for user in users {
            let mut take = |at, action: Action<'_>, n| found.take(at, action, n);
            let visited = self.visit_actions(user, range, at_once, &mut take)?;
            if visited.is_none() {
                return Ok(None);
            }
            all.users.push(std::mem::take(&mut found.of_user));
            all._charges
                .push(std::mem::replace(&mut found.charge, self.reading.charge()));
        }
        all.whats = found.whats;
        all._charges.push(found.whats_charge);
        Ok(Some(all))
    }

    /// Calls `visit` with what a user did in a range (Unix seconds), in any order: all of it, or what was found until
    /// there is no answer. Fails and answers as [`View::actions`] does, and fails with the first error of `visit`.
    pub fn visit_actions(
        &self,
        user: &str,
        range: &Range<i64>,
        at_once: bool,
        visit: &mut VisitAction<'_>,
    ) -> Result<Option<()>> {
        match self.actions_of(user, range, at_once, visit) {
            Err(Error::Archive(tallyring_archive::Error::NotCached)) => Ok(None),
            found => found.map(Some),
        }
    }

    /// The stored form of a key or a view, as actions name it.
    pub fn stored<'t>(&self, raw: &'t str) -> Cow<'t, str> {
        self.live.keys.stored(raw)
    }

    /// Names of the runs whose actions of the user are hidden.
    fn hiding(&self, user: &UserKey) -> BTreeSet<&str> {
        let Some(at) = self.snapshot.erasures.erased_at(user) else {
            return BTreeSet::new();
        };
        let hiding = self.entries().filter(|entry| entry.erased_until <= at);
        hiding.map(|entry| entry.name.as_str()).collect()
    }

    /// The users whose actions are hidden in a run.
    pub(super) fn hidden_in(&self, run: &Run) -> Hidden {
        let erasures = &self.snapshot.erasures;
        if erasures.is_empty() {
            return Hidden::default();
        }
        let entry = self.entries().find(|entry| entry.name == run.name());
        entry.map_or_else(Hidden::default, |entry| erasures.hidden_in(entry))
    }

    /// Entries of all runs.
    fn entries(&self) -> impl Iterator<Item = &RunEntry> {
        let stores = self.snapshot.ring.stores();
        let of_stores = stores.flat_map(|store| store.runs.iter().map(|run| &run.entry));
        of_stores.chain(self.snapshot.manifest.files())
    }

    fn actions_of(
        &self,
        user: &str,
        range: &Range<i64>,
        at_once: bool,
        visit: &mut VisitAction<'_>,
    ) -> Result<()> {
        self.reading.check()?;
        let (visit_run, most): (Visit, usize) = match at_once {
            true => (Run::visit_cached, ACTIONS_AT_ONCE),
            false => (Run::visit_prefix, usize::MAX),
        };
        let user = UserKey::of(&self.live.keys, user);
        // Lines of actions are of a whole day.
        let days = Day::of(range.start).start()..range.end;
        let (first, end) = (Day::of(range.start), Day::of(range.end - 1).next());
        let crc = user.crc();
        let hiding = self.hiding(&user);
        let holds = |run: &&Arc<Run>| may_hold(run, &days, crc) && !hiding.contains(run.name());
        let lines = LazyCell::new(|| UserLines::new(user, first..end));
        let minus = self.runs_less_actions(&days).filter(holds);
        let minus: Vec<Arc<Run>> = minus.cloned().collect();
        let taken = match minus.is_empty() {
            true => Taken::new(self.reading.charge()),
            false => self.taken_by(&minus, &lines, (visit_run, most))?,
        };
        let mut visiting = Visiting {
            range,
            visit,
            left: most,
            taken,
        };
        let mut runs: Vec<&Arc<Run>> = Vec::new();
        let stores = self.snapshot.ring.stores();
        for store in stores.filter(|store| concerns(&days, store)) {
            let of_store = match store.id.day() {
                Some(day) => day..day.next(),
                None => first..end,
            };
            let of_store = of_store.start.max(first)..of_store.end.min(end);
            for delta in DeltaStore::deltas(store) {
                let (days, mut taken) = (of_store.clone(), Ok(()));
                let take = &mut |day, action: Action<'_>, n| {
                    if taken.is_ok() {
                        taken = visiting.take(day, action, n);
                    }
                };
                if !delta.actions((user, crc), days, most, take) {
                    return Err(not_cached());
                }
                taken?;
            }
            let of_store = store.runs.iter().map(|run| &run.run);
            runs.extend(of_store.filter(holds));
        }
        runs.extend(self.snapshot.archive.plus.iter().filter(holds));
        for run in runs {
            self.reading.check()?;
            lines.visit(run, &self.live.cache, visit_run, &mut |day, action, n| {
                visiting.take(day, action, n)
            })?;
        }
        match visiting.settle()? {
            true => Ok(()),
            false => Err(below_zero(user.prefix().as_bytes(), &minus)),
        }
    }

    /// Notes what some runs take away of what a user did. Fails when it is more than `most` values, a block is damaged,
    /// or the budget has no room.
    fn taken_by(
        &self,
        minus: &[Arc<Run>],
        lines: &UserLines,
        (visit_run, mut most): (Visit, usize),
    ) -> Result<Taken> {
        let mut taken = Taken::new(self.reading.charge());
        for run in minus {
            self.reading.check()?;
            lines.visit(run, &self.live.cache, visit_run, &mut |day, action, n| {
                most = most.checked_sub(1).ok_or_else(not_cached)?;
                taken.less(day, action, n)
            })?;
        }
        Ok(taken)
    }
}

/// The lines of a user on some days.
pub(super) struct UserLines {
    days: Range<Day>,
    /// The beginning of the keys, and the key to begin with.
    prefix: Vec<u8>,
    from: Vec<u8>,
}

impl UserLines {
    pub(super) fn new(user: UserKey, days: Range<Day>) -> Self {
        let prefix = user.prefix().into_bytes();
        let mut from = prefix.clone();
        days.start.code().write_to(&mut from);
        Self { days, prefix, from }
    }

    /// Calls `take` with each action in a run, until it fails. Fails with that error, or when a block is damaged.
    pub(super) fn visit(
        &self,
        run: &Run,
        cache: &BlockCache,
        visit_run: Visit,
        take: &mut dyn FnMut(Day, Action<'_>, u64) -> Result<()>,
    ) -> Result<()> {
        let mut taken = Ok(());
        let (prefix, from) = (self.prefix.as_slice(), self.from.as_slice());
        visit_run(run, cache, (prefix, from), &mut |key, payload| {
            let code = key.strip_prefix(prefix);
            let Some(code) = code.and_then(|code| TimeCode::parse(code).ok()) else {
                return ControlFlow::Break(());
            };
            let day = Day::of(code.start());
            if day >= self.days.end {
                return ControlFlow::Break(());
            }
            for (value, n) in line::entries(payload).flatten() {
                if let Some(action) = Action::parse(value) {
                    taken = take(day, action.as_told_apart(), n);
                }
                if taken.is_err() {
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        })?;
        taken
    }
}

/// The error that says that memory does not answer at once.
fn not_cached() -> Error {
    tallyring_archive::Error::NotCached.into()
}

/// Actions on their way to who asked for them.
struct Visiting<'v, 'a> {
    range: &'v Range<i64>,
    visit: &'v mut VisitAction<'a>,
    /// Actions that may still be taken.
    left: usize,
    /// Days of which something is taken away.
    taken: Taken,
}

impl Visiting<'_, '_> {
    fn take(&mut self, day: Day, action: Action<'_>, n: u64) -> Result<()> {
        match self.taken.more(day, action, n)? {
            true => self.count_one(),
            false => self.pass_on(day, action, n),
        }
    }

    fn pass_on(&mut self, day: Day, action: Action<'_>, n: u64) -> Result<()> {
        let Some(at) = action.at_within(day, self.range) else {
            return Ok(());
        };
        self.count_one()?;
        (self.visit)(at, action, n)
    }

    fn count_one(&mut self) -> Result<()> {
        self.left = self.left.checked_sub(1).ok_or_else(not_cached)?;
        Ok(())
    }

    /// Passes on what is left of days of which something is taken away. False where that is more than the user did.
    fn settle(&mut self) -> Result<bool> {
        let Some(days) = self.taken.settle() else {
            return Ok(false);
        };
        for (day, did) in &days {
            for (action, n) in did.actions() {
                self.pass_on(*day, action, n)?;
            }
        }
        Ok(true)
    }
}

/// Actions that were found.
struct Found {
    whats: Interner,
    whats_charge: Charge,
    /// Actions of the user that is being read.
    of_user: Vec<Did>,
    charge: Charge,
}

impl Found {
    fn take(&mut self, at: i64, action: Action<'_>, n: u64) -> Result<()> {
        let what = match self.whats.find(action.what) {
            Some(what) => what,
            None => {
                self.whats_charge.grow(WHAT_BYTES + action.what.len())?;
                self.whats.intern(action.what)
            }
        };
        reserve(&mut self.of_user, 1, &mut self.charge)?;
        let tag = action.tag;
        let by_hour = action.by_hour;
        self.of_user.push(Did {
            at,
            what,
            n,
            tag,
            by_hour,
        });
        Ok(())
    }
}
