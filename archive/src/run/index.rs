//! The block index: offset, checksum and first key of each block.
//!
//! An entry is `offset u64 | frame bytes u32 | plain bytes u32 | lines u32 | crc u32 | key length u16
//! | first key`, integers little-endian; `crc` is the checksum of the compressed frame.

use crate::error::{Error, Result};

/// One block of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BlockEntry {
    pub offset: u64,
    pub frame_bytes: u32,
    pub plain_bytes: u32,
    pub lines: u32,
    pub crc: u32,
    pub first_key: Box<[u8]>,
}

const FIXED_BYTES: usize = 8 + 4 + 4 + 4 + 4 + 2;

/// Longest key of a line, bytes. Long keys are hashed, so keys are far shorter.
pub(super) const KEY_BYTES_MAX: usize = u16::MAX as usize;

/// Largest plain block, bytes: one line of a breakdown with many millions of values.
pub(super) const PLAIN_BYTES_MAX: u32 = 1 << 30;

impl BlockEntry {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.offset.to_le_bytes());
        out.extend(self.frame_bytes.to_le_bytes());
        out.extend(self.plain_bytes.to_le_bytes());
        out.extend(self.lines.to_le_bytes());
        out.extend(self.crc.to_le_bytes());
        let length =
            u16::try_from(self.first_key.len()).expect("BUG: the writer checks key lengths");
        out.extend(length.to_le_bytes());
        out.extend_from_slice(&self.first_key);
    }
}

/// Reads all entries and checks that the blocks lie one behind the other up to `blocks_end`.
pub(super) fn decode(name: &str, mut bytes: &[u8], blocks_end: u64) -> Result<Vec<BlockEntry>> {
    let mut entries: Vec<BlockEntry> = Vec::new();
    let mut offset = 0_u64;
    while !bytes.is_empty() {
        let entry = take(&mut bytes)
            .ok_or_else(|| Error::damaged(name, blocks_end, "the block index is cut short"))?;
        let ascending = entries
            .last()
            .is_none_or(|last| last.first_key <= entry.first_key);
        if entry.offset != offset
            || !ascending
            || entry.plain_bytes > PLAIN_BYTES_MAX
            || entry.lines == 0
        {
            return Err(Error::damaged(
                name,
                blocks_end,
                "the block index contradicts itself",
            ));
        }
        offset += u64::from(entry.frame_bytes);
        entries.push(entry);
    }
    if offset != blocks_end {
        return Err(Error::damaged(
            name,
            blocks_end,
            "the block index does not cover the blocks",
        ));
    }
    Ok(entries)
}

fn take(bytes: &mut &[u8]) -> Option<BlockEntry> {
    let (fixed, rest) = bytes.split_at_checked(FIXED_BYTES)?;
    let u32_at =
        |at: usize| u32::from_le_bytes(fixed[at..at + 4].try_into().expect("BUG: four bytes"));
    let key_bytes = usize::from(u16::from_le_bytes([fixed[24], fixed[25]]));
    let (key, rest) = rest.split_at_checked(key_bytes)?;
    *bytes = rest;
    Some(BlockEntry {
        offset: u64::from_le_bytes(fixed[..8].try_into().expect("BUG: eight bytes")),
        frame_bytes: u32_at(8),
        plain_bytes: u32_at(12),
        lines: u32_at(16),
        crc: u32_at(20),
        first_key: key.into(),
    })
}
