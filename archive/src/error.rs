//! Errors about files. Their texts say what an operator can do.

use std::{fmt, io};

use tallyring_records::line;
use thiserror::Error;

/// An error about a file. Variants differ where the action of the operator differs.
#[derive(Debug, Error)]
pub enum Error {
    /// The operating system refused.
    #[error("cannot {action} {name}: {source}{}", advice(.source))]
    Io {
        /// Such as `write` or `sync`.
        action: &'static str,
        /// The file, relative to the data directory.
        name: String,
        /// The reason that the system gives.
        source: io::Error,
    },
    /// The bytes of a file are not the bytes that were written.
    #[error(
        "{name} is damaged at byte {offset}: {what}; heal it with `tallyring verify --repair`, or restore a backup"
    )]
    Damaged {
        /// The file, relative to the data directory.
        name: String,
        /// Offset in the file, bytes.
        offset: u64,
        /// The check that failed.
        what: String,
    },
    /// A file that could not be opened at the start.
    #[error("{name} could not be opened: {why}")]
    Lost {
        /// The file, relative to the data directory.
        name: String,
        /// The reason that opening the file gave.
        why: String,
    },
    /// A file has the format of another version.
    #[error("{name}: format {found}, this build reads {supported}; run the build that wrote it")]
    Version {
        /// The file, relative to the data directory.
        name: String,
        /// The format of the file.
        found: u32,
        /// The format that this build reads.
        supported: u32,
    },
    /// A read that may not wait needs a block from the disk. The caller asks again where waiting is allowed.
    #[error("a block is not in the cache")]
    NotCached,
    /// Another process committed this manifest.
    #[error(
        "manifest {number} exists already: another process writes to this data directory; stop one of them"
    )]
    Conflict {
        /// The number that both processes wanted.
        number: u64,
    },
    /// Two texts have one hash.
    #[error(
        "two different texts have the hash {hash}: `{first}` and `{second}`; they are not summed, and nothing was published"
    )]
    Collision {
        /// The stored hash.
        hash: String,
        /// One text, shortened.
        first: String,
        /// The other, shortened.
        second: String,
    },
    /// A sum has more than 64 bits.
    #[error("the counts of `{key}` exceed 64 bits; nothing was published")]
    Overflow {
        /// The record key.
        key: String,
    },
    /// More is taken away from a count than it has.
    #[error(
        "the counts of `{key}` would fall below zero: more than was counted is taken away by {minus}"
    )]
    BelowZero {
        /// The record key.
        key: String,
        /// The files of the merge that take counts of the key away.
        minus: String,
    },
    /// Sums that should be equal are not.
    #[error("{name}: the books do not balance: {what}")]
    Imbalance {
        /// The file, relative to the data directory.
        name: String,
        /// The sums that differ.
        what: String,
    },
    /// The bytes are whole, but their meaning is wrong.
    #[error("{name} is not what it should be: {what}")]
    Malformed {
        /// The file, relative to the data directory.
        name: String,
        /// The line or property that is wrong.
        what: String,
    },
}

impl Error {
    /// Wraps an error of the operating system with the action and the file.
    pub fn io(action: &'static str, name: &str) -> impl FnOnce(io::Error) -> Self {
        let name = name.to_owned();
        move |source| Self::Io {
            action,
            name,
            source,
        }
    }

    /// True when the disk is full.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_full(source))
    }

    /// True when the file is not there.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// True when the file is damaged, gone, or cannot be read for any reason that lies in the file or its disk. False
    /// where the process only lacks what it needs to read it, such as one more open file.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Io {
                action: "read",
                source,
                ..
            } => is_unreadable(source),
            Self::Io { .. } => self.is_gone(),
            _ => true,
        }
    }

    /// True when no other user, limit or build would read the file: it is gone, its bytes are wrong, or the disk cannot
    /// read them.
    pub fn is_beyond_reading(&self) -> bool {
        match self {
            Self::Io { source, .. } => {
                let broken = rustix::io::Errno::IO.raw_os_error();
                self.is_gone() || source.raw_os_error() == Some(broken)
            }
            Self::Damaged { .. } | Self::Malformed { .. } => true,
            _ => false,
        }
    }

    /// The file that the error is about, relative to the data directory; none where it is about no single file.
    pub fn file(&self) -> Option<&str> {
        match self {
            Self::Io { name, .. }
            | Self::Damaged { name, .. }
            | Self::Lost { name, .. }
            | Self::Version { name, .. }
            | Self::Imbalance { name, .. }
            | Self::Malformed { name, .. } => Some(name),
            _ => None,
        }
    }

    /// Says what is wrong with a file whose bytes are whole.
    pub fn malformed(name: &str, what: impl Into<String>) -> Self {
        Self::Malformed {
            name: name.to_owned(),
            what: what.into(),
        }
    }

    /// An error about a line of counts that cannot be read.
    pub(crate) fn no_counts(name: &str, key: &[u8], payload: &[u8]) -> Self {
        let (key, payload) = (line::shown(key), line::shown(payload));
        Self::malformed(name, format!("`{key},{payload}` is no line of counts"))
    }

    /// For `map_err`: `what` of the file cannot be read. That is damage, unless the process lacks what reading takes.
    pub(crate) fn unread(
        name: &str,
        offset: u64,
        what: impl fmt::Display,
    ) -> impl FnOnce(io::Error) -> Self {
        move |source| match is_unreadable(&source) {
            true => Self::damaged(name, offset, format!("{what} cannot be read: {source}")),
            false => Self::io("read", name)(source),
        }
    }

    pub(crate) fn damaged(name: &str, offset: u64, what: impl Into<String>) -> Self {
        Self::Damaged {
            name: name.to_owned(),
            offset,
            what: what.into(),
        }
    }
}

/// Advice to an operator, to follow the text of an error of the system.
fn advice(error: &io::Error) -> &'static str {
    let too_many = rustix::io::Errno::MFILE.raw_os_error();
    match error.raw_os_error() {
        Some(code) if code == too_many => "; raise `ulimit -n`",
        _ => "",
    }
}

fn is_unreadable(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let lacking = [
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOMEM,
        Errno::INTR,
        Errno::AGAIN,
    ];
    match error.raw_os_error() {
        Some(code) => lacking.iter().all(|errno| errno.raw_os_error() != code),
        None => matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
        ),
    }
}

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// True when the disk, or the user's quota on it, is full.
pub fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_open_files_are_told_with_the_limit_to_raise() {
        let too_many = rustix::io::Errno::MFILE.into();
        let told = Error::io("read", "runs/a")(too_many).to_string();
        assert!(told.ends_with("; raise `ulimit -n`"), "{told}");
    }

    #[test]
    fn bytes_that_the_process_lacks_memory_to_read_are_not_damaged() {
        use rustix::io::Errno;
        for (errno, is_damage) in [
            (Errno::IO, true),
            (Errno::NOMEM, false),
            (Errno::AGAIN, false),
        ] {
            let error = Error::unread("runs/a", 9, "block 1")(errno.into());
            assert_eq!(error.is_damage(), is_damage, "{error}");
            assert!(error.to_string().contains("runs/a"), "{error}");
        }
    }

    #[test]
    fn a_full_share_is_a_full_disk_and_a_failing_disk_is_not() {
        let refused = |kind: io::ErrorKind| Error::io("write", "runs/a")(kind.into());
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded] {
            assert!(refused(kind).is_disk_full(), "{kind}");
        }
        assert!(!refused(io::ErrorKind::Other).is_disk_full());
    }
}
