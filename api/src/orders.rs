//! Orders: requests that concern the logs of a divided store. Each is answered for every strand that it concerns, by
//! the node that writes that strand's log.
//!
//! A divided store answers an order by the APIs of its strands. Each of these knows its strand alone, and sends an
//! order on to the node that writes, with the strand's number in a header. An order that concerns all strands is
//! carried out in one after the other, and ends with the first that refuses it: the refusal is the answer, and the
//! order can be given again. A reservation is decided by the node that writes the strand of its user, from all strands.

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, Limited};
use serde::Deserialize;
use serde_json::Value;
use tallyring_realtime::Stores;
use tallyring_records::input::json;
use tallyring_records::{Offset, Position};

use crate::access::behind;
use crate::actions::reserve;
use crate::after;
use crate::body::{Received, SMALL_BYTES};
use crate::deletes;
use crate::nodes::{self, BATCHES};
use crate::problem::Problem;
use crate::query_string::take_out;
use crate::read::event;

/// Says which strand an order is about that another node sent on.
pub(crate) const STRAND: HeaderName = HeaderName::from_static("tallyring-strand");
/// Name of the parameter by which an operator asks about one strand.
const NAME: &str = "strand";
/// Where reservations are released, by their names.
const RESERVATIONS: &str = "/v1/actions/reservations/";
/// Largest body of an order that concerns all strands.
pub(crate) const BODY_BYTES_MAX: usize = 1 << 20;
/// Largest answer of a strand that is looked into.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// The strands that a request concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Concerned {
    One(usize),
    All,
    /// The strand of the user whom the body names, by what all strands have counted.
    OfUser,
}

/// The strands of a divided store that a request concerns which one strand answers by itself; none for any other.
///
/// # Errors
/// With 400 for a strand that there is not, and with 501 for a question that only one strand can answer.
pub(crate) fn concerned(parts: &mut Parts, stores: &Stores) -> Result<Option<Concerned>, Problem> {
    let is_read = parts.method.is_safe();
    let path = parts.uri.path();
    if let Some(strand) = path.strip_prefix(BATCHES) {
        // Another one is no route.
        let strand = strand.parse().ok();
        let strand = strand.filter(|strand| *strand < stores.all().len());
        return Ok(strand.map(Concerned::One));
    }
    if let Some(id) = voided(&parts.uri).filter(|_| !is_read) {
        return Ok(Some(Concerned::One(stores.strand_of(&id))));
    }
    if path == reserve::PATH && !is_read {
        return Ok(Some(Concerned::OfUser));
    }
    if let Some(id) = path.strip_prefix(RESERVATIONS).filter(|_| !is_read) {
        // No other text is the name of one.
        let id = id.parse().ok();
        return Ok(id.map(|id| Concerned::One(stores.strand_of_hold(id))));
    }
    let of_first = ["/v1/admin/keys", "/v1/admin/shares", "/v1/admin/datasets"];
    let is_first = of_first.into_iter().any(|first| path.starts_with(first));
    if is_first {
        return Ok((!is_read).then_some(Concerned::One(0)));
    }
    let is_each = path.starts_with("/v1/admin/reconciles")
        || path.starts_with("/v1/finals")
        || path == "/v1/days"
        || path.starts_with("/v1/admin/generations/");
    let is_job = path == "/v1/admin/rebuild" || path == "/v1/admin/reconcile";
    let of_users_or_keys = path == "/v1/users/erase" || path == deletes::PATH;
    let is_all = is_job || !is_read && of_users_or_keys;
    if !is_each && !is_all && path != "/v1/admin/generations" {
        return Ok(None);
    }
    match named(parts, stores)? {
        None if is_each => Err(Problem::new(
            StatusCode::NOT_IMPLEMENTED,
            "Not possible",
            "Each strand has generations and final versions of its own: name one with `strand`, such as `?strand=0`.",
        )),
        None if is_all => Ok(Some(Concerned::All)),
        one => Ok(one),
    }
}

/// The strand that another node names in a header, or an operator in a parameter, which is taken out of the address.
fn named(parts: &mut Parts, stores: &Stores) -> Result<Option<Concerned>, Problem> {
    // Only another node names one so.
    let header = parts
        .headers
        .get(STRAND)
        .filter(|_| nodes::was_sent_on(parts));
    let header = header.map(|value| value.to_str().unwrap_or_default().parse::<usize>());
    let strand = match header {
        Some(strand) => Some(strand.unwrap_or(usize::MAX)),
        None => take_out(&mut parts.uri, NAME, "the number of a strand, from 0")?,
    };
    let last = stores.all().len() - 1;
    match strand {
        Some(strand) if strand > last => Err(Problem::malformed(
            NAME,
            &strand.to_string(),
            format!("must be 0 to {last}: this store has no further strands"),
        )),
        strand => Ok(strand.map(Concerned::One)),
    }
}

/// The user whom a body names; none where it cannot be read, which the answer says.
pub(crate) async fn user_of(body: &Received) -> Option<String> {
    #[derive(Deserialize)]
    struct OfUser {
        user: String,
    }
    let bytes = body.share();
    let read = move || Ok(json::parse_as::<OfUser>(&bytes).ok());
    let of = match body.len() <= SMALL_BYTES {
        true => read(),
        false => behind(read).await,
    };
    Some(of.ok()??.user)
}

/// The id that a request voids.
fn voided(uri: &Uri) -> Option<String> {
    let id = uri.path().strip_prefix("/v1/events/")?;
    event::known_as(id.strip_suffix("/void")?, uri.query())
}

/// The answer to an order that all strands took, from theirs in their order: the first that tells of a job that runs
/// still, else of one that failed, else that of the first strand. The number of the job is that of the first strand,
/// beside those of all strands, and a position that of all strands.
pub(crate) async fn together(answers: Vec<Response>) -> Response {
    let mut bodies = Vec::new();
    for answer in answers {
        let (head, body) = answer.into_parts();
        let Ok(body) = Limited::new(body, ANSWER_BYTES_MAX).collect().await else {
            return Problem::unavailable("A strand did not answer to the end; ask again.")
                .into_response();
        };
        bodies.push((head, body.to_bytes()));
    }
    let parsed = bodies
        .iter()
        .map(|(_, body)| serde_json::from_slice::<Value>(body).ok());
    let parsed: Vec<Option<Value>> = parsed.collect();
    let first = |state: &str| {
        let mut states = parsed
            .iter()
            .map(|value| value.as_ref().map(|value| &value["state"]));
        states.position(|found| found.is_some_and(|found| found == state))
    };
    let told = first("running").or_else(|| first("failed")).unwrap_or(0);
    let positions = parsed
        .iter()
        .map(|value| value.as_ref()?["position"].as_str());
    let positions: Option<Vec<&str>> = positions.collect();
    let jobs = parsed
        .iter()
        .map(|value| value.as_ref()?.get("job").cloned());
    let jobs: Option<Vec<Value>> = jobs.collect();
    let (head, body) = bodies.swap_remove(told);
    let body = match parsed[told].clone() {
        Some(mut value) => {
            if let Some(positions) = positions {
                value["position"] = positions.join(",").into();
            }
            if let Some(jobs) = jobs {
                if !jobs[0].is_null() {
                    value["job"] = jobs[0].clone();
                }
                value["jobs"] = jobs.into();
            }
            value.to_string().into()
        }
        None => body,
    };
    let mut answer = Response::from_parts(head, Body::from(body));
    answer.headers_mut().remove(header::CONTENT_LENGTH);
    answer
}

/// Takes out the headers about a body that was read.
pub(crate) fn leave_out_body(headers: &mut HeaderMap) {
    for name in [
        header::CONTENT_ENCODING,
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
        header::EXPECT,
    ] {
        headers.remove(name);
    }
}

/// How far strands had counted when they answered an order.
pub(crate) struct Told(Vec<Offset>);

impl Told {
    /// Begins with how far this node has counted.
    pub(crate) fn new(stores: &Stores) -> Self {
        Self(stores.position().offsets().to_vec())
    }

    /// Notes the position that the answer of a strand tells: that of the strand alone, or of all of another node's.
    pub(crate) fn note(&mut self, strand: usize, answer: &Response) {
        if let Some(told) = after::told(answer.headers(), strand) {
            self.0[strand] = self.0[strand].max(told);
        }
    }

    /// The position of all strands.
    pub(crate) fn position(self) -> Position {
        self.0.into_iter().collect()
    }
}
