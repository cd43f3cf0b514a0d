//! `GET /v1/finals/days`: how final every day of a range is, and why one is not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::response::Response;
use serde::Serialize;
use tallyring_realtime::{State, States, View};
use tallyring_records::{Day, FieldError, LoggedDataset};

use super::states;
use crate::access::Length;
use crate::calendar::rfc3339_utc;
use crate::problem::{Problem, Result};
use crate::query_string::QueryString;
use crate::read::reply::Respond;
use crate::read::request::ReadRequest;
use crate::state::Admin;
use crate::table::Table;

/// Days in one answer, at most, and unless asked otherwise: enough for all of this month and of the one before.
const DAYS_MAX: u32 = 400;
const DAYS_DEFAULT: u32 = 62;
const HOUR_SECONDS: i64 = 3_600;

const COLUMNS: [&str; 6] = ["day", "state", "versions", "at", "final_at", "reason"];

/// How final each day of a range is.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Days {
    /// The UTC day of the server's clock
    today: String,
    /// From the first final day until then, every day is final; null as long as none is
    final_until: Option<String>,
    /// So many hours after its end a day becomes final by itself; null where none does
    after_hours: Option<u32>,
    /// Oldest first
    days: Vec<DayState>,
}

/// How final a UTC day is.
#[derive(Serialize, utoipa::ToSchema)]
struct DayState {
    day: String,
    /// `live`, `settled`, `provisional`, `corrected` or `final`, for all namespaces together; `closed` where the day
    /// left the log without being final, and never becomes so; `before` where the store began later, and has nothing
    /// of it
    state: &'static str,
    /// The numbers of its final versions
    versions: Vec<u32>,
    /// When the newest version was published; null where there is none
    at: Option<String>,
    /// When the day becomes final by itself, about; null where it is final, or becomes so by hand
    final_at: Option<String>,
    /// Why the day is not final although it should be, or why its last reconcile failed; null where nothing is wrong
    reason: Option<String>,
}

/// States of days
///
/// How final every UTC day of a range is, oldest first, with its versions, and why a day is not final that should be.
/// At most 400 days. Also as `/v1/finals/days.csv`. A key that is limited to namespaces gets 403.
#[utoipa::path(get, path = "/v1/finals/days", tag = "read",
    params(
        ("from" = Option<String>, Query, description = "The first UTC day; 61 days before `to` unless given", example = "2012-03-15"),
        ("to" = Option<String>, Query, description = "The last UTC day; today unless given", example = "2012-03-16"),
    ),
    responses((status = 200, description = "The days", body = Days, example = json!({
        "today": "2012-03-18", "final_until": "2012-03-16T00:00:00Z", "after_hours": 72,
        "days": [
            {
                "day": "2012-03-15", "state": "final", "versions": [1], "at": "2012-03-19T00:05:00Z", "final_at": null,
                "reason": null,
            },
            {
                "day": "2012-03-16", "state": "provisional", "versions": [], "at": null,
                "final_at": "2012-03-20T00:00:00Z", "reason": null,
            },
        ],
    }))),
)]
pub(crate) async fn days(request: ReadRequest<()>) -> Result<Response> {
    let (mut query, format) = request.query()?;
    let now = request.now;
    let range = take_range(&mut query, Day::of(now))?;
    query.finish("from, to and after")?;
    let admin = Arc::clone(&request.state.admin);
    request
        .reply(format)
        .answer(&request.state, Length::Short, move |view, _| {
            Ok(Days::of(view, &admin, range, now))
        })
        .await
}

/// The first and the last day.
fn take_range(query: &mut QueryString, today: Day) -> Result<(Day, Day)> {
    let expected = "a UTC day such as 2012-03-16, from 2000-01-01 on";
    let to = query.take_as("to", expected)?.unwrap_or(today);
    let usual = Day::from_number(to.number().saturating_sub(DAYS_DEFAULT - 1));
    let from: Day = query.take_as("from", expected)?.unwrap_or(usual);
    let refuse = |detail: String| -> Problem {
        FieldError::refused("from", &from.to_string(), detail).into()
    };
    if from > to {
        return Err(refuse(format!("must not be after `to`, which is {to}")));
    }
    let days = to.number() - from.number() + 1;
    if days > DAYS_MAX {
        return Err(refuse(format!(
            "begins a range of {days} days, and one answer has at most {DAYS_MAX}: ask for fewer"
        )));
    }
    Ok((from, to))
}

/// The reasons for which days are not final, and when they become so.
struct Plan<'v> {
    after_hours: Option<u32>,
    overdue: Vec<Day>,
    /// Days that left the log without being final.
    closed: BTreeSet<Day>,
    failures: BTreeMap<Day, String>,
    /// Final datasets that are lost.
    lost: &'v [LoggedDataset],
    now: i64,
}

impl Days {
    fn of(view: &View<'_>, admin: &Admin, (from, to): (Day, Day), now: i64) -> Self {
        let states = states(view, now);
        let plan = Plan {
            after_hours: admin.final_after_hours,
            overdue: (admin.overdue)().iter().map(|of| of.day).collect(),
            closed: (admin.closed_without_final)()
                .iter()
                .map(|of| of.day)
                .collect(),
            failures: (admin.failures)(),
            lost: view.lost_datasets(),
            now,
        };
        let mut versions: BTreeMap<Day, Vec<(u32, i64)>> = BTreeMap::new();
        let all = view.finals().iter();
        for version in all.filter(|version| (from..=to).contains(&version.day)) {
            let of_day = versions.entry(version.day).or_default();
            of_day.push((version.version, version.at_ms));
        }
        let days = from.through(to);
        let days = days.map(|day| {
            let versions = versions.remove(&day).unwrap_or_default();
            plan.state_of(day, &versions, &states)
        });
        Self {
            today: Day::of(now).to_string(),
            final_until: states.final_until().map(rfc3339_utc),
            after_hours: plan.after_hours,
            days: days.collect(),
        }
    }
}

impl Plan<'_> {
    fn state_of(&self, day: Day, versions: &[(u32, i64)], states: &States) -> DayState {
        let newest = versions.last();
        let final_at = self.final_at(day).filter(|_| newest.is_none());
        DayState {
            day: day.to_string(),
            state: self.state(day, states),
            versions: versions.iter().map(|(version, _)| *version).collect(),
            at: newest.map(|(_, at_ms)| rfc3339_utc(at_ms.div_euclid(1_000))),
            reason: self.reason(day, final_at),
            final_at: final_at.map(rfc3339_utc),
        }
    }

    fn state(&self, day: Day, states: &States) -> &'static str {
        match states.of(&(day.start()..day.next().start())) {
            State::Provisional if states.is_before_store(day) => "before",
            State::Provisional if self.closed.contains(&day) => "closed",
            state => state.as_str(),
        }
    }

    /// When a day becomes final by itself, Unix seconds. A day that should have been final for a day and is not overdue
    /// began before the log, and does not.
    fn final_at(&self, day: Day) -> Option<i64> {
        let at = day.next().start() + i64::from(self.after_hours?) * HOUR_SECONDS;
        let is_awaited = at + 24 * HOUR_SECONDS > self.now || self.overdue.contains(&day);
        is_awaited.then_some(at)
    }

    fn reason(&self, day: Day, final_at: Option<i64>) -> Option<String> {
        let failure = self.failures.get(&day).cloned();
        failure.or_else(|| self.lack(day)).or_else(|| {
            let at = final_at.filter(|_| self.overdue.contains(&day))?;
            Some(format!(
                "it should be final since {}: `tallyring reconcile {day}` says why it is not, for as long as the log has it",
                rfc3339_utc(at)
            ))
        })
    }

    /// The lost dataset without which the day is not final.
    fn lack(&self, day: Day) -> Option<String> {
        let has = |lost: &&LoggedDataset| lost.days.keys().any(|of| lost.has(of, day));
        let lost = self.lost.iter().find(has)?;
        Some(format!(
            "the dataset {name}, which was part of its final number, is lost: load exactly its rows again with `tallyring \
             load {name} FILE… --final`",
            name = lost.name
        ))
    }
}

impl Respond for Days {
    fn identity(&self) -> impl Serialize {
        ("days", self)
    }

    fn rows(&self) -> String {
        let mut table = Table::new(&COLUMNS);
        for day in &self.days {
            let versions: Vec<String> = day.versions.iter().map(u32::to_string).collect();
            table.row(&[
                &day.day,
                day.state,
                &versions.join(" "),
                day.at.as_deref().unwrap_or_default(),
                day.final_at.as_deref().unwrap_or_default(),
                day.reason.as_deref().unwrap_or_default(),
            ]);
        }
        table.end()
    }
}
