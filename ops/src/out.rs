//! The output of commands. A reader such as `head` may close it early; the command then ends quietly, as other programs
//! do. All of this crate writes to the standard streams through this module, except `cat`, `send`, progress bars and
//! log messages.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};

use crate::error::{CommandError, Result};

/// Writes a line to standard output, as `println!` does.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::out::print(format_args!("{}\n", format_args!($($text)*)))
    };
}

/// Writes a line to standard error, for people.
macro_rules! note {
    ($($text:tt)*) => {
        $crate::out::note_line(format_args!($($text)*))
    };
}

pub(crate) use {note, say};

/// Writes to standard output as it is. Fails with [`CommandError::Unread`] when it is closed.
pub(crate) fn print(text: Arguments<'_>) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_fmt(text)
        .and_then(|()| out.flush())
        .map_err(failed)
}

/// The error of a command whose write to standard output failed.
pub(crate) fn failed(error: io::Error) -> CommandError {
    match error.kind() {
        ErrorKind::BrokenPipe => CommandError::Unread,
        _ => CommandError::Failed(format!("cannot write to standard output: {error}")),
    }
}

/// Writes a line to standard error; a closed standard error changes nothing.
pub(crate) fn note_line(text: Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
