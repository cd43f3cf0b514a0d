//! Request bodies: bounded in bytes and time, before and after decompression.

use std::io::Read;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, StatusCode, header};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};

use tallyring_realtime::Refusal;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::access::off_thread;
use crate::problem::Problem;

/// How long a client may take to send a body.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// zstd frames that need a larger window than this are refused (as a power of two).
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// Memory of all bodies being read or worked on, KiB.
const ROOM_KIB: usize = 256 << 10;
static ROOM: Semaphore = Semaphore::const_new(ROOM_KIB);

/// A body, and the room it takes until it is dropped.
pub struct Received {
    bytes: Bytes,
    _room: SemaphorePermit<'static>,
}

impl std::ops::Deref for Received {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads a body of at most `limit` bytes, decompressed as its `Content-Encoding` says.
///
/// # Errors
/// 408 too slow, 413 too large, 400 not decodable, 415 another encoding, 503 when all bodies together
/// take too much memory.
pub async fn read(headers: &HeaderMap, body: Body, limit: usize) -> Result<Received, Problem> {
    // What says itself that it is too large need not be sent.
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large(limit));
    }
    let plain = !headers.contains_key(header::CONTENT_ENCODING);
    let bytes = body
        .size_hint()
        .exact()
        .filter(|_| plain)
        .unwrap_or(limit as u64);
    let kib = u32::try_from(bytes.div_ceil(1_024)).unwrap_or(u32::MAX);
    let room = ROOM
        .try_acquire_many(kib)
        .map_err(|_| Problem::from(Refusal::Busy))?;
    Ok(Received {
        bytes: receive(headers, body, limit).await?,
        _room: room,
    })
}

async fn receive(headers: &HeaderMap, body: Body, limit: usize) -> Result<Bytes, Problem> {
    let collected = tokio::time::timeout(READ_TIMEOUT, Limited::new(body, limit).collect()).await;
    let bytes = match collected {
        Err(_) => {
            let detail = format!(
                "the body did not arrive within {} seconds",
                READ_TIMEOUT.as_secs()
            );
            return Err(Problem::new(
                StatusCode::REQUEST_TIMEOUT,
                "Too slow",
                detail,
            ));
        }
        Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(too_large(limit)),
        Ok(Err(error)) => {
            return Err(Problem::malformed(
                "body",
                &error.to_string(),
                "could not be read",
            ));
        }
        Ok(Ok(collected)) => collected.to_bytes(),
    };
    match headers
        .get(header::CONTENT_ENCODING)
        .map(|value| value.to_str().unwrap_or("?"))
    {
        None | Some("" | "identity") => Ok(bytes),
        Some("gzip") => {
            let decode = move || {
                let decoder = flate2::read::MultiGzDecoder::new(&*bytes);
                unpack(decoder, limit, "gzip")
            };
            off_thread(decode).await
        }
        Some("zstd") => off_thread(move || unpack_zstd(&bytes, limit)).await,
        Some(other) => {
            let detail = format!(
                "`{}` is not understood; send gzip, zstd or no encoding",
                other.escape_debug()
            );
            Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "Unsupported encoding",
                detail,
            ))
        }
    }
}

fn unpack_zstd(bytes: &[u8], limit: usize) -> Result<Bytes, Problem> {
    let refused =
        |error: std::io::Error| Problem::malformed("body", &error.to_string(), "is not zstd");
    let mut decoder = zstd::Decoder::new(bytes).map_err(refused)?;
    decoder
        .window_log_max(ZSTD_WINDOW_LOG_MAX)
        .map_err(refused)?;
    unpack(decoder, limit, "zstd")
}

fn unpack(decoder: impl Read, limit: usize, encoding: &str) -> Result<Bytes, Problem> {
    let mut plain = Vec::new();
    // One byte more than allowed tells "exactly the limit" from "more".
    let read = decoder.take(limit as u64 + 1).read_to_end(&mut plain);
    if let Err(error) = read {
        return Err(Problem::malformed(
            "body",
            &error.to_string(),
            format!("is not valid {encoding}"),
        ));
    }
    if plain.len() > limit {
        Err(too_large(limit))
    } else {
        Ok(plain.into())
    }
}

fn too_large(limit: usize) -> Problem {
    let detail = format!("the body is larger than {limit} bytes (decompressed); send it in parts");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "Too large", detail)
}
