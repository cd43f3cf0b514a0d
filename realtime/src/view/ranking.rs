//! Answers about all keys of a namespace.

use tallyring_records::TimeCode;

/// The heaviest keys of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranking {
    /// Number of the archive generation in the view.
    pub generation: u64,
    /// Minutes of base buckets that began before this instant (Unix seconds) have expired; none where no minute has.
    pub minutes_from: Option<i64>,
    /// Sum over all keys of the namespace.
    pub total: u64,
    /// Heaviest keys first; keys with equal counts are sorted by their text.
    pub keys: Vec<TopKey>,
    /// Span of the base buckets that count; none where nothing counts, or for recent hours.
    pub counted: Option<CountedSpan>,
    /// True where a base bucket that the range divides has counts without minutes: those count where the bucket starts.
    pub is_cut: bool,
    /// The most that an unlisted key may have been counted; none where that is at most the count of the last listed
    /// key.
    pub bound: Option<u64>,
}

/// Span of the base buckets that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountedSpan {
    /// Start of the first base bucket, Unix seconds.
    pub first: i64,
    /// Start of the last base bucket, Unix seconds.
    pub last: i64,
    /// Length of the longest base bucket, seconds.
    pub grain_seconds: i64,
}

impl CountedSpan {
    /// Extends the span by one base bucket.
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

/// A key and its count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopKey {
    /// The key as it was counted.
    pub key: String,
    /// Its count in the range.
    pub count: u64,
}
