//! Version 3's endpoints for several links at once, deprecated when bitly still served them.
//!
//! A link has one hash here: what bitly calls the user's and the global one are the same.

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::routing::{MethodRouter, get};
use serde_json::{Value, json};
use tallyring_realtime::Series;

use super::answer::{self, Body, Fault};
use super::facets::{Facet, ranked};
use super::series::{ALL, Window, total};
use super::source::{Kind, Source, hash_of_link, is_key, is_link, read};
use super::v3::{refuse_text, rows, take_is_text, take_window, values};
use crate::query_string::QueryString;
use crate::state::ApiState;

/// Links of one request, at most, of each way to name them.
const LINKS_MAX: usize = 15;
const DAYS_DEFAULT: i64 = 7;
const DAYS_MAX: i64 = 30;
const MINUTES: i64 = 60;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Total,
    ByDay,
    ByMinute,
}

/// A link as the request named it.
struct Named {
    /// `short_url` or `hash`.
    name: &'static str,
    text: String,
    /// None for what is no link.
    hash: Option<String>,
}

/// The deprecated routes.
pub(super) fn routes() -> Router<ApiState> {
    Router::new()
        .route("/v3/clicks", of(Wanted::Total))
        .route("/v3/clicks_by_day", of(Wanted::ByDay))
        .route("/v3/clicks_by_minute", of(Wanted::ByMinute))
        .route("/v3/countries", by(Facet::Countries))
        .route("/v3/referrers", by(Facet::Referrers))
}

fn of(wanted: Wanted) -> MethodRouter<ApiState> {
    get(
        move |State(state): State<ApiState>, RawQuery(query): RawQuery| async move {
            let answer = clicks(&state, wanted, query.as_deref()).await;
            answer::v3(query.as_deref(), answer)
        },
    )
}

fn by(facet: Facet) -> MethodRouter<ApiState> {
    get(
        move |State(state): State<ApiState>, RawQuery(query): RawQuery| async move {
            let answer = breakdown(&state, facet, query.as_deref()).await;
            answer::v3(query.as_deref(), answer)
        },
    )
}

async fn clicks(state: &ApiState, wanted: Wanted, query: Option<&str>) -> Result<Body, Fault> {
    let mut query = QueryString::parse(query)?;
    refuse_text(take_is_text(&mut query)?)?;
    let links = take_links(&mut query)?;
    let (unit, units) = match wanted {
        Wanted::Total => ("day", ALL),
        Wanted::ByMinute => ("minute", MINUTES),
        Wanted::ByDay => {
            let days: Option<i64> = query.take_as("days", "a whole number from 1 to 30")?;
            let days = days.unwrap_or(DAYS_DEFAULT);
            if !(1..=DAYS_MAX).contains(&days) {
                return Err(Fault::invalid("days"));
            }
            ("day", days)
        }
    };
    let window = take_window(&mut query, Some(unit.to_owned()), Some(units), state.now())?;
    let sources: Vec<_> = links.iter().filter_map(|link| link.source(None)).collect();
    read(state, sources, window, move |_, window, series| {
        let mut series = series.iter();
        let items = links.iter().map(|link| {
            let mut item = link.item();
            match link.hash.as_ref().and_then(|_| series.next()) {
                Some(series) => wanted.fill(&mut item, window, series),
                None => item["error"] = "NOT_FOUND".into(),
            }
            item
        });
        let items: Value = items.collect();
        let mut data = json!({ wanted.name(): items });
        if let Some(note) = window.note {
            data["unit"] = window.unit.as_str().into();
            data["note"] = note.into();
        }
        Ok(Body::Json(data))
    })
    .await
}

/// All values of one link: the old way has no limit.
async fn breakdown(state: &ApiState, facet: Facet, query: Option<&str>) -> Result<Body, Fault> {
    let mut query = QueryString::parse(query)?;
    refuse_text(take_is_text(&mut query)?)?;
    let links = take_links(&mut query)?;
    let [link] = <[Named; 1]>::try_from(links).map_err(|_| Fault::invalid("shorturl"))?;
    let source = link
        .source(Some(facet))
        .ok_or_else(|| Fault::invalid("shorturl"))?;
    let window = take_window(&mut query, None, None, state.now())?;
    read(state, [source], window, move |reader, _, series| {
        let (list, name) = match facet {
            Facet::Countries => ("countries", "country"),
            _ => ("referrers", "referrer"),
        };
        let mut data = link.item();
        data[list] = values(ranked(reader, &series[0], facet, usize::MAX)?, name);
        Ok(Body::Json(data))
    })
    .await
}

impl Wanted {
    fn name(self) -> &'static str {
        match self {
            Self::Total => "clicks",
            Self::ByDay => "clicks_by_day",
            Self::ByMinute => "clicks_by_minute",
        }
    }

    fn fill(self, item: &mut Value, window: &Window, series: &Series) {
        match self {
            Self::Total => {
                item["user_clicks"] = total(series).into();
                item["global_clicks"] = total(series).into();
            }
            Self::ByDay => item["clicks"] = rows(window, series, "day_start"),
            Self::ByMinute => {
                let clicks = window.rows(series).into_iter();
                item["clicks"] = clicks.map(|(_, clicks)| Value::from(clicks)).collect();
            }
        }
    }
}

impl Named {
    fn source(&self, facet: Option<Facet>) -> Option<Source> {
        Some(Source {
            kind: Kind::Link,
            key: self.hash.clone()?,
            facet,
        })
    }

    /// The fields about the link in every answer.
    fn item(&self) -> Value {
        match &self.hash {
            Some(hash) => json!({self.name: self.text, "user_hash": hash, "global_hash": hash}),
            None => json!({self.name: self.text}),
        }
    }
}

/// Takes every `shortUrl` and `hash`.
fn take_links(query: &mut QueryString) -> Result<Vec<Named>, Fault> {
    let short_urls = take_all(query, "shortUrl")?.into_iter().map(|text| Named {
        name: "short_url",
        hash: hash_of_link(&text),
        text,
    });
    let hashes = take_all(query, "hash")?.into_iter().map(|text| Named {
        name: "hash",
        // Clients take what is no `http://` link for a hash.
        hash: match is_link(&text) {
            true => hash_of_link(&text),
            false => Some(text.clone()).filter(|hash| is_key(hash)),
        },
        text,
    });
    let links: Vec<Named> = short_urls.chain(hashes).collect();
    if links.is_empty() {
        return Err(Fault::Missing("shorturl"));
    }
    Ok(links)
}

/// Takes a parameter that may be repeated.
fn take_all(query: &mut QueryString, name: &str) -> Result<Vec<String>, Fault> {
    let taken = query.take_prefixed(name).into_iter();
    let texts: Vec<String> = taken
        .filter(|(rest, _)| rest.is_empty())
        .map(|(_, text)| text.into())
        .collect();
    if texts.len() > LINKS_MAX {
        return Err(Fault::invalid(name));
    }
    Ok(texts)
}
