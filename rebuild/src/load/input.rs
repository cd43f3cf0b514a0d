//! Opens an input: plain, gzip or zstd, which its first bytes tell.

use std::fs::File;
use std::io::{self, BufReader, Chain, Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::read::MultiGzDecoder;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const ZIP: [u8; 4] = *b"PK\x03\x04";
const BUFFER_BYTES: usize = 256 << 10;

/// zstd frames that need a larger window than this are refused (as a power of two).
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// Opens `path` and unpacks it; `-` is standard input. Adds the bytes that are read, as they are on disk, to
/// `bytes_read`. Fails when it is a directory or a zip archive; reading it fails when it is
/// damaged.
pub fn open(path: &Path, bytes_read: &Arc<AtomicU64>) -> io::Result<Box<dyn Read + Send>> {
    let file: Box<dyn Read + Send> = if path.as_os_str() == "-" {
        Box::new(io::stdin())
    } else {
        let file = File::open(path)?;
        if file.metadata()?.is_dir() {
            return Err(io::Error::new(
                io::ErrorKind::IsADirectory,
                "it is a directory; name the files in it",
            ));
        }
        Box::new(file)
    };
    let mut counted = Counted::new(file, bytes_read);
    let mut magic = Vec::with_capacity(ZSTD.len());
    counted
        .by_ref()
        .take(ZSTD.len() as u64)
        .read_to_end(&mut magic)?;
    if magic == ZIP {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it is a zip archive; unpack it, and name the files that were in it",
        ));
    }
    let (gzip, zstd) = (magic.starts_with(&GZIP), magic == ZSTD);
    let whole: Chain<Cursor<Vec<u8>>, Counted<_>> = Cursor::new(magic).chain(counted);
    if gzip {
        let buffered = BufReader::with_capacity(BUFFER_BYTES, whole);
        return Ok(Box::new(MultiGzDecoder::new(buffered)));
    }
    if zstd {
        let buffered = BufReader::with_capacity(BUFFER_BYTES, whole);
        let mut decoder = zstd::Decoder::with_buffer(buffered)?;
        decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
        return Ok(Box::new(decoder));
    }
    Ok(Box::new(whole))
}

/// A reader that counts its bytes, for a progress bar.
pub struct Counted<R> {
    inner: R,
    bytes_read: Arc<AtomicU64>,
}

impl<R> Counted<R> {
    /// Adds the bytes that are read from `inner` to `bytes_read`.
    pub fn new(inner: R, bytes_read: &Arc<AtomicU64>) -> Self {
        Self {
            inner,
            bytes_read: Arc::clone(bytes_read),
        }
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.inner.read(buffer)?;
        self.bytes_read.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(bytes)
    }
}
