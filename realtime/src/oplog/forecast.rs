//! When the log will have no more room, from how it grew in the last days.

use serde::Serialize;

use super::segment::SegmentInfo;

const DAY_MS: i64 = 86_400_000;
const HOUR_MS: i64 = 3_600_000;
/// The last days, whose growth is taken for that of the days to come.
const LAST_DAYS: i64 = 7;
/// Days that a forecast looks ahead, at most.
const AHEAD_DAYS: u32 = 400;

/// Growth of the log, and the days until it has no more room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct LogForecast {
    /// Growth of the last seven days, or of the time since the log began, bytes a day; none where that is less than an
    /// hour.
    pub bytes_a_day: Option<u64>,
    /// Days until the log takes no more writes, because it comes near its limit; 0 where it may refuse some now. None
    /// where it never will, or not within 400 days.
    pub max_full_in_days: Option<u32>,
    /// Days until the disk is full, as far as the log fills it; none as above.
    pub disk_full_in_days: Option<u32>,
    /// Days until the log lacks room for days that should be final and are not; 0 where it loses some now. None where
    /// there are none, or they get their time.
    pub held_go_in_days: Option<u32>,
}

/// Segments that stay, as long as there is room, for a day that is not final.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Segments that were written since then stay, Unix milliseconds.
    pub from_ms: i64,
    /// Since when the day should be final, with a day of grace, Unix milliseconds.
    pub overdue_ms: i64,
    /// Until when they stay, Unix milliseconds.
    pub until_ms: i64,
}

/// Limits and state of the log for a forecast.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    pub now_ms: i64,
    /// Days for which the log is kept.
    pub keep_days: u32,
    /// Segments that stay longer.
    pub held: Option<Held>,
    /// Bytes of the log at which writes are refused; none without a limit.
    pub bytes_max: Option<u64>,
    /// Bytes of the log at which no segment is held; none without a limit.
    pub near_max: Option<u64>,
    /// Bytes that are free on the disk; none where that is not known.
    pub free_bytes: Option<u64>,
    /// Bytes by which the log may grow until no segment is held for want of disk.
    pub near_free: Option<u64>,
    /// Bytes of the newest segment that are written.
    pub newest_bytes: u64,
}

/// Looks ahead day by day. The log grows as in the last days, and segments leave it once they are old enough; plain
/// ones count as large as they will be once they are packed.
pub(super) fn forecast(segments: &[SegmentInfo], room: Room) -> LogForecast {
    let Some((newest, older)) = segments.split_last() else {
        return LogForecast::default();
    };
    let began_ms = segments.iter().map(|one| one.created_ms).min();
    let from_ms = began_ms
        .unwrap_or_default()
        .max(room.now_ms - LAST_DAYS * DAY_MS);
    let span_ms = room.now_ms - from_ms;
    if span_ms < HOUR_MS {
        return LogForecast::default();
    }
    let packed = Packed::of(segments);
    let of_newest = (
        newest.created_ms,
        room.now_ms,
        packed.size(room.newest_bytes),
    );
    let parts = older.iter().map(|one| {
        let bytes = match one.is_packed {
            true => one.bytes as f64,
            false => packed.size(one.plain_bytes),
        };
        (one.created_ms, one.written_until_ms, bytes)
    });
    let grown: f64 = parts
        .chain([of_newest])
        .map(|(start, end, bytes)| bytes * share(start, end, from_ms, room.now_ms))
        .sum();
    let a_day = grown * DAY_MS as f64 / span_ms as f64;
    let now_bytes: u64 = segments.iter().map(|one| one.bytes).sum();
    let since = |kept_from_ms: i64, days: u32| {
        let gone = older
            .iter()
            .filter(|one| one.written_until_ms < kept_from_ms);
        let gone: u64 = gone.map(|one| one.bytes).sum();
        now_bytes as f64 - gone as f64 + a_day * f64::from(days)
    };
    let after = |days: u32| {
        let kept_from_ms = room.now_ms + (i64::from(days) - i64::from(room.keep_days)) * DAY_MS;
        since(kept_from_ms, days.min(room.keep_days.saturating_add(1)))
    };
    let grown_by = |free: u64| now_bytes as f64 + free.max(1) as f64;
    let first = |bytes: f64| (0..=AHEAD_DAYS).find(|days| after(*days) >= bytes);
    let is_overdue = |held: &Held| held.overdue_ms <= room.now_ms;
    let held = room.held.filter(is_overdue).and_then(|held| {
        let days = (held.until_ms - room.now_ms).div_euclid(DAY_MS);
        let limits = [
            room.near_max.map(|max| max as f64),
            room.near_free.map(grown_by),
        ];
        let least = limits.into_iter().flatten().reduce(f64::min)?;
        let mut days = 0..=u32::try_from(days).unwrap_or(0).min(AHEAD_DAYS);
        days.find(|days| since(held.from_ms, *days) >= least)
    });
    LogForecast {
        bytes_a_day: Some(a_day as u64),
        max_full_in_days: room.bytes_max.and_then(|max| first(max as f64)),
        disk_full_in_days: room.free_bytes.and_then(|free| first(grown_by(free))),
        held_go_in_days: held,
    }
}

/// How small packed segments are.
struct Packed {
    ratio: f64,
}

impl Packed {
    fn of(segments: &[SegmentInfo]) -> Self {
        let packed = segments.iter().filter(|one| one.is_packed);
        let (bytes, plain) = packed.fold((0, 0), |(bytes, plain), one| {
            (bytes + one.bytes, plain + one.plain_bytes)
        });
        Self {
            ratio: match plain {
                0 => 1.0,
                plain => bytes as f64 / plain as f64,
            },
        }
    }

    fn size(&self, plain_bytes: u64) -> f64 {
        plain_bytes as f64 * self.ratio
    }
}

/// The share of the time from `start` to `end` that lies from `from` to `to`.
fn share(start: i64, end: i64, from: i64, to: i64) -> f64 {
    let whole = (end - start).max(1);
    let within = end.max(start + 1).min(to.max(from + 1)) - start.max(from);
    (within.max(0) as f64 / whole as f64).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: i64 = 1_700_000_000_000;
    const GIB: u64 = 1 << 30;

    /// A log of one plain segment of a GiB a day, and a newest one that was begun now.
    fn days(count: i64, is_packed: bool) -> Vec<SegmentInfo> {
        let segment = |days_ago: i64| SegmentInfo {
            file: String::new(),
            first_sequence: 0,
            end_sequence: 0,
            created_ms: NOW_MS - days_ago * DAY_MS,
            written_until_ms: NOW_MS - (days_ago - 1) * DAY_MS,
            bytes: if is_packed { GIB / 4 } else { GIB },
            plain_bytes: GIB,
            is_packed,
            is_pseudonymous: false,
        };
        let newest = SegmentInfo {
            bytes: 0,
            is_packed: false,
            ..segment(0)
        };
        (1..=count).rev().map(segment).chain([newest]).collect()
    }

    fn room(bytes_max: u64, free_bytes: u64) -> Room {
        Room {
            now_ms: NOW_MS,
            keep_days: 7,
            held: None,
            bytes_max: Some(bytes_max),
            near_max: Some(bytes_max),
            free_bytes: Some(free_bytes),
            near_free: Some(free_bytes),
            newest_bytes: 0,
        }
    }

    #[test]
    fn the_log_grows_as_in_the_last_days_until_old_segments_go() {
        let of = |count, bytes_max, free| {
            let found = forecast(&days(count, false), room(bytes_max * GIB, free * GIB));
            assert_eq!(found.bytes_a_day, Some(GIB));
            (found.max_full_in_days, found.disk_full_in_days)
        };
        assert_eq!(of(2, 5, 100), (Some(3), None));
        assert_eq!(of(2, 100, 4), (None, Some(4)));
        assert_eq!(of(2, 2, 100), (Some(0), None));
        assert_eq!(of(20, 100, 4), (None, None), "as much goes as comes");
    }

    #[test]
    fn plain_segments_count_as_large_as_they_will_be_packed() {
        let mut segments = days(4, true);
        segments[3].is_packed = false;
        segments[3].bytes = GIB;
        let found = forecast(&segments, room(100 * GIB, GIB));
        assert_eq!(found.bytes_a_day, Some(GIB / 4));
        assert_eq!(found.disk_full_in_days, Some(4));
    }

    /// The day of ten days ago is overdue, and has three more days; a day that is not yet overdue tells nothing.
    #[test]
    fn days_that_are_not_final_have_room_for_their_time_or_it_is_told_when_not() {
        let ago = |days: i64| NOW_MS - days * DAY_MS;
        let of = |count, overdue_ms, bytes_max, free| {
            let held = Held {
                from_ms: ago(9),
                overdue_ms,
                until_ms: ago(-3),
            };
            let room = Room {
                held: Some(held),
                ..room(bytes_max * GIB, free * GIB)
            };
            forecast(&days(count, false), room).held_go_in_days
        };
        assert_eq!(of(20, ago(4), 12, 100), Some(2), "of 20 GiB, 10 stay");
        assert_eq!(of(20, ago(4), 9, 100), Some(0));
        assert_eq!(of(20, ago(4), 14, 100), None, "it is given up before");
        assert_eq!(of(20, ago(-1), 9, 100), None);
        assert_eq!(of(10, ago(4), 100, 2), Some(2), "the disk");
    }

    #[test]
    fn an_empty_or_young_log_has_no_forecast() {
        assert_eq!(forecast(&[], room(1, 1)), LogForecast::default());
        let young = forecast(&days(0, false), room(1, 1));
        assert_eq!(young, LogForecast::default());
    }

    #[test]
    fn a_segment_that_took_months_counts_with_its_last_days() {
        let mut segments = days(1, false);
        segments[0].created_ms = NOW_MS - 70 * DAY_MS;
        let found = forecast(&segments, room(GIB, GIB));
        assert_eq!(found.bytes_a_day, Some(GIB / 70));
    }
}
