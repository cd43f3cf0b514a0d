//! The gauges, measured when `/metrics` is asked for.

use std::collections::{BTreeMap, BTreeSet};

use metrics::{counter, describe_counter, describe_gauge, gauge};
use tallyring_archive::{FinalEntry, FinalSums};
use tallyring_realtime::catalog::JobState;
use tallyring_realtime::oplog::LogCopyStatus;
use tallyring_realtime::{Part, RingLabel, Status, Store, StoreStatus};

use crate::actions::reserve::{EXPIRED, RESERVATIONS};
use crate::health::{Health, is_without_backup, pipeline_n, published_lately};
use crate::read::finals;
use crate::reconcile::ReconcileJob;
use crate::state::{Admin, Jobs};
use crate::write::consume::LAG;

/// Events that each rule caught.
pub(crate) const FILTERED_BY_RULE: &str = "tallyring_filtered_by_rule_total";
/// Events that rules judged.
const JUDGED: &str = "tallyring_judged_total";
/// Events of these that some rule could not judge, and none caught.
const UNDECIDED: &str = "tallyring_undecided_total";

/// The gauges, one a line: a name, and its meaning.
const GAUGES: &str = "\
    tallyring_blocks_decoded Blocks of the archive that reads had to read from files since the start\n\
    tallyring_read_bytes Memory that reads on their way hold now\n\
    tallyring_reservations_held Reservations in memory that are neither confirmed, released nor expired\n\
    tallyring_reservation_bytes Memory of reservations\n\
    tallyring_health 0 while all is well, 1 while something needs an operator, 2 while increments are refused; see `tallyring status`\n\
    tallyring_generation The archive generation that is read; 0 before the first\n\
    tallyring_manifest Number of the newest manifest\n\
    tallyring_manifest_written_seconds Unix time at which that manifest was written\n\
    tallyring_manifest_waiting 1 while a read-only server cannot show newer files, because a manifest is damaged or files of it are not there, or because they are of another store; 0 for others\n\
    tallyring_oplog_bytes Bytes of all log segments\n\
    tallyring_oplog_full_in_seconds Time until the log reaches `oplog.max_bytes` or fills the disk, by its growth of the last days; 401 days where it does neither within 400\n\
    tallyring_oplog_records Number of the newest log record\n\
    tallyring_log_copy_behind_records Records that the second copy of the log may lack; 0 without one\n\
    tallyring_log_copy_behind_bytes Bytes that the second copy of the log lacks; 0 without one\n\
    tallyring_log_copy_behind_seconds The second copy of the log has all that was durable so long ago; 0 while it lacks nothing\n\
    tallyring_log_copy_failed 1 while the second copy of the log cannot be written, or writes are refused because it is behind\n\
    tallyring_unflushed_records Log records that a restart would replay\n\
    tallyring_remembered_ids_in_memory Ids in memory, against duplicates\n\
    tallyring_pending_runs Source runs that the archive lacks\n\
    tallyring_file_bytes Bytes of all files that count\n\
    tallyring_final_until_seconds Unix time until which every day is final, from the first final day on; 0 while none is\n\
    tallyring_damaged_files Files that count and were found damaged or gone, at the start or when they were read again, each at least once a week\n\
    tallyring_disk_free_bytes Bytes free on the disk of the data directory\n\
    tallyring_flush_failed 1 while memory could not be written to files at the last try: the disk is full, or the bucket of a cluster is out of reach\n\
    tallyring_cluster_nodes Nodes of the cluster that this one hears, itself among them; 0 for a single server\n\
    tallyring_cluster_writes 1 while this node writes the log of its cluster, as far as it knows; 0 for a single server\n\
    tallyring_cluster_without_writer 1 while this node hears of none that writes the log; 0 for a single server, and absent for one that only reads\n\
    tallyring_cluster_without_backup 1 while this node may write the log and would make no backup, and another one would; 0 for a single server\n\
    tallyring_cluster_lag_records Log records that the node that writes has counted and this one has not; 0 for a single server\n\
    tallyring_cluster_epoch Epoch of the log of a cluster, which rises when a node takes the log over; 0 for a single server\n\
    tallyring_clock_jumped 1 while the clock is not plausible: more than a day from where it was plausible last, and not believed yet\n\
    tallyring_ring_ahead_seconds How much later the ring's today is than the clock's, in whole days; above one day the ring had followed a clock that was ahead\n\
    tallyring_delta_bytes Bytes of counters in memory\n\
    tallyring_delta_counters Counters in memory\n\
    tallyring_waiting_stores Stores of days of the ring that wait for their export, beyond yesterday's\n\
    tallyring_oldest_minute_seconds Unix time before which minutes are not kept any more; 0 while all are\n\
    tallyring_oldest_hour_seconds Unix time before which hours are folded into days; 0 while none are\n\
    tallyring_alert_on 1 while the alert is on, by alert\n\
    tallyring_alert_messages_waiting Messages of alerts that receivers have not taken yet\n\
    tallyring_config_failed 1 while the configuration file cannot be used, so that what it said before stays in force\n\
    tallyring_last_rebuild_failed 1 when the newest rebuild failed\n\
    tallyring_last_reconcile_failed 1 when the newest reconcile that was to publish failed, so that a day of it did not become final\n\
    tallyring_reconcile_repeated_keys Keys of which more than 0.1 % of at least 1,000 events of a day had counted twice: the most that a version of the last week has\n\
    tallyring_last_backup_failed 1 when the newest backup failed\n\
    tallyring_last_backup_age_seconds Since the newest backup ended, well or badly, or the first one began; 0 before";

/// Counts that the store keeps, one a line: a name, and its meaning.
const COUNTS: &str = "\
    tallyring_cluster_void_messages_total Messages in the topic of a cluster that this node read and that do not count, as of a node that was deposed and did not know it\n\
    tallyring_old_objects_removed_total Objects that this node removed from the bucket of a cluster because no kept manifest names them\n\
    tallyring_old_objects_removed_bytes_total Bytes of these\n\
    tallyring_objects_restored_total Objects that count, were gone from the bucket of a cluster, and that this node put back";

/// Tells the recorder the meaning of each gauge.
pub(crate) fn describe() {
    for (name, help) in GAUGES.lines().filter_map(|line| line.split_once(' ')) {
        describe_gauge!(name, help);
    }
    for (name, help) in COUNTS.lines().filter_map(|line| line.split_once(' ')) {
        describe_counter!(name, help);
    }
    describe_gauge!(
        LAG,
        "Messages of a topic of Kafka that wait to be consumed, by topic and partition"
    );
    describe_gauge!(
        DIFFERENCE,
        "Part of the events of the final version that was published last that were counted otherwise before, by type and \
         class: `pipeline` for duplicates, `rules` for all else"
    );
}

const DIFFERENCE: &str = "tallyring_reconcile_difference_ratio";

/// Sets all gauges to their present values. The strand is a label where the store is divided.
pub(crate) fn measure(store: &Store, admin: &Admin, strand: Option<usize>) {
    Gauges {
        strand: strand.map(|strand| strand.to_string()),
    }
    .measure(store, admin);
}

/// The gauges of one strand.
struct Gauges {
    strand: Option<String>,
}

impl Gauges {
    fn measure(&self, store: &Store, admin: &Admin) {
        let (status, jobs) = (store.status(), admin.jobs());
        let now_ms = store.world().clock.now_ms();
        store.tidy_holds();
        let holds = store.holds();
        let expired = self.labels([("outcome", EXPIRED)]);
        counter!(RESERVATIONS, &expired).absolute(holds.expired());
        self.set("blocks_decoded", store.live().blocks_decoded() as f64);
        self.set("read_bytes", store.read_budget().held() as f64);
        self.set("reservations_held", holds.live() as f64);
        self.set("reservation_bytes", holds.bytes() as f64);
        let health = Health::of(store, &status, &jobs).state();
        self.set("health", f64::from(health as u8));
        self.measure_status(&status);
        let manifest = store.manifest();
        self.set(
            "manifest_written_seconds",
            manifest.written_at_ms.div_euclid(1_000) as f64,
        );
        let states = finals::states(&store.view(), now_ms.div_euclid(1_000));
        let final_until = states.final_until().unwrap_or(0);
        self.set("final_until_seconds", final_until as f64);
        let lately = published_lately(&manifest.archive.finals, now_ms);
        let repeated = lately.filter_map(|version| version.repeated.as_ref());
        let keys = repeated.map(|repeated| repeated.keys).max();
        self.set("reconcile_repeated_keys", keys.unwrap_or(0) as f64);
        if let Some(version) = manifest.archive.newest_final() {
            self.measure_differences(&manifest.archive.finals, &version.types);
        }
        let waiting = status.shown.and_then(|shown| shown.waiting);
        self.set("manifest_waiting", flag(waiting.is_some()));
        self.measure_cluster(store);
        self.measure_jobs(&jobs, now_ms);
    }

    fn set(&self, name: &str, value: f64) {
        gauge!(format!("tallyring_{name}"), &self.labels([])).set(value);
    }

    /// These labels, and that of the strand.
    fn labels<const N: usize>(&self, more: [(&str, &str); N]) -> Vec<(String, String)> {
        let own = self.strand.iter().map(|strand| ("strand", strand.as_str()));
        let all = more.into_iter().chain(own);
        all.map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    fn measure_status(&self, status: &Status) {
        for (rule, filtered) in &status.rules.filtered {
            let labels = self.labels([("rule", rule)]);
            counter!(FILTERED_BY_RULE, &labels).absolute(*filtered);
        }
        counter!(JUDGED, &self.labels([])).absolute(status.rules.events);
        counter!(UNDECIDED, &self.labels([])).absolute(status.rules.undecided);
        self.set("generation", status.generation as f64);
        self.set("manifest", status.manifest as f64);
        self.set("oplog_bytes", status.oplog_bytes as f64);
        let forecast = &status.log_forecast;
        let days = [forecast.max_full_in_days, forecast.disk_full_in_days];
        let days = days.into_iter().flatten().min().unwrap_or(401);
        self.set("oplog_full_in_seconds", f64::from(days) * 86_400.0);
        self.set("oplog_records", status.applied.sequence as f64);
        let copy = |value: fn(&LogCopyStatus) -> f64| status.log_copy.as_ref().map_or(0.0, value);
        self.set(
            "log_copy_behind_records",
            copy(|copy| copy.behind_records as f64),
        );
        self.set(
            "log_copy_behind_bytes",
            copy(|copy| copy.behind_bytes as f64),
        );
        self.set("log_copy_behind_seconds", copy(|copy| copy.behind_seconds));
        self.set("log_copy_failed", copy(|copy| flag(copy.failure.is_some())));
        self.set("unflushed_records", status.unflushed as f64);
        self.set("remembered_ids_in_memory", status.ids_in_memory as f64);
        self.set("pending_runs", status.pending_runs as f64);
        self.set("file_bytes", status.file_bytes as f64);
        self.set("damaged_files", status.damaged_files.len() as f64);
        self.set(
            "disk_free_bytes",
            status.disk_free_bytes.unwrap_or(0) as f64,
        );
        self.set("clock_jumped", flag(status.clock_jumped));
        self.set(
            "ring_ahead_seconds",
            f64::from(status.ring_days_ahead) * 86_400.0,
        );
        let sum = |of: fn(&StoreStatus) -> u64| status.stores.iter().map(of).sum::<u64>() as f64;
        self.set("delta_bytes", sum(|store| store.memory_bytes));
        self.set("delta_counters", sum(|store| store.counters));
        self.set(
            "waiting_stores",
            sum(|store| u64::from(store.label == RingLabel::Waiting)),
        );
        self.set(
            "oldest_minute_seconds",
            status.minutes_from.unwrap_or(0) as f64,
        );
        self.set("oldest_hour_seconds", status.hours_from.unwrap_or(0) as f64);
    }

    fn measure_cluster(&self, store: &Store) {
        let is_node = store.world().objects.is_some();
        let (nodes, part) = (store.intake().nodes(), store.part());
        let applied = store.live().applied();
        let lag = match &part {
            Part::Follows { .. } => {
                let writer = nodes.iter().find(|node| node.writes.is_some());
                let end = writer.and_then(|writer| writer.applied);
                end.map_or(0, |end| end.sequence.saturating_sub(applied.sequence))
            }
            Part::Writes | Part::Reads => 0,
        };
        let epoch = if is_node { applied.epoch } else { 0 };
        self.set("flush_failed", flag(store.ledger().has_failed_to_flush()));
        self.set("cluster_nodes", nodes.len() as f64);
        self.set("cluster_writes", flag(is_node && part == Part::Writes));
        // The least of all nodes tells that none writes, and a server that only reads would hide it.
        if part != Part::Reads {
            self.set(
                "cluster_without_writer",
                flag(part == Part::Follows { writer: None }),
            );
        }
        self.set("cluster_without_backup", flag(is_without_backup(&nodes)));
        self.set("cluster_lag_records", lag as f64);
        self.set("cluster_epoch", f64::from(epoch));
        let swept = store.ledger().swept();
        let counts = [
            (
                "cluster_void_messages_total",
                store.intake().void_messages(),
            ),
            ("old_objects_removed_total", swept.objects),
            ("old_objects_removed_bytes_total", swept.bytes),
            ("objects_restored_total", swept.restored),
        ];
        for (name, value) in counts {
            counter!(format!("tallyring_{name}"), &self.labels([])).absolute(value);
        }
    }

    fn measure_jobs(&self, jobs: &Jobs, now_ms: i64) {
        let has_failed = |state: JobState| flag(state == JobState::Failed);
        let reconcile = jobs.reconcile.as_ref().and_then(ReconcileJob::fault);
        self.set("last_reconcile_failed", flag(reconcile.is_some()));
        let config = jobs.config.as_ref();
        self.set(
            "config_failed",
            flag(config.is_some_and(|config| config.failure.is_some())),
        );
        let rebuild = jobs.rebuild.as_ref();
        self.set(
            "last_rebuild_failed",
            rebuild.map_or(0.0, |job| has_failed(job.state)),
        );
        let backup = jobs.backup.as_ref();
        let ended = backup.and_then(|backup| backup.ended.as_ref());
        self.set(
            "last_backup_failed",
            flag(ended.is_some_and(|ended| ended.error.is_some())),
        );
        // One that hangs never ends.
        let since_ms = match ended {
            Some(ended) => Some(ended.ended_ms),
            None => backup.and_then(|backup| backup.running_since_ms),
        };
        let age_ms = since_ms.map_or(0, |since_ms| now_ms - since_ms);
        self.set("last_backup_age_seconds", age_ms.max(0) as f64 / 1e3);
    }

    /// A new list of rules must not look like a broken pipeline, so the two stand apart.
    /// A type that only other versions have differs by nothing.
    fn measure_differences(&self, all: &[FinalEntry], newest: &BTreeMap<String, FinalSums>) {
        let kinds: BTreeSet<&String> = all
            .iter()
            .flat_map(|version| version.types.keys())
            .collect();
        let none = FinalSums::default();
        for kind in kinds {
            let sums = newest.get(kind).unwrap_or(&none);
            // An event that moves from one rule to another counts neither before nor after.
            let causes = sums.causes.iter();
            let differences = causes.filter(|(cause, _)| !cause.starts_with("moved:"));
            let all: u128 = differences.map(|(_, n)| n.unsigned_abs()).sum();
            let pipeline = pipeline_n(sums);
            for (class, n) in [("pipeline", pipeline), ("rules", all - pipeline)] {
                let labels = self.labels([("type", kind), ("class", class)]);
                gauge!(DIFFERENCE, &labels).set(n as f64 / sums.before.max(1) as f64);
            }
        }
    }
}

fn flag(is_set: bool) -> f64 {
    f64::from(u8::from(is_set))
}
