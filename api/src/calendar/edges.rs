//! Where buckets meet: the two questions from which every bucket is made.
//!
//! Both are functions of unit, zone and instant alone, so any walk over buckets, in either direction
//! and from any instant, meets the same edges.

use super::unit::Unit;
use super::zone::Zone;

const MINUTE_SECS: i64 = 60;
const HOUR_SECS: i64 = 3600;

/// The start of the bucket that holds `instant`: the last edge not after it.
pub(super) fn at_or_before(unit: Unit, zone: &Zone, instant: i64) -> i64 {
    match unit {
        Unit::Minute => instant - instant.rem_euclid(MINUTE_SECS),
        Unit::Hour => full_hour_at_or_before(zone, instant),
        _ => {
            let mut date = unit.first_date(zone.date_at(instant));
            let mut edge = zone.first_instant_of(date);
            assert!(
                edge <= instant,
                "BUG: {date} begins at {edge}, but {instant} carries it"
            );
            // The period after may have begun: its first date was read once, then clocks went back
            // over midnight. (A skipped date begins where the next does, and is passed over.)
            loop {
                date = unit.next_first_date(date);
                let next = zone.first_instant_of(date);
                if next > instant {
                    return edge;
                }
                edge = next;
            }
        }
    }
}

/// The end of the bucket that holds `instant`: the first edge after it.
pub(super) fn after(unit: Unit, zone: &Zone, instant: i64) -> i64 {
    match unit {
        Unit::Minute => instant - instant.rem_euclid(MINUTE_SECS) + MINUTE_SECS,
        Unit::Hour => full_hour_after(zone, instant),
        _ => {
            let mut date = unit.first_date(zone.date_at(instant));
            loop {
                date = unit.next_first_date(date);
                let edge = zone.first_instant_of(date);
                if edge > instant {
                    return edge;
                }
            }
        }
    }
}

/// The last instant not after `instant` whose local clock reads a full hour.
fn full_hour_at_or_before(zone: &Zone, mut instant: i64) -> i64 {
    loop {
        let stretch = zone.stretch_at(instant);
        let edge = instant - (instant + stretch.offset_secs).rem_euclid(HOUR_SECS);
        if edge >= stretch.from {
            return edge;
        }
        instant = stretch.from - 1;
    }
}

/// The first instant after `instant` whose local clock reads a full hour.
fn full_hour_after(zone: &Zone, instant: i64) -> i64 {
    let mut instant = instant + 1;
    loop {
        let stretch = zone.stretch_at(instant);
        let edge = instant + (-(instant + stretch.offset_secs)).rem_euclid(HOUR_SECS);
        if edge < stretch.to {
            return edge;
        }
        instant = stretch.to;
    }
}
