//! The layer before every route: key, scope, namespaces, rate, a place, and a time limit.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::RequestExt;
use axum::extract::{MatchedPath, RawPathParams, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use percent_encoding::percent_decode_str;
use tallyring_realtime::catalog::Scope;
use tracing::Instrument;

use super::caller::not_for;
use super::cors;
use super::refusal::Refusal;
use super::route::{Class, Namespaces, Route};
use super::session;
use super::table::Key;
use super::{Access, Caller};
use crate::problem::Problem;

/// The address of who asks, in the request's extensions once keys are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(pub IpAddr);

/// Lets a request through to its handler, or answers it.
pub async fn guard(State(access): State<Arc<Access>>, request: Request, next: Next) -> Response {
    let pattern = request
        .extensions()
        .get::<MatchedPath>()
        .map(MatchedPath::as_str);
    let route = Route::of(request.method(), pattern, request.uri().path());
    let is_read = matches!(route.scope, None | Some(Scope::Read));
    if access.origins.is_empty() || !is_read {
        return answer(&access, route, request, next).await;
    }
    let (parts, body) = request.into_parts();
    if let Some(response) = access.origins.preflight(&parts) {
        return response;
    }
    let origin = access.origins.allowed(&parts.headers).cloned();
    let request = Request::from_parts(parts, body);
    let mut response = answer(&access, route, request, next).await;
    if let Some(origin) = origin {
        cors::permit(&mut response, origin);
    }
    response
}

async fn answer(access: &Access, route: Route, mut request: Request, next: Next) -> Response {
    let admitted = match route.scope {
        Some(scope) if access.needs_keys() => admit(access, route, scope, &mut request).await,
        _ => Ok(()),
    };
    let answered = match admitted {
        Ok(()) => run(access, route, request, next).await,
        Err(refusal) => Err(refusal),
    };
    answered.unwrap_or_else(|refusal| refusal.answer(route.dialect))
}

/// Checks the key and puts the [`Caller`] into the request.
async fn admit(
    access: &Access,
    route: Route,
    scope: Scope,
    request: &mut Request,
) -> Result<(), Refusal> {
    let key = known(access, route, request)?;
    if !key.has(scope) {
        let detail = format!(
            "key {} has not the scope `{}`; it has {}",
            key.id,
            scope.name(),
            key.scopes()
        );
        return Err(Refusal::Forbidden(Problem::new(
            StatusCode::FORBIDDEN,
            "Forbidden",
            detail,
        )));
    }
    if key.namespaces().is_some() {
        hold_to_namespaces(&key, route.namespaces, request).await?;
    }
    let now = access.now();
    if let Some(rate) = &key.rate {
        rate.take(now).map_err(|wait| Refusal::TooMany {
            what: "the key's limit of items a second is reached",
            wait,
        })?;
    }
    request.extensions_mut().insert(Caller::new(key, now));
    Ok(())
}

fn known(access: &Access, route: Route, request: &Request) -> Result<Arc<Key>, Refusal> {
    let text = presented(request, route).ok_or(Refusal::NoKey)?;
    let table = access.table.load();
    let table = table.as_ref().ok_or(Refusal::NoKey)?;
    if let Some(key) = table.find(&text) {
        return Ok(key);
    }
    access.note_wrong_key(request.extensions().get::<Peer>().copied())
}

/// The key as the client sent it. bitly's clients send it bare or as a parameter, too, and pages of this
/// server in a cookie.
fn presented(request: &Request, route: Route) -> Option<Cow<'_, str>> {
    let dialect = route.dialect;
    let header = request.headers().get(header::AUTHORIZATION);
    if let Some(value) = header.and_then(|value| value.to_str().ok()) {
        match value.trim().split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => {
                return Some(token.trim().into());
            }
            None if dialect.is_bitly() => return Some(value.trim().into()),
            _ => {}
        }
    }
    if !dialect.is_bitly() {
        let suffices = session::suffices(route, request.method(), request.headers());
        let key = suffices.then(|| session::key(request.headers()));
        return key.flatten().map(Cow::Borrowed);
    }
    let mut parameters = request.uri().query()?.split('&');
    let token = parameters.find_map(|part| part.strip_prefix("access_token="))?;
    percent_decode_str(token).decode_utf8().ok()
}

async fn hold_to_namespaces(
    key: &Key,
    namespaces: Namespaces,
    request: &mut Request,
) -> Result<(), Refusal> {
    match namespaces {
        Namespaces::None | Namespaces::Handler => Ok(()),
        Namespaces::Path => {
            let parameters = request.extract_parts::<RawPathParams>().await;
            let name = parameters.ok().and_then(|parameters| {
                let found = parameters.iter().find(|(name, _)| *name == "namespace");
                found.map(|(_, value)| value.to_owned())
            });
            match name {
                Some(name) if !key.may_use(&name) => Err(Refusal::Forbidden(not_for(key, &name))),
                // What cannot be decoded is no namespace: the handler says so.
                _ => Ok(()),
            }
        }
        Namespaces::Bitly => match ["l", "u", "d"].iter().find(|name| !key.may_use(name)) {
            Some(name) => Err(Refusal::Forbidden(not_for(key, name))),
            None => Ok(()),
        },
        Namespaces::All => Err(Refusal::Forbidden(Problem::new(
            StatusCode::FORBIDDEN,
            "Forbidden",
            format!(
                "key {} is for the namespaces {} only; this tells of all",
                key.id,
                key.namespaces().unwrap_or_default().join(", ")
            ),
        ))),
    }
}

/// Runs the handler in a place of its class, within the time limit.
async fn run(
    access: &Access,
    route: Route,
    mut request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let (gate, what) = match route.class {
        Class::Free => return Ok(next.run(request).await),
        // The place goes to the handler: it is held for as long as the stream lasts.
        Class::Stream => {
            let place = access.streams.enter().ok_or_else(|| shed("streams"))?;
            request.extensions_mut().insert(Arc::new(place));
            return Ok(next.run(request).await);
        }
        Class::Query => return run_query(access, route, request, next).await,
        Class::Increment => (&access.increments, "increments"),
        Class::Batch => (&access.batches, "batches"),
        Class::Admin => (&access.admin, "operators' requests"),
    };
    let _place = gate.enter().ok_or_else(|| shed(what))?;
    let limit = access.limits.request_timeout;
    // What a write has queued is written even when its answer is given up here.
    tokio::time::timeout(limit, next.run(request))
        .await
        .map_err(|_| timed_out(route, limit))
}

/// A read holds its place until its work ends, also when nobody waits for it any more: files are read
/// on threads that cannot be interrupted.
async fn run_query(
    access: &Access,
    route: Route,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let place = access.queries.enter().await.ok_or_else(|| shed("reads"))?;
    let limit = access.limits.request_timeout;
    let work = async move {
        let response = next.run(request).await;
        drop(place);
        response
    };
    match tokio::time::timeout(limit, tokio::spawn(work.in_current_span())).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Ok(Err(_)) => Err(shed("reads")),
        Err(_) => Err(timed_out(route, limit)),
    }
}

fn shed(what: &'static str) -> Refusal {
    metrics::counter!("tallyring_shed_total", "class" => what).increment(1);
    Refusal::Busy(what)
}

fn timed_out(route: Route, limit: Duration) -> Refusal {
    Refusal::TimedOut {
        limit,
        is_write: route.scope != Some(Scope::Read),
    }
}
