//! Files that the server reads again when they change.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

/// How often a file is looked at.
pub(crate) const LOOK: Duration = Duration::from_secs(1);

/// Tells one state of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    inode: (u64, u64),
    bytes: u64,
    modified: (i64, i64),
}

impl Stamp {
    /// The present state; none where there is no file.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let of = std::fs::metadata(path).ok()?;
        Some(Self {
            inode: (of.dev(), of.ino()),
            bytes: of.len(),
            modified: (of.mtime(), of.mtime_nsec()),
        })
    }
}

/// Reads a whole file of at most `bytes_max` bytes. Fails when it cannot be read, is no regular file or has more; the
/// text says so, and asks for `wanted`.
pub(crate) fn read(path: &Path, bytes_max: u64, wanted: &str) -> Result<Vec<u8>, String> {
    let unread = |error: std::io::Error| format!("it cannot be read: {error}");
    // Without the flag a pipe without a writer would hold the opening for ever.
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path);
    let file = file.map_err(unread)?;
    if !file.metadata().map_err(unread)?.is_file() {
        return Err(format!("it is no regular file; give {wanted}"));
    }
    let mut bytes = Vec::new();
    // A byte more than fits shows that the file is too large, whatever its length was said to be.
    let read = file.take(bytes_max + 1).read_to_end(&mut bytes);
    read.map_err(unread)?;
    if bytes.len() as u64 > bytes_max {
        let most = match bytes_max >> 20 {
            0 => format!("{} KiB", bytes_max >> 10),
            mib => format!("{mib} MiB"),
        };
        return Err(format!("it has more than {most}; give {wanted}"));
    }
    bytes.shrink_to_fit();
    Ok(bytes)
}
