//! The order of a shard's keys, as they stand in a run.
//!
//! Every run of a shard takes its keys in this order. A run has rows of few of them, so those are sorted by rank rather
//! than looked for by key; and the keys' texts stand in this order, so that whoever writes them walks through memory.

use std::ops::Range;

use tallyring_records::line;

use super::lane::Lane;

/// Memory that a key takes, about, while runs are written: what it is sorted by (for some of the shards at a time), its
/// rank, and its text once more with where it begins.
pub const ORDER_BYTES: usize = 48;

/// The keys of all lanes of a shard. Each has a rank, from 0.
pub struct Order {
    /// Of each key, by lane and number.
    ranks: Vec<Vec<u32>>,
    /// The texts of all keys by rank, without anything between.
    texts: Vec<u8>,
    /// Where each begins, and where the last one ends.
    starts: Vec<usize>,
}

/// Rows of one key, of which there is at least one.
pub struct OfKey<'l, T> {
    /// The key's rank.
    pub rank: u32,
    /// Its lane within the shard.
    pub lane: u32,
    /// Its rows.
    pub rows: &'l [T],
}

/// A key: its lane within the shard, and its number there.
#[derive(Clone, Copy)]
struct KeyAt {
    lane: u32,
    key: u32,
}

impl Order {
    /// Of the bytes of all keys, each with `behind` behind it.
    pub fn of(lanes: &[&Lane], behind: &[u8]) -> Self {
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

    /// The key of this rank.
    pub fn key(&self, rank: u32) -> &[u8] {
        let rank = rank as usize;
        &self.texts[self.starts[rank]..self.starts[rank + 1]]
    }

    /// The ranks of a namespace's keys: they stand together.
    pub fn of_namespace(&self, name: &str) -> Range<u32> {
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

/// The rows of each key that has some, by rank; those of each lane are sorted by the number of their key.
pub fn by_key<'l, T>(
    order: &Order,
    lanes: impl Iterator<Item = &'l [T]>,
    key: impl Fn(&T) -> u32,
) -> Vec<OfKey<'l, T>> {
    let mut keys = Vec::new();
    for ((lane, rows), ranks) in (0..).zip(lanes).zip(&order.ranks) {
        let of_keys = rows.chunk_by(|a, b| key(a) == key(b));
        keys.extend(of_keys.map(|rows| OfKey {
            rank: ranks[key(&rows[0]) as usize],
            lane,
            rows,
        }));
    }
    keys.sort_unstable_by_key(|of| of.rank);
    keys
}

/// Keys of all lanes in the order of their bytes, each with `behind` behind it.
fn sorted(lanes: &[&Lane], behind: &[u8]) -> impl ExactSizeIterator<Item = KeyAt> {
    let text = |at: KeyAt| lanes[at.lane as usize].keys.get(at.key);
    let all = lanes.iter().map(|lane| lane.keys.len()).sum();
    let mut keys: Vec<(u128, KeyAt)> = Vec::with_capacity(all);
    for (lane, number) in lanes.iter().zip(0..) {
        let of_lane = (0..lane.keys.len() as u32).map(|key| KeyAt { lane: number, key });
        keys.extend(of_lane.map(|at| (beginning(text(at), behind), at)));
    }
    // Most keys differ in their first bytes, which stand here; the others are looked up.
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

/// The first 16 bytes as a number that sorts like them.
fn beginning(key: &[u8], behind: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    for (place, byte) in bytes.iter_mut().zip(key.iter().chain(behind)) {
        *place = *byte;
    }
    u128::from_be_bytes(bytes)
}
