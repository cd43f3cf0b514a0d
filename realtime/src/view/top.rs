//! The heaviest keys of a namespace: from lists where they decide the ranking, otherwise from a pass over all totals.

use std::cmp::Reverse;
use std::ops::Range;

use tallyring_records::COUNT_MAX;

use super::View;
use super::minutes::{Ends, Minutes};
use super::ranking::{Ranking, TopKey};
use super::remembered::TopQuestion;
use super::scan::{Best, Section};
use crate::error::{Error, Result};

impl View<'_> {
    /// The `limit` heaviest keys of a namespace in `range` (Unix seconds) with their exact counts, from one view, or as
    /// an equal question was answered about the same counts. `by_minute` is true where the namespace keeps minutes,
    /// which then count at the ends of the range. For recent hours, unlisted keys may be heavier than listed ones,
    /// within the bound of the ranking, unless `must_be_exact`. Fails when a generation is not kept, a block is
    /// damaged, or the budget of reads has no room.
    pub fn top(
        &self,
        namespace: &str,
        range: Range<i64>,
        by_minute: bool,
        (limit, must_be_exact): (usize, bool),
        as_of: Option<u64>,
    ) -> Result<Ranking> {
        let question = TopQuestion {
            namespace: namespace.into(),
            range,
            by_minute,
            limit,
            must_be_exact,
            as_of,
        };
        let made_from = self.made_from(&question);
        let remembered = &self.first.live.remembered;
        let known = made_from.as_ref();
        if let Some(found) = known.and_then(|from| remembered.find(&question, from)) {
            return Ok(found);
        }
        let ranking = self.rank_anew(&question)?;
        // A ranking that may not be exact is made of fixed memory, in no time.
        if let Some(from) = made_from.filter(|_| ranking.bound.is_none()) {
            remembered.keep(question, from, &ranking);
        }
        Ok(ranking)
    }

    /// The ranking from lists, or from one pass over all totals.
    fn rank_anew(&self, question: &TopQuestion) -> Result<Ranking> {
        let TopQuestion {
            namespace,
            range,
            limit,
            as_of,
            ..
        } = question.clone();
        let listed = match self.top_listed(&namespace, &range, limit, as_of) {
            // One pass takes less memory than lists of many keys.
            Err(Error::ReadTooLarge { .. } | Error::ReadsTooLarge { .. }) => None,
            listed => listed?,
        };
        let serves = |ranking: &Ranking| ranking.bound.is_none() || !question.must_be_exact;
        if let Some(ranking) = listed.filter(serves) {
            return Ok(ranking);
        }
        let minutes = match question.by_minute {
            true => Minutes::Ends(Ends::of(&range)),
            false => Minutes::None,
        };
        let section = Section::new(&namespace, range, &minutes);
        let best = Best::new(&section, limit, self.reading.charge());
        let mut scan = self.scan(&section, best, minutes, as_of)?;
        let tally = &mut scan.best.tally;
        let mut named = 0;
        if let Minutes::Ends(ends) = &scan.minutes {
            tally.total = ends.change.of(tally.total);
            named = ends.named;
        }
        let is_cut = tally.divided > named;
        let keys = scan.best.heap.into_sorted_vec().into_iter();
        let keys = keys.map(|Reverse((count, Reverse(key)))| TopKey { key, count });
        Ok(Ranking {
            generation: as_of.unwrap_or(self.generation()),
            minutes_from: self.minutes_from(as_of),
            total: tally.total.min(COUNT_MAX),
            keys: keys.collect(),
            counted: tally.counted,
            is_cut,
            bound: None,
        })
    }
}
