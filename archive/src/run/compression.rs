//! The compression of blocks. Levels are zstd's, except [`LEVEL_TUNED`], which has parameters for short records.

use std::io;

use tallyring_records::line::Kind;
use zstd::bulk::Compressor;
use zstd::zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd::zstd_safe::{self, CCtx, CParameter, InBuffer, OutBuffer, Strategy};

use crate::run::columns::Columns;

/// The level of archive files unless configured otherwise.
pub(super) const LEVEL_TUNED: i32 = 6;

/// Number of the parameters of [`LEVEL_TUNED`] for lines; earlier numbers gave other bytes.
const TUNING: u32 = 2;

/// Number of the columns: their sizes, lists and parameters. Number 1 had none of actions; earlier builds had none.
const COLUMNS_NUMBER: u32 = 2;

/// Matches in records of a few digits are three or four bytes long, and a block fits small tables that stay in the
/// processor's cache. Blocks are 7 % smaller than at level 3, and as small as at level 8 in two thirds of its time
/// (measured on a year of generated clicks in blocks of 64 KiB).
const TUNED: [CParameter; 7] = [
    CParameter::Strategy(Strategy::ZSTD_lazy2),
    CParameter::WindowLog(17),
    CParameter::HashLog(15),
    CParameter::ChainLog(15),
    CParameter::SearchLog(3),
    CParameter::MinMatch(4),
    CParameter::TargetLength(16),
];

/// Further parameters for lines of totals. Hours and counts repeat within a few entries, and a match further away
/// only costs more bits for its distance. With a table that remembers little, blocks of totals are 3 to 8 % smaller,
/// in seven tenths of the time. Values of breakdowns repeat at any distance: their blocks would be larger by a tenth
/// up to more than twice.
const TOTALS: [CParameter; 3] = [
    CParameter::HashLog(8),
    CParameter::ChainLog(8),
    CParameter::SearchLog(1),
];

/// Parameters for columns, beside those of level 1. Digits of numbers hardly repeat in sequences, so there is little to
/// find, and the frequency of each digit does the rest: a column's own table of them makes its bytes few.
const COLUMNS: [CParameter; 3] = [
    CParameter::WindowLog(18),
    CParameter::HashLog(8),
    CParameter::MinMatch(6),
];

/// Number of the summaries and sums: what they say, and their lengths. Number 1 had no sums of values; earlier builds
/// had neither.
const SUMMARIES_NUMBER: u32 = 2;

/// Compresses independent blocks, each with a checksum.
pub(super) struct BlockCompressor {
    zstd: Compressor<'static>,
    /// For columns.
    columns: Compressor<'static>,
    level: i32,
    /// Whether the parameters are those of totals.
    totals: bool,
}

impl BlockCompressor {
    /// A compressor with a level of 1 to 19.
    pub(super) fn new(level: i32) -> io::Result<Self> {
        let mut zstd = Compressor::new(level)?;
        let mut columns = Compressor::new(1)?;
        set(&mut columns, &COLUMNS)?;
        if level == LEVEL_TUNED {
            set(&mut zstd, &TUNED)?;
        }
        zstd.include_checksum(true)?;
        columns.include_checksum(true)?;
        Ok(Self {
            zstd,
            columns,
            level,
            totals: false,
        })
    }

    /// Compresses a block of lines, the first of which is of this kind.
    pub(super) fn compress(&mut self, kind: Kind, block: &[u8]) -> io::Result<Vec<u8>> {
        let totals = kind == Kind::Total;
        if self.level == LEVEL_TUNED && totals != self.totals {
            set(&mut self.zstd, &TUNED)?;
            if totals {
                set(&mut self.zstd, &TOTALS)?;
            }
            self.totals = totals;
        }
        self.zstd.compress(block)
    }

    /// Compresses columns to one frame, in which each column has tables of its own.
    pub(super) fn compress_columns(&mut self, columns: &Columns) -> io::Result<Vec<u8>> {
        let frame = flushed(self.columns.context_mut(), columns)?;
        if self.level <= LEVEL_TUNED {
            return Ok(frame);
        }
        // A file that is written once for years may take its time.
        let other = flushed(self.zstd.context_mut(), columns)?;
        Ok(if other.len() < frame.len() {
            other
        } else {
            frame
        })
    }
}

/// A frame of columns, with a flush behind each.
fn flushed(zstd: &mut CCtx<'static>, columns: &Columns) -> io::Result<Vec<u8>> {
    let Columns { text, ends } = columns;
    let (last, ends) = ends.split_last().expect("BUG: there are columns");
    let length = Some(text.len() as u64);
    zstd.set_pledged_src_size(length).map_err(refused)?;
    let mut frame = Vec::with_capacity(zstd_safe::compress_bound(text.len()));
    let mut start = 0;
    for &end in ends {
        let column = &text[start..end];
        pass(zstd, column, ZSTD_EndDirective::ZSTD_e_flush, &mut frame)?;
        start = end;
    }
    let last = &text[start..*last];
    pass(zstd, last, ZSTD_EndDirective::ZSTD_e_end, &mut frame)?;
    Ok(frame)
}

/// Appends what zstd makes of a part of a frame.
fn pass(
    zstd: &mut CCtx<'static>,
    part: &[u8],
    directive: ZSTD_EndDirective,
    frame: &mut Vec<u8>,
) -> io::Result<()> {
    let mut input = InBuffer::around(part);
    loop {
        frame.reserve(1 << 10);
        let at = frame.len();
        let mut output = OutBuffer::around_pos(frame, at);
        let left = zstd.compress_stream2(&mut output, &mut input, directive);
        if left.map_err(refused)? == 0 && input.pos() == part.len() {
            return Ok(());
        }
    }
}

fn refused(code: usize) -> io::Error {
    io::Error::other(zstd_safe::get_error_name(code))
}

fn set(zstd: &mut Compressor<'static>, parameters: &[CParameter]) -> io::Result<()> {
    let mut parameters = parameters.iter();
    parameters.try_for_each(|&parameter| zstd.set_parameter(parameter))
}

/// The description of this build's compression in a run: zstd's version, these numbers and the level make the bytes.
pub(super) fn named(level: i32) -> String {
    let version = zstd_safe::version_string();
    let tuning = match level {
        LEVEL_TUNED => format!(" tuning {TUNING}"),
        _ => String::new(),
    };
    format!(
        "zstd {version}{tuning} columns {COLUMNS_NUMBER} summaries {SUMMARIES_NUMBER} level {level}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_tuning_has_another_number() {
        let hour = |number: u32| {
            let some = number.wrapping_mul(2_654_435_761) >> 12;
            let digit = |number| char::from_digit(number, 32).unwrap();
            let (month, day) = (digit(number / 100), digit(some % 31 + 1));
            format!(" c{month}{day}{}:{}", digit(some % 24), some % 5 + 1)
        };
        let hours: String = (100..1_300).map(hour).collect();
        let totals = format!("l|a,{}\n", &hours[1..]);
        let values = format!("c.l|a.c411,US:4 JP:1 US*x:{}\n", "DE:7 FR:5 ".repeat(40));
        let mut compressor = BlockCompressor::new(LEVEL_TUNED).unwrap();
        let mut crc = |kind, text: &str| {
            let frame = compressor.compress(kind, text.as_bytes()).unwrap();
            assert_eq!(zstd::decode_all(&*frame).unwrap(), text.as_bytes());
            crc32fast::hash(&frame)
        };
        let crcs = [
            crc(Kind::Total, &totals),
            crc(Kind::Subtotal, &values),
            crc(Kind::Total, &totals),
            crc(Kind::Subtotal, &totals),
        ];
        assert_eq!(
            crcs[0], crcs[2],
            "one block has the same bytes wherever it stands"
        );
        assert_eq!(
            named(LEVEL_TUNED).split_once(" tuning ").unwrap().1,
            "2 columns 2 summaries 2 level 6"
        );
        if zstd_safe::version_string() == "1.5.7" {
            let known = [1_118_593_276, 2_281_610_252, 1_118_593_276, 381_871_851];
            assert_eq!(crcs, known, "the bytes changed: raise TUNING");
        }
    }

    #[test]
    fn other_bytes_of_columns_have_another_number() {
        let (gaps, counts) = ("bcda".repeat(999), "bbcb".repeat(999));
        let gaps = format!("gaps {gaps}\n");
        let text = format!("{gaps}counts {counts}\n");
        let columns = Columns {
            ends: vec![gaps.len(), text.len()],
            text: text.into_bytes(),
        };
        let mut crcs = Vec::new();
        for level in [1, LEVEL_TUNED, 16] {
            let mut compressor = BlockCompressor::new(level).unwrap();
            for _ in 0..2 {
                let frame = compressor.compress_columns(&columns).unwrap();
                assert_eq!(zstd::decode_all(&*frame).unwrap(), columns.text);
                crcs.push(crc32fast::hash(&frame));
                compressor.compress(Kind::Total, b"u|a,c41l:1\n").unwrap();
            }
        }
        if zstd_safe::version_string() == "1.5.7" {
            assert_eq!(
                crcs, [2_759_387_262; 6],
                "the bytes changed: raise COLUMNS_NUMBER"
            );
        }
    }
}
