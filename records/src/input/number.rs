//! Whole numbers as decimal digits.

use crate::digits::last_digits;

/// Reads a whole number of 1 to 19 digits; `None` for any other text.
///
/// Usual counts and times are read without a loop: processors cannot predict how long a number is, and a wrong
/// prediction takes longer than reading the number.
#[inline]
pub fn whole_number(text: &[u8]) -> Option<u64> {
    match text.len() {
        1..=3 => to_three_digits(text),
        8..=16 => {
            let (first, last) = (text.first_chunk()?, text.last_chunk()?);
            let more = text.len() - 8;
            Some(last_digits(*first, 8)? * TENS[more] + last_digits(*last, more)?)
        }
        4..=19 => text.iter().try_fold(0, |number, digit| {
            let digit = digit.wrapping_sub(b'0');
            (digit <= 9).then(|| number * 10 + u64::from(digit))
        }),
        _ => None,
    }
}

const TENS: [u64; 9] = [
    1,
    10,
    100,
    1_000,
    10_000,
    100_000,
    1_000_000,
    10_000_000,
    100_000_000,
];

/// Reads one to three digits: the first, the middle and the last byte, some of which may be the same.
fn to_three_digits(text: &[u8]) -> Option<u64> {
    const TIMES: [[u64; 3]; 4] = [[0; 3], [0, 0, 1], [0, 10, 1], [100, 10, 1]];
    let length = text.len();
    let digits = [0, (length - 1) / 2, length - 1].map(|at| u64::from(text[at].wrapping_sub(b'0')));
    let times = TIMES[length];
    let are_digits = digits.iter().all(|&digit| digit <= 9);
    are_digits.then_some(digits[0] * times[0] + digits[1] * times[1] + digits[2] * times[2])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn prop_numbers_are_those_of_the_standard_library(text in prop_oneof!["[0-9]{1,21}", "[0-9]{0,9}[/:@ -][0-9]{0,9}"]) {
            let expected = if text.len() > 19 { None } else { text.parse().ok() };
            prop_assert_eq!(whole_number(text.as_bytes()), expected);
        }
    }
}
