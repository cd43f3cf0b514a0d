//! Texts numbered in the order they are first seen, each stored once in one arena.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

/// A set of texts with dense numbers from 0.
#[derive(Default)]
pub struct Interner {
    arena: Vec<u8>,
    ends: Vec<u32>,
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl Interner {
    /// The number of `text`, given now if it is new.
    ///
    /// # Panics
    /// When the arena would exceed 4 GiB: whoever fills it writes it out long before.
    pub fn intern(&mut self, text: &[u8]) -> u32 {
        let hash = self.hasher.hash_one(text);
        let Self {
            arena,
            ends,
            table,
            hasher,
        } = self;
        if let Some(&number) = table.find(hash, |&number| get(arena, ends, number) == text) {
            return number;
        }
        let number = u32::try_from(ends.len()).expect("BUG: written out before 2^32 texts");
        arena.extend_from_slice(text);
        ends.push(
            u32::try_from(arena.len()).expect("BUG: written out before 4 GiB of text"),
        );
        table.insert_unique(hash, number, |&number| {
            hasher.hash_one(get(arena, ends, number))
        });
        number
    }

    /// The number of `text` if it was seen.
    pub fn find(&self, text: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash_one(text);
        self.table
            .find(hash, |&number| self.get(number) == text)
            .copied()
    }

    /// The text with this number.
    pub fn get(&self, number: u32) -> &[u8] {
        get(&self.arena, &self.ends, number)
    }

    /// How many texts it has; their numbers are below.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True when it has none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of memory held.
    pub fn bytes(&self) -> usize {
        self.arena.capacity() + 4 * self.ends.capacity() + 5 * self.table.capacity() * 8 / 7
    }
}

fn get<'a>(arena: &'a [u8], ends: &[u32], number: u32) -> &'a [u8] {
    let at = number as usize;
    let start = if at == 0 { 0 } else { ends[at - 1] as usize };
    &arena[start..ends[at] as usize]
}
