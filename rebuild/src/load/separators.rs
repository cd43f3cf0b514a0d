//! Where fields end: commas and line ends, eight bytes at a time.
//!
//! Fields are shorter than what a search for a byte takes to set up, so words are looked at whole: a byte of `word ^ ,,,,`
//! is zero where a comma stands. (Hacker's Delight, section 6-1, finds zero bytes exactly, whatever stands beside them.)

/// Places of all commas and line feeds, ascending.
pub struct Separators<'b> {
    bytes: &'b [u8],
    /// First byte of the word behind the one whose separators are given now.
    next: usize,
    /// The top bit of every byte that is one and was not given yet.
    marks: u64,
}

impl<'b> Separators<'b> {
    /// Those of `bytes`.
    pub fn of(bytes: &'b [u8]) -> Self {
        Self {
            bytes,
            next: 0,
            marks: 0,
        }
    }

    /// The word from `self.next` on, with zeros behind the last byte; none behind the end.
    fn word(&self) -> Option<u64> {
        let rest = &self.bytes[self.next.min(self.bytes.len())..];
        if let Some(word) = rest.first_chunk() {
            return Some(u64::from_le_bytes(*word));
        }
        let mut word = [0; WORD_BYTES];
        word[..rest.len()].copy_from_slice(rest);
        (!rest.is_empty()).then_some(u64::from_le_bytes(word))
    }
}

const WORD_BYTES: usize = size_of::<u64>();

impl Iterator for Separators<'_> {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        while self.marks == 0 {
            let word = self.word()?;
            self.marks = marks(word, b',') | marks(word, b'\n');
            self.next += WORD_BYTES;
        }
        let byte = (self.marks.trailing_zeros() / 8) as usize;
        self.marks &= self.marks - 1;
        Some(self.next - WORD_BYTES + byte)
    }
}

/// The top bit of every byte that equals `byte`.
#[inline]
fn marks(word: u64, byte: u8) -> u64 {
    const LOW_BITS: u64 = u64::from_ne_bytes([0x7f; WORD_BYTES]);
    let zero_where_equal = word ^ u64::from_ne_bytes([byte; WORD_BYTES]);
    // No sum reaches into the next byte.
    !(((zero_where_equal & LOW_BITS) + LOW_BITS) | zero_where_equal | LOW_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn prop_separators_are_all_commas_and_line_ends(bytes in prop_oneof![
            any::<Vec<u8>>(),
            "[,\n\r+-]{0,40}".prop_map(String::into_bytes),
        ]) {
            let found: Vec<usize> = Separators::of(&bytes).collect();
            prop_assert_eq!(found, memchr::memchr2_iter(b',', b'\n', &bytes).collect::<Vec<_>>());
        }
    }
}
