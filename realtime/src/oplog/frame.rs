//! One frame as bytes. The module documentation of the oplog describes the layout.

/// Payload of one frame, at most, bytes.
pub const PAYLOAD_BYTES_MAX: usize = 16 << 20;

const MAGIC: [u8; 4] = *b"TLRF";
const ALIGNMENT: usize = size_of::<u64>();

const PAYLOAD_BYTES_OFFSET: usize = MAGIC.len();
const EPOCH_OFFSET: usize = PAYLOAD_BYTES_OFFSET + size_of::<u32>();
const COUNT_OFFSET: usize = EPOCH_OFFSET + size_of::<u32>();
const FIRST_SEQUENCE_OFFSET: usize = COUNT_OFFSET + size_of::<u32>();
const WRITTEN_MS_OFFSET: usize = FIRST_SEQUENCE_OFFSET + size_of::<u64>();
const SYNCED_BYTES_OFFSET: usize = WRITTEN_MS_OFFSET + size_of::<i64>();
const PREVIOUS_CRC_OFFSET: usize = SYNCED_BYTES_OFFSET + size_of::<u32>();
const PAYLOAD_CRC_OFFSET: usize = PREVIOUS_CRC_OFFSET + size_of::<u32>();
const HEADER_CRC_OFFSET: usize = PAYLOAD_CRC_OFFSET + size_of::<u32>();
/// Bit of `payload_bytes` in a frame that was written while the clock was doubted. A build that does not know the bit
/// takes the frame for one that is too large, and refuses the log.
const DOUBTED: u32 = 1 << 31;
/// Bit of `payload_bytes` in a frame whose payload was replaced.
const REPLACED: u32 = 1 << 30;
/// Size of a frame header, bytes.
pub(super) const FRAME_HEADER_BYTES: usize = HEADER_CRC_OFFSET + size_of::<u32>();

const _: () = assert!(FRAME_HEADER_BYTES == 48);
const _: () = assert!(
    FRAME_HEADER_BYTES.is_multiple_of(ALIGNMENT),
    "frames stay aligned"
);
const _: () = assert!(PAYLOAD_BYTES_MAX.is_multiple_of(ALIGNMENT));
const _: () = assert!(PAYLOAD_BYTES_MAX < REPLACED as usize);

/// One group commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Epoch in which the frame was written.
    pub epoch: u32,
    /// Sequence number of the first record.
    pub first_sequence: u64,
    /// Number of records, at least 1. A frame may have records before the start of a read, too.
    pub count: u32,
    /// Time of the append by the clock of that time, Unix milliseconds.
    pub written_ms: i64,
    /// Whether that clock was plausible.
    pub is_plausible: bool,
    /// Payload of the records.
    pub payload: &'a [u8],
}

/// The fields of a frame header that follow neither from the payload nor from its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub epoch: u32,
    pub count: u32,
    pub first_sequence: u64,
    pub written_ms: i64,
    pub is_plausible: bool,
    pub synced_bytes: u32,
    pub previous_crc: u32,
    /// CRC of the header of before, where the payload was replaced; `synced_bytes` is 0 then.
    pub replaced: Option<u32>,
}

/// A header with a valid checksum. The payload is not checked yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct CheckedHeader {
    pub fields: FrameHeader,
    pub payload_bytes: usize,
    payload_crc: u32,
    /// The `previous_crc` that the next frame must have.
    pub crc: u32,
}

/// Size of a frame in the file, bytes.
pub(super) const fn frame_bytes(payload_bytes: usize) -> usize {
    FRAME_HEADER_BYTES + payload_bytes.next_multiple_of(ALIGNMENT)
}

/// Positions at which a frame can begin after one at `offset`, up to `end` (all in bytes).
pub(super) fn offsets_after(offset: usize, end: usize) -> impl Iterator<Item = usize> {
    (offset + ALIGNMENT..end).step_by(ALIGNMENT)
}

/// Encodes the frame into `out`, which is cleared first, and returns its CRC for the chain. `seed` is the CRC of the
/// segment header.
pub(super) fn encode(out: &mut Vec<u8>, seed: u32, header: &FrameHeader, payload: &[u8]) -> u32 {
    assert!(
        payload.len() <= PAYLOAD_BYTES_MAX,
        "BUG: payload of {} bytes",
        payload.len()
    );
    out.clear();
    out.resize(FRAME_HEADER_BYTES, 0);
    out.extend_from_slice(payload);
    out.resize(frame_bytes(payload.len()), 0);
    let payload_crc = crc(seed, &out[FRAME_HEADER_BYTES..]);
    put(out, 0, MAGIC);
    let doubted = if header.is_plausible { 0 } else { DOUBTED };
    let replaced = if header.replaced.is_some() {
        REPLACED
    } else {
        0
    };
    let payload_bytes = payload.len() as u32 | doubted | replaced;
    put(out, PAYLOAD_BYTES_OFFSET, payload_bytes.to_le_bytes());
    put(out, EPOCH_OFFSET, header.epoch.to_le_bytes());
    put(out, COUNT_OFFSET, header.count.to_le_bytes());
    put(
        out,
        FIRST_SEQUENCE_OFFSET,
        header.first_sequence.to_le_bytes(),
    );
    put(out, WRITTEN_MS_OFFSET, header.written_ms.to_le_bytes());
    let synced_bytes = header.replaced.unwrap_or(header.synced_bytes);
    put(out, SYNCED_BYTES_OFFSET, synced_bytes.to_le_bytes());
    put(out, PREVIOUS_CRC_OFFSET, header.previous_crc.to_le_bytes());
    put(out, PAYLOAD_CRC_OFFSET, payload_crc.to_le_bytes());
    let header_crc = crc(seed, &out[..HEADER_CRC_OFFSET]);
    put(out, HEADER_CRC_OFFSET, header_crc.to_le_bytes());
    header.replaced.unwrap_or(header_crc)
}

/// Decodes the header at the start of `bytes`. The error says what is wrong with it.
pub(super) fn decode_header(bytes: &[u8], seed: u32) -> Result<CheckedHeader, String> {
    let Some(bytes) = bytes.get(..FRAME_HEADER_BYTES) else {
        return Err(format!(
            "the file ends {} bytes into a frame header",
            bytes.len()
        ));
    };
    if !starts_frame(bytes) {
        return Err("no frame begins here".to_owned());
    }
    let stored = u32::from_le_bytes(get(bytes, HEADER_CRC_OFFSET));
    let computed = crc(seed, &bytes[..HEADER_CRC_OFFSET]);
    if stored != computed {
        return Err(format!(
            "frame header checksum {computed:08x}, expected {stored:08x}"
        ));
    }
    let payload_bytes = u32::from_le_bytes(get(bytes, PAYLOAD_BYTES_OFFSET));
    let synced_bytes = u32::from_le_bytes(get(bytes, SYNCED_BYTES_OFFSET));
    let replaced = (payload_bytes & REPLACED != 0).then_some(synced_bytes);
    Ok(CheckedHeader {
        fields: FrameHeader {
            epoch: u32::from_le_bytes(get(bytes, EPOCH_OFFSET)),
            count: u32::from_le_bytes(get(bytes, COUNT_OFFSET)),
            first_sequence: u64::from_le_bytes(get(bytes, FIRST_SEQUENCE_OFFSET)),
            written_ms: i64::from_le_bytes(get(bytes, WRITTEN_MS_OFFSET)),
            is_plausible: payload_bytes & DOUBTED == 0,
            synced_bytes: if replaced.is_some() { 0 } else { synced_bytes },
            previous_crc: u32::from_le_bytes(get(bytes, PREVIOUS_CRC_OFFSET)),
            replaced,
        },
        payload_bytes: (payload_bytes & !(DOUBTED | REPLACED)) as usize,
        payload_crc: u32::from_le_bytes(get(bytes, PAYLOAD_CRC_OFFSET)),
        crc: replaced.unwrap_or(stored),
    })
}

/// Returns the checked payload of the frame at the start of `bytes`.
pub(super) fn decode_payload<'a>(
    bytes: &'a [u8],
    seed: u32,
    header: &CheckedHeader,
) -> Result<&'a [u8], String> {
    let Some(padded) = bytes.get(FRAME_HEADER_BYTES..frame_bytes(header.payload_bytes)) else {
        let wanted = frame_bytes(header.payload_bytes);
        return Err(format!(
            "the file ends {} bytes into a frame of {wanted}",
            bytes.len()
        ));
    };
    let computed = crc(seed, padded);
    if computed != header.payload_crc {
        let expected = header.payload_crc;
        return Err(format!(
            "payload checksum {computed:08x}, expected {expected:08x}"
        ));
    }
    Ok(&padded[..header.payload_bytes])
}

/// Whether a frame may begin here. The check is cheap, for the search through damaged bytes.
pub(super) fn starts_frame(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// Whether the payload was replaced of the frame at the start of `bytes`, which was read as one.
pub(super) fn is_replaced(bytes: &[u8]) -> bool {
    u32::from_le_bytes(get(bytes, PAYLOAD_BYTES_OFFSET)) & REPLACED != 0
}

/// Length of `bytes` without the zeros at the end.
pub(super) fn trimmed_len(bytes: &[u8]) -> usize {
    // Compared as slices: the tail of a segment is tens of megabytes, so single bytes would be too slow.
    const CHUNK: [u8; 4096] = [0; 4096];
    let zero_chunks = bytes
        .rchunks_exact(CHUNK.len())
        .take_while(|chunk| *chunk == CHUNK)
        .count();
    let rest = &bytes[..bytes.len() - zero_chunks * CHUNK.len()];
    rest.iter()
        .rposition(|&byte| byte != 0)
        .map_or(0, |last| last + 1)
}

/// CRC of `bytes` that starts from `seed`.
pub(super) fn crc(seed: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(seed);
    hasher.update(bytes);
    hasher.finalize()
}

/// Sets a field of a fixed layout.
pub(super) fn put<const N: usize>(out: &mut [u8], offset: usize, field: [u8; N]) {
    out[offset..offset + N].copy_from_slice(&field);
}

/// Reads a field of a fixed layout.
pub(super) fn get<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    bytes[offset..offset + N]
        .try_into()
        .expect("BUG: a range of N bytes")
}
