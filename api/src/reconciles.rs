//! `GET /v1/admin/reconciles` and `/v1/admin/reconciles/{day}`: what the reconciles of each day have found.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use tallyring_archive::FinalEntry;
use tallyring_realtime::Store;
use tallyring_records::{Day, is_false};

use crate::calendar::rfc3339_utc;
use crate::problem::{Problem, Result};
use crate::query_string::NoParameters;
use crate::segments::Segments;
use crate::state::ApiState;
use crate::work::blocking;

/// The days that were reconciled.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Reconciles {
    /// Oldest first
    days: Vec<ReconciledDay>,
}

/// A UTC day that was reconciled.
#[derive(Serialize, utoipa::ToSchema)]
struct ReconciledDay {
    #[schema(value_type = String, format = Date)]
    day: Day,
    /// The newest final version
    version: u32,
}

/// Final versions of one day.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct ReconciledVersions {
    #[schema(value_type = String, format = Date)]
    day: Day,
    /// Oldest first
    versions: Vec<ReconciledVersion>,
}

/// One reconcile's findings, summed over all event types; `/v1/finals/{day}` has each.
#[derive(Serialize, utoipa::ToSchema)]
struct ReconciledVersion {
    version: u32,
    /// When it was published
    at: String,
    /// Position of the log before which records were judged; the number alone where the log no longer has the record
    upto: String,
    /// Counted before: live for version 1, else what the version before says and what came since
    live: u64,
    /// Counted by this version
    r#final: u64,
    /// The difference by cause; `live` and all of them make `final`
    causes: BTreeMap<String, i64>,
    /// Present and true where rules filtered so much that only `force` published it
    #[serde(skip_serializing_if = "is_false")]
    forced: bool,
    /// Counts that no cause explains: always 0, because such a day does not become final
    unexplained: u64,
}

/// Reconciled days
///
/// The UTC days that have a final version.
#[utoipa::path(get, path = "/v1/admin/reconciles", operation_id = "reconciles", tag = "operate", responses(
    (status = 200, description = "The days", body = Reconciles, example = json!({
        "days": [{ "day": "2012-03-16", "version": 1 }],
    })),
))]
pub(crate) async fn list(State(state): State<ApiState>, _: NoParameters) -> Json<Reconciles> {
    let manifest = state.store().manifest();
    // Versions ascend, so the newest one of a day stays.
    let finals = manifest.archive.finals.iter();
    let newest: BTreeMap<Day, u32> = finals.map(|entry| (entry.day, entry.version)).collect();
    let days = newest.into_iter();
    Json(Reconciles {
        days: days
            .map(|(day, version)| ReconciledDay { day, version })
            .collect(),
    })
}

/// Reconciles of a day
///
/// The causes that made each final version of a UTC day differ from what was counted before.
#[utoipa::path(get, path = "/v1/admin/reconciles/{day}", operation_id = "reconciles_of_day", tag = "operate",
    params(("day" = String, Path, description = "A UTC day", example = "2012-03-16")),
    responses((status = 200, description = "The versions", body = ReconciledVersions, example = json!({
        "day": "2012-03-16", "versions": [{
            "version": 1, "at": "2012-03-19T00:05:00Z", "upto": "1:80", "live": 3, "final": 1,
            "causes": { "duplicate_beyond_window": -1, "filtered_by:bots": -1 }, "unexplained": 0,
        }],
    }))),
)]
pub(crate) async fn of_day(
    State(state): State<ApiState>,
    Segments(text): Segments<String>,
    _: NoParameters,
) -> Result<Json<ReconciledVersions>> {
    let day: Day = text.parse().map_err(|_| {
        let detail = "must be a UTC day such as 2012-03-16, from 2000-01-01 on";
        Problem::malformed("day", &text, detail)
    })?;
    let versions = blocking(&state, move |store| {
        let manifest = store.manifest();
        let finals = manifest.archive.finals.iter();
        let of_day = finals.filter(|entry| entry.day == day);
        Ok(of_day
            .map(|entry| ReconciledVersion::of(store, entry))
            .collect::<Vec<_>>())
    })
    .await?;
    if versions.is_empty() {
        let detail = "must be a final day; `/v1/admin/reconciles` lists them";
        return Err(Problem::unknown("day", &text, detail));
    }
    Ok(Json(ReconciledVersions { day, versions }))
}

impl ReconciledVersion {
    fn of(store: &Store, entry: &FinalEntry) -> Self {
        let sums = entry.sums();
        let last = entry.upto.checked_sub(1);
        let epoch = last.and_then(|last| store.intake().epoch_of(last));
        Self {
            version: entry.version,
            at: rfc3339_utc(entry.at_ms.div_euclid(1_000)),
            upto: match epoch {
                Some(epoch) => format!("{epoch}:{}", entry.upto),
                None => entry.upto.to_string(),
            },
            live: sums.before,
            r#final: sums.after,
            causes: sums.causes,
            forced: entry.forced,
            unexplained: 0,
        }
    }
}
