//! The state of the server.
//!
//! Invariant: every answer about the state of the server is what [`Health::of`] says: `/readyz`, the status, and with
//! the status the command line, the dashboard and the container's check, and the metric `tallyring_health`.

use serde::Serialize;
use tallyring_archive::{FinalEntry, FinalSums, Manifest};
use tallyring_realtime::catalog::{Job, JobState};
use tallyring_realtime::oplog::LogForecast;
use tallyring_realtime::{NodeStatus, Part, Refusal, RingLabel, Status, Store, is_much_repeated};
use tallyring_records::{LoggedDataset, LoggedFinal, grouped, how_many};

use crate::alerts::AlertsState;
use crate::calendar::rfc3339_utc;
use crate::read_only;
use crate::reconcile::ReconcileJob;
use crate::repeated;
use crate::state::{BackupState, Closed, ConfigState, FailedAgain, Jobs, Overdue};

/// How long a version tells of repeated events, milliseconds.
const REPEATED_TOLD_MS: i64 = 7 * 24 * 3_600 * 1_000;
/// Days that may wait for a rebuild before the server is degraded.
const WAITING_DAYS_MAX: usize = 7;

/// Days before the log has no room at which the server is degraded.
const FORECAST_DAYS: u32 = 7;

/// The state of the server.
pub(crate) struct Health {
    /// Why increments are refused, where they are.
    pub refusal: Option<Refusal>,
    /// Other faults that need an operator, a sentence each.
    faults: Vec<String>,
}

/// Health in one word; the numbers are those of the metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum HealthState {
    /// Increments are counted, and nothing needs an operator.
    Ok = 0,
    /// Increments are counted, and something needs an operator.
    Degraded = 1,
    /// Increments are refused.
    Refusing = 2,
}

impl Health {
    /// The health that follows from the store's status and from the newest jobs.
    pub(crate) fn of(store: &Store, status: &Status, jobs: &Jobs) -> Self {
        let segment_bytes = store.options().segment_bytes;
        let shown = status.shown.as_ref();
        let needs_room = if shown.is_some() { 0 } else { segment_bytes };
        let mut faults = faults_of_store(status, needs_room);
        faults.extend(shown.and_then(read_only::fault));
        faults.extend(fault_of_part(&store.part(), &store.intake().nodes()));
        faults.extend(jobs.config.as_ref().and_then(fault_of_config));
        faults.extend(jobs.unconsumed.iter().cloned());
        faults.extend(jobs.alerts.iter().flat_map(AlertsState::faults));
        faults.extend(is_without_backup(&store.intake().nodes()).then(|| {
            "this node may write the log and would make no backup, and another one would: set `path` in [backup] of \
             its configuration"
                .into()
        }));
        faults.extend(jobs.rebuild.iter().flat_map(faults_of_job));
        faults.extend(jobs.backup.as_ref().and_then(fault_of_backup));
        faults.extend(jobs.reconcile.as_ref().and_then(ReconcileJob::fault));
        faults.extend(fault_of_overdue(&jobs.overdue));
        faults.extend(fault_of_closed(&jobs.closed));
        let manifest = store.manifest();
        let now_ms = store.world().clock.now_ms();
        let finals = &manifest.archive.finals;
        faults.extend(fault_of_repeated(published_lately(finals, now_ms)));
        faults.extend(repeated::fault(published_lately(finals, now_ms)));
        let awaited = manifest.archive.awaited.iter();
        faults.extend(awaited.map(|logged| fault_of_awaited(logged, &jobs.failed_again)));
        let lost = manifest.archive.lost_datasets.iter();
        faults.extend(lost.map(|lost| fault_of_lost(&manifest, lost)));
        Self {
            refusal: store.ready().err(),
            faults,
        }
    }

    /// The health of a store, from that of each of its strands. Sentences name the strand where there are several.
    pub(crate) fn together<'h>(strands: impl IntoIterator<Item = &'h Self>) -> Self {
        let strands: Vec<&Self> = strands.into_iter().collect();
        let faults = strands.iter().enumerate().flat_map(|(strand, health)| {
            let name = match strands.len() {
                1 => String::new(),
                _ => format!("strand {strand}: "),
            };
            health
                .faults
                .iter()
                .map(move |fault| format!("{name}{fault}"))
        });
        Self {
            refusal: strands.iter().find_map(|health| health.refusal.clone()),
            faults: faults.collect(),
        }
    }

    /// The health in one word.
    pub(crate) fn state(&self) -> HealthState {
        match &self.refusal {
            Some(_) => HealthState::Refusing,
            None if self.faults.is_empty() => HealthState::Ok,
            None => HealthState::Degraded,
        }
    }

    /// The reasons why the server is not `ok`, a sentence each.
    pub(crate) fn reasons(&self) -> Vec<String> {
        let refusal = self.refusal.iter();
        let refusal = refusal.map(|refusal| format!("increments are refused: {refusal}"));
        refusal.chain(self.faults.iter().cloned()).collect()
    }
}

/// Where no node writes, increments are refused: by the node that should write, and so by all.
fn fault_of_part(part: &Part, nodes: &[NodeStatus]) -> Option<String> {
    if *part != (Part::Follows { writer: None }) {
        return None;
    }
    let none_may = !nodes.is_empty() && !nodes.iter().any(|node| node.may_write);
    let nor = match none_may {
        true => ", nor of one that may (`writes = false` in [cluster])",
        false => "",
    };
    Some(format!(
        "this node hears of none that writes the log{nor}: increments are refused"
    ))
}

/// True where this node may write and would make no backup, and another one would: it lacks the setting, and backups
/// end once the other one is lost. It is told before that, because it cannot be heard any more then.
pub(crate) fn is_without_backup(nodes: &[NodeStatus]) -> bool {
    let is_without = |node: &NodeStatus| node.is_own && node.may_write && !node.backs_up;
    let would = |node: &NodeStatus| node.may_write && node.backs_up;
    nodes.iter().any(is_without) && nodes.iter().any(would)
}

fn faults_of_store(status: &Status, segment_bytes: u64) -> Vec<String> {
    let mut faults = Vec::new();
    if let Some(free) = status.disk_free_bytes.filter(|free| *free < segment_bytes) {
        faults.push(format!(
            "the disk of the data directory has {} bytes free, less than a log segment of {}: make space",
            grouped(free),
            grouped(segment_bytes)
        ));
    }
    faults.extend(forecasts(&status.log_forecast));
    if status.clock_jumped {
        let last = status.clock_plausible_at.map(rfc3339_utc);
        faults.push(format!(
            "the clock is more than a day from {}, when it was plausible last: nothing is forgotten and the ring does not \
             turn until it has gone evenly for ten minutes; is it right, start with `serve --trust-clock`",
            last.as_deref().unwrap_or("-")
        ));
    }
    if status.ring_days_ahead > 1 {
        faults.push(format!(
            "the ring is {} ahead of the clock: it had followed one that was; it turns back once this one is plausible",
            how_many(status.ring_days_ahead, "day")
        ));
    }
    let failure = status
        .log_copy
        .as_ref()
        .and_then(|copy| copy.failure.as_ref());
    if let Some(failure) = failure {
        faults.push(format!(
            "the second copy of the log cannot be written: {failure}"
        ));
    }
    let damaged = status.damaged_files.iter();
    faults.extend(damaged.map(|file| format!("{file} is damaged: see `tallyring verify`")));
    let lists = status.rules.lists.iter();
    faults.extend(lists.filter_map(|list| {
        let failure = list.failure.as_ref()?;
        let kept = match list.entries {
            Some(_) => "the content before stays in force",
            None => "its rules decide nothing",
        };
        Some(format!(
            "the list {} cannot be used, and {kept}: {failure}",
            list.name
        ))
    }));
    let waiting = status.stores.iter();
    let waiting = waiting
        .filter(|store| store.label == RingLabel::Waiting)
        .count();
    if waiting > WAITING_DAYS_MAX {
        faults.push(format!(
            "{waiting} days wait to be rebuilt: see the last rebuild, or run `tallyring rebuild`"
        ));
    }
    faults
}

/// The log is to be given more room before it has none.
fn forecasts(forecast: &LogForecast) -> impl Iterator<Item = String> {
    let a_day = grouped(forecast.bytes_a_day.unwrap_or(0));
    let soon = |days: Option<u32>| days.filter(|days| *days <= FORECAST_DAYS);
    let max = soon(forecast.max_full_in_days).map(|days| {
        format!(
            "the log grows by {a_day} bytes a day and reaches `oplog.max_bytes` in {}; then increments are refused: raise \
             it, or lower `oplog.keep_days`",
            how_many(days, "day")
        )
    });
    let disk = soon(forecast.disk_full_in_days).map(|days| {
        format!(
            "the log grows by {a_day} bytes a day and fills the disk in {}: make space, lower `oplog.keep_days` or set \
             `oplog.max_bytes`",
            how_many(days, "day")
        )
    });
    let held = soon(forecast.held_go_in_days).map(|days| {
        format!(
            "the log grows by {a_day} bytes a day and has no room in {} for days that should be final and are not; then \
             they leave it, and never become final: raise `oplog.max_bytes`, or make space",
            how_many(days, "day")
        )
    });
    max.into_iter().chain(disk).chain(held)
}

/// A file that cannot be used keeps a restart from starting.
fn fault_of_config(config: &ConfigState) -> Option<String> {
    let failure = config.failure.as_ref()?;
    Some(format!(
        "the configuration cannot be used, and what it said before stays in force: {failure}"
    ))
}

/// A day that is not final in time leaves the log sooner or later, and then it never becomes final.
fn fault_of_overdue(overdue: &[Overdue]) -> Option<String> {
    let first = overdue.first()?;
    let (day, days) = (first.day, how_many(overdue.len() as u64, "day"));
    Some(match &first.reason {
        Some(reason) => {
            format!("{day} should be final by now ({days} in all), and is not: {reason}")
        }
        None => format!(
            "{day} should be final by now ({days} in all): `tallyring reconcile {day}` says why it is not, for as long as \
             the log has it"
        ),
    })
}

/// A day that left the log without being final is told of for some time: nothing can make it final any more.
fn fault_of_closed(closed: &[Closed]) -> Option<String> {
    let is_new = |of: &&Closed| of.is_new;
    let first = closed.iter().find(is_new)?;
    let days = how_many(closed.iter().filter(is_new).count() as u64, "day");
    let why = match &first.reason {
        Some(reason) => reason,
        None => "it was not made final in time, and no try since the server started says why",
    };
    Some(format!(
        "{} left the log without being final ({days} in all), and never becomes final: {why}",
        first.day
    ))
}

/// A version that the log alone has is not served until it is made again.
fn fault_of_awaited(logged: &LoggedFinal, failed: &FailedAgain) -> String {
    let LoggedFinal { day, version, .. } = logged;
    match failed.get(&(*day, *version)) {
        None => format!(
            "version {version} of {day} is being made again from the log, because no manifest names it any more"
        ),
        Some(error) => format!(
            "version {version} of {day} is in the log, and no manifest names it any more: {error}; restore a newer backup, \
             or stop the server and run `tallyring recount`"
        ),
    }
}

/// Final numbers lack a dataset until people load it again.
pub(crate) fn fault_of_lost(manifest: &Manifest, lost: &LoggedDataset) -> String {
    let differences = manifest.told_differences(lost);
    let (name, rows) = (&lost.name, how_many(lost.rows, "row"));
    let days = lost.from_to();
    format!(
        "the log has a record of the dataset {name} ({rows}), which is part of the final numbers{days}, and no manifest \
         names it any more: load exactly these rows again with `tallyring load {name} FILE… --final`, then run \
         `tallyring rebuild`; until then their days are not final{differences}; where nobody has them any more, give the \
         dataset up: `tallyring drop {name} --gone REASON`"
    )
}

/// The newest version of each day for a week after it was published, of versions that ascend by day and number. Each of
/// them tells of repeated events.
pub(crate) fn published_lately(
    finals: &[FinalEntry],
    now_ms: i64,
) -> impl Iterator<Item = &FinalEntry> {
    let newest = FinalEntry::newest_of_days(finals);
    newest.filter(move |version| version.at_ms > now_ms - REPEATED_TOLD_MS)
}

/// Many events that counted twice tell of a sender that repeats them for longer than ids are remembered. `versions`
/// tell of it now.
fn fault_of_repeated<'v>(versions: impl Iterator<Item = &'v FinalEntry>) -> Option<String> {
    let types = versions.flat_map(|version| {
        let types = version.types.iter();
        types.map(move |(kind, sums)| (version.day, kind, pipeline_n(sums), sums.before))
    });
    let many = types.filter(|(_, _, n, before)| is_much_repeated(*n, *before));
    let worst = many.max_by_key(|(_, _, n, before)| n.saturating_mul(1_000_000) / before)?;
    let (day, kind, n, before) = worst;
    Some(format!(
        "of {day}, {n} of {before} of `{kind}` had counted twice, more than 0.1 %: a sender repeats events for longer than \
         `ids.window_hours`"
    ))
}

/// Events that had counted although they repeat others, as a sum of `n`.
pub(crate) fn pipeline_n(sums: &FinalSums) -> u128 {
    let causes = sums.causes.iter();
    let duplicates = causes.filter(|(cause, _)| cause.starts_with("duplicate_"));
    duplicates.map(|(_, n)| n.unsigned_abs()).sum()
}

/// A rebuild that published nothing, and one that left fixes out, need an operator.
fn faults_of_job(job: &Job) -> Vec<String> {
    let mut faults = Vec::new();
    if job.state == JobState::Failed {
        let error = job.error.as_deref().unwrap_or("it says no cause");
        faults.push(format!("the last rebuild failed: {error}"));
    }
    let refused = job.refused.iter();
    faults.extend(refused.map(|why| {
        format!("a fix of a day is wrong, and reads of a count that it corrects fail: {why}; publish a fix that gives it back")
    }));
    faults
}

/// A backup that failed is older than it should be.
fn fault_of_backup(backup: &BackupState) -> Option<String> {
    let error = backup.ended.as_ref()?.error.as_ref()?;
    Some(format!("the newest backup failed: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_no_node_may_write_the_fault_says_so() {
        let node = |name: &str, may_write| NodeStatus {
            node: name.into(),
            address: format!("http://{name}:7117"),
            build: [0, 1, 0],
            writes: None,
            applied: None,
            may_write,
            rebuilds: false,
            has_order: false,
            backs_up: false,
            heard_ms: 0,
            is_own: false,
        };
        let (some, none) = ([node("a", false), node("b", true)], [node("a", false)]);
        let alone = Part::Follows { writer: None };
        let fault = |nodes| fault_of_part(&alone, nodes).unwrap_or_default();
        assert!(
            fault(&none).contains("`writes = false`"),
            "{}",
            fault(&none)
        );
        assert!(
            !fault(&some).contains("`writes = false`"),
            "{}",
            fault(&some)
        );
        let writer = Some("http://b:7117".into());
        assert_eq!(fault_of_part(&Part::Follows { writer }, &some), None);
    }

    #[test]
    fn days_that_left_the_log_lately_without_being_final_are_a_fault() {
        let closed = |day: &str, is_new, reason: Option<&str>| Closed {
            day: day.parse().unwrap(),
            is_new,
            reason: reason.map(str::to_owned),
        };
        let old = closed("2012-03-01", false, None);
        assert_eq!(fault_of_closed(std::slice::from_ref(&old)), None);
        let refused = closed("2012-03-02", true, Some("the rules take too much"));
        let said = fault_of_closed(&[old, refused]);
        let says = "2012-03-02 left the log without being final (1 day in all), and never becomes final: the rules take \
                    too much";
        assert_eq!(said.as_deref(), Some(says));
        let restarted = fault_of_closed(&[closed("2012-03-02", true, None)]).unwrap_or_default();
        assert!(
            restarted.ends_with("no try since the server started says why"),
            "{restarted}"
        );
    }

    #[test]
    fn a_node_without_backups_beside_one_that_makes_them_is_a_fault() {
        let node = |is_own, writes, may_write, backs_up| NodeStatus {
            node: "a".into(),
            address: String::new(),
            build: [0, 1, 0],
            writes,
            applied: None,
            may_write,
            rebuilds: false,
            has_order: false,
            backs_up,
            heard_ms: 0,
            is_own,
        };
        let own = |writes, backs_up| node(true, writes, true, backs_up);
        let (other, only_follows) = (
            node(false, None, true, true),
            node(false, None, false, true),
        );
        let (others, nobody) = (node(false, None, true, false), []);
        assert!(is_without_backup(&[own(Some(3), false), other.clone()]));
        assert!(!is_without_backup(&[own(Some(3), true), other.clone()]));
        assert!(
            is_without_backup(&[own(None, false), other.clone()]),
            "it may take the log over"
        );
        let never_writes = node(true, None, false, false);
        assert!(!is_without_backup(&[never_writes, other]));
        assert!(
            !is_without_backup(&[own(Some(3), false), only_follows]),
            "it never makes one"
        );
        assert!(!is_without_backup(&[own(Some(3), false), others]));
        assert!(!is_without_backup(&nobody));
    }

    #[test]
    fn a_fix_that_a_rebuild_left_out_is_a_fault() {
        let job = Job {
            state: JobState::Done,
            refused: vec!["the counts of `l|a` would fall below zero".into()],
            ..Job::default()
        };
        let faults = faults_of_job(&job).join("");
        assert!(faults.contains("`l|a` would fall below zero"), "{faults}");
    }
}
