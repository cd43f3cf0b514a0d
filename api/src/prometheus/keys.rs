//! Which keys a selector reads.

use std::ops::{ControlFlow, Range};
use std::time::{Duration, Instant};

use tallyring_realtime::{Effort, FoundKey, KeyPlace, KeySearch, KeyText, Read};
use tallyring_records::{Namespace, sum_capped};

use super::matcher::Matcher;
use super::select::Reads;
use crate::calendar::{Buckets, Selection};
use crate::problem::{Problem, Result};
use crate::read::base::{Base, BaseData};

/// Bytes of lines that a search of keys looks at, and how long it does, about.
const SEARCH_BYTES: u64 = 256 << 20;
const SEARCH_TIME: Duration = Duration::from_secs(1);

/// How keys are read.
pub(super) enum KeyPlan {
    /// All as one.
    Together,
    /// These.
    Named(Vec<String>),
    /// Keys that have this text.
    Listed(KeyText),
}

/// Keys that were found.
pub(super) struct Found {
    pub keys: Vec<String>,
    /// False where there may be more.
    pub is_complete: bool,
}

impl KeyPlan {
    /// How keys are read that these matchers let through, where series are told apart `by_key`. Fails with 400 for
    /// matchers by which no key is found.
    pub(super) fn of(matchers: &[Matcher], by_key: bool) -> Result<Self> {
        let of_key = matchers.iter().filter(|matcher| matcher.label == "key");
        let of_key: Vec<&Matcher> = of_key.filter(|matcher| !matcher.lets_all()).collect();
        if let Some(texts) = of_key.iter().find_map(|matcher| matcher.texts()) {
            let is_let = |key: &String| of_key.iter().all(|matcher| matcher.lets(key));
            return Ok(Self::Named(texts.into_iter().filter(is_let).collect()));
        }
        if let Some(text) = of_key.iter().find_map(|matcher| matcher.search()) {
            return Ok(Self::Listed(text));
        }
        match of_key.first() {
            None if by_key => Ok(Self::Listed(KeyText::Any)),
            None => Ok(Self::Together),
            Some(matcher) => {
                let detail = "must be a key, keys such as a|b, or what they begin with or have within, such as ab.* or .*ab.*";
                Err(Problem::malformed("key", &matcher.value, detail))
            }
        }
    }
}

impl Reads<'_> {
    /// The keys of a namespace that have a text, were counted in a range (Unix seconds) and pass the matchers: `limit`
    /// at most, the heaviest ones where any text will do. Fails where a block is damaged or the budget of reads has no
    /// room.
    pub(super) fn keys(
        &mut self,
        (namespace, text): (&Namespace, &KeyText),
        range: Range<i64>,
        matchers: &[Matcher],
        limit: usize,
    ) -> Result<Found> {
        let cells = Buckets::between(vec![range.start, range.end]);
        let base = Base::of(
            namespace,
            &Selection::Bounded(cells.clone()),
            BaseData::Totals,
        )?;
        self.reads += 1;
        if *text == KeyText::Any {
            let (name, by_minute) = (&namespace.name, base.by_minute());
            let ranking = self
                .view
                .top(name, range, by_minute, (limit, false), None)?;
            let listed = sum_capped(ranking.keys.iter().map(|top| top.count));
            return Ok(Found {
                is_complete: listed == ranking.total,
                keys: ranking.keys.into_iter().map(|top| top.key).collect(),
            });
        }
        let (from, to) = base.span(&Selection::Bounded(cells));
        let read = Read {
            namespace: namespace.name.clone(),
            key: String::new(),
            subtotal: base.subtotal(),
            from,
            to,
            rolled: None,
        };
        let search = KeySearch {
            text,
            periods: &[(read, range)],
            as_of: None,
            at_once: limit,
        };
        let began = Instant::now();
        let is_over = || began.elapsed() > SEARCH_TIME;
        let (mut keys, mut is_complete) = (Vec::new(), true);
        let mut take = |FoundKey { key, .. }: FoundKey| {
            let mut of_key = matchers.iter().filter(|matcher| matcher.label == "key");
            if !of_key.all(|matcher| matcher.lets(&key)) {
                return Ok(ControlFlow::Continue(()));
            }
            is_complete = keys.len() < limit;
            Ok(match is_complete {
                true => {
                    keys.push(key);
                    ControlFlow::Continue(())
                }
                false => ControlFlow::Break(()),
            })
        };
        let mut effort = Effort::new(SEARCH_BYTES, &is_over);
        let searched = self
            .view
            .find_keys(&search, KeyPlace::default(), &mut effort, &mut take)?;
        is_complete &= searched.next.is_none();
        Ok(Found { keys, is_complete })
    }
}
