//! Counts and times requests by route and status. No label holds a key.
//!
//! The counters of a route and status are looked up by name once, and found again without allocation: routes are few.

use std::collections::HashMap;
use std::time::Instant;

use metrics::{Counter, Histogram};
use parking_lot::RwLock;
use tallyring_realtime::Accepted;

/// The metrics of all requests.
pub(crate) struct Meter {
    routes: RwLock<HashMap<String, Measured>>,
    outcomes: Outcomes,
}

/// The outcomes of increments.
pub(crate) struct Outcomes {
    increments: Counter,
    duplicates: Counter,
    late: Counter,
    filtered: Counter,
    set_aside: Counter,
}

/// The metrics of one route.
struct Measured {
    seconds: Histogram,
    statuses: Vec<(u16, Counter)>,
}

/// Stands for paths without a route.
const NO_ROUTE: &str = "none";

impl Meter {
    /// Counts by the recorder that is installed now.
    pub(crate) fn new() -> Self {
        Self {
            routes: RwLock::default(),
            outcomes: Outcomes::new(),
        }
    }

    /// Counts what became of increments.
    pub(crate) fn count(&self, accepted: &Accepted) {
        self.outcomes.count(accepted);
    }

    /// Counts a request of this route that began then and was answered now.
    pub(crate) fn note(&self, route: Option<&str>, status: u16, began: Instant) {
        let (route, seconds) = (route.unwrap_or(NO_ROUTE), began.elapsed().as_secs_f64());
        let routes = self.routes.read();
        if routes
            .get(route)
            .is_some_and(|measured| measured.note(status, seconds))
        {
            return;
        }
        drop(routes);
        let mut routes = self.routes.write();
        let measured = routes.entry(route.to_owned()).or_insert_with(|| Measured {
            seconds: metrics::histogram!("tallyring_http_request_seconds", "route" => route.to_owned()),
            statuses: Vec::new(),
        });
        if !measured.note(status, seconds) {
            let counter = metrics::counter!(
                "tallyring_http_requests_total", "route" => route.to_owned(), "status" => status.to_string()
            );
            measured.statuses.push((status, counter));
            measured.note(status, seconds);
        }
    }
}

impl Outcomes {
    /// Counts by the recorder that is installed now, which looks each counter up by name.
    pub(crate) fn new() -> Self {
        Self {
            increments: metrics::counter!("tallyring_increments_total"),
            duplicates: metrics::counter!("tallyring_duplicates_total"),
            late: metrics::counter!("tallyring_late_total"),
            filtered: metrics::counter!("tallyring_filtered_total"),
            set_aside: metrics::counter!("tallyring_set_aside_total"),
        }
    }

    /// Counts what became of increments.
    pub(crate) fn count(&self, accepted: &Accepted) {
        self.increments.increment(accepted.accepted);
        self.duplicates.increment(accepted.duplicates);
        self.late.increment(accepted.late);
        self.filtered.increment(accepted.filtered);
        self.set_aside.increment(accepted.set_aside);
    }
}

impl Measured {
    /// False when the status was not seen before.
    fn note(&self, status: u16, seconds: f64) -> bool {
        let Some((_, counter)) = self.statuses.iter().find(|(seen, _)| *seen == status) else {
            return false;
        };
        counter.increment(1);
        self.seconds.record(seconds);
        true
    }
}
