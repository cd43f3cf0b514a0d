//! Actions of users, from one view of memory and runs.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};

use tallyring_archive::Run;
use tallyring_records::{Action, Day, Interner, TimeCode, UserKey, line};

use super::View;
use super::gather::{Visit, concerns, may_hold};
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
    /// 64 keyed bits of the insertion.
    pub tag: Option<u64>,
    /// True where it happened at any time of the hour that begins then.
    pub by_hour: bool,
}

impl Did {
    /// The instant behind the last at which it may have happened, Unix seconds.
    pub fn until(&self) -> i64 {
        self.at + if self.by_hour { HOUR } else { 1 }
    }
}

const HOUR: i64 = 3_600;

/// Memory of a text in the table of what was done, besides the text.
const WHAT_BYTES: usize = 64;

impl View<'_> {
    /// Reads what users did in a range (Unix seconds). Blocks on files. Fails where a block is damaged, or the budget
    /// of reads has no room for the actions.
    pub fn actions(&self, users: &[String], range: &Range<i64>) -> Result<UserActions> {
        self.actions_by(users, range, Run::visit_prefix)
    }

    /// As [`View::actions`], from memory alone: none where a block would have to be read from the disk.
    pub fn actions_cached(
        &self,
        users: &[String],
        range: &Range<i64>,
    ) -> Result<Option<UserActions>> {
        match self.actions_by(users, range, Run::visit_cached) {
            Err(Error::Archive(tallyring_archive::Error::NotCached)) => Ok(None),
            found => found.map(Some),
        }
    }

    fn actions_by(
        &self,
        users: &[String],
        range: &Range<i64>,
        visit: Visit,
    ) -> Result<UserActions> {
        let mut found = Found {
            range,
            whats: Interner::default(),
            whats_charge: self.reading.charge(),
            of_user: Vec::new(),
            charge: self.reading.charge(),
            refused: None,
        };
        let mut all = UserActions {
            whats: Interner::default(),
            users: Vec::with_capacity(users.len()),
            _charges: Vec::with_capacity(users.len() + 1),
        };
        for user in users {
            self.reading.check()?;
            self.actions_of(UserKey::of(&self.live.keys, user), visit, &mut found)?;
            all.users.push(std::mem::take(&mut found.of_user));
            all._charges
                .push(std::mem::replace(&mut found.charge, self.reading.charge()));
        }
        all.whats = found.whats;
        all._charges.push(found.whats_charge);
        Ok(all)
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
        let of_stores = self
            .snapshot
            .ring
            .stores()
            .flat_map(|store| store.runs.iter());
        let entries = of_stores.map(|run| &run.entry);
        let entries = entries.chain(self.snapshot.manifest.files());
        let hiding = entries.filter(|entry| entry.erased_until <= at);
        hiding.map(|entry| entry.name.as_str()).collect()
    }

    fn actions_of(&self, user: UserKey, visit: Visit, found: &mut Found<'_>) -> Result<()> {
        let range = found.range;
        // Lines of actions are of a whole day.
        let days = Day::of(range.start).start()..range.end;
        let (first, end) = (Day::of(range.start), Day::of(range.end - 1).next());
        let crc = user.crc();
        let hiding = self.hiding(&user);
        let is_hidden = |run: &Run| hiding.contains(run.name());
        let mut runs: Vec<&Run> = Vec::new();
        for store in self
            .snapshot
            .ring
            .stores()
            .filter(|store| concerns(&days, store))
        {
            let of_store = match store.id.day() {
                Some(day) => day..day.next(),
                None => first..end,
            };
            let of_store = of_store.start.max(first)..of_store.end.min(end);
            for delta in DeltaStore::deltas(store) {
                delta.actions((user, crc), of_store.clone(), &mut |day, action, n| {
                    found.take(day, action, n);
                });
            }
            let of_store = store.runs.iter().map(|run| &*run.run);
            runs.extend(of_store.filter(|run| may_hold(run, &days, crc) && !is_hidden(run)));
        }
        let archived = self.snapshot.archive.runs.iter().map(|run| &**run);
        runs.extend(archived.filter(|run| may_hold(run, &days, crc) && !is_hidden(run)));
        if let Some(refused) = found.refused.take() {
            return Err(refused);
        }
        if runs.is_empty() {
            return Ok(());
        }
        let prefix = user.prefix();
        let mut from = prefix.clone().into_bytes();
        first.code().write_to(&mut from);
        for run in runs {
            let places = (prefix.as_bytes(), from.as_slice());
            visit(run, &self.live.cache, places, &mut |key, payload| {
                let code = key.strip_prefix(prefix.as_bytes());
                let Some(code) = code.and_then(|code| TimeCode::parse(code).ok()) else {
                    return ControlFlow::Break(());
                };
                if code.start() >= days.end {
                    return ControlFlow::Break(());
                }
                let day = Day::of(code.start());
                for (value, n) in line::entries(payload).flatten() {
                    if let Some(action) = Action::parse(value) {
                        found.take(day, action, n);
                    }
                }
                ControlFlow::Continue(())
            })?;
            if let Some(refused) = found.refused.take() {
                return Err(refused);
            }
        }
        Ok(())
    }
}

/// Actions that were found.
struct Found<'r> {
    range: &'r Range<i64>,
    whats: Interner,
    whats_charge: Charge,
    /// Actions of the user that is being read.
    of_user: Vec<Did>,
    charge: Charge,
    /// Set once the budget refused room.
    refused: Option<Error>,
}

impl Found<'_> {
    fn take(&mut self, day: Day, action: Action<'_>, n: u64) {
        let at = day.start() + i64::from(action.second);
        let until = at + if action.by_hour { HOUR } else { 1 };
        if at >= self.range.end || until <= self.range.start || self.refused.is_some() {
            return;
        }
        if let Err(refused) = self.try_take(at, action, n) {
            self.refused = Some(refused);
        }
    }

    fn try_take(&mut self, at: i64, action: Action<'_>, n: u64) -> Result<()> {
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
