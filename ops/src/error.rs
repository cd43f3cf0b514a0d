//! How a command fails: exit code 1 failed, 2 usage, 70 the log failed under a running server; and as of a program that
//! a signal ended, 130 and 143 where one did, 141 where nobody reads what it prints.

use thiserror::Error;

/// A failed command.
#[derive(Debug, Error)]
pub enum CommandError {
    /// It could not be done.
    #[error("{0}")]
    Failed(String),
    /// Whoever is to do it cannot be reached, or cannot do it now: a moment later it may be otherwise.
    #[error("{0}")]
    Unavailable(String),
    /// It was asked for wrongly.
    #[error("{0}")]
    Usage(String),
    /// The server stopped because the log failed.
    #[error(
        "the oplog failed and nothing more was accepted; check the disk and start again: what is durable is read back"
    )]
    LogFailed,
    /// Whoever read standard output has gone, and needs no message.
    #[error("standard output is closed")]
    Unread,
}

impl CommandError {
    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_) | Self::Unavailable(_) => 1,
            Self::Usage(_) => 2,
            Self::LogFailed => 70,
            Self::Unread => 141,
        }
    }
}

macro_rules! failed_from {
    ($($type:ty),*) => {$(
        impl From<$type> for CommandError {
            fn from(error: $type) -> Self {
                Self::Failed(error.to_string())
            }
        }
    )*};
}

failed_from!(
    tallyring_realtime::Error,
    tallyring_rebuild::load::LoadError,
    tallyring_rebuild::backup::BackupError,
    tallyring_archive::Error,
    tallyring_realtime::catalog::CatalogError,
    tallyring_realtime::oplog::OplogError,
    serde_json::Error
);

/// Result of a command.
pub type Result<T> = std::result::Result<T, CommandError>;

/// Adds what was being done to an error of the operating system.
pub fn doing<E: std::fmt::Display>(what: impl std::fmt::Display) -> impl FnOnce(E) -> CommandError {
    move |error| CommandError::Failed(format!("cannot {what}: {error}"))
}
