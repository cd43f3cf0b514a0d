//! A file of the simulated disk: its durable bytes, and the writes since that may be lost.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::tally::{Damage, Tally};

/// The bytes that a disk writes whole or not at all.
pub const SECTOR_BYTES: usize = 512;

/// One file, by whatever names. Invariant: the writes, put into the durable content, give the current one. So both are
/// one piece of memory where nothing was written since the last sync.
#[derive(Clone, Default)]
pub(super) struct Inode {
    /// Tells it from all others, through crashes.
    pub number: u64,
    /// Names that it has now.
    pub names: u32,
    /// The content that a reader sees.
    pub current: Arc<Vec<u8>>,
    durable: Arc<Vec<u8>>,
    /// Writes since `durable`, in order, none across the end of a sector.
    writes: Vec<Write>,
}

#[derive(Clone)]
struct Write {
    offset: usize,
    bytes: Vec<u8>,
    /// A sync failed: the sector counts as clean, and only writing to it again lets a sync see it.
    is_forgotten: bool,
}

impl Write {
    fn sector(&self) -> usize {
        self.offset / SECTOR_BYTES
    }
}

impl Inode {
    /// An empty file.
    pub(super) fn new(number: u64) -> Self {
        Self {
            number,
            ..Self::default()
        }
    }

    /// Writes into the page cache.
    pub(super) fn write(&mut self, mut offset: usize, mut bytes: &[u8]) {
        put(Arc::make_mut(&mut self.current), offset, bytes);
        while !bytes.is_empty() {
            let in_sector = SECTOR_BYTES - offset % SECTOR_BYTES;
            let (sector, rest) = bytes.split_at(in_sector.min(bytes.len()));
            self.writes.push(Write {
                offset,
                bytes: sector.to_vec(),
                is_forgotten: false,
            });
            offset += sector.len();
            bytes = rest;
        }
    }

    /// Makes the sectors written since the last sync durable, or sees to it that none is.
    pub(super) fn sync(&mut self, works: bool) {
        if !works {
            for write in &mut self.writes {
                write.is_forgotten = true;
            }
            return;
        }
        let dirty = self.writes.iter().filter(|write| !write.is_forgotten);
        let dirty: BTreeSet<usize> = dirty.map(Write::sector).collect();
        if self
            .writes
            .iter()
            .all(|write| dirty.contains(&write.sector()))
        {
            // A file that is written again and again, such as a segment, would be copied whole by the next write.
            match Arc::get_mut(&mut self.durable) {
                Some(durable) if !durable.is_empty() => {
                    let writes = self.writes.drain(..);
                    writes.for_each(|write| put(durable, write.offset, &write.bytes));
                }
                _ => {
                    self.writes.clear();
                    self.durable = Arc::clone(&self.current);
                }
            }
            return;
        }
        let durable = Arc::make_mut(&mut self.durable);
        self.writes.retain(|write| {
            let is_dirty = dirty.contains(&write.sector());
            if is_dirty {
                put(durable, write.offset, &write.bytes);
            }
            !is_dirty
        });
    }

    /// Rots a bit wherever it is kept.
    pub(super) fn flip_bit(&mut self, bit: usize) {
        let (at, mask) = (bit / 8, 1 << (bit % 8));
        Arc::make_mut(&mut self.current)[at] ^= mask;
        if let Some(byte) = Arc::make_mut(&mut self.durable).get_mut(at) {
            *byte ^= mask;
        }
        for write in &mut self.writes {
            if let Some(byte) = at
                .checked_sub(write.offset)
                .and_then(|at| write.bytes.get_mut(at))
            {
                *byte ^= mask;
            }
        }
    }

    /// Puts other bytes where they do not belong, without making the file longer.
    pub(super) fn overwrite(&mut self, offset: usize, bytes: &[u8]) {
        let content = Arc::make_mut(&mut self.current);
        let offset = offset.min(content.len().saturating_sub(1));
        let end = content.len().min(offset + bytes.len());
        content[offset..end].copy_from_slice(&bytes[..end - offset]);
        self.durable = Arc::clone(&self.current);
        self.writes.clear();
    }

    /// Takes the place of all that the file has, durably.
    pub(super) fn become_all_of(&mut self, content: Arc<Vec<u8>>) {
        self.durable = Arc::clone(&content);
        self.current = content;
        self.writes.clear();
    }

    /// Cuts the file.
    pub(super) fn truncate(&mut self, length: usize) {
        let content = Arc::make_mut(&mut self.current);
        content.truncate(length);
        self.durable = Arc::clone(&self.current);
        self.writes.clear();
    }

    /// The part of the writes that a loss of power leaves. The file has no name yet.
    pub(super) fn crash(mut self, rng: &mut impl FnMut() -> u64, tally: &mut Tally) -> Self {
        let survivors = survivors(self.writes.len(), rng);
        // A sector is written whole, so its later bytes never survive its earlier ones.
        let mut lost = BTreeSet::new();
        let (mut kept, mut reordered) = (false, false);
        for (write, survived) in self.writes.drain(..).zip(survivors) {
            if !survived {
                lost.insert(write.sector());
            } else if !lost.contains(&write.sector()) {
                put(Arc::make_mut(&mut self.durable), write.offset, &write.bytes);
                kept = true;
                reordered |= !lost.is_empty();
            }
        }
        for (came, kind) in [
            (!lost.is_empty(), Damage::LostWrite),
            (kept && !lost.is_empty(), Damage::TornWrite),
            (reordered, Damage::ReorderedWrite),
        ] {
            if came {
                tally.add(kind);
            }
        }
        // The length is kept apart from the bytes: it may survive them, which leaves zeros.
        if rng().is_multiple_of(4) && self.current.len() > self.durable.len() {
            tally.add(Damage::Zeros);
            Arc::make_mut(&mut self.durable).resize(self.current.len(), 0);
        }
        self.current = Arc::clone(&self.durable);
        self.names = 0;
        self
    }
}

/// Draws which of `count` unsynced things survive: often none, all or the first few, since those are
/// the likely ends, else each on its own.
pub(super) fn survivors(count: usize, rng: &mut impl FnMut() -> u64) -> Vec<bool> {
    let kind = rng() % 5;
    let first = usize::try_from(rng() % (count as u64 + 1)).expect("BUG: at most the count");
    (0..count)
        .map(|at| match kind {
            0 => false,
            1 => true,
            2 => at < first,
            _ => rng() >> 63 == 1,
        })
        .collect()
}

fn put(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let end = offset + bytes.len();
    content.resize(content.len().max(end), 0);
    content[offset..end].copy_from_slice(bytes);
}
