//! The envelope around every answer of bitly's version 3, also around a refusal.

use axum::Json;
use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::query_string::QueryString;
use crate::xml;

/// Counts change: no cache answers by itself.
pub(crate) const FRESH: [(HeaderName, &str); 1] = [(header::CACHE_CONTROL, "no-cache")];

/// The envelope as JSON, or as XML where the query has `format=xml`.
pub(crate) fn wrapped(query: Option<&str>, status: u16, text: &str, data: Value) -> Response {
    let envelope = json!({"data": data, "status_code": status, "status_txt": text});
    if QueryString::parse(query).is_ok_and(|query| query.has("format", "xml")) {
        let kind = [(header::CONTENT_TYPE, "application/xml; charset=utf-8")];
        return (FRESH, kind, xml::document("response", &envelope)).into_response();
    }
    (FRESH, Json(envelope)).into_response()
}
