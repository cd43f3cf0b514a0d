//! The layer before every route: key, scope, namespaces, rate, a place, and a time limit.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use percent_encoding::percent_decode_str;
use tallyring_realtime::Stores;
use tallyring_realtime::catalog::Scope;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::caller::not_for;
use super::cors;
use super::denial::Denial;
use super::gate::{Gate, Place};
use super::place::{self, ReadPlace};
use super::route::{Class, Dialect, Namespaces, Route};
use super::session;
use super::share::Share;
use super::shared_link;
use super::table::Key;
use super::{Access, Caller, Peer, StreamPlace};
use crate::after::{self, READ_WAIT};
use crate::meter::Meter;
use crate::problem::Problem;
use crate::read::format::asks_page;

/// Counts requests that found no place, by class.
pub(crate) const SHED: &str = "tallyring_shed_total";
const STREAMS: &str = "streams";
const READS: &str = "reads";
const INCREMENTS: &str = "increments";
const BATCHES: &str = "batches";
const OPERATIONS: &str = "operators' requests";
const PAGES: &str = "pages";
/// The classes of requests that may find no place.
pub(crate) const SHED_CLASSES: [&str; 6] = [STREAMS, READS, INCREMENTS, BATCHES, OPERATIONS, PAGES];

/// Time limit of operators' requests: a dataset that is adopted is read and checked as a whole.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Lets a request of the router through to its handler, or answers it.
pub(crate) async fn guard(
    State((access, stores, meter)): State<(Arc<Access>, Arc<Stores>, Arc<Meter>)>,
    request: Request,
    next: Next,
) -> Response {
    let began = Instant::now();
    let pattern = request.extensions().get::<MatchedPath>().cloned();
    let pattern = pattern.as_ref().map(MatchedPath::as_str);
    let mut route = Route::of(request.method(), pattern, request.uri().path());
    if pattern.is_none() && !route.dialect.is_bitly() && asks_page(request.headers()) {
        route = Route::MISSING_PAGE;
    }
    let response = permitted((&access, &stores), route, request, next).await;
    meter.note(pattern, response.status().as_u16(), began);
    response
}

/// The answer, which pages of other origins may read where they are allowed to.
async fn permitted(
    (access, stores): (&Access, &Stores),
    route: Route,
    request: Request,
    next: Next,
) -> Response {
    let is_read = matches!(route.scope, None | Some(Scope::Read));
    if access.origins.is_empty() || !is_read {
        return answer((access, stores), route, request, next).await;
    }
    let (parts, body) = request.into_parts();
    if let Some(response) = access.origins.preflight(&parts) {
        return response;
    }
    let origin = access.origins.allowed(&parts.headers).cloned();
    let request = Request::from_parts(parts, body);
    let mut response = answer((access, stores), route, request, next).await;
    if let Some(origin) = origin {
        cors::permit(&mut response, origin);
    }
    response
}

async fn answer(
    (access, stores): (&Access, &Stores),
    route: Route,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    // Only refusals of these say something of it.
    let uri = match route.dialect {
        Dialect::V3 | Dialect::V4 => parts.uri.clone(),
        Dialect::Problem | Dialect::Prometheus => Uri::default(),
    };
    let peer = parts.extensions.get::<Peer>().copied();
    let admitted = admit(access, route, &parts, peer);
    let answered = match admitted {
        Ok(caller) => {
            if route.comes_after
                && let Some(refusal) = wait((access, stores), &caller, &mut parts.uri).await
            {
                return refusal;
            }
            if route.opens.is_some() {
                shared_link::take(&mut parts.uri);
            }
            parts.extensions.insert(caller.clone());
            if route.class == Class::Stream {
                // The place goes to the handler: it is held for as long as the stream lasts.
                match stream_place(access, &caller) {
                    Ok(place) => parts.extensions.insert(Arc::new(place)),
                    Err(denial) => return denial.answer(route.dialect, &uri),
                };
            }
            let request = Request::from_parts(parts, body);
            run(access, route, &caller, next.run(request)).await
        }
        Err(denial) => Err(denial),
    };
    answered.unwrap_or_else(|denial| denial.answer(route.dialect, &uri))
}

/// The caller, where the caller may do this. Without keys only addresses are known, and everybody may do everything.
/// Fails for no key, a wrong key, or a key that lacks a right.
pub(crate) fn admit(
    access: &Access,
    route: Route,
    request: &Parts,
    peer: Option<Peer>,
) -> Result<Caller, Denial> {
    let Some(key) = allowed(access, route, request, peer)? else {
        let known = peer.filter(|_| route.scope.is_some());
        return Ok(Caller::at(known.map(|peer| peer.0)));
    };
    let now = access.now();
    if let Some(rate) = &key.rate {
        rate.take(now).map_err(|wait| Denial::TooMany {
            what: "The key's limit of items a second is reached",
            wait,
        })?;
    }
    Ok(Caller::new(key, now))
}

/// As [`admit`], but takes nothing of the key's rate.
pub(crate) fn check(
    access: &Access,
    route: Route,
    request: &Parts,
    peer: Option<Peer>,
) -> Result<(), Denial> {
    allowed(access, route, request, peer).map(drop)
}

/// The key, or the share, of a caller that may do this; none where none is needed.
fn allowed(
    access: &Access,
    route: Route,
    request: &Parts,
    peer: Option<Peer>,
) -> Result<Option<Arc<Key>>, Denial> {
    let Some(scope) = route.scope else {
        return Ok(None);
    };
    if let Some(bearer) = access.bearer(route, &request.uri)? {
        return Ok(Some(bearer));
    }
    if !access.needs_keys() {
        return match access.may_without_key(route, request) {
            true => Ok(None),
            false => Err(Denial::Forbidden(Problem::new(
                StatusCode::FORBIDDEN,
                "Forbidden",
                "A page of another site asks, or `Host` is no name of this server: ask by its address or as `localhost`, \
                 list its other names as `[http] hosts`, or make a key with `tallyring key new`."
                    .to_owned(),
            ))),
        };
    }
    let key = known(access, route, request, peer)?;
    key.check_scope(scope)?;
    if key.namespaces().is_some() {
        hold_to_namespaces(&key, route.namespaces, request.uri.path())?;
    }
    Ok(Some(key))
}

fn known(
    access: &Access,
    route: Route,
    request: &Parts,
    peer: Option<Peer>,
) -> Result<Arc<Key>, Denial> {
    let presented = presented(request, route);
    if presented.iter().all(Option::is_none) {
        return Err(Denial::NoKey);
    }
    let table = access.table.load();
    let table = table.as_ref().ok_or(Denial::NoKey)?;
    if let Some(key) = presented.iter().flatten().find_map(|text| table.find(text)) {
        return Ok(key);
    }
    access.note_wrong_key(peer)
}

/// The keys that a request carries, most specific first. bitly's clients also send a key bare or as a parameter, and a
/// proxy between may add its own in the other place. Pages of this server send it in a cookie.
fn presented(request: &Parts, route: Route) -> [Option<Cow<'_, str>>; 2] {
    let header = in_header(request, route.dialect);
    match route.dialect {
        Dialect::V3 => return [in_query(request), header],
        Dialect::V4 => return [header, in_query(request)],
        Dialect::Problem | Dialect::Prometheus => {}
    }
    let cookie = || {
        let suffices = session::suffices(route, request);
        let key = suffices.then(|| session::key(&request.headers));
        key.flatten().map(Cow::Borrowed)
    };
    [header.or_else(cookie), None]
}

fn in_header(request: &Parts, dialect: Dialect) -> Option<Cow<'_, str>> {
    let value = request.headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    match value.trim().split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Some(token.trim().into()),
        None if dialect.is_bitly() && !value.trim().is_empty() => Some(value.trim().into()),
        _ => None,
    }
}

/// An empty parameter counts as left out, as all others do.
fn in_query(request: &Parts) -> Option<Cow<'_, str>> {
    let mut parameters = request.uri.query()?.split('&');
    let token = parameters.find_map(|part| part.strip_prefix("access_token="))?;
    let token = percent_decode_str(token).decode_utf8().ok()?;
    Some(token).filter(|token| !token.is_empty())
}

fn hold_to_namespaces(key: &Key, namespaces: Namespaces, path: &str) -> Result<(), Denial> {
    match namespaces {
        Namespaces::None | Namespaces::Handler => Ok(()),
        Namespaces::Segment(place) => {
            let segment = path.split('/').nth(place).unwrap_or_default();
            match percent_decode_str(segment).decode_utf8() {
                Ok(name) if !key.may_use(&name) => Err(Denial::Forbidden(not_for(key, &name))),
                // A segment that cannot be decoded is no namespace: the handler says so.
                _ => Ok(()),
            }
        }
        Namespaces::Fixed(names) => match names.iter().find(|name| !key.may_use(name)) {
            Some(name) => Err(Denial::Forbidden(not_for(key, name))),
            None => Ok(()),
        },
        Namespaces::All => Err(Denial::Forbidden(Problem::new(
            StatusCode::FORBIDDEN,
            "Forbidden",
            format!(
                "The key {} is for the namespaces {} only; this answer tells of all namespaces.",
                key.id,
                key.namespaces().unwrap_or_default().join(", ")
            ),
        ))),
    }
}

/// Takes the position that a read comes after out of its address, and waits for it. A read that waits has one of the
/// client's places and none of those in which reads work, so it holds up nobody else. Returns the answer to a read that
/// goes no further.
async fn wait(
    (access, stores): (&Access, &Stores),
    caller: &Caller,
    uri: &mut Uri,
) -> Option<Response> {
    let counted = match after::take(uri) {
        Ok(None) => Ok(()),
        Ok(Some(position)) if after::is_counted(stores, &position) => Ok(()),
        Ok(Some(position)) => match access.waiting_place(caller) {
            Ok(_place) => after::counted(stores, &position, READ_WAIT).await,
            Err(denial) => return Some(denial.answer(Dialect::Problem, uri)),
        },
        Err(problem) => Err(problem),
    };
    counted.err().map(Problem::into_response)
}

/// Answers in a place of the route's class, within the time limit. Fails when no place is free, or it took too long.
pub(crate) async fn run(
    access: &Access,
    route: Route,
    caller: &Caller,
    answering: impl Future<Output = Response>,
) -> Result<Response, Denial> {
    if route.class != Class::Query {
        return run_here(access, route, answering).await;
    }
    let (own, awaited) = match access.share_of(caller) {
        Some(share) if share.reads_wait() => (None, Some(share.reads())),
        Some(share) => (Some(share.read()?), None),
        None => (None, None),
    };
    let places = access.queries.enter(awaited).await;
    let (of_all, awaited) = places.ok_or_else(|| shed(READS))?;
    let place = ReadPlace::new(of_all, own.or(awaited));
    let limit = access.limits.request_timeout;
    tokio::time::timeout(limit, place::held(place, answering))
        .await
        .map_err(|_| timed_out(route, limit))
}

/// Answers in a place of the route's class, which is not that of reads, within the time limit.
async fn run_here(
    access: &Access,
    route: Route,
    answering: impl Future<Output = Response>,
) -> Result<Response, Denial> {
    let (gate, what) = match route.class {
        Class::Free | Class::Query | Class::Stream => return Ok(answering.await),
        // It takes its place itself once its body is there: a slow one holds none.
        Class::Batch => {
            let limit = access.limits.request_timeout;
            let answered = tokio::time::timeout(limit, answering).await;
            return answered.map_err(|_| timed_out(route, limit));
        }
        Class::Increment => (&access.increments, INCREMENTS),
        Class::Admin => (&access.admin, OPERATIONS),
        Class::Page => (&access.pages, PAGES),
    };
    let _place = gate.enter().ok_or_else(|| shed(what))?;
    let limit = match route.class {
        Class::Admin => access.limits.request_timeout.max(OPERATION_TIMEOUT),
        _ => access.limits.request_timeout,
    };
    // A queued write is written even when its answer is given up here.
    tokio::time::timeout(limit, answering)
        .await
        .map_err(|_| timed_out(route, limit))
}

/// The place of a request, and one of its client's own.
pub struct HeldPlace<'a> {
    _place: Place<'a>,
    _own: Option<OwnedSemaphorePermit>,
}

impl<'a> HeldPlace<'a> {
    /// A place of `gate`, beside one of the client's own. Fails where the latter was denied, and with 503 where no
    /// place for `what` is free.
    fn of(
        gate: &'a Gate,
        what: &'static str,
        own: Option<Result<OwnedSemaphorePermit, Denial>>,
    ) -> Result<Self, Denial> {
        Ok(Self {
            _own: own.transpose()?,
            _place: gate.enter().ok_or_else(|| shed(what))?,
        })
    }
}

impl Access {
    /// The places that this caller may have; none where neither a key nor an address is known.
    fn share_of(&self, caller: &Caller) -> Option<Share> {
        match caller.key() {
            Some(key) => Some(key.share.clone()),
            None => {
                let address = caller.address()?;
                Some(self.addresses.of(address, &self.limits))
            }
        }
    }

    /// The bytes that the reservations of this caller may take, and the refusal for more; none where neither a key nor
    /// an address is known.
    pub fn room_for_reservations(&self, caller: &Caller) -> Option<(Arc<Semaphore>, Denial)> {
        Some(self.share_of(caller)?.reservations())
    }

    /// A place for a batch of this caller. Fails with 503 where none is free, 429 where the client's other batches have
    /// all that one client may have.
    pub fn batch_place(&self, caller: &Caller) -> Result<HeldPlace<'_>, Denial> {
        let own = self.share_of(caller).map(|share| share.batch());
        HeldPlace::of(&self.batches, BATCHES, own)
    }

    /// A place for a read of this caller that waits for a position. Fails as that of a batch does.
    fn waiting_place(&self, caller: &Caller) -> Result<HeldPlace<'_>, Denial> {
        let own = self.share_of(caller).map(|share| share.read());
        HeldPlace::of(&self.positions, READS, own)
    }
}

/// A place for a stream, one of the caller's own.
fn stream_place(access: &Access, caller: &Caller) -> Result<StreamPlace, Denial> {
    let own = access.share_of(caller).map(|share| share.stream());
    let own = own.transpose()?;
    access.streams.enter(own).ok_or_else(|| shed(STREAMS))
}

fn shed(what: &'static str) -> Denial {
    metrics::counter!(SHED, "class" => what).increment(1);
    Denial::Busy(what)
}

fn timed_out(route: Route, limit: Duration) -> Denial {
    Denial::TimedOut {
        limit,
        is_write: route.scope != Some(Scope::Read),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::AccessLimits;
    use crate::access::key::NewKey;
    use crate::access::table::KeyTable;
    use parking_lot::Mutex;
    use tallyring_records::KeyEntry;
    use tokio::sync::oneshot;

    #[test]
    fn one_address_leaves_places_of_batches_to_others() {
        let limits = AccessLimits {
            batches: 16,
            ..AccessLimits::default()
        };
        let access = Access::open(limits);
        let at = |address: &str| Caller::at(Some(address.parse().expect("an address")));
        let (greedy, other) = (at("2001:db8::1"), at("192.0.2.1"));
        let taken = [(); 14].map(|()| access.batch_place(&greedy).ok());
        assert!(taken.iter().all(Option::is_some));
        // Another address of one subscriber's network is the same client.
        for caller in [&greedy, &at("2001:db8::2")] {
            let refused = access.batch_place(caller).err();
            assert!(matches!(refused, Some(Denial::TooMany { .. })));
        }
        let others = [(); 2].map(|()| access.batch_place(&other).ok());
        assert!(others.iter().all(Option::is_some));
        let refused = access.batch_place(&other).err();
        assert!(matches!(refused, Some(Denial::Busy(_))));
        drop(taken);
        assert!(access.batch_place(&greedy).is_ok());
    }

    #[tokio::test]
    async fn reads_of_links_wait_for_each_other_and_leave_places_to_keys() {
        let limits = AccessLimits {
            queries: 2,
            query_wait: Duration::from_secs(60),
            ..AccessLimits::default()
        };
        let access = Access::open(limits);
        let pattern = "/v1/{namespace}/{key}/counts";
        let route = Route::of(&axum::http::Method::GET, Some(pattern), "/v1/l/a/counts");
        let places = Share::of_links(&limits);
        let link = |id: &str| {
            let entry = KeyEntry::new(id.into(), [0; 32], Vec::new(), 1);
            Caller::new(
                Arc::new(Key::of_link(&entry, places.clone())),
                Duration::ZERO,
            )
        };
        let (one, other) = (link("a"), link("b"));
        let key = NewKey::local(|bytes| bytes.fill(1));
        let table = KeyTable::new(Vec::new(), &key, &limits, None);
        let key = Caller::new(table.find(&key.text).expect("in force"), Duration::ZERO);
        let ended = Mutex::new(Vec::new());
        let read =
            async |caller: &Caller, name: &'static str, after: Option<oneshot::Receiver<()>>| {
                let answering = async {
                    if let Some(after) = after {
                        after.await.expect("told");
                    }
                    ended.lock().push(name);
                    Response::default()
                };
                assert!(
                    run(&access, route, caller, answering).await.is_ok(),
                    "{name}"
                );
            };
        let (release, held) = oneshot::channel();
        tokio::join!(
            read(&one, "one", Some(held)),
            read(&other, "other", None),
            async {
                read(&key, "key", None).await;
                release.send(()).expect("it waits");
            }
        );
        assert_eq!(*ended.lock(), ["key", "one", "other"]);
    }

    #[test]
    fn a_key_takes_half_of_the_places_of_batches_and_all_keys_no_more_than_there_are() {
        let limits = AccessLimits {
            batches: 4,
            ..AccessLimits::default()
        };
        let access = Access::open(limits);
        let bearer = |fill: fn(&mut [u8])| {
            let key = NewKey::local(fill);
            let table = KeyTable::new(Vec::new(), &key, &limits, None);
            Caller::new(table.find(&key.text).expect("in force"), Duration::ZERO)
        };
        let (one, other, third) = (
            bearer(|bytes| bytes.fill(1)),
            bearer(|bytes| bytes.fill(2)),
            bearer(|bytes| bytes.fill(3)),
        );
        let taken = [&one, &one, &other].map(|caller| access.batch_place(caller).ok());
        assert!(taken.iter().all(Option::is_some));
        let refused = access.batch_place(&one).err();
        assert!(matches!(refused, Some(Denial::TooMany { .. })));
        let last = access.batch_place(&other).ok();
        assert!(last.is_some());
        let refused = access.batch_place(&third).err();
        assert!(matches!(refused, Some(Denial::Busy(_))));
        drop(taken);
        assert!(access.batch_place(&third).is_ok());
    }
}
