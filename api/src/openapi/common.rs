//! What goes for every operation: keys, and how a request can be refused before its handler runs.
//!
//! Which operation needs a key is read off the table that the server itself decides by.

use axum::http::Method;
use utoipa::Modify;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::{Content, OpenApi, Ref, RefOr, ResponseBuilder, Schema};

use crate::access::{Class, Dialect, Route};

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
        "The key lacks the scope, or is not for the namespace",
    ),
    (
        "429",
        "The key's items a second are used up, or too many wrong keys came; comes with Retry-After",
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

/// Adds to every operation how it can be refused.
pub struct Common;

impl Modify for Common {
    fn modify(&self, document: &mut OpenApi) {
        for (path, item) in &mut document.paths.paths {
            for (method, operation) in operations(item) {
                refusals(&method, path, operation);
            }
        }
    }
}

/// The operations of a path.
pub fn operations(item: &mut PathItem) -> impl Iterator<Item = (Method, &mut Operation)> {
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
pub fn refusals(method: &Method, path: &str, operation: &mut Operation) {
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
    for (status, description) in refusals {
        let is_v4 = route.dialect == Dialect::V4 && !matches!(status, "406" | "431");
        let (schema, kind) = if is_v4 {
            ("BitlyError", "application/json")
        } else {
            ("Problem", "application/problem+json")
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
}

/// Says how a key is sent.
pub struct Keys;

impl Modify for Keys {
    fn modify(&self, document: &mut OpenApi) {
        let bearer = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("An API key, once there is one: tr_…"))
            .build();
        let described = "The same as a parameter, which bitly's version 3 asks for";
        let token = ApiKeyValue::with_description("access_token", described);
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("key", SecurityScheme::Http(bearer));
        components
            .add_security_scheme("access_token", SecurityScheme::ApiKey(ApiKey::Query(token)));
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

/// Any JSON object.
pub fn object() -> RefOr<Schema> {
    use utoipa::openapi::schema::{ObjectBuilder, Type};
    RefOr::T(ObjectBuilder::new().schema_type(Type::Object).into())
}
