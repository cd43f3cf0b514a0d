//! A reconcile that runs or ran, and how its days went, as the API and the command line tell it.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json as value};
use tallyring_archive::{FilteredSums, FinalSums, RepeatedKeys};
use tallyring_realtime::catalog::{JobProgress, JobState};
use tallyring_realtime::{CausesByKey, Reconciled, Unexplained, too_much_filtered};
use tallyring_records::{COUNT_MAX, Day};

use super::order::ReconcileOrder;
use crate::calendar::rfc3339_utc;
use crate::filtered::{self, by_class};
use crate::repeated::Repeated;

/// A reconcile that ran since the server started, or is running.
#[derive(Debug, Clone)]
pub struct ReconcileJob {
    /// Number, from 1.
    pub job: u64,
    /// The order.
    pub order: ReconcileOrder,
    /// State of the job.
    pub state: JobState,
    /// Unix milliseconds of the injected clock.
    pub started_ms: i64,
    /// Unix milliseconds of the injected clock, once it ended.
    pub ended_ms: Option<i64>,
    /// The days that ended, in order.
    pub days: Vec<DayOutcome>,
    /// The causes by key of all days that did not fail, where they were asked for.
    pub by: Option<CausesByKey>,
    /// Records of the log that were read for the present day, of those that will be. Not known at first.
    pub progress: Option<JobProgress>,
    /// Why the days of an order before did not become final, where this one only tells.
    stands: Option<String>,
}

/// How a day of a reconcile ended.
#[derive(Debug, Clone)]
pub struct DayOutcome {
    /// The day.
    pub day: Day,
    /// The numbers that were found; none where there are none.
    pub found: Option<Found>,
    /// The reason why the day failed; none where it did not.
    pub error: Option<String>,
    /// Whether a version was published: not where the order only tells, or nothing changed.
    pub is_published: bool,
}

/// The numbers that a reconcile found of a day.
#[derive(Debug, Clone)]
pub struct Found {
    /// The version that is published or would be; the version before where nothing is new.
    pub version: u32,
    /// Records of the log before this one were judged.
    pub upto: u64,
    /// Ids that came since then were known, Unix milliseconds; none where no id was.
    pub ids_from_ms: Option<i64>,
    /// Whether anything differs from the version before.
    pub is_new: bool,
    /// Sums of each event type.
    pub types: BTreeMap<String, FinalSums>,
    /// All that rules filter of each event type.
    pub filtered: FilteredSums,
    /// Keys of which many events had counted twice.
    pub repeated: RepeatedKeys,
    /// Counts that no verdict explains.
    pub unexplained: Unexplained,
}

impl ReconcileJob {
    /// A job that begins, at Unix milliseconds of the injected clock, after the newest `before`.
    pub fn begin(order: ReconcileOrder, before: Option<&Self>, started_ms: i64) -> Self {
        let told = before.filter(|_| order.only_tells());
        Self {
            job: before.map_or(0, |before| before.job) + 1,
            stands: told.and_then(Self::fault),
            order,
            state: JobState::Running,
            started_ms,
            ended_ms: None,
            days: Vec::new(),
            by: None,
            progress: None,
        }
    }

    /// Notes how a day ended.
    pub fn note(
        &mut self,
        day: Day,
        reconciled: Option<Reconciled>,
        published: Result<bool, String>,
    ) {
        let mut outcome = DayOutcome {
            day,
            found: None,
            is_published: published == Ok(true),
            error: published.err(),
        };
        if let Some(mut reconciled) = reconciled {
            if let Some(by) = reconciled.by.take()
                && outcome.error.is_none()
                && let Err(error) = self.by.get_or_insert_default().add(by)
            {
                outcome.error.get_or_insert(error.to_string());
            }
            outcome.found = Some(Found {
                version: reconciled.version,
                upto: reconciled.upto,
                ids_from_ms: reconciled.proof.and_then(|proof| proof.ids_from_ms),
                is_new: reconciled.is_new,
                types: reconciled.types,
                filtered: reconciled.filtered,
                repeated: reconciled.repeated,
                unexplained: reconciled.unexplained,
            });
        }
        self.days.push(outcome);
        self.progress = None;
    }

    /// Ends the job, at Unix milliseconds of the injected clock: it failed where one of its days did.
    pub fn end(&mut self, ended_ms: i64) {
        if let Some(by) = &mut self.by {
            by.shorten();
        }
        self.ended_ms = Some(ended_ms);
        self.progress = None;
        self.state = match self.error() {
            Some(_) => JobState::Failed,
            None => JobState::Done,
        };
    }

    /// The reason why days failed; none where none did.
    pub fn error(&self) -> Option<String> {
        let failed = self.days.iter().filter_map(|outcome| {
            let error = outcome.error.as_ref()?;
            Some((outcome.day, error))
        });
        let failed: Vec<(Day, &String)> = failed.collect();
        let (day, error) = failed.first()?;
        Some(match self.order.days.single() {
            Some(_) => (*error).clone(),
            None => format!(
                "{} of {} days failed; the first is {day}: {error}",
                failed.len(),
                self.order.days.count()
            ),
        })
    }

    /// Why days of the newest order that does not only tell did not become final; none where all did.
    pub(crate) fn fault(&self) -> Option<String> {
        if self.order.only_tells() {
            return self.stands.clone();
        }
        let error = self.error()?;
        Some(format!("{} did not become final: {error}", self.order.days))
    }

    /// The job as the API and the command line tell it.
    pub fn described(&self) -> Value {
        let at = |ms: i64| rfc3339_utc(ms.div_euclid(1_000));
        let order = &self.order;
        let mut answer = value!({
            "job": self.job, "dry_run": order.dry_run, "what_if": order.rules.is_some(), "state": self.state,
            "started_at": at(self.started_ms), "ended_at": self.ended_ms.map(at), "error": self.error(),
            "progress": self.progress.map(|progress| value!({ "done": progress.done, "total": progress.total })),
        });
        let Some(fields) = answer.as_object_mut() else {
            return answer;
        };
        match order.days.single() {
            Some(day) => {
                fields.insert("day".into(), value!(day));
                let found = self.days.first().map(DayOutcome::described);
                fields.extend(found.into_iter().flatten());
                fields.extend(self.by.as_ref().map(by_field));
            }
            None => self.describe_range(fields),
        }
        answer
    }

    fn describe_range(&self, fields: &mut Map<String, Value>) {
        let (first, last) = (self.order.days.first(), self.order.days.last());
        let days = self.days.iter().map(|outcome| {
            let mut day = outcome.described();
            day.insert("day".into(), value!(outcome.day));
            day.insert("error".into(), value!(outcome.error));
            Value::Object(day)
        });
        let days: Vec<Value> = days.collect();
        let mut all: BTreeMap<String, FinalSums> = BTreeMap::new();
        // A day that failed changed nothing.
        let ended_well = self.days.iter().filter(|outcome| outcome.error.is_none());
        let found = ended_well.filter_map(|outcome| outcome.found.as_ref());
        let mut all_filtered = FilteredSums::new();
        for found in found {
            for (kind, sums) in &found.types {
                all.entry(kind.clone()).or_default().add(sums);
            }
            filtered::add(&mut all_filtered, &found.filtered);
        }
        let mut sums = Map::from_iter([("types".into(), shown(&all, &all_filtered))]);
        sums.extend(self.by.as_ref().map(by_field));
        fields.extend([
            ("from".to_owned(), value!(first)),
            ("to".into(), value!(last)),
            ("days_done".into(), value!(days.len())),
            ("days_total".into(), value!(self.order.days.count())),
            ("days".into(), Value::Array(days)),
            ("sums".into(), Value::Object(sums)),
        ]);
    }
}

impl DayOutcome {
    /// The numbers; none where none were found.
    fn described(&self) -> Map<String, Value> {
        let Some(found) = &self.found else {
            return Map::new();
        };
        let unexplained = &found.unexplained;
        Map::from_iter([
            ("published".to_owned(), value!(self.is_published)),
            ("version".into(), value!(found.version)),
            ("upto".into(), value!(found.upto)),
            ("ids_from".into(), value!(found.ids_from())),
            ("new".into(), value!(found.is_new)),
            ("types".into(), shown(&found.types, &found.filtered)),
            ("repeated".into(), value!(Repeated::of(&found.repeated))),
            ("guard".into(), value!(too_much_filtered(&found.types))),
            (
                "unexplained".into(),
                // The sum may be larger than the numbers that every JSON reader takes.
                value!({
                    "counters": unexplained.counters, "n": unexplained.n.to_string(), "first": unexplained.first,
                }),
            ),
        ])
    }
}

impl Found {
    /// Since when ids were known.
    fn ids_from(&self) -> Option<String> {
        let from_ms = self.ids_from_ms?;
        Some(rfc3339_utc(from_ms.div_euclid(1_000)))
    }
}

fn shown(types: &BTreeMap<String, FinalSums>, filtered: &FilteredSums) -> Value {
    let types = types.iter().map(|(kind, sums)| {
        let mut of_type = value!(sums.shown());
        of_type["filtered"] = value!(by_class(filtered, kind));
        (kind.clone(), of_type)
    });
    Value::Object(types.collect())
}

fn by_field(by: &CausesByKey) -> (String, Value) {
    let signed = |n: i128| {
        let most = i128::from(COUNT_MAX);
        n.clamp(-most, most) as i64
    };
    let types = by.types.iter().map(|(kind, causes)| {
        let causes = causes.iter().map(|(cause, sums)| {
            let keys = sums.keys.iter();
            let keys = keys.map(|(key, n)| value!({ "key": key, "n": signed(*n) }));
            let keys: Vec<Value> = keys.collect();
            let (others, without) = (signed(sums.others), signed(sums.without));
            let sums = value!({ "keys": keys, "others": others, "without": without });
            (cause.clone(), sums)
        });
        (kind.clone(), Value::Object(causes.collect()))
    });
    let types: Map<String, Value> = types.collect();
    let by = value!({ "namespace": by.namespace, "limited": by.is_limited, "types": types });
    ("by".into(), by)
}
