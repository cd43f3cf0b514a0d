//! The way of every request through the API: its id, the bounds of its head, its measurement, and an answer even to a
//! panic.
//!
//! A single increment, a plain read of one key and a small question about actions are answered here, without the
//! router: to find the route and to pass boxed layers and handlers would cost more than to count it. They pass the same
//! steps as every other request.

use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::DerefMut;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::http::request::Parts;
use axum::http::{Method, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use tallyring_realtime::Part;
use tower::ServiceExt;

use crate::access::{self, Caller, Denial, Peer, Route};
use crate::actions::direct::Direct as Question;
use crate::drain::Drain;
use crate::meter::Meter;
use crate::nodes;
use crate::orders::{self, Concerned, Told};
use crate::problem::Problem;
use crate::read::direct::Direct;
use crate::request_id::{self, AccessLog};
use crate::state::ApiState;
use crate::work::Begun;
use crate::write::incr;
use crate::{actions, after, body, compress, deletes, head, problem, read_only};

/// All routes over one state. Needs no socket.
pub struct App {
    state: ApiState,
    meter: Arc<Meter>,
    routes: Router,
    /// True where other nodes may write, whose positions are told then.
    is_node: bool,
    /// The API of each strand alone, for orders; none where the store is not divided.
    of_strands: Vec<App>,
}

impl App {
    /// The API over a state. Metrics are counted by the recorder that is installed now.
    pub fn new(state: ApiState) -> Self {
        let alone = state.of_strands.iter().cloned();
        let of_strands = alone.map(|state| Self::begin(state, Vec::new())).collect();
        Self::begin(state, of_strands)
    }

    fn begin(state: ApiState, of_strands: Vec<App>) -> Self {
        let meter = Arc::new(Meter::new());
        Self {
            is_node: state.store().world().objects.is_some(),
            routes: crate::routes(state.clone(), Arc::clone(&meter)),
            meter,
            state,
            of_strands,
        }
    }

    /// The store, for tests that flush it.
    #[cfg(test)]
    pub(crate) fn store(&self) -> &tallyring_realtime::Store {
        self.state.store()
    }

    /// The stores of all strands, for tests.
    #[cfg(test)]
    pub(crate) fn stores(&self) -> &tallyring_realtime::Stores {
        self.state.stores()
    }

    /// Answers a request of this address.
    pub async fn answer<B>(self: Arc<Self>, request: Request<B>, peer: IpAddr) -> Response
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        let (mut parts, body) = request.into_parts();
        if !self.of_strands.is_empty() {
            match orders::concerned(&mut parts, self.state.stores()) {
                Ok(Some(concerned)) => {
                    return Box::pin(self.order(parts, body, peer, concerned)).await;
                }
                Ok(None) => {}
                Err(problem) => return problem.into_response(),
            }
        }
        self.answer_here(parts, body, peer).await
    }

    /// Has an order carried out in the strands that it concerns.
    async fn order<B>(&self, parts: Parts, body: B, peer: IpAddr, concerned: Concerned) -> Response
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        let mut told = Told::new(self.state.stores());
        let mut response = match concerned {
            Concerned::One(strand) => {
                let response = self.of_strands[strand].answer_here(parts, body, peer).await;
                told.note(strand, &response);
                response
            }
            Concerned::All => {
                let drain = Drain::of(&parts);
                let answer = async |body| self.order_all(parts, body, peer, &mut told).await;
                drain.behind(Body::new(body), answer).await
            }
            Concerned::OfUser => {
                let drain = Drain::of(&parts);
                let answer = async |body| self.order_of_user(parts, body, peer, &mut told).await;
                drain.behind(Body::new(body), answer).await
            }
        };
        response.headers_mut().remove(after::POSITION);
        after::tell(&mut response, self.state.stores(), Some(told.position()));
        response
    }

    /// Has an order carried out in one strand after the other, until one refuses it.
    async fn order_all(
        &self,
        mut parts: Parts,
        body: Body,
        peer: IpAddr,
        told: &mut Told,
    ) -> Response {
        let taken = self.take_body(&mut parts, body, (peer, orders::BODY_BYTES_MAX));
        let body = match taken.await {
            Ok(body) => body,
            Err(refused) => return refused,
        };
        if parts.uri.path() == deletes::PATH
            && let Err(problem) = deletes::check_strands(self.state.stores(), body.share()).await
        {
            return problem.into_response();
        }
        let mut answers = Vec::new();
        for (strand, app) in self.of_strands.iter().enumerate() {
            let shared = Full::from(body.share());
            let answer = app.answer_here(parts.clone(), shared, peer).await;
            told.note(strand, &answer);
            if !answer.status().is_success() {
                return answer;
            }
            answers.push(answer);
        }
        orders::together(answers).await
    }

    /// Has an order about a user carried out by the node that writes the strand of the user. That node answers from all
    /// strands, once it has counted what the user's reservations need.
    async fn order_of_user(
        &self,
        mut parts: Parts,
        body: Body,
        peer: IpAddr,
        told: &mut Told,
    ) -> Response {
        let taken = self.take_body(&mut parts, body, (peer, actions::BODY_BYTES_MAX));
        let body = match taken.await {
            Ok(body) => body,
            Err(refused) => return refused,
        };
        let (user, stores) = (orders::user_of(&body).await, self.state.stores());
        // The body takes its memory until the answer is there.
        let shared = Full::from(body.share());
        let Some(user) = user else {
            return self.answer_here(parts, shared, peer).await;
        };
        let strand = stores.strand_of_user(&user);
        let app = &self.of_strands[strand];
        let answer = match app.elsewhere(&parts) {
            Some(_) => app.answer_here(parts, shared, peer).await,
            None => match after::caught_up(stores, &stores.needed_by(&user)).await {
                Ok(()) => self.answer_here(parts, shared, peer).await,
                Err(problem) => return problem.into_response(),
            },
        };
        told.note(strand, &answer);
        answer
    }

    /// Reads the body of an order that its head allows, and takes out the headers about that body.
    async fn take_body(
        &self,
        parts: &mut Parts,
        body: Body,
        (peer, bytes_max): (IpAddr, usize),
    ) -> Result<body::Received, Response> {
        if let Some(denied) = self.denial(parts, peer).await {
            return Err(denied);
        }
        let read = body::read(&parts.headers, body, bytes_max).await;
        let body = read.map_err(IntoResponse::into_response)?;
        orders::leave_out_body(&mut parts.headers);
        Ok(body)
    }

    /// The answer to an order that its head does not allow: no body of a stranger is read. The paths of such orders
    /// have no parameters.
    async fn denial(&self, parts: &Parts, peer: IpAddr) -> Option<Response> {
        let path = parts.uri.path();
        let route = Route::of(&parts.method, Some(path), path);
        let allowed = access::check(&self.state.access, route, parts, Some(Peer(peer)));
        let denial = allowed.err()?;
        let log = AccessLog::new(parts);
        let denied = async { denial.answer(route.dialect, &parts.uri) };
        let mut response = log.answered(denied).await;
        let status = response.status().as_u16();
        self.meter.note(Some(path), status, log.began);
        log.close(&mut response);
        Some(response)
    }

    async fn answer_here<B>(&self, mut parts: Parts, body: B, peer: IpAddr) -> Response
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        let log = AccessLog::new(&parts);
        let tells_position = parts.uri.path().starts_with("/v1/");
        let tells_told = self.is_node && nodes::changes(&parts.method, parts.uri.path());
        let peer = Peer(peer);
        // A value is copied at every step: frequent requests are handed on by reference, others in a box.
        let direct = Direct::of(&parts).filter(|_| body.is_end_stream());
        let mut response = if let Some(problem) = read_only::refusal(self.state.store(), &parts) {
            let refusing = read_only::refuse(&parts, body, problem);
            log.answered(caught(Box::pin(refusing))).await
        } else if let Some(writer) = self.elsewhere(&parts) {
            let (nodes, store) = (&self.state.nodes, self.state.store());
            let sending = nodes.forward(store, parts, body, writer.as_deref());
            log.answered(caught(Box::pin(sending))).await
        } else if nodes::is_for_nodes(&self.state, &parts) {
            let taking = self.take(&parts, Body::new(body), log.began);
            log.answered(caught(Box::pin(taking))).await
        } else if let Some(read) = direct {
            let answering = pin!(self.read(&parts, read, peer, log.began));
            log.answered_often(caught(answering)).await
        } else if parts.uri.path() == incr::PATH && body.is_end_stream() {
            let answering = pin!(self.increment(&parts, peer, log.began));
            log.answered_often(caught(answering)).await
        } else if let Some(question) = Question::of(&parts, &body) {
            let asked = (question, Body::new(body));
            let answering = pin!(self.question(&parts, asked, peer, log.began));
            log.answered_often(caught(answering)).await
        } else {
            parts.extensions.insert(peer);
            let answering = Box::pin(self.other(parts, body, peer, log.began));
            log.answered(caught(answering)).await
        };
        if tells_position {
            let told = tells_told.then(|| self.state.told());
            after::tell(&mut response, self.state.stores(), told);
        }
        log.close(&mut response);
        response
    }

    /// The address of the node that answers the request, where this one does not: it follows that node's log. An
    /// address may be unknown.
    fn elsewhere(&self, parts: &Parts) -> Option<Option<Arc<str>>> {
        if !self.of_strands.is_empty() {
            return None;
        }
        match self.state.store().part() {
            Part::Follows { writer } if nodes::is_sent_on(&parts.method, parts.uri.path()) => {
                Some(writer)
            }
            _ => None,
        }
    }

    /// Takes what another node hands over.
    async fn take(&self, parts: &Parts, body: Body, began: Instant) -> Response {
        let answer = async |body| match head::check(parts) {
            Ok(()) => nodes::take(&self.state, parts, body).await,
            Err(problem) => problem.into_response(),
        };
        let response = Drain::of(parts).behind(body, answer).await;
        let status = response.status().as_u16();
        self.meter.note(Some(parts.uri.path()), status, began);
        response
    }

    /// Anything but a plain read, a small question about actions, or a single increment without a body.
    async fn other<B>(&self, parts: Parts, body: B, peer: Peer, began: Instant) -> Response
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        let drain = Drain::of(&parts);
        // A body without bytes needs no box.
        let body = if body.is_end_stream() {
            Body::empty()
        } else {
            Body::new(body)
        };
        let answer = async move |body| {
            if let Err(problem) = head::check(&parts) {
                return problem.into_response();
            }
            if parts.uri.path() == incr::PATH {
                return self.increment(&parts, peer, began).await;
            }
            let request = Request::from_parts(parts, body);
            let Ok(response) = self.routes.clone().oneshot(request).await;
            response
        };
        drain.behind(body, answer).await
    }

    async fn increment(&self, parts: &Parts, peer: Peer, began: Instant) -> Response {
        let count = async |route, caller: Caller| {
            let counting = pin!(self.count(parts, &caller, peer));
            access::run(&self.state.access, route, &caller, counting).await
        };
        self.guarded(parts, incr::PATH, (peer, began), count).await
    }

    async fn read(&self, parts: &Parts, read: Direct, peer: Peer, began: Instant) -> Response {
        let pattern = read.pattern;
        let answer = async |route, caller: Caller| {
            let begun = read.begin(&self.state, caller.clone(), parts);
            self.finish(parts, (route, &caller), begun).await
        };
        self.guarded(parts, pattern, (peer, began), answer).await
    }

    /// A question about actions. Its body is read before it takes a place, so a slow one holds none.
    async fn question(
        &self,
        parts: &Parts,
        (question, body): (Question, Body),
        peer: Peer,
        began: Instant,
    ) -> Response {
        let behind = async |body| {
            let answer = async |route, caller: Caller| {
                let head = (&parts.uri, &parts.headers);
                let begun = question.begin(&self.state, &caller, head, body).await;
                self.finish(parts, (route, &caller), begun).await
            };
            self.guarded(parts, question.path(), (peer, began), answer)
                .await
        };
        Drain::of(parts).behind(body, behind).await
    }

    /// A read that is answered at once takes no place: it would wait for reads that take long.
    async fn finish(
        &self,
        parts: &Parts,
        (route, caller): (Route, &Caller),
        begun: Result<Begun, Problem>,
    ) -> Result<Response, Denial> {
        let answered = match begun {
            Ok(Begun::Answered(response)) => Ok(response),
            Ok(Begun::Large(answering)) => {
                let answering = async { answering.await.into_response() };
                access::run(&self.state.access, route, caller, answering).await
            }
            Err(problem) => Ok(problem.into_response()),
        };
        Ok(compress::answer(&parts.headers, answered?).await)
    }

    /// Does for a request past the router what the layers before a handler do.
    async fn guarded(
        &self,
        parts: &Parts,
        pattern: &'static str,
        (peer, began): (Peer, Instant),
        answer: impl AsyncFnOnce(Route, Caller) -> Result<Response, Denial>,
    ) -> Response {
        if let Err(problem) = head::check(parts) {
            return problem.into_response();
        }
        let route = Route::of(&parts.method, Some(pattern), parts.uri.path());
        let response = match access::admit(&self.state.access, route, parts, Some(peer)) {
            Ok(caller) => answer(route, caller).await,
            Err(denial) => Err(denial),
        };
        let response = response.unwrap_or_else(|denial| denial.answer(route.dialect, &parts.uri));
        let status = response.status().as_u16();
        self.meter.note(Some(pattern), status, began);
        response
    }

    async fn count(&self, parts: &Parts, caller: &Caller, peer: Peer) -> Response {
        let query = parts.uri.query();
        let writes = self.state.writes();
        let request = writes.enrich.of_request(&parts.headers, peer.0);
        let counted = match parts.method {
            Method::GET => incr::incr_get(&self.state, caller, query, request).await,
            Method::POST => incr::incr_post(&self.state, caller, query, request).await,
            // A HEAD would count without saying so.
            _ => return incr::no_method(&parts.method),
        };
        match counted {
            Ok(accepted) => {
                self.meter.count(&accepted);
                incr::answer(&accepted)
            }
            Err(problem) => problem.into_response(),
        }
    }
}

/// Makes an answer of a panic.
async fn caught(mut answering: Pin<impl DerefMut<Target: Future<Output = Response>>>) -> Response {
    poll_fn(|context| {
        // A future that panicked is not polled again.
        let poll = AssertUnwindSafe(|| answering.as_mut().poll(context));
        catch_unwind(poll)
            .unwrap_or_else(|_| Poll::Ready(request_id::span().in_scope(problem::panicked)))
    })
    .await
}

/// Answers one request without a socket: status and body.
pub async fn ask(app: &Arc<App>, request: Request<Body>) -> Result<(u16, Bytes), axum::Error> {
    let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let response = Arc::clone(app).answer(request, peer).await;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await?.to_bytes();
    Ok((status, body))
}
