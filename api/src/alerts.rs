//! Alerts as the status tells of them. The binary judges and sends.

use serde_json::{Value, json};
use tallyring_records::how_many;

use crate::calendar::rfc3339_utc;

/// The alerts of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AlertsState {
    /// By name.
    pub alerts: Vec<AlertState>,
    /// By name.
    pub reports: Vec<ReportState>,
    /// By name.
    pub receivers: Vec<ReceiverState>,
    /// Messages that a receiver did not take within a day, or whose receiver is not declared any more.
    pub given_up: u64,
}

/// An alert.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AlertState {
    /// Its name in the configuration.
    pub name: String,
    /// A namespace, or a namespace and a key such as `l/abc`.
    pub of: String,
    /// Such as `spike`.
    pub kind: String,
    /// Start of the bucket with which it began, Unix seconds; none while it is off.
    pub since: Option<i64>,
    /// End of the last bucket that was judged, Unix seconds; none before the first.
    pub judged_until: Option<i64>,
    /// The count that was judged last.
    pub count: Option<u64>,
    /// The count that was expected; none where history does not say.
    pub expected: Option<u64>,
    /// Why it says nothing now; none where it judges.
    pub note: Option<String>,
}

/// A report of each week or month.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReportState {
    /// Its name in the configuration.
    pub name: String,
    /// A namespace, or a namespace and a key such as `l/abc`.
    pub of: String,
    /// End of the last period that was told, Unix seconds; none before the first look.
    pub told_until: Option<i64>,
}

/// A receiver of messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReceiverState {
    /// Its name in the configuration.
    pub name: String,
    /// Messages that it has not taken yet.
    pub waiting: usize,
    /// Since when the oldest of them waits, Unix seconds.
    pub since: Option<i64>,
    /// Why that one was not taken.
    pub failure: Option<String>,
    /// True where that is for more than an hour.
    pub is_late: bool,
}

impl AlertsState {
    /// Faults that need an operator, a sentence each.
    pub(crate) fn faults(&self) -> impl Iterator<Item = String> {
        let late = self.receivers.iter().filter(|receiver| receiver.is_late);
        late.map(|receiver| {
            let (name, failure) = (&receiver.name, receiver.failure.as_deref());
            let since = receiver.since.map(rfc3339_utc).unwrap_or_default();
            format!(
                "the receiver {name} has not taken {} of alerts, the oldest since {since}: {}; `tallyring alerts test {name}` \
                 tries it",
                how_many(receiver.waiting as u64, "message"),
                failure.unwrap_or("it was not asked yet")
            )
        })
    }

    /// The alerts and their receivers, for the status.
    pub(crate) fn json(&self) -> Value {
        let alerts = self.alerts.iter().map(|alert| {
            json!({
                "name": alert.name,
                "of": alert.of,
                "kind": alert.kind,
                "on": alert.since.is_some(),
                "since": alert.since.map(rfc3339_utc),
                "judged_until": alert.judged_until.map(rfc3339_utc),
                "count": alert.count,
                "expected": alert.expected,
                "note": alert.note,
            })
        });
        let reports = self.reports.iter().map(|report| {
            json!({
                "name": report.name,
                "of": report.of,
                "told_until": report.told_until.map(rfc3339_utc),
            })
        });
        let receivers = self.receivers.iter().map(|receiver| {
            json!({
                "name": receiver.name,
                "waiting": receiver.waiting,
                "since": receiver.since.map(rfc3339_utc),
                "failure": receiver.failure,
            })
        });
        json!({
            "alerts": alerts.collect::<Value>(),
            "reports": reports.collect::<Value>(),
            "receivers": receivers.collect::<Value>(),
            "given_up": self.given_up,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_that_takes_nothing_for_an_hour_is_a_fault() {
        let receiver = |name: &str, is_late| ReceiverState {
            name: name.to_owned(),
            waiting: 2,
            since: Some(1_331_920_800),
            failure: Some("answered 503".to_owned()),
            is_late,
        };
        let state = AlertsState {
            receivers: vec![receiver("new", false), receiver("ops", true)],
            ..AlertsState::default()
        };
        let faults: Vec<String> = state.faults().collect();
        assert_eq!(
            faults,
            [
                "the receiver ops has not taken 2 messages of alerts, the oldest since 2012-03-16T18:00:00Z: answered \
                 503; `tallyring alerts test ops` tries it"
            ]
        );
        assert_eq!(
            state.json()["receivers"][1]["since"],
            "2012-03-16T18:00:00Z"
        );
    }
}
