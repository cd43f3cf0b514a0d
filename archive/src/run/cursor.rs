//! Reads all lines of a run in their order.

use std::sync::Arc;

use super::block::{Block, IndexedBlock};
use super::reader::{Line, Run};
use crate::error::Result;

/// Reads all lines of a run one after the other.
///
/// ```
/// use tallyring_archive::{Blobs, Run, RunSpec, RunWriter};
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
/// let mut cursor = Run::open_named(&blobs, &entry)?.cursor();
/// let mut lines = 0;
/// while cursor.advance()? {
///     assert!(cursor.line()?.is_some());
///     lines += 1;
/// }
/// assert_eq!(lines, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Cursor {
    run: Arc<Run>,
    next_block: usize,
    block: Option<Block>,
    at: usize,
    /// The list of values that the last block needed, and its number.
    list: Option<(usize, Arc<IndexedBlock>)>,
    bytes_read: u64,
}

impl Cursor {
    pub(super) fn new(run: &Arc<Run>) -> Self {
        Self {
            run: Arc::clone(run),
            next_block: 0,
            block: None,
            at: 0,
            list: None,
            bytes_read: 0,
        }
    }

    /// The run that is read.
    pub(crate) fn run(&self) -> &Run {
        &self.run
    }

    /// Compressed bytes of the blocks that were read so far.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// The line the cursor stands on; `None` before the first [`Cursor::advance`] and at the end. Fails when the line
    /// is damaged.
    pub fn line(&self) -> Result<Option<Line<'_>>> {
        match &self.block {
            Some(block) => self
                .run
                .split(block, self.at, self.next_block - 1)
                .map(Some),
            None => Ok(None),
        }
    }

    /// Moves to the first line whose key is at least `key`, and never back; false at the end. Blocks in between are not
    /// read. Fails when a block that is needed is damaged.
    pub fn seek(&mut self, key: &[u8]) -> Result<bool> {
        let blocks = self.run.blocks();
        // A key goes on from the end of a block, too.
        let first = blocks.partition_point(|block| &*block.first_key < key);
        let first = first.saturating_sub(1);
        if first >= self.next_block {
            (self.block, self.next_block) = (None, first);
        }
        loop {
            if let Some((found, _)) = self.line()?
                && found >= key
            {
                return Ok(true);
            }
            if !self.advance()? {
                return Ok(false);
            }
        }
    }

    /// Moves to the next line; false at the end. Fails when the next block is damaged.
    pub fn advance(&mut self) -> Result<bool> {
        if let Some(block) = &self.block {
            self.at += 1;
            if self.at < block.len() {
                return Ok(true);
            }
        }
        self.run.check_is_there()?;
        // After an error the cursor stands on no line, too.
        self.block = None;
        let blocks = self.run.blocks();
        if self.next_block == blocks.len() {
            return Ok(false);
        }
        let (run, kept) = (&self.run, &mut self.list);
        let block = run.decode(self.next_block, |number| {
            if let Some((_, list)) = kept.as_ref().filter(|(kept, _)| *kept == number) {
                return Ok(Arc::clone(list));
            }
            let list = run.decode_list(number)?;
            *kept = Some((number, Arc::clone(&list)));
            Ok(list)
        })?;
        self.block = Some(block);
        self.bytes_read += u64::from(blocks[self.next_block].frame_bytes);
        self.next_block += 1;
        self.at = 0;
        Ok(true)
    }
}
