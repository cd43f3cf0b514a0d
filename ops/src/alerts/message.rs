//! A message to a receiver.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tallyring_api::calendar::rfc3339_utc;

use super::judge::Judged;
use crate::config::{Alert, Kind};
use crate::escape::visible;

/// Words for a receiver, as they are kept until somebody took them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Message {
    /// Says what it is about, so a message that comes twice has one id. Letters, digits, `_` and `-`.
    pub id: String,
    /// Such as `alert.begun`.
    pub kind: String,
    /// When it came about, Unix seconds.
    pub at: i64,
    /// A few words about it, of one line.
    pub subject: String,
    /// A sentence for people, or several lines.
    pub text: String,
    /// Its content for programs.
    pub data: Value,
    /// Files that go with mail.
    pub attachments: Vec<Attached>,
}

/// A file that goes with mail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Attached {
    pub name: String,
    /// The media type.
    pub kind: String,
    pub content: String,
}

impl Message {
    /// Tells that an alert begins or ends with a bucket. It is on since `since`, Unix seconds.
    pub(super) fn of_alert(name: &str, alert: &Alert, judged: &Judged, since: Option<i64>) -> Self {
        let what = match since {
            None => "begun",
            Some(_) => "ended",
        };
        let (start, end) = (judged.bucket.start, judged.bucket.end);
        let id = format!("{name}-{start}-{what}");
        Self {
            kind: format!("alert.{what}"),
            at: end,
            subject: visible(&format!("{name} has {what}: {}", alert.of)).into_owned(),
            text: visible(&sentence(name, alert, judged, what)).into_owned(),
            data: json!({
                "id": id,
                "alert": name,
                "of": alert.of.to_string(),
                "kind": alert.kind.name(),
                "unit": alert.unit,
                "from": alert.zone.label(start),
                "to": alert.zone.label(end),
                "since": alert.zone.label(since.unwrap_or(start)),
                "count": judged.count,
                "expected": judged.expected,
                "bound": judged.bound,
            }),
            attachments: Vec::new(),
            id,
        }
    }

    /// Tells a receiver that messages reach it.
    pub(super) fn test(receiver: &str, now: i64) -> Self {
        let id = format!("test-{receiver}-{now}");
        Self {
            kind: "alert.test".to_owned(),
            at: now,
            subject: "Test of alerts".to_owned(),
            text: format!("This is a test of the receiver {receiver}."),
            data: json!({ "id": id, "receiver": receiver }),
            attachments: Vec::new(),
            id,
        }
    }

    /// The message as JSON.
    pub(super) fn body(&self) -> String {
        json!({
            "type": self.kind,
            "timestamp": rfc3339_utc(self.at),
            "text": self.text,
            "data": self.data,
        })
        .to_string()
    }
}

fn sentence(name: &str, alert: &Alert, judged: &Judged, what: &str) -> String {
    let (of, count) = (&alert.of, judged.count);
    let hours = match alert.kind {
        Kind::Silence(hours) if hours > 1 => format!("{hours} hours"),
        _ => alert.unit.to_string(),
    };
    let until = alert.zone.label(judged.bucket.end);
    let expected = match judged.expected {
        Some(expected) => format!(", expected {expected}"),
        None => String::new(),
    };
    let bound = match (alert.kind, judged.bound) {
        (Kind::Silence(_), _) | (_, None) => String::new(),
        (Kind::Spike(_) | Kind::Above(_), Some(bound)) => format!(", the bound is above {bound}"),
        (Kind::Drop(_) | Kind::Below(_), Some(bound)) => format!(", the bound is below {bound}"),
    };
    let kind = alert.kind.name();
    format!(
        "{name} ({kind}) has {what}: {of} counted {count} in the {hours} until {until}{expected}{bound}."
    )
}
