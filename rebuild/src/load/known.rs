//! Hashes of texts that come again and again, such as referrers.

use tallyring_records::{HASH_CHARS, Interner, LongKeys};

/// Memory of the texts that are known, about, bytes. Texts that come later are hashed each time.
const KNOWN_BYTES_MAX: usize = 2 << 20;

/// Long texts with their hashes. Each has one owner, a thread.
#[derive(Default)]
pub(super) struct Known {
    texts: Interner,
    /// By the number of the text.
    hashes: Vec<[u8; HASH_CHARS]>,
}

/// Numbers of texts.
#[derive(Default)]
pub(super) struct Numbers(Vec<u64>);

impl Known {
    /// The number and the hash of a long text. None of a short one, which is mostly stored as it is, and where no more
    /// texts can be known.
    pub(super) fn hash(&mut self, keys: &LongKeys, raw: &str) -> Option<(u32, [u8; HASH_CHARS])> {
        let text = raw.as_bytes();
        if text.len() < HASH_CHARS {
            return None;
        }
        if let Some(number) = self.texts.find(text) {
            return Some((number, self.hashes[number as usize]));
        }
        if self.texts.bytes() > KNOWN_BYTES_MAX {
            return None;
        }
        let hash = keys.stored(raw).as_bytes().try_into().ok()?;
        self.hashes.push(hash);
        Some((self.texts.intern(text), hash))
    }
}

impl Numbers {
    /// Adds a number. Returns false where it was there.
    pub(super) fn add(&mut self, number: u32) -> bool {
        let (word, bit) = (number as usize / 64, 1 << (number % 64));
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        let is_new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        is_new
    }

    /// All numbers, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        let words = (0..).zip(&self.0);
        words.flat_map(|(at, word): (u32, &u64)| {
            (0..64)
                .filter(move |bit| word >> bit & 1 == 1)
                .map(move |bit| at * 64 + bit)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_texts_are_known_than_fit() {
        let (mut known, keys) = (Known::default(), LongKeys::new([7; 32]));
        let text = |number: usize| format!("{number:01024}");
        let first = known.hash(&keys, &text(0)).expect("it fits");
        assert_eq!(first.1, keys.stored(&text(0)).as_bytes());
        let numbers: Vec<_> = (0..10_000).map(|of| known.hash(&keys, &text(of))).collect();
        let fit = numbers
            .iter()
            .position(Option::is_none)
            .expect("not all fit");
        assert!(numbers[fit..].iter().all(Option::is_none));
        assert!(known.texts.bytes() < 3 * KNOWN_BYTES_MAX, "{fit}");
        assert_eq!(known.hash(&keys, &text(0)), Some(first));
    }

    #[test]
    fn numbers_are_those_that_were_added() {
        let mut numbers = Numbers::default();
        let added = [0, 63, 64, 700, 3];
        assert!(added.iter().all(|number| numbers.add(*number)));
        assert!(!numbers.add(700));
        assert_eq!(numbers.iter().collect::<Vec<_>>(), [0, 3, 63, 64, 700]);
    }
}
