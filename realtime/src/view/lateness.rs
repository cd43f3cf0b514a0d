//! Lateness: until when the events of a type are still expected.
//!
//! The watermark of a type is the time of its newest event, but never later than the clock, and never more than the
//! allowed lateness behind the clock: a type without new events settles all the same. Times before the watermark less
//! the allowed lateness are settled. A later event for a settled time is a correction, and its record in the log says
//! so.
//!
//! A restart does not set watermarks back: each manifest holds the newest event times of the records that it has
//! flushed, and the remaining records are replayed.

use std::collections::BTreeMap;
use std::sync::Arc;

use tallyring_records::{Day, EventType, Increment, LATENESS_SECONDS_DEFAULT, Schema};

use super::snapshot::Snapshot;

/// Time of the newest event of each type, Unix seconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watermarks(Arc<BTreeMap<String, i64>>);

impl Watermarks {
    /// Takes the watermarks that a manifest holds.
    pub(crate) fn restore(newest: &BTreeMap<String, i64>) -> Self {
        Self(Arc::new(newest.clone()))
    }

    /// The watermarks that a manifest holds: those of declared types.
    pub(crate) fn entries(&self, schema: &Schema) -> BTreeMap<String, i64> {
        let declared = self.0.iter();
        let declared = declared.filter(|(kind, _)| schema.event_type(kind).is_some());
        declared.map(|(kind, &at)| (kind.clone(), at)).collect()
    }

    /// Raises the watermark of the increment's event type, if the increment is newer.
    pub(crate) fn see(&mut self, increment: &Increment) {
        let Some(event) = &increment.event else {
            return;
        };
        let newest = self.0.get(&event.kind);
        if newest.is_none_or(|&newest| newest < increment.at) {
            Arc::make_mut(&mut self.0).insert(event.kind.clone(), increment.at);
        }
    }

    /// Keeps the newer watermark of both for each type.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (kind, &at) in &*other.0 {
            if self.0.get(kind).is_none_or(|&newest| newest < at) {
                Arc::make_mut(&mut self.0).insert(kind.clone(), at);
            }
        }
    }

    /// First instant that is not settled at `now` (both Unix seconds).
    pub(crate) fn settled_until(&self, event: &EventType, now: i64) -> i64 {
        let lateness = i64::from(event.lateness_seconds);
        let idle = now.saturating_sub(lateness);
        let newest = self.0.get(&event.name).copied().unwrap_or(idle);
        newest.min(now).max(idle).saturating_sub(lateness)
    }
}

/// First instant (Unix seconds) for which increments of `namespace` are still expected at `now` (Unix seconds). Counts
/// of earlier times change by corrections only. A kept generation (`as_of`) holds only the days before its cut, so no
/// later time is settled in it. Files without a log count what came until some time, which stands for the clock then.
pub(super) fn settled_until(view: &Snapshot, namespace: &str, as_of: Option<u64>, now: i64) -> i64 {
    let now = view.counted_until.map_or(now, |until| until.min(now));
    let settled = match view.schema.event_type_of(namespace) {
        Some(event) => view.watermarks.settled_until(event, now),
        None => now.saturating_sub(LATENESS_SECONDS_DEFAULT.into()),
    };
    let kept = as_of.and_then(|number| view.manifest.archive.generation(number));
    let cut_ms = kept.map(|kept| kept.cut_at_ms.unwrap_or(kept.created_at_ms));
    let ended = cut_ms.map(|cut_ms| Day::of(cut_ms.div_euclid(1_000)).start());
    ended.map_or(settled, |ended| settled.min(ended))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tallyring_records::Event;

    #[test]
    fn times_settle_by_the_newest_event_and_without_events_by_the_clock() {
        let event_type = EventType {
            name: "click".into(),
            entities: vec!["ad".into()],
            lateness_seconds: 300,
            actions: false,
        };
        let event = Event {
            kind: "click".into(),
            view: None,
            correction: false,
        };
        let click = |at| Increment {
            event: Some(event.clone().into()),
            ..Increment::new(at, 1, [("ad", "a")])
        };
        let mut watermarks = Watermarks::default();
        let now = 1_000_000;
        assert_eq!(watermarks.settled_until(&event_type, now), now - 600);
        // The newest event is a minute old: times five minutes before it are settled.
        for at in [now - 60, now - 400] {
            watermarks.see(&click(at));
            assert_eq!(watermarks.settled_until(&event_type, now), now - 360);
        }
        watermarks.see(&click(now + 80_000));
        assert_eq!(watermarks.settled_until(&event_type, now), now - 300);
    }
}
