//! Finds the ends of fields: commas and line ends, 64 bytes at a time.
//!
//! Fields are shorter than a search for a byte takes to set up. The number of separators in a few bytes cannot be
//! predicted, and a wrong prediction takes a processor longer than looking at all 64 bytes, which have about a dozen
//! separators.

/// Positions of all commas and line feeds, ascending.
pub(super) struct Separators<'b> {
    bytes: &'b [u8],
    /// Position behind the current block.
    next: usize,
    /// A bit for each byte of the current block, from the lowest, that is a separator and was not returned yet.
    marks: u64,
}

const BLOCK_BYTES: usize = u64::BITS as usize;

impl<'b> Separators<'b> {
    /// Begins at the start of `bytes`.
    pub(super) fn of(bytes: &'b [u8]) -> Self {
        Self {
            bytes,
            next: 0,
            marks: 0,
        }
    }

    /// The bytes from `self.next` on, filled up with zeros; none behind the end.
    fn block(&self) -> Option<[u8; BLOCK_BYTES]> {
        let rest = &self.bytes[self.next.min(self.bytes.len())..];
        if let Some(block) = rest.first_chunk() {
            return Some(*block);
        }
        let mut block = [0; BLOCK_BYTES];
        block[..rest.len()].copy_from_slice(rest);
        (!rest.is_empty()).then_some(block)
    }
}

impl Iterator for Separators<'_> {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        while self.marks == 0 {
            self.marks = marks(&self.block()?);
            self.next += BLOCK_BYTES;
        }
        let byte = self.marks.trailing_zeros() as usize;
        self.marks &= self.marks - 1;
        Some(self.next - BLOCK_BYTES + byte)
    }
}

/// A bit for each byte that is a separator.
#[inline]
fn marks(block: &[u8; BLOCK_BYTES]) -> u64 {
    let (words, _) = block.as_chunks();
    (0..).zip(words).fold(0, |marks, (number, word)| {
        let word = u64::from_le_bytes(*word);
        let found = equal(word, b',') | equal(word, b'\n');
        marks | top_bits(found) << (8 * number)
    })
}

/// The top bit of every byte that equals `byte`, where `word ^ ,,,,` has a zero. Hacker's Delight, section 6-1, finds
/// zero bytes exactly, whatever their neighbours are.
#[inline]
fn equal(word: u64, byte: u8) -> u64 {
    const LOW_BITS: u64 = u64::from_ne_bytes([0x7f; 8]);
    let zero_where_equal = word ^ u64::from_ne_bytes([byte; 8]);
    // No sum reaches into the next byte.
    !(((zero_where_equal & LOW_BITS) + LOW_BITS) | zero_where_equal | LOW_BITS)
}

/// The top bits of all bytes, side by side; all other bits are zero.
#[inline]
fn top_bits(word: u64) -> u64 {
    // Moves the bit of each byte to its own position in the highest byte; no bit meets another on the way.
    (word >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn prop_separators_are_all_commas_and_line_ends(bytes in prop_oneof![
            any::<Vec<u8>>(),
            "[,\n\r+-]{0,200}".prop_map(String::into_bytes),
        ]) {
            let found: Vec<usize> = Separators::of(&bytes).collect();
            prop_assert_eq!(found, memchr::memchr2_iter(b',', b'\n', &bytes).collect::<Vec<_>>());
        }
    }
}
