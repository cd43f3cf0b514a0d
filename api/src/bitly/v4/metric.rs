//! The metrics of a key in version 4.

use jiff::Timestamp;
use serde_json::{Value, json};
use tallyring_realtime::{Series, View};
use tallyring_records::MISSING;

use super::super::facets::{Facet, ranked};
use super::super::referrers::{domain_of, grouped, network_of};
use super::super::series::{Window, total};
use super::parameters::REFERENCE;
use crate::problem::Result;

/// A metric of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Metric {
    Clicks,
    Summary,
    GroupClicks,
    Engagements,
    EngagementsSummary,
    Destinations,
    ShortenCounts,
    SortedLinks,
    Countries,
    Devices,
    Referrers,
    ReferringDomains,
    ReferringNetworks,
    ReferrersByDomains,
}

impl Metric {
    /// The dimension that the metric breaks a key down by.
    pub(super) fn facet(self) -> Option<Facet> {
        match self {
            Self::Countries => Some(Facet::Countries),
            Self::Devices => Some(Facet::Devices),
            Self::Referrers
            | Self::ReferringDomains
            | Self::ReferringNetworks
            | Self::ReferrersByDomains => Some(Facet::Referrers),
            _ => None,
        }
    }

    /// The first line as CSV, of what is served so.
    pub(super) fn csv_head(self) -> Option<&'static str> {
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

    /// Its answer, of what needs no breakdown.
    pub(super) fn clicks(self, window: &Window, series: &Series) -> Value {
        let rows = |row: fn(String, u64) -> Value| -> Value {
            let rows = window.rows(series).into_iter();
            rows.map(|(start, clicks)| row(date(start), clicks))
                .collect()
        };
        let mut answer = echo(window);
        let (name, value) = match self {
            Self::EngagementsSummary => {
                answer["engagements"] = engagements(total(series));
                ("total_engagements", total(series).into())
            }
            Self::Destinations => {
                answer["facet"] = "clicks_by_destination".into();
                // Where a link led to is not counted.
                let clicks = Some(total(series)).filter(|&clicks| clicks > 0);
                let clicks = clicks.map(|clicks| json!({"value": MISSING, "clicks": clicks}));
                ("metrics", clicks.into_iter().collect())
            }
            Self::ShortenCounts => {
                answer["facet"] = "shorten_counts".into();
                (
                    "metrics",
                    rows(|date, count| json!({"key": date, "value": count})),
                )
            }
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
        answer[name] = value;
        answer
    }

    /// Its answer, of what is a breakdown.
    pub(super) fn values(
        self,
        window: &Window,
        reader: &View<'_>,
        series: &Series,
        facet: Facet,
        size: usize,
    ) -> Result<Value> {
        let mut answer = echo(window);
        answer["facet"] = self.facet_name().into();
        let name = if self == Self::Devices {
            "device_type"
        } else {
            "value"
        };
        answer["metrics"] = match self {
            Self::ReferrersByDomains => {
                let networks = grouped(ranked(reader, series, facet, size)?, network_of);
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
                let groups = grouped(ranked(reader, series, facet, usize::MAX)?, name_of);
                let groups = groups.into_iter().take(size);
                let groups = groups.map(|group| (group.name, group.clicks)).collect();
                metrics(groups, name)
            }
            _ => metrics(ranked(reader, series, facet, size)?, name),
        };
        Ok(answer)
    }
}

/// `{"sorted_links":[{"id":…,"clicks":…}],"links":[…]}`, most clicks first.
pub(super) fn sorted(links: Vec<(String, u64)>) -> Value {
    // Only the hash of a link is known.
    let known: Value = links.iter().map(|(hash, _)| json!({"id": hash})).collect();
    json!({"sorted_links": metrics(links, "id"), "links": known})
}

fn engagement(date: String, clicks: u64) -> Value {
    json!({"engagement_count": clicks, "engagements": engagements(clicks), "date": date})
}

/// Every count is a click here: nothing else is known to be an engagement.
fn engagements(clicks: u64) -> Value {
    json!({"lib_button_clicks": 0, "clicks": clicks, "scans": 0})
}

/// `[{name:…, "clicks":…}]`, most clicks first.
fn metrics(values: Vec<(String, u64)>, name: &str) -> Value {
    let values = values.into_iter();
    values
        .map(|(value, clicks)| json!({name: value, "clicks": clicks}))
        .collect()
}

fn echo(window: &Window) -> Value {
    let echo = json!({
        REFERENCE: date(window.reference),
        "unit": window.unit.as_str(),
        "units": window.units,
    });
    noted(echo, window)
}

/// The answer with the note of its window.
pub(super) fn noted(mut answer: Value, window: &Window) -> Value {
    if let Some(note) = window.note {
        answer["note"] = note.into();
    }
    answer
}

/// An instant as `2020-02-26T04:00:42+0000`.
fn date(instant: i64) -> String {
    let timestamp =
        Timestamp::from_second(instant).expect("BUG: units begin in the years 1 to 3000");
    timestamp.strftime("%Y-%m-%dT%H:%M:%S+0000").to_string()
}
