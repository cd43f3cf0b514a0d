//! Opens the files of a load: plain, gzip or zstd, as their first bytes tell; `-` is standard input.

use std::fs::File;
use std::io::{self, BufReader, Chain, Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::read::MultiGzDecoder;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const BUFFER_BYTES: usize = 256 << 10;

/// Largest window of zstd frames that are read, as a power of two.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// Opens `path`. Bytes that are read from disk are added to `bytes_read`.
pub fn open(path: &Path, bytes_read: &Arc<AtomicU64>) -> io::Result<Box<dyn Read + Send>> {
    let file: Box<dyn Read + Send> = if path.as_os_str() == "-" {
        Box::new(io::stdin())
    } else {
        let file = File::open(path)?;
        if file.metadata()?.is_dir() {
            return Err(io::Error::new(
                io::ErrorKind::IsADirectory,
                "the path is a directory; name the files in it",
            ));
        }
        Box::new(file)
    };
    let mut counted = Counted {
        inner: file,
        bytes_read: Arc::clone(bytes_read),
    };
    let mut magic = Vec::with_capacity(ZSTD.len());
    counted
        .by_ref()
        .take(ZSTD.len() as u64)
        .read_to_end(&mut magic)?;
    let (gzip, zstd) = (magic.starts_with(&GZIP), magic == ZSTD);
    let whole: Chain<Cursor<Vec<u8>>, Counted> = Cursor::new(magic).chain(counted);
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

struct Counted {
    inner: Box<dyn Read + Send>,
    bytes_read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.inner.read(buffer)?;
        self.bytes_read.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(bytes)
    }
}
