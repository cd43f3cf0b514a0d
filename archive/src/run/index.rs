//! The block index: offset, checksum and first key of each block. An entry without lines has a section in the place of
//! a key, and is the list of values of a breakdown (`columns/list.rs`) or the summary of totals (`summary.rs`). With a
//! word behind the section, it is the sums of values (`sums.rs`).
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

/// Largest plain list of values, sums or summary, bytes. Values and keys are short, because long ones are hashed.
pub(super) const LIST_BYTES_MAX: u32 = 16 << 20;

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

/// The entries of a run.
#[derive(Debug, Default)]
pub(super) struct BlockIndex {
    pub blocks: Vec<BlockEntry>,
    /// Lists of values and their sums, by section of values; summaries, one a section of totals.
    pub lists: Vec<BlockEntry>,
}

/// Reads all entries and checks that blocks and lists lie one behind the other up to `blocks_end`.
pub(super) fn decode(name: &str, mut bytes: &[u8], blocks_end: u64) -> Result<BlockIndex> {
    let mut index = BlockIndex::default();
    let mut offset = 0_u64;
    while !bytes.is_empty() {
        let entry = take(&mut bytes)
            .ok_or_else(|| Error::damaged(name, blocks_end, "the block index is cut short"))?;
        let entries = match entry.lines {
            0 => &mut index.lists,
            _ => &mut index.blocks,
        };
        let ascending = entries
            .last()
            .is_none_or(|last| last.first_key <= entry.first_key);
        let most = if entry.lines == 0 {
            LIST_BYTES_MAX
        } else {
            PLAIN_BYTES_MAX
        };
        if entry.offset != offset || !ascending || entry.plain_bytes > most {
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
    Ok(index)
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
