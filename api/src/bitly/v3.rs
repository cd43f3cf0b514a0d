//! Version 3: `/v3/link/*` and `/v3/user/*`.
//!
//! Unknown parameters are passed over, as clients send some for every endpoint. `limit` is for lists
//! of values only: a series is never cut.

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::routing::{MethodRouter, any, get};
use serde_json::{Map, Value, json};
use tallyring_realtime::{Series, Store};

use super::deprecated;
use super::envelope::{self, Body, Fault};
use super::facets::{Facet, ranked};
use super::referrers::{address_of, domain_of, grouped};
use super::series::{ALL, Window, sum, total};
use super::source::{Kind, Source, hash_of_link, is_key, read};
use crate::access::Caller;
use crate::calendar::{Unit, Zone};
use crate::problem::Problem;
use crate::query_string::QueryString;
use crate::state::ApiState;

/// What of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Metric {
    Clicks,
    Countries,
    Referrers,
    ReferringDomains,
    ReferrersByDomain,
}

const DEFAULT_ZONE: &str = "America/New_York";
const LIMIT_DEFAULT: usize = 100;
const LIMIT_MAX: usize = 1_000;
const MINUTES_MAX: i64 = 60;
/// Days that `/v3/user/clicks` lists when it is asked for no unit.
const LEGACY_DAYS: i64 = 7;

/// The routes of version 3; others are `UNKNOWN`.
pub fn routes() -> Router<ApiState> {
    Router::new()
        .route("/v3/link/clicks", of(Kind::Link, Metric::Clicks))
        .route("/v3/link/countries", of(Kind::Link, Metric::Countries))
        .route("/v3/link/referrers", of(Kind::Link, Metric::Referrers))
        .route(
            "/v3/link/referring_domains",
            of(Kind::Link, Metric::ReferringDomains),
        )
        .route(
            "/v3/link/referrers_by_domain",
            of(Kind::Link, Metric::ReferrersByDomain),
        )
        .route("/v3/link/encoders_count", get(unavailable))
        .route("/v3/link/shares", get(unavailable))
        .route("/v3/user/clicks", of(Kind::User, Metric::Clicks))
        .route("/v3/user/countries", of(Kind::User, Metric::Countries))
        .route("/v3/user/referrers", of(Kind::User, Metric::Referrers))
        .route(
            "/v3/user/referring_domains",
            of(Kind::User, Metric::ReferringDomains),
        )
        .route("/v3/user/popular_links", get(unavailable))
        .route("/v3/user/shorten_counts", get(unavailable))
        .route(
            "/v3/user/tracking_domain_clicks",
            of(Kind::Domain, Metric::Clicks),
        )
        .merge(deprecated::routes())
        .route("/v3/{*path}", any(unknown))
        .method_not_allowed_fallback(unknown)
}

fn of(kind: Kind, metric: Metric) -> MethodRouter<ApiState> {
    get(
        move |State(state): State<ApiState>, caller: Caller, RawQuery(query): RawQuery| async move {
            envelope::v3(answer(&state, &caller, kind, metric, query.as_deref()).await)
        },
    )
}

async fn unavailable() -> axum::response::Response {
    envelope::v3(Err(Fault::Unavailable))
}

async fn unknown() -> axum::response::Response {
    envelope::v3(Err(Fault::Unknown))
}

async fn answer(
    state: &ApiState,
    caller: &Caller,
    kind: Kind,
    metric: Metric,
    query: Option<&str>,
) -> Result<Body, Fault> {
    let mut query = QueryString::parse(query)?;
    let is_text = take_is_text(&mut query)?;
    let source = Source {
        kind,
        key: take_key(&mut query, kind, caller)?,
        facet: metric.facet(),
    };
    let unit = take_text(&mut query, "unit")?;
    if kind == Kind::User && metric == Metric::Clicks && unit.is_none() {
        refuse_text(is_text)?;
        return legacy_clicks(state, source, query).await;
    }
    let limit = take_limit(&mut query)?;
    let units: Option<i64> = query.take_as("units", "a whole number")?;
    let rolled = take_flag(&mut query, "rollup")?.unwrap_or(units.is_none_or(|units| units == ALL));
    let window = take_window(&mut query, unit, units, state.now())?;
    if metric != Metric::Clicks || !rolled {
        refuse_text(is_text)?;
    }
    read(state, vec![source], window, move |store, window, series| {
        let series = &series[0];
        if is_text {
            return Ok(Body::Text(format!("{}\n", total(series))));
        }
        let mut data = echo(window);
        match metric {
            Metric::Clicks => clicks(&mut data, kind, window, series, rolled),
            _ => facet(&mut data, kind, metric, store, series, limit)?,
        }
        Ok(Body::Json(data.into()))
    })
    .await
}

impl Metric {
    fn facet(self) -> Option<Facet> {
        match self {
            Self::Clicks => None,
            Self::Countries => Some(Facet::Countries),
            Self::Referrers | Self::ReferringDomains | Self::ReferrersByDomain => {
                Some(Facet::Referrers)
            }
        }
    }
}

fn clicks(
    data: &mut Map<String, Value>,
    kind: Kind,
    window: &Window,
    series: &Series,
    rolled: bool,
) {
    let name = match kind {
        Kind::Link => "link_clicks",
        Kind::User => "user_clicks",
        Kind::Domain => "tracking_domain_clicks",
    };
    let clicks = if rolled {
        total(series).into()
    } else {
        rows(window, series, "dt")
    };
    data.insert(name.to_owned(), clicks);
    if kind == Kind::User {
        data.insert("total_clicks".to_owned(), total(series).into());
    }
}

fn facet(
    data: &mut Map<String, Value>,
    kind: Kind,
    metric: Metric,
    store: &Store,
    series: &Series,
    limit: usize,
) -> Result<(), Problem> {
    let (name, list) = match metric {
        Metric::ReferringDomains => {
            let referrers = ranked(store, series, Facet::Referrers, usize::MAX)?;
            let domains = grouped(referrers, domain_of).into_iter().take(limit);
            let domains = domains.map(|domain| {
                json!({"clicks": domain.clicks, "domain": domain.name, "url": address_of(&domain)})
            });
            ("referring_domains", domains.collect())
        }
        Metric::ReferrersByDomain => {
            let referrers = ranked(store, series, Facet::Referrers, limit)?;
            let domains = grouped(referrers, domain_of).into_iter();
            let domains = domains.map(|domain| (domain.name, values(domain.referrers, "referrer")));
            ("referrers", Value::Object(domains.collect()))
        }
        Metric::Referrers => {
            let referrers = ranked(store, series, Facet::Referrers, limit)?;
            ("referrers", values(referrers, "referrer"))
        }
        Metric::Clicks | Metric::Countries => {
            let countries = ranked(store, series, Facet::Countries, limit)?;
            ("countries", values(countries, "country"))
        }
    };
    if (kind, metric) == (Kind::User, Metric::Countries) {
        // The Python client reads one name, the Java client the other.
        data.insert("user_countries".to_owned(), list.clone());
    }
    data.insert(name.to_owned(), list);
    Ok(())
}

/// Without `unit` the answer has the form of the time before units.
async fn legacy_clicks(
    state: &ApiState,
    source: Source,
    mut query: QueryString,
) -> Result<Body, Fault> {
    let days: Option<i64> = query.take_as("days", "a whole number")?;
    let units: Option<i64> = query.take_as("units", "a whole number")?;
    let units = units.or(days).unwrap_or(LEGACY_DAYS);
    let window = take_window(&mut query, None, Some(units), state.now())?;
    read(state, vec![source], window, |_, window, series| {
        let clicks = rows(window, &series[0], "day_start");
        let total = sum(window.rows(&series[0]).into_iter().map(|(_, count)| count));
        let data = json!({"clicks": clicks, "days": window.units, "total_clicks": total});
        Ok(Body::Json(data))
    })
    .await
}

/// `[{"clicks":…, start:…}]`, newest first.
pub(super) fn rows(window: &Window, series: &Series, start: &str) -> Value {
    let rows = window.rows(series).into_iter();
    rows.map(|(at, clicks)| json!({"clicks": clicks, start: at}))
        .collect()
}

/// `[{"clicks":…, name:…}]`, most clicks first.
pub(super) fn values(values: Vec<(String, u64)>, name: &str) -> Value {
    let values = values.into_iter();
    values
        .map(|(value, clicks)| json!({"clicks": clicks, name: value}))
        .collect()
}

/// What every answer says about the request. `tz_offset` is the zone's at the reference, in hours.
fn echo(window: &Window) -> Map<String, Value> {
    let seconds = window.zone.offset_secs(window.reference);
    let tz_offset = if seconds % 3_600 == 0 {
        json!(seconds / 3_600)
    } else {
        json!(seconds as f64 / 3_600.0)
    };
    let echo = [
        ("tz_offset", tz_offset),
        ("unit", window.unit.as_str().into()),
        ("units", window.units.into()),
        ("unit_reference_ts", window.reference.into()),
    ];
    echo.map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .collect()
}

/// Takes `timezone` (or `tz_offset`, as the Python client calls it) and `unit_reference_ts`.
pub(super) fn take_window(
    query: &mut QueryString,
    unit: Option<String>,
    units: Option<i64>,
    now: i64,
) -> Result<Window, Fault> {
    const REFERENCE: &str = "unit_reference_ts";
    let unit = unit.map_or(Ok(Unit::Day), |unit| {
        unit.parse().map_err(|_| Fault::invalid("unit"))
    })?;
    let units = units.unwrap_or(ALL);
    let reference = match take_text(query, REFERENCE)? {
        Some(text) if text != "now" => Some(text.parse().map_err(|_| Fault::invalid(REFERENCE))?),
        _ => None,
    };
    if unit == Unit::Minute && reference.is_some() {
        return Err(Fault::invalid(REFERENCE));
    }
    if unit == Unit::Minute && units > MINUTES_MAX {
        return Err(Fault::invalid("units"));
    }
    let (timezone, tz_offset) = (
        take_text(query, "timezone")?,
        take_text(query, "tz_offset")?,
    );
    let zone = timezone.or(tz_offset);
    let zone = zone.as_deref().map_or(DEFAULT_ZONE, str::trim);
    let zone = match zone.parse() {
        Ok(hours) => Zone::fixed(hours),
        Err(_) => Zone::named(zone),
    };
    let zone = zone.map_err(|_| Fault::invalid("timezone"))?;
    Window::new(unit, units, zone, (REFERENCE, reference), now)
}

/// The key that the request is about. The login is the one behind the token; for a token that has none the
/// one that is named, and without keys of our own else the token itself.
fn take_key(query: &mut QueryString, kind: Kind, caller: &Caller) -> Result<String, Fault> {
    match kind {
        Kind::Link => {
            let link = take_text(query, "link")?.ok_or(Fault::Missing("link"))?;
            hash_of_link(&link).ok_or_else(|| Fault::invalid("link"))
        }
        Kind::User => {
            let login = take_text(query, "login")?;
            let token = take_text(query, "access_token")?;
            // A key of ours is a secret, never a name.
            let token = token.filter(|_| !caller.has_key());
            let login = caller.login.clone().or(login);
            let key = login.or(token).ok_or(Fault::Missing("access_token"))?;
            let checked = Some(key).filter(|key| is_key(key));
            checked.ok_or_else(|| Fault::invalid("access_token"))
        }
        Kind::Domain => {
            let domain = take_text(query, "domain")?.ok_or(Fault::Missing("domain"))?;
            let checked = Some(domain).filter(|domain| is_key(domain));
            checked.ok_or_else(|| Fault::invalid("domain"))
        }
    }
}

/// Takes a parameter; an empty one counts as left out.
fn take_text(query: &mut QueryString, name: &str) -> Result<Option<String>, Fault> {
    Ok(query.take(name)?.filter(|text| !text.is_empty()))
}

fn take_flag(query: &mut QueryString, name: &str) -> Result<Option<bool>, Fault> {
    let text = take_text(query, name)?.map(|text| text.to_lowercase());
    match text.as_deref() {
        None => Ok(None),
        Some("true" | "1") => Ok(Some(true)),
        Some("false" | "0") => Ok(Some(false)),
        Some(_) => Err(Fault::invalid(name)),
    }
}

fn take_limit(query: &mut QueryString) -> Result<usize, Fault> {
    let limit: Option<usize> = query.take_as("limit", "a whole number from 1 to 1000")?;
    Some(limit.unwrap_or(LIMIT_DEFAULT))
        .filter(|limit| (1..=LIMIT_MAX).contains(limit))
        .ok_or_else(|| Fault::invalid("limit"))
}

/// True for `format=txt`. There is no `xml`.
pub(super) fn take_is_text(query: &mut QueryString) -> Result<bool, Fault> {
    match take_text(query, "format")?.as_deref() {
        None | Some("json") => Ok(false),
        Some("txt") => Ok(true),
        Some(_) => Err(Fault::invalid("format")),
    }
}

/// Only a single number can be text.
pub(super) fn refuse_text(is_text: bool) -> Result<(), Fault> {
    if is_text {
        Err(Fault::invalid("format"))
    } else {
        Ok(())
    }
}
