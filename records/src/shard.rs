//! Which shard a key lives in.

/// The shard of a total key such as `u|jehiah`: CRC-32 (IEEE) of the key, modulo `shards`.
///
/// Time and subtotal are not part of it, so that a request reads one shard whatever its range.
///
/// # Panics
/// When `shards` is 0, which no configuration allows.
pub fn shard_of(total_key: &[u8], shards: u16) -> u16 {
    assert!(shards > 0, "BUG: a store has at least one shard");
    let shard = crc32fast::hash(total_key) % u32::from(shards);
    u16::try_from(shard).expect("BUG: a remainder is below its divisor")
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
    }
}
