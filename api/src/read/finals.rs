//! `GET /v1/finals` and `/v1/finals/{day}`: which days are final, since when, and what made the difference.

use std::collections::BTreeMap;

use axum::response::Response;
use serde::Serialize;
use tallyring_archive::{FinalEntry, FinalSums, ShownSums};
use tallyring_realtime::{State, States, View};

use super::format::Format;
use super::reply::Respond;
use super::request::ReadRequest;
use crate::access::Length;
use crate::calendar::rfc3339_utc;
use crate::chart::Picture;
use crate::etag::NotModified;
use crate::problem::{Problem, Result};
use crate::refusals::ReadErrors;
use crate::table::Table;

const COLUMNS: [&str; 8] = [
    "day", "version", "state", "at", "upto", "type", "what", "count",
];

/// Final days, each in its newest version.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Finals {
    /// From the first final day until then, every day is final; null as long as none is
    final_until: Option<String>,
    finals: Vec<FinalDay>,
}

/// All final versions of one day.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Versions {
    day: String,
    /// `final`, `corrected` where something of the day was counted since, or `provisional` where history is loaded
    #[schema(value_type = String)]
    state: State,
    /// Oldest first
    versions: Vec<FinalDay>,
}

/// One final version of a UTC day.
#[derive(Serialize, utoipa::ToSchema)]
struct FinalDay {
    day: String,
    version: u32,
    /// State of the newest version of the day, in all of its versions
    #[schema(value_type = String)]
    state: State,
    /// When it was published
    at: String,
    /// Records of the log before this one were judged
    upto: u64,
    /// Hash of the rules that judged
    rules: String,
    /// By event type; plain increments are an `increment`
    types: BTreeMap<String, FinalType>,
}

/// Sums of one event type in a final version, all of `n`.
#[derive(Serialize, utoipa::ToSchema)]
struct FinalType {
    /// Counted before, by the version before or live
    before: u64,
    /// The difference by cause; `before` and all of them make `after`
    causes: BTreeMap<String, i64>,
    /// Counted by this version
    after: u64,
    /// All that came, whatever the rules said of it
    gross: u64,
    /// Part of it that some rule could not judge
    undecided: u64,
}

/// Final days
///
/// The UTC days that are final, oldest first, each with its newest version: when it was published, what it judged, and
/// what made it differ from the version before or from what was counted live. Also as `/v1/finals.csv`, a row for each
/// number. A key that is limited to namespaces gets 403.
#[utoipa::path(get, path = "/v1/finals", tag = "read",
    responses(
        (status = 200, description = "The final days", body = Finals, example = json!({
            "final_until": "2012-03-17T00:00:00Z",
            "finals": [{
                "day": "2012-03-16", "version": 1, "state": "final", "at": "2012-03-20T00:05:00Z", "upto": 80,
                "rules": "8c1f0e5a92b3d476", "types": {"click": {
                    "before": 3, "causes": {"duplicate_beyond_window": -1, "filtered_by:bots": -1}, "after": 1,
                    "gross": 3, "undecided": 0,
                }},
            }],
        })),
        ReadErrors,
        NotModified,
    ),
)]
pub(crate) async fn finals(request: ReadRequest<()>) -> Result<Response> {
    let (query, format) = request.query()?;
    query.finish("none")?;
    let now = request.now;
    request
        .reply(format)
        .answer(&request.state, Length::Short, move |view, _| {
            let states = states(view, now);
            let all = view.finals();
            let newest = all.iter().enumerate().filter(|(index, version)| {
                let next = all.get(index + 1);
                next.is_none_or(|next| next.day != version.day)
            });
            Ok(Finals {
                final_until: states.final_until().map(rfc3339_utc),
                finals: newest
                    .map(|(_, version)| FinalDay::of(version, &states))
                    .collect(),
            })
        })
        .await
}

/// Versions of a final day
///
/// All final versions of one UTC day, oldest first. Each stays readable with `final=` and its number. Also as
/// `/v1/finals/{day}.csv`.
#[utoipa::path(get, path = "/v1/finals/{day}", tag = "read",
    params(("day" = String, Path, description = "A UTC day", example = "2012-03-16")),
    responses(
        (status = 200, description = "The versions", body = Versions, example = json!({
            "day": "2012-03-16", "state": "final", "versions": [{
                "day": "2012-03-16", "version": 1, "state": "final", "at": "2012-03-20T00:05:00Z", "upto": 80,
                "rules": "8c1f0e5a92b3d476", "types": {"click": {
                    "before": 3, "causes": {"filtered_by:bots": -1}, "after": 2, "gross": 3, "undecided": 0,
                }},
            }],
        })),
        ReadErrors,
        NotModified,
    ),
)]
pub(crate) async fn versions(mut request: ReadRequest<String>) -> Result<Response> {
    let (query, format) = request.query()?;
    query.finish("none")?;
    let text = request.take_path();
    let text = Format::without_suffix(&text).to_owned();
    let day = text.parse().map_err(|_| {
        let detail = "must be a UTC day such as 2012-03-16, from 2000-01-01 on";
        Problem::malformed("day", &text, detail)
    })?;
    let now = request.now;
    request
        .reply(format)
        .answer(&request.state, Length::Short, move |view, _| {
            let states = states(view, now);
            let of_day = view.finals().iter().filter(|version| version.day == day);
            let versions: Vec<FinalDay> = of_day
                .map(|version| FinalDay::of(version, &states))
                .collect();
            match versions.last() {
                None => {
                    let detail = "must be a final day; `/v1/finals` lists them";
                    Err(Problem::unknown("day", &text, detail))
                }
                Some(newest) => Ok(Versions {
                    day: newest.day.clone(),
                    state: newest.state,
                    versions,
                }),
            }
        })
        .await
}

/// The states of days, whatever namespace counts.
fn states(view: &View<'_>, now: i64) -> States {
    let namespaces = view.schema().namespaces.iter();
    let namespaces: Vec<&str> = namespaces.map(|namespace| &*namespace.name).collect();
    view.states(&namespaces, now, None)
}

impl FinalDay {
    fn of(version: &FinalEntry, states: &States) -> Self {
        let types = version.types.iter();
        Self {
            day: version.day.to_string(),
            version: version.version,
            state: states.of(&(version.day.start()..version.day.next().start())),
            at: rfc3339_utc(version.at_ms.div_euclid(1_000)),
            upto: version.upto,
            rules: version.rules.clone(),
            types: types
                .map(|(kind, sums)| (kind.clone(), FinalType::of(sums)))
                .collect(),
        }
    }

    /// Adds a row for each number.
    fn add_rows(&self, table: &mut Table) {
        let (version, upto) = (self.version.to_string(), self.upto.to_string());
        for (kind, sums) in &self.types {
            let mut row = |what: &str, count: String| {
                let state = self.state.as_str();
                let of = [&*self.day, &*version, state, &*self.at, &*upto, &**kind];
                table.row(&[&of[..], &[what, &*count]].concat());
            };
            row("before", sums.before.to_string());
            for (cause, count) in &sums.causes {
                row(&format!("cause:{cause}"), count.to_string());
            }
            row("after", sums.after.to_string());
            row("gross", sums.gross.to_string());
            row("undecided", sums.undecided.to_string());
        }
    }
}

impl FinalType {
    fn of(sums: &FinalSums) -> Self {
        let ShownSums {
            before,
            causes,
            after,
            gross,
            undecided,
        } = sums.shown();
        Self {
            before,
            causes,
            after,
            gross,
            undecided,
        }
    }
}

fn table(days: &[FinalDay]) -> String {
    let mut table = Table::new(&COLUMNS);
    days.iter().for_each(|day| day.add_rows(&mut table));
    table.end()
}

impl Respond for Finals {
    /// A later version may come at any time.
    fn ends(&self) -> i64 {
        i64::MAX
    }

    fn identity(&self) -> impl Serialize {
        ("finals", self)
    }

    fn rows(&self) -> String {
        table(&self.finals)
    }

    fn picture(&self, _: Picture) -> Option<String> {
        None
    }
}

impl Respond for Versions {
    /// A later version may come at any time.
    fn ends(&self) -> i64 {
        i64::MAX
    }

    fn identity(&self) -> impl Serialize {
        ("versions", self)
    }

    fn rows(&self) -> String {
        table(&self.versions)
    }

    fn picture(&self, _: Picture) -> Option<String> {
        None
    }
}
