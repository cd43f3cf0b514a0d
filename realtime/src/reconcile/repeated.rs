//! Keys of which many events had counted although they repeat others: where a sender repeats what it sends for one
//! advertiser alone, the sums of the event type may hide it.
//!
//! Invariant: only runs of the reconcile are read, and nothing that is served, so a version that is made again has the
//! same keys.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use tallyring_archive::{Blobs, RepeatedKey, RepeatedKeys, Run, RunEntry};
use tallyring_records::Day;
use tallyring_records::line::{self, Kind};

use super::compare::{Merge, Weighed, is_compared};
use crate::error::Result;

/// Events below which repeated ones are no fault.
const OF_MIN: u128 = 1_000;
/// Keys that are named, at most.
const NAMED_MAX: usize = 10;

/// True where more than 0.1 % of at least 1,000 events had counted although they repeat others.
pub fn is_much_repeated(n: u128, before: u128) -> bool {
    before >= OF_MIN && n.saturating_mul(1_000) > before
}

/// The keys of all namespaces of which [`is_much_repeated`] is true. The runs `twice` have the repeated events, and
/// those of `before` sum by their weights to all that had counted. Fails when a run is damaged.
pub(super) fn repeated_keys(
    blobs: &Blobs,
    day: Day,
    twice: &[RunEntry],
    before: [(&Vec<RunEntry>, i128); 3],
) -> Result<RepeatedKeys> {
    let mut found = RepeatedKeys::default();
    if twice.is_empty() {
        return Ok(found);
    }
    // Runs of equal keys come in their order: a key that nothing repeats is not decoded.
    let open = Run::open_all(blobs, twice)?;
    let mut runs: Vec<Weighed> = open.into_iter().map(|run| (run, 1)).collect();
    let first_before = runs.len();
    for (entries, weight) in before {
        let open = Run::open_all(blobs, entries)?;
        runs.extend(open.into_iter().map(|run| (run, weight)));
    }
    let mut merge = Merge::new(runs)?;
    while let Some(key) = merge.smallest() {
        let kind = line::kind_of(&key);
        let is_total = kind == Some(Kind::Total) && is_compared(&key, day, false);
        let [mut of_twice, mut of_before] = <[BTreeMap<_, _>; 2]>::default();
        while let Some(index) = merge.pop(&key) {
            if is_total && index < first_before {
                merge.add(index, (&key, day), &mut of_twice)?;
            } else if is_total && !of_twice.is_empty() {
                merge.add(index, (&key, day), &mut of_before)?;
            } else if kind == Some(Kind::Lookup)
                && let Some((_, text)) = merge.line(index)?
            {
                name(&mut found, &key, text);
            }
            merge.refill(index)?;
        }
        let sum = |sums: BTreeMap<_, i128>| u128::try_from(sums.values().sum::<i128>());
        let (n, before) = (sum(of_twice).unwrap_or(0), sum(of_before).unwrap_or(0));
        if is_much_repeated(n, before) {
            note(&mut found, &key, (n, before));
        }
    }
    Ok(found)
}

fn note(found: &mut RepeatedKeys, key: &[u8], (n, before): (u128, u128)) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let namespace = line::section(key);
    found.keys += 1;
    found.most.push(RepeatedKey {
        namespace: text(namespace.strip_suffix(b"|").unwrap_or(namespace)),
        key: text(line::stored_key(key)),
        n,
        before,
    });
    found.most.sort_by_key(|of| Reverse(of.n));
    found.most.truncate(NAMED_MAX);
}

/// Puts the text of a long key in the place of its hash. Lookups come behind all counts.
fn name(found: &mut RepeatedKeys, lookup: &[u8], text: &[u8]) {
    let hash = lookup.get(1..).unwrap_or_default();
    let named = found.most.iter_mut();
    for of in named.filter(|of| of.key.as_bytes() == hash) {
        if let Some(text) = line::unescape(text) {
            of.key = text.into_owned();
        }
    }
}
