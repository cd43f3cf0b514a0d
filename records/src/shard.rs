//! The shard of a key.

/// The shard of a total key such as `u|jehiah`: CRC-32 (IEEE) of the key, modulo `shards`.
///
/// Time and subtotal are not part of the shard, so a request reads one shard for any range. Panics when `shards` is 0,
/// which no configuration allows.
///
/// ```
/// use tallyring_records::{ShardPrefix, shard_of};
///
/// let shard = shard_of(b"u|jehiah", 4);
/// assert!(shard < 4);
/// assert_eq!(ShardPrefix::of("u").shard_of(b"jehiah", 4), shard);
/// ```
pub fn shard_of(total_key: &[u8], shards: u16) -> u16 {
    KeyCrc::of(total_key).shard(shards)
}

/// The beginning `u|` of all total keys of a namespace: finds the shard of a key without copying it behind the `u|`.
#[derive(Debug, Clone)]
pub struct ShardPrefix(crc32fast::Hasher);

impl ShardPrefix {
    /// The prefix of the keys of `namespace`.
    pub fn of(namespace: &str) -> Self {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(namespace.as_bytes());
        hasher.update(b"|");
        Self(hasher)
    }

    /// The shard of the total key with this stored key; equal to [`shard_of`]. Panics when `shards` is 0.
    pub fn shard_of(&self, stored: &[u8], shards: u16) -> u16 {
        let mut hasher = self.0.clone();
        hasher.update(stored);
        KeyCrc(hasher.finalize()).shard(shards)
    }
}

/// The checksum of a total key, which gives its shard for any number of shards.
#[derive(Debug, Clone, Copy)]
pub struct KeyCrc(u32);

impl KeyCrc {
    /// The checksum of a total key.
    pub fn of(total_key: &[u8]) -> Self {
        Self(crc32fast::hash(total_key))
    }

    /// The shard of the key; equal to [`shard_of`]. Panics when `shards` is 0.
    pub fn shard(self, shards: u16) -> u16 {
        assert!(shards > 0, "BUG: a store has at least one shard");
        u16::try_from(self.0 % u32::from(shards)).expect("BUG: a remainder is below its divisor")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shard_is_the_crc_modulo_the_count() {
        // CRC-32 of "123456789" is the check value of the algorithm.
        assert_eq!(
            shard_of(b"123456789", 1000),
            u16::try_from(0xcbf4_3926_u32 % 1000).unwrap()
        );
        assert_eq!(shard_of(b"u|jehiah", 1), 0);
        let prefix = ShardPrefix::of("u");
        assert_eq!(prefix.shard_of(b"jehiah", 997), shard_of(b"u|jehiah", 997));
        assert_eq!(prefix.shard_of(b"", 997), shard_of(b"u|", 997));
    }
}
