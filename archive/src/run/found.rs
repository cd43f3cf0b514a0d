//! Facts of a run that are remembered beside its blocks: sums of one key, and texts behind hashes. A run never changes,
//! so a fact that was found once stays right.

use std::borrow::Cow;
use std::ops::{ControlFlow, Range};

use tallyring_records::{Day, line};

use crate::error::Result;
use crate::run::cache::BlockCache;
use crate::run::reader::Run;

impl Run {
    /// The sum of a total (`u|jehiah`) over the base buckets that begin in `range` (Unix seconds), at most `u64::MAX`.
    /// The cache remembers it for all ranges that hold the same part of the run. Fails when a needed block is damaged.
    pub fn sum_of(&self, cache: &BlockCache, total_key: &[u8], range: &Range<i64>) -> Result<u64> {
        self.check_is_there()?;
        let meta = self.meta();
        let part = range.start.max(meta.first)..range.end.min(meta.last.saturating_add(1));
        let id = self.cache_id().to_le_bytes();
        let (from, to) = (part.start.to_le_bytes(), part.end.to_le_bytes());
        let name = [&id[..], &from, &to, total_key].concat();
        let find = || self.read_sum(cache, total_key, &part);
        cache.sums.get_or(name, find)
    }

    /// The text behind a hash; `None` when the run has no lookup of it. The cache remembers either. Fails when a block
    /// that may hold it is damaged.
    pub fn look_up(&self, cache: &BlockCache, hash: &[u8]) -> Result<Option<String>> {
        self.check_is_there()?;
        let name = [&self.cache_id().to_le_bytes(), hash].concat();
        let text = cache.texts.get_or(name, || self.read_text(cache, hash))?;
        Ok(text.map(String::from))
    }

    fn read_sum(&self, cache: &BlockCache, total_key: &[u8], part: &Range<i64>) -> Result<u64> {
        let mut sum = 0_u64;
        // The code of a day sorts before the codes of its hours.
        let first = Day::of(part.start).code();
        self.visit_prefix(cache, (total_key, total_key), &mut |key, payload| {
            if key != total_key {
                return ControlFlow::Break(());
            }
            let hours = line::hours(line::hours_from(payload, first)).flatten();
            for (code, count) in hours.take_while(|(code, _)| code.start() < part.end) {
                if code.start() >= part.start {
                    sum = sum.saturating_add(count);
                }
            }
            ControlFlow::Continue(())
        })?;
        Ok(sum)
    }

    fn read_text(&self, cache: &BlockCache, hash: &[u8]) -> Result<Option<Box<str>>> {
        let wanted = [&[line::LOOKUP_MARK], hash].concat();
        let mut found = None;
        self.visit_from(cache, &wanted, &mut |key, payload| {
            if key == wanted {
                found = line::unescape(payload).map(Cow::into_owned);
            }
            ControlFlow::Break(())
        })?;
        Ok(found.map(String::into_boxed_str))
    }
}
