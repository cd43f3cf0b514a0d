//! The calendar's behaviour through its public face: where buckets begin in zones known to be hard, what
//! requests answer, and laws over every zone of the database.

mod cross_check;
mod edges;
mod laws;
mod requests;

use jiff::Timestamp;
use tallyring_records::{Fault, FieldError, TIME_MAX, TIME_MIN};

use super::*;

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

fn at(text: &str) -> i64 {
    text.parse::<Timestamp>()
        .expect("an RFC 3339 time")
        .as_second()
}

fn zone(name: &str) -> Zone {
    Zone::named(name).expect("a zone of the database")
}

fn request(unit: Unit, zone: Zone, now: &str) -> Request {
    Request {
        unit,
        zone,
        units: None,
        from: None,
        to: None,
        now: at(now),
    }
}

fn bounded(request: Request) -> Buckets {
    match request.resolve().expect("a valid request") {
        Selection::Bounded(buckets) => buckets,
        Selection::All(_) => panic!("a bounded request"),
    }
}

fn refused(request: Request) -> FieldError {
    request.resolve().expect_err("a request that is refused")
}
