//! The compression of blocks. Levels are zstd's, except [`LEVEL_TUNED`], which has parameters for short records.

use std::io;

use tallyring_records::line::Kind;
use zstd::bulk::Compressor;
use zstd::zstd_safe::{self, CParameter, Strategy};

/// The level of archive files unless configured otherwise.
pub(super) const LEVEL_TUNED: i32 = 6;

/// Number of the parameters of [`LEVEL_TUNED`]; earlier numbers gave other bytes.
const TUNING: u32 = 2;

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

/// Compresses independent blocks, each with a checksum.
pub(super) struct BlockCompressor {
    zstd: Compressor<'static>,
    level: i32,
    /// Whether the parameters are those of totals.
    totals: bool,
}

impl BlockCompressor {
    /// A compressor with a level of 1 to 19.
    ///
    /// # Errors
    /// When zstd has no memory.
    pub(super) fn new(level: i32) -> io::Result<Self> {
        let mut zstd = Compressor::new(level)?;
        if level == LEVEL_TUNED {
            set(&mut zstd, &TUNED)?;
        }
        zstd.include_checksum(true)?;
        Ok(Self {
            zstd,
            level,
            totals: false,
        })
    }

    /// Compresses a block whose first line is of this kind.
    ///
    /// # Errors
    /// When zstd has no memory.
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
}

fn set(zstd: &mut Compressor<'static>, parameters: &[CParameter]) -> io::Result<()> {
    let mut parameters = parameters.iter();
    parameters.try_for_each(|&parameter| zstd.set_parameter(parameter))
}

/// The description of this build's compression in a run: zstd's version, the tuning and the level make the bytes.
pub(super) fn named(level: i32) -> String {
    let version = zstd_safe::version_string();
    match level {
        LEVEL_TUNED => format!("zstd {version} tuning {TUNING} level {level}"),
        level => format!("zstd {version} level {level}"),
    }
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
        if named(LEVEL_TUNED) == "zstd 1.5.7 tuning 2 level 6" {
            let known = [1_118_593_276, 2_281_610_252, 1_118_593_276, 381_871_851];
            assert_eq!(crcs, known, "the bytes changed: raise TUNING");
        }
    }
}
