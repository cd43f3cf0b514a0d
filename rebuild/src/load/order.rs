//! The order of a shard's keys in runs.
//!
//! Every run of a shard has its keys in this order. A run has rows of few keys, so these are sorted by rank instead of
//! by text. The texts of the keys are stored in this order, so that a writer reads memory from front to back.

use std::ops::Range;

use tallyring_records::line;

use super::lane::Lane;

/// Memory of a key while runs are written, about, bytes: its sort key (for some of the shards at a time), its rank, and
/// its text once more with its start.
pub(super) const ORDER_BYTES: usize = 48;

/// The keys of all lanes of a shard, ranked from 0.
pub(super) struct Order {
    /// Rank of each key, by lane and key number.
    ranks: Vec<Vec<u32>>,
    /// Texts of all keys by rank, without separators.
    texts: Vec<u8>,
    /// Start of each text, and the end of the last one.
    starts: Vec<usize>,
}

/// Rows of one key; at least one.
pub(super) struct KeyRows<'l, T> {
    /// Rank of the key.
    pub rank: u32,
    /// Lane of the key within the shard.
    pub lane: u32,
    /// Rows of the key.
    pub rows: &'l [T],
}

/// A key: its lane within the shard, and its number there.
#[derive(Clone, Copy)]
struct KeyAt {
    lane: u32,
    key: u32,
}

impl Order {
    /// Ranks keys by their bytes, each followed by `behind`.
    pub(super) fn of(lanes: &[&Lane], behind: &[u8]) -> Self {
        let text = |at: KeyAt| lanes[at.lane as usize].keys.get(at.key);
        let bytes = lanes.iter().map(|lane| lane.keys.text_bytes()).sum();
        let mut order = Self {
            ranks: lanes.iter().map(|lane| vec![0; lane.keys.len()]).collect(),
            texts: Vec::with_capacity(bytes),
            starts: vec![0],
        };
        let sorted = sorted(lanes, behind);
        order.starts.reserve_exact(sorted.len());
        for (rank, at) in (0..).zip(sorted) {
            order.ranks[at.lane as usize][at.key as usize] = rank;
            order.texts.extend_from_slice(text(at));
            order.starts.push(order.texts.len());
        }
        order
    }

    /// The key with this rank.
    pub(super) fn key(&self, rank: u32) -> &[u8] {
        let rank = rank as usize;
        &self.texts[self.starts[rank]..self.starts[rank + 1]]
    }

    /// The ranks of a namespace's keys, which are adjacent.
    pub(super) fn of_namespace(&self, name: &str) -> Range<u32> {
        let section = format!("{name}|");
        let section = section.as_bytes();
        let first = |is_before: &dyn Fn(&[u8]) -> bool| {
            let (mut low, mut high) = (0, self.starts.len() as u32 - 1);
            while low < high {
                let middle = low + (high - low) / 2;
                if is_before(line::section(self.key(middle))) {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            low
        };
        first(&|found| found < section)..first(&|found| found <= section)
    }
}

/// The rows of each key that has some, by rank. The rows of each lane are sorted by key number.
pub(super) fn by_key<'l, T>(
    order: &Order,
    lanes: impl Iterator<Item = &'l [T]>,
    key: impl Fn(&T) -> u32,
) -> Vec<KeyRows<'l, T>> {
    let mut keys = Vec::new();
    for ((lane, rows), ranks) in (0..).zip(lanes).zip(&order.ranks) {
        let of_keys = rows.chunk_by(|a, b| key(a) == key(b));
        keys.extend(of_keys.map(|rows| KeyRows {
            rank: ranks[key(&rows[0]) as usize],
            lane,
            rows,
        }));
    }
    keys.sort_unstable_by_key(|rows| rows.rank);
    keys
}

/// Keys of all lanes in the order of their bytes, each followed by `behind`.
fn sorted(lanes: &[&Lane], behind: &[u8]) -> impl ExactSizeIterator<Item = KeyAt> {
    let text = |at: KeyAt| lanes[at.lane as usize].keys.get(at.key);
    let all = lanes.iter().map(|lane| lane.keys.len()).sum();
    let mut keys: Vec<(u128, KeyAt)> = Vec::with_capacity(all);
    for (lane, number) in lanes.iter().zip(0..) {
        let of_lane = (0..lane.keys.len() as u32).map(|key| KeyAt { lane: number, key });
        keys.extend(of_lane.map(|at| (beginning(text(at), behind), at)));
    }
    // Most keys differ in their first bytes, which are compared first.
    keys.sort_unstable_by(|(a, at_a), (b, at_b)| {
        a.cmp(b).then_with(|| {
            text(*at_a)
                .iter()
                .chain(behind)
                .cmp(text(*at_b).iter().chain(behind))
        })
    });
    keys.into_iter().map(|(_, at)| at)
}

/// The first 16 bytes as a number of the same order.
fn beginning(key: &[u8], behind: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    for (target, byte) in bytes.iter_mut().zip(key.iter().chain(behind)) {
        *target = *byte;
    }
    u128::from_be_bytes(bytes)
}
