//! How a command fails. Exit codes: 1 failed, 2 wrong usage, 70 the log failed under a running server, 130 and 143
//! ended by a signal, 141 nobody reads the output.

use thiserror::Error;

/// A failed command.
#[derive(Debug, Error)]
pub(crate) enum CommandError {
    /// The command failed.
    #[error("{0}")]
    Failed(String),
    /// The server or the lock cannot be reached now; the same command may succeed later.
    #[error("{0}")]
    Unavailable(String),
    /// The command line is wrong.
    #[error("{0}")]
    Usage(String),
    /// The server stopped because the log failed.
    #[error(
        "the oplog failed, so the server stopped; check the disk and start the server again, which reads every durable record"
    )]
    LogFailed,
    /// Standard output is closed, so no message is printed.
    #[error("standard output is closed")]
    Unread,
}

impl CommandError {
    /// The process's exit code.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_) | Self::Unavailable(_) => 1,
            Self::Usage(_) => 2,
            Self::LogFailed => 70,
            Self::Unread => 141,
        }
    }

    /// Puts an option of a command in the place of the API's parameter with which the text of wrong usage begins.
    pub(crate) fn by_option(self, options: &[(&str, &str)]) -> Self {
        let Self::Usage(text) = &self else {
            return self;
        };
        let named = options
            .iter()
            .find_map(|(parameter, option)| Some([option, text.strip_prefix(parameter)?].concat()));
        named.map_or(self, Self::Usage)
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
    tallyring_rebuild::share::ShareError,
    tallyring_archive::Error,
    tallyring_realtime::catalog::CatalogError,
    tallyring_realtime::oplog::OplogError,
    serde_json::Error
);

/// Result of a command.
pub(crate) type Result<T, E = CommandError> = std::result::Result<T, E>;

/// Says what was being done when an error came: "cannot `what`: error".
pub(crate) fn doing<E: std::fmt::Display>(
    what: impl std::fmt::Display,
) -> impl FnOnce(E) -> CommandError {
    move |error| CommandError::Failed(format!("cannot {what}: {error}"))
}
