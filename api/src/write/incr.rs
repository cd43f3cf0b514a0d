//! `GET|POST /v1/incr`: the redirector's call, one increment in the query string.

use std::borrow::Cow;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tallyring_realtime::{Accepted, Batch, Refusal, RefusedItem};
use tallyring_records::{Details, Evidence, Increment, Schema, check_time};

use crate::access::Caller;
use crate::problem::{self, Problem, Result};
use crate::query_string::QueryString;
use crate::state::ApiState;
use crate::time;
use crate::write::client::Client;
use crate::write::refused::{declared, log_refused, refused, refused_by_store};
use crate::write::rules::WriteRules;

/// The path of the route.
pub(crate) const PATH: &str = "/v1/incr";

const KNOWN: &str =
    "key.<namespace>, by.<subtotal>, n, at, id, user, url and evidence.<ip, ua or referrer>";

/// Count one increment
///
/// The redirector's call: 204 once the increment is durable. `key.<namespace>` names what is counted, at
/// least one; `by.<subtotal>` breaks it down.
/// A wrong value counts under `-` unless `strict = true`. A retry with the same `id` counts once.
#[utoipa::path(get, path = "/v1/incr", tag = "write", params(Parameters), responses(
    (status = 204, description = "Counted, or known already", headers(
        ("Tallyring-Duplicate" = String, description = "1 when the id was known and nothing was counted"),
        ("Tallyring-Position" = String, description = "Position in the log behind what was counted, for `after` of reads")
    )),
))]
pub(crate) async fn incr_get(
    state: &ApiState,
    caller: &Caller,
    query: Option<&str>,
    request: Option<Evidence>,
) -> Result<Accepted> {
    let (increment, schema) = match read(state, caller, query, request) {
        Ok(read) => read,
        Err(problem) => {
            let schema = state.store().schema();
            state.check_current(&schema).await?;
            let item = refused_item(&schema, query, &problem);
            log_refused(state, caller, item).await;
            return Err(as_parameter(problem));
        }
    };
    let has_id = increment.id.is_some();
    let batch = Batch {
        identity: caller.identity().filter(|_| has_id).cloned(),
        increments: vec![increment],
        declared: Some(schema),
        ..Batch::default()
    };
    match state.count(batch).await {
        Ok(counted) => Ok(counted.accepted),
        Err(refusal) => {
            let problem = Problem::from(&refusal);
            if let Refusal::Items(wrong) = &refusal {
                let items = wrong
                    .iter()
                    .filter_map(|item| refused_by_store(item, &problem));
                log_refused(state, caller, items).await;
            }
            Err(as_parameter(problem))
        }
    }
}

/// Count one increment
///
/// As with GET; a body of any kind is ignored.
#[utoipa::path(post, path = "/v1/incr", tag = "write", params(Parameters), responses(
    (status = 204, description = "Counted, or known already"),
))]
pub(crate) async fn incr_post(
    state: &ApiState,
    caller: &Caller,
    query: Option<&str>,
    request: Option<Evidence>,
) -> Result<Accepted> {
    incr_get(state, caller, query, request).await
}

/// The query string.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes a query, which is parsed by hand")]
struct Parameters {
    /// A key of the namespace `l`; likewise key.u, key.d and every declared namespace
    #[param(rename = "key.l", example = "abc")]
    key: String,
    /// A value of the subtotal `c`; likewise by.r and every declared one
    #[param(rename = "by.c", example = "US")]
    by: Option<String>,
    /// How many, 1 to 2^53-1
    #[param(minimum = 1, maximum = 9007199254740991_i64, default = 1)]
    n: Option<u64>,
    /// When; now if left out
    #[param(example = "2012-03-16T18:40:47Z")]
    at: Option<String>,
    /// Makes a retry harmless, at most 256 bytes
    id: Option<String>,
    /// The user, for distinct users, at most 256 bytes
    user: Option<String>,
    /// The page; subtotals are filled from it where `[enrich]` of the configuration says so, and it is not kept
    url: Option<String>,
    /// The client's address; likewise evidence.ua and evidence.referrer. Subtotals are filled from them, and the log
    /// has them if `evidence = true`
    #[param(rename = "evidence.ip", example = "203.0.113.9")]
    evidence: Option<String>,
}

/// 204, and whether the id was known.
pub(crate) fn answer(accepted: &Accepted) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    // A cache that answered the next one would take it from the counts.
    let stored = HeaderValue::from_static("no-store");
    response.headers_mut().insert(header::CACHE_CONTROL, stored);
    if accepted.duplicates > 0 {
        let name = HeaderName::from_static("tallyring-duplicate");
        let known = HeaderValue::from_static("1");
        response.headers_mut().insert(name, known);
    }
    response
}

/// 405 for another method.
pub(crate) fn no_method(method: &Method) -> Response {
    let mut response = problem::no_method(method);
    if method == Method::HEAD {
        *response.body_mut() = Body::empty();
    }
    let allowed = HeaderValue::from_static("GET,POST");
    response.headers_mut().insert(header::ALLOW, allowed);
    response
}

/// A problem of the one increment, with its field as the query string names it.
fn as_parameter(problem: Problem) -> Problem {
    let problem = problem.of_one();
    // An error tells nothing of the client, even where a query cannot be decoded.
    if let Some(field) = problem.field()
        && (field == "url" || field.starts_with("evidence."))
    {
        let field = field.to_owned();
        return problem.about(field, None);
    }
    let namespace = problem
        .field()
        .and_then(|field| field.strip_prefix("keys."));
    match namespace.map(|namespace| format!("key.{namespace}")) {
        Some(field) => problem.named(field),
        None => problem,
    }
}

fn read(
    state: &ApiState,
    caller: &Caller,
    query: Option<&str>,
    request: Option<Evidence>,
) -> Result<(Increment, Arc<Schema>)> {
    let now = state.now();
    let (rules, schema) = (state.writes(), state.store().schema());
    let mut increment = caller.allow(parse(query, (&rules, &schema), now, request)?)?;
    rules.check(&mut increment, &schema)?;
    check_time(increment.at, now)?;
    Ok((increment, schema))
}

/// The refused item of an increment that has an id, whatever else is wrong with it.
fn refused_item(schema: &Schema, query: Option<&str>, problem: &Problem) -> Option<RefusedItem> {
    let mut query = QueryString::parse(query).ok()?;
    let id = named(query.take("id").ok()?)?;
    let keys = query.take_prefixed("key.").into_iter();
    let namespaces = declared(keys.map(|(name, _)| name.into()), schema);
    refused(Some(id), namespaces, problem)
}

fn parse(
    query: Option<&str>,
    (rules, schema): (&WriteRules, &Schema),
    now: i64,
    request: Option<Evidence>,
) -> Result<Increment> {
    let mut query = QueryString::parse(query)?;
    let at = match query.take("at")?.filter(|at| !at.is_empty()) {
        Some(at) => time::parse_in_query(&at)
            .ok_or_else(|| Problem::malformed("at", &at, time::EXPECTED))?,
        None => now,
    };
    let n = query.take_as("n", "a whole number from 1 to 9007199254740991")?;
    let mut increment = Increment {
        by: query.take_prefixed("by."),
        id: named(query.take("id")?),
        user: named(query.take("user")?),
        ..Increment::new(at, n.unwrap_or(1), query.take_prefixed("key."))
    };
    // Most increments tell nothing of their clients.
    if !query.is_empty() || request.is_some() {
        let mut details = Details::default();
        let client = Client::take_parameters(&mut query, rules, &mut details)?;
        query.finish(KNOWN)?;
        client.or(request.map(Client::of_redirect)).enrich(
            &mut increment,
            &mut details,
            rules,
            schema,
        );
        increment.details = details.boxed();
    }
    Ok(increment)
}

/// An empty text is left out.
fn named(text: Option<Cow<'_, str>>) -> Option<String> {
    text.filter(|text| !text.is_empty()).map(Cow::into_owned)
}
