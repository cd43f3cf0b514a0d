//! Harm to files at rest.

use std::sync::Arc;

use super::tally::Damage;
use super::{SECTOR_BYTES, SimDisk, lock};

impl SimDisk {
    /// Rots one bit of a file, counted from its first byte's lowest.
    ///
    /// # Panics
    /// When there is no such file or bit.
    pub fn flip_bit(&self, name: &str, bit: usize) {
        let mut state = self.lock();
        state.tally.add(Damage::FlippedBit);
        let file = state.file(name).expect("BUG: the file is there");
        lock(&file).flip_bit(bit);
    }

    /// A sector of one file lands in another, at the same place or the last one it has.
    ///
    /// # Panics
    /// When there is no such file or sector, or the other file is empty.
    pub fn misdirect(&self, from: &str, sector: usize, to: &str) {
        let mut state = self.lock();
        state.tally.add(Damage::MisdirectedWrite);
        let [from, to] = [from, to].map(|name| state.file(name).expect("BUG: the file is there"));
        let content = Arc::clone(&lock(&from).current);
        let start = sector * SECTOR_BYTES;
        let bytes = &content[start..content.len().min(start + SECTOR_BYTES)];
        lock(&to).overwrite(start, bytes);
    }

    /// All of one file lands in another.
    ///
    /// # Panics
    /// When there is no such file.
    pub fn misplace(&self, from: &str, to: &str) {
        let mut state = self.lock();
        state.tally.add(Damage::MisdirectedWrite);
        let [from, to] = [from, to].map(|name| state.file(name).expect("BUG: the file is there"));
        let content = Arc::clone(&lock(&from).current);
        let mut to = lock(&to);
        let before = to.current.len() as u64;
        state.used = state.used - before + content.len() as u64;
        to.become_all_of(content);
    }

    /// A file loses its end, from this byte on.
    ///
    /// # Panics
    /// When there is no such file.
    pub fn truncate(&self, name: &str, length: usize) {
        let mut state = self.lock();
        state.tally.add(Damage::TruncatedFile);
        let file = state.file(name).expect("BUG: the file is there");
        let mut inode = lock(&file);
        let before = inode.current.len();
        inode.truncate(length);
        state.used -= (before - inode.current.len()) as u64;
    }
}
