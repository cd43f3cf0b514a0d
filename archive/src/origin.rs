//! How a run came to be.
//!
//! A manifest says it of every run, as text: `flush day-2012-03-16`, `ids`, `export late-000001 from 4711`, `export
//! day-2012-03-16`, `export day-2012-03-16 from 4711`, `fix 2012-03-16 v1 minus`, `final 2012-03-16 v1`, `verdicts
//! 2012-03-16 v1`, `spill <load> 2`, `sorted <load>`, `load <load>`, `merge`. The name of a run follows from its origin
//! ([`crate::names::run`]), never the other way round. So does its sign: whatever puts other content in the place of a
//! run, or gives the run another name, keeps the origin and the sign with it.

use std::fmt;
use std::str::FromStr;

use tallyring_records::{Day, StoreId, serde_as_text};

use crate::names;
use crate::sign::Sign;

/// How a run came to be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// A delta store flushed its memory.
    Flush(StoreId),
    /// Remembered ids were flushed.
    Ids,
    /// Export made a source run of the runs of a closed store.
    Export {
        /// The store. Two stores may hold the same counts, and a generation knows what it has merged by name.
        store: StoreId,
        /// The record at which the store opened: of late stores, and of a day whose store was exported before. That day
        /// got a further store for what still came, or another one because the ring turned back. None of late stores
        /// that an older build exported.
        from: Option<u64>,
    },
    /// A day that was counted is corrected: a run of what it counts more than before, or less.
    Fix {
        /// The UTC day, which has all counts of the run.
        day: Day,
        /// From 1: how many fixes of the day there are, this one included.
        version: u32,
        /// Whether it counts more, or less.
        sign: Sign,
    },
    /// A day is final: a copy of its books.
    Final {
        /// The UTC day, which has all counts of the run.
        day: Day,
        /// From 1.
        version: u32,
    },
    /// A day is final: the causes of its differences, by record of the log.
    Verdicts {
        /// The UTC day.
        day: Day,
        /// From 1.
        version: u32,
    },
    /// A bulk load ran out of memory: a part of its rows.
    Spill {
        /// The load, 16 hex digits.
        load: String,
        /// Counted from 0.
        part: u32,
    },
    /// A bulk load sorted its rows, and is not adopted yet.
    Sorted(String),
    /// A bulk load was adopted.
    Load(String),
    /// Source runs were merged for a generation.
    Merge,
}

impl Origin {
    /// The export of a store.
    pub fn export_of(store: StoreId) -> Self {
        match store {
            StoreId::Again(day, from) => Self::Export {
                store: StoreId::Day(day),
                from: Some(from),
            },
            store => Self::Export { store, from: None },
        }
    }

    /// Whether the counts of such a run are added or taken away.
    pub fn sign(&self) -> Sign {
        match self {
            Self::Fix { sign, .. } => *sign,
            _ => Sign::Plus,
        }
    }

    /// True for a run of a fix.
    pub fn is_fix(&self) -> bool {
        matches!(self, Self::Fix { .. })
    }

    /// True for a source run of a late store, or of a further store of a day.
    pub fn is_late_export(&self) -> bool {
        match self {
            Self::Export { store, from } => matches!(store, StoreId::Late(_)) || from.is_some(),
            _ => false,
        }
    }

    /// The sequence number of the first record that the store of a source run took, where it is known.
    pub fn opened(&self) -> Option<u64> {
        match self {
            Self::Export { from, .. } => *from,
            _ => None,
        }
    }

    /// True for a source run of this late store, or of any store of the same day.
    pub fn is_export_of(&self, id: StoreId) -> bool {
        match self {
            Self::Export { store, .. } => {
                *store == id || store.day().is_some() && store.day() == id.day()
            }
            _ => false,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flush(store) => write!(f, "flush {store}"),
            Self::Ids => f.write_str("ids"),
            Self::Export { store, from: None } => write!(f, "export {store}"),
            Self::Export {
                store,
                from: Some(from),
            } => write!(f, "export {store} from {from}"),
            Self::Fix { day, version, sign } => write!(f, "fix {day} v{version} {sign}"),
            Self::Final { day, version } => write!(f, "final {day} v{version}"),
            Self::Verdicts { day, version } => write!(f, "verdicts {day} v{version}"),
            Self::Spill { load, part } => write!(f, "spill {load} {part}"),
            Self::Sorted(load) => write!(f, "sorted {load}"),
            Self::Load(load) => write!(f, "load {load}"),
            Self::Merge => f.write_str("merge"),
        }
    }
}

impl FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parsed(text).ok_or_else(|| format!("`{}` is no origin of a run", text.escape_debug()))
    }
}

fn parsed(text: &str) -> Option<Origin> {
    let words: Vec<&str> = text.split(' ').collect();
    let load = |load: &str| names::is_load(load).then(|| load.to_owned());
    Some(match *words.as_slice() {
        ["flush", store] => Origin::Flush(store.parse().ok()?),
        ["ids"] => Origin::Ids,
        ["export", store] => export(store, None)?,
        ["export", store, "from", from] => export(store, Some(from))?,
        ["fix", day, version, sign] => fix(day, version, sign)?,
        ["final", day, number] => {
            let (day, version) = (day.parse().ok()?, version(number)?);
            Origin::Final { day, version }
        }
        ["verdicts", day, number] => {
            let (day, version) = (day.parse().ok()?, version(number)?);
            Origin::Verdicts { day, version }
        }
        ["spill", id, part] => {
            let (load, part) = (load(id)?, part.parse().ok()?);
            Origin::Spill { load, part }
        }
        ["sorted", id] => Origin::Sorted(load(id)?),
        ["load", id] => Origin::Load(load(id)?),
        ["merge"] => Origin::Merge,
        _ => return None,
    })
}

/// The origin of the export of a store, which opened at the record `from` where its day had been exported before.
pub(crate) fn export(store: &str, from: Option<&str>) -> Option<Origin> {
    let from = from.map(str::parse).transpose().ok()?;
    let store = store.parse().ok()?;
    Some(Origin::Export { store, from })
}

/// The origin of a run of a fix. `number` is as `v1`.
pub(crate) fn fix(day: &str, number: &str, sign: &str) -> Option<Origin> {
    Some(Origin::Fix {
        day: day.parse().ok()?,
        version: version(number)?,
        sign: match sign {
            "plus" => Sign::Plus,
            "minus" => Sign::Minus,
            _ => return None,
        },
    })
}

/// The version that a text such as `v1` says. One version has one text, and one name.
pub(crate) fn version(text: &str) -> Option<u32> {
    let number = text.strip_prefix('v')?.parse().ok();
    number.filter(|number: &u32| *number > 0 && text == format!("v{number}"))
}

serde_as_text!(Origin);

#[cfg(test)]
pub(crate) mod tests;
