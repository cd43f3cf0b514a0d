//! Decimal digits eight at a time: how many there are cannot be foretold, and processors that guess wrong wait for longer
//! than it takes to read all.

const ZEROS: u64 = u64::from_ne_bytes([b'0'; 8]);

/// The number that the last `count` (at most eight) bytes are; none where one is no digit.
///
/// ```
/// use tallyring_records::digits::last_digits;
///
/// assert_eq!(last_digits(*b"abcde042", 3), Some(42));
/// assert_eq!(last_digits(*b"abcde042", 4), None);
/// ```
#[inline]
pub fn last_digits(text: [u8; 8], count: usize) -> Option<u64> {
    // The bytes before become zeros.
    let wanted = u64::MAX.checked_shl(64 - 8 * count as u32).unwrap_or(0);
    let digits = (u64::from_le_bytes(text) ^ ZEROS) & wanted;
    (not_digits(digits) == 0).then(|| number(digits))
}

/// The number that the bytes begin with and how many digits it has, up to seven; none where all are digits.
#[inline]
pub(crate) fn first_digits(text: [u8; 8]) -> Option<(u64, usize)> {
    let digits = u64::from_le_bytes(text) ^ ZEROS;
    let others = not_digits(digits);
    let count = others.trailing_zeros() / 8;
    // Behind as many zeros as there are other bytes.
    let behind_zeros = digits.checked_shl(64 - 8 * count).unwrap_or(0);
    (others != 0).then(|| (number(behind_zeros), count as usize))
}

/// The top bit of every byte that is above nine.
#[inline]
fn not_digits(bytes: u64) -> u64 {
    const LOW_BITS: u64 = u64::from_ne_bytes([0x7f; 8]);
    const TO_TOP: u64 = u64::from_ne_bytes([0x80 - 10; 8]);
    // No sum reaches into the next byte.
    (((bytes & LOW_BITS) + TO_TOP) | bytes) & !LOW_BITS
}

/// The number of eight bytes of which each is 0 to 9, in three multiplications: neighbours are joined to pairs, pairs to
/// fours, fours to the whole. (Johnny Lee's; Daniel Lemire, "Quickly parsing eight digits", 2018.)
#[inline]
fn number(digits: u64) -> u64 {
    let pairs = (digits * 10 + (digits >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs * 100 + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    (fours * 10_000 + (fours >> 32)) & 0xffff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all_digits(text: &[u8]) -> Option<u64> {
        let is_number = text.iter().all(u8::is_ascii_digit);
        let number = std::str::from_utf8(text).ok().filter(|_| is_number)?;
        Some(number.parse().unwrap_or(0))
    }

    proptest! {
        #[test]
        fn prop_digits_are_read_as_the_standard_library_does(
            digits in "[0-9]{8}",
            at in 0..8_usize,
            byte: u8,
            count in 0..=8_usize,
        ) {
            let mut text: [u8; 8] = digits.as_bytes().try_into().unwrap();
            for _ in 0..2 {
                prop_assert_eq!(last_digits(text, count), all_digits(&text[8 - count..]));
                let first = text.iter().position(|byte| !byte.is_ascii_digit());
                let expected = first.map(|first| (all_digits(&text[..first]).unwrap(), first));
                prop_assert_eq!(first_digits(text), expected);
                text[at] = byte;
            }
        }
    }
}
