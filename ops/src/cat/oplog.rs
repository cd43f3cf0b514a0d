//! Records of the log: all from one on, or the events of a day.
//!
//! An event belongs to the UTC day of its own time, as counts do, however late it came: so the whole log is read,
//! except packed segments that say that they have no event of the day.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{self, IsTerminal};

use indicatif::ProgressBar;
use jiff::Timestamp;
use tallyring_archive::Blobs;
use tallyring_realtime::oplog::{LogSummary, ReadFrom, Segment, scan_some, segments};
use tallyring_records::{Day, decode_all};

use super::{CatError, Printed, record};
use crate::error::CommandError;
use crate::out::note;
use crate::progress::bytes_bar;

/// The records to print.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    /// The first one, by its number.
    pub from: Option<u64>,
    /// Only events of this day: increments, late ones, filtered ones, and voids of them.
    pub day: Option<Day>,
}

/// Ranges of days that an error lists, at most.
const RANGES_MAX: usize = 10;

/// Prints the records. Fails where the log has no event of the day, and says which days it has.
pub(super) fn print(blobs: &Blobs, wanted: Wanted, out: &mut Printed) -> Result<(), CatError> {
    // The read itself says what is wrong with the log.
    let segments = segments(blobs.disk()).unwrap_or_default();
    let begun_ms = segments.first().map(Segment::created_ms);
    let bar = log_bar(&segments);
    let start = wanted.from.map_or(ReadFrom::Oldest, ReadFrom::Sequence);
    let (mut failed, mut found) = (None, 0_u64);
    let days = RefCell::new(BTreeSet::new());
    let mut has_day = |of_segment: &[(u32, u64)]| {
        let of_segment = of_segment.iter().map(|(day, _)| Day::from_number(*day));
        let of_segment: BTreeSet<Day> = of_segment.collect();
        let has_it = wanted.day.is_none_or(|day| of_segment.contains(&day));
        days.borrow_mut().extend(of_segment);
        has_it
    };
    let read = scan_some(blobs.disk(), start, &mut has_day, &mut |frame| {
        let written = Timestamp::from_millisecond(frame.written_ms).unwrap_or_default();
        for (index, record) in decode_all(frame.payload, frame.count)?.iter().enumerate() {
            let sequence = frame.first_sequence + index as u64;
            if wanted.from.is_some_and(|from| sequence < from) {
                continue;
            }
            if let Some(day) = wanted.day {
                let Some(of_event) = record.day() else {
                    continue;
                };
                days.borrow_mut().insert(of_event);
                if of_event != day {
                    continue;
                }
            }
            found += 1;
            let position = format!("{}:{sequence}", frame.epoch);
            let text = format_args!("{position} {written} {}", record::text(record));
            if let Err(error) = out.line(text, || record::json(&position, written, record)) {
                failed = Some(error);
                return Err("output".into());
            }
        }
        bar.inc(frame.payload.len() as u64);
        Ok(())
    });
    bar.finish_and_clear();
    if let Some(error) = failed {
        return Err(error.into());
    }
    let summary = read?;
    match wanted.day {
        Some(day) => check_day(day, found, &days.take(), begun_ms, &summary),
        None => Ok(()),
    }
}

/// A bar of the log's bytes; hidden where the records themselves are shown on a terminal.
pub(crate) fn log_bar(segments: &[Segment]) -> ProgressBar {
    if io::stdout().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = bytes_bar("reading");
    bar.set_length(segments.iter().map(Segment::plain_bytes).sum());
    bar
}

/// Fails where no event of the day was found, and warns where some of them may have left the log.
fn check_day(
    day: Day,
    found: u64,
    days: &BTreeSet<Day>,
    begun_ms: Option<i64>,
    summary: &LogSummary,
) -> Result<(), CatError> {
    if found == 0 {
        let has = match days.is_empty() {
            true => "it has no event at all".to_owned(),
            false => format!("it has events of {}", ranges(days)),
        };
        let detail = format!("the log has no event of {day} (UTC); {has}");
        return Err(CommandError::Failed(detail).into());
    }
    // The log of a store that is younger than its retention begins with the first record of all.
    let is_cut = summary.oldest_sequence > 0;
    if let Some(begun_ms) = begun_ms
        && is_cut
        && begun_ms.div_euclid(1_000) > day.start()
    {
        let begun = Timestamp::from_millisecond(begun_ms).unwrap_or_default();
        note!("the log begins at {begun}: events of {day} that were written before have left it");
    }
    Ok(())
}

/// Days as ranges: `2012-03-16 to 2012-03-18, 2012-03-20`.
fn ranges(days: &BTreeSet<Day>) -> String {
    let mut ranges: Vec<(Day, Day)> = Vec::new();
    for &day in days {
        match ranges.last_mut() {
            Some((_, last)) if last.next() == day => *last = day,
            _ => ranges.push((day, day)),
        }
    }
    let listed = ranges.iter().take(RANGES_MAX);
    let mut texts: Vec<String> = listed
        .map(|(first, last)| match first == last {
            true => first.to_string(),
            false => format!("{first} to {last}"),
        })
        .collect();
    if let Some((_, last)) = ranges.last().filter(|_| ranges.len() > RANGES_MAX) {
        texts.push(format!("and others until {last}"));
    }
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_listed_as_ranges_of_which_there_are_few() {
        let of = |numbers: &[u32]| {
            let days = numbers.iter().copied().map(Day::from_number);
            ranges(&days.collect())
        };
        assert_eq!(of(&[0]), "2000-01-01");
        assert_eq!(of(&[0, 1, 2, 4]), "2000-01-01 to 2000-01-03, 2000-01-05");
        let many: Vec<u32> = (0..30).map(|number| number * 2).collect();
        assert!(of(&many).ends_with(", 2000-01-19, and others until 2000-02-28"));
    }
}
