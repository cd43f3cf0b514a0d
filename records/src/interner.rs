//! Texts numbered in the order they are first seen, each stored once in one arena.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::short_text::ShortText;

/// A set of texts with dense numbers from 0.
///
/// Most keys are short, and a short key stands in the table itself. A look-up then loads one cache line besides the
/// control bytes of its bucket. Over a million keys that saves a third of the time.
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
    /// Offset of each text's length in the arena, by number.
    starts: Vec<u32>,
    table: HashTable<Entry>,
    hasher: DefaultHashBuilder,
}

/// A text in the form of the table, and its number.
#[derive(Clone, Copy)]
struct Entry {
    /// A [`ShortText`] or a [`long`] text. It is bytes and no number, so that an entry takes 20 bytes.
    word: [u8; size_of::<ShortText>()],
    number: u32,
}

/// Marks a long text, in the byte that holds the length of a short one.
const LONG: u8 = u8::MAX;

impl Interner {
    /// The number of `text`, which a new text gets now. Panics when the arena would exceed 4 GiB, or the text is longer
    /// than 65,535 bytes. Callers flush far earlier, and keys and values are far shorter.
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

    /// The number of `text`; `None` when it has none.
    pub fn find(&self, text: &[u8]) -> Option<u32> {
        match ShortText::of(text) {
            Some(short) => self.short_number(short.word(), self.hasher.hash_one(short.word())),
            None => self.long_number(text, self.hasher.hash_one(text)),
        }
    }

    /// The number of a short text, which a new text gets now. Equal to [`Interner::intern`] of its bytes. Panics as
    /// [`Interner::intern`] does.
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

    /// How many texts there are. All numbers are below it.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// True when there are no texts.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Bytes of memory that the set holds.
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

    /// Start in the arena and hash; `None` for a short text.
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

/// The word of a long text: its hash, and its start in the arena.
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
