//! Bulk datasets: what a load left in `incoming/` is adopted, and dropped again.

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use serde_json::{Value, json};
use tallyring_archive::{DatasetEntry, Manifest};
use tallyring_records::{VOID_REASON_BYTES_MAX, is_void_reason};

use crate::access::Caller;
use crate::calendar::rfc3339_utc;
use crate::health::fault_of_lost;
use crate::problem::{Document, Problem, Result};
use crate::query_string::QueryString;
use crate::segments::Segments;
use crate::state::ApiState;
use crate::work::blocking;

/// Bulk datasets
///
/// `state` says what each is to the generation that is read and to the next one, and `final` whether its counts are
/// part of final numbers. `lost` has final datasets that the log knows and no manifest names, and what to do.
#[utoipa::path(get, path = "/v1/admin/datasets", operation_id = "list_datasets", tag = "operate", responses(
    (status = 200, description = "The datasets", body = Object, example = json!({ "datasets": [{
        "name": "clicks-2011", "load": "0123456789abcdef", "loaded_at": "2012-03-16T18:40:47Z", "rows": 20000000,
        "bytes": 31000000, "partitions": ["2011"], "state": "counted", "final": false,
    }], "lost": [] })),
))]
pub(crate) async fn list(State(state): State<ApiState>) -> Json<Value> {
    Json(describe_datasets(&state.store().manifest()))
}

/// All datasets of a manifest, as `GET /v1/admin/datasets` answers them.
pub fn describe_datasets(manifest: &Manifest) -> Value {
    let all = manifest.archive.datasets.iter();
    let all: Vec<Value> = all.map(|dataset| described(manifest, dataset)).collect();
    let lost = manifest.archive.lost_datasets.iter();
    let lost = lost.map(|lost| {
        json!({
            "name": lost.name,
            "loaded_at": rfc3339_utc(lost.at_ms.div_euclid(1_000)),
            "rows": lost.rows,
            "reason": fault_of_lost(manifest, lost),
        })
    });
    json!({ "datasets": all, "lost": lost.collect::<Vec<_>>() })
}

/// Adopt a load
///
/// Takes the runs that `tallyring load` sorted into the data directory; it calls this itself. They count when the
/// next rebuild publishes, and what they replace stops counting in the same step.
#[utoipa::path(post, path = "/v1/admin/datasets/{name}", operation_id = "adopt_dataset", tag = "operate",
    params(
        ("name" = String, Path, description = "Letters, digits, `_`, `-` and `.`, at most 64", example = "clicks-2011"),
        ("load" = String, Query, description = "The load, 16 hex digits", example = "0123456789abcdef"),
        ("replace" = Option<bool>, Query, description = "Replace the dataset of that name"),
    ),
    responses(
        (status = 201, description = "The dataset", body = Object, example = json!({
            "name": "clicks-2011", "load": "0123456789abcdef", "loaded_at": "2012-03-16T18:40:47Z", "rows": 20000000,
            "bytes": 31000000, "partitions": ["2011"], "state": "counts with the next rebuild",
            "final": false,
        })),
        (status = 409, description = "A dataset of that name exists", body = Document, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn adopt(
    State(state): State<ApiState>,
    Segments(name): Segments<String>,
    RawQuery(query): RawQuery,
) -> Result<(StatusCode, Json<Value>)> {
    let mut query = QueryString::parse(query.as_deref())?;
    let load = query.take("load")?.ok_or_else(|| {
        let detail = "is missing; `tallyring load` sorts files and names the load";
        Problem::malformed("load", "", detail)
    })?;
    let replace = query.take("replace")?;
    query.finish("load and replace")?;
    let replace = match replace.as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(other) => {
            let detail = "must be true or false";
            return Err(Problem::malformed("replace", other, detail));
        }
    };
    let load = load.into_owned();
    let adopted = blocking(&state, move |store| {
        Ok(store.ledger().adopt(&name, &load, replace)?)
    })
    .await?;
    let manifest = state.store().manifest();
    Ok((StatusCode::CREATED, Json(described(&manifest, &adopted))))
}

/// Drop a dataset
///
/// It stops counting when the next rebuild publishes. A final dataset that a rebuild counted is 409. With `gone` a
/// final dataset that is lost, or has lost files, is given up: its days are final without it.
#[utoipa::path(delete, path = "/v1/admin/datasets/{name}", operation_id = "drop_dataset", tag = "operate",
    params(
        ("name" = String, Path, description = "The dataset", example = "clicks-2011"),
        ("gone" = Option<String>, Query, description = "Gives up a lost final dataset: the reason, for the audit trail, 1 to 256 bytes"),
    ),
    responses(
        (status = 200, description = "It is dropped", body = Object, example = json!({ "dropped": "clicks-2011" })),
        (status = 409, description = "It is part of final numbers, or is not lost", body = Document, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn drop(
    State(state): State<ApiState>,
    caller: Caller,
    Segments(name): Segments<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>> {
    let mut query = QueryString::parse(query.as_deref())?;
    let gone = query.take("gone")?.map(|reason| reason.into_owned());
    query.finish("gone")?;
    if let Some(reason) = gone.as_ref().filter(|reason| !is_void_reason(reason)) {
        let detail = format!(
            "must be the reason: 1 to {VOID_REASON_BYTES_MAX} bytes of text without control characters"
        );
        return Err(Problem::malformed("gone", reason, detail));
    }
    let dropped = name.clone();
    blocking(&state, move |store| {
        let ledger = store.ledger();
        match gone {
            None => ledger.drop_dataset(&name)?,
            Some(reason) => {
                ledger.give_up_dataset(&name, &reason, caller.actor())?;
                tracing::info!(name, actor = caller.actor(), "a final dataset was given up");
            }
        }
        Ok(())
    })
    .await?;
    Ok(Json(json!({ "dropped": dropped })))
}

fn described(manifest: &Manifest, dataset: &DatasetEntry) -> Value {
    let mut partitions: Vec<String> = dataset
        .runs
        .iter()
        .map(|run| run.meta.partition.to_string())
        .collect();
    partitions.sort_unstable();
    partitions.dedup();
    json!({
        "name": dataset.name,
        "load": dataset.load,
        "loaded_at": rfc3339_utc(dataset.adopted_at_ms.div_euclid(1_000)),
        "rows": dataset.rows,
        "bytes": dataset.runs.iter().map(|run| run.bytes).sum::<u64>(),
        "partitions": partitions,
        "state": dataset.state(manifest.archive.active_generation()),
        "final": dataset.is_final,
    })
}
