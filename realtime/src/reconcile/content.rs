//! The hash of a final version's content: equal counts and verdicts give equal hashes, whatever the files are.

use std::sync::Arc;

use tallyring_archive::{Blobs, Run, RunEntry};
use tallyring_records::line::{self, Kind};

use super::compare::Merge;
use crate::error::Result;

/// BLAKE3 of the lines of all totals and subtotals of the books, minutes included, in the order of their keys, and then
/// of the lines of the verdicts; hex. Names, shards and compression of the files do not matter. Sketches of users are
/// left out, because the log forgets users who are erased; texts of long keys are, because each shard repeats them.
/// Fails when a file is damaged.
pub(super) fn content_of(
    blobs: &Blobs,
    books: &[RunEntry],
    verdicts: Option<&RunEntry>,
) -> Result<String> {
    let mut hasher = blake3::Hasher::new();
    for runs in [
        Run::open_all(blobs, books)?,
        Run::open_all(blobs, verdicts)?,
    ] {
        add_lines(&mut hasher, runs)?;
        // No line has so many bytes.
        hasher.update(&u64::MAX.to_le_bytes());
    }
    Ok(hasher.finalize().to_hex().to_string())
}

fn add_lines(hasher: &mut blake3::Hasher, runs: Vec<Arc<Run>>) -> Result<()> {
    let mut merge = Merge::new(runs.into_iter().map(|run| (run, 1)))?;
    while let Some(key) = merge.smallest() {
        let counts = matches!(line::kind_of(&key), Some(Kind::Total | Kind::Subtotal));
        while let Some(index) = merge.pop(&key) {
            if counts && let Some((key, payload)) = merge.line(index)? {
                for part in [key, payload] {
                    hasher.update(&(part.len() as u64).to_le_bytes());
                    hasher.update(part);
                }
            }
            merge.refill(index)?;
        }
    }
    Ok(())
}
