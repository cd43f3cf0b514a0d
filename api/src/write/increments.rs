//! `POST /v1/increments`: many increments, all or nothing unless asked otherwise.

use axum::Json;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use serde::Serialize;
use serde_json::Value;
use tallyring_realtime::{Accepted, Batch, BatchKey, Refusal};
use tallyring_records::{ID_BYTES_MAX, Increment};

use super::item;
use crate::access::Caller;
use crate::body;
use crate::json;
use crate::problem::Problem;
use crate::query_string::QueryString;
use crate::state::ApiState;

/// Largest body, decompressed.
const BODY_BYTES_MAX: usize = 8 << 20;
/// Most items of a body.
const ITEMS_MAX: usize = 10_000;
/// Rejected items that an answer lists.
const REJECTED_LISTED_MAX: usize = 100;

/// What became of a batch.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = Accepted)]
pub struct Answer {
    accepted: u64,
    duplicates: u64,
    late: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    rejected: Option<Vec<Rejected>>,
}

/// An item that was not taken.
#[derive(Serialize, utoipa::ToSchema)]
struct Rejected {
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    detail: String,
}

/// An increment.
#[derive(utoipa::ToSchema)]
#[schema(as = Increment, example = json!({
    "at": "2012-03-16T18:40:47Z", "n": 1, "keys": {"l": "A6qOVH", "u": "orofrog"}, "by": {"c": "US"}, "id": "e1"
}))]
#[expect(
    dead_code,
    reason = "describes an item, which is parsed by hand so that errors name their field"
)]
pub struct Item {
    /// RFC 3339 or Unix seconds; now if left out
    at: Option<String>,
    /// How many, 1 to 2^53-1
    #[schema(default = 1)]
    n: Option<u64>,
    /// Namespace to key, at least one
    keys: std::collections::BTreeMap<String, String>,
    /// Subtotal to value
    by: Option<std::collections::BTreeMap<String, String>>,
    /// Makes a retry harmless
    id: Option<String>,
    /// Who, for unique users
    user: Option<String>,
}

/// Count many increments
///
/// One object, an array, or NDJSON, gzip and zstd accepted; at most 8 MiB and 10,000 items decompressed. All count
/// or none, unless `on_error=skip` takes the good ones.
#[utoipa::path(post, path = "/v1/increments", tag = "write",
    params(
        ("on_error" = Option<String>, Query, description = "stop (default) or skip"),
        ("Idempotency-Key" = Option<String>, Header, description = "Makes the whole batch's retry harmless"),
    ),
    request_body(content((Vec<Item> = "application/json"), (String = "application/x-ndjson"))),
    responses(
        (status = 200, description = "Durable", body = Answer),
        crate::openapi::WriteErrors,
        crate::openapi::BodyErrors,
    ),
)]
pub async fn increments(
    State(state): State<ApiState>,
    caller: Caller,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Answer>, Problem> {
    let skip = on_error_skip(query.as_deref())?;
    let bytes = body::read(&headers, body, BODY_BYTES_MAX).await?;
    let items = if is_ndjson(&headers) {
        ndjson(&bytes)?
    } else {
        items_of(&bytes)?
    };
    caller.pay_for(items.len());
    let (schema, now) = (state.store().schema(), state.now());
    let mut good = Good::default();
    let mut rejected = Vec::new();
    for (index, (line, item)) in items.into_iter().enumerate() {
        let parsed = item.and_then(|item| item::parse(item, &schema, now));
        match parsed.and_then(|increment| caller.allow(increment)) {
            Ok(increment) => good.push((index, line), increment),
            Err(problem) if skip => rejected.push((index, problem)),
            Err(problem) => return Err(problem.at(index, line)),
        }
    }
    let key = batch_key(&state, &headers, &bytes)?;
    let mut answer = submit(&state, good, key, skip, &mut rejected).await?;
    metrics::counter!("tallyring_rejected_total").increment(rejected.len() as u64);
    if skip {
        rejected.sort_by_key(|&(index, _)| index);
        let listed = rejected
            .iter()
            .take(REJECTED_LISTED_MAX)
            .map(|(index, problem)| Rejected {
                index: *index,
                field: problem.field().map(str::to_owned),
                detail: problem.detail().to_owned(),
            });
        answer.rejected = Some(listed.collect());
    }
    Ok(Json(answer))
}

/// Items that can be counted, and the index and line of each in the body.
#[derive(Default)]
struct Good {
    places: Vec<(usize, Option<usize>)>,
    increments: Vec<Increment>,
}

impl Good {
    fn push(&mut self, place: (usize, Option<usize>), increment: Increment) {
        self.places.push(place);
        self.increments.push(increment);
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

/// Counts the good items. With `skip`, one whose counter would overflow is rejected and the others are
/// tried again.
async fn submit(
    state: &ApiState,
    mut good: Good,
    key: Option<BatchKey>,
    skip: bool,
    rejected: &mut Vec<(usize, Problem)>,
) -> Result<Answer, Problem> {
    let accepted = loop {
        if good.places.is_empty() && key.is_none() {
            break Accepted::default();
        }
        let batch = Batch {
            increments: good.submitted(skip),
            key: key.clone(),
        };
        match state.service.submit(batch).await {
            Ok(accepted) => break accepted,
            Err(refusal @ Refusal::Overflow { index, .. }) => {
                let (place, line) = good.places.remove(index);
                let problem = Problem::from(refusal).at(place, line);
                if !skip || rejected.len() >= REJECTED_LISTED_MAX {
                    return Err(problem);
                }
                good.increments.remove(index);
                rejected.push((place, problem));
            }
            Err(refusal) => return Err(refusal.into()),
        }
    };
    metrics::counter!("tallyring_increments_total").increment(accepted.accepted);
    metrics::counter!("tallyring_duplicates_total").increment(accepted.duplicates);
    metrics::counter!("tallyring_late_total").increment(accepted.late);
    let Accepted {
        accepted,
        duplicates,
        late,
    } = accepted;
    Ok(Answer {
        accepted,
        duplicates,
        late,
        rejected: None,
    })
}

fn batch_key(
    state: &ApiState,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Option<BatchKey>, Problem> {
    let Some(value) = headers.get("idempotency-key") else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default();
    if text.is_empty() || text.len() > ID_BYTES_MAX {
        let detail = format!("must be 1 to {ID_BYTES_MAX} characters of visible ASCII");
        return Err(Problem::malformed("idempotency-key", text, detail));
    }
    Ok(Some(BatchKey {
        text: text.to_owned(),
        body: state.store().body_identity(body),
    }))
}

fn on_error_skip(query: Option<&str>) -> Result<bool, Problem> {
    let mut query = QueryString::parse(query)?;
    let skip = match query.take("on_error")?.as_deref() {
        None | Some("stop") => false,
        Some("skip") => true,
        Some(other) => {
            return Err(Problem::malformed(
                "on_error",
                other,
                "must be stop or skip",
            ));
        }
    };
    query.finish("on_error")?;
    Ok(skip)
}

type Items = Vec<(Option<usize>, Result<Value, Problem>)>;

fn is_ndjson(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/x-ndjson")
        || essence.eq_ignore_ascii_case("application/jsonl")
}

/// One object, or an array of them.
fn items_of(bytes: &[u8]) -> Result<Items, Problem> {
    let value = json::parse(bytes).map_err(|error| {
        Problem::malformed(
            "body",
            &error.to_string(),
            "must be JSON, each name once: an object, an array, or NDJSON as application/x-ndjson",
        )
    })?;
    let items = match value {
        Value::Array(items) => items,
        other => vec![other],
    };
    check_count(items.len())?;
    Ok(items.into_iter().map(|item| (None, Ok(item))).collect())
}

/// One object a line; empty lines are passed over.
fn ndjson(bytes: &[u8]) -> Result<Items, Problem> {
    let mut items = Items::new();
    for (number, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let item = json::parse(line).map_err(|error| {
            Problem::malformed(
                "item",
                &error.to_string(),
                "must be one JSON object a line, each name once",
            )
        });
        items.push((Some(number + 1), item));
        check_count(items.len())?;
    }
    Ok(items)
}

fn check_count(items: usize) -> Result<(), Problem> {
    if items <= ITEMS_MAX {
        return Ok(());
    }
    let detail = format!("the body has more than {ITEMS_MAX} items; send it in parts");
    Err(Problem::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "Too large",
        detail,
    ))
}
