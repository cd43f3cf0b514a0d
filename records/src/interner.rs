//! Texts numbered in the order they are first seen, each stored once in one arena.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::short_text::ShortText;

/// A set of texts with dense numbers from 0.
///
/// Most keys are short: those stand in the table itself, so that looking one up touches one place of memory more than
/// its bucket's control bytes. Over a million keys that is a third of the time.
///
/// ```
/// use tallyring_records::Interner;
///
/// let mut texts = Interner::default();
/// let number = texts.intern(b"US");
/// assert_eq!(texts.intern(b"US"), number);
/// assert_eq!(texts.get(number), b"US");
/// assert_eq!(texts.find(b"JP"), None);
/// ```
#[derive(Clone, Default)]
pub struct Interner {
    /// Each text behind its length in two bytes.
    arena: Vec<u8>,
    /// Where each text's length stands.
    starts: Vec<u32>,
    table: HashTable<Entry>,
    hasher: DefaultHashBuilder,
}

/// A text as the table knows it, and its number.
#[derive(Clone, Copy)]
struct Entry {
    /// Of a [`ShortText`], or [`long`]; bytes, so that an entry takes 20.
    word: [u8; size_of::<ShortText>()],
    number: u32,
}

/// What stands in the place of a short text's length.
const LONG: u8 = u8::MAX;

impl Interner {
    /// The number of `text`, given now if it is new.
    ///
    /// # Panics
    /// When the arena would exceed 4 GiB (whoever fills it writes it out long before), or a text is longer
    /// than 65,535 bytes: keys and values are far shorter.
    pub fn intern(&mut self, text: &[u8]) -> u32 {
        if let Some(short) = ShortText::of(text) {
            return self.intern_short(short);
        }
        let hash = self.hasher.hash_one(text);
        match self.long_number(text, hash) {
            Some(number) => number,
            None => self.insert(text, None, hash),
        }
    }

    /// The number of `text` if it was seen.
    pub fn find(&self, text: &[u8]) -> Option<u32> {
        match ShortText::of(text) {
            Some(short) => self.short_number(short.word(), self.hasher.hash_one(short.word())),
            None => self.long_number(text, self.hasher.hash_one(text)),
        }
    }

    /// The number of a short text, given now if it is new. The same as that of its bytes.
    ///
    /// # Panics
    /// As [`Interner::intern`].
    #[inline]
    pub fn intern_short(&mut self, text: ShortText) -> u32 {
        let word = text.word();
        let hash = self.hasher.hash_one(word);
        match self.short_number(word, hash) {
            Some(number) => number,
            None => self.insert(&text.bytes()[..text.len()], Some(word), hash),
        }
    }

    #[inline]
    fn short_number(&self, word: u128, hash: u64) -> Option<u32> {
        let found = self.table.find(hash, |entry| entry.word() == word);
        found.map(|entry| entry.number)
    }

    fn long_number(&self, text: &[u8], hash: u64) -> Option<u32> {
        let is_it = |(start, of)| of == hash && at(&self.arena, start) == text;
        let found = self
            .table
            .find(hash, |entry| entry.long().is_some_and(is_it));
        found.map(|entry| entry.number)
    }

    #[cold]
    fn insert(&mut self, text: &[u8], word: Option<u128>, hash: u64) -> u32 {
        let start = u32::try_from(self.arena.len()).expect("BUG: written out before 4 GiB of text");
        let number = u32::try_from(self.starts.len()).expect("BUG: written out before 2^32 texts");
        let length = u16::try_from(text.len()).expect("BUG: keys and values are short");
        self.arena.extend_from_slice(&length.to_le_bytes());
        self.arena.extend_from_slice(text);
        self.starts.push(start);
        let word = word.unwrap_or_else(|| long(start, hash)).to_le_bytes();
        let entry = Entry { word, number };
        self.table
            .insert_unique(hash, entry, |entry| entry.hash(&self.hasher));
        number
    }

    /// The text with this number.
    pub fn get(&self, number: u32) -> &[u8] {
        at(&self.arena, self.starts[number as usize])
    }

    /// Bytes of all texts together.
    pub fn text_bytes(&self) -> usize {
        self.arena.len() - 2 * self.starts.len()
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

impl Entry {
    fn word(&self) -> u128 {
        u128::from_le_bytes(self.word)
    }

    /// Start and hash of a long text.
    fn long(&self) -> Option<(u32, u64)> {
        let word = self.word();
        (self.word[ShortText::BYTES_MAX] == LONG).then_some(((word >> 64) as u32, word as u64))
    }

    fn hash(&self, hasher: &DefaultHashBuilder) -> u64 {
        match self.long() {
            Some((_, hash)) => hash,
            None => hasher.hash_one(self.word()),
        }
    }
}

/// What stands for a long text: its hash and where it starts in the arena.
fn long(start: u32, hash: u64) -> u128 {
    u128::from(hash) | u128::from(start) << 64 | u128::from(LONG) << (8 * ShortText::BYTES_MAX)
}

fn at(arena: &[u8], start: u32) -> &[u8] {
    let start = start as usize;
    let length = usize::from(u16::from_le_bytes([arena[start], arena[start + 1]]));
    &arena[start + 2..start + 2 + length]
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn prop_each_text_has_one_number_and_each_number_one_text(
            texts in vec(prop_oneof![vec(0..3_u8, 0..18), vec(253..=255_u8, 12..20), vec(any::<u8>(), 0..40)], 0..200),
            other in vec(0..3_u8, 0..18),
        ) {
            let mut interner = Interner::default();
            let mut model: HashMap<&[u8], u32> = HashMap::new();
            for text in &texts {
                let next = model.len() as u32;
                let number = *model.entry(text).or_insert(next);
                let found = match ShortText::of(text) {
                    Some(short) if number.is_multiple_of(2) => interner.intern_short(short),
                    _ => interner.intern(text),
                };
                prop_assert_eq!(found, number);
            }
            prop_assert_eq!(interner.len(), model.len());
            prop_assert_eq!(interner.find(&other), model.get(other.as_slice()).copied());
            for (text, number) in model {
                prop_assert_eq!(interner.get(number), text);
                prop_assert_eq!(interner.find(text), Some(number));
            }
        }
    }
}
