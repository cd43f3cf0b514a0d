//! Version 4: `/v4/bitlinks/…`, `/v4/groups/…` and what belongs to them.
//!
//! A bitlink is two segments of the path, or one that is percent-encoded. Days begin at midnight
//! UTC, or at the offset of `unit_reference`; with our own parameter `timezone`, in that zone.
//! Dates in answers are UTC. `size` is for lists of values only: a series is never cut.

mod metric;
mod parameters;

use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::{MethodRouter, any, get};
use serde_json::json;
use tallyring_realtime::Series;

use super::answer::{self, Body, Fault};
use super::csv::{csv, wants_csv};
use super::facets::ranked;
use super::links;
use super::source::{Kind, Source, hash_of_path, is_key, read};
use crate::access::{Caller, Dialect};
use crate::query_string::QueryString;
use crate::state::ApiState;
use metric::{Metric, noted, sorted};
use parameters::{take_size, take_window};

/// How a path of a bitlink ends, a longer end before what it ends with.
const BITLINK_METRICS: [(&str, Metric); 9] = [
    ("/clicks/summary", Metric::Summary),
    ("/clicks", Metric::Clicks),
    ("/engagements/summary", Metric::EngagementsSummary),
    ("/engagements", Metric::Engagements),
    ("/countries", Metric::Countries),
    ("/devices", Metric::Devices),
    ("/referrers", Metric::Referrers),
    ("/referring_domains", Metric::ReferringDomains),
    ("/referrers_by_domains", Metric::ReferrersByDomains),
];
const CUSTOM_BITLINK_METRICS: [(&str, Metric); 2] = [
    ("/clicks", Metric::Clicks),
    ("/clicks_by_destination", Metric::Destinations),
];
/// The part of the path behind the name of a group.
const GROUP_METRICS: [(&str, Metric); 7] = [
    ("clicks", Metric::GroupClicks),
    ("countries", Metric::Countries),
    ("devices", Metric::Devices),
    ("referring_networks", Metric::ReferringNetworks),
    ("shorten_counts", Metric::ShortenCounts),
    ("bitlinks/clicks", Metric::SortedLinks),
    ("links/clicks/top", Metric::SortedLinks),
];

/// The routes of version 4; others are not found.
pub(super) fn routes() -> Router<ApiState> {
    let mut router = Router::new();
    for (end, metric) in GROUP_METRICS {
        let path = format!("/v4/groups/{{group}}/{end}");
        router = router.route(&path, of_named("groups", metric));
    }
    router
        .route(
            "/v4/bitlinks/{*path}",
            of_bitlink("bitlinks", &BITLINK_METRICS),
        )
        .route(
            "/v4/custom_bitlinks/{*path}",
            of_bitlink("custom_bitlinks", &CUSTOM_BITLINK_METRICS),
        )
        .route(
            "/v4/organizations/{organization}/shorten_counts",
            of_named("organizations", Metric::ShortenCounts),
        )
        .route(
            "/v4/organizations/{organization}/plan_limits",
            get(plan_limits),
        )
        .route("/v4/user/platform_limits", get(platform_limits))
        .route("/v4", any(unknown))
        .route("/v4/", any(unknown))
        .route("/v4/{*path}", any(unknown))
        .method_not_allowed_fallback(unknown)
}

/// Metrics of a link, which is all of the path but its end.
fn of_bitlink(
    resource: &'static str,
    metrics: &'static [(&'static str, Metric)],
) -> MethodRouter<ApiState> {
    let find = |path: &str| {
        let mut ends = metrics.iter();
        let (bitlink, metric) =
            ends.find_map(|(end, metric)| Some((path.strip_suffix(end)?, *metric)))?;
        Some((hash_of_path(bitlink)?.to_owned(), metric))
    };
    of(resource, Kind::Link, find)
}

/// A metric of a group or an organization, named by one segment of the path.
fn of_named(resource: &'static str, metric: Metric) -> MethodRouter<ApiState> {
    let find = move |name: &str| is_key(name).then(|| (name.to_owned(), metric));
    of(resource, Kind::User, find)
}

/// A route whose key and metric `find` finds in what the path captures.
fn of(
    resource: &'static str,
    kind: Kind,
    find: impl Fn(&str) -> Option<(String, Metric)> + Clone + Send + Sync + 'static,
) -> MethodRouter<ApiState> {
    get(
        move |State(state): State<ApiState>,
              caller: Caller,
              path: Result<Path<String>, PathRejection>,
              RawQuery(query): RawQuery,
              headers: HeaderMap| async move {
            let asked = path.ok().and_then(|Path(path)| find(&path));
            let answer = match asked {
                Some((key, metric)) => {
                    let request = MetricRequest {
                        kind,
                        key,
                        metric,
                        is_csv: metric.csv_head().is_some() && wants_csv(&headers),
                    };
                    answer(&state, &caller, request, query.as_deref()).await
                }
                None => Err(Fault::NotFound),
            };
            answer::v4(resource, answer)
        },
    )
}

/// A metric, and the key that it is about.
struct MetricRequest {
    kind: Kind,
    key: String,
    metric: Metric,
    is_csv: bool,
}

/// Nothing is limited by a plan here.
async fn plan_limits(path: Result<Path<String>, PathRejection>) -> Response {
    let answer = path.map(|Path(organization)| {
        Body::Json(json!({"organization_guid": organization, "plan_limits": []}))
    });
    answer::v4("organizations", answer.map_err(|_| Fault::NotFound))
}

/// No endpoint is limited by default.
async fn platform_limits() -> Response {
    answer::v4("user", Ok(Body::Json(json!({"platform_limits": []}))))
}

async fn unknown(uri: axum::http::Uri) -> Response {
    answer::v4(Dialect::resource_of(uri.path()), Err(Fault::Unknown))
}

async fn answer(
    state: &ApiState,
    caller: &Caller,
    request: MetricRequest,
    query: Option<&str>,
) -> Result<Body, Fault> {
    let mut query = QueryString::parse(query)?;
    let size = take_size(&mut query)?;
    let window = take_window(&mut query, state.now())?;
    let MetricRequest {
        kind, key, metric, ..
    } = request;
    match metric {
        Metric::SortedLinks => {
            let (window, links) = links::ranked(state, caller, key, window, size).await?;
            return Ok(Body::Json(noted(sorted(links), &window)));
        }
        // No link is made through this server.
        Metric::ShortenCounts => {
            return Ok(Body::Json(metric.clicks(&window, &Series::default())));
        }
        _ => {}
    }
    let facet = metric.facet();
    let source = Source { kind, key, facet };
    read(state, [source], window, move |reader, window, series| {
        let series = &series[0];
        let Some(facet) = facet else {
            return Ok(Body::Json(metric.clicks(window, series)));
        };
        if let (true, Some(head)) = (request.is_csv, metric.csv_head()) {
            let text = csv(head, ranked(reader, series, facet, size)?);
            return Ok(Body::Csv(text, window.note));
        }
        let answer = metric.values(window, reader, series, facet, size)?;
        Ok(Body::Json(answer))
    })
    .await
}
