//! What each metric means, for `/metrics`.

use metrics::{counter, describe_counter, describe_gauge, describe_histogram};

use crate::access::{SHED, SHED_CLASSES};

/// Names with what they count; every counter ends in `_total`.
const COUNTERS: [(&str, &str); 14] = [
    (
        "tallyring_increments_total",
        "Increments that were counted, late ones too",
    ),
    (
        "tallyring_duplicates_total",
        "Increments that were known already by their id",
    ),
    (
        "tallyring_late_total",
        "Increments that came after their time was settled, and were counted",
    ),
    (
        "tallyring_rejected_total",
        "Items of batches that were refused",
    ),
    ("tallyring_events_total", "Events that were counted"),
    (
        "tallyring_filtered_total",
        "Events that a rule kept from being counted",
    ),
    (
        "tallyring_event_corrections_total",
        "Events that came later than allowed, and were counted as corrections",
    ),
    (
        "tallyring_http_requests_total",
        "Requests by route and status",
    ),
    (
        "tallyring_connections_refused_total",
        "Connections beyond those that one address may have",
    ),
    (SHED, "Requests that found no place, by class"),
    (
        "tallyring_wrong_keys_total",
        "Requests with an API key that is not in force",
    ),
    (
        "tallyring_statsd_bad_lines_total",
        "StatsD lines that could not be counted",
    ),
    (
        "tallyring_statsd_dropped_total",
        "StatsD counts that the store refused",
    ),
    (
        "tallyring_live_streams_total",
        "Streams of live counts that were opened",
    ),
];

const GAUGES: [(&str, &str); 20] = [
    (
        "tallyring_blocks_decoded",
        "Blocks of the archive that reads had to read from files since the start",
    ),
    (
        "tallyring_generation",
        "The archive generation that is read; 0 before the first",
    ),
    ("tallyring_manifest", "Number of the newest manifest"),
    ("tallyring_oplog_bytes", "Bytes of all log segments"),
    ("tallyring_oplog_records", "Number of the newest log record"),
    (
        "tallyring_unflushed_records",
        "Log records that a restart would replay",
    ),
    (
        "tallyring_remembered_ids_in_memory",
        "Ids in memory, against duplicates",
    ),
    (
        "tallyring_pending_runs",
        "Source runs that the archive lacks",
    ),
    ("tallyring_file_bytes", "Bytes of all files that count"),
    (
        "tallyring_damaged_files",
        "Files that count and were found damaged when all were read, a seventh a night",
    ),
    (
        "tallyring_disk_free_bytes",
        "Bytes free on the disk of the data directory",
    ),
    (
        "tallyring_clock_jumped",
        "1 while the clock is more than a day ahead of the ring and not believed",
    ),
    ("tallyring_delta_bytes", "Bytes of counters in memory"),
    ("tallyring_delta_counters", "Counters in memory"),
    (
        "tallyring_waiting_days",
        "Days of the ring that wait for their export beyond yesterday",
    ),
    (
        "tallyring_minutes_from_seconds",
        "Unix time before which minutes are not kept any more; 0 while all are",
    ),
    (
        "tallyring_hours_from_seconds",
        "Unix time before which hours are folded into days; 0 while none are",
    ),
    (
        "tallyring_last_rebuild_failed",
        "1 when the newest rebuild failed",
    ),
    (
        "tallyring_last_backup_failed",
        "1 when the backup after the newest rebuild failed",
    ),
    (
        "tallyring_last_backup_age_seconds",
        "Since the newest backup ended, well or badly; 0 before the first",
    ),
];

/// Counters with labels.
const LABELLED: [&str; 2] = ["tallyring_http_requests_total", SHED];

/// Tells the recorder, which must be installed, what each metric means. Counters begin at 0: an alert on the first of
/// what is counted needs a value before it.
pub fn describe_metrics() {
    for (name, help) in COUNTERS {
        describe_counter!(name, help);
        if !LABELLED.contains(&name) {
            counter!(name).absolute(0);
        }
    }
    for class in SHED_CLASSES {
        counter!(SHED, "class" => class).absolute(0);
    }
    for (name, help) in GAUGES {
        describe_gauge!(name, help);
    }
    describe_histogram!(
        "tallyring_http_request_seconds",
        "Time from a request's head to its answer's head, by route"
    );
}
