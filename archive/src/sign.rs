//! The sign of a run: whether its counts are added or taken away.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::manifest::StoreEntry;

/// Whether the counts of a run are added or taken away. The origin of a run says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sign {
    /// The counts are added.
    Plus,
    /// The counts are taken away from those of other runs.
    Minus,
}

/// Records of the log, by their sequence numbers: the counts of these records are what a minus run corrects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Corrects {
    /// The first of the records.
    pub from: u64,
    /// The first record after them.
    pub until: u64,
}

impl Sign {
    /// A sum with this sign.
    pub(crate) fn of(self, sum: i128) -> i128 {
        match self {
            Self::Plus => sum,
            Self::Minus => -sum,
        }
    }
}

impl Corrects {
    /// True where a delta store took some of these records, or may still take some.
    pub fn meets(&self, store: &StoreEntry) -> bool {
        let cut = store.cut.map(|cut| cut.sequence);
        store.opened.sequence < self.until && cut.is_none_or(|cut| self.from < cut)
    }
}

impl fmt::Display for Sign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plus => "plus",
            Self::Minus => "minus",
        })
    }
}
