//! Text with a checksum in its first line: `tallyring <kind> <format> crc32 <8 hex digits> bytes <n>`, then `n` bytes.
//! People can read the file, and a reader finds a flipped bit or a cut.

use crate::error::{Error, Result};

/// The first line and the text.
///
/// ```
/// use tallyring_archive::sealed::{seal, unseal};
///
/// let bytes = seal("note", 1, b"text");
/// assert!(bytes.starts_with(b"tallyring note 1 crc32 "));
/// assert_eq!(unseal("a file", "note", 1, &bytes)?, b"text");
/// # Ok::<(), tallyring_archive::Error>(())
/// ```
pub fn seal(kind: &str, format: u32, text: &[u8]) -> Vec<u8> {
    let mut bytes = first_line(kind, format, text).into_bytes();
    bytes.push(b'\n');
    bytes.extend_from_slice(text);
    bytes
}

/// The text of a file called `name`, whose bytes are `content`. Fails with [`Error::Version`] for another format, and
/// with [`Error::Damaged`] when any byte was changed.
pub fn unseal<'c>(name: &str, kind: &str, format: u32, content: &'c [u8]) -> Result<&'c [u8]> {
    let damaged = |what: &str| Error::damaged(name, 0, what);
    let end = content
        .iter()
        .position(|&byte| byte == b'\n')
        .ok_or_else(|| damaged("it has no first line"))?;
    let (line, text) = (&content[..end], &content[end + 1..]);
    let line = std::str::from_utf8(line).map_err(|_| damaged("its first line is not text"))?;
    let found = line
        .strip_prefix("tallyring ")
        .and_then(|rest| rest.strip_prefix(kind))
        .and_then(|rest| rest.trim_start().split(' ').next())
        .and_then(|found| found.parse::<u32>().ok())
        .ok_or_else(|| damaged(&format!("its first line is not that of a {kind}")))?;
    if found != format {
        return Err(Error::Version {
            name: name.to_owned(),
            found,
            supported: format,
        });
    }
    if line != first_line(kind, format, text) {
        return Err(damaged("its checksum or length does not match"));
    }
    Ok(text)
}

fn first_line(kind: &str, format: u32, text: &[u8]) -> String {
    let (crc, bytes) = (crc32fast::hash(text), text.len());
    format!("tallyring {kind} {format} crc32 {crc:08x} bytes {bytes}")
}
