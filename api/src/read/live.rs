//! `GET /v1/live`: counts as they come, as server-sent events.
//!
//! A stream says once a second how much came in each second of the last minute, and of one key what
//! it counted today. It reads the key only when something was counted since. Streams are few (see
//! [`StreamPlace`]), and end with the server, with their key, or when the client is gone.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body_util::channel::{Channel, Sender};
use serde::Serialize;
use tallyring_realtime::{RECENT_SECONDS_MAX, View};
use tallyring_records::Namespace;

use super::answering::answer_all;
use super::limits::ResponseLimits;
use super::period::{Period, span, take_zone};
use super::question::{Question, Shape, check_key, declared};
use crate::access::{Caller, Length, StreamPlace};
use crate::calendar::{Zone, rfc3339_utc};
use crate::problem::{Problem, Result};
use crate::query_string::QueryString;
use crate::state::ApiState;
use crate::work::reading;

const KNOWN: &str = "namespace, key, timezone and hour_offset";
const TICK: Duration = Duration::from_secs(1);
/// Messages that wait for a client that reads slowly; one that does not read at all is cut off.
const WAITING_MAX: usize = 4;

/// The data of a tick.
#[derive(Serialize)]
pub(crate) struct Tick {
    now: String,
    /// Grows with every increment; for limited keys, with every tick before which there was some.
    applied: u64,
    /// Increments in each of the last 60 seconds, oldest first, whatever their keys; null for limited keys and from
    /// a read-only server
    seconds: Option<Vec<u64>>,
    /// The count of the key today, in the zone of the request
    today: Option<u64>,
}

/// A key that is watched.
struct Watched {
    namespace: Namespace,
    key: String,
    zone: Zone,
}

/// Counts as they come
///
/// Server-sent events: `tick` once a second. With `namespace` and `key` it also says what that key counted today. A
/// namespace that is taken out of the configuration ends the stream with an event `problem`, whose data is a `Problem`.
#[utoipa::path(get, path = "/v1/live", tag = "read",
    params(
        ("namespace" = Option<String>, Query, description = "Namespace of the key", example = "l"),
        ("key" = Option<String>, Query, description = "A key to watch", example = "abc"),
        ("timezone" = Option<String>, Query, description = "IANA time zone of today", example = "America/New_York"),
        ("hour_offset" = Option<f64>, Query, description = "Hours from UTC instead of a zone"),
    ),
    responses((status = 200, description = "Events `tick`, the data of each a `Tick` as JSON", body = String, content_type = "text/event-stream",
        example = "event: tick\ndata: {\"now\":\"2012-03-16T18:40:47Z\",\"applied\":17,\"seconds\":[0,2,1],\"today\":5}\n\n")),
)]
pub(crate) async fn live(
    State(state): State<ApiState>,
    caller: Caller,
    Extension(place): Extension<Arc<StreamPlace>>,
    uri: Uri,
) -> Result<Response> {
    let mut query = QueryString::parse(uri.query())?;
    let watched = watched(&state, &caller, &mut query)?;
    query.finish(KNOWN)?;
    metrics::counter!("tallyring_live_streams_total").increment(1);
    let (sender, body) = Channel::new(WAITING_MAX);
    let stream = Stream {
        state,
        caller,
        watched: watched.map(Arc::new),
        today: None,
        applied: None,
        changes: 0,
    };
    tokio::spawn(async move {
        tokio::select! {
            () = stream.run(sender) => {}
            () = place.closed() => {}
        }
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        // A proxy that collects answers would hold the ticks back.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    Ok((headers, Body::new(body)).into_response())
}

fn watched(state: &ApiState, caller: &Caller, query: &mut QueryString) -> Result<Option<Watched>> {
    let zone = take_zone(query)?;
    let (namespace, key) = match (query.take("namespace")?, query.take("key")?) {
        (None, None) => return Ok(None),
        (Some(namespace), Some(key)) => (namespace, key),
        (Some(_), None) => {
            let detail = "is missing; `namespace` needs a key beside it";
            return Err(Problem::malformed("key", "", detail));
        }
        (None, Some(key)) => {
            let detail = "needs a `namespace` beside it";
            return Err(Problem::malformed("key", &key, detail));
        }
    };
    let namespace = declared(&state.store().schema(), &namespace)?.clone();
    caller.check_namespace(&namespace.name)?;
    check_key(&key)?;
    Ok(Some(Watched {
        namespace,
        key: key.into_owned(),
        zone,
    }))
}

/// One client's stream.
struct Stream {
    state: ApiState,
    caller: Caller,
    watched: Option<Arc<Watched>>,
    /// The count of the key today, with the log's position and the start of the local day at which it was read.
    today: Option<((u64, i64), u64)>,
    /// The log's position at the last tick.
    applied: Option<u64>,
    /// Ticks at which it had moved.
    changes: u64,
}

impl Stream {
    /// Ticks until the client is gone, its key is revoked, or the namespace that it watches is taken out.
    async fn run(mut self, mut sender: Sender<Bytes, std::io::Error>) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if !self.state.access.is_in_force(&self.caller) {
                break;
            }
            if let Err(problem) = self.check_declared() {
                let message = format!("event: problem\ndata: {}\n\n", problem.json());
                let _ = sender.send_data(message.into()).await;
                break;
            }
            let message = match self.tick().await {
                Ok(tick) => {
                    let data = serde_json::to_string(&tick).unwrap_or_default();
                    format!("event: tick\ndata: {data}\n\n")
                }
                Err(_) => "event: problem\ndata: {}\n\n".to_owned(),
            };
            if sender.send_data(message.into()).await.is_err() {
                break;
            }
        }
    }

    /// Fails once the namespace of the key is no longer declared.
    fn check_declared(&self) -> Result<()> {
        match &self.watched {
            Some(watched) => {
                declared(&self.state.store().schema(), &watched.namespace.name).map(drop)
            }
            None => Ok(()),
        }
    }

    async fn tick(&mut self) -> Result<Tick> {
        let (stores, now) = (self.state.stores(), self.state.now());
        let position = stores.position();
        let applied = position
            .offsets()
            .iter()
            .map(|offset| offset.sequence)
            .sum();
        let seconds: Option<[u64; RECENT_SECONDS_MAX]> =
            self.knows_seconds().then(|| stores.arrivals(now));
        let today = match &self.watched {
            Some(watched) => Some(self.today_of(Arc::clone(watched), applied, now).await?),
            None => None,
        };
        // The log's own number would tell a limited key how much others count.
        let limited = self.caller.is_limited();
        if self.applied.replace(applied) != Some(applied) {
            self.changes += 1;
        }
        Ok(Tick {
            now: rfc3339_utc(now),
            applied: if limited { self.changes } else { applied },
            seconds: seconds.map(|seconds| seconds.to_vec()),
            today,
        })
    }

    /// Files without a log have no seconds, and nothing comes to them.
    fn knows_seconds(&self) -> bool {
        !self.caller.is_limited() && self.state.store().shown().is_none()
    }

    async fn today_of(&mut self, watched: Arc<Watched>, applied: u64, now: i64) -> Result<u64> {
        let question = watched.today(now)?;
        let (day, _) = span(&question.period.selection);
        if let Some((at, count)) = self.today
            && at == (applied, day)
        {
            return Ok(count);
        }
        let count = reading(&self.state, Length::Short, move |reader| {
            total(reader, question)
        });
        let count = count.await?;
        self.today = Some(((applied, day), count));
        Ok(count)
    }
}

impl Watched {
    /// The question about the total of the key today.
    fn today(&self, now: i64) -> Result<Question> {
        let period = Period::today(self.zone.clone(), now)?;
        let key = Some(self.key.clone());
        let namespace = (&*self.namespace.name, &self.namespace);
        Question::of(namespace, key, Shape::Summary, period, None)
    }
}

fn total(reader: &View<'_>, question: Question) -> Result<u64> {
    let mut limits = ResponseLimits::new(reader.reading());
    let answers = answer_all(reader, vec![question], &mut limits);
    let mut answers = answers.map_err(|(_, problem)| problem)?;
    Ok(answers.pop().map_or(0, |answer| answer.total))
}
