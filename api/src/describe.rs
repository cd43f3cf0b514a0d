//! The meaning of each metric, for `/metrics`.

use metrics::{counter, describe_counter, describe_histogram};

use crate::access::{SHED, SHED_CLASSES};
use crate::actions::reserve::{OUTCOMES, RESERVATIONS};
use crate::gauges;
use crate::write::consume::{MESSAGES, SKIPPED};

/// Counters, one a line: a name, which ends in `_total`, and its meaning.
const COUNTERS: &str = "\
    tallyring_increments_total Increments that were counted, late ones too\n\
    tallyring_duplicates_total Increments that were known already by their id\n\
    tallyring_late_total Increments that came after their time was settled, and were counted\n\
    tallyring_rejected_total Items of batches that were refused\n\
    tallyring_events_total Events that were counted\n\
    tallyring_filtered_total Events that a rule kept from being counted\n\
    tallyring_filtered_by_rule_total Events that a rule kept from being counted, by rule\n\
    tallyring_judged_total Events that were judged by rules: all that are no duplicates\n\
    tallyring_undecided_total Events that no rule caught, and that some rule could not judge for want of evidence\n\
    tallyring_set_aside_total Wrong fields that were set aside while their increments count\n\
    tallyring_event_corrections_total Events that came later than allowed, and were counted as corrections\n\
    tallyring_http_requests_total Requests by route and status\n\
    tallyring_connections_refused_total Connections beyond those that one address may have\n\
    tallyring_shed_total Requests that found no place, by class\n\
    tallyring_wrong_keys_total Requests with an API key that is not in force\n\
    tallyring_reservations_total Reservations by outcome, and requests for one that caps blocked\n\
    tallyring_statsd_bad_lines_total StatsD lines that could not be counted\n\
    tallyring_statsd_dropped_total StatsD counts that the store refused\n\
    tallyring_kafka_out_messages_total Messages of settled buckets that Kafka has\n\
    tallyring_kafka_out_failures_total Failures to tell Kafka of settled buckets, each of which is tried again\n\
    tallyring_kafka_in_messages_total Messages of topics of Kafka that were consumed, skipped ones too, by topic\n\
    tallyring_kafka_in_skipped_total Items of such messages that were not counted, by topic and reason\n\
    tallyring_kafka_in_lost_total Messages of such topics that retention removed before they were consumed, by topic\n\
    tallyring_alert_messages_total Messages of alerts that receivers took\n\
    tallyring_alert_failures_total Tries to send a message of an alert that failed, which is tried for a day\n\
    tallyring_alert_given_up_total Messages of alerts that a receiver did not take within a day\n\
    tallyring_live_streams_total Streams of live counts that were opened";

/// Counters that begin with their labels. Lost messages begin without, too, so that their alert finds them anywhere.
const LABELLED: [&str; 6] = [
    "tallyring_http_requests_total",
    RESERVATIONS,
    SHED,
    gauges::FILTERED_BY_RULE,
    MESSAGES,
    SKIPPED,
];

/// Tells the recorder, which must be installed, what each metric means. Counters begin at 0: an alert on the first of
/// what is counted needs a value before it.
pub fn describe_metrics() {
    let counters = COUNTERS.lines().filter_map(|line| line.split_once(' '));
    for (name, help) in counters {
        describe_counter!(name, help);
        if !LABELLED.contains(&name) {
            counter!(name).absolute(0);
        }
    }
    for class in SHED_CLASSES {
        counter!(SHED, "class" => class).absolute(0);
    }
    for outcome in OUTCOMES {
        counter!(RESERVATIONS, "outcome" => outcome).absolute(0);
    }
    gauges::describe();
    describe_histogram!(
        "tallyring_http_request_seconds",
        "Time from a request's head to its answer's head, by route"
    );
}
