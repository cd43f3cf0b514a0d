//! The texts behind the hashes that keys and values of a delta use.

use std::hash::BuildHasher;
use std::ops::Range;

use hashbrown::{DefaultHashBuilder, HashTable};
use tallyring_records::{Text, is_hash};

/// Hashes and their texts, in the order in which they were first seen.
#[derive(Default)]
pub struct Lookups {
    texts: Vec<(Text, Box<str>)>,
    /// Numbers in `texts` by hash.
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
    text_bytes: usize,
}

impl Lookups {
    /// Notes the text behind a hash.
    pub fn note(&mut self, hash: &str, raw: &str) {
        match self.get(hash) {
            None => self.insert(hash, raw),
            // 72 keyed bits: this does not happen by chance before some 10^10 long texts.
            Some(known) if known != raw => tracing::error!(
                hash,
                first = %known.escape_debug(),
                second = %raw.escape_debug(),
                "two different texts have one hash; their counts are summed under the first"
            ),
            Some(_) => {}
        }
    }

    /// The text behind a hash; none for what is stored as it is.
    pub fn get(&self, hash: &str) -> Option<&str> {
        if !is_hash(hash) {
            return None;
        }
        let is_it = |&number: &u32| self.texts[number as usize].0 == hash;
        let found = self.table.find(self.hasher.hash_one(hash), is_it)?;
        Some(&self.texts[*found as usize].1)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Takes some of another's over; they stay there, too.
    pub fn take(&mut self, from: &Self, range: Range<usize>) {
        for (hash, raw) in &from.texts[range] {
            self.note(hash, raw);
        }
    }

    /// Bytes of memory held.
    pub fn bytes(&self) -> usize {
        size_of::<(Text, Box<str>)>() * self.texts.capacity()
            + 5 * self.table.capacity() * 8 / 7
            + self.text_bytes
    }

    fn insert(&mut self, hash: &str, raw: &str) {
        let Self { texts, hasher, .. } = self;
        let number =
            u32::try_from(texts.len()).expect("BUG: a delta is flushed before 2^32 lookups");
        texts.push((hash.into(), raw.into()));
        self.text_bytes += raw.len();
        self.table
            .insert_unique(hasher.hash_one(hash), number, |&number| {
                hasher.hash_one(texts[number as usize].0.as_str())
            });
    }
}
