//! Writes a run in one pass: lines in, blocks out, then the tail; then sync, then the name.

use std::sync::atomic::{AtomicU64, Ordering};

use tallyring_records::TimeCode;
use tallyring_records::line::{self, Kind};

use crate::disk::{Disk, DiskFile, TEMPORARY_SUFFIX};
use crate::error::{Error, Result};
use crate::names;
use crate::partition::Partition;
use crate::run::compression::{self, BlockCompressor};
use crate::run::format;
use crate::run::index::{BlockEntry, KEY_BYTES_MAX, PLAIN_BYTES_MAX};
use crate::run::meta::{RunEntry, RunMeta, hash_text};

/// What a run will hold and where it goes.
#[derive(Debug, Clone)]
pub struct RunSpec {
    /// Directory, one of [`names::SORTED_FILE_DIRECTORIES`].
    pub directory: &'static str,
    /// What the file name begins with, such as `day-2012-03-16`.
    pub what: String,
    /// Span of time.
    pub partition: Partition,
    /// Shard of all its keys.
    pub shard: u16,
    /// Of how many.
    pub shards: u16,
    /// zstd level, 1–19.
    pub level: i32,
}

impl RunSpec {
    /// What a file is written as again, at another level; none when its name is not of that form.
    pub fn again(file: &RunEntry, level: i32) -> Option<Self> {
        let (directory, name) = file.name.split_once('/')?;
        let mut directories = names::SORTED_FILE_DIRECTORIES.into_iter();
        let meta = &file.meta;
        let place = names::place(meta.shard, meta.shards);
        let (what, _) = name.rsplit_once(&place)?;
        let what = what.strip_suffix(&meta.partition.to_string())?;
        Some(Self {
            directory: directories.find(|known| *known == directory)?,
            what: what.strip_suffix('.').unwrap_or(what).to_owned(),
            partition: meta.partition,
            shard: meta.shard,
            shards: meta.shards,
            level,
        })
    }

    /// The name of the file whose content has this hash.
    pub fn name(&self, hash: &str) -> String {
        let what = match self.what.as_str() {
            "" => self.partition.to_string(),
            what => format!("{what}.{}", self.partition),
        };
        let (shard, shards) = (self.shard, self.shards);
        names::sorted_file(self.directory, &what, shard, shards, in_name(hash))
    }
}

impl RunEntry {
    /// The name of other content in this one's place; none when its name is not of the usual form.
    pub fn name_of(&self, hash: &str) -> Option<String> {
        let (before, after) = self.name.rsplit_once(in_name(&self.hash))?;
        Some(format!("{before}{}{after}", in_name(hash)))
    }
}

/// What a file's name has of its hash.
fn in_name(hash: &str) -> &str {
    &hash[..NAME_HASH_CHARS.min(hash.len())]
}

/// Hex digits of that.
const NAME_HASH_CHARS: usize = 16;

/// Plain bytes after which a block is closed.
pub const BLOCK_BYTES: usize = 64 << 10;

/// Bytes gathered before one write to the disk.
const WRITE_BYTES: usize = 1 << 20;

/// A run being written. Dropping it unfinished removes its temporary file.
///
/// ```
/// use tallyring_archive::{Disk, OsDisk, RunSpec, RunWriter, names};
///
/// let directory = tempfile::tempdir()?;
/// let disk = OsDisk::new(directory.path())?;
/// disk.create_directory(names::RUNS)?;
/// let spec = RunSpec {
///     directory: names::RUNS,
///     what: "example".into(),
///     partition: "2012-04".parse()?,
///     shard: 0,
///     shards: 1,
///     level: 3,
/// };
/// let mut writer = RunWriter::create(&disk, spec)?;
/// writer.push(b"c.u|jehiah.c41l", b"US:4 JP:1")?;
/// writer.push(b"u|jehiah", b"c41l:5")?;
/// let entry = writer.finish()?.expect("lines were pushed");
/// assert_eq!(entry.meta.lines, 2);
/// assert_eq!(entry.meta.sums["u|"], 5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RunWriter<'d> {
    disk: &'d dyn Disk,
    spec: RunSpec,
    temporary: String,
    file: Box<dyn DiskFile>,
    finished: bool,
    hasher: blake3::Hasher,
    written: u64,
    pending: Vec<u8>,
    block: Vec<u8>,
    block_lines: u32,
    block_first_key: Vec<u8>,
    last_key: Vec<u8>,
    section: Vec<u8>,
    section_sum: u128,
    index: Vec<BlockEntry>,
    compressor: BlockCompressor,
    meta: RunMeta,
}

impl<'d> RunWriter<'d> {
    /// Starts a run under a temporary name.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub fn create(disk: &'d dyn Disk, spec: RunSpec) -> Result<Self> {
        static UNIQUE: AtomicU64 = AtomicU64::new(0);
        let unique = UNIQUE.fetch_add(1, Ordering::Relaxed);
        let temporary = format!(
            "{}/{}.{}.s{:02}.{}-{unique}{TEMPORARY_SUFFIX}",
            spec.directory,
            spec.what,
            spec.partition,
            spec.shard,
            std::process::id()
        );
        let file = disk
            .create(&temporary)
            .map_err(Error::io("create", &temporary))?;
        let compressor =
            BlockCompressor::new(spec.level).map_err(Error::io("compress", &temporary))?;
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
            disk,
            spec,
            temporary,
            file,
            finished: false,
            hasher: blake3::Hasher::new(),
            written: 0,
            pending: Vec::with_capacity(WRITE_BYTES),
            block: Vec::with_capacity(2 * BLOCK_BYTES),
            block_lines: 0,
            block_first_key: Vec::new(),
            last_key: Vec::new(),
            section: Vec::new(),
            section_sum: 0,
            index: Vec::new(),
            compressor,
            meta,
        })
    }

    /// The shard of its keys, and of how many.
    pub(crate) fn place(&self) -> (u16, u16) {
        (self.spec.shard, self.spec.shards)
    }

    /// What a run of this build says of its compression; the same gives the same bytes.
    pub fn compression(level: i32) -> String {
        compression::named(level)
    }

    /// Adds the line `key,payload`. Keys must ascend; a key may repeat only for a continued total.
    ///
    /// # Errors
    /// When a payload is no list of counts, a sum overflows or the disk refuses.
    ///
    /// # Panics
    /// When keys do not ascend: the caller sorts.
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
        self.account(key, payload)?;
        let bytes = key.len() + payload.len() + 2;
        if !self.block.is_empty() && self.block.len() + bytes > BLOCK_BYTES {
            self.close_block()?;
        }
        if self.block.is_empty() {
            self.block_first_key.clear();
            self.block_first_key.extend_from_slice(key);
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

    /// Writes the tail, syncs, and names the file after its content. `None` when no line was added:
    /// nothing is left behind then. The directory is not synced: one sync serves many files.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn finish(mut self) -> Result<Option<RunEntry>> {
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
        let blocks_end = self.written + self.pending.len() as u64;
        let tail = format::tail(blocks_end, &meta, &index);
        self.pending.extend_from_slice(&tail);
        self.write_pending()?;
        self.file
            .sync()
            .map_err(Error::io("sync", &self.temporary))?;
        let hash = hash_text(&self.hasher.finalize());
        let name = self.spec.name(&hash);
        // A taken name is the same content: the name is its hash.
        self.disk
            .link(&self.temporary, &name)
            .map_err(Error::io("name", &name))?;
        self.disk
            .remove(&self.temporary)
            .map_err(Error::io("remove", &self.temporary))?;
        self.finished = true;
        Ok(Some(RunEntry {
            name,
            bytes: self.written,
            hash,
            meta: self.meta.clone(),
        }))
    }

    fn account(&mut self, key: &[u8], payload: &[u8]) -> Result<()> {
        let unreadable = || Error::no_counts(&self.temporary, key, payload);
        let section = line::section(key);
        let kind = line::kind_of(key).ok_or_else(unreadable)?;
        assert!(
            kind == Kind::Total || self.last_key != key,
            "BUG: only a total continues"
        );
        if matches!(kind, Kind::Subtotal | Kind::Users) {
            line::split_subtotal(key).ok_or_else(unreadable)?;
        }
        if !line::is_counted(section) {
            return if section == self.section {
                Ok(())
            } else {
                self.open_section(key)
            };
        }
        let mut sum = 0_u128;
        let (mut first, mut last) = (None, None);
        for entry in line::entries(payload) {
            let (name, count) = entry.ok_or_else(unreadable)?;
            sum += u128::from(count);
            first = first.or(Some(name));
            last = Some(name);
        }
        // The buckets of a total ascend, so its span is that of the first and the last.
        let ends = if kind == Kind::Total {
            [first, last]
        } else {
            [None, None]
        };
        for code in ends.into_iter().flatten() {
            self.meta
                .see(TimeCode::parse(code).map_err(|_| unreadable())?);
        }
        if section != self.section {
            self.open_section(key)?;
        }
        self.section_sum += sum;
        Ok(())
    }

    fn open_section(&mut self, key: &[u8]) -> Result<()> {
        self.close_section()?;
        self.section = line::section(key).to_vec();
        Ok(())
    }

    fn close_section(&mut self) -> Result<()> {
        if !self.section.is_empty() && line::is_counted(&self.section) {
            let section = String::from_utf8_lossy(&self.section).into_owned();
            self.meta.sums.insert(section, self.section_sum);
        }
        self.section_sum = 0;
        Ok(())
    }

    fn close_block(&mut self) -> Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let plain_bytes = u32::try_from(self.block.len())
            .ok()
            .filter(|&bytes| bytes <= PLAIN_BYTES_MAX);
        let plain_bytes = plain_bytes.ok_or_else(|| Error::Overflow {
            key: line::shown(&self.block_first_key),
        })?;
        let kind = line::kind_of(&self.block_first_key).expect("BUG: a key was checked");
        let frame = self
            .compressor
            .compress(kind, &self.block)
            .map_err(Error::io("compress", &self.temporary))?;
        self.index.push(BlockEntry {
            offset: self.written + self.pending.len() as u64,
            frame_bytes: u32::try_from(frame.len())
                .expect("BUG: a frame of 1 GiB stays below 4 GiB"),
            plain_bytes,
            lines: self.block_lines,
            crc: crc32fast::hash(&frame),
            first_key: self.block_first_key.as_slice().into(),
        });
        self.pending.extend_from_slice(&frame);
        self.block.clear();
        self.block_lines = 0;
        if self.pending.len() >= WRITE_BYTES {
            self.write_pending()
        } else {
            Ok(())
        }
    }

    fn write_pending(&mut self) -> Result<()> {
        self.file
            .write_at(self.written, &self.pending)
            .map_err(Error::io("write", &self.temporary))?;
        self.hasher.update(&self.pending);
        self.written += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }
}

impl Drop for RunWriter<'_> {
    fn drop(&mut self) {
        if !self.finished {
            // If that fails too, the next start removes it.
            let _ = self.disk.remove(&self.temporary);
        }
    }
}
