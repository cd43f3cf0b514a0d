//! Places in the log and names of the stores it counts in, each with one form as text.
//!
//! Invariant: what is written as text is read back alike.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::day::Day;

/// A delta store's identity.
///
/// ```
/// use tallyring_records::StoreId;
///
/// assert_eq!(StoreId::Late(1).to_string(), "late-000001");
/// assert_eq!("late-000001".parse(), Ok(StoreId::Late(1)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoreId {
    /// One UTC day of the ring.
    Day(Day),
    /// Increments outside the ring's open days, by epoch.
    Late(u64),
}

/// A place in one log partition. Ordered by epoch, then sequence; the sequence never falls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Offset {
    /// Rises whenever the log is opened, so that a number is never used twice.
    pub epoch: u32,
    /// Number of the next record: everything below it is covered.
    pub sequence: u64,
}

/// A place in the whole log: one offset for each partition (one today).
///
/// ```
/// use tallyring_records::{Offset, Position};
///
/// let position = Position::single(Offset { epoch: 1, sequence: 4711 });
/// assert_eq!(position.to_string(), "1:4711");
/// assert_eq!("1:4711".parse(), Ok(position));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Position(pub Vec<Offset>);

impl Position {
    /// The position of a log with one partition.
    pub fn single(offset: Offset) -> Self {
        Self(vec![offset])
    }

    /// The offset in partition `partition`; the start when it is not named.
    pub fn offset(&self, partition: usize) -> Offset {
        self.0.get(partition).copied().unwrap_or_default()
    }
}

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Day(day) => write!(f, "day-{day}"),
            Self::Late(epoch) => write!(f, "late-{epoch:06}"),
        }
    }
}

impl FromStr for StoreId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(day) = text.strip_prefix("day-") {
            return day.parse().map(Self::Day);
        }
        text.strip_prefix("late-")
            .and_then(|epoch| epoch.parse().ok())
            .map(Self::Late)
            .ok_or_else(|| {
                format!(
                    "`{}` is not a store; such as day-2012-03-16 or late-000001",
                    text.escape_debug()
                )
            })
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.epoch, self.sequence)
    }
}

impl FromStr for Offset {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split_once(':')
            .and_then(|(epoch, sequence)| {
                Some(Self {
                    epoch: epoch.parse().ok()?,
                    sequence: sequence.parse().ok()?,
                })
            })
            .ok_or_else(|| format!("`{}` is not an offset; such as 1:4711", text.escape_debug()))
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, offset) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            write!(f, "{offset}")?;
        }
        Ok(())
    }
}

impl FromStr for Position {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split(',')
            .filter(|part| !part.is_empty())
            .map(str::parse)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

macro_rules! serde_as_text {
    ($($type:ty),*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}

serde_as_text!(StoreId, Offset, Position);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn prop_positions_roundtrip(parts in proptest::collection::vec((any::<u32>(), any::<u64>()), 0..3)) {
            let position = Position(parts.into_iter().map(|(epoch, sequence)| Offset { epoch, sequence }).collect());
            prop_assert_eq!(position.to_string().parse(), Ok(position));
        }
    }

    #[test]
    fn store_names_roundtrip() {
        for store in [StoreId::Day(Day::of(1_331_923_247)), StoreId::Late(7)] {
            assert_eq!(store.to_string().parse(), Ok(store));
        }
        assert_eq!(
            StoreId::Day(Day::of(1_331_923_247)).to_string(),
            "day-2012-03-16"
        );
    }
}
