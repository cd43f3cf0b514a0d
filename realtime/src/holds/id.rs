//! Names of holds.

use std::fmt;
use std::str::FromStr;

use tallyring_records::{LongKeys, UserKey};

use super::{SHARDS, shard_of};

/// The name of a hold: `r` and 24 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReservationId(pub(super) u128);

/// Domain of the keyed bits of an id.
const ID_DOMAIN: u8 = 8;
/// Bits of an id; the lowest 8 name the shard, and the next one tells a name that a client gave.
pub(super) const ID_BITS: u32 = 96;
pub(super) const ID_DIGITS: usize = 24;

impl ReservationId {
    /// The id of a name that a client gives to a hold of a user, by secret keys.
    pub(crate) fn given(keys: &LongKeys, user: UserKey, name: &[u8]) -> Self {
        Self::of(keys, user, name, true)
    }

    pub(super) fn of(keys: &LongKeys, user: UserKey, text: &[u8], is_given: bool) -> Self {
        let bits = keys.identity(ID_DOMAIN, text);
        let random = bits >> (u128::BITS - ID_BITS) & !(2 * SHARDS as u128 - 1);
        let given = SHARDS as u128 * u128::from(is_given);
        Self(random | given | shard_of(user) as u128)
    }

    /// True where a client gave the name.
    pub fn is_given(self) -> bool {
        self.0 & SHARDS as u128 != 0
    }

    /// The id as bytes, the highest first.
    pub(crate) fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// The id of such bytes; none for bytes of no id.
    pub(crate) fn of_bytes(bytes: [u8; 16]) -> Option<Self> {
        let bits = u128::from_be_bytes(bytes);
        (bits >> ID_BITS == 0).then_some(Self(bits))
    }

    pub(super) fn shard(self) -> usize {
        self.0 as usize % SHARDS
    }
}

impl fmt::Display for ReservationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{:0ID_DIGITS$x}", self.0)
    }
}

impl FromStr for ReservationId {
    type Err = ();

    /// Reads the text form; an error for any other text.
    fn from_str(text: &str) -> Result<Self, ()> {
        let digits = text.strip_prefix('r').ok_or(())?;
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_whole = digits.len() == ID_DIGITS && digits.bytes().all(is_digit);
        let bits = u128::from_str_radix(digits, 16).ok();
        bits.filter(|_| is_whole).map(Self).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_was_written_and_nothing_else_is_an_id() {
        let (keys, user) = (LongKeys::new([7; 32]), UserKey::from_bytes([9; 12]));
        let id = ReservationId::of(&keys, user, b"1", false);
        assert!(!id.is_given() && ReservationId::given(&keys, user, b"1").is_given());
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(id.shard(), shard_of(user));
        let text = id.to_string();
        let upper = format!("r{}", "A".repeat(ID_DIGITS));
        let signed = format!("r+{}", "1".repeat(ID_DIGITS - 1));
        for text in [
            "",
            "r",
            &text[1..],
            &text[..20],
            &upper,
            &signed,
            &format!("{text}0"),
        ] {
            assert_eq!(text.parse::<ReservationId>(), Err(()), "{text}");
        }
    }
}
