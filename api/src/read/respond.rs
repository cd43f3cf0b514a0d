//! Answers on their way out: form, validator, and how long a cache may keep them.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use tallyring_realtime::Store;

use super::answer::Answer;
use super::csv;
use super::format::Format;
use super::svg;
use crate::problem::Problem;

/// An answer whose range lies wholly in the archive changes only by a late count, which changes its
/// tag: a cache may keep it this long and then ask again.
const ARCHIVED: &str = "public, max-age=300";
/// The same behind a key: only the client's own cache may keep it.
const ARCHIVED_PRIVATE: &str = "private, max-age=300";
/// Everything else is asked for again each time.
const LIVE: &str = "no-cache";

/// The response to a read of one key; 304 when the client has it already. `with_key` says that the
/// client had to show an API key.
///
/// # Errors
/// When the answer has no such form.
pub fn respond(
    store: &Store,
    answer: &Answer,
    format: Format,
    request: &HeaderMap,
    with_key: bool,
) -> Result<Response, Problem> {
    let tag = tag(store, answer, format);
    let cache = match (answer.ends <= store.archived_until(), with_key) {
        (true, false) => ARCHIVED,
        (true, true) => ARCHIVED_PRIVATE,
        (false, _) => LIVE,
    };
    let known = request
        .get(header::IF_NONE_MATCH)
        .and_then(|tags| tags.to_str().ok())
        .unwrap_or_default();
    let mut response = if known
        .split(',')
        .any(|known| known.trim() == tag || known.trim() == "*")
    {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        render(answer, format)?
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    headers.insert(
        header::VARY,
        HeaderValue::from_static("accept, accept-encoding, authorization"),
    );
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    Ok(response)
}

/// A response of this form.
pub fn with_type(format: Format, body: impl IntoResponse) -> Response {
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static(format.media_type()),
    );
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    if format == Format::Csv {
        headers.insert(
            header::CONTENT_DISPOSITION,
            HeaderValue::from_static("attachment; filename=\"counts.csv\""),
        );
    }
    response
}

fn render(answer: &Answer, format: Format) -> Result<Response, Problem> {
    let body = match format {
        Format::Json => serde_json::to_string(answer).map_err(|error| {
            Problem::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "Internal error",
                error.to_string(),
            )
        })?,
        Format::Csv => csv::render(answer),
        Format::Svg => svg::render(answer).ok_or_else(no_picture)?,
    };
    Ok(with_type(format, body))
}

/// 404 for a form that a read does not have.
pub fn no_picture() -> Problem {
    Problem::unknown(
        "format",
        "svg",
        "is not drawn for rankings by bucket; ask for .csv, JSON or rollup=true",
    )
}

/// A weak validator of what was counted. When the counts settle, and in which generation they are,
/// is not part of it: the same counts are the same answer.
fn tag(store: &Store, answer: &Answer, format: Format) -> String {
    let head = &answer.head;
    let asked = (
        &head.namespace,
        &head.key,
        &head.unit,
        &head.timezone,
        &answer.subtotal,
    );
    let counted = (
        &head.from,
        &head.to,
        head.aligned,
        &head.final_until,
        answer.total,
        &answer.body,
    );
    let text = serde_json::to_vec(&(format.media_type(), asked, counted)).unwrap_or_default();
    format!("W/\"{:032x}\"", store.body_identity(&text))
}
