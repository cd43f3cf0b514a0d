//! `GET /v1/closed`: the buckets of a namespace once they are settled, page by page, as NDJSON or server-sent events.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tallyring_realtime::{ClosedBucket, ClosedPage, ClosedReader, Error, Stores, View};
use tallyring_records::{FieldError, Namespace};

use super::period::take_instant;
use super::question::declared;
use super::reply::held;
use super::text::unwritable;
use crate::access::{Caller, Length};
use crate::calendar::rfc3339_utc;
use crate::problem::{Document, Problem, Result};
use crate::query_string::QueryString;
use crate::state::ApiState;
use crate::work::reading;

const KNOWN: &str = "namespace, after, from and limit";
const LIMIT_DEFAULT: usize = 1_000;
const LIMIT_MAX: usize = 10_000;
/// With this header a browser asks again where a stream of events ended.
const LAST_EVENT_ID: &str = "last-event-id";
/// Server-sent events end with the page; the client asks again after so many milliseconds.
const RETRY_MS: u64 = 1_000;

/// A settled bucket as programs are told of it, as JSON.
#[derive(Debug, Serialize)]
pub struct ClosedLine<'b> {
    namespace: &'b str,
    key: &'b str,
    start: String,
    unit: &'static str,
    count: u64,
    state: &'static str,
    version: u64,
}

impl<'b> ClosedLine<'b> {
    /// A bucket of a namespace. `version` is that of its page.
    pub fn of(namespace: &'b Namespace, bucket: &'b ClosedBucket, version: u64) -> Self {
        Self {
            namespace: &namespace.name,
            key: &bucket.key,
            start: rfc3339_utc(bucket.start),
            unit: match namespace.minutes {
                true => "minute",
                false => "hour",
            },
            count: bucket.count,
            state: "settled",
            version,
        }
    }

    /// A text that no other bucket has, and neither has another version of this one.
    pub fn id(&self) -> String {
        format!(
            "{}/{}/{}/{}",
            self.namespace, self.start, self.version, self.key
        )
    }
}

/// The last line.
#[derive(Serialize)]
struct NextLine<'c> {
    next: &'c str,
    settled_until: String,
    /// Whether the next page has lines already.
    more: bool,
}

/// The cursor that a page follows.
enum After {
    Cursor(String),
    From(i64),
    Now,
}

/// Settled buckets
///
/// Buckets of all keys of a namespace once they are settled, and again with a higher `version` when late increments
/// changed them. Each is a line of NDJSON: minutes where the namespace keeps minutes, or hours. The last line has the
/// cursor of the next page, which is to be asked for when these lines are stored. Lines come at least once; of those
/// with the same key and start, the highest version counts. Without `after` and `from`, the page has no lines, and its
/// cursor begins with what settles from now on. With `Accept: text/event-stream` the lines are events `bucket` and
/// `next`, whose `id` is the cursor, and a browser asks for the next page by itself.
#[utoipa::path(get, path = "/v1/closed", tag = "read",
    params(
        ("namespace" = String, Query, description = "Namespace", example = "l"),
        ("after" = Option<String>, Query, description = "The cursor of the page before"),
        ("from" = Option<String>, Query, description = "Begins with the bucket of this time, RFC 3339 or Unix seconds", example = "2012-03-16T00:00:00Z"),
        ("limit" = Option<usize>, Query, description = "Lines of a page, at most, beside the last one; more only where one key or one increment has more: 1 to 10,000, default 1,000"),
    ),
    responses(
        (status = 200, description = "Settled buckets, and the cursor of the next page", content(
            (String = "application/x-ndjson", example = "{\"namespace\":\"l\",\"key\":\"abc\",\"start\":\"2012-03-16T17:00:00Z\",\"unit\":\"hour\",\"count\":5,\"state\":\"settled\",\"version\":17}\n{\"next\":\"17.1331920800.8c1f0e5a92b3d476\",\"settled_until\":\"2012-03-16T18:00:00Z\",\"more\":false}\n"),
            (String = "text/event-stream", example = "event: bucket\ndata: {\"namespace\":\"l\",\"key\":\"abc\",\"start\":\"2012-03-16T17:00:00Z\",\"unit\":\"hour\",\"count\":5,\"state\":\"settled\",\"version\":17}\n\n"),
        )),
        (status = 410, description = "The log no longer holds what follows the cursor; `detail` says from where to begin again", body = Document, content_type = "application/problem+json"),
        (status = 503, description = "This node has not counted yet what the cursor tells of; ask again", body = Document, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn closed(
    State(state): State<ApiState>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response> {
    let mut query = QueryString::parse(uri.query())?;
    let name = query.take("namespace")?.unwrap_or_default();
    let namespace = declared(&state.store().schema(), &name)?.clone();
    caller.check_namespace(&namespace.name)?;
    let after = take_after(&mut query, &headers)?;
    let limit = query.take_as("limit", "a whole number")?;
    let limit = limit.unwrap_or(LIMIT_DEFAULT);
    query.finish(KNOWN)?;
    if !(1..=LIMIT_MAX).contains(&limit) {
        let detail = format!("must be 1 to {LIMIT_MAX}");
        return Err(FieldError::refused("limit", &limit.to_string(), detail).into());
    }
    let form = Form::of(&headers);
    let (stores, now) = (Arc::clone(state.stores()), state.now());
    reading(&state, Length::Long, move |view| {
        let page = Request {
            stores: &stores,
            view,
            namespace: &namespace,
            now,
        };
        page.answer(after, limit, form)
    })
    .await
}

fn take_after(query: &mut QueryString, headers: &HeaderMap) -> Result<After> {
    let after = query.take("after")?.filter(|after| !after.is_empty());
    let from = take_instant(query, "from")?;
    let reconnected = headers.get(LAST_EVENT_ID).map(HeaderValue::to_str);
    match (after, from, reconnected) {
        // A browser that connects again repeats the first request.
        (_, _, Some(Ok(id))) if !id.is_empty() => Ok(After::Cursor(id.to_owned())),
        (Some(_), Some(from), _) => {
            let detail = "must not stand beside `after`, which says where to go on";
            Err(Problem::malformed("from", &from.to_string(), detail))
        }
        (Some(after), None, _) => Ok(After::Cursor(after.into_owned())),
        (None, Some(from), _) => Ok(After::From(from)),
        (None, None, _) => Ok(After::Now),
    }
}

/// One request for a page.
struct Request<'r> {
    stores: &'r Stores,
    view: &'r View<'r>,
    namespace: &'r Namespace,
    now: i64,
}

impl Request<'_> {
    fn answer(&self, after: After, limit: usize, form: Form) -> Result<Response> {
        let reader = self.stores.closed(self.view, self.namespace, self.now);
        let cursor = match after {
            After::Cursor(text) => reader.read_cursor(&text).ok_or_else(|| {
                let detail = "must be the `next` of a page of this namespace, unchanged; without it the stream begins anew";
                Problem::malformed("after", &text, detail)
            })?,
            After::From(from) => {
                check_from(&reader, from)?;
                reader.begin(Some(from))
            }
            After::Now => reader.begin(None),
        };
        let page = reader.page(cursor, limit).map_err(|error| match error {
            Error::CursorAhead { .. } if self.is_node() => behind(),
            Error::CursorAhead { settled } | Error::CursorGone { settled } => gone(settled),
            error => error.into(),
        })?;
        self.respond(&reader, page, form)
    }

    /// True where another node may have made the cursor.
    fn is_node(&self) -> bool {
        self.stores.first().world().objects.is_some()
    }

    fn respond(&self, reader: &ClosedReader<'_>, page: ClosedPage, form: Form) -> Result<Response> {
        let next = reader.text_of(&page.next);
        let mut text = Vec::new();
        for bucket in &page.buckets {
            let line = ClosedLine::of(self.namespace, bucket, page.version);
            form.write(&mut text, "bucket", &line)?;
        }
        let last = NextLine {
            next: &next,
            settled_until: rfc3339_utc(page.next.settled_until()),
            more: reader.has_more(&page.next),
        };
        if form == Form::Events {
            text.extend_from_slice(format!("retry: {RETRY_MS}\nid: {next}\n").as_bytes());
        }
        form.write(&mut text, "next", &last)?;
        let headers = [
            (header::CONTENT_TYPE, form.media_type()),
            (header::CACHE_CONTROL, "no-store"),
            (
                header::VARY,
                "accept, accept-encoding, authorization, cookie, origin",
            ),
        ];
        Ok((StatusCode::OK, headers, held(text, page.charge)).into_response())
    }
}

fn check_from(reader: &ClosedReader<'_>, from: i64) -> Result<()> {
    let settled = reader.settled_until();
    if from > settled {
        let until = rfc3339_utc(settled);
        let detail = format!("must be {until} or earlier, until which buckets are settled");
        return Err(FieldError::refused("from", &rfc3339_utc(from), detail).into());
    }
    match reader.kept_from().filter(|kept| from < *kept) {
        Some(kept) => {
            let kept = rfc3339_utc(kept);
            let detail =
                format!("must be {kept} or later, from which on buckets of this unit are kept");
            Err(FieldError::refused("from", &rfc3339_utc(from), detail).into())
        }
        None => Ok(()),
    }
}

fn behind() -> Problem {
    let detail = "is of a node that has counted more than this one has yet: retry in a moment";
    Problem::unavailable(detail).about("after", None)
}

fn gone(settled: i64) -> Problem {
    let detail = format!(
        "is older than the log, so buckets that changed since are not known: begin again with `from={}`, or earlier where \
         increments come later than that",
        rfc3339_utc(settled)
    );
    Problem::new(StatusCode::GONE, "Gone", detail).about("after", None)
}

/// How the lines go out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Lines,
    Events,
}

impl Form {
    fn of(headers: &HeaderMap) -> Self {
        let accepted = headers.get_all(header::ACCEPT).into_iter();
        let mut accepted = accepted.filter_map(|line| line.to_str().ok());
        match accepted.any(|line| line.contains("text/event-stream")) {
            true => Self::Events,
            false => Self::Lines,
        }
    }

    fn media_type(self) -> &'static str {
        match self {
            Self::Lines => "application/x-ndjson",
            Self::Events => "text/event-stream",
        }
    }

    fn write(self, text: &mut Vec<u8>, event: &str, line: &impl Serialize) -> Result<()> {
        if self == Self::Events {
            text.extend_from_slice(format!("event: {event}\ndata: ").as_bytes());
        }
        serde_json::to_writer(&mut *text, line).map_err(unwritable)?;
        text.extend_from_slice(match self {
            Self::Lines => b"\n",
            Self::Events => b"\n\n",
        });
        Ok(())
    }
}
