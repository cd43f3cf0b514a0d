//! Version 4: `/v4/bitlinks/…`, `/v4/groups/…` and what belongs to them.
//!
//! A bitlink is two segments of the path, or one that is percent-encoded. Days begin at midnight
//! UTC, or at the offset of `unit_reference`; with our own parameter `timezone`, in that zone.
//! Dates in answers are UTC. `size` is for lists of values only: a series is never cut.

use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::{MethodRouter, any, get};
use jiff::Timestamp;
use jiff::fmt::temporal::Pieces;
use serde_json::{Value, json};
use tallyring_realtime::{Series, Store};

use super::csv::{csv, wants_csv};
use super::envelope::{self, Body, Fault};
use super::facets::{Facet, ranked};
use super::referrers::{domain_of, grouped, network_of};
use super::series::{ALL, Window, total};
use super::source::{Kind, Source, hash_of_path, is_key, read};
use crate::calendar::{Unit, Zone};
use crate::problem::Problem;
use crate::query_string::QueryString;
use crate::state::ApiState;

const SIZE_DEFAULT: usize = 50;
const REFERENCE: &str = "unit_reference";

/// What of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Metric {
    Clicks,
    Summary,
    GroupClicks,
    Engagements,
    Countries,
    Devices,
    Referrers,
    ReferringDomains,
    ReferringNetworks,
    ReferrersByDomains,
}

/// How a path of a bitlink ends, a longer end before what it ends with.
const BITLINK_METRICS: [(&str, Metric); 8] = [
    ("/clicks/summary", Metric::Summary),
    ("/clicks", Metric::Clicks),
    ("/engagements", Metric::Engagements),
    ("/countries", Metric::Countries),
    ("/devices", Metric::Devices),
    ("/referrers", Metric::Referrers),
    ("/referring_domains", Metric::ReferringDomains),
    ("/referrers_by_domains", Metric::ReferrersByDomains),
];
const CUSTOM_BITLINK_METRICS: [(&str, Metric); 1] = [("/clicks", Metric::Clicks)];

/// The routes of version 4; others are not found.
pub fn routes() -> Router<ApiState> {
    Router::new()
        .route(
            "/v4/bitlinks/{*path}",
            of_bitlink("bitlinks", &BITLINK_METRICS),
        )
        .route(
            "/v4/custom_bitlinks/{*path}",
            of_bitlink("custom_bitlinks", &CUSTOM_BITLINK_METRICS),
        )
        .route("/v4/groups/{group}/clicks", of_group(Metric::GroupClicks))
        .route("/v4/groups/{group}/countries", of_group(Metric::Countries))
        .route("/v4/groups/{group}/devices", of_group(Metric::Devices))
        .route(
            "/v4/groups/{group}/referring_networks",
            of_group(Metric::ReferringNetworks),
        )
        .route(
            "/v4/organizations/{organization}/plan_limits",
            get(plan_limits),
        )
        .route("/v4/user/platform_limits", get(platform_limits))
        .route("/v4/{*path}", any(unknown))
        .method_not_allowed_fallback(unknown)
}

fn of_bitlink(
    resource: &'static str,
    metrics: &'static [(&'static str, Metric)],
) -> MethodRouter<ApiState> {
    get(
        move |State(state): State<ApiState>,
              path: Result<Path<String>, PathRejection>,
              RawQuery(query): RawQuery,
              headers: HeaderMap| async move {
            let asked = path.ok().and_then(|Path(path)| {
                let mut ends = metrics.iter();
                let (bitlink, metric) =
                    ends.find_map(|(end, metric)| Some((path.strip_suffix(end)?, *metric)))?;
                Some((hash_of_path(bitlink)?.to_owned(), metric))
            });
            let answer = match asked {
                Some((hash, metric)) => {
                    answer(&state, Kind::Link, hash, metric, query.as_deref(), &headers).await
                }
                None => Err(Fault::NotFound),
            };
            envelope::v4(resource, answer)
        },
    )
}

fn of_group(metric: Metric) -> MethodRouter<ApiState> {
    get(
        move |State(state): State<ApiState>,
              path: Result<Path<String>, PathRejection>,
              RawQuery(query): RawQuery,
              headers: HeaderMap| async move {
            let answer = match path.ok().filter(|group| is_key(group)) {
                Some(Path(group)) => {
                    answer(
                        &state,
                        Kind::User,
                        group,
                        metric,
                        query.as_deref(),
                        &headers,
                    )
                    .await
                }
                None => Err(Fault::NotFound),
            };
            envelope::v4("groups", answer)
        },
    )
}

/// Nothing is limited by a plan here.
async fn plan_limits(path: Result<Path<String>, PathRejection>) -> Response {
    let answer = path.map(|Path(organization)| {
        Body::Json(json!({"organization_guid": organization, "plan_limits": []}))
    });
    envelope::v4("organizations", answer.map_err(|_| Fault::NotFound))
}

/// No endpoint is limited by default.
async fn platform_limits() -> Response {
    envelope::v4("user", Ok(Body::Json(json!({"platform_limits": []}))))
}

async fn unknown(uri: axum::http::Uri) -> Response {
    let resource = uri.path().split('/').nth(2).unwrap_or_default();
    envelope::v4(resource, Err(Fault::Unknown))
}

async fn answer(
    state: &ApiState,
    kind: Kind,
    key: String,
    metric: Metric,
    query: Option<&str>,
    headers: &HeaderMap,
) -> Result<Body, Fault> {
    let mut query = QueryString::parse(query)?;
    let size = take_size(&mut query)?;
    let window = take_window(&mut query, state.now())?;
    let is_csv = metric.csv_head().is_some() && wants_csv(headers);
    let facet = metric.facet();
    let source = Source { kind, key, facet };
    read(state, vec![source], window, move |store, window, series| {
        let series = &series[0];
        let Some(facet) = facet else {
            return Ok(Body::Json(metric.clicks(window, series)));
        };
        if let (true, Some(head)) = (is_csv, metric.csv_head()) {
            return Ok(Body::Csv(csv(head, ranked(store, series, facet, size)?)));
        }
        let answer = metric.values(window, store, series, facet, size)?;
        Ok(Body::Json(answer))
    })
    .await
}

impl Metric {
    fn facet(self) -> Option<Facet> {
        match self {
            Self::Clicks | Self::Summary | Self::GroupClicks | Self::Engagements => None,
            Self::Countries => Some(Facet::Countries),
            Self::Devices => Some(Facet::Devices),
            Self::Referrers
            | Self::ReferringDomains
            | Self::ReferringNetworks
            | Self::ReferrersByDomains => Some(Facet::Referrers),
        }
    }

    /// The first line as CSV, of what is served so.
    fn csv_head(self) -> Option<&'static str> {
        match self {
            Self::Countries => Some("Country, Clicks"),
            Self::Devices => Some("Device, Clicks"),
            Self::Referrers => Some("Referrer, Clicks"),
            _ => None,
        }
    }

    fn facet_name(self) -> &'static str {
        match self {
            Self::Devices => "devices",
            Self::Referrers => "referrers",
            Self::ReferringDomains => "referring_domains",
            Self::ReferringNetworks => "referring_networks",
            Self::ReferrersByDomains => "referrers_by_domain",
            _ => "countries",
        }
    }

    fn clicks(self, window: &Window, series: &Series) -> Value {
        let rows = |row: fn(String, u64) -> Value| -> Value {
            let rows = window.rows(series).into_iter();
            rows.map(|(start, clicks)| row(date(start), clicks))
                .collect()
        };
        let (name, value) = match self {
            Self::Summary => ("total_clicks", total(series).into()),
            Self::GroupClicks => (
                "data",
                rows(|date, clicks| json!({"ts": date, "count": clicks})),
            ),
            Self::Engagements => ("engagements", rows(engagement)),
            _ => (
                "link_clicks",
                rows(|date, clicks| json!({"date": date, "clicks": clicks})),
            ),
        };
        let mut answer = echo(window);
        answer[name] = value;
        answer
    }

    fn values(
        self,
        window: &Window,
        store: &Store,
        series: &Series,
        facet: Facet,
        size: usize,
    ) -> Result<Value, Problem> {
        let mut answer = echo(window);
        answer["facet"] = self.facet_name().into();
        let name = if self == Self::Devices {
            "device_type"
        } else {
            "value"
        };
        answer["metrics"] = match self {
            Self::ReferrersByDomains => {
                let networks = grouped(ranked(store, series, facet, size)?, network_of);
                let networks = networks.into_iter().map(|network| {
                    let referrers = metrics(network.referrers, "value");
                    json!({"network": network.name, "referrers": referrers})
                });
                // Only this one answers an epoch.
                answer[REFERENCE] = window.reference.into();
                answer["referrers_by_domain"] = networks.collect();
                answer
                    .as_object_mut()
                    .map(|fields| fields.remove("metrics"));
                return Ok(answer);
            }
            Self::ReferringDomains | Self::ReferringNetworks => {
                let name_of = if self == Self::ReferringDomains {
                    domain_of
                } else {
                    network_of
                };
                let groups = grouped(ranked(store, series, facet, usize::MAX)?, name_of);
                let groups = groups.into_iter().take(size);
                let groups = groups.map(|group| (group.name, group.clicks)).collect();
                metrics(groups, name)
            }
            _ => metrics(ranked(store, series, facet, size)?, name),
        };
        Ok(answer)
    }
}

/// Every count is a click here: nothing else is known to be an engagement.
fn engagement(date: String, clicks: u64) -> Value {
    json!({
        "engagement_count": clicks,
        "engagements": {"lib_button_clicks": 0, "clicks": clicks, "scans": 0},
        "date": date,
    })
}

/// `[{name:…, "clicks":…}]`, most clicks first.
fn metrics(values: Vec<(String, u64)>, name: &str) -> Value {
    let values = values.into_iter();
    values
        .map(|(value, clicks)| json!({name: value, "clicks": clicks}))
        .collect()
}

fn echo(window: &Window) -> Value {
    json!({
        REFERENCE: date(window.reference),
        "unit": window.unit.as_str(),
        "units": window.units,
    })
}

/// An instant as `2020-02-26T04:00:42+0000`.
fn date(instant: i64) -> String {
    let timestamp =
        Timestamp::from_second(instant).expect("BUG: units begin in the years 1 to 3000");
    timestamp.strftime("%Y-%m-%dT%H:%M:%S+0000").to_string()
}

fn take_size(query: &mut QueryString) -> Result<usize, Fault> {
    let size: Option<usize> = query.take_as("size", "a whole number from 1")?;
    Some(size.unwrap_or(SIZE_DEFAULT))
        .filter(|&size| size > 0)
        .ok_or_else(|| Fault::invalid("size"))
}

fn take_window(query: &mut QueryString, now: i64) -> Result<Window, Fault> {
    let unit = query.take_as("unit", "a unit")?.unwrap_or(Unit::Day);
    let units = query.take_as("units", "a whole number")?.unwrap_or(ALL);
    let reference = match query.take(REFERENCE)?.as_deref() {
        None | Some("") => None,
        Some(text) => Some(parse_reference(text).ok_or_else(|| Fault::invalid(REFERENCE))?),
    };
    let timezone = query.take("timezone")?.filter(|zone| !zone.is_empty());
    let zone = match (timezone, reference) {
        (Some(name), _) => Zone::named(&name).map_err(|_| Fault::invalid("timezone"))?,
        (None, Some((_, offset_secs))) => {
            let hours = f64::from(offset_secs) / 3_600.0;
            Zone::from_hour_offset(hours).map_err(|_| Fault::invalid(REFERENCE))?
        }
        (None, None) => Zone::utc(),
    };
    let reference = reference.map(|(instant, _)| instant);
    Window::new(unit, units, zone, (REFERENCE, reference), now)
}

/// Instant and offset in seconds of an ISO 8601 time; UTC where it has no offset. Unix seconds too.
fn parse_reference(text: &str) -> Option<(i64, i32)> {
    if let Ok(instant) = text.parse() {
        return Some((instant, 0));
    }
    // A plus that was not percent-encoded has become a space.
    let text = match text.rsplit_once(' ') {
        Some((time, offset)) if time.contains(['T', 't']) => format!("{time}+{offset}"),
        _ => text.to_owned(),
    };
    let pieces = Pieces::parse(&text).ok()?;
    let offset = pieces.to_numeric_offset().unwrap_or(jiff::tz::Offset::UTC);
    let local = pieces.date().to_datetime(pieces.time().unwrap_or_default());
    let instant = offset.to_timestamp(local).ok()?;
    Some((instant.as_second(), offset.seconds()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_read_in_every_form_that_clients_send() {
        for (text, expected) in [
            ("2020-02-26T04:00:42+0000", Some((1_582_689_642, 0))),
            ("2020-02-26T04:00:42 0000", Some((1_582_689_642, 0))),
            ("2020-02-26T04:00:42Z", Some((1_582_689_642, 0))),
            ("2020-02-26T04:00:42", Some((1_582_689_642, 0))),
            ("2020-02-25T23:00:42-0500", Some((1_582_689_642, -18_000))),
            ("2020-02-26T09:30:42+05:30", Some((1_582_689_642, 19_800))),
            ("2020-02-26", Some((1_582_675_200, 0))),
            ("1582689642", Some((1_582_689_642, 0))),
            ("yesterday", None),
            ("2020-02-30T00:00:00Z", None),
        ] {
            assert_eq!(parse_reference(text), expected, "{text}");
        }
    }
}
