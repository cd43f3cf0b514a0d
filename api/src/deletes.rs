//! `GET|POST /v1/admin/deletes`: the counts of one key on some days go, or count again.
//!
//! An order is a record of the log, and the next reconcile of each day obeys. Each strand of a store that has several
//! has the order in its own log.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tallyring_archive::{DeleteEntry, Manifest};
use tallyring_realtime::{Read, Store, Stores, View, no_reconcile, waiting_deletes};
use tallyring_records::input::json as input;
use tallyring_records::{Day, Delete, VOID_REASON_BYTES_MAX, add_capped, is_void_reason, line};

use crate::access::{Caller, Length, off_thread};
use crate::body;
use crate::calendar::rfc3339_utc;
use crate::problem::{Document, Problem, Result};
use crate::query_string::{NoParameters, QueryString};
use crate::read::question::{check_key, declared};
use crate::reconcile::Days;
use crate::state::ApiState;
use crate::work::{blocking, reading};

/// Where deletes are ordered.
pub(crate) const PATH: &str = "/v1/admin/deletes";

const EXAMPLE: &str =
    r#"{"namespace":"l","key":"abc","from":"2012-03-14","to":"2012-03-16","reason":"a crawler"}"#;
const EFFECT: &str = "The log has the order. The counts of each day change with the next reconcile of that day, which \
                      POST /v1/admin/reconcile orders; until then all answers count as before.";

/// An order about the counts of a key, as it is sent.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Delete, example = json!({
    "namespace": "l", "key": "abc", "from": "2012-03-14", "to": "2012-03-16", "reason": "a crawler" }))]
pub(crate) struct DeleteBody {
    namespace: String,
    key: String,
    /// The first UTC day
    #[schema(value_type = String, format = Date)]
    from: Day,
    /// The last UTC day; at most 400
    #[schema(value_type = String, format = Date)]
    to: Day,
    /// True to let the counts count again that were deleted before
    #[serde(default)]
    undo: bool,
    /// 1 to 256 bytes without control characters; the log and the audit trail keep it
    reason: String,
}

/// The counts that a delete would take away.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct DeletePreview {
    namespace: String,
    key: String,
    /// UTC days that count something of the key
    days: Vec<DayOfPreview>,
    /// Loaded history that may have counts of these days; no delete takes them away
    loaded: BTreeSet<String>,
}

/// A UTC day of a preview.
#[derive(Serialize, utoipa::ToSchema)]
struct DayOfPreview {
    #[schema(value_type = String, format = Date)]
    day: Day,
    /// Counts of the key, those of loaded history included
    n: u64,
    /// Why the counts of this day cannot be deleted now; null where they can
    refused: Option<String>,
}

/// Preview a delete
///
/// Tells what a delete of a key's counts would take away, day by day, and changes nothing. Needs the scope `admin`.
#[utoipa::path(get, path = "/v1/admin/deletes/preview", operation_id = "preview_delete", tag = "operate",
    params(
        ("namespace" = String, Query, description = "The namespace", example = "l"),
        ("key" = String, Query, description = "The key", example = "abc"),
        ("from" = String, Query, description = "The first UTC day", example = "2012-03-14"),
        ("to" = String, Query, description = "The last UTC day; at most 400", example = "2012-03-16"),
    ),
    responses((status = 200, description = "The preview", body = DeletePreview, example = json!({
        "namespace": "l", "key": "abc", "days": [{ "day": "2012-03-16", "n": 12, "refused": null }], "loaded": [] }))),
)]
pub(crate) async fn preview(
    State(state): State<ApiState>,
    RawQuery(query): RawQuery,
) -> Result<Json<DeletePreview>> {
    let mut query = QueryString::parse(query.as_deref())?;
    let mut text = |name: &str| -> Result<String> {
        let text = query.take(name)?.map(String::from);
        text.ok_or_else(|| Problem::malformed(name, "", "is missing"))
    };
    let (namespace, key) = (text("namespace")?, text("key")?);
    check_key(&key)?;
    let mut day = |name: &str| -> Result<Day> {
        let day = query.take_as(name, "a UTC day such as 2012-03-16")?;
        day.ok_or_else(|| Problem::malformed(name, "", "is missing"))
    };
    let days = days(day("from")?, day("to")?)?;
    query.finish("namespace, key, from and to")?;
    let stores = Arc::clone(state.stores());
    let told = reading(&state, Length::Long, move |view| {
        declared(&stores.first().schema(), &namespace)?;
        DeletePreview::of(view, &stores, (namespace, key), days)
    });
    Ok(Json(told.await?))
}

impl DeletePreview {
    fn of(
        view: &View<'_>,
        stores: &Stores,
        (namespace, key): (String, String),
        days: Days,
    ) -> Result<Self> {
        let read = Read {
            namespace: namespace.clone(),
            key: key.clone(),
            subtotal: None,
            from: days.first().start(),
            to: days.last().next().start(),
            rolled: None,
        };
        let mut counted: BTreeMap<Day, u64> = BTreeMap::new();
        for (code, n) in view.read(&read, None)?.totals.iter() {
            add_capped(counted.entry(Day::of(code.start())).or_default(), n);
        }
        let (mut told, mut loaded) = (Vec::new(), BTreeSet::new());
        for (day, n) in counted.into_iter().filter(|(_, n)| *n > 0) {
            let mut refused = None;
            for store in stores.all() {
                let (blobs, manifest) = (store.world().blobs(), store.manifest());
                loaded.extend(loaded_of(&manifest, &namespace, day));
                if refused.is_none() {
                    refused = no_reconcile(&blobs, &manifest, day)?;
                }
            }
            told.push(DayOfPreview { day, n, refused });
        }
        Ok(Self {
            namespace,
            key,
            days: told,
            loaded,
        })
    }
}

/// Names of datasets that may have counts of a namespace on a day.
fn loaded_of(manifest: &Manifest, namespace: &str, day: Day) -> impl Iterator<Item = String> {
    let section = line::total_key(namespace, "");
    let datasets = manifest.archive.datasets.iter();
    datasets
        .filter(move |dataset| {
            let mut runs = dataset.runs.iter();
            runs.any(|run| run.meta.days().contains(&day) && run.meta.sums.contains_key(&section))
        })
        .map(|dataset| dataset.name.clone())
}

/// Delete counts of a key
///
/// Lets the counts of one key on up to 400 UTC days go, or with `undo` count again. It is about what came before the
/// order; what comes later counts. The newest order about a day holds. No count changes at once: the
/// next reconcile of each day obeys, for as long as the log has the day. Every day must be closed, and still be in the
/// log. Events stay as they are, sums by event type and actions of users, too. Loaded history stays. Needs the scope
/// `admin`.
#[utoipa::path(post, path = "/v1/admin/deletes", operation_id = "delete_counts", tag = "operate",
    request_body = DeleteBody,
    responses(
        (status = 201, description = "The log has the order", body = Object, example = json!({
            "namespace": "l", "key": "abc", "from": "2012-03-14", "to": "2012-03-16", "undo": false,
            "reason": "a crawler", "actor": "2bq4xyz7", "position": "1:23", "effect": EFFECT,
        })),
        (status = 404, description = "The namespace is not declared", body = Document, content_type = "application/problem+json"),
        (status = 507, description = "The disk is full", body = Document, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn order(
    State(state): State<ApiState>,
    caller: Caller,
    _: NoParameters,
    headers: HeaderMap,
    body: Body,
) -> Result<impl IntoResponse> {
    let order: DeleteBody = body::read_order(&headers, body, ("the order", EXAMPLE)).await?;
    check_key(&order.key)?;
    let days = days(order.from, order.to)?;
    if !is_void_reason(&order.reason) {
        let detail = format!(
            "must be 1 to {VOID_REASON_BYTES_MAX} bytes of text without control characters"
        );
        return Err(Problem::malformed("reason", &order.reason, detail));
    }
    if state.writes().four_eyes {
        let detail = "`four_eyes` is true in the configuration, and a delete cannot wait for the order of another key";
        return Err(refused(detail));
    }
    let delete = Delete {
        namespace: order.namespace,
        key: order.key,
        from: order.from,
        to: order.to,
        undo: order.undo,
        reason: order.reason,
        actor: caller.actor().to_owned(),
    };
    let told = blocking(&state, move |store| {
        declared(&store.schema(), &delete.namespace)?;
        check_days(store, days)?;
        let at = store.intake().delete(delete.clone())?;
        let mut told = described(&delete);
        told["position"] = at.to_string().into();
        told["effect"] = EFFECT.into();
        Ok(told)
    })
    .await?;
    tracing::info!(position = %told["position"], actor = %told["actor"], "a delete was ordered");
    let headers = [(header::CACHE_CONTROL, "no-store")];
    Ok((StatusCode::CREATED, headers, Json(told)))
}

/// Orders about the counts of keys
///
/// Oldest first: deletes, and those that let counts count again (`undo`). Those are told at least of which a day may be
/// reconciled. `waiting` is true until the reconciles that change counts by the order are published, and null on a
/// server that has no log. A store with several strands has each order once for each of them.
#[utoipa::path(get, path = "/v1/admin/deletes", operation_id = "list_deletes", tag = "operate", responses(
    (status = 200, description = "The orders", body = Object, example = json!({ "deletes": [{
        "namespace": "l", "key": "abc", "from": "2012-03-14", "to": "2012-03-16", "undo": false,
        "reason": "a crawler", "actor": "2bq4xyz7", "at": "2012-03-19T18:40:47Z", "position": "1:23", "waiting": false,
    }] })),
))]
pub(crate) async fn list(State(state): State<ApiState>, _: NoParameters) -> Result<Json<Value>> {
    let stores = Arc::clone(state.stores());
    reading(&state, Length::Long, move |_| {
        let mut orders: Vec<(DeleteEntry, Option<bool>)> = Vec::new();
        for store in stores.all() {
            let has_log = store.shown().is_none();
            let waiting = has_log.then(|| waiting_deletes(store)).transpose()?;
            let of_strand = store.intake().deletes().into_iter();
            orders.extend(of_strand.map(|entry| {
                let waiting = waiting.as_ref();
                let waits = waiting.map(|waiting| waiting.contains_key(&entry.at.sequence));
                (entry, waits)
            }));
        }
        orders.sort_by_key(|(entry, _)| entry.arrived_ms);
        let orders = orders.iter().map(|(entry, waits)| {
            let mut told = described(&entry.order);
            told["at"] = rfc3339_utc(entry.arrived_ms.div_euclid(1_000)).into();
            told["position"] = entry.at.to_string().into();
            told["waiting"] = (*waits).into();
            told
        });
        Ok(Json(json!({ "deletes": orders.collect::<Vec<_>>() })))
    })
    .await
}

fn described(delete: &Delete) -> Value {
    json!({
        "namespace": delete.namespace, "key": delete.key, "from": delete.from, "to": delete.to, "undo": delete.undo,
        "reason": delete.reason, "actor": delete.actor,
    })
}

/// Fails with 422 where `to` comes before `from`, or there are too many days.
fn days(from: Day, to: Day) -> Result<Days> {
    Days::between(from, to).map_err(|what| {
        let problem = refused(what);
        problem.about("to", Some(to.to_string()))
    })
}

/// Fails with 422 where some strand could not obey the order of this body: an order that one strand takes and the next
/// one refuses would take away a part of the counts. The strands refuse a body that cannot be read.
pub(crate) async fn check_strands(stores: &Arc<Stores>, body: Bytes) -> Result<()> {
    let stores = Arc::clone(stores);
    let check = move || {
        let order = input::parse_as::<DeleteBody>(&body).ok();
        let days = order.and_then(|order| Days::between(order.from, order.to).ok());
        let mut stores = stores.all().iter();
        days.map_or(Ok(()), |days| {
            stores.try_for_each(|store| check_days(store, days))
        })
    };
    off_thread(check).await
}

/// Fails with 422 at the first day of which no reconcile can change the counts.
fn check_days(store: &Store, days: Days) -> Result<()> {
    let (blobs, manifest) = (store.world().blobs(), store.manifest());
    for day in days.iter() {
        if let Some(why) = no_reconcile(&blobs, &manifest, day)? {
            let (field, sent) = match day == days.last() {
                true => ("to", day),
                false => ("from", days.first()),
            };
            let detail =
                format!("has counts of {day} in its range, which cannot be deleted: {why}");
            return Err(refused(detail).about(field, Some(sent.to_string())));
        }
    }
    Ok(())
}

fn refused(detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "Not accepted", detail)
}
