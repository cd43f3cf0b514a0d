//! Keys and refusals of every operation: how a request can be refused, before its handler runs and by most handlers.
//!
//! Which operation needs a key is read off the table that the server itself decides by.

use std::collections::BTreeMap;

use axum::http::Method;
use serde_json::{Value, json};
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::{Content, OpenApi, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{IntoResponses, Modify};

use crate::access::{Class, Dialect, Route};
use crate::etag::NotModified;
use crate::refusals::{BodyErrors, ReadErrors, WriteErrors};

/// How every request can be refused.
const ALWAYS: [(&str, &str); 1] = [(
    "431",
    "More than 64 headers, or 32 KiB of them and the path",
)];
/// How a request that needs a key can be.
const KEYED: [(&str, &str); 3] = [
    ("401", "No key, or a wrong one, once keys are configured"),
    (
        "403",
        "The key lacks the scope, or is not for the namespace; or a read-only server was asked for what needs the log",
    ),
    (
        "429",
        "The key's items a second are used up, too many wrong keys came, or the key or address has too many requests on their way; comes with Retry-After",
    ),
];
/// How a request that waits for a place can be.
const BUSY: (&str, &str) = (
    "503",
    "Too much at once, full queues, or a damaged file; comes with Retry-After. A write may have been counted",
);
/// How a request with a time limit can end.
const SLOW: (&str, &str) = ("408", "No answer in time");
/// How a request whose answer may be compressed can be.
const COMPRESSED: [(&str, &str); 1] = [("406", "Accept-Encoding refuses every encoding")];

/// How a read by Prometheus' API can be.
const PROMETHEUS: [(&str, &str); 2] = [
    (
        "400",
        "A parameter or an expression that cannot be understood",
    ),
    ("422", "Understood, but beyond a bound"),
];
/// How one with a body can be.
const PROMETHEUS_BODY: [(&str, &str); 2] = [
    ("413", "Too many bytes, decompressed"),
    ("415", "A content encoding other than gzip and zstd"),
];

/// The schema of a problem, and its media type.
const PROBLEM: (&str, &str) = ("Problem", "application/problem+json");

/// Adds to every operation how it can be refused.
pub(super) struct Common;

impl Modify for Common {
    fn modify(&self, document: &mut OpenApi) {
        for (path, item) in &mut document.paths.paths {
            for (method, operation) in operations(item) {
                for (status, response) in by_handler(&method, path, operation) {
                    let responses = &mut operation.responses.responses;
                    responses.entry(status).or_insert(response);
                }
                refusals(&method, path, operation);
                if Route::of(&method, Some(path), path).comes_after {
                    let parameters = operation.parameters.get_or_insert_default();
                    parameters.push(RefOr::T(after()));
                }
            }
        }
    }
}

/// The position that a read comes after.
fn after() -> Parameter {
    let text = ObjectBuilder::new().schema_type(Type::String);
    ParameterBuilder::new()
        .name("after")
        .parameter_in(ParameterIn::Query)
        .description(Some(
            "The `Tallyring-Position` of an answer: this one counts everything before it, or is 503 after 5 seconds",
        ))
        .schema(Some(text))
        .example(Some("2:881".into()))
        .build()
}

/// Paths that take no parameters, and whose handlers refuse nothing.
const PLAIN: &str = "/healthz /readyz /metrics /v1/namespaces /v1/admin/status /v1/admin/generations /v1/admin/datasets \
    /v1/admin/keys /v1/admin/shares /v1/admin/reload";
/// Reads whose answers have no validator.
const WITHOUT_ETAG: &str = "/v1/closed /v1/events/{id} /v1/live";

/// How handlers refuse an operation that writes, reads, or takes a body.
fn by_handler(
    method: &Method,
    path: &str,
    operation: &Operation,
) -> BTreeMap<String, RefOr<Response>> {
    let is = |tag: &str| operation.tags.iter().flatten().any(|of| of == tag);
    let is_one_of = |paths: &str| paths.split(' ').any(|of| of == path);
    let has_body = operation.request_body.is_some();
    if is("prometheus") {
        return BTreeMap::new();
    }
    let mut responses = match is("write") {
        true => WriteErrors::responses(),
        false if has_body || !is_one_of(PLAIN) => ReadErrors::responses(),
        false => return BTreeMap::new(),
    };
    if has_body {
        responses.extend(BodyErrors::responses());
    }
    if is("read") && *method == Method::GET && !is_one_of(WITHOUT_ETAG) {
        responses.extend(NotModified::responses());
    }
    responses
}

/// The operations of a path.
pub(super) fn operations(item: &mut PathItem) -> impl Iterator<Item = (Method, &mut Operation)> {
    let operations = [
        (Method::GET, &mut item.get),
        (Method::POST, &mut item.post),
        (Method::DELETE, &mut item.delete),
    ];
    operations
        .into_iter()
        .filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}

/// Adds to an operation how it can be refused, where it does not say so itself.
pub(super) fn refusals(method: &Method, path: &str, operation: &mut Operation) {
    let route = Route::of(method, Some(path), path);
    let mut refusals = ALWAYS.to_vec();
    // Version 3 says all of it with status 200.
    if route.dialect != Dialect::V3 {
        if route.scope.is_some() {
            refusals.extend(KEYED);
        }
        if route.class != Class::Free {
            refusals.push(BUSY);
        }
        // Version 4 has no word of its own for what took too long, and a stream lasts.
        if route.dialect != Dialect::V4 && !matches!(route.class, Class::Free | Class::Stream) {
            refusals.push(SLOW);
        }
    }
    if route.class == Class::Query {
        refusals.extend(COMPRESSED);
    }
    if route.dialect == Dialect::Prometheus {
        refusals.extend(PROMETHEUS);
        if operation.request_body.is_some() {
            refusals.extend(PROMETHEUS_BODY);
        }
    }
    for (status, description) in refusals {
        let (schema, kind) = match route.dialect {
            // No handler hears of these two.
            _ if matches!(status, "406" | "431") => PROBLEM,
            Dialect::V4 => ("BitlyError", "application/json"),
            Dialect::Prometheus => ("PrometheusError", "application/json"),
            Dialect::Problem | Dialect::V3 => PROBLEM,
        };
        let response = ResponseBuilder::new()
            .description(description)
            .content(kind, Content::new(Some(Ref::from_schema_name(schema))))
            .build();
        let responses = &mut operation.responses.responses;
        responses
            .entry(status.to_owned())
            .or_insert(RefOr::T(response));
    }
    for (status, response) in &mut operation.responses.responses {
        if let RefOr::T(response) = response
            && let Some(RefOr::T(content)) = response.content.get_mut("application/problem+json")
        {
            content.example = example(status);
        }
    }
}

/// Examples of problems, one a line: status, title and detail.
const EXAMPLES: &str = "\
    400 | Malformed request | `units` must be a whole number, or -1 for all; got `many`.\n\
    401 | No key | This server needs an API key: send `Authorization: Bearer tr_…`. `tallyring key new` makes a key.\n\
    403 | Forbidden | The key 2bq4xyz7 lacks the scope `read`; it has write.\n\
    404 | Not found | `namespace` must be one of the declared namespaces l, u, d; got `x`.\n\
    406 | Not acceptable | `Accept-Encoding` refuses every encoding that is sent; accept gzip, zstd or identity.\n\
    408 | Too slow | The body did not arrive within 10 seconds.\n\
    409 | Counter overflow | The counter would exceed 2^53-1.\n\
    410 | Gone | `after` is older than the log, so buckets that changed since are not known: begin again with `from=2012-03-16T17:00:00Z`, or earlier where increments come later than that.\n\
    413 | Too large | The body is larger than 8388608 bytes (decompressed); send it in parts.\n\
    415 | Unsupported encoding | The content encoding `br` is not understood; send gzip, zstd or no encoding.\n\
    422 | Not accepted | `units` must be 1 to 10000, or -1 for everything counted; got `0`.\n\
    429 | Too many | The key's limit of items a second is reached; nothing was counted, try again after the time in Retry-After.\n\
    431 | Head too large | The request has 65 headers, and 4096 bytes in them and in its path; at most 64 and 32768 are taken: send long lists with POST /v1/query or POST /v1/increments.\n\
    503 | Too busy | Too many reads run at once; nothing was done, try again after the time in Retry-After.\n\
    507 | Disk full | The disk is full; nothing was counted.";

/// An example of a problem of this status.
fn example(status: &str) -> Option<Value> {
    let mut cells = EXAMPLES.lines().map(|line| line.splitn(3, " | "));
    let mut cells = cells.find_map(|mut cells| (cells.next()? == status).then_some(cells))?;
    let (title, detail) = (cells.next()?, cells.next()?);
    let number: u16 = status.parse().ok()?;
    let mut problem =
        json!({"type": "about:blank", "title": title, "status": number, "detail": detail});
    let about = match status {
        "400" => Some(("units", "many")),
        "404" => Some(("namespace", "x")),
        "422" => Some(("units", "0")),
        _ => None,
    };
    if let Some((field, value)) = about {
        problem["field"] = field.into();
        problem["value"] = value.into();
    }
    Some(problem)
}

/// Says how a key is sent.
pub(super) struct Keys;

impl Modify for Keys {
    fn modify(&self, document: &mut OpenApi) {
        let components = document.components.get_or_insert_default();
        components.security_schemes = serde_json::from_value(json!({
            "key": {"type": "http", "scheme": "bearer", "description": "An API key, once there is one: tr_…"},
            "access_token": {
                "type": "apiKey",
                "in": "query",
                "name": "access_token",
                "description": "The same as a parameter, which bitly's version 3 asks for",
            },
        }))
        .expect("BUG: they are schemes");
        // Without keys none is needed: the empty requirement says so.
        let key = |name: &str| SecurityRequirement::new::<_, [&str; 0], &str>(name, []);
        document.security = Some(vec![key("key"), SecurityRequirement::default()]);
        for (path, item) in &mut document.paths.paths {
            for (method, operation) in operations(item) {
                let route = Route::of(&method, Some(path), path);
                if route.scope.is_none() {
                    operation.security = Some(vec![SecurityRequirement::default()]);
                } else if route.dialect.is_bitly() {
                    let open = SecurityRequirement::default();
                    operation.security = Some(vec![key("key"), key("access_token"), open]);
                }
            }
        }
    }
}
