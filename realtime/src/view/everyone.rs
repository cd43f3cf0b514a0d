//! One pass over what all users did in a range, user by user, from one view of memory and runs.
//!
//! Actions of a user are adjacent in every run, which is sorted by the text of the user's key. So the pass merges its
//! sources in this order, and holds one block of each run and the names of the lists in memory, whatever the number of
//! actions. It goes shard by shard: sources with other numbers of shards are divided by the greatest number that all
//! of these have in common.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::iter::Peekable;
use std::ops::Range;
use std::sync::Arc;
use std::vec::IntoIter;

use tallyring_archive::{Cursor, Hidden, Run, Sign};
use tallyring_records::{ACTIONS_SECTION, Action, Day, TimeCode, UserKey, UserText, line};

use super::View;
use super::gather::concerns;
use super::less::below_zero;
use super::less_actions::Taken;
use crate::budget::Charge;
use crate::delta::{Delta, UserDay};
use crate::error::Result;

/// Gets a user, an instant (Unix seconds), what the user did then, and how often.
type Visitor<'v> = dyn FnMut(UserKey, i64, Action<'_>, u64) + 'v;

/// A line of actions: its user, its day and its payload.
type Line<'l> = (UserText, Day, &'l [u8]);

/// Memory of an open run, besides its blocks.
const FILE_BYTES: usize = 4 << 10;
/// A block in memory, and what it is made of.
const BLOCKS_EACH: usize = 2;

impl View<'_> {
    /// Calls `visit` with everything that users did in a range (Unix seconds). The actions of one user come one after
    /// the other, in any order. Blocks on files. Fails where a block is damaged, the budget of reads has no room for a
    /// block of each run, or the client is gone.
    pub fn all_actions(&self, range: &Range<i64>, visit: &mut Visitor<'_>) -> Result<()> {
        let days = Day::of(range.start)..Day::of(range.end - 1).next();
        let seconds = days.start.start()..days.end.start();
        let stores = self.snapshot.ring.stores();
        let stores = stores.filter(|store| concerns(&seconds, store));
        let deltas: Vec<&Delta> = stores.flat_map(|store| store.deltas()).collect();
        let minus: Vec<Arc<Run>> = self.runs_less_actions(&seconds).cloned().collect();
        let runs = self.runs_with_actions();
        let runs = runs.filter(|run| run.meta().overlaps(seconds.start, seconds.end));
        // A user's actions that are taken away come before all others.
        let runs: Vec<&Arc<Run>> = minus.iter().chain(runs).collect();
        let of_deltas = deltas.iter().map(|delta| delta.shard_count());
        let shards = of_deltas.chain(runs.iter().map(|run| run.meta().shards));
        let Some(shards) = shards.reduce(common_divisor) else {
            return Ok(());
        };
        for shard in 0..shards {
            let mut charge = self.reading.charge();
            let mut sources = Vec::new();
            for run in runs.iter().filter(|run| run.meta().shard % shards == shard) {
                sources.push(self.open(run, &mut charge)?);
            }
            for delta in &deltas {
                let lists = delta.user_days(&days, (shard, shards), &mut charge)?;
                sources.push(Source::Memory(lists.into_iter().peekable()));
            }
            self.merge(sources, (&days, &minus), &mut |user, day, action, n| {
                if let Some(at) = action.at_within(day, range) {
                    visit(user, at, action, n);
                }
            })?;
        }
        Ok(())
    }

    fn open<'r>(&self, run: &'r Arc<Run>, charge: &mut Charge) -> Result<Source<'r>> {
        let block = usize::try_from(run.largest_block()).unwrap_or(usize::MAX / BLOCKS_EACH);
        charge.grow(FILE_BYTES + BLOCKS_EACH * block)?;
        let mut cursor = run.cursor();
        self.note(cursor.advance())?;
        Ok(Source::File(run, cursor, self.hidden_in(run)))
    }

    /// Visits what the sources hold, user by user, without what the sources of `minus` take away.
    fn merge(
        &self,
        mut sources: Vec<Source<'_>>,
        (days, minus): (&Range<Day>, &[Arc<Run>]),
        visit: &mut dyn FnMut(UserKey, Day, Action<'_>, u64),
    ) -> Result<()> {
        let mut next = BinaryHeap::with_capacity(sources.len());
        for (number, source) in sources.iter_mut().enumerate() {
            next.extend(self.user(source)?.map(|user| Reverse((user, number))));
        }
        let mut taken = Taken::new(self.reading.charge());
        while let Some(Reverse((text, number))) = next.pop() {
            self.reading.check()?;
            let user = UserKey::from_text(&text).expect("BUG: a source gives keys of users");
            let source = &mut sources[number];
            let (takes_away, mut noted) = (source.takes_away(), Ok(true));
            self.visit_user(source, (&text, days), &mut |day, action, n| {
                if noted.is_err() {
                    return;
                }
                noted = match takes_away {
                    true => taken.less(day, action, n).map(|()| true),
                    false => taken.more(day, action, n),
                };
                if let Ok(false) = noted {
                    visit(user, day, action, n);
                }
            })?;
            noted?;
            next.extend(self.user(source)?.map(|user| Reverse((user, number))));
            let goes_on = next.peek().is_some_and(|Reverse((next, _))| *next == text);
            if goes_on {
                continue;
            }
            let left = taken.settle();
            let left = left.ok_or_else(|| below_zero(user.prefix().as_bytes(), minus))?;
            for (day, did) in &left {
                for (action, n) in did.actions() {
                    visit(user, *day, action, n);
                }
            }
            drop(left);
            taken.begin_again();
        }
        Ok(())
    }

    /// The user whom a source goes on with; none at its end.
    fn user(&self, source: &mut Source<'_>) -> Result<Option<UserText>> {
        match source {
            Source::Memory(lists) => Ok(lists.peek().map(|list| list.user)),
            Source::File(run, cursor, _) => Ok(self.line(run, cursor)?.map(|(user, ..)| user)),
        }
    }

    /// Visits what a source holds of the user that it stands at, and moves on to the next one.
    fn visit_user(
        &self,
        source: &mut Source<'_>,
        (user, days): (&UserText, &Range<Day>),
        visit: &mut dyn FnMut(Day, Action<'_>, u64),
    ) -> Result<()> {
        match source {
            Source::Memory(lists) => {
                while let Some(list) = lists.next_if(|list| list.user == *user) {
                    list.visit(&mut |action, n| visit(list.day(), action, n));
                }
            }
            Source::File(run, cursor, hidden) => {
                let is_shown = UserKey::from_text(user).is_some_and(|user| !hidden.has_user(&user));
                let is_of_user = |line: &Line<'_>| line.0 == *user;
                while let Some((_, day, payload)) = self.line(run, cursor)?.filter(is_of_user) {
                    if is_shown && days.contains(&day) {
                        for (value, n) in line::entries(payload).flatten() {
                            if let Some(action) = Action::parse(value) {
                                visit(day, action.as_told_apart(), n);
                            }
                        }
                    }
                    self.note(cursor.advance())?;
                }
            }
        }
        Ok(())
    }

    /// The user, the day and the payload of the line at which a cursor stands; none behind the last line of actions,
    /// whose section is the first of a run.
    fn line<'c>(&self, run: &Run, cursor: &'c Cursor) -> Result<Option<Line<'c>>> {
        let Some((key, payload)) = self.note(cursor.line())? else {
            return Ok(None);
        };
        let Some(rest) = key.strip_prefix(ACTIONS_SECTION.as_bytes()) else {
            return Ok(None);
        };
        let parts = rest.split_first_chunk().and_then(|(user, code)| {
            UserKey::from_text(user)?;
            let code = TimeCode::parse(code.strip_prefix(b".")?).ok()?;
            Some((*user, Day::of(code.start()), payload))
        });
        let malformed = || {
            let what = format!("`{}` is no day of a user", line::shown(key));
            tallyring_archive::Error::malformed(run.name(), what)
        };
        Ok(Some(parts.ok_or_else(malformed)?))
    }

    /// Lets damage that was met be healed.
    fn note<T>(&self, read: tallyring_archive::Result<T>) -> Result<T> {
        Ok(read.inspect_err(|error| self.live.cache.note_damage(error))?)
    }
}

/// Actions sorted by user.
enum Source<'d> {
    Memory(Peekable<IntoIter<UserDay<'d>>>),
    File(&'d Run, Cursor, Hidden),
}

impl Source<'_> {
    /// True where the actions are to be taken away.
    fn takes_away(&self) -> bool {
        matches!(self, Self::File(run, ..) if run.sign() == Sign::Minus)
    }
}

fn common_divisor(a: u16, b: u16) -> u16 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}
