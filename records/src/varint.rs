//! LEB128 integers and length-prefixed text, of which log records consist, and what nodes tell each other.

use crate::day::Day;
use crate::increment::Text;

/// Writes and reads integers of one width.
macro_rules! integers {
    ($bits:literal, $unsigned:ty, $signed:ty, $write:ident, $read:ident, $write_signed:ident, $read_signed:ident) => {
        /// Appends `value` in 7-bit groups, least significant first.
        pub fn $write(out: &mut Vec<u8>, mut value: $unsigned) {
            while value >= 0x80 {
                out.push((value & 0x7f) as u8 | 0x80);
                value >>= 7;
            }
            out.push(value as u8);
        }

        /// Takes an integer off the front; `None` when it is cut short or has more bits.
        pub fn $read(input: &mut &[u8]) -> Option<$unsigned> {
            let mut value: $unsigned = 0;
            for shift in (0..$bits).step_by(7) {
                let (&byte, rest) = input.split_first()?;
                *input = rest;
                let group = <$unsigned>::from(byte & 0x7f);
                // The last group has few bits.
                if shift + 7 > $bits && group >> ($bits - shift) > 0 {
                    return None;
                }
                value |= group << shift;
                if byte & 0x80 == 0 {
                    return Some(value);
                }
            }
            None
        }

        /// Appends `value` in zigzag form, so that small magnitudes are short.
        pub fn $write_signed(out: &mut Vec<u8>, value: $signed) {
            let zigzag = value.wrapping_shl(1) ^ (value >> ($bits - 1));
            $write(out, zigzag as $unsigned);
        }

        /// Takes an integer in zigzag form off the front.
        pub fn $read_signed(input: &mut &[u8]) -> Option<$signed> {
            let zigzag = $read(input)?;
            Some((zigzag >> 1) as $signed ^ -((zigzag & 1) as $signed))
        }
    };
}

integers!(64, u64, i64, write_u64, read_u64, write_i64, read_i64);
// For sums that may be larger.
integers!(
    128, u128, i128, write_u128, read_u128, write_i128, read_i128
);

/// Appends a length and the bytes.
pub fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    write_u64(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a count and that many pairs of texts.
pub fn write_pairs(out: &mut Vec<u8>, pairs: &[(Text, Text)]) {
    write_u64(out, pairs.len() as u64);
    for (name, text) in pairs {
        write_bytes(out, name.as_bytes());
        write_bytes(out, text.as_bytes());
    }
}

/// Takes so many bytes off the front.
pub fn read_array<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(*bytes)
}

/// Takes a length and that many bytes off the front.
pub fn read_bytes<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(read_u64(input)?).ok()?;
    let (bytes, rest) = input.split_at_checked(length)?;
    *input = rest;
    Some(bytes)
}

/// Takes length-prefixed UTF-8 off the front.
pub fn read_str<'a>(input: &mut &'a [u8]) -> Option<&'a str> {
    std::str::from_utf8(read_bytes(input)?).ok()
}

/// Takes length-prefixed UTF-8 off the front, as an owned text.
pub fn read_text(input: &mut &[u8]) -> Option<String> {
    read_str(input).map(str::to_owned)
}

/// Takes the number of a day off the front.
pub fn read_day(input: &mut &[u8]) -> Option<Day> {
    Some(Day::from_number(u32::try_from(read_u64(input)?).ok()?))
}

/// Takes a count and that many pairs of texts off the front.
pub fn read_pairs(input: &mut &[u8]) -> Option<Vec<(Text, Text)>> {
    let count = read_u64(input)?;
    let mut pairs = Vec::new();
    for _ in 0..count {
        pairs.push((read_str(input)?.into(), read_str(input)?.into()));
    }
    Some(pairs)
}
