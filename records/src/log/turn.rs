//! The fields of a record of a turn of the ring ([`crate::log`] describes them).

use super::Record;
use crate::day::Day;
use crate::varint::{read_day, read_u64, write_u64};

/// Writes a turn behind its kind.
pub(super) fn encode_turn(out: &mut Vec<u8>, today: Day, opened: &[Day]) {
    write_u64(out, today.number().into());
    write_u64(out, opened.len() as u64);
    for day in opened {
        write_u64(out, day.number().into());
    }
}

/// Reads a turn behind its kind.
pub(super) fn decode_turn(input: &mut &[u8]) -> Option<Record> {
    let today = read_day(input)?;
    let count = read_u64(input)?;
    let opened = (0..count).map(|_| read_day(input)).collect::<Option<_>>()?;
    Some(Record::Turn { today, opened })
}
