//! Offsets and positions in the log, and the names of delta stores, each with one text form.
//!
//! Invariant: reading a text form gives back the value that wrote it.

use std::fmt;
use std::str::FromStr;

use crate::day::Day;
use crate::varint::{read_day, read_u64, write_u64};

const STORE_DAY: u64 = 0;
const STORE_LATE: u64 = 1;
const STORE_AGAIN: u64 = 2;
/// In the name of a further store of a day, between the day and the record at which it opened.
const AGAIN_INFIX: &str = ".from-";

/// The name of a delta store.
///
/// ```
/// use tallyring_records::StoreId;
///
/// assert_eq!(StoreId::Late(1).to_string(), "late-000001");
/// assert_eq!("late-000001".parse(), Ok(StoreId::Late(1)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoreId {
    /// The store of one UTC day of the ring.
    Day(Day),
    /// A further store of a day whose store is cut, by the sequence number of the first record that it takes.
    Again(Day, u64),
    /// The late store of one epoch: increments outside the open days of the ring.
    Late(u64),
}

/// A point between two records of one log partition. Ordered by epoch, then sequence; the sequence never falls.
///
/// ```
/// use tallyring_records::Offset;
///
/// let offset = Offset { epoch: 1, sequence: 4711 };
/// assert_eq!(offset.to_string(), "1:4711");
/// assert_eq!("1:4711".parse(), Ok(offset));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Offset {
    /// Rises whenever the log is opened, so that no offset is used twice.
    pub epoch: u32,
    /// Number of the next record: the offset covers every record with a smaller number.
    pub sequence: u64,
}

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Day(day) => write!(f, "day-{day}"),
            Self::Again(day, from) => write!(f, "day-{day}{AGAIN_INFIX}{from}"),
            Self::Late(epoch) => write!(f, "late-{epoch:06}"),
        }
    }
}

impl FromStr for StoreId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(day) = text.strip_prefix("day-") {
            let again = day.split_once(AGAIN_INFIX);
            if let Some((day, Ok(from))) = again.map(|(day, from)| (day, from.parse())) {
                return day.parse().map(|day| Self::Again(day, from));
            }
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

/// How far all strands of a store are counted: the offset of each, in their order. A store that is not divided has one.
///
/// ```
/// use tallyring_records::{Offset, Position};
///
/// let position: Position = "1:4711,3:12".parse()?;
/// assert_eq!(position.offsets()[1], Offset { epoch: 3, sequence: 12 });
/// assert_eq!(position.to_string(), "1:4711,3:12");
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position(Vec<Offset>);

impl Position {
    /// The offset of each strand.
    pub fn offsets(&self) -> &[Offset] {
        &self.0
    }
}

impl From<Offset> for Position {
    fn from(offset: Offset) -> Self {
        Self(vec![offset])
    }
}

impl FromIterator<Offset> for Position {
    fn from_iter<T: IntoIterator<Item = Offset>>(offsets: T) -> Self {
        Self(offsets.into_iter().collect())
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (strand, offset) in self.0.iter().enumerate() {
            let comma = if strand > 0 { "," } else { "" };
            write!(f, "{comma}{offset}")?;
        }
        Ok(())
    }
}

impl FromStr for Position {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split(',').map(str::parse).collect()
    }
}

crate::serde_as_text!(StoreId, Offset, Position);

impl StoreId {
    /// The day of the store; none for a late store.
    pub fn day(self) -> Option<Day> {
        match self {
            Self::Day(day) | Self::Again(day, _) => Some(day),
            Self::Late(_) => None,
        }
    }

    /// Appends stores as a record of the log has them.
    pub(crate) fn encode(stores: &[Self], out: &mut Vec<u8>) {
        write_u64(out, stores.len() as u64);
        for store in stores {
            let (kind, number) = match store {
                StoreId::Day(day) => (STORE_DAY, day.number().into()),
                StoreId::Late(epoch) => (STORE_LATE, *epoch),
                StoreId::Again(day, _) => (STORE_AGAIN, day.number().into()),
            };
            write_u64(out, kind);
            write_u64(out, number);
            if let StoreId::Again(_, from) = store {
                write_u64(out, *from);
            }
        }
    }

    /// Reads what [`StoreId::encode`] wrote.
    pub(crate) fn decode(input: &mut &[u8]) -> Option<Vec<Self>> {
        let count = read_u64(input)?;
        let mut stores = Vec::new();
        for _ in 0..count {
            stores.push(match read_u64(input)? {
                STORE_DAY => StoreId::Day(read_day(input)?),
                STORE_LATE => StoreId::Late(read_u64(input)?),
                STORE_AGAIN => StoreId::Again(read_day(input)?, read_u64(input)?),
                _ => return None,
            });
        }
        Some(stores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn prop_offsets_roundtrip(epoch in any::<u32>(), sequence in any::<u64>()) {
            let offset = Offset { epoch, sequence };
            prop_assert_eq!(offset.to_string().parse(), Ok(offset));
        }

        #[test]
        fn prop_positions_roundtrip(offsets in prop::collection::vec(any::<(u32, u64)>(), 1..5)) {
            let offsets = offsets.into_iter().map(|(epoch, sequence)| Offset { epoch, sequence });
            let position: Position = offsets.collect();
            prop_assert_eq!(position.to_string().parse(), Ok(position));
        }
    }

    #[test]
    fn store_names_roundtrip() {
        let day = Day::of(1_331_923_247);
        for store in [
            StoreId::Day(day),
            StoreId::Again(day, 4_711),
            StoreId::Late(7),
        ] {
            assert_eq!(store.to_string().parse(), Ok(store));
        }
        for text in [
            "day-2012-03-16.from-",
            "day-2012-03-16.from-x",
            "day-.from-1",
        ] {
            assert!(text.parse::<StoreId>().is_err(), "{text}");
        }
        assert_eq!(
            StoreId::Day(Day::of(1_331_923_247)).to_string(),
            "day-2012-03-16"
        );
    }
}
