//! Version 3: `/v3/link/*` and `/v3/user/*`.
//!
//! Unknown parameters are passed over, as clients send some for every endpoint. `limit` is for lists
//! of values only: a series is never cut.

mod parameters;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::routing::{MethodRouter, any, get};
use serde_json::{Map, Value, json};
use tallyring_realtime::{Series, View};
use tallyring_records::sum_capped;

use super::answer::{self, Body, Fault};
use super::facets::{Facet, ranked};
use super::links;
use super::referrers::{address_of, domain_of, grouped};
use super::series::{ALL, Window, total};
use super::source::{Kind, Source, read};
use crate::access::Caller;
use crate::problem::Result;
use crate::query_string::QueryString;
use crate::state::ApiState;
pub(super) use parameters::{refuse_text, take_is_text, take_window};
use parameters::{take_flag, take_key, take_limit, take_text};

/// A metric of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Metric {
    Clicks,
    Countries,
    Referrers,
    ReferringDomains,
    ReferrersByDomain,
    PopularLinks,
    EncodersCount,
    Shares,
    ShortenCounts,
}

/// Days that `/v3/user/clicks` lists when it is asked for no unit.
const LEGACY_DAYS: i64 = 7;

use {Kind as K, Metric as M};

/// Every endpoint about one key.
const ENDPOINTS: [(&str, K, M); 14] = [
    ("/v3/link/clicks", K::Link, M::Clicks),
    ("/v3/link/countries", K::Link, M::Countries),
    ("/v3/link/referrers", K::Link, M::Referrers),
    ("/v3/link/referring_domains", K::Link, M::ReferringDomains),
    (
        "/v3/link/referrers_by_domain",
        K::Link,
        M::ReferrersByDomain,
    ),
    ("/v3/link/encoders_count", K::Link, M::EncodersCount),
    ("/v3/link/shares", K::Link, M::Shares),
    ("/v3/user/clicks", K::User, M::Clicks),
    ("/v3/user/countries", K::User, M::Countries),
    ("/v3/user/referrers", K::User, M::Referrers),
    ("/v3/user/referring_domains", K::User, M::ReferringDomains),
    ("/v3/user/popular_links", K::User, M::PopularLinks),
    ("/v3/user/shorten_counts", K::User, M::ShortenCounts),
    ("/v3/user/tracking_domain_clicks", K::Domain, M::Clicks),
];

/// The routes of version 3, beside its older ones; others are `UNKNOWN`.
pub(super) fn routes(older: Router<ApiState>) -> Router<ApiState> {
    let mut router = older;
    for (path, kind, metric) in ENDPOINTS {
        router = router.route(path, of(kind, metric));
    }
    router
        .route("/v3", any(unknown))
        .route("/v3/", any(unknown))
        .route("/v3/{*path}", any(unknown))
        .method_not_allowed_fallback(unknown)
}

fn of(kind: Kind, metric: Metric) -> MethodRouter<ApiState> {
    get(
        move |State(state): State<ApiState>, caller: Caller, RawQuery(query): RawQuery| async move {
            let answer = answer(&state, &caller, kind, metric, query.as_deref()).await;
            answer::v3(query.as_deref(), answer)
        },
    )
}

async fn unknown(RawQuery(query): RawQuery) -> axum::response::Response {
    answer::v3(query.as_deref(), Err(Fault::Unknown))
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
    let key = take_key(&mut query, kind, caller)?;
    if metric == Metric::EncodersCount {
        refuse_text(is_text)?;
        // A link has one hash here, so one user who made it.
        let data = json!({"count": 1, "aggregate_link": key.asked});
        return Ok(Body::Json(data));
    }
    let unit = take_text(&mut query, "unit")?;
    let source = Source {
        kind,
        key: key.key,
        facet: metric.facet(),
    };
    if kind == Kind::User && metric == Metric::Clicks && unit.is_none() {
        refuse_text(is_text)?;
        return legacy_clicks(state, source, query).await;
    }
    let limit = take_limit(&mut query)?;
    let units: Option<i64> = query.take_as("units", "a whole number")?;
    let wants_all = units.is_none_or(|units| units == ALL);
    let rolled = take_flag(&mut query, "rollup")?.unwrap_or(wants_all);
    let mut window = take_window(&mut query, unit, units, state.now())?;
    if !rolled && wants_all {
        // A list of all units has those that are not zero, also of the last hour's minutes.
        window.units = ALL;
    }
    if !metric.is_number() || !rolled {
        refuse_text(is_text)?;
    }
    match metric {
        Metric::ShortenCounts if is_text => return Ok(Body::Text(0, None)),
        Metric::ShortenCounts | Metric::Shares => {
            return Ok(Body::Json(nothing(metric, &window, rolled)));
        }
        Metric::PopularLinks => {
            let (window, links) = links::ranked(state, caller, source.key, window, limit).await?;
            let mut data = echo(&window);
            data.insert("popular_links".to_owned(), values(links, "link"));
            return Ok(Body::Json(data.into()));
        }
        _ => {}
    }
    read(state, [source], window, move |reader, window, series| {
        let series = &series[0];
        if is_text {
            return Ok(Body::Text(total(series), window.note));
        }
        let mut data = echo(window);
        match metric {
            Metric::Clicks => clicks(&mut data, kind, window, series, rolled),
            _ => facet(&mut data, kind, metric, reader, series, limit)?,
        }
        Ok(Body::Json(data.into()))
    })
    .await
}

/// The answer of metrics that are always zero: no link is made or shared through this server.
fn nothing(metric: Metric, window: &Window, rolled: bool) -> Value {
    let mut data = echo(window);
    if metric == Metric::Shares {
        data.insert("shares".to_owned(), json!([]));
        data.insert("total_shares".to_owned(), 0.into());
        return data.into();
    }
    let rows = window.rows(&Series::default()).into_iter();
    let counts: Value = if rolled {
        0.into()
    } else {
        rows.map(|(at, count)| json!({"dt": at, "shortens": count}))
            .collect()
    };
    insert_of_user(&mut data, "shorten_counts", counts);
    data.into()
}

impl Metric {
    /// True where the answer may be one number.
    fn is_number(self) -> bool {
        matches!(self, Self::Clicks | Self::ShortenCounts)
    }

    fn facet(self) -> Option<Facet> {
        match self {
            Self::Countries => Some(Facet::Countries),
            Self::Referrers | Self::ReferringDomains | Self::ReferrersByDomain => {
                Some(Facet::Referrers)
            }
            _ => None,
        }
    }
}

fn clicks_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Link => "link_clicks",
        Kind::User => "user_clicks",
        Kind::Domain => "tracking_domain_clicks",
    }
}

fn clicks(
    data: &mut Map<String, Value>,
    kind: Kind,
    window: &Window,
    series: &Series,
    rolled: bool,
) {
    let name = clicks_name(kind);
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
    reader: &View<'_>,
    series: &Series,
    limit: usize,
) -> Result<()> {
    let (name, list) = match metric {
        Metric::ReferringDomains => {
            let referrers = ranked(reader, series, Facet::Referrers, usize::MAX)?;
            let domains = grouped(referrers, domain_of).into_iter().take(limit);
            let domains = domains.map(|domain| {
                json!({"clicks": domain.clicks, "domain": domain.name, "url": address_of(&domain)})
            });
            ("referring_domains", domains.collect())
        }
        Metric::ReferrersByDomain => {
            let referrers = ranked(reader, series, Facet::Referrers, limit)?;
            let domains = grouped(referrers, domain_of).into_iter();
            let domains = domains.map(|domain| (domain.name, values(domain.referrers, "referrer")));
            ("referrers", Value::Object(domains.collect()))
        }
        Metric::Referrers => {
            let referrers = ranked(reader, series, Facet::Referrers, limit)?;
            ("referrers", values(referrers, "referrer"))
        }
        _ => {
            let countries = ranked(reader, series, Facet::Countries, limit)?;
            ("countries", values(countries, "country"))
        }
    };
    if kind == Kind::User {
        insert_of_user(data, name, list);
    } else {
        data.insert(name.to_owned(), list);
    }
    Ok(())
}

/// Under both names that clients read it by: those in Python `countries` and `shorten_counts`, the one in Java
/// `user_countries` and `user_referrers`.
fn insert_of_user(data: &mut Map<String, Value>, name: &str, value: Value) {
    data.insert(format!("user_{name}"), value.clone());
    data.insert(name.to_owned(), value);
}

/// Without `unit` the answer has the form of the time before units.
async fn legacy_clicks(
    state: &ApiState,
    source: Source,
    mut query: QueryString<'_>,
) -> Result<Body, Fault> {
    let days: Option<i64> = query.take_as("days", "a whole number")?;
    let units: Option<i64> = query.take_as("units", "a whole number")?;
    let units = units.or(days).unwrap_or(LEGACY_DAYS);
    let window = take_window(&mut query, None, Some(units), state.now())?;
    read(state, [source], window, |_, window, series| {
        let clicks = rows(window, &series[0], "day_start");
        let total = sum_capped(window.rows(&series[0]).into_iter().map(|(_, count)| count));
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

/// The fields about the request in every answer. `tz_offset` is the zone's at the reference, in hours.
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
    let note = window.note.map(|note| ("note", note.into()));
    let echo = echo.into_iter().chain(note);
    echo.map(|(name, value)| (name.to_owned(), value)).collect()
}
