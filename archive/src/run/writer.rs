//! Writes a run in one pass: blocks of lines, the tail, a sync, and at last the name.

use tallyring_records::line::{self, Kind};
use tallyring_records::{TimeCode, is_actions_before};

use crate::blobs::{Blobs, PutGroup, Unnamed};
use crate::error::{Error, Result};
use crate::names;
use crate::origin::Origin;
use crate::partition::Partition;
use crate::run::columns::{
    self, COLUMNS_BYTES_MAX, COLUMNS_BYTES_MIN, Columns, Encoder, ValueList,
};
use crate::run::compression::{self, BlockCompressor};
use crate::run::format;
use crate::run::index::{BlockEntry, KEY_BYTES_MAX, LIST_BYTES_MAX, PLAIN_BYTES_MAX};
use crate::run::meta::{RunEntry, RunMeta, hash_text};
use crate::run::summary::Tally;
use crate::run::sums::{Part, SHARE, ValueTally, is_summed};

/// Content of a run to be written, and its origin.
#[derive(Debug, Clone)]
pub struct RunSpec {
    /// How it came to be, which its name says.
    pub origin: Origin,
    /// Span of time.
    pub partition: Partition,
    /// Shard of all its keys.
    pub shard: u16,
    /// Number of shards.
    pub shards: u16,
    /// zstd level, 1–19.
    pub level: i32,
}

impl RunSpec {
    /// A file written again, at another level.
    pub fn again(file: &RunEntry, level: i32) -> Self {
        let meta = &file.meta;
        Self {
            origin: file.origin.clone(),
            partition: meta.partition,
            shard: meta.shard,
            shards: meta.shards,
            level,
        }
    }

    /// The file name for a content with this hash.
    pub fn name(&self, hash: &str) -> String {
        let shard = (self.shard, self.shards);
        names::run(&self.origin, self.partition, shard, hash)
    }
}

/// Plain bytes after which a block of lines is closed.
pub const BLOCK_BYTES: usize = 64 << 10;

/// Bytes gathered before one write to the disk.
const WRITE_BYTES: usize = 1 << 20;

/// A run being written. Dropping it unfinished removes its temporary file.
///
/// ```
/// use tallyring_archive::{Blobs, RunSpec, RunWriter};
///
/// let directory = tempfile::tempdir()?;
/// let blobs = Blobs::local(directory.path())?;
/// blobs.prepare()?;
/// let spec = RunSpec {
///     origin: "load 0123456789abcdef".parse()?,
///     partition: "2012-04".parse()?,
///     shard: 0,
///     shards: 1,
///     level: 3,
/// };
/// let mut writer = RunWriter::create(&blobs, spec)?;
/// writer.push(b"c.u|jehiah.c41l", b"US:4 JP:1")?;
/// writer.push(b"u|jehiah", b"c41l:5")?;
/// let entry = writer.finish()?.expect("lines were pushed");
/// assert_eq!(entry.meta.lines, 2);
/// assert_eq!(entry.meta.sums["u|"], 5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RunWriter {
    spec: RunSpec,
    file: Unnamed,
    hasher: blake3::Hasher,
    pending: Vec<u8>,
    block: Vec<u8>,
    block_lines: u32,
    block_first_key: Vec<u8>,
    /// Whether all lines of the block are counts of one section.
    block_is_uniform: bool,
    encoder: Encoder,
    list: ValueList,
    last_key: Vec<u8>,
    section: Vec<u8>,
    section_sum: u128,
    /// Plain bytes before the section.
    section_start: u64,
    /// Bytes of frames before the section.
    section_frames: u64,
    /// Sums and heaviest keys of the section, where it may get a summary.
    tally: Option<Tally>,
    /// Sums of the values of the section, where it may get them.
    values: Option<ValueTally>,
    index: Vec<BlockEntry>,
    /// Whether blocks may be columns. Runs of a flush and parts of a load are rewritten soon.
    has_columns: bool,
    /// Whether sections get summaries and sums. Ids have none to ask for, and parts of a load are only merged.
    has_summaries: bool,
    compressor: BlockCompressor,
    meta: RunMeta,
}

impl RunWriter {
    /// Starts a run under a temporary name.
    pub fn create(blobs: &Blobs, spec: RunSpec) -> Result<Self> {
        let file = blobs.begin(&spec.name(""))?;
        let compressor = BlockCompressor::new(spec.level);
        let compressor = compressor.map_err(Error::io("compress", file.temporary_name()))?;
        let meta = RunMeta {
            partition: spec.partition,
            shard: spec.shard,
            shards: spec.shards,
            lines: 0,
            plain_bytes: 0,
            first: 0,
            last: 0,
            sums: Default::default(),
            compression: Self::compression(spec.level),
        };
        Ok(Self {
            has_columns: !matches!(
                spec.origin,
                Origin::Flush(_) | Origin::Ids | Origin::Spill { .. }
            ),
            has_summaries: !matches!(spec.origin, Origin::Ids | Origin::Spill { .. }),
            spec,
            file,
            hasher: blake3::Hasher::new(),
            pending: Vec::with_capacity(WRITE_BYTES),
            block: Vec::with_capacity(2 * BLOCK_BYTES),
            block_lines: 0,
            block_first_key: Vec::new(),
            block_is_uniform: false,
            encoder: Encoder::default(),
            list: ValueList::default(),
            last_key: Vec::new(),
            section: Vec::new(),
            section_sum: 0,
            section_start: 0,
            section_frames: 0,
            tally: None,
            values: None,
            index: Vec::new(),
            compressor,
            meta,
        })
    }

    /// The shard of the keys, and the number of shards.
    pub(crate) fn place(&self) -> (u16, u16) {
        (self.spec.shard, self.spec.shards)
    }

    /// The description of this build's compression; equal descriptions of runs that are not flushed give equal bytes.
    pub fn compression(level: i32) -> String {
        compression::named(level)
    }

    /// Adds the line `key,payload`. Keys must ascend; a key may repeat only for a continued total. Fails when a payload
    /// is no list of counts, or a sum overflows. Panics when keys do not ascend: the caller sorts.
    pub fn push(&mut self, key: &[u8], payload: &[u8]) -> Result<()> {
        assert!(
            self.last_key.as_slice() <= key,
            "BUG: lines of a run ascend: {}",
            line::shown(key)
        );
        assert!(key.len() <= KEY_BYTES_MAX, "BUG: long keys are hashed");
        assert!(
            !key.contains(&b',') && !key.contains(&b'\n') && !payload.contains(&b'\n'),
            "BUG: reserved characters are hashed or escaped"
        );
        let is_new_section = line::section(key) != self.section;
        self.account(key, payload)?;
        let bytes = key.len() + payload.len() + 2;
        let block_bytes = match self.block_is_uniform {
            true => columns::block_bytes(&self.section),
            false => BLOCK_BYTES,
        };
        if !self.block.is_empty() && self.block.len() + bytes > block_bytes {
            self.close_block()?;
        }
        if self.block.is_empty() {
            self.block_first_key.clear();
            self.block_first_key.extend_from_slice(key);
            self.block_is_uniform = self.has_columns && columns::can_say(&self.section);
        } else if is_new_section {
            self.block_is_uniform = false;
        }
        self.block.extend_from_slice(key);
        self.block.push(b',');
        self.block.extend_from_slice(payload);
        self.block.push(b'\n');
        self.block_lines += 1;
        self.meta.lines += 1;
        self.meta.plain_bytes += bytes as u64;
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        Ok(())
    }

    /// Writes the tail, and names the file after its content; it is durable then. `None` when no line was added:
    /// nothing is left behind then.
    pub fn finish(self) -> Result<Option<RunEntry>> {
        self.finish_by(|file, name| file.put(name).map(drop))
    }

    /// As [`RunWriter::finish`], but the file is durable once `group` is committed.
    pub fn finish_in(self, group: &PutGroup<'_>) -> Result<Option<RunEntry>> {
        self.finish_by(|file, name| group.put(file, name).map(drop))
    }

    fn finish_by(
        mut self,
        put: impl FnOnce(Unnamed, &str) -> Result<()>,
    ) -> Result<Option<RunEntry>> {
        if self.meta.lines == 0 {
            return Ok(None);
        }
        self.close_block()?;
        self.close_section()?;
        let meta = serde_json::to_vec(&self.meta).expect("BUG: meta is plain data");
        let mut index = Vec::new();
        for entry in &self.index {
            entry.encode(&mut index);
        }
        let blocks_end = self.file.bytes() + self.pending.len() as u64;
        let tail = format::tail(blocks_end, &meta, &index);
        self.pending.extend_from_slice(&tail);
        self.write_pending()?;
        let hash = hash_text(&self.hasher.finalize());
        let name = self.spec.name(&hash);
        let bytes = self.file.bytes();
        // A taken name is the same content: the name is its hash.
        put(self.file, &name)?;
        Ok(Some(RunEntry {
            name,
            origin: self.spec.origin,
            bytes,
            hash,
            meta: self.meta,
            erased_until: 0,
            corrects: None,
        }))
    }

    fn account(&mut self, key: &[u8], payload: &[u8]) -> Result<()> {
        let unreadable = || Error::no_counts(self.file.temporary_name(), key, payload);
        let section = line::section(key);
        let kind = line::kind_of(key).ok_or_else(unreadable)?;
        assert!(
            kind == Kind::Total || self.last_key != key,
            "BUG: only a total continues"
        );
        let mut of_values = None;
        if matches!(kind, Kind::Subtotal | Kind::Users) {
            let (_, _, code) = line::split_subtotal(key).ok_or_else(unreadable)?;
            // The totals that count an action may be in other shards.
            if is_actions_before(key, i64::MAX) {
                self.meta.see(code);
            }
            of_values = Some(code);
        }
        if section != self.section {
            self.open_section(key, kind)?;
        }
        let unreadable = || Error::no_counts(self.file.temporary_name(), key, payload);
        match kind {
            Kind::Total => {
                let mut ends: Option<(TimeCode, TimeCode)> = None;
                let mut tally = self.tally.as_mut();
                if let Some(tally) = &mut tally {
                    tally.begin(line::stored_key(key));
                }
                for entry in line::hours(payload) {
                    let (code, count) = entry.ok_or_else(unreadable)?;
                    self.section_sum += u128::from(count);
                    ends = Some((ends.map_or(code, |(first, _)| first), code));
                    if let Some(tally) = &mut tally {
                        tally.count(code, count);
                    }
                }
                // The buckets of a total ascend, so the first and the last give its span.
                let (first, last) = ends.ok_or_else(unreadable)?;
                self.meta.see(first);
                self.meta.see(last);
            }
            Kind::Subtotal => {
                let mut values = self.values.as_mut();
                if let Some((values, code)) = values.as_mut().zip(of_values) {
                    values.begin(code);
                }
                for entry in line::entries(payload) {
                    let (value, count) = entry.ok_or_else(unreadable)?;
                    self.section_sum += u128::from(count);
                    if let Some(values) = &mut values {
                        values.count(value, count);
                    }
                }
            }
            Kind::Users | Kind::Lookup => {}
        }
        Ok(())
    }

    fn open_section(&mut self, key: &[u8], kind: Kind) -> Result<()> {
        if self.block_is_uniform && self.block.len() >= COLUMNS_BYTES_MIN {
            self.close_block()?;
        }
        self.close_section()?;
        self.section = line::section(key).to_vec();
        self.section_start = self.meta.plain_bytes;
        let has_summary = self.has_summaries && kind == Kind::Total;
        self.section_frames = self.frame_bytes();
        self.tally = has_summary.then(|| Tally::new(&self.meta));
        let has_sums = self.has_summaries && is_summed(&self.section);
        self.values = has_sums.then(ValueTally::new);
        Ok(())
    }

    fn close_section(&mut self) -> Result<()> {
        if !self.section.is_empty() && line::is_counted(&self.section) {
            let section = String::from_utf8_lossy(&self.section).into_owned();
            self.meta.sums.insert(section, self.section_sum);
        }
        self.section_sum = 0;
        let section = std::mem::take(&mut self.section);
        let is_long = self.meta.plain_bytes - self.section_start >= BLOCK_BYTES as u64;
        let tally = self.tally.take().filter(|_| is_long);
        let values = self.values.take().filter(|_| is_long);
        let summary = tally.and_then(|tally| tally.text(&section));
        let list = summary.or_else(|| self.list.take(&section));
        if let Some(text) = &list {
            self.write_frame(&section, text, 0, None)?;
        }
        match values {
            Some(values) => self.write_sums(&section, values, list.as_deref()),
            None => Ok(()),
        }
    }

    /// Writes the sums of values of a section, where they are small beside it, and then those by time in the finest
    /// form that is.
    fn write_sums(
        &mut self,
        section: &[u8],
        values: ValueTally,
        list: Option<&[u8]>,
    ) -> Result<()> {
        let most = (self.frame_bytes() - self.section_frames) / SHARE;
        let listed = list.and_then(|list| ValueList::values(list, section));
        let Some(mut texts) = values.texts(section, listed.unwrap_or_default()) else {
            return Ok(());
        };
        let begun = self.frame_bytes();
        let key = Part::Sums.key(section);
        if !self.write_within(&key, std::mem::take(&mut texts.sums), most)? {
            return Ok(());
        }
        let most = most.saturating_sub(self.frame_bytes() - begun);
        let key = Part::Times.key(section);
        while let Some(times) = texts.next_times() {
            if self.write_within(&key, times, most)? {
                break;
            }
        }
        Ok(())
    }

    /// Writes a frame without lines unless it has more than `most` bytes. Whether it is written.
    fn write_within(&mut self, key: &[u8], text: Columns, most: u64) -> Result<bool> {
        if text.text.len() > LIST_BYTES_MAX as usize {
            return Ok(false);
        }
        let frame = self.compressor.compress_columns(&text);
        let frame = frame.map_err(Error::io("compress", self.file.temporary_name()))?;
        let is_small = frame.len() as u64 <= most;
        if is_small {
            let plain_bytes = u32::try_from(text.text.len()).expect("BUG: it was compared above");
            self.push_frame(key, plain_bytes, 0, &frame)?;
        }
        Ok(is_small)
    }

    /// Bytes of all frames so far.
    fn frame_bytes(&self) -> u64 {
        self.file.bytes() + self.pending.len() as u64
    }

    fn close_block(&mut self) -> Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let block = std::mem::take(&mut self.block);
        let first_key = std::mem::take(&mut self.block_first_key);
        let lines = std::mem::take(&mut self.block_lines);
        let is_columns =
            self.block_is_uniform && (COLUMNS_BYTES_MIN..=COLUMNS_BYTES_MAX).contains(&block.len());
        let columns =
            is_columns.then(|| self.encoder.encode(&self.section, &block, &mut self.list));
        let columns = columns
            .flatten()
            .filter(|columns| columns.text.len() <= block.len());
        self.write_frame(&first_key, &block, lines, columns)?;
        (self.block, self.block_first_key) = (block, first_key);
        self.block.clear();
        Ok(())
    }

    /// Writes lines as they are or as these columns.
    fn write_frame(
        &mut self,
        first_key: &[u8],
        plain: &[u8],
        lines: u32,
        columns: Option<Columns>,
    ) -> Result<()> {
        let plain_bytes = u32::try_from(plain.len()).ok();
        let plain_bytes = plain_bytes.filter(|&bytes| bytes <= PLAIN_BYTES_MAX);
        let plain_bytes = plain_bytes.ok_or_else(|| Error::Overflow {
            key: line::shown(first_key),
        })?;
        let kind = line::kind_of(first_key).expect("BUG: a key was checked");
        let frame = match &columns {
            Some(columns) => self.compressor.compress_columns(columns),
            None => self.compressor.compress(kind, plain),
        };
        let frame = frame.map_err(Error::io("compress", self.file.temporary_name()))?;
        self.push_frame(first_key, plain_bytes, lines, &frame)
    }

    fn push_frame(
        &mut self,
        first_key: &[u8],
        plain_bytes: u32,
        lines: u32,
        frame: &[u8],
    ) -> Result<()> {
        self.index.push(BlockEntry {
            offset: self.frame_bytes(),
            frame_bytes: u32::try_from(frame.len())
                .expect("BUG: a frame of 1 GiB stays below 4 GiB"),
            plain_bytes,
            lines,
            crc: crc32fast::hash(frame),
            first_key: first_key.into(),
        });
        self.pending.extend_from_slice(frame);
        match self.pending.len() >= WRITE_BYTES {
            true => self.write_pending(),
            false => Ok(()),
        }
    }

    fn write_pending(&mut self) -> Result<()> {
        self.file.write(&self.pending)?;
        self.hasher.update(&self.pending);
        self.pending.clear();
        Ok(())
    }
}
