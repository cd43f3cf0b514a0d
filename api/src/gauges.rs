//! The gauges, measured when `/metrics` is asked for: each with its meaning and its source.

use std::collections::BTreeMap;

use metrics::{counter, describe_gauge, gauge};
use tallyring_archive::FinalSums;
use tallyring_realtime::catalog::{BackupOutcome, Job, JobState};
use tallyring_realtime::oplog::LogCopyStatus;
use tallyring_realtime::{RingLabel, Status, Store};

use crate::actions::reserve::{EXPIRED, RESERVATIONS};
use crate::health::{Health, HealthState, pipeline_n};
use crate::reconcile::ReconcileJob;
use crate::state::Admin;

/// The sources of the gauges.
struct Measured {
    status: Status,
    health: HealthState,
    blocks_decoded: u64,
    read_bytes: usize,
    holds: usize,
    hold_bytes: usize,
    last_rebuild: Option<Job>,
    config_failed: bool,
    last_reconcile_failed: bool,
    now_ms: i64,
}

/// Events that each rule caught.
pub(crate) const FILTERED_BY_RULE: &str = "tallyring_filtered_by_rule_total";
/// Events that rules judged.
const JUDGED: &str = "tallyring_judged_total";
/// Events of these that some rule could not judge, and none caught.
const UNDECIDED: &str = "tallyring_undecided_total";

/// A name, what it means, and its value.
type Gauge = (&'static str, &'static str, fn(&Measured) -> f64);

const GAUGES: [Gauge; 32] = [
    (
        "tallyring_blocks_decoded",
        "Blocks of the archive that reads had to read from files since the start",
        |now| now.blocks_decoded as f64,
    ),
    (
        "tallyring_read_bytes",
        "Memory that reads on their way hold now",
        |now| now.read_bytes as f64,
    ),
    (
        "tallyring_reservations_held",
        "Reservations in memory that are neither confirmed, released nor expired",
        |now| now.holds as f64,
    ),
    (
        "tallyring_reservation_bytes",
        "Memory of reservations",
        |now| now.hold_bytes as f64,
    ),
    (
        "tallyring_health",
        "0 while all is well, 1 while something needs an operator, 2 while increments are refused; see `tallyring status`",
        |now| f64::from(now.health as u8),
    ),
    (
        "tallyring_generation",
        "The archive generation that is read; 0 before the first",
        |now| now.status.generation as f64,
    ),
    (
        "tallyring_manifest",
        "Number of the newest manifest",
        |now| now.status.manifest as f64,
    ),
    (
        "tallyring_oplog_bytes",
        "Bytes of all log segments",
        |now| now.status.oplog_bytes as f64,
    ),
    (
        "tallyring_oplog_full_in_seconds",
        "Time until the log reaches `oplog.max_bytes` or fills the disk, by its growth of the last days; 401 days where it does neither within 400",
        |now| {
            let forecast = &now.status.log_forecast;
            let days = [forecast.max_full_in_days, forecast.disk_full_in_days];
            f64::from(days.into_iter().flatten().min().unwrap_or(401)) * 86_400.0
        },
    ),
    (
        "tallyring_oplog_records",
        "Number of the newest log record",
        |now| now.status.applied.sequence as f64,
    ),
    (
        "tallyring_log_copy_behind_records",
        "Records that the second copy of the log may lack; 0 without one",
        |now| now.log_copy(|copy| copy.behind_records as f64),
    ),
    (
        "tallyring_log_copy_behind_bytes",
        "Bytes that the second copy of the log lacks; 0 without one",
        |now| now.log_copy(|copy| copy.behind_bytes as f64),
    ),
    (
        "tallyring_log_copy_behind_seconds",
        "The second copy of the log has all that was durable so long ago; 0 while it lacks nothing",
        |now| now.log_copy(|copy| copy.behind_seconds),
    ),
    (
        "tallyring_log_copy_failed",
        "1 while the second copy of the log cannot be written, or writes are refused because it is behind",
        |now| now.log_copy(|copy| flag(copy.failure.is_some())),
    ),
    (
        "tallyring_unflushed_records",
        "Log records that a restart would replay",
        |now| now.status.unflushed as f64,
    ),
    (
        "tallyring_remembered_ids_in_memory",
        "Ids in memory, against duplicates",
        |now| now.status.ids_in_memory as f64,
    ),
    (
        "tallyring_pending_runs",
        "Source runs that the archive lacks",
        |now| now.status.pending_runs as f64,
    ),
    (
        "tallyring_file_bytes",
        "Bytes of all files that count",
        |now| now.status.file_bytes as f64,
    ),
    (
        "tallyring_damaged_files",
        "Files that count and were found damaged or gone, at the start or when they were read again, each at least once a week",
        |now| now.status.damaged_files.len() as f64,
    ),
    (
        "tallyring_disk_free_bytes",
        "Bytes free on the disk of the data directory",
        |now| now.status.disk_free_bytes.unwrap_or(0) as f64,
    ),
    (
        "tallyring_clock_jumped",
        "1 while the clock is not plausible: more than a day from where it was plausible last, and not believed yet",
        |now| flag(now.status.clock_jumped),
    ),
    (
        "tallyring_ring_ahead_seconds",
        "How much later the ring's today is than the clock's, in whole days; above one day the ring had followed a clock that was ahead",
        |now| f64::from(now.status.ring_days_ahead) * 86_400.0,
    ),
    (
        "tallyring_delta_bytes",
        "Bytes of counters in memory",
        |now| {
            let stores = now.status.stores.iter();
            stores.map(|store| store.memory_bytes).sum::<u64>() as f64
        },
    ),
    ("tallyring_delta_counters", "Counters in memory", |now| {
        let stores = now.status.stores.iter();
        stores.map(|store| store.counters).sum::<u64>() as f64
    }),
    (
        "tallyring_waiting_stores",
        "Stores of days of the ring that wait for their export, beyond yesterday's",
        |now| {
            let stores = now.status.stores.iter();
            stores
                .filter(|store| store.label == RingLabel::Waiting)
                .count() as f64
        },
    ),
    (
        "tallyring_oldest_minute_seconds",
        "Unix time before which minutes are not kept any more; 0 while all are",
        |now| now.status.minutes_from.unwrap_or(0) as f64,
    ),
    (
        "tallyring_oldest_hour_seconds",
        "Unix time before which hours are folded into days; 0 while none are",
        |now| now.status.hours_from.unwrap_or(0) as f64,
    ),
    (
        "tallyring_config_failed",
        "1 while the configuration file cannot be used, so that what it said before stays in force",
        |now| flag(now.config_failed),
    ),
    (
        "tallyring_last_rebuild_failed",
        "1 when the newest rebuild failed",
        |now| {
            let last = now.last_rebuild.as_ref();
            flag(last.is_some_and(|job| job.state == JobState::Failed))
        },
    ),
    (
        "tallyring_last_reconcile_failed",
        "1 when the newest reconcile failed, so that its day did not become final",
        |now| flag(now.last_reconcile_failed),
    ),
    (
        "tallyring_last_backup_failed",
        "1 when the backup after the newest rebuild failed",
        |now| flag(now.last_backup().is_some_and(|last| last.error.is_some())),
    ),
    (
        "tallyring_last_backup_age_seconds",
        "Since the newest backup ended, well or badly; 0 before the first",
        |now| {
            let last = now.last_backup();
            let age_ms = last.map_or(0, |last| now.now_ms - last.ended_ms);
            age_ms.max(0) as f64 / 1e3
        },
    ),
];

fn flag(is_set: bool) -> f64 {
    f64::from(u8::from(is_set))
}

impl Measured {
    fn log_copy(&self, value: fn(&LogCopyStatus) -> f64) -> f64 {
        self.status.log_copy.as_ref().map_or(0.0, value)
    }

    fn last_backup(&self) -> Option<&BackupOutcome> {
        self.last_rebuild.as_ref()?.backup.as_ref()
    }
}

/// Tells the recorder the meaning of each gauge.
pub(crate) fn describe() {
    for (name, help, _) in GAUGES {
        describe_gauge!(name, help);
    }
    describe_gauge!(
        DIFFERENCE,
        "Part of the events of the newest reconciled day that were counted otherwise before, by type and class: \
         `pipeline` for duplicates, `rules` for all else"
    );
}

const DIFFERENCE: &str = "tallyring_reconcile_difference_ratio";

/// A new list of rules must not look like a broken pipeline, so the two stand apart.
fn measure_differences(types: &BTreeMap<String, FinalSums>) {
    for (kind, sums) in types {
        // An event that moves from one rule to another counts neither before nor after.
        let causes = sums.causes.iter();
        let differences = causes.filter(|(cause, _)| !cause.starts_with("moved:"));
        let all: u128 = differences.map(|(_, n)| n.unsigned_abs()).sum();
        let pipeline = pipeline_n(sums);
        for (class, n) in [("pipeline", pipeline), ("rules", all - pipeline)] {
            let labels = [("type", kind.clone()), ("class", class.to_owned())];
            gauge!(DIFFERENCE, &labels).set(n as f64 / sums.before.max(1) as f64);
        }
    }
}

/// Sets all gauges to their present values.
pub(crate) fn measure(store: &Store, admin: &Admin) {
    let (status, jobs) = (store.status(), admin.jobs());
    // A what-if tells of rules that nobody has declared.
    let reconcile = jobs.reconcile.as_ref();
    let reconcile = reconcile.filter(|job| job.order.rules.is_none());
    if let Some((_, found)) = reconcile.and_then(ReconcileJob::newest) {
        measure_differences(&found.types);
    }
    let last_reconcile_failed = reconcile.is_some_and(|job| job.state == JobState::Failed);
    let config_failed = (jobs.config.as_ref()).is_some_and(|config| config.failure.is_some());
    store.tidy_holds();
    let holds = store.holds();
    counter!(RESERVATIONS, "outcome" => EXPIRED).absolute(holds.expired());
    let measured = Measured {
        health: Health::of(store, &status, &jobs).state(),
        status,
        blocks_decoded: store.live().blocks_decoded(),
        read_bytes: store.read_budget().held(),
        holds: holds.live(),
        hold_bytes: holds.bytes(),
        last_reconcile_failed,
        last_rebuild: jobs.rebuild,
        config_failed,
        now_ms: store.world().clock.now_ms(),
    };
    for (rule, filtered) in &measured.status.rules.filtered {
        counter!(FILTERED_BY_RULE, "rule" => rule.clone()).absolute(*filtered);
    }
    counter!(JUDGED).absolute(measured.status.rules.events);
    counter!(UNDECIDED).absolute(measured.status.rules.undecided);
    for (name, _, value) in GAUGES {
        gauge!(name).set(value(&measured));
    }
}
