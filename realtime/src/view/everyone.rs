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
use std::vec::IntoIter;

use tallyring_archive::{Cursor, Hidden, Sign};
use tallyring_records::{ACTIONS_SECTION, Action, Day, TimeCode, UserKey, UserText, line};

use super::View;
use super::less::below_zero;
use super::less_actions::Taken;
use super::parts::File;
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
        let deltas: Vec<(usize, &Delta)> = (self.parts())
            .flat_map(|part| part.deltas_in(&seconds).map(|delta| (part.number, delta)))
            .collect();
        let minus: Vec<File<'_>> = self.files_less_actions(&seconds).collect();
        let files = self.files_with_actions();
        let files = files.filter(|file| file.run.meta().overlaps(seconds.start, seconds.end));
        // A user's actions that are taken away come before all others.
        let files: Vec<File<'_>> = minus.iter().copied().chain(files).collect();
        let of_deltas = deltas.iter().map(|(_, delta)| delta.shard_count());
        let shards = of_deltas.chain(files.iter().map(|file| file.run.meta().shards));
        let Some(shards) = shards.reduce(common_divisor) else {
            return Ok(());
        };
        for shard in 0..shards {
            let mut charge = self.reading.charge();
            let mut sources = Vec::new();
            let is_of_shard = |file: &&File<'_>| file.run.meta().shard % shards == shard;
            for file in files.iter().filter(is_of_shard) {
                sources.push(self.open(*file, &mut charge)?);
            }
            for (part, delta) in &deltas {
                let lists = delta.user_days(&days, (shard, shards), &mut charge)?;
                sources.push(Source::Memory(*part, lists.into_iter().peekable()));
            }
            self.merge(sources, (&days, &minus), &mut |user, day, action, n| {
                if let Some(at) = action.at_within(day, range) {
                    visit(user, at, action, n);
                }
            })?;
        }
        Ok(())
    }

    fn open<'r>(&self, file: File<'r>, charge: &mut Charge) -> Result<Source<'r>> {
        let block = usize::try_from(file.run.largest_block()).unwrap_or(usize::MAX / BLOCKS_EACH);
        charge.grow(FILE_BYTES + BLOCKS_EACH * block)?;
        let mut cursor = file.run.cursor();
        file.note(cursor.advance())?;
        Ok(Source::File(file, cursor, self.hidden_in(file)))
    }

    /// Visits what the sources hold, user by user, without what the sources of `minus` take away.
    fn merge(
        &self,
        mut sources: Vec<Source<'_>>,
        (days, minus): (&Range<Day>, &[File<'_>]),
        visit: &mut dyn FnMut(UserKey, Day, Action<'_>, u64),
    ) -> Result<()> {
        let mut next = BinaryHeap::with_capacity(sources.len());
        for (number, source) in sources.iter_mut().enumerate() {
            next.extend(source.user()?.map(|user| Reverse((user, number))));
        }
        // A strand takes away of its own alone.
        let parts = self.parts();
        let mut taken: Vec<Taken> = parts.map(|_| Taken::new(self.reading.charge())).collect();
        while let Some(Reverse((text, number))) = next.pop() {
            self.reading.check()?;
            let user = UserKey::from_text(&text).expect("BUG: a source gives keys of users");
            let source = &mut sources[number];
            let (takes_away, mut noted) = (source.takes_away(), Ok(true));
            let taken_of_part = &mut taken[source.part()];
            source.visit_user((&text, days), &mut |day, action, n| {
                if noted.is_err() {
                    return;
                }
                noted = match takes_away {
                    true => taken_of_part.less(day, action, n).map(|()| true),
                    false => taken_of_part.more(day, action, n),
                };
                if let Ok(false) = noted {
                    visit(user, day, action, n);
                }
            })?;
            noted?;
            next.extend(source.user()?.map(|user| Reverse((user, number))));
            let goes_on = next.peek().is_some_and(|Reverse((next, _))| *next == text);
            if goes_on {
                continue;
            }
            for taken in &mut taken {
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
        }
        Ok(())
    }
}

/// Actions of a part, sorted by user.
enum Source<'d> {
    Memory(usize, Peekable<IntoIter<UserDay<'d>>>),
    File(File<'d>, Cursor, Hidden),
}

impl Source<'_> {
    /// The number of the part.
    fn part(&self) -> usize {
        match self {
            Self::Memory(part, _) => *part,
            Self::File(file, ..) => file.part,
        }
    }

    /// True where the actions are to be taken away.
    fn takes_away(&self) -> bool {
        matches!(self, Self::File(file, ..) if file.run.sign() == Sign::Minus)
    }

    /// The user whom it goes on with; none at its end.
    fn user(&mut self) -> Result<Option<UserText>> {
        match self {
            Self::Memory(_, lists) => Ok(lists.peek().map(|list| list.user)),
            Self::File(file, cursor, _) => Ok(file.user_line(cursor)?.map(|(user, ..)| user)),
        }
    }

    /// Visits what it holds of the user that it stands at, and moves on to the next one.
    fn visit_user(
        &mut self,
        (user, days): (&UserText, &Range<Day>),
        visit: &mut dyn FnMut(Day, Action<'_>, u64),
    ) -> Result<()> {
        match self {
            Self::Memory(_, lists) => {
                while let Some(list) = lists.next_if(|list| list.user == *user) {
                    list.visit(&mut |action, n| visit(list.day(), action, n));
                }
            }
            Self::File(file, cursor, hidden) => {
                let is_shown = UserKey::from_text(user).is_some_and(|user| !hidden.has_user(&user));
                let is_of_user = |line: &Line<'_>| line.0 == *user;
                while let Some((_, day, payload)) = file.user_line(cursor)?.filter(is_of_user) {
                    if is_shown && days.contains(&day) {
                        for (value, n) in line::entries(payload).flatten() {
                            if let Some(action) = Action::parse(value) {
                                visit(day, action.as_told_apart(), n);
                            }
                        }
                    }
                    file.note(cursor.advance())?;
                }
            }
        }
        Ok(())
    }
}

impl File<'_> {
    /// The user, the day and the payload of the line at which a cursor stands; none behind the last line of actions,
    /// whose section is the first of a run.
    fn user_line<'c>(&self, cursor: &'c Cursor) -> Result<Option<Line<'c>>> {
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
            tallyring_archive::Error::malformed(self.run.name(), what)
        };
        Ok(Some(parts.ok_or_else(malformed)?))
    }

    /// Lets damage that was met be healed.
    fn note<T>(&self, read: tallyring_archive::Result<T>) -> Result<T> {
        Ok(read.inspect_err(|error| self.cache.note_damage(error))?)
    }
}

fn common_divisor(a: u16, b: u16) -> u16 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}
