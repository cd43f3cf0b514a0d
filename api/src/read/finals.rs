//! `GET /v1/finals` and `/v1/finals/{day}`: which days are final, since when, and what made the difference.

pub(crate) mod days;
mod waterfall;

use std::collections::BTreeMap;

use axum::response::Response;
use serde::Serialize;
use tallyring_archive::{FinalEntry, FinalSums, ShownSums};
use tallyring_realtime::{State, States, View};
use tallyring_records::{Class, is_false};

use super::format::Format;
use super::reply::Respond;
use super::request::ReadRequest;
use crate::access::Length;
use crate::calendar::rfc3339_utc;
use crate::chart::{self, Measure, Picture, SHARE_OF_ONE, WaterfallChart};
use crate::filtered::{OfClass, by_class};
use crate::problem::{Problem, Result};
use crate::query_string::QueryString;
use crate::repeated::Repeated;
use crate::table::Table;
use waterfall::{ByRules, Step};

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
    /// Sums of what rules took out and gave back over all versions, by event type
    by_rules: BTreeMap<String, ByRules>,
    /// Content of the picture that was asked for.
    #[serde(skip)]
    drawn: Option<WaterfallChart>,
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
    /// Ids that came since then were known, so that an event that repeats one on another day is a duplicate; null where
    /// no id was known, or an older build made the version
    ids_from: Option<String>,
    /// Hash of the rules that judged
    rules: String,
    /// Present and true once the books of the day are no longer kept: its sums stay, and `basis=final` is 422
    #[serde(skip_serializing_if = "is_false")]
    sums_only: bool,
    /// Present and true where rules filtered so much that only `force` published it
    #[serde(skip_serializing_if = "is_false")]
    forced: bool,
    /// Keys of which many events had counted twice; left out where an older build made the version, which looked for
    /// none
    #[serde(skip_serializing_if = "Option::is_none")]
    repeated: Option<Repeated>,
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
    /// The part of the difference that rules made, by their class: `general`, `sophisticated`, or `unknown` where no
    /// declaration of before has the rule any more. Left out where rules changed nothing
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    classes: BTreeMap<&'static str, i64>,
    /// Counted by this version
    after: u64,
    /// All that came, whatever the rules said of it
    gross: u64,
    /// Part of it that some rule could not judge
    undecided: u64,
    /// Part of it that rules filter in this version, whether as it came or since, by their class: `general` and
    /// `sophisticated`. Left out where an older build made the version, which did not note it
    #[serde(skip_serializing_if = "Option::is_none")]
    filtered: Option<BTreeMap<&'static str, OfClass>>,
    /// The way from `gross` to `after` over all versions up to this one; in the answer about one day
    #[serde(skip_serializing_if = "Vec::is_empty")]
    steps: Vec<Step>,
    /// The difference that this version made by rules; in the answer about one day
    #[serde(skip_serializing_if = "Option::is_none")]
    by_rules: Option<ByRules>,
}

/// Final days
///
/// The UTC days that are final, oldest first, each with its newest version: when it was published, what it judged, and
/// what made it differ from the version before or from what was counted live. Also as `/v1/finals.csv`, a row for each
/// number. A key that is limited to namespaces gets 403.
#[utoipa::path(get, path = "/v1/finals", tag = "read",
    responses((status = 200, description = "The final days", body = Finals, example = json!({
        "final_until": "2012-03-17T00:00:00Z",
        "finals": [{
            "day": "2012-03-16", "version": 1, "state": "final", "at": "2012-03-20T00:05:00Z", "upto": 80,
            "ids_from": "2012-03-09T00:00:00Z", "rules": "8c1f0e5a92b3d476", "types": {"click": {
                "before": 3, "causes": {"duplicate_beyond_window": -1, "filtered_by:bots": -1}, "after": 1,
                "gross": 3, "undecided": 0, "filtered": {
                    "general": {"n": 1, "rules": {"bots": 1}}, "sophisticated": {"n": 0, "rules": {}},
                },
            }},
        }],
    }))),
)]
pub(crate) async fn finals(request: ReadRequest<()>) -> Result<Response> {
    let (query, format) = request.query()?;
    query.finish("after")?;
    let now = request.now;
    request
        .reply(format)
        .answer(&request.state, Length::Short, move |view, _| {
            let states = states(view, now);
            let newest = FinalEntry::newest_of_days(view.finals());
            Ok(Finals {
                final_until: states.final_until().map(rfc3339_utc),
                finals: newest
                    .map(|version| FinalDay::of(version, view, &states))
                    .collect(),
            })
        })
        .await
}

/// Versions of a final day
///
/// All final versions of one UTC day, oldest first. Each stays readable with `final=` and its number. The `steps` lead
/// from all that came to all that counts: duplicates, what rules filtered as it came (`filtered_live`), what each rule
/// filtered or gave back since, and what people voided. The `by_rules` of a version is what it alone changed by rules:
/// `live` is about what came since the version before. Sums over all versions stand beside them. Duplicates that were
/// refused as they came are in no sum. Also as `/v1/finals/{day}.csv`, and the steps of one event type as a picture,
/// `/v1/finals/{day}.svg`.
#[utoipa::path(get, path = "/v1/finals/{day}", tag = "read",
    params(
        ("day" = String, Path, description = "A UTC day", example = "2012-03-16"),
        ("type" = Option<String>, Query, description = "The event type of a picture; unless given, that of which most came", example = "click"),
        ("version" = Option<u32>, Query, description = "The version of a picture; the newest unless given", example = 1),
    ),
    responses((status = 200, description = "The versions", body = Versions, example = json!({
        "day": "2012-03-16", "state": "final", "versions": [{
            "day": "2012-03-16", "version": 1, "state": "final", "at": "2012-03-20T00:05:00Z", "upto": 80,
            "ids_from": "2012-03-09T00:00:00Z", "rules": "8c1f0e5a92b3d476", "types": {"click": {
                "before": 3, "causes": {"filtered_by:bots": -1}, "after": 2, "gross": 3, "undecided": 0,
                "filtered": {
                    "general": {"n": 1, "rules": {"bots": 1}}, "sophisticated": {"n": 0, "rules": {}},
                },
                "steps": [
                    {"step": "gross", "title": "all that came", "n": 3},
                    {"step": "filtered_by:bots", "title": "rule bots", "n": -1},
                    {"step": "net", "title": "final", "n": 2},
                ],
                "by_rules": {"live": 0, "filtered": -1, "restored": 0},
            }},
        }],
        "by_rules": {"click": {"live": 0, "filtered": -1, "restored": 0}},
    }))),
)]
pub(crate) async fn versions(mut request: ReadRequest<String>) -> Result<Response> {
    let (mut query, format) = request.query()?;
    let asked = match format {
        Format::Svg(_) => Some(Asked::take(&mut query)?),
        Format::Json | Format::Csv => None,
    };
    query.finish("after; a picture takes type, version, width and theme")?;
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
            let of_day: Vec<FinalEntry> = of_day.cloned().collect();
            let versions =
                (1..=of_day.len()).map(|end| FinalDay::with_steps(&of_day[..end], view, &states));
            let versions: Vec<FinalDay> = versions.collect();
            let Some(newest) = versions.last() else {
                let detail = "must be a final day; `/v1/finals` lists them";
                return Err(Problem::unknown("day", &text, detail));
            };
            let drawn = asked.map(|asked| asked.drawn(&versions));
            let kinds = newest.types.keys();
            let by_rules = kinds.map(|kind| (kind.clone(), ByRules::of_day(&of_day, kind)));
            Ok(Versions {
                day: newest.day.clone(),
                state: newest.state,
                drawn: drawn.transpose()?,
                by_rules: by_rules.collect(),
                versions,
            })
        })
        .await
}

/// The states of days, whatever namespace counts: settled is what is so for all of them.
pub(crate) fn states(view: &View<'_>, now: i64) -> States {
    let namespaces = view.schema().namespaces.iter();
    let namespaces: Vec<&str> = namespaces.map(|namespace| &*namespace.name).collect();
    let settled = namespaces
        .iter()
        .map(|name| view.settled_until(name, None, now));
    let settled = settled.min().unwrap_or(now);
    view.states(&namespaces, settled, None)
}

/// The event type and the version that a picture shows.
struct Asked {
    kind: Option<String>,
    version: Option<u32>,
}

impl Asked {
    fn take(query: &mut QueryString) -> Result<Self> {
        let kind = query.take("type")?.filter(|kind| !kind.is_empty());
        Ok(Self {
            kind: kind.map(|kind| kind.into_owned()),
            version: query.take_as("version", "the number of a final version, from 1")?,
        })
    }

    /// The picture's content. Fails with 404 for a type or a version that the day does not have.
    fn drawn(self, versions: &[FinalDay]) -> Result<WaterfallChart> {
        let found = match self.version {
            None => versions.len().checked_sub(1),
            Some(version) => versions.iter().position(|known| known.version == version),
        };
        let found = found.ok_or_else(|| {
            let known: Vec<String> = versions.iter().map(|of| of.version.to_string()).collect();
            let detail = format!(
                "must be one of the versions of the day, {}",
                known.join(", ")
            );
            let version = self.version.unwrap_or(0).to_string();
            Problem::unknown("version", &version, detail)
        })?;
        let (shown, before) = (&versions[found], versions[..found].last());
        let types = shown.types.iter();
        let found = match &self.kind {
            // The first of several equal ones.
            None => types.rev().max_by_key(|(_, sums)| sums.gross),
            Some(kind) => shown.types.get_key_value(kind),
        };
        let (kind, sums) = found.ok_or_else(|| {
            let known: Vec<&str> = shown.types.keys().map(String::as_str).collect();
            let detail = format!(
                "must be one of the event types of the day: {}",
                known.join(", ")
            );
            Problem::unknown("type", self.kind.as_deref().unwrap_or_default(), detail)
        })?;
        let title = format!("{}: {kind}, version {}", shown.day, shown.version);
        Ok(sums.drawn(title, before.map(|before| before.version)))
    }
}

impl FinalDay {
    fn of(version: &FinalEntry, view: &View<'_>, states: &States) -> Self {
        let filtered = version.filtered.as_ref();
        let types = version.types.iter();
        let class_of = |rule: &str| {
            let class = view.class_of_rule(rule, version.upto);
            class.map_or("unknown", Class::name)
        };
        Self {
            day: version.day.to_string(),
            version: version.version,
            state: states.of(&(version.day.start()..version.day.next().start())),
            at: rfc3339_utc(version.at_ms.div_euclid(1_000)),
            upto: version.upto,
            ids_from: (version.proof.as_ref())
                .and_then(|proof| proof.ids_from_ms)
                .map(|ms| rfc3339_utc(ms.div_euclid(1_000))),
            rules: version.rules.clone(),
            sums_only: version.sums_only,
            forced: version.forced,
            repeated: version.repeated.as_ref().map(Repeated::of),
            types: types
                .map(|(kind, sums)| {
                    let filtered = filtered.map(|types| by_class(types, kind));
                    (kind.clone(), FinalType::of(sums, filtered, &class_of))
                })
                .collect(),
        }
    }

    /// The last of these versions, which are all of a day up to it, with its steps.
    fn with_steps(versions: &[FinalEntry], view: &View<'_>, states: &States) -> Self {
        let newest = versions.last().expect("BUG: a day has a version");
        let mut day = Self::of(newest, view, states);
        for (kind, sums) in &mut day.types {
            sums.steps = waterfall::steps(versions, kind);
            sums.by_rules = Some(ByRules::of(versions, kind));
        }
        day
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
            for (class, count) in &sums.classes {
                row(&format!("class:{class}"), count.to_string());
            }
            row("after", sums.after.to_string());
            row("gross", sums.gross.to_string());
            row("undecided", sums.undecided.to_string());
            for (class, of_class) in sums.filtered.iter().flatten() {
                row(&format!("filtered_class:{class}"), of_class.n.to_string());
                for (rule, n) in &of_class.rules {
                    row(&format!("filtered:{rule}"), n.to_string());
                }
            }
        }
        let Some(repeated) = &self.repeated else {
            return;
        };
        let mut row = |what: &str, count: u64| {
            let state = self.state.as_str();
            let of_day = [&*self.day, &*version, state, &*self.at, &*upto, ""];
            table.row(&[&of_day[..], &[what, &*count.to_string()]].concat());
        };
        row("repeated_keys", repeated.keys);
        for of in &repeated.most {
            row(&format!("repeated:{}|{}", of.namespace, of.key), of.n);
        }
    }
}

impl FinalType {
    fn of(
        sums: &FinalSums,
        filtered: Option<BTreeMap<&'static str, OfClass>>,
        class_of: &dyn Fn(&str) -> &'static str,
    ) -> Self {
        let ShownSums {
            before,
            causes,
            after,
            gross,
            undecided,
        } = sums.shown();
        let mut classes = BTreeMap::new();
        for (cause, n) in &causes {
            let rule = cause.split_once(':').map(|(_, rule)| rule);
            if let Some(rule) = rule.filter(|rule| !waterfall::is_no_rule(rule)) {
                let sum: &mut i64 = classes.entry(class_of(rule)).or_default();
                *sum = sum.saturating_add(*n);
            }
        }
        Self {
            before,
            causes,
            classes,
            after,
            gross,
            undecided,
            filtered,
            steps: Vec::new(),
            by_rules: None,
        }
    }

    /// The picture of its steps, of a version that comes after the version `before`.
    fn drawn(&self, title: String, before: Option<u32>) -> WaterfallChart {
        let steps: Vec<(String, i64)> = self.steps.iter().map(Step::shown).collect();
        let [first, differences @ .., last] = &steps[..] else {
            unreachable!("BUG: a waterfall has two ends")
        };
        let rate = match self.undecided {
            0 => String::new(),
            undecided => format!(
                " · {} undecided, decision rate {}",
                chart::exact(undecided),
                Measure::Shares.short(share(self.gross.saturating_sub(undecided), self.gross))
            ),
        };
        WaterfallChart {
            title,
            subtitle: format!(
                "{} came{} · {} final{rate}",
                chart::exact(self.gross),
                self.by_rules
                    .map_or_else(String::new, |by_rules| by_rules.told(before)),
                chart::exact(self.after)
            ),
            first: first.clone(),
            differences: differences.to_vec(),
            last: last.clone(),
            picture: Picture::default(),
        }
    }
}

/// A part of a whole in billionths.
fn share(part: u64, whole: u64) -> u64 {
    let scaled = u128::from(part) * u128::from(SHARE_OF_ONE);
    let scaled = scaled.checked_div(whole.into()).unwrap_or(0);
    u64::try_from(scaled).unwrap_or(SHARE_OF_ONE)
}

fn table(days: &[FinalDay]) -> String {
    let mut table = Table::new(&COLUMNS);
    days.iter().for_each(|day| day.add_rows(&mut table));
    table.end()
}

impl Respond for Finals {
    fn identity(&self) -> impl Serialize {
        ("finals", self)
    }

    fn rows(&self) -> String {
        table(&self.finals)
    }
}

impl Respond for Versions {
    fn identity(&self) -> impl Serialize {
        ("versions", self)
    }

    fn rows(&self) -> String {
        table(&self.versions)
    }

    fn picture(&self, picture: Picture) -> Option<String> {
        let drawn = self.drawn.clone()?;
        Some(chart::waterfall(&WaterfallChart { picture, ..drawn }))
    }
}
