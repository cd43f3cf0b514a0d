//! What is answered of all keys of a namespace.

use tallyring_records::{Counts, TimeCode};

/// The heaviest keys of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranking {
    /// The archive generation in the view.
    pub generation: u64,
    /// Minutes of base buckets that began earlier have expired (Unix seconds); none has, without.
    pub minutes_from: Option<i64>,
    /// Sum over all keys of the namespace.
    pub total: u64,
    /// Heaviest first, ties by stored key.
    pub keys: Vec<TopKey>,
    /// Where in the range counts lie; none where there is none, or in recent hours.
    pub counted: Option<CountedSpan>,
    /// True where a base bucket that the range divides has counts without minutes: those count where it starts.
    pub is_cut: bool,
    /// A key that is not listed may have up to this many; none where it has no more than the last one listed.
    pub bound: Option<u64>,
}

/// Where counts lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountedSpan {
    /// Start of the first base bucket, Unix seconds.
    pub first: i64,
    /// Start of the last one.
    pub last: i64,
    /// Length of the longest, seconds.
    pub grain_seconds: i64,
}

impl CountedSpan {
    /// Takes one base bucket more into it.
    pub(super) fn note(counted: &mut Option<Self>, code: TimeCode) {
        let (start, grain) = (code.start(), code.grain().seconds());
        let before = counted.unwrap_or(Self {
            first: start,
            last: start,
            grain_seconds: grain,
        });
        *counted = Some(Self {
            first: before.first.min(start),
            last: before.last.max(start),
            grain_seconds: before.grain_seconds.max(grain),
        });
    }
}

/// What all keys of a namespace counted together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceTotals {
    /// The archive generation in the view.
    pub generation: u64,
    /// Minutes of base buckets that began earlier have expired (Unix seconds); none has, without.
    pub minutes_from: Option<i64>,
    /// By base bucket; or by minute, and by base bucket what was counted without minutes.
    pub totals: Counts,
}

/// A key and its count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopKey {
    /// The key as it was counted.
    pub key: String,
    /// Its count in the range.
    pub count: u64,
}
