//! Request bodies: bounded in bytes and time, before and after decompression.

use std::io::Read;
use std::sync::LazyLock;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, StatusCode, header};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::Deserialize;
use tallyring_realtime::memory;
use tallyring_records::input::json;
use tallyring_records::{FieldError, short_error};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::access::{behind, off_thread};
use crate::problem::{Problem, Result};

/// How long a client may take to send a body.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// zstd frames that need a larger window than this are refused (as a power of two).
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// Memory of all bodies being read or worked on, KiB: an eighth of what there is, within bounds. The least holds the
/// largest body beside what it unpacks to.
static BODY_MEMORY_KIB: LazyLock<usize> = LazyLock::new(|| {
    let kib = (memory::available() / 8) >> 10;
    kib.clamp(17 << 10, 256 << 10) as usize
});
static BODY_MEMORY: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(*BODY_MEMORY_KIB));

/// How much is unpacked before more memory is taken.
const STEP_BYTES: usize = 64 << 10;

/// A body, and the memory it takes until it is dropped.
pub(crate) struct Received {
    bytes: Bytes,
    _memory: BodyMemory,
}

impl Received {
    /// The bytes, which must not outlive this: their memory is given back then.
    pub(crate) fn share(&self) -> Bytes {
        self.bytes.clone()
    }
}

impl std::ops::Deref for Received {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads a body of at most `limit` bytes, decompressed as its `Content-Encoding` says. Fails with 408 for one that is
/// too slow, 413 too large, 400 not decodable, 415 another encoding, 503 when all bodies together take too much memory.
pub(crate) async fn read(headers: &HeaderMap, body: Body, limit: usize) -> Result<Received> {
    // A body that announces that it is too large need not be sent.
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large(limit));
    }
    let mut memory = BodyMemory::none()?;
    let collected = tokio::time::timeout(READ_TIMEOUT, collect(body, limit, &mut memory)).await;
    let bytes = collected.unwrap_or_else(|_| {
        let seconds = READ_TIMEOUT.as_secs();
        let detail = format!("The body did not arrive within {seconds} seconds.");
        Err(Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            "Too slow",
            detail,
        ))
    })?;
    let (bytes, memory) = decoded(headers, bytes, limit, memory).await?;
    Ok(Received {
        bytes,
        _memory: memory,
    })
}

/// Bytes of an operator's order.
const ORDER_BYTES_MAX: usize = 64 << 10;

/// Reads an operator's order, which must be JSON by its type: a page elsewhere cannot send this type without asking
/// first, so it orders nothing through a browser. Errors call the content `what`, and name an `example`. Fails as
/// [`read`] does, with 415 for another type, and with 400 for a body that cannot be read.
pub(crate) async fn read_order<T: for<'de> Deserialize<'de>>(
    headers: &HeaderMap,
    body: Body,
    expected: (&str, &str),
) -> Result<T> {
    read_order_of(headers, body, expected, ORDER_BYTES_MAX).await
}

/// As [`read_order`], of at most `bytes_max` bytes.
pub(crate) async fn read_order_of<T: for<'de> Deserialize<'de>>(
    headers: &HeaderMap,
    body: Body,
    (what, example): (&str, &str),
    bytes_max: usize,
) -> Result<T> {
    let kind = headers.get(header::CONTENT_TYPE);
    if kind.is_none_or(|kind| !kind.as_bytes().starts_with(b"application/json")) {
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "Unsupported type",
            format!("Send {what} as application/json."),
        ));
    }
    let bytes = read(headers, body, bytes_max).await?;
    json::parse_as(&bytes).map_err(|error| {
        let found = short_error(&error.to_string());
        let detail = format!("must be JSON such as {example}; found: {found}");
        FieldError::missing("body", detail).into()
    })
}

/// Memory that is taken of [`BODY_MEMORY`], and given back when it is dropped.
struct BodyMemory(SemaphorePermit<'static>);

impl BodyMemory {
    fn none() -> Result<Self> {
        Self::kib(0).map(Self)
    }

    /// Takes as much as `bytes` need in all.
    fn grow_to(&mut self, bytes: usize) -> Result<()> {
        let missing = bytes.div_ceil(1_024).saturating_sub(self.0.num_permits());
        if missing > 0 {
            self.0.merge(Self::kib(missing)?);
        }
        Ok(())
    }

    /// Gives back what `bytes` do not need.
    fn shrink_to(&mut self, bytes: usize) {
        let surplus = self.0.num_permits().saturating_sub(bytes.div_ceil(1_024));
        drop(self.0.split(surplus));
    }

    fn kib(kib: usize) -> Result<SemaphorePermit<'static>> {
        let kib = u32::try_from(kib).unwrap_or(u32::MAX);
        BODY_MEMORY.try_acquire_many(kib).map_err(|_| {
            let detail = format!(
                "The bodies of all requests together are larger than {} MiB; try again in a moment.",
                *BODY_MEMORY_KIB >> 10
            );
            Problem::unavailable(detail)
        })
    }
}

/// A body as it was sent; takes memory as it arrives, so that who sends nothing takes none.
async fn collect(body: Body, limit: usize, memory: &mut BodyMemory) -> Result<Bytes> {
    let mut body = Limited::new(body, limit);
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| match error.is::<LengthLimitError>() {
            true => too_large(limit),
            false => Problem::malformed("body", &error.to_string(), "could not be read"),
        })?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        memory.grow_to(bytes.len() + data.len())?;
        if bytes.is_empty() && body.is_end_stream() {
            return Ok(data);
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes.into())
}

/// Bodies up to here do not wait for larger ones: to read one takes less than a tenth of a millisecond.
pub(crate) const SMALL_BYTES: usize = 16 << 10;

/// A body without its encoding, and its memory.
async fn decoded(
    headers: &HeaderMap,
    bytes: Bytes,
    limit: usize,
    mut memory: BodyMemory,
) -> Result<(Bytes, BodyMemory)> {
    let encoding = headers.get(header::CONTENT_ENCODING);
    let encoding = encoding.map(|value| value.to_str().unwrap_or("?").to_ascii_lowercase());
    let unpack: fn(&[u8], usize, &mut BodyMemory) -> Result<Bytes> = match encoding.as_deref() {
        None | Some("" | "identity") => return Ok((bytes, memory)),
        Some("gzip" | "x-gzip") => unpack_gzip,
        Some("zstd") => unpack_zstd,
        Some(other) => {
            let detail = format!(
                "The content encoding `{}` is not understood; send gzip, zstd or no encoding.",
                other.escape_debug()
            );
            return Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "Unsupported encoding",
                detail,
            ));
        }
    };
    let is_small = bytes.len() <= SMALL_BYTES;
    let decode = move || {
        let plain = unpack(&bytes, limit, &mut memory)?;
        Ok((plain, memory))
    };
    match is_small {
        true => off_thread(decode).await,
        false => behind(decode).await,
    }
}

fn unpack_gzip(bytes: &[u8], limit: usize, memory: &mut BodyMemory) -> Result<Bytes> {
    let decoder = flate2::read::MultiGzDecoder::new(bytes);
    unpack((decoder, "gzip"), bytes.len(), limit, memory)
}

fn unpack_zstd(bytes: &[u8], limit: usize, memory: &mut BodyMemory) -> Result<Bytes> {
    let refused = |error: std::io::Error| {
        Problem::malformed("body", &error.to_string(), "must be valid zstd")
    };
    let mut decoder = zstd::Decoder::new(bytes).map_err(refused)?;
    decoder
        .window_log_max(ZSTD_WINDOW_LOG_MAX)
        .map_err(refused)?;
    unpack((decoder, "zstd"), bytes.len(), limit, memory)
}

/// Unpacks what is `packed` bytes long, in steps for which there is memory beside it; then only the plain bytes have
/// it.
fn unpack(
    (mut decoder, encoding): (impl Read, &str),
    packed: usize,
    limit: usize,
    memory: &mut BodyMemory,
) -> Result<Bytes> {
    let mut plain = Vec::new();
    loop {
        memory.grow_to(packed + plain.len() + STEP_BYTES)?;
        // One byte more than allowed tells "exactly the limit" from "more".
        let step = STEP_BYTES.min(limit + 1 - plain.len());
        let read = decoder.by_ref().take(step as u64).read_to_end(&mut plain);
        let read = read.map_err(|error| {
            let detail = format!("must be valid {encoding}");
            Problem::malformed("body", &error.to_string(), detail)
        })?;
        if plain.len() > limit {
            return Err(too_large(limit));
        }
        if read < step {
            break;
        }
    }
    memory.shrink_to(plain.len());
    Ok(plain.into())
}

fn too_large(limit: usize) -> Problem {
    let detail = format!("The body is larger than {limit} bytes (decompressed); send it in parts.");
    Problem::too_large(detail)
}

/// The media type of a body in lower case, without its parameters.
pub(crate) fn media_type(headers: &HeaderMap) -> String {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default();
    essence.trim().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use axum::http::HeaderValue;

    use super::*;

    #[tokio::test]
    async fn a_compressed_body_keeps_the_memory_of_what_it_unpacks_to() {
        const LIMIT: usize = 1 << 20;
        for (bytes, kib) in [(1, 1), (1_024, 1), (STEP_BYTES * 3, 192), (LIMIT, 1_024)] {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(&vec![b'x'; bytes]).unwrap();
            let gzip = encoder.finish().unwrap();
            let zstd = zstd::encode_all(&*vec![b'x'; bytes], 1).unwrap();
            for (encoding, packed) in [("gzip", gzip), ("zstd", zstd)] {
                let encoding = HeaderValue::from_static(encoding);
                let headers = HeaderMap::from_iter([(header::CONTENT_ENCODING, encoding)]);
                let read = read(&headers, Body::from(packed), LIMIT).await.unwrap();
                assert_eq!((read.len(), read._memory.0.num_permits()), (bytes, kib));
            }
        }
    }
}
