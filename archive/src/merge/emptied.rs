//! Buckets that runs with the sign minus bring to zero. Sketches of their users precede the totals in a run, so a merge
//! looks the totals up before it comes to them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use tallyring_records::TimeCode;
use tallyring_records::line::{self, Kind};

use crate::error::Result;
use crate::run::{BlockCache, Run};
use crate::sign::Sign;

/// Decoded blocks that are kept while totals are looked up, bytes. Keys come in order, so a few blocks suffice.
const CACHE_BYTES: u64 = 8 << 20;

/// Looks up whether a merge brings a bucket to zero. It holds the totals of one key at a time.
pub(super) struct Emptied {
    /// The inputs of the merge, those with the sign minus first; none where no input has that sign.
    inputs: Vec<Arc<Run>>,
    cache: BlockCache,
    /// The key that was looked up last, and its totals where counts are taken away from it.
    last: (Vec<u8>, BTreeMap<TimeCode, i128>),
}

impl Emptied {
    pub(super) fn of(inputs: &[Arc<Run>]) -> Self {
        let (minus, plus): (Vec<_>, Vec<_>) =
            (inputs.iter().cloned()).partition(|run: &Arc<Run>| run.sign() == Sign::Minus);
        let inputs = match minus.is_empty() {
            true => Vec::new(),
            false => [minus, plus].concat(),
        };
        Self {
            inputs,
            cache: BlockCache::new(CACHE_BYTES),
            last: Default::default(),
        }
    }

    /// True for a sketch of a bucket that counts nothing any more. Fails when a block is damaged.
    pub(super) fn has(&mut self, key: &[u8]) -> Result<bool> {
        if self.inputs.is_empty() || line::kind_of(key) != Some(Kind::Users) {
            return Ok(false);
        }
        let Some((_, total, code)) = line::split_subtotal(key) else {
            return Ok(false);
        };
        if self.last.0 != total {
            self.last = (total.to_vec(), sums_of(&self.inputs, &self.cache, total)?);
        }
        Ok(self.last.1.get(&code) == Some(&0))
    }
}

/// The total of a key by bucket; nothing where no run takes counts away from it. A sum below zero is found by the merge
/// itself.
fn sums_of(
    inputs: &[Arc<Run>],
    cache: &BlockCache,
    wanted: &[u8],
) -> Result<BTreeMap<TimeCode, i128>> {
    let mut sums: BTreeMap<TimeCode, i128> = BTreeMap::new();
    for run in inputs {
        let sign = match run.sign() {
            Sign::Plus if sums.is_empty() => break,
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
