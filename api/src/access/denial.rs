//! Answers to refused requests, in the words of the API that was asked.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::route::Dialect;
use crate::envelope;
use crate::problem::Problem;
use crate::prometheus::PrometheusError;

/// Why a request does not reach its handler, or gets no answer from it.
#[derive(Debug, Clone)]
pub enum Denial {
    /// The request has no key.
    NoKey,
    /// The key is unknown, revoked or no key at all.
    WrongKey,
    /// The key may not do this.
    Forbidden(Problem),
    /// Too many items of this key, or too many wrong keys.
    TooMany {
        /// The limit that was reached, as a clause.
        what: &'static str,
        /// How long until there is room.
        wait: Duration,
    },
    /// The store is still being opened.
    Opening,
    /// All places of the class of the request are taken.
    Busy(&'static str),
    /// The answer took too long; a write may have been counted all the same.
    TimedOut {
        /// The time limit.
        limit: Duration,
        /// True for writes.
        is_write: bool,
    },
}

impl Denial {
    /// The answer to a request of this target.
    pub fn answer(self, dialect: Dialect, uri: &Uri) -> Response {
        let retry_after = match &self {
            Self::TooMany { wait, .. } => Some(wait.as_secs() + u64::from(wait.subsec_nanos() > 0)),
            // Spread: clients that were refused together do not come back together.
            Self::Busy(_) | Self::Opening => Some(1 + spread()),
            // The other dialects say 408, after which a client knows what to do.
            Self::TimedOut { .. } if dialect == Dialect::V4 => Some(1 + spread()),
            _ => None,
        };
        let is_unauthorized = matches!(self, Self::NoKey | Self::WrongKey);
        let mut response = match dialect {
            Dialect::Problem => self.problem().into_response(),
            Dialect::V3 => self.v3(uri.query()),
            Dialect::V4 => self.v4(Dialect::resource_of(uri.path())).into_response(),
            Dialect::Prometheus => PrometheusError::response(&self.problem()),
        };
        let headers = response.headers_mut();
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, seconds.max(1).into());
        }
        if is_unauthorized {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }

    fn problem(self) -> Problem {
        const AGAIN: &str = "try again after the time in Retry-After";
        let (status, title, detail) = match self {
            Self::NoKey => (
                StatusCode::UNAUTHORIZED,
                "No key",
                "This server needs an API key: send `Authorization: Bearer tr_…`. `tallyring key new` makes a key."
                    .to_owned(),
            ),
            Self::WrongKey => (
                StatusCode::UNAUTHORIZED,
                "Wrong key",
                "The API key is not known here, or was revoked; `tallyring key new` makes a key.".to_owned(),
            ),
            Self::Forbidden(problem) => return problem,
            Self::TooMany { what, .. } => {
                let detail = format!("{what}; nothing was counted, {AGAIN}.");
                (StatusCode::TOO_MANY_REQUESTS, "Too many", detail)
            }
            Self::Opening => {
                let detail = format!(
                    "The store is being opened, which takes as long as to read its log; nothing was done, {AGAIN}."
                );
                (StatusCode::SERVICE_UNAVAILABLE, "Not open yet", detail)
            }
            Self::Busy(what) => {
                let detail = format!("Too many {what} run at once; nothing was done, {AGAIN}.");
                (StatusCode::SERVICE_UNAVAILABLE, "Too busy", detail)
            }
            Self::TimedOut { limit, is_write } => {
                let outcome = match is_write {
                    true => "the write may still be counted: repeat it with the same id or Idempotency-Key",
                    false => "ask for less at once",
                };
                let seconds = limit.as_secs_f32();
                let detail = format!("There was no answer within {seconds} seconds; {outcome}.");
                (StatusCode::REQUEST_TIMEOUT, "Too slow", detail)
            }
        };
        Problem::new(status, title, detail)
    }

    /// Version 3 clients read the body only.
    fn v3(&self, query: Option<&str>) -> Response {
        let (status, text) = match self {
            Self::NoKey => (500, "MISSING_ARG_ACCESS_TOKEN"),
            Self::WrongKey => (500, "INVALID_ARG_ACCESS_TOKEN"),
            Self::Forbidden(_) => (403, "FORBIDDEN"),
            Self::TooMany { .. } => (403, "RATE_LIMIT_EXCEEDED"),
            Self::Opening | Self::Busy(_) | Self::TimedOut { .. } => {
                (503, "TEMPORARILY_UNAVAILABLE")
            }
        };
        envelope::wrapped(query, status, text, Value::Null)
    }

    fn v4(self, resource: &str) -> impl IntoResponse + use<> {
        let (status, message) = match &self {
            // bitly says 403 for these; a client must be able to tell a missing key from a missing right.
            Self::NoKey | Self::WrongKey => (StatusCode::UNAUTHORIZED, "FORBIDDEN"),
            Self::Forbidden(_) => (StatusCode::FORBIDDEN, "FORBIDDEN"),
            Self::TooMany { .. } => (StatusCode::TOO_MANY_REQUESTS, "RATE_LIMIT_EXCEEDED"),
            Self::Opening | Self::Busy(_) | Self::TimedOut { .. } => {
                (StatusCode::SERVICE_UNAVAILABLE, "TEMPORARILY_UNAVAILABLE")
            }
        };
        let description = self.problem().sentence();
        (
            status,
            Json(json!({"message": message, "resource": resource, "description": description})),
        )
    }
}

impl From<Denial> for Problem {
    fn from(denial: Denial) -> Self {
        denial.problem()
    }
}

/// 0, 1 or 2, differing from one call to the next.
fn spread() -> u64 {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    // The odd number is 2^64 divided by the golden ratio: neighbours land far apart.
    (call.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) % 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_asks_to_come_again_says_when() {
        for (dialect, status, waits) in [
            (Dialect::Problem, StatusCode::REQUEST_TIMEOUT, false),
            (Dialect::V3, StatusCode::OK, false),
            (Dialect::V4, StatusCode::SERVICE_UNAVAILABLE, true),
        ] {
            let denial = Denial::TimedOut {
                limit: Duration::from_secs(1),
                is_write: false,
            };
            let answer = denial.answer(dialect, &Uri::from_static("/v4/bitlinks/a/clicks"));
            assert_eq!(answer.status(), status, "{dialect:?}");
            let told = answer.headers().contains_key(header::RETRY_AFTER);
            assert_eq!(told, waits, "{dialect:?}");
        }
    }
}
