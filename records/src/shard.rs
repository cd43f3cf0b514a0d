//! Which shard a key lives in.

/// The shard of a total key such as `u|jehiah`: CRC-32 (IEEE) of the key, modulo `shards`.
///
/// Time and subtotal are not part of it, so that a request reads one shard whatever its range.
///
/// # Panics
/// When `shards` is 0, which no configuration allows.
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

/// What total keys of one namespace begin with, `u|`: finds the shard of each without a copy of it behind that.
#[derive(Debug, Clone)]
pub struct ShardPrefix(crc32fast::Hasher);

impl ShardPrefix {
    /// Of a namespace's keys.
    pub fn of(namespace: &str) -> Self {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(namespace.as_bytes());
        hasher.update(b"|");
        Self(hasher)
    }

    /// The shard of the total key with this stored key, as [`shard_of`].
    ///
    /// # Panics
    /// When `shards` is 0.
    pub fn shard_of(&self, stored: &[u8], shards: u16) -> u16 {
        let mut hasher = self.0.clone();
        hasher.update(stored);
        KeyCrc(hasher.finalize()).shard(shards)
    }
}

/// What tells the shard of a total key however many shards there are.
#[derive(Debug, Clone, Copy)]
pub struct KeyCrc(u32);

impl KeyCrc {
    /// Of a total key.
    pub fn of(total_key: &[u8]) -> Self {
        Self(crc32fast::hash(total_key))
    }

    /// The key's shard, as [`shard_of`].
    ///
    /// # Panics
    /// When `shards` is 0.
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
