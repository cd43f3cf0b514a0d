//! Short texts as numbers. Comparing, hashing or copying a number takes a few steps.

/// A text of at most [`ShortText::BYTES_MAX`] bytes: its bytes, zeros, and its length in the last byte. The order is
/// that of the numbers, not that of the texts.
///
/// ```
/// use tallyring_records::ShortText;
///
/// let text = ShortText::of(b"u|").and_then(|text| text.followed_by(b"jehiah"));
/// assert_eq!(text, ShortText::of(b"u|jehiah"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ShortText(u128);

impl ShortText {
    /// The longest text: a hashed key of a namespace of two letters.
    pub const BYTES_MAX: usize = size_of::<Self>() - 1;

    /// The number of `text`; `None` when it is longer than [`ShortText::BYTES_MAX`].
    #[inline]
    pub fn of(text: &[u8]) -> Option<Self> {
        let bytes = bytes_of(text)?;
        Some(Self(bytes | (text.len() as u128) << LENGTH_SHIFT))
    }

    /// This text with `text` behind it; `None` when both together are too long.
    #[inline]
    pub fn followed_by(self, text: &[u8]) -> Option<Self> {
        let length = self.len() + text.len();
        if length > Self::BYTES_MAX {
            return None;
        }
        let bytes = self.0 & !(u128::MAX << LENGTH_SHIFT) | bytes_of(text)? << (8 * self.len());
        Some(Self(bytes | (length as u128) << LENGTH_SHIFT))
    }

    /// Length in bytes.
    #[inline]
    pub fn len(self) -> usize {
        (self.0 >> LENGTH_SHIFT) as usize
    }

    /// True for the empty text.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The bytes of the text, then zeros, then the length.
    pub fn bytes(self) -> [u8; size_of::<Self>()] {
        self.0.to_le_bytes()
    }

    /// One number for each text. Its last byte is the text's length.
    #[inline]
    pub(crate) fn word(self) -> u128 {
        self.0
    }
}

const LENGTH_SHIFT: usize = 8 * ShortText::BYTES_MAX;

/// The bytes of a short text, then zeros. Two overlapping loads are faster than a copy of so few bytes.
#[inline]
fn bytes_of(text: &[u8]) -> Option<u128> {
    let length = text.len();
    if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
        let (first, last) = (u64::from_le_bytes(*first), u64::from_le_bytes(*last));
        if length > ShortText::BYTES_MAX {
            return None;
        }
        return Some(u128::from(first) | u128::from(last) << (8 * (length - 8)));
    }
    if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        return Some(u128::from(first) | u128::from(last) << (8 * (length - 4)));
    }
    let add = |word: u128, byte: &u8| word << 8 | u128::from(*byte);
    Some(text.iter().rev().fold(0, add))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn prop_each_short_text_is_one_number(
            first in proptest::collection::vec(any::<u8>(), 0..20),
            second in proptest::collection::vec(any::<u8>(), 0..20),
        ) {
            let text = |bytes: &[u8]| {
                let short = ShortText::of(bytes)?;
                assert_eq!(short.is_empty(), bytes.is_empty());
                Some(short.bytes()[..short.len()].to_vec())
            };
            let is_short = |bytes: &[u8]| bytes.len() <= ShortText::BYTES_MAX;
            prop_assert_eq!(text(&first), is_short(&first).then(|| first.clone()));
            if let Some(short) = ShortText::of(&first) {
                let both = [&first[..], &second].concat();
                prop_assert_eq!(short.followed_by(&second), ShortText::of(&both));
                prop_assert_eq!(Some(short) == ShortText::of(&second), first == second);
            }
        }
    }
}
