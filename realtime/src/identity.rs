//! The identity of a data directory: `STORE`.
//!
//! ```text
//! tallyring store 1
//! id <32 hex digits>            the same in every manifest and log segment
//! hash-key <52 base32 digits>   secret of the long-key hash; without it no long key is found
//! crc32 <8 hex digits>          of the lines before
//! ```

use base32::Alphabet;
use tallyring_archive::{Disk, disk::write_whole, names};
use tallyring_records::LongKeys;

use crate::error::{Error, Result};

/// Who a data directory is.
#[derive(Clone)]
pub struct Identity {
    /// Random, given once.
    pub store_id: [u8; 16],
    /// Key of the long-key hash.
    pub hash_key: [u8; 32],
}

/// How long keys are stored in a data directory.
///
/// # Errors
/// When it is none, or its identity is damaged.
pub fn long_keys_of(disk: &dyn Disk) -> Result<LongKeys> {
    let identity = Identity::load(disk)?.ok_or_else(|| {
        Error::Missing(format!(
            "there is no {}: this is no data directory",
            names::IDENTITY
        ))
    })?;
    Ok(LongKeys::new(identity.hash_key))
}

const FIRST_LINE: &str = "tallyring store 1";
const ALPHABET: Alphabet = Alphabet::Rfc4648 { padding: false };

impl Identity {
    /// Reads the identity; none when the directory has none yet.
    ///
    /// # Errors
    /// When it cannot be read or is damaged.
    pub fn load(disk: &dyn Disk) -> Result<Option<Self>> {
        let content = match disk.read(names::IDENTITY) {
            Ok(content) => content,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(tallyring_archive::Error::io("read", names::IDENTITY)(error).into());
            }
        };
        decode(&content).map(Some).ok_or_else(|| Error::Identity {
            name: names::IDENTITY,
            what: "is damaged or of another version; restore it from a backup (its hash key finds all long keys)".into(),
        })
    }

    /// Makes a new identity and writes it.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn create(disk: &dyn Disk, random: fn(&mut [u8])) -> Result<Self> {
        let mut identity = Self {
            store_id: [0; 16],
            hash_key: [0; 32],
        };
        random(&mut identity.store_id);
        random(&mut identity.hash_key);
        write_whole(disk, names::IDENTITY, identity.encode().as_bytes())?;
        disk.sync_directory("")
            .map_err(tallyring_archive::Error::io("sync", names::IDENTITY))?;
        Ok(identity)
    }

    /// The id as 32 hex digits.
    pub fn store_id_text(&self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.store_id))
    }

    fn encode(&self) -> String {
        let lines = format!(
            "{FIRST_LINE}\nid {}\nhash-key {}\n",
            self.store_id_text(),
            base32::encode(ALPHABET, &self.hash_key)
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
    };
    (identity.encode() == text).then_some(identity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_found() {
        let identity = Identity {
            store_id: [7; 16],
            hash_key: [9; 32],
        };
        let good = identity.encode().into_bytes();
        assert_eq!(decode(&good).map(|read| read.hash_key), Some([9; 32]));
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bad).is_none(), "bit {bit}");
        }
    }
}
