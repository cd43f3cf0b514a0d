//! Buckets that runs with the sign minus bring to zero. Sketches of their users precede the totals in a run, so a merge
//! has to know these buckets before it begins.

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use tallyring_records::TimeCode;
use tallyring_records::line::{self, Kind};

use super::unreadable;
use crate::error::Result;
use crate::run::{BlockCache, Run};
use crate::sign::Sign;

/// Decoded blocks that are kept while totals are looked up, bytes. Keys come in order, so a few blocks suffice.
const CACHE_BYTES: u64 = 8 << 20;

/// Buckets of keys that a merge brings to zero: total keys and codes. It takes memory for each of them.
#[derive(Default)]
pub(super) struct Emptied(HashSet<(Box<[u8]>, TimeCode)>);

impl Emptied {
    /// The buckets that a merge of these runs empties. It reads the totals of runs with the sign minus, and the same
    /// totals in the others. Fails when a block is damaged.
    pub(super) fn of(inputs: &[Arc<Run>]) -> Result<Self> {
        let mut emptied = Self::default();
        let minus = |run: &&Arc<Run>| run.sign() == Sign::Minus;
        if !inputs.iter().any(|run| minus(&run)) {
            return Ok(emptied);
        }
        let cache = BlockCache::new(CACHE_BYTES);
        for run in inputs.iter().filter(minus) {
            let mut cursor = run.cursor();
            while cursor.advance()? {
                let Some((key, payload)) = cursor.line()? else {
                    break;
                };
                if line::kind_of(key) != Some(Kind::Total) {
                    continue;
                }
                let sums = sums_of(inputs, &cache, key)?;
                for hour in line::hours(payload) {
                    let (code, _) = hour.ok_or_else(|| unreadable(key, payload))?;
                    if sums.get(&code) == Some(&0) {
                        emptied.0.insert((key.into(), code));
                    }
                }
            }
        }
        Ok(emptied)
    }

    /// True for a sketch of a bucket that counts nothing any more.
    pub(super) fn has(&self, key: &[u8]) -> bool {
        if self.0.is_empty() || line::kind_of(key) != Some(Kind::Users) {
            return false;
        }
        line::split_subtotal(key)
            .is_some_and(|(_, total, code)| self.0.contains(&(total.into(), code)))
    }
}

/// The total of a key by bucket. A sum below zero is found by the merge itself.
fn sums_of(
    inputs: &[Arc<Run>],
    cache: &BlockCache,
    wanted: &[u8],
) -> Result<BTreeMap<TimeCode, i128>> {
    let mut sums: BTreeMap<TimeCode, i128> = BTreeMap::new();
    for run in inputs {
        let sign = match run.sign() {
            Sign::Plus => 1,
            Sign::Minus => -1,
        };
        run.visit_prefix(cache, (wanted, wanted), &mut |key, payload| {
            if key != wanted {
                return ControlFlow::Break(());
            }
            for (code, count) in line::hours(payload).flatten() {
                *sums.entry(code).or_insert(0) += sign * i128::from(count);
            }
            ControlFlow::Continue(())
        })?;
    }
    Ok(sums)
}
