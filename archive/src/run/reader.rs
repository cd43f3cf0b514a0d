//! Reads a run: point and range reads through the block index, and sequential scans.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tallyring_records::line::{self, Kind};
use zstd::bulk::Decompressor;

use crate::blobs::Blobs;
use crate::disk::Content;
use crate::error::{Error, Result};
use crate::run::block::{Block, IndexedBlock};
use crate::run::cache::BlockCache;
use crate::run::columns::{self, ValueList};
use crate::run::cursor::Cursor;
use crate::run::format;
use crate::run::index::{self, BlockEntry, BlockIndex};
use crate::run::meta::{RunEntry, RunMeta, hash_text};
use crate::run::summary::{self, Summary};
use crate::run::sums::Part;
use crate::sign::Sign;

/// A line: its key and its payload.
pub(super) type Line<'b> = (&'b [u8], &'b [u8]);

/// Gets lines one by one, and may end the visit.
type Visitor<'v> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'v;

/// Runs up to this length, bytes, are hashed when they are opened, which takes some microseconds. Larger runs are not
/// alike by chance: sums, lines, lengths and times of tens of thousands of counts are equal only if everything is.
const HASHED_BYTES_MAX: u64 = 64 << 10;

/// An open run, cheap to share. The index is in memory, and blocks are read when a read needs them.
///
/// ```
/// use std::ops::ControlFlow;
///
/// use tallyring_archive::{BlockCache, Blobs, Run, RunSpec, RunWriter};
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
///
/// let run = Run::open_named(&blobs, &entry)?;
/// let mut found = Vec::new();
/// run.visit_from(&BlockCache::new(1 << 20), b"u|", &mut |key, payload| {
///     found.push((key.to_vec(), payload.to_vec()));
///     ControlFlow::Continue(())
/// })?;
/// assert_eq!(found, [(b"u|jehiah".to_vec(), b"c41l:5".to_vec())]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Run {
    name: String,
    content: Content,
    index: BlockIndex,
    meta: RunMeta,
    sign: Sign,
    cache_id: u64,
    /// The reason why reads fail, when the run stands for a file that is damaged or gone.
    lost: Option<String>,
}

impl Run {
    /// Opens a run and checks its tail; blocks are checked when they are read. Fails when the file is damaged or of
    /// another version. Its counts are added; only a manifest says of a run that they are taken away.
    pub fn open(blobs: &Blobs, name: &str) -> Result<Arc<Self>> {
        Self::open_signed(blobs, name, Sign::Plus)
    }

    fn open_signed(blobs: &Blobs, name: &str, sign: Sign) -> Result<Arc<Self>> {
        static UNIQUE: AtomicU64 = AtomicU64::new(0);
        let content = blobs.content(name)?;
        let tail = match (format::read_tail(name, &content), content.anew()) {
            (Err(error), Some(anew)) if error.is_damage() => format::read_tail(name, &anew)?,
            (tail, _) => tail?,
        };
        let index = index::decode(name, tail.index(), tail.blocks_end)?;
        let meta: RunMeta = serde_json::from_slice(tail.meta()).map_err(|error| {
            Error::damaged(
                name,
                tail.blocks_end,
                format!("the meta frame is not readable: {error}"),
            )
        })?;
        if meta.shard >= meta.shards {
            let what = format!("its meta names shard {} of {}", meta.shard, meta.shards);
            return Err(Error::damaged(name, tail.blocks_end, what));
        }
        let cache_id = UNIQUE.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(Self {
            name: name.to_owned(),
            content,
            index,
            meta,
            sign,
            cache_id,
            lost: None,
        }))
    }

    /// A run in the place of a file that a manifest names and that cannot be opened. It has the manifest's meta, and
    /// every read of its lines fails with `why`.
    pub fn lost(entry: &RunEntry, why: &Error) -> Arc<Self> {
        Arc::new(Self {
            name: entry.name.clone(),
            content: Content::new([]),
            index: BlockIndex::default(),
            meta: entry.meta.clone(),
            sign: entry.sign(),
            cache_id: 0,
            lost: Some(why.to_string()),
        })
    }

    /// True for a run in the place of a file that cannot be opened.
    pub fn is_lost(&self) -> bool {
        self.lost.is_some()
    }

    pub(super) fn check_is_there(&self) -> Result<()> {
        match &self.lost {
            None => Ok(()),
            Some(why) => Err(Error::Lost {
                name: self.name.clone(),
                why: why.clone(),
            }),
        }
    }

    /// Opens the run that a manifest names. A valid run of another length or another meta is damage, too. Small runs
    /// may have equal lengths and metas, when each holds one click on a key of its own, so their bytes are hashed. A
    /// damaged block is found only when it is read. Fails when the file is not the one of the entry.
    pub fn open_named(blobs: &Blobs, entry: &RunEntry) -> Result<Arc<Self>> {
        let run = Self::open_signed(blobs, &entry.name, entry.sign())?;
        let is_alike = run.content.len() == entry.bytes && run.meta == entry.meta;
        let is_small = run.content.len() <= HASHED_BYTES_MAX;
        let is_another =
            is_alike && is_small && !run.has_hash(&entry.hash)? && run.first_damage().is_none();
        if !is_alike || is_another {
            let what = "it is a run, but not the one that the manifest names".to_owned();
            return Err(Error::damaged(&entry.name, 0, what));
        }
        Ok(run)
    }

    /// Opens runs that a manifest names, in their order. Fails at the first one that cannot be opened.
    pub fn open_all<'e>(
        blobs: &Blobs,
        entries: impl IntoIterator<Item = &'e RunEntry>,
    ) -> Result<Vec<Arc<Self>>> {
        entries
            .into_iter()
            .map(|entry| Self::open_named(blobs, entry))
            .collect()
    }

    /// Whether the bytes of a small run have this hash; kept parts that have not may be damaged, and are fetched again.
    fn has_hash(&self, hash: &str) -> Result<bool> {
        let kept = Some(self.content.clone());
        for content in kept.into_iter().chain(self.content.anew()) {
            let bytes = content.all().map_err(Error::io("read", &self.name))?;
            if hash_text(&blake3::hash(&bytes)) == hash {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The hash of all bytes, in the form of a manifest.
    pub(crate) fn content_hash(self: &Arc<Self>) -> Result<String> {
        let mut hasher = blake3::Hasher::new();
        let read = self.content.parts(&mut |part| {
            hasher.update(part);
        });
        match read {
            Ok(()) => Ok(hash_text(&hasher.finalize())),
            Err(error) => Err(self
                .first_damage()
                .unwrap_or_else(|| Error::io("read", &self.name)(error))),
        }
    }

    /// The first damaged block, list or summary; `None` when all are whole.
    pub(crate) fn first_damage(self: &Arc<Self>) -> Option<Error> {
        let mut cursor = self.cursor();
        loop {
            match cursor.advance() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return Some(error),
            }
        }
        let lists = 0..self.index.lists.len();
        lists
            .into_iter()
            .find_map(|number| self.decode_list(number).err())
    }

    /// File name relative to the data directory.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The meta inside the run.
    pub fn meta(&self) -> &RunMeta {
        &self.meta
    }

    /// Whether its counts are added or taken away.
    pub fn sign(&self) -> Sign {
        self.sign
    }

    /// The number of the run in a cache, which no other open run of the process has.
    pub(super) fn cache_id(&self) -> u64 {
        self.cache_id
    }

    pub(super) fn blocks(&self) -> &[BlockEntry] {
        &self.index.blocks
    }

    /// Number of blocks.
    pub fn block_count(&self) -> usize {
        self.index.blocks.len()
    }

    /// Plain bytes of the largest block: 256 KiB at most unless a single line is longer.
    pub fn largest_block(&self) -> u64 {
        let blocks = self.index.blocks.iter().map(|entry| entry.plain_bytes);
        blocks.max().unwrap_or(0).into()
    }

    /// Visits lines in order, from the first whose key is at least `from`, until the visitor breaks
    /// or the run ends. Fails when a block that is needed is damaged.
    pub fn visit_from(
        &self,
        cache: &BlockCache,
        from: &[u8],
        visit: &mut Visitor<'_>,
    ) -> Result<()> {
        self.visit_prefix(cache, (b"", from), visit)
    }

    /// Visits lines in order, from the first whose key is at least `from`, and at least all whose keys begin with
    /// `prefix`. Does not read later blocks that begin with a key without that prefix. Fails when a block that is
    /// needed is damaged.
    pub fn visit_prefix(
        &self,
        cache: &BlockCache,
        (prefix, from): (&[u8], &[u8]),
        visit: &mut Visitor<'_>,
    ) -> Result<()> {
        let block = &mut |number| self.block(cache, number);
        self.visit(block, (prefix, from), visit)
            .inspect_err(|error| cache.note_damage(error))
    }

    /// As [`Run::visit_prefix`], for blocks that the cache holds. Never waits for the disk. Fails with
    /// [`Error::NotCached`] at the first block that the cache does not hold.
    pub fn visit_cached(
        &self,
        cache: &BlockCache,
        (prefix, from): (&[u8], &[u8]),
        visit: &mut Visitor<'_>,
    ) -> Result<()> {
        let cached = |number| {
            let block = cache.get((self.cache_id, number as u32));
            block.ok_or(Error::NotCached)
        };
        self.visit(&mut { cached }, (prefix, from), visit)
    }

    /// The summary of a section of totals (`u|`). `None` where the run keeps none: its lines have to be read. A section
    /// that `meta().sums` does not name has no lines.
    pub fn summary(&self, cache: &BlockCache, section: &[u8]) -> Result<Option<Summary>> {
        if line::kind_of(section) != Some(Kind::Total) {
            return Ok(None);
        }
        let lines = self.named_list(cache, section);
        let lines = lines.inspect_err(|error| cache.note_damage(error))?;
        Ok(lines.map(Summary::of))
    }

    /// The list, the summary or the sums that the index has under this name.
    pub(super) fn named_list(
        &self,
        cache: &BlockCache,
        name: &[u8],
    ) -> Result<Option<Arc<IndexedBlock>>> {
        self.check_is_there()?;
        let mut lists = self.index.lists.iter();
        let number = lists.position(|list| *list.first_key == *name);
        number.map(|number| self.list(cache, number)).transpose()
    }

    /// Plain bytes of the blocks that may hold lines of the section. Reads nothing.
    pub fn section_bytes(&self, section: &[u8]) -> u64 {
        let is_there =
            std::str::from_utf8(section).is_ok_and(|section| self.meta.sums.contains_key(section));
        let index = &self.index.blocks;
        let first = index.partition_point(|entry| &*entry.first_key < section);
        let blocks = index[first.saturating_sub(1)..].iter();
        let blocks = blocks.take_while(|entry| {
            &*entry.first_key < section || entry.first_key.starts_with(section)
        });
        match is_there {
            true => blocks.map(|entry| u64::from(entry.plain_bytes)).sum(),
            false => 0,
        }
    }

    fn visit(
        &self,
        block: &mut dyn FnMut(usize) -> Result<Arc<IndexedBlock>>,
        (prefix, from): (&[u8], &[u8]),
        visit: &mut Visitor<'_>,
    ) -> Result<()> {
        self.check_is_there()?;
        // The block before the first one that starts at or after `from` may hold the key. Where a total
        // continues, several blocks start with the key itself.
        let index = &self.index.blocks;
        let first = index
            .partition_point(|entry| &*entry.first_key < from)
            .saturating_sub(1);
        for (number, entry) in index.iter().enumerate().skip(first) {
            let key = &*entry.first_key;
            if number > first && key > prefix && !key.starts_with(prefix) {
                return Ok(());
            }
            let block = block(number)?;
            let start = if number == first {
                block.position(from)
            } else {
                0
            };
            let lines = block.lines();
            for at in start..lines.len() {
                let (key, payload) = self.split(lines, at, number)?;
                if visit(key, payload).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// A sequential reader of all lines that leaves the cache alone.
    pub fn cursor(self: &Arc<Self>) -> Cursor {
        Cursor::new(self)
    }

    fn block(&self, cache: &BlockCache, number: usize) -> Result<Arc<IndexedBlock>> {
        let key = (self.cache_id, number as u32);
        if let Some(block) = cache.get(key) {
            return Ok(block);
        }
        let block = self.decode(number, |list| self.list(cache, list))?;
        let block = Arc::new(IndexedBlock::new(block));
        cache.insert(key, &block);
        Ok(block)
    }

    /// A list of values, a summary or sums. The cache numbers lists behind the blocks.
    fn list(&self, cache: &BlockCache, number: usize) -> Result<Arc<IndexedBlock>> {
        let key = (self.cache_id, (self.index.blocks.len() + number) as u32);
        if let Some(list) = cache.get(key) {
            return Ok(list);
        }
        let list = self.decode_list(number)?;
        cache.insert(key, &list);
        Ok(list)
    }

    /// A block. `list` gives a list of values by its number.
    pub(super) fn decode(
        &self,
        number: usize,
        list: impl FnOnce(usize) -> Result<Arc<IndexedBlock>>,
    ) -> Result<Block> {
        let entry = &self.index.blocks[number];
        let what = format!("block {number}");
        let damaged = |why: &str| self.damaged(entry, &what, why);
        let plain = self.plain(entry, &what)?;
        let list = |section: &[u8]| {
            let mut lists = self.index.lists.iter();
            let number = lists.position(|list| *list.first_key == *section);
            list(number.ok_or_else(|| damaged("the list of its values is missing"))?)
        };
        let lines = columns::lines(plain, entry.plain_bytes as usize, list)?;
        let lines = lines.ok_or_else(|| damaged("its columns contradict each other"))?;
        if lines.len() != entry.plain_bytes as usize || lines.last() != Some(&b'\n') {
            return Err(damaged("has another length than was written"));
        }
        let block = Block::new(lines);
        if block.len() != entry.lines as usize {
            let (found, written) = (block.len(), entry.lines);
            return Err(damaged(&format!(
                "has {found} lines, {written} were written"
            )));
        }
        Ok(block)
    }

    pub(super) fn decode_list(&self, number: usize) -> Result<Arc<IndexedBlock>> {
        let entry = &self.index.lists[number];
        let section = line::section(&entry.first_key);
        if let Some(part) = Part::of(&entry.first_key[section.len()..]) {
            let what = format!("the {} of `{}`", part.name(), line::shown(section));
            let lines = part.checked(self.plain(entry, &what)?, section);
            let lines = lines.ok_or_else(|| self.damaged(entry, &what, "are in another form"))?;
            return Ok(Arc::new(lines));
        }
        let section = &entry.first_key;
        if line::kind_of(section) == Some(Kind::Total) {
            let what = format!("the summary of `{}`", line::shown(section));
            let lines = summary::checked(self.plain(entry, &what)?, section);
            let lines = lines.ok_or_else(|| self.damaged(entry, &what, "is no summary"))?;
            return Ok(Arc::new(lines));
        }
        let what = format!("list {number}");
        let plain = self.plain(entry, &what)?;
        let values = ValueList::values(&plain, section);
        let values = values.ok_or_else(|| self.damaged(entry, &what, "is no list of values"))?;
        Ok(Arc::new(IndexedBlock::new(Block::new(values.to_vec()))))
    }

    /// The text of a frame, which passed its checksum. Messages call it `what`.
    fn plain(&self, entry: &BlockEntry, what: &str) -> Result<Vec<u8>> {
        let damaged = |why: String| self.damaged(entry, what, &why);
        let (at, bytes) = (entry.offset, entry.frame_bytes as usize);
        let part = |content: &Content| {
            let part = content.part(at, bytes);
            part.map_err(Error::unread(&self.name, at, format_args!("{what}:")))
        };
        let mut frame = part(&self.content)?;
        let mut crc = crc32fast::hash(&frame);
        if crc != entry.crc
            && let Some(anew) = self.content.anew()
        {
            frame = part(&anew)?;
            crc = crc32fast::hash(&frame);
        }
        if crc != entry.crc {
            return Err(damaged(format!(
                "checksum is {crc:08x}, {:08x} was written",
                entry.crc
            )));
        }
        decompress(&frame, entry.plain_bytes as usize)
            .map_err(|error| damaged(format!("cannot be decompressed: {error}")))
    }

    fn damaged(&self, entry: &BlockEntry, what: &str, why: &str) -> Error {
        Error::damaged(&self.name, entry.offset, format!("{what}: {why}"))
    }

    pub(super) fn split<'b>(&self, block: &'b Block, at: usize, number: usize) -> Result<Line<'b>> {
        let text = block.line(at);
        line::split(text).ok_or_else(|| {
            let offset = self.index.blocks[number].offset;
            Error::damaged(
                &self.name,
                offset,
                format!("block {number}: `{}` is no line", line::shown(text)),
            )
        })
    }
}

/// The plain bytes of a frame, at most `limit`. Each thread keeps its decoder, because making one takes longer than
/// decoding a block.
fn decompress(frame: &[u8], limit: usize) -> std::io::Result<Vec<u8>> {
    thread_local! {
        static DECODER: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
    }
    DECODER.with_borrow_mut(|decoder| {
        let decoder = match decoder {
            Some(decoder) => decoder,
            None => decoder.insert(Decompressor::new()?),
        };
        decoder.decompress(frame, limit)
    })
}
