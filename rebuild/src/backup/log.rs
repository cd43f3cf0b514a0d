//! The log's segments. All but the newest never change; that one is copied again as far as it has come.
//! A copy may end in a torn write, which was not acknowledged when the copy was taken and is cut when it
//! is opened.

use tallyring_archive::disk::{replace_whole, write_whole};
use tallyring_archive::{Error, names};

use super::{BackupError, Copy};

/// Ends a segment's name; the number of its first record, 16 hex digits, precedes.
const SEGMENT_SUFFIX: &str = ".tlog";

impl Copy<'_> {
    pub(super) fn log(&mut self) -> Result<(), BackupError> {
        let segments = list(self.source)?;
        let there = list(self.target)?;
        for segment in &segments {
            // What follows the target's newest is new, and that one may have grown.
            if there.contains(segment) && there.last() != Some(segment) {
                self.copied.kept += 1;
                continue;
            }
            let name = format!("{}/{segment}", names::OPLOG);
            let content = self.source.read(&name).map_err(Error::io("read", &name))?;
            let content = as_it_was_once(&content);
            if there.contains(segment) {
                replace_whole(self.target, &name, &content)?;
            } else {
                write_whole(self.target, &name, &content)?;
            }
            let first = self.copied.log_from.or_else(|| first_sequence(segment));
            self.copied.log_from = first;
            self.wrote(content.len() as u64);
        }
        Ok(())
    }

    /// Removes segments that the source has expired, once the manifest that may need them is replaced.
    pub(super) fn drop_old_log(&self) -> Result<(), BackupError> {
        let Some(oldest) = list(self.source)?.into_iter().next() else {
            return Ok(());
        };
        for segment in list(self.target)? {
            if segment < oldest {
                let name = format!("{}/{segment}", names::OPLOG);
                self.target
                    .remove(&name)
                    .map_err(Error::io("remove", &name))?;
            }
        }
        Ok(())
    }
}

/// A copy that holds no later write without the earlier ones, of bytes that are written to meanwhile from the front to
/// the back: so it is read from the back to the front.
fn as_it_was_once(content: &[u8]) -> Vec<u8> {
    const BLOCK_BYTES: usize = 4 << 10;
    let mut copy = vec![0; content.len()];
    let blocks = content
        .chunks(BLOCK_BYTES)
        .zip(copy.chunks_mut(BLOCK_BYTES));
    blocks.rev().for_each(|(from, to)| to.copy_from_slice(from));
    copy
}

/// Segments by their first record, oldest first.
fn list(disk: &dyn tallyring_archive::Disk) -> Result<Vec<String>, Error> {
    let mut files = disk
        .list(names::OPLOG)
        .map_err(Error::io("list", names::OPLOG))?;
    files.retain(|file| file.ends_with(SEGMENT_SUFFIX));
    Ok(files)
}

fn first_sequence(segment: &str) -> Option<u64> {
    u64::from_str_radix(segment.strip_suffix(SEGMENT_SUFFIX)?, 16).ok()
}
