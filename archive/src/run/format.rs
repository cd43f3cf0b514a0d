//! Footer and skippable frames of a run. Integers are little-endian.

use crate::disk::Content;
use crate::error::{Error, Result};

/// First of the 16 magics that zstd decoders skip (RFC 8878 §3.1.2).
const SKIPPABLE_MAGIC: u32 = 0x184D_2A50;
const SKIPPABLE_HEADER: usize = 8;

const MAGIC: [u8; 8] = *b"TLRRUN\r\n";
/// The format that this build writes. A block may be columns, and index entries may be lists of values, summaries or
/// sums of values.
pub(super) const VERSION: u32 = 5;
/// Earlier formats that this build reads: one without sums of values, one without columns of actions, one without
/// summaries, and before it one without columns and lists.
const VERSIONS_BEFORE: [u32; 4] = [4, 3, 2, 1];

const META_OFFSET: usize = 0;
const META_BYTES: usize = META_OFFSET + size_of::<u64>();
const INDEX_BYTES: usize = META_BYTES + size_of::<u32>();
const META_CRC: usize = INDEX_BYTES + size_of::<u32>();
const INDEX_CRC: usize = META_CRC + size_of::<u32>();
const FORMAT: usize = INDEX_CRC + size_of::<u32>();
const MAGIC_AT: usize = FORMAT + size_of::<u32>();
const FOOTER_CRC: usize = MAGIC_AT + MAGIC.len();
const FOOTER_PAYLOAD: usize = FOOTER_CRC + size_of::<u32>();
const FOOTER_BYTES: usize = SKIPPABLE_HEADER + FOOTER_PAYLOAD;
const _: () = assert!(FOOTER_PAYLOAD == 40);

/// Wraps a payload in a skippable frame.
pub(super) fn skippable(payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("BUG: meta and index stay below 4 GiB");
    [
        &SKIPPABLE_MAGIC.to_le_bytes()[..],
        &length.to_le_bytes(),
        payload,
    ]
    .concat()
}

/// The tail of a run: meta, index and footer frames. `offset` is where it starts.
pub(super) fn tail(offset: u64, meta: &[u8], index: &[u8]) -> Vec<u8> {
    let mut footer = Vec::with_capacity(FOOTER_PAYLOAD);
    footer.extend(offset.to_le_bytes());
    footer.extend(
        u32::try_from(meta.len())
            .expect("BUG: meta is small")
            .to_le_bytes(),
    );
    footer.extend(
        u32::try_from(index.len())
            .expect("BUG: an index stays below 4 GiB")
            .to_le_bytes(),
    );
    footer.extend(crc32fast::hash(meta).to_le_bytes());
    footer.extend(crc32fast::hash(index).to_le_bytes());
    footer.extend(VERSION.to_le_bytes());
    footer.extend(MAGIC);
    footer.extend(crc32fast::hash(&footer).to_le_bytes());
    [skippable(meta), skippable(index), skippable(&footer)].concat()
}

/// The parts of a run's tail, checked.
pub(super) struct Tail {
    /// Offset behind the last block, bytes.
    pub blocks_end: u64,
    bytes: Vec<u8>,
    /// Length of the meta frame, bytes.
    meta_frame: usize,
}

impl Tail {
    pub(super) fn meta(&self) -> &[u8] {
        &self.bytes[SKIPPABLE_HEADER..self.meta_frame]
    }

    pub(super) fn index(&self) -> &[u8] {
        &self.bytes[self.meta_frame + SKIPPABLE_HEADER..]
    }
}

/// Finds and checks the tail of the file `name`.
pub(super) fn read_tail(name: &str, content: &Content) -> Result<Tail> {
    let length = content.len();
    let footer_at = length.checked_sub(FOOTER_BYTES as u64).ok_or_else(|| {
        let what = format!("{length} bytes are no run: it was cut short");
        Error::damaged(name, 0, what)
    })?;
    let wrong = |what: &str| Error::damaged(name, footer_at, what);
    let footer = content
        .part(footer_at, FOOTER_BYTES)
        .map_err(Error::unread(name, footer_at, "the footer"))?;
    let footer =
        unskip(&footer).ok_or_else(|| wrong("the footer frame is not where it should be"))?;
    if footer[MAGIC_AT..FOOTER_CRC] != MAGIC {
        return Err(wrong("the footer's magic is wrong"));
    }
    if crc32fast::hash(&footer[..FOOTER_CRC]) != u32_at(footer, FOOTER_CRC) {
        return Err(wrong("the footer's checksum does not match"));
    }
    let found = u32_at(footer, FORMAT);
    if found != VERSION && !VERSIONS_BEFORE.contains(&found) {
        return Err(Error::Version {
            name: name.to_owned(),
            found,
            supported: VERSION,
        });
    }
    let blocks_end = u64_at(footer, META_OFFSET);
    let (meta_bytes, index_bytes) = (u32_at(footer, META_BYTES), u32_at(footer, INDEX_BYTES));
    let bytes = u64::from(meta_bytes) + u64::from(index_bytes) + 2 * SKIPPABLE_HEADER as u64;
    if blocks_end.checked_add(bytes) != Some(footer_at) {
        return Err(wrong("the parts do not add up to the file's length"));
    }
    let bytes = content
        .part(blocks_end, usize::try_from(bytes).unwrap_or(usize::MAX))
        .map_err(Error::unread(name, blocks_end, "meta and block index"))?;
    let meta_frame = SKIPPABLE_HEADER + meta_bytes as usize;
    let check = |frame: &[u8], at: usize, crc: usize, what: &str| match unskip(frame)
        .is_some_and(|payload| crc32fast::hash(payload) == u32_at(footer, crc))
    {
        true => Ok(()),
        false => Err(Error::damaged(
            name,
            blocks_end + at as u64,
            format!("the {what} does not match its checksum"),
        )),
    };
    let (meta, index) = bytes.split_at(meta_frame);
    check(meta, 0, META_CRC, "meta frame")?;
    check(index, meta_frame, INDEX_CRC, "block index")?;
    Ok(Tail {
        blocks_end,
        bytes,
        meta_frame,
    })
}

/// The payload of a skippable frame that fills `frame` exactly.
fn unskip(frame: &[u8]) -> Option<&[u8]> {
    let (header, payload) = frame.split_at_checked(SKIPPABLE_HEADER)?;
    (u32_at(header, 0) == SKIPPABLE_MAGIC && u32_at(header, 4) as usize == payload.len())
        .then_some(payload)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("BUG: four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("BUG: eight bytes"))
}
