//! Final versions of days: each is a complete copy of the books of one UTC day, which nothing ever changes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tallyring_records::{Class, Day, FinalSums, LoggedFinal, ShownSums, is_false};

use crate::run::RunEntry;

/// Sums of `n` that rules filter, by event type, class and rule.
pub type FilteredSums = BTreeMap<String, BTreeMap<Class, BTreeMap<String, u128>>>;

/// Keys of which more than 0.1 % of at least 1,000 events had counted although they repeat others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RepeatedKeys {
    /// How many there are, of all namespaces.
    pub keys: u64,
    /// Those with the most repeated events, most first; 10 at most.
    pub most: Vec<RepeatedKey>,
}

/// A key of which many events had counted although they repeat others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RepeatedKey {
    /// The namespace.
    pub namespace: String,
    /// The key.
    pub key: String,
    /// Sum of `n` of the repeated events.
    pub n: u128,
    /// Sum of `n` that had counted, with these.
    pub before: u128,
}

/// One final version of a UTC day. Its files count in no other read, and no merge takes them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FinalEntry {
    /// The day.
    pub day: Day,
    /// From 1; versions may skip numbers.
    pub version: u32,
    /// When it was published, Unix milliseconds of the injected clock; 0 until it is.
    pub at_ms: i64,
    /// Records of the log before this one were judged.
    pub upto: u64,
    /// Hash of the rules that judged, hex.
    pub rules: String,
    /// All that the log counts of the day, one run for each shard at most.
    pub books: Vec<RunEntry>,
    /// The cause of each record that does not count, or counts otherwise than before: totals of a namespace `verdict`,
    /// whose keys are record numbers of 16 hex digits, and whose counts are numbers of causes from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdicts: Option<RunEntry>,
    /// Sums by event type; those of plain increments stand under `increment`.
    pub types: BTreeMap<String, FinalSums>,
    /// All that its rules filter, whether they did so as it came or a reconcile did; none where an older build made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filtered: Option<FilteredSums>,
    /// Keys of which many events had counted twice; none where an older build made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeated: Option<RepeatedKeys>,
    /// True when something of the day was counted after `upto`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub touched: bool,
    /// True once its books and verdicts are no longer kept, and its sums alone stay.
    #[serde(default, skip_serializing_if = "is_false")]
    pub sums_only: bool,
    /// True where its rules filtered more than a reconcile publishes by itself, and somebody insisted. A version that
    /// is made again has what its record says.
    #[serde(default, skip_serializing_if = "is_false")]
    pub forced: bool,
    /// The key that ordered it, as in [`LoggedFinal`]; none where nobody did, or an older build published it. A version
    /// that is made again has what its record says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// By what it is made again from the log; none where a build made it that did not tell the log of final versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<FinalProof>,
}

/// By what a final version is made again from the log, and known to be the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FinalProof {
    /// Ids of other days were known from this record of the log on.
    pub ids_from: u64,
    /// When that record arrived, Unix milliseconds; none where no id was known, or an older build made the version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids_from_ms: Option<i64>,
    /// Hash of its counts and verdicts, hex.
    pub content: String,
    /// True once the log is known to have a record of the version.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_logged: bool,
}

impl FinalEntry {
    /// The newest version of each day, of versions that ascend by day and number.
    pub fn newest_of_days(finals: &[Self]) -> impl Iterator<Item = &Self> {
        let days = finals.chunk_by(|version, next| version.day == next.day);
        days.filter_map(<[_]>::last)
    }

    /// Its files.
    pub fn files(&self) -> impl Iterator<Item = &RunEntry> {
        self.books.iter().chain(&self.verdicts)
    }

    /// The sums of all event types together.
    pub fn sums(&self) -> ShownSums {
        let mut all = FinalSums::default();
        self.types.values().for_each(|sums| all.add(sums));
        all.shown()
    }

    /// The version as the log tells of it; none without a proof.
    pub fn logged(&self) -> Option<LoggedFinal> {
        let proof = self.proof.as_ref()?;
        Some(LoggedFinal {
            day: self.day,
            version: self.version,
            at_ms: self.at_ms,
            upto: self.upto,
            ids_from: proof.ids_from,
            rules: self.rules.clone(),
            content: proof.content.clone(),
            types: self.types.clone(),
            forced: self.forced,
            actor: self.actor.clone(),
        })
    }
}
