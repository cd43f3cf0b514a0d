//! Texts numbered in the order they are first seen, each stored once in one arena.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

/// A set of texts with dense numbers from 0.
#[derive(Default)]
pub struct Interner {
    /// Each text behind its length in two bytes, so that a comparison touches one place.
    arena: Vec<u8>,
    /// Where each text's length stands.
    starts: Vec<u32>,
    table: HashTable<Entry>,
    hasher: DefaultHashBuilder,
}

#[derive(Clone, Copy)]
struct Entry {
    number: u32,
    start: u32,
}

impl Interner {
    /// The number of `text`, given now if it is new.
    ///
    /// # Panics
    /// When the arena would exceed 4 GiB (whoever fills it writes it out long before), or a text is longer
    /// than 65,535 bytes: keys and values are far shorter.
    pub fn intern(&mut self, text: &[u8]) -> u32 {
        let hash = self.hasher.hash_one(text);
        let Self {
            arena,
            starts,
            table,
            hasher,
        } = self;
        if let Some(entry) = table.find(hash, |entry| at(arena, entry.start) == text) {
            return entry.number;
        }
        let entry = Entry {
            number: u32::try_from(starts.len()).expect("BUG: written out before 2^32 texts"),
            start: u32::try_from(arena.len()).expect("BUG: written out before 4 GiB of text"),
        };
        let length = u16::try_from(text.len()).expect("BUG: keys and values are short");
        arena.extend_from_slice(&length.to_le_bytes());
        arena.extend_from_slice(text);
        starts.push(entry.start);
        table.insert_unique(hash, entry, |entry| hasher.hash_one(at(arena, entry.start)));
        entry.number
    }

    /// The number of `text` if it was seen.
    pub fn find(&self, text: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash_one(text);
        let found = self
            .table
            .find(hash, |entry| at(&self.arena, entry.start) == text);
        found.map(|entry| entry.number)
    }

    /// The text with this number.
    pub fn get(&self, number: u32) -> &[u8] {
        at(&self.arena, self.starts[number as usize])
    }

    /// How many texts it has; their numbers are below.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// True when it has none.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Bytes of memory held.
    pub fn bytes(&self) -> usize {
        self.arena.capacity()
            + 4 * self.starts.capacity()
            + (size_of::<Entry>() + 1) * self.table.capacity() * 8 / 7
    }
}

fn at(arena: &[u8], start: u32) -> &[u8] {
    let start = start as usize;
    let length = usize::from(u16::from_le_bytes([arena[start], arena[start + 1]]));
    &arena[start + 2..start + 2 + length]
}
