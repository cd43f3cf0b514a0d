//! Keys that may be among the heaviest, and what is known of their counts.

use tallyring_records::{COUNT_MAX, KeyCrc};

use super::parts::File;

/// A file of the archive whose lists leave counts open.
pub(super) struct ListedFile<'v> {
    pub file: File<'v>,
    /// The most that a key counts in it that its lists do not name.
    pub rest: u128,
}

/// A key that may be among the heaviest, and the bounds of its count.
#[derive(Default)]
pub(super) struct Candidate {
    /// Its counts in the files that say them exactly.
    pub exact: u64,
    /// The most that it counts where lists name it, those files included.
    pub most: u128,
    /// Sum of the rests of sources whose lists name it.
    pub rest: u128,
    /// Files whose lists name it, by their index among the files of all lists, and the most that it counts there; 0
    /// where `exact` has it.
    pub named: Vec<(u32, u64)>,
}

/// A candidate and the most that it counts.
pub(super) struct Bounded {
    pub most: u128,
    pub key: Vec<u8>,
    pub crc: KeyCrc,
    pub candidate: Candidate,
}

impl Bounded {
    /// The most that the key counts in the file of this index, beside what is known exactly.
    pub(super) fn open_in(&self, index: u32, file: &ListedFile<'_>) -> u128 {
        let meta = file.file.run.meta();
        if self.crc.shard(meta.shards) != meta.shard {
            return 0;
        }
        let named = &self.candidate.named;
        let place = named.binary_search_by_key(&index, |named| named.0);
        place.map_or(file.rest, |at| named[at].1.into())
    }
}

/// A count that so many candidates have, as lists say.
pub(super) fn known_least(candidates: &[Bounded], limit: usize) -> u64 {
    let mut known: Vec<u64> = candidates.iter().map(|of| of.candidate.exact).collect();
    let Some(at) = known.len().checked_sub(limit.max(1)) else {
        return 0;
    };
    let (_, least, _) = known.select_nth_unstable(at);
    COUNT_MAX.min(*least)
}
