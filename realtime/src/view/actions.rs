//! Actions of users, from one view of memory and runs.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::ops::{ControlFlow, Range};

use tallyring_archive::Run;
use tallyring_records::{Action, Day, Interner, KeyCrc, TimeCode, UserKey, action_seconds, line};

use super::View;
use super::gather::{Visit, may_hold};
use super::less::below_zero;
use super::less_actions::Taken;
use super::parts::{File, Part};
use crate::budget::{Charge, Reading, reserve};
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
        self.keys().stored(raw)
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
        let user = UserKey::of(self.keys(), user);
        let days = Day::of(range.start)..Day::of(range.end - 1).next();
        let asked = Asked {
            reading: &self.reading,
            user,
            crc: user.crc(),
            // Lines of actions are of a whole day.
            seconds: days.start.start()..range.end,
            lines: OnceCell::new(),
            days,
            visit_run,
            most,
        };
        let mut visiting = Visiting {
            range,
            visit,
            left: most,
            taken: Taken::new(self.reading.charge()),
        };
        let mut parts = self.parts();
        parts.try_for_each(|part| asked.visit(part, &mut visiting))
    }
}

/// The question for what one user did.
struct Asked<'r> {
    reading: &'r Reading,
    user: UserKey,
    crc: KeyCrc,
    days: Range<Day>,
    /// Unix seconds.
    seconds: Range<i64>,
    /// Most users have lines in few files, or in none.
    lines: OnceCell<UserLines>,
    visit_run: Visit,
    /// Actions that are read, at most.
    most: usize,
}

impl Asked<'_> {
    fn lines(&self) -> &UserLines {
        let lines = || UserLines::new(self.user, self.days.clone());
        self.lines.get_or_init(lines)
    }

    /// Visits what a part has of the user, without what it takes away.
    fn visit(&self, part: &Part<'_>, visiting: &mut Visiting<'_, '_>) -> Result<()> {
        let hiding = part.hiding(&self.user);
        let holds = |file: &File<'_>| {
            may_hold(file.run, &self.seconds, self.crc) && !hiding.contains(file.run.name())
        };
        let minus = part.minus_in(&self.seconds);
        let minus = minus.filter(|file| file.run.meta().has_actions());
        let minus: Vec<File<'_>> = minus.filter(holds).collect();
        visiting.taken.begin_again();
        self.note_taken(&minus, &mut visiting.taken)?;
        let mut files: Vec<File<'_>> = Vec::new();
        for store in part.stores_in(&self.seconds) {
            self.visit_memory(store, visiting)?;
            files.extend(part.flushed(store).filter(holds));
        }
        files.extend(part.plus().filter(holds));
        for file in files {
            self.reading.check()?;
            let take = &mut |day, action: Action<'_>, n| visiting.take(day, action, n);
            self.lines().visit(file, self.visit_run, take)?;
        }
        match visiting.settle()? {
            true => Ok(()),
            false => Err(below_zero(self.user.prefix().as_bytes(), &minus)),
        }
    }

    fn visit_memory(&self, store: &DeltaStore, visiting: &mut Visiting<'_, '_>) -> Result<()> {
        let of_store = match store.id.day() {
            Some(day) => day.max(self.days.start)..day.next().min(self.days.end),
            None => self.days.clone(),
        };
        for delta in store.deltas() {
            let (days, mut taken) = (of_store.clone(), Ok(()));
            let take = &mut |day, action: Action<'_>, n| {
                if taken.is_ok() {
                    taken = visiting.take(day, action, n);
                }
            };
            if !delta.actions((self.user, self.crc), days, self.most, take) {
                return Err(not_cached());
            }
            taken?;
        }
        Ok(())
    }

    /// Notes what some files take away of what the user did. Fails when it is more than `most` values, a block is
    /// damaged, or the budget has no room.
    fn note_taken(&self, minus: &[File<'_>], taken: &mut Taken) -> Result<()> {
        let mut most = self.most;
        for file in minus {
            self.reading.check()?;
            let take = &mut |day, action: Action<'_>, n| {
                most = most.checked_sub(1).ok_or_else(not_cached)?;
                taken.less(day, action, n)
            };
            self.lines().visit(*file, self.visit_run, take)?;
        }
        Ok(())
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

    /// Calls `take` with each action in a file, until it fails. Fails with that error, or when a block is damaged.
    pub(super) fn visit(
        &self,
        File { run, cache, .. }: File<'_>,
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
