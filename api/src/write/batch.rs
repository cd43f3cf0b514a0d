//! A body of many items: all or nothing unless asked otherwise.
//!
//! Increments and events come in the same forms and get the same answer; only how one item is read differs.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use axum::body::Body;
use axum::http::HeaderMap;
use serde::Serialize;
use tallyring_realtime::{
    Accepted, Batch, BatchKey, Counted, Refusal, RefusedItem, ReservationId, Store, Submission,
    WrongItem,
};
use tallyring_records::{ID_BYTES_MAX, Increment, Schema, Skipped};

use super::cloud_event;
use super::items::{self, Item, Items};
use super::refused::{Unreadable, leave_out, log_refused, refused, refused_by_store};
use crate::access::{Caller, behind};
use crate::actions::reserve::note;
use crate::body;
use crate::meter::Outcomes;
use crate::problem::{Problem, Result};
use crate::query_string::QueryString;
use crate::state::ApiState;

/// Largest body, decompressed.
pub(super) const BODY_BYTES_MAX: usize = 8 << 20;
/// Rejected items, and missed reservations, that an answer lists.
const REJECTED_LISTED_MAX: usize = 100;
/// How often a batch is tried without what the store refused of it. It names all that overflows at once, and all that
/// is out of order: more than three tries are for who writes to the same counters meanwhile.
const TRIES: usize = 10;

/// The outcome of a batch.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = Accepted)]
pub(crate) struct Answer {
    pub accepted: u64,
    duplicates: u64,
    pub late: u64,
    /// Events that a rule kept from being counted; left out where there is none
    #[serde(skip_serializing_if = "is_zero")]
    filtered: u64,
    /// Wrong fields that were set aside while their items count; left out where there is none
    #[serde(skip_serializing_if = "is_zero")]
    set_aside: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    rejected: Option<Vec<Rejected>>,
    /// Where a single event names a reservation: `confirmed`, or `missed` where it was not held for this user
    #[serde(skip_serializing_if = "Option::is_none")]
    reservation: Option<&'static str>,
    /// Where events of a batch name reservations: what became of these
    #[serde(skip_serializing_if = "Option::is_none")]
    reservations: Option<Reservations>,
}

/// The outcome of the reservations that the events of a batch name.
#[derive(Default, Serialize, utoipa::ToSchema)]
pub(crate) struct Reservations {
    confirmed: u64,
    /// Events whose reservation was not held for this user
    missed: u64,
    /// Index in the batch of each of them, up to 100
    missed_at: Vec<usize>,
}

/// An item that was not taken.
#[derive(Serialize, utoipa::ToSchema)]
struct Rejected {
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    detail: String,
}

/// An item that was read.
pub(super) struct Parsed {
    pub increment: Increment,
    /// The reservation that it confirms.
    pub reservation: Option<String>,
}

impl Reservations {
    /// The outcome of the only one.
    fn outcome(&self) -> &'static str {
        if self.confirmed > 0 {
            "confirmed"
        } else {
            "missed"
        }
    }
}

impl From<Increment> for Parsed {
    fn from(increment: Increment) -> Self {
        Self {
            increment,
            reservation: None,
        }
    }
}

/// A request with a body of items.
pub(super) struct Sent {
    /// The kind of the items, where they are no increments: a body may be read as either.
    pub kind: &'static str,
    pub query: Option<String>,
    pub headers: HeaderMap,
    pub body: Body,
}

/// The circumstances in which an item is read.
#[derive(Clone, Copy)]
pub(super) struct Reading<'a> {
    pub schema: &'a Schema,
    /// Unix seconds.
    pub now: i64,
    /// True for an item that is its whole body: its request may be that of its client.
    pub is_alone: bool,
}

/// Reads the items of a body, each with `parse`, and counts them; durable when answered. The error is the first bad
/// item, unless it is to be skipped; or why nothing was counted.
pub(super) async fn count<T: Item>(
    state: &ApiState,
    caller: &Caller,
    sent: Sent,
    items: impl Fn(&HeaderMap, &[u8]) -> Result<Items<T>> + Send + 'static,
    parse: impl Fn(T, Reading<'_>) -> Result<Parsed> + Send + 'static,
) -> Result<Answer> {
    let Sent {
        kind,
        query,
        headers,
        body,
    } = sent;
    // Its room is taken until the answer.
    let body = Arc::new(body::read(&headers, body, BODY_BYTES_MAX).await?);
    let _place = state.access.batch_place(caller)?;
    let skip = on_error_skip(query.as_deref())?;
    let (schema, now) = (state.store().schema(), state.now());
    let reading = {
        let (caller, body, writes) = (caller.clone(), Arc::clone(&body), state.writes());
        // Not the service: it must be free when the server ends, whatever is still read then.
        let store = Arc::clone(state.store());
        move || {
            let told = cloud_event::in_headers(&headers, &writes.cloud_events);
            let key = batch_key(&store, (kind, &headers, told), &body, skip)?;
            let found = items(&headers, &body)?;
            caller.pay_for(found.len());
            let reading = Reading {
                schema: &schema,
                now,
                is_alone: items::is_one(&headers, &body),
            };
            let parse = |item| {
                let parsed = parse(item, reading)?;
                Ok(Parsed {
                    increment: caller.allow(parsed.increment)?,
                    ..parsed
                })
            };
            let (mut good, rejected) = Good::read(found, skip, parse);
            // The namespaces of refused items are read for them alone: nobody else waits for that.
            if !good.refused.is_empty() {
                good.name(items(&headers, &body)?, &schema);
            }
            let declared = Some(schema);
            Ok((key, Good { declared, ..good }, rejected))
        }
    };
    let (key, mut good, rejected) = match body.len() <= body::SMALL_BYTES {
        true => reading()?,
        false => behind(reading).await?,
    };
    let is_single = good.places.len() + rejected.len() == 1;
    let Counted {
        accepted,
        confirmed,
        ..
    } = settle(state, caller, (&mut good, key), (skip, rejected)).await?;
    let reservations = good.confirm(confirmed, &accepted);
    let outcome = reservations.as_ref().map(Reservations::outcome);
    Ok(Answer {
        reservation: outcome.filter(|_| is_single),
        reservations: reservations.filter(|_| !is_single),
        ..answer(accepted, skip)
    })
}

/// Counts the good items, without those that are wrong where these are to be skipped.
async fn settle(
    state: &ApiState,
    caller: &Caller,
    (good, key): (&mut Good, Option<BatchKey>),
    (skip, mut rejected): (bool, Vec<(usize, Problem)>),
) -> Result<Counted> {
    if let (false, Some(declared)) = (rejected.is_empty(), &good.declared) {
        state.check_current(declared).await?;
    }
    if let Some((_, wrong)) = rejected.pop_if(|_| !skip) {
        return answer_again(state, caller, (good, key), wrong).await;
    }
    metrics::counter!("tallyring_rejected_total").increment(rejected.len() as u64);
    // More than an answer lists nobody is told of.
    let rejected = rejected.iter().take(REJECTED_LISTED_MAX);
    let rejected = rejected.map(|(index, wrong)| skipped(*index, wrong));
    submit(state, caller, good, key, (skip, rejected.collect())).await
}

/// The answer that a batch with this key got before, of which an item is `wrong` now: a reload may have taken out what
/// it names. A sender that lost the answer must not take the items for lost. The error is `wrong` for a new batch.
async fn answer_again(
    state: &ApiState,
    caller: &Caller,
    (good, key): (&mut Good, Option<BatchKey>),
    wrong: Problem,
) -> Result<Counted> {
    if let Some(key) = key {
        let (stores, identity) = (Arc::clone(state.stores()), caller.identity().cloned());
        let earlier = behind(move || Ok(stores.earlier_answer(identity.as_ref(), &key)?)).await?;
        if let Some(accepted) = earlier {
            return Ok(accepted.into());
        }
    }
    log_refused(state, caller, std::mem::take(good).into_refused()).await;
    Err(wrong)
}

/// Items that can be counted, and the index and line of each in the body.
#[derive(Default)]
struct Good {
    places: Vec<(usize, Option<usize>)>,
    increments: Vec<Increment>,
    /// The schema by which they were read.
    declared: Option<Arc<Schema>>,
    /// Items that cannot, but have an id; each with its index.
    refused: Vec<(usize, RefusedItem)>,
    /// Reservations that items name, none for a text that names none; each with its index.
    confirming: Vec<(usize, Option<ReservationId>)>,
}

impl Good {
    /// Reads items; the bad ones beside, or only the first of them, at which all ends, where they are not to be
    /// skipped.
    fn read<T: Item>(
        items: Items<T>,
        skip: bool,
        parse: impl Fn(T) -> Result<Parsed>,
    ) -> (Self, Vec<(usize, Problem)>) {
        let (mut good, mut rejected) = (Self::default(), Vec::new());
        for (index, (line, item)) in items.into_iter().enumerate() {
            let read = item.and_then(|item| {
                let id = item.id().map(Cow::into_owned);
                parse(item).map_err(|problem| Unreadable { id, problem })
            });
            match read {
                Ok(parsed) => good.push((index, line), parsed),
                Err(Unreadable { id, problem }) => {
                    good.refuse(index, refused(id, Vec::new(), &problem));
                    rejected.push((index, problem.at(index, line)));
                    if !skip {
                        break;
                    }
                }
            }
        }
        (good, rejected)
    }

    fn refuse(&mut self, index: usize, item: Option<RefusedItem>) {
        self.refused.extend(item.map(|item| (index, item)));
    }

    /// Notes which namespaces each refused one of `items` names.
    fn name<T: Item>(&mut self, mut items: Items<T>, schema: &Schema) {
        for (index, refused) in &mut self.refused {
            if let Some((_, Ok(item))) = items.get_mut(*index) {
                refused.namespaces = item.namespaces(schema);
            }
        }
    }

    fn into_refused(self) -> Vec<RefusedItem> {
        self.refused.into_iter().map(|(_, item)| item).collect()
    }

    fn push(&mut self, place: (usize, Option<usize>), parsed: Parsed) {
        if let Some(reservation) = parsed.reservation {
            self.confirming.push((place.0, reservation.parse().ok()));
        }
        self.places.push(place);
        self.increments.push(parsed.increment);
    }

    /// The reservations that the increments name, by index of the increment.
    fn confirming(&self) -> Vec<(usize, ReservationId)> {
        let confirming = self.confirming.iter().filter_map(|&(place, reservation)| {
            let index = self.places.binary_search_by_key(&place, |place| place.0);
            Some((index.ok()?, reservation?))
        });
        confirming.collect()
    }

    /// The outcome of the reservations that items name, of which these were confirmed; none where no item names one.
    fn confirm(&self, confirmed: Vec<ReservationId>, accepted: &Accepted) -> Option<Reservations> {
        let mut all = Reservations::default();
        let mut confirmed: HashSet<ReservationId> = confirmed.into_iter().collect();
        let is_counted = |index: usize| {
            let place = self.places.binary_search_by_key(&index, |place| place.0);
            let mut skipped = accepted.skipped.iter();
            place.is_ok() && !skipped.any(|item| item.index == index as u64)
        };
        for &(index, reservation) in self.confirming.iter().filter(|(at, _)| is_counted(*at)) {
            match reservation.is_some_and(|id| confirmed.remove(&id)) {
                true => {
                    note("confirmed");
                    all.confirmed += 1;
                }
                false => {
                    note("missed");
                    all.missed += 1;
                    if all.missed_at.len() < REJECTED_LISTED_MAX {
                        all.missed_at.push(index);
                    }
                }
            }
        }
        (all.confirmed + all.missed > 0).then_some(all)
    }

    /// The problem of an item that the store refused, with its index in the body; noted for the id of the item, too.
    fn wrong(&mut self, item: &WrongItem) -> (usize, Problem) {
        let (index, line) = self.places.get(item.index).copied().unwrap_or_default();
        let problem = Problem::from(item).at(index, line);
        self.refuse(index, refused_by_store(item, &problem));
        (index, problem)
    }

    /// Leaves out what the store refused.
    fn skip(&mut self, wrong: &[WrongItem]) -> Vec<Skipped> {
        let skipped = wrong.iter().map(|item| {
            let (index, problem) = self.wrong(item);
            skipped(index, &problem)
        });
        let skipped = skipped.collect();
        leave_out(&mut self.places, wrong);
        leave_out(&mut self.increments, wrong);
        skipped
    }

    /// The increments to submit; kept for another try only with `skip`.
    fn submitted(&mut self, skip: bool) -> Vec<Increment> {
        if skip {
            self.increments.clone()
        } else {
            std::mem::take(&mut self.increments)
        }
    }
}

fn skipped(index: usize, wrong: &Problem) -> Skipped {
    Skipped {
        index: index as u64,
        field: wrong.field().unwrap_or_default().to_owned(),
        detail: wrong.sentence(),
    }
}

/// Counts the good items. With `skip`, those that the store refuses are left out, beside those `skipped` before, and
/// the others tried again, so many times. A retry is told of what was skipped at first, whatever the clock says by
/// then.
async fn submit(
    state: &ApiState,
    caller: &Caller,
    good: &mut Good,
    key: Option<BatchKey>,
    (skip, mut skipped): (bool, Vec<Skipped>),
) -> Result<Counted> {
    let (mut tries, mut submission) = (TRIES, Submission::default());
    loop {
        if good.places.is_empty() && good.refused.is_empty() && key.is_none() {
            let accepted = Accepted {
                skipped,
                ..Accepted::default()
            };
            return Ok(accepted.into());
        }
        let batch = Batch {
            identity: caller.identity().cloned(),
            confirming: good.confirming(),
            increments: good.submitted(skip),
            declared: good.declared.clone(),
            key: key.clone(),
            refused: good.refused.iter().map(|(_, item)| item.clone()).collect(),
            skipped: skipped.clone(),
            ..Batch::default()
        };
        let refusal = match state.submit(&mut submission, batch).await {
            Ok(counted) => return Ok(counted),
            Err(refusal) => refusal,
        };
        let partly = |problem: Problem| match submission.may_have_counted() {
            true => problem.after_others(),
            false => problem,
        };
        let Refusal::Items(wrong) = &refusal else {
            return Err(partly(refusal.into()));
        };
        tries -= 1;
        if !skip || tries == 0 {
            let problem = wrong.first().map(|first| good.wrong(first).1);
            log_refused(state, caller, std::mem::take(good).into_refused()).await;
            return Err(partly(problem.unwrap_or_else(|| refusal.into())));
        }
        metrics::counter!("tallyring_rejected_total").increment(wrong.len() as u64);
        skipped.extend(good.skip(wrong));
        // More than an answer lists nobody is told of.
        skipped.sort_by_key(|item| item.index);
        skipped.truncate(REJECTED_LISTED_MAX);
    }
}

/// The outcome of a batch, with the rejected items where the client asked for them.
fn answer(accepted: Accepted, tells_rejected: bool) -> Answer {
    Outcomes::new().count(&accepted);
    let rejected = accepted.skipped.into_iter().map(|item| Rejected {
        index: item.index as usize,
        field: Some(item.field).filter(|field| !field.is_empty()),
        detail: item.detail,
    });
    Answer {
        accepted: accepted.accepted,
        duplicates: accepted.duplicates,
        late: accepted.late,
        filtered: accepted.filtered,
        set_aside: accepted.set_aside,
        rejected: tells_rejected.then(|| rejected.collect()),
        reservation: None,
        reservations: None,
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn batch_key(
    store: &Store,
    (kind, headers, told): (&str, &HeaderMap, Vec<u8>),
    body: &[u8],
    skip: bool,
) -> Result<Option<BatchKey>> {
    let Some(value) = headers.get("idempotency-key") else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default();
    if text.is_empty() || text.len() > ID_BYTES_MAX {
        let detail = format!("must have 1 to {ID_BYTES_MAX} characters of visible ASCII");
        return Err(Problem::malformed("idempotency-key", text, detail));
    }
    // The kind of the items is part of the hash. Increments add nothing, so that their keys stay as stores hold them.
    let mut more = told;
    more.extend_from_slice(kind.as_bytes());
    if skip {
        more.extend_from_slice(b"skip");
        // A list is one wrong line; where nothing is skipped, only one object is read both ways, and alike.
        if items::is_by_line(headers) {
            more.extend_from_slice(b"lines");
        }
    }
    let mut identity = store.intake().body_identity(body);
    if !more.is_empty() {
        // Told apart from every body: nobody else knows the bits of one.
        identity = store
            .intake()
            .body_identity(&[&identity.to_be_bytes()[..], &more].concat());
    }
    Ok(Some(BatchKey {
        text: text.to_owned(),
        body: identity,
    }))
}

fn on_error_skip(query: Option<&str>) -> Result<bool> {
    let mut query = QueryString::parse(query)?;
    let skip = match query.take("on_error")?.as_deref() {
        None | Some("stop") => false,
        Some("skip") => true,
        Some(other) => {
            let detail = "must be stop or skip";
            return Err(Problem::malformed("on_error", other, detail));
        }
    };
    query.finish("on_error")?;
    Ok(skip)
}
