//! The operating system's file system as a [`Disk`].

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::disk::{Content, Disk, DiskFile};

/// Bytes that are read at once, and what their place in memory is a multiple of: a page.
const PART_BYTES: usize = 1 << 20;
const ALIGNED_TO: usize = 4 << 10;

/// A data directory on a local file system.
///
/// ```
/// use tallyring_archive::disk::write_whole;
/// use tallyring_archive::{Disk, OsDisk};
///
/// let directory = tempfile::tempdir()?;
/// let disk = OsDisk::new(directory.path())?;
/// assert!(write_whole(&disk, "a-file", b"text")?);
/// assert_eq!(disk.read("a-file")?.as_ref(), b"text");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct OsDisk {
    root: PathBuf,
}

impl OsDisk {
    /// A disk rooted at `root`, which is created if absent, for its owner only.
    ///
    /// # Errors
    /// When the directory cannot be created.
    pub fn new(root: impl Into<PathBuf>) -> io::Result<Self> {
        let root = root.into();
        create_private(&root)?;
        Ok(Self { root })
    }

    /// The directory that names are relative to.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}

/// Makes a directory and those above it for their owner only; one that is there stays as it is.
///
/// # Errors
/// When it cannot be made.
pub fn create_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn read_parts(file: &File, part: &mut dyn FnMut(&[u8])) -> io::Result<()> {
    let mut buffer = vec![0; PART_BYTES + ALIGNED_TO];
    let start = buffer.as_ptr().align_offset(ALIGNED_TO).min(ALIGNED_TO);
    let buffer = &mut buffer[start..start + PART_BYTES];
    let mut at = 0;
    loop {
        let read = file.read_at(buffer, at)?;
        part(&buffer[..read]);
        at += read as u64;
        // Only at the end are there fewer.
        if read < buffer.len() {
            return Ok(());
        }
    }
}

impl Disk for OsDisk {
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            // The identity holds a secret, and counts are their owner's.
            .mode(0o600)
            .open(self.path(name))?;
        Ok(Box::new(OsFile(file)))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(self.path(name))?;
        Ok(Box::new(OsFile(file)))
    }

    fn read(&self, name: &str) -> io::Result<Content> {
        let file = File::open(self.path(name))?;
        if file.metadata()?.len() == 0 {
            return Ok(Content::new(Vec::new()));
        }
        // SAFETY: published files are immutable and only ever unlinked, which keeps the mapping
        // valid; the oplog's segments are written in place but never shrink. An operator who
        // truncates a file in the data directory can still crash the process: README says so.
        let map = unsafe { memmap2::Mmap::map(&file)? };
        Ok(Content::new(map))
    }

    fn read_part(&self, name: &str, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let file = File::open(self.path(name))?;
        let mut part = vec![0; bytes];
        let mut read = 0;
        while read < bytes {
            match file.read_at(&mut part[read..], offset + read as u64) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        part.truncate(read);
        Ok(part)
    }

    fn read_from_disk(&self, name: &str, part: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let open = |flags: OFlags| {
            let flags = flags.bits().cast_signed();
            let mut options = OpenOptions::new();
            options.read(true).custom_flags(flags).open(self.path(name))
        };
        let is_refused = |error: &io::Error| error.kind() == io::ErrorKind::InvalidInput;
        // Not every file system reads past what memory holds.
        let file = match open(OFlags::DIRECT) {
            Err(error) if is_refused(&error) => open(OFlags::empty())?,
            file => file?,
        };
        match read_parts(&file, part) {
            Err(error) if is_refused(&error) => read_parts(&open(OFlags::empty())?, part),
            read => read,
        }
    }

    fn link(&self, from: &str, to: &str) -> io::Result<bool> {
        match fs::hard_link(self.path(from), self.path(to)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn replace(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path(name))
    }

    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(self.path(directory)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_file()
                && let Ok(name) = entry.file_name().into_string()
            {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn create_directory(&self, directory: &str) -> io::Result<()> {
        create_private(&self.path(directory))
    }

    fn sync_directory(&self, directory: &str) -> io::Result<()> {
        File::open(self.path(directory))?.sync_all()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(&self.root)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

struct OsFile(File);

impl DiskFile for OsFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_directory_that_is_made_is_its_owners_and_one_that_is_there_stays_as_it_is() {
        let root = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let made = root.path().join("made");
        let disk = OsDisk::new(&made).unwrap();
        disk.create_directory("runs").unwrap();
        assert_eq!([mode(&made), mode(&made.join("runs"))], [0o700; 2]);
        let there = root.path().join("there");
        fs::create_dir(&there).unwrap();
        fs::set_permissions(&there, fs::Permissions::from_mode(0o750)).unwrap();
        OsDisk::new(&there).unwrap();
        assert_eq!(mode(&there), 0o750);
    }
}
