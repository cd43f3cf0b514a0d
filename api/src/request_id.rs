//! Every request has an id: the client's, when it has the form of one, else a new one.
//!
//! The id is in the answer, in the log lines of the request and in those about its failure. Paths are
//! logged escaped and cut, queries and `Authorization` never: they may hold keys.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, Uri};
use axum::response::Response;
use tracing::{Instrument, Span};

const HEADER: HeaderName = HeaderName::from_static("x-request-id");
const ID_BYTES_MAX: usize = 64;
/// Characters of a path that a log line shows.
const PATH_CHARS_MAX: usize = 128;

/// Refusals that are logged in one second: a client that is refused a thousand times takes a few lines.
static REFUSALS: Seldom = Seldom::new(20);

/// Failures that are logged in one second: a crowd that is refused would fill the disk with them, and they are
/// counted in the metrics too.
static FAILURES: Seldom = Seldom::new(20);

/// Allows so many a second and no more.
struct Seldom {
    most: u64,
    /// The second in the upper half, how many it had in the lower.
    state: AtomicU64,
}

impl Seldom {
    const fn new(most: u64) -> Self {
        Self {
            most,
            state: AtomicU64::new(0),
        }
    }

    /// True for the first ones of every second.
    fn take(&self) -> bool {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        self.take_at(START.elapsed().as_secs())
    }

    fn take_at(&self, second: u64) -> bool {
        let next = |state: u64| {
            let had = if state >> 32 == second {
                state & 0xffff_ffff
            } else {
                0
            };
            (had < self.most).then_some(second << 32 | (had + 1))
        };
        let order = Ordering::Relaxed;
        self.state.fetch_update(order, order, next).is_ok()
    }
}

/// The log line of a request, written once the request has been answered.
pub(crate) struct AccessLog {
    id: HeaderValue,
    method: Method,
    uri: Uri,
    /// When the request came.
    pub began: Instant,
}

impl AccessLog {
    /// The log line of a request that came just now.
    pub(crate) fn new(request: &Parts) -> Self {
        let id = match request.headers.get(&HEADER) {
            Some(inbound) if is_id(inbound.as_bytes()) => inbound.clone(),
            _ => new_id(),
        };
        Self {
            id,
            method: request.method.clone(),
            uri: request.uri.clone(),
            began: Instant::now(),
        }
    }

    /// Answers under the span of all log lines about the request.
    pub(crate) async fn answered(&self, answering: impl Future<Output = Response>) -> Response {
        answering.instrument(span_of(&self.id)).await
    }

    /// Answers one of many requests. A span costs about as much as counting one click: frequent requests have theirs
    /// only when debugging, and where they find work that may fail ([`span`]).
    pub(crate) async fn answered_often(
        &self,
        answering: impl Future<Output = Response>,
    ) -> Response {
        let span = tracing::debug_span!("request", id = shown(&self.id));
        ID.scope(self.id.clone(), answering.instrument(span)).await
    }

    /// Puts the id into the answer; logs what went wrong, and at debug level everything.
    pub(crate) fn close(self, response: &mut Response) {
        let (id, method) = (shown(&self.id), &self.method);
        let path = cut(self.uri.path());
        let status = response.status().as_u16();
        if status >= 500 && FAILURES.take() {
            tracing::warn!(id, %method, ?path, status, "a request failed");
        } else if is_refusal(status) && REFUSALS.take() {
            tracing::info!(id, %method, ?path, status, "a request was refused");
        } else {
            tracing::debug!(id, %method, ?path, status, seconds = ?self.began.elapsed(), "answered");
        }
        response.headers_mut().insert(HEADER, self.id);
    }
}

tokio::task_local! {
    /// The id of a request that has no span yet.
    static ID: HeaderValue;
}

/// The span of the request that this task answers; made now if there is none yet.
pub(crate) fn span() -> Span {
    let span = Span::current();
    if span.is_disabled() {
        return ID.try_with(span_of).unwrap_or(span);
    }
    span
}

fn span_of(id: &HeaderValue) -> Span {
    tracing::info_span!("request", id = shown(id))
}

fn shown(id: &HeaderValue) -> &str {
    id.to_str().unwrap_or_default()
}

/// For a missing or wrong key, a right it lacks, its rate, or a request too large.
fn is_refusal(status: u16) -> bool {
    matches!(status, 401 | 403 | 413 | 429 | 431)
}

fn cut(path: &str) -> &str {
    if path.len() <= PATH_CHARS_MAX {
        return path;
    }
    let end = path.char_indices().nth(PATH_CHARS_MAX);
    end.map_or(path, |(end, _)| &path[..end])
}

fn is_id(text: &[u8]) -> bool {
    (1..=ID_BYTES_MAX).contains(&text.len())
        && text
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// Sixteen hexadecimal digits: a keyed hash of the request's number. Ids of others, and how many there are, cannot be
/// told from one's own; two are as unlikely alike as two random numbers.
fn new_id() -> HeaderValue {
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    static NEXT: AtomicU64 = AtomicU64::new(0);
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let number = KEY.hash_one(NEXT.fetch_add(1, Ordering::Relaxed));
    let text: [u8; 16] =
        std::array::from_fn(|place| DIGITS[(number >> (60 - 4 * place) & 15) as usize]);
    HeaderValue::from_bytes(&text).expect("BUG: hexadecimal digits are a header value")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_letters_digits_dash_and_underscore() {
        for good in ["a", "A-1_b", &"x".repeat(64)] {
            assert!(is_id(good.as_bytes()), "{good}");
        }
        for bad in ["", "a b", "a\tb", "é", "a;b", "a\"", &"x".repeat(65)] {
            assert!(!is_id(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn a_second_has_its_first_lines_and_the_next_one_its_own() {
        let seldom = Seldom::new(2);
        assert_eq!(
            [0, 0, 0, 1].map(|second| seldom.take_at(second)),
            [true, true, false, true]
        );
    }

    #[test]
    fn new_ids_are_ids_and_say_nothing_of_one_another() {
        const IDS: usize = 1_000;
        let ids: Vec<u64> = (0..IDS)
            .map(|_| {
                let id = new_id();
                assert!(is_id(id.as_bytes()));
                u64::from_str_radix(shown(&id), 16).expect("hexadecimal digits")
            })
            .collect();
        let mut apart = ids.clone();
        apart.sort_unstable();
        apart.dedup();
        assert_eq!(apart.len(), IDS);
        // One and the next, and two steps: half of the bits differ, as those of random numbers.
        let pairs = || ids.windows(2).map(|pair| (pair[0], pair[1]));
        let steps: Vec<u64> = pairs().map(|(one, next)| next.wrapping_sub(one)).collect();
        let same: u32 = pairs().map(|(one, next)| (one ^ next).count_ones()).sum();
        let even: u32 = steps
            .windows(2)
            .map(|pair| (pair[0] ^ pair[1]).count_ones())
            .sum();
        for bits in [same, even] {
            assert!((28..36).contains(&(bits / IDS as u32)), "{bits}");
        }
    }

    #[test]
    fn a_path_is_cut_between_characters() {
        assert_eq!(cut("/a"), "/a");
        assert_eq!(cut(&"é".repeat(200)).chars().count(), PATH_CHARS_MAX);
    }
}
