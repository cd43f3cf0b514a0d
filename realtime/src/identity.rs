//! The identity of a data directory, which the file `STORE` holds.
//!
//! ```text
//! tallyring store 1
//! id <32 hex digits>            equal in every manifest and log segment
//! hash-key <52 base32 digits>   secret of the long-key hash; without it no long key is found
//! keyed                         present once the store ever had an API key: such a store never opens to all again
//! crc32 <8 hex digits>          checksum of the lines above
//! ```

use base32::Alphabet;
use tallyring_archive::{Blobs, names};
use tallyring_records::LongKeys;

use crate::error::{Error, Result};

/// The identity of a data directory.
#[derive(Clone)]
pub struct Identity {
    /// Identifies the store: random bytes, chosen once.
    pub store_id: [u8; 16],
    /// Key of the long-key hash.
    pub hash_key: [u8; 32],
    /// True once the store ever had an API key.
    pub is_keyed: bool,
}

/// Reads the hash of long keys that a data directory uses. Fails when the directory has no identity, or when the
/// identity is damaged.
pub fn long_keys_of(blobs: &Blobs) -> Result<LongKeys> {
    let identity = Identity::load(blobs)?.ok_or_else(|| {
        Error::Missing(format!(
            "{} is missing: this is not a data directory",
            names::IDENTITY
        ))
    })?;
    Ok(LongKeys::new(identity.hash_key))
}

/// True when both directories have the identity of one store. A damaged identity equals none.
pub fn is_same_store(one: &Blobs, other: &Blobs) -> bool {
    let id = |blobs| {
        Identity::load(blobs)
            .ok()
            .flatten()
            .map(|identity| identity.store_id)
    };
    id(one).is_some_and(|one| id(other) == Some(one))
}

/// True for two contents of `STORE` that are of one store, whether one of them notes API keys or both.
pub(crate) fn are_of_one_store(one: &[u8], other: &[u8]) -> bool {
    let of = |content| decode(content).map(|read| (read.store_id, read.hash_key));
    one == other || of(one).is_some_and(|one| of(other) == Some(one))
}

/// True for a content of `STORE` that notes API keys.
pub(crate) fn is_keyed(content: &[u8]) -> bool {
    decode(content).is_some_and(|read| read.is_keyed)
}

const FIRST_LINE: &str = "tallyring store 1";
const KEYED_LINE: &str = "keyed\n";
const ALPHABET: Alphabet = Alphabet::Rfc4648 { padding: false };

impl Identity {
    /// Reads the identity; none when the directory has none yet. Fails when the file is damaged.
    pub fn load(blobs: &Blobs) -> Result<Option<Self>> {
        let Some(content) = blobs.read_if_there(names::IDENTITY)? else {
            return Ok(None);
        };
        decode(&content).map(Some).ok_or_else(|| Error::Identity {
            name: names::IDENTITY,
            what: "the file is damaged or of another version; restore it from a backup (all long keys are found by its hash key)".into(),
        })
    }

    /// Chooses a new identity and writes it.
    pub fn create(blobs: &Blobs, random: fn(&mut [u8])) -> Result<Self> {
        let mut identity = Self {
            store_id: [0; 16],
            hash_key: [0; 32],
            is_keyed: false,
        };
        random(&mut identity.store_id);
        random(&mut identity.hash_key);
        blobs.put(names::IDENTITY, identity.encode().as_bytes())?;
        Ok(identity)
    }

    /// Notes durably that the store has API keys. A directory without an identity is not yet a store and stays
    /// unchanged. After an error the file keeps its old content.
    pub fn mark_keyed(blobs: &Blobs) -> Result<()> {
        match Self::load(blobs)? {
            Some(mut identity) if !identity.is_keyed => {
                identity.is_keyed = true;
                blobs.put_over(names::IDENTITY, identity.encode().as_bytes())?;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The id as 32 hex digits.
    pub fn store_id_text(&self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.store_id))
    }

    fn encode(&self) -> String {
        let lines = format!(
            "{FIRST_LINE}\nid {}\nhash-key {}\n{}",
            self.store_id_text(),
            base32::encode(ALPHABET, &self.hash_key),
            if self.is_keyed { KEYED_LINE } else { "" }
        );
        format!("{lines}crc32 {:08x}\n", crc32fast::hash(lines.as_bytes()))
    }
}

fn decode(content: &[u8]) -> Option<Identity> {
    let text = std::str::from_utf8(content).ok()?;
    let mut lines = text.lines();
    (lines.next()? == FIRST_LINE).then_some(())?;
    let id = u128::from_str_radix(lines.next()?.strip_prefix("id ")?, 16).ok()?;
    let hash_key = base32::decode(ALPHABET, lines.next()?.strip_prefix("hash-key ")?)?;
    let identity = Identity {
        store_id: id.to_be_bytes(),
        hash_key: hash_key.try_into().ok()?,
        is_keyed: text.contains(KEYED_LINE),
    };
    (identity.encode() == text).then_some(identity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_found() {
        for is_keyed in [false, true] {
            let identity = Identity {
                store_id: [7; 16],
                hash_key: [9; 32],
                is_keyed,
            };
            let good = identity.encode().into_bytes();
            let read = decode(&good).map(|read| (read.hash_key, read.is_keyed));
            assert_eq!(read, Some(([9; 32], is_keyed)));
            for bit in 0..good.len() * 8 {
                let mut bad = good.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(decode(&bad).is_none(), "bit {bit}");
            }
        }
    }

    #[test]
    fn an_identity_from_before_the_keyed_line_is_read_and_written_unchanged() {
        let lines = format!(
            "tallyring store 1\nid {}\nhash-key {}\n",
            "07".repeat(16),
            base32::encode(ALPHABET, &[9; 32])
        );
        let old = format!("{lines}crc32 {:08x}\n", crc32fast::hash(lines.as_bytes()));
        let read = decode(old.as_bytes()).expect("an identity");
        assert!(!read.is_keyed);
        assert_eq!(read.encode(), old);
    }
}
