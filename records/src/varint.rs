//! LEB128 integers and length-prefixed text, of which log records consist.

use crate::day::Day;
use crate::increment::Text;

/// Appends `value` in 7-bit groups, least significant first.
pub(crate) fn write_u64(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// As [`write_u64`], for sums that may be larger.
pub(crate) fn write_u128(out: &mut Vec<u8>, mut value: u128) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// As [`write_i64`], for sums that may be larger.
pub(crate) fn write_i128(out: &mut Vec<u8>, value: i128) {
    write_u128(out, (value.wrapping_shl(1) ^ (value >> 127)) as u128);
}

/// Appends `value` in zigzag form, so that small magnitudes are short.
pub(crate) fn write_i64(out: &mut Vec<u8>, value: i64) {
    write_u64(out, (value.wrapping_shl(1) ^ (value >> 63)) as u64);
}

/// Appends a length and the bytes.
pub(crate) fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    write_u64(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a count and that many pairs of texts.
pub(crate) fn write_pairs(out: &mut Vec<u8>, pairs: &[(Text, Text)]) {
    write_u64(out, pairs.len() as u64);
    for (name, text) in pairs {
        write_bytes(out, name.as_bytes());
        write_bytes(out, text.as_bytes());
    }
}

/// Takes an integer off the front; `None` when it is cut short or has more than 64 bits.
pub(crate) fn read_u64(input: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = input.split_first()?;
        *input = rest;
        let group = u64::from(byte & 0x7f);
        if shift == 63 && group > 1 {
            return None;
        }
        value |= group << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Takes an integer off the front; `None` when it is cut short or has more than 128 bits.
pub(crate) fn read_u128(input: &mut &[u8]) -> Option<u128> {
    let mut value = 0_u128;
    for shift in (0..128).step_by(7) {
        let byte = *input.split_off_first()?;
        let group = u128::from(byte & 0x7f);
        if shift == 126 && group > 3 {
            return None;
        }
        value |= group << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// As [`read_i64`], of an integer of up to 128 bits.
pub(crate) fn read_i128(input: &mut &[u8]) -> Option<i128> {
    let zigzag = read_u128(input)?;
    Some((zigzag >> 1) as i128 ^ -((zigzag & 1) as i128))
}

/// Takes so many bytes off the front.
pub(crate) fn read_array<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(*bytes)
}

/// Takes an integer in zigzag form off the front.
pub(crate) fn read_i64(input: &mut &[u8]) -> Option<i64> {
    let zigzag = read_u64(input)?;
    Some((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64))
}

/// Takes a length and that many bytes off the front.
pub(crate) fn read_bytes<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(read_u64(input)?).ok()?;
    let (bytes, rest) = input.split_at_checked(length)?;
    *input = rest;
    Some(bytes)
}

/// Takes length-prefixed UTF-8 off the front.
pub(crate) fn read_str<'a>(input: &mut &'a [u8]) -> Option<&'a str> {
    std::str::from_utf8(read_bytes(input)?).ok()
}

/// Takes length-prefixed UTF-8 off the front, as an owned text.
pub(crate) fn read_text(input: &mut &[u8]) -> Option<String> {
    read_str(input).map(str::to_owned)
}

/// Takes the number of a day off the front.
pub(crate) fn read_day(input: &mut &[u8]) -> Option<Day> {
    Some(Day::from_number(u32::try_from(read_u64(input)?).ok()?))
}

/// Takes a count and that many pairs of texts off the front.
pub(crate) fn read_pairs(input: &mut &[u8]) -> Option<Vec<(Text, Text)>> {
    let count = read_u64(input)?;
    let mut pairs = Vec::new();
    for _ in 0..count {
        pairs.push((read_str(input)?.into(), read_str(input)?.into()));
    }
    Some(pairs)
}
