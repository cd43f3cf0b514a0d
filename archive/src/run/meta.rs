//! Metadata of a run: in the run itself, and in a manifest.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use tallyring_records::{Day, Grain, TimeCode, is_actions_section};

use crate::names;
use crate::origin::Origin;
use crate::partition::Partition;
use crate::sign::{Corrects, Sign};

/// Sum of all counts per section (`u|`, `c.u|`), the books of a run. 128 bits: every counter may be at its limit.
pub type Sums = BTreeMap<String, u128>;

/// Written inside the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunMeta {
    /// The span of time of all its records.
    pub partition: Partition,
    /// Which shard its keys belong to.
    pub shard: u16,
    /// Number of shards.
    pub shards: u16,
    /// Lines, lookups included.
    pub lines: u64,
    /// Plain bytes of all lines.
    pub plain_bytes: u64,
    /// First counted instant, Unix seconds; 0 when there is none. Actions of users count from the start of their day
    /// on.
    pub first: i64,
    /// Last counted base bucket's start, Unix seconds; 0 when there is none.
    pub last: i64,
    /// Sum of counts per section.
    pub sums: Sums,
    /// zstd version and level, part of what makes the bytes.
    pub compression: String,
}

impl RunMeta {
    pub(crate) fn see(&mut self, code: TimeCode) {
        let start = code.start();
        if self.first == 0 || start < self.first {
            self.first = start;
        }
        self.last = self.last.max(start);
    }

    /// True when the run may hold actions of users.
    pub fn has_actions(&self) -> bool {
        let mut sections = self.sums.keys();
        sections.any(|section| is_actions_section(section))
    }

    /// The zstd level it was written at; none when an unknown build wrote it.
    pub fn level(&self) -> Option<i32> {
        let (_, level) = self.compression.rsplit_once(" level ")?;
        level.parse().ok()
    }

    /// True for a run that a build wrote which did not know summaries, or sums of values.
    pub fn is_before_sums(&self) -> bool {
        let number = self.compression.split_once(" summaries ");
        number.is_none_or(|(_, number)| number.starts_with("1 "))
    }

    /// The UTC days from that of its first counted instant to that of its last base bucket. A folded day is one bucket.
    pub fn days(&self) -> RangeInclusive<Day> {
        Day::of(self.first)..=Day::of(self.last)
    }

    /// True when the run's span holds part of `from..to` (Unix seconds). Folded days reach beyond
    /// their start, so a day is allowed for.
    pub fn overlaps(&self, from: i64, to: i64) -> bool {
        self.first < to && from < self.last.saturating_add(Grain::Day.seconds())
    }
}

/// A hash of all bytes, as [`RunEntry::hash`] has it.
pub(crate) fn hash_text(hash: &blake3::Hash) -> String {
    const HASH_DIGITS: usize = 32;
    hash.to_hex()[..HASH_DIGITS].to_owned()
}

/// A run as a manifest names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RunText")]
pub struct RunEntry {
    /// File name relative to the data directory.
    pub name: String,
    /// How it came to be.
    pub origin: Origin,
    /// Bytes of the file.
    pub bytes: u64,
    /// First 128 bits of the file's BLAKE3, hex.
    pub hash: String,
    /// A copy of the metadata inside the file.
    pub meta: RunMeta,
    /// The file holds no action of before of a user whom a record of the log erased that has a lower sequence number
    /// than this.
    #[serde(skip_serializing_if = "is_zero")]
    pub erased_until: u64,
    /// A run whose counts are taken away says here from which records of the log; every other run has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub corrects: Option<Corrects>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl RunEntry {
    /// Whether its counts are added or taken away.
    pub fn sign(&self) -> Sign {
        self.origin.sign()
    }

    /// The name of other content in this one's place.
    pub fn name_of(&self, hash: &str) -> String {
        let shard = (self.meta.shard, self.meta.shards);
        names::run(&self.origin, self.meta.partition, shard, hash)
    }

    /// This content under the name that another origin gives it. The sign is that of the origin.
    pub fn renamed(&self, origin: Origin) -> Self {
        let mut renamed = Self {
            origin,
            ..self.clone()
        };
        renamed.name = renamed.name_of(&self.hash);
        renamed
    }
}

/// The entry as it stands in a manifest. Format 1 does not say the origin, so the name tells it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RunText {
    name: String,
    origin: Option<Origin>,
    bytes: u64,
    hash: String,
    meta: RunMeta,
    #[serde(default)]
    erased_until: u64,
    corrects: Option<Corrects>,
}

impl TryFrom<RunText> for RunEntry {
    type Error = String;

    fn try_from(text: RunText) -> Result<Self, String> {
        let told = || names::origin_of(&text.name);
        let origin = text.origin.or_else(told);
        let origin = origin.ok_or_else(|| format!("`{}` is no run", text.name.escape_debug()))?;
        if (origin.sign() == Sign::Minus) != text.corrects.is_some() {
            return Err(format!(
                "`{}` takes counts away exactly if it has `corrects`, which names the records whose counts these are",
                text.name.escape_debug()
            ));
        }
        Ok(Self {
            name: text.name,
            origin,
            bytes: text.bytes,
            hash: text.hash,
            meta: text.meta,
            erased_until: text.erased_until,
            corrects: text.corrects,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::RunWriter;

    #[test]
    fn a_run_of_an_earlier_build_is_told_by_its_compression() {
        let is_before = |compression: &str| {
            let meta = RunMeta {
                partition: "2012".parse().unwrap(),
                shard: 0,
                shards: 1,
                lines: 1,
                plain_bytes: 40,
                first: 0,
                last: 0,
                sums: Sums::new(),
                compression: compression.to_owned(),
            };
            meta.is_before_sums()
        };
        assert!(is_before("zstd 1.5.7 tuning 2 level 6"));
        assert!(is_before("zstd 1.5.7 columns 1 level 16"));
        assert!(is_before("zstd 1.5.7 columns 2 summaries 1 level 16"));
        assert!(!is_before(&RunWriter::compression(16)));
        assert!(!is_before(&RunWriter::compression(6)));
    }
}
