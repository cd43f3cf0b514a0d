//! Columns: the text form of a block whose lines are counts of one section. A block of lines repeats the key and the
//! hour with every value; columns say each of them once, and bytes of one kind stand together, which compresses.
//!
//! ```text
//! c.u|jehiah.c41l,US:4 JP:1          columns c.u| minutes 6442860
//! c.u|jehiah.c41m,US:2               shared aa          letters that a key shares with the key before
//! c.u|sam.c41m,DE:1                  keys jehiah sam ␠  the rest of each key
//!                                    buckets cb         lines of each key; of a total, its buckets
//!                                    gaps abb           steps from the bucket before, of a first one from the header
//!                                    sizes bab          values of a line, less one; only of values
//!                                    known              values of the section's list; only of values
//!                                    values US DE JP ␠  values that are spelled out; only of values
//!                                    numbers abab       values of a line, ascending; only of values
//!                                    counts ebcb
//! ```
//!
//! A number has the digits `a` to `z`, and capital letters before the last digit: `Ba` is 26. The header counts the
//! steps of the finest grain in the block from 2000 on: `days`, `hours`, `quarters` or `minutes`. A `+`, `*` or `/`
//! before a gap says that its bucket is a day, an hour or a quarter all the same.
//!
//! A value that is an action of a user is what was done; the rest stands in columns of its own:
//!
//! ```text
//! _a.@|q2Xb9K0fJt4wLm1c.c41,30000~click..ad=9:4 78301.click.home.ad=42.#3q2-7wAAAAA:1
//!
//! values click..ad=9 click.home.ad=42 ␠
//! numbers ab            value of each action of a line, in the order of their texts
//! seconds ~BSJwCTLt     seconds from the action before in the line; a `~` before an hour
//! tags .3q2-7wAAAAA     tag, or a `.`
//! counts eb
//! ```
//!
//! Values of a block are numbered: first those of `known`, then those of `values`. The number of a value in a line is
//! its distance from the one before, less one. A value that stands in two blocks of a section enters the section's
//! list, a frame of its own behind the blocks of the section: `list c.u|`, and each value on a line. `known` has
//! numbers of that list, ascending, each the distance from the one before, less one.
//!
//! Invariant: columns say the bytes of the lines, so whoever reads a block gets its lines. Lines of another form than
//! this build writes stay lines.

mod decode;
mod encode;
mod list;

pub(super) use decode::lines;
pub(super) use encode::{Columns, Encoder};
pub(super) use list::ValueList;

use tallyring_records::Grain;
use tallyring_records::line::{self, Kind};

/// First word of columns. Lines begin with a name or a mark, which have no space.
const HEAD: &str = "columns ";

/// Fewer plain bytes stay lines: tables of each column would take more than the columns save.
pub(super) const COLUMNS_BYTES_MIN: usize = 16 << 10;

/// Plain bytes after which a block of columns is closed. More values of a larger block repeat.
const COLUMNS_BYTES: usize = 256 << 10;

/// Plain bytes after which a block of actions is closed. A question about a user decodes a block of each file, which
/// takes 35 µs; blocks of twice the bytes are 5 % smaller, and take 60 µs.
const ACTIONS_BYTES: usize = 32 << 10;

/// More plain bytes stay lines: a longer block is one line of a breakdown, whose key and hour stand once anyway.
pub(super) const COLUMNS_BYTES_MAX: usize = 1 << 20;

/// The kinds of content that columns say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Totals,
    Values,
    /// Values that are actions of users.
    Actions,
}

impl Form {
    /// None for a section that stays lines. Minutes of an hour stand in order of time, not of counts.
    fn of(section: &[u8]) -> Option<Self> {
        match line::kind_of(section)? {
            Kind::Total => Some(Self::Totals),
            Kind::Subtotal if section.starts_with(MINUTES_PREFIX) => None,
            Kind::Subtotal if section.starts_with(ACTIONS_PREFIX) => Some(Self::Actions),
            Kind::Subtotal => Some(Self::Values),
            Kind::Users | Kind::Lookup => None,
        }
    }

    /// Names of the columns, in their order.
    fn names(self) -> &'static [&'static str] {
        match self {
            Self::Totals => &["shared", "keys", "buckets", "gaps", "counts"],
            Self::Values => &[
                "shared", "keys", "buckets", "gaps", "sizes", "known", "values", "numbers",
                "counts",
            ],
            Self::Actions => &[
                "shared", "keys", "buckets", "gaps", "sizes", "known", "values", "numbers",
                "seconds", "tags", "counts",
            ],
        }
    }
}

/// Grains, the name of their steps, and what stands before a gap of a coarser bucket.
const GRAINS: [(Grain, &str, u8); 4] = [
    (Grain::Day, "days", b'+'),
    (Grain::Hour, "hours", b'*'),
    (Grain::Quarter, "quarters", b'/'),
    (Grain::Minute, "minutes", 0),
];

/// True for a section of counts whose lines columns can say.
pub(super) fn can_say(section: &[u8]) -> bool {
    Form::of(section).is_some()
}

/// Plain bytes after which a block of a section is closed.
pub(super) fn block_bytes(section: &[u8]) -> usize {
    match Form::of(section) {
        Some(Form::Actions) => ACTIONS_BYTES,
        _ => COLUMNS_BYTES,
    }
}

/// Stands before the seconds of an action that is known by its hour.
const BY_HOUR: u8 = b'~';

/// Stands for the tag of an action that has none.
const NO_TAG: u8 = b'.';

const MINUTES_PREFIX: &[u8] = b"_m.";
const ACTIONS_PREFIX: &[u8] = b"_a.";

/// Minutes of a bucket.
fn minutes_of(grain: Grain) -> u32 {
    (grain.seconds() / 60) as u32
}

/// Appends a number: its last digit as a small letter, those before as capitals.
pub(super) fn push_number(out: &mut Vec<u8>, number: u64) {
    if number >= 26 {
        push_capitals(out, number / 26);
    }
    out.push(b'a' + (number % 26) as u8);
}

fn push_capitals(out: &mut Vec<u8>, number: u64) {
    if number >= 26 {
        push_capitals(out, number / 26);
    }
    out.push(b'A' + (number % 26) as u8);
}

/// Takes a number from the beginning of `text`; none where no number stands there.
#[inline]
pub(super) fn take_number(text: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    loop {
        let (&digit, rest) = text.split_first()?;
        *text = rest;
        if digit.is_ascii_lowercase() {
            return number.checked_mul(26)?.checked_add((digit - b'a').into());
        }
        if !digit.is_ascii_uppercase() {
            return None;
        }
        number = number.checked_mul(26)?.checked_add((digit - b'A').into())?;
    }
}

#[cfg(test)]
mod tests;
