//! A run: one immutable file of sorted lines. Flushed deltas, source runs and archive files are all
//! runs, so there is one format from the first flush to the archive.
//!
//! ```text
//! | zstd frame: lines of block 0 | … | zstd frame: lines of block N−1 |
//! | skippable frame: meta (JSON)   |      RunMeta
//! | skippable frame: block index   |      one entry a block, see index.rs
//! | skippable frame: footer        |      fixed size, see format.rs
//! ```
//!
//! Blocks are independent frames of text, so `zstdcat` prints the file and a point read decodes one block. A block is
//! about 64 KiB of plain CSV, or columns that stand for about 256 KiB of it (`columns.rs`), with a list of values
//! behind the blocks of a section. Runs of a flush and parts of a load have lines alone. A large section of totals has
//! a summary (`summary.rs`), and a large section of values has sums (`sums.rs`), except in runs of ids and parts of a
//! load.
//!
//! Invariants:
//!
//! * Keys ascend as bytes across the whole file. Equal keys stand only where a long total continues.
//! * Every byte of the file is under a checksum or compared with the only value it may have, so a reader finds any
//!   flipped bit.
//! * A named file never changes.

mod block;
mod cache;
mod columns;
mod compression;
mod cursor;
mod format;
mod found;
mod index;
mod meta;
mod reader;
mod summary;
mod sums;
mod writer;

pub use cache::BlockCache;
pub use cursor::Cursor;
pub(crate) use meta::hash_text;
pub use meta::{RunEntry, RunMeta, Sums};
pub use reader::Run;
pub(crate) use summary::Tally;
pub use summary::{Summary, TopList};
pub(crate) use sums::{ValueTally, is_summed};
pub use writer::{BLOCK_BYTES, RunSpec, RunWriter};
