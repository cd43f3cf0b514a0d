//! The operating system's file system as a [`Disk`].

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::disk::{Content, Disk, DiskFile};

/// Bytes that are read at once.
const PART_BYTES: usize = 1 << 20;

/// A data directory on a local file system.
#[derive(Debug, Clone)]
pub struct OsDisk {
    root: PathBuf,
}

impl OsDisk {
    /// A disk rooted at `root`, which is created if absent, for its owner only.
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

    /// Opens a file. Anything else under its name is an error, and never waited for: a pipe may have no writer.
    fn open_to_read(&self, name: &str, flags: OFlags) -> io::Result<File> {
        let flags = (flags | OFlags::NONBLOCK).bits().cast_signed();
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .custom_flags(flags)
            .open(self.path(name))?;
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "it is not a file",
            )),
        }
    }
}

/// Makes a directory and its parents, for their owner only. A directory that exists stays as it is.
pub fn create_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Reads a file from `at` on to the end that it has now; `at` follows what was passed on.
fn read_parts(file: &File, at: &mut u64, part: &mut dyn FnMut(&[u8])) -> io::Result<()> {
    // A read past what memory holds of a file goes to whole pages, which a mapping of memory is.
    let mut buffer = memmap2::MmapMut::map_anon(PART_BYTES)?;
    let length = file.metadata()?.len();
    while *at < length {
        // Fewer bytes than asked for are no sign of the end.
        let read = match file.read_at(&mut buffer, *at)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => read,
        };
        part(&buffer[..read]);
        *at += read as u64;
    }
    Ok(())
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

    fn content(&self, name: &str) -> io::Result<Content> {
        Content::of(self.open_to_read(name, OFlags::empty())?)
    }

    fn read_from_disk(&self, name: &str, part: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let mut at = 0;
        let mut read_on = |flags| read_parts(&self.open_to_read(name, flags)?, &mut at, part);
        match read_on(OFlags::DIRECT) {
            // Not every file system reads past what memory holds, and none does so from the middle of a page.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => read_on(OFlags::empty()),
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
    fn a_file_that_is_made_shorter_while_it_is_read_from_the_disk_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a");
        fs::write(&path, vec![1; 3 * PART_BYTES]).unwrap();
        let disk = OsDisk::new(root.path()).unwrap();
        let read = |shorter: Option<u64>| {
            let mut bytes = 0;
            let read = disk.read_from_disk("a", &mut |part| {
                bytes += part.len();
                if let Some(length) = shorter {
                    let file = File::options().write(true).open(&path).unwrap();
                    file.set_len(length).unwrap();
                }
            });
            (read.map_err(|error| error.kind()), bytes)
        };
        assert_eq!(read(None), (Ok(()), 3 * PART_BYTES));
        let short = PART_BYTES + 5;
        let ended = Err(io::ErrorKind::UnexpectedEof);
        assert_eq!(read(Some(short as u64)), (ended, short));
    }

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
