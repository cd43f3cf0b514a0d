//! Days that can become final: closed, and whole in the log.

use std::collections::BTreeSet;

use tallyring_archive::{Blobs, IntakeEntry, Manifest};
use tallyring_records::Day;

use crate::error::{Error, Result};
use crate::intake::log_reaches_back;
use crate::oplog::{Segment, oldest_segment};
use crate::options::Options;

/// Days that are told at once, at most.
const DAYS_MAX: usize = 400;
const HOUR_SECONDS: i64 = 3_600;
/// Time after it should be final after which a day is long overdue, hours.
const LONG_OVERDUE_HOURS: i64 = 48;
/// How long the loss of a day is told, hours.
const TOLD_HOURS: i64 = 7 * 24;

/// The oldest closed day that ended before `until` (Unix seconds), is not final, and is whole in the log. Days that are
/// `left_out` are passed over. Fails when the log cannot be listed.
pub fn first_not_final(
    blobs: &Blobs,
    manifest: &Manifest,
    until: i64,
    left_out: impl Fn(Day) -> bool,
) -> Result<Option<Day>> {
    let Some(oldest) = oldest_segment(blobs.disk())? else {
        return Ok(None);
    };
    let can_be_final = |day: &Day| {
        !left_out(*day)
            && is_closed(manifest, *day)
            && reaches_back(&manifest.intake, &oldest, *day)
    };
    Ok(open_days(manifest, begun(&oldest), until).find(can_be_final))
}

/// Days that are whole in the log, and not final although they ended before `until` (Unix seconds). The oldest 400.
/// Fails when the log cannot be listed.
pub fn not_final(blobs: &Blobs, manifest: &Manifest, until: i64) -> Result<Vec<Day>> {
    let Some(oldest) = oldest_segment(blobs.disk())? else {
        return Ok(Vec::new());
    };
    let first = first_day(manifest).into_iter().chain([begun(&oldest)]);
    let open = first.min().map(|first| open_days(manifest, first, until));
    let open = open.into_iter().flatten();
    Ok(open
        .filter(|day| reaches_back(&manifest.intake, &oldest, *day))
        .take(DAYS_MAX)
        .collect())
}

/// Days since the store began, or since its first final day, that ended before `until` (Unix seconds), are not final,
/// and of which the log has lost a part: they never become final. The newest 400, ascending. Fails when the log cannot
/// be listed.
pub fn closed_without_final(blobs: &Blobs, manifest: &Manifest, until: i64) -> Result<Vec<Day>> {
    let Some(oldest) = oldest_segment(blobs.disk())? else {
        return Ok(Vec::new());
    };
    let Some(first) = first_day(manifest) else {
        return Ok(Vec::new());
    };
    let open = open_days(manifest, first, until);
    let lost: Vec<Day> = open
        .filter(|day| !reaches_back(&manifest.intake, &oldest, *day))
        .collect();
    Ok(lost[lost.len().saturating_sub(DAYS_MAX)..].to_vec())
}

/// The first day whose loss is told at `now` (Unix seconds), for about a week after it left the log without being
/// final; none where no day becomes final by itself, or none ever was. A day that was long overdue when the first final
/// version was published could not become final, and is not told of. Fails when the log cannot be listed.
pub fn told_from(
    blobs: &Blobs,
    manifest: &Manifest,
    options: &Options,
    now: i64,
) -> Result<Option<Day>> {
    let times = manifest.archive.finals.iter().map(|version| version.at_ms);
    let hours = (options.final_after_hours.map(i64::from)).zip(options.held_hours());
    let found = hours.zip(times.min()).zip(oldest_segment(blobs.disk())?);
    Ok(found.map(|(((after, held), first_ms), oldest)| {
        let wanted = i64::from(options.log_days().max(options.journal_days)) * 24;
        // A log that lacks room lets go of days earlier.
        let lasts = (now - begun(&oldest).start()) / HOUR_SECONDS;
        let left = now - (wanted.min(lasts).max(held) + TOLD_HOURS) * HOUR_SECONDS;
        let due = first_ms.div_euclid(1_000) - (after + LONG_OVERDUE_HOURS) * HOUR_SECONDS;
        Day::of(left.max(due))
    }))
}

/// Why a day cannot be reconciled now, or never can be again; none where it can. Fails as [`out_of_reach`] does.
pub fn no_reconcile(blobs: &Blobs, manifest: &Manifest, day: Day) -> Result<Option<String>> {
    match is_closed(manifest, day) {
        true => out_of_reach(blobs, manifest, day),
        false => Ok(Some(Error::NotClosed { day }.to_string())),
    }
}

/// Why a closed day can never be reconciled again: a part of it left the log, or what the next version begins with is
/// no longer kept. None where it can. Fails when there is no log, or it cannot be listed.
pub fn out_of_reach(blobs: &Blobs, manifest: &Manifest, day: Day) -> Result<Option<String>> {
    let newest = manifest.archive.finals_of(day).last();
    if let Some(newest) = newest.filter(|newest| newest.sums_only) {
        return Ok(Some(format!(
            "the books and verdicts of version {} of {day}, which another version begins with, are no longer kept; a \
             longer `final.keep_days` keeps those of later days",
            newest.version
        )));
    }
    let oldest = oldest_segment(blobs.disk())?;
    let oldest = oldest.ok_or_else(|| Error::Reconcile("there is no log".into()))?;
    if !reaches_back(&manifest.intake, &oldest, day) {
        let begins = match manifest.intake.left_log.contains(&day) {
            true => {
                "the log has lost records of the day, because the clock had been ahead,".to_owned()
            }
            false => format!("the log begins on {}", begun(&oldest)),
        };
        return Ok(Some(format!(
            "{begins} and no longer reaches back to the first event of {day}; a longer `oplog.keep_days` keeps it"
        )));
    }
    let generations = manifest.archive.generations.iter();
    let mut folded = generations.filter(|kept| kept.horizon().hours_from > day.start());
    Ok(folded.next().map(|kept| {
        format!(
            "generation {} keeps {day} as a whole and no hours of it; a longer `hours.keep_days` keeps those of later \
             days",
            kept.number
        )
    }))
}

/// The day on which the store began, or its first final day where that is not known or is earlier.
fn first_day(manifest: &Manifest) -> Option<Day> {
    // Versions ascend by their days.
    let archive = &manifest.archive;
    let finals = archive.finals.first().map(|entry| entry.day);
    let awaited = archive.awaited.first().map(|logged| logged.day);
    let begun = manifest.intake.begun;
    begun.into_iter().chain(finals).chain(awaited).min()
}

/// Days from the first on that ended before `until` (Unix seconds) and are not final, nor made final again.
fn open_days(manifest: &Manifest, first: Day, until: i64) -> impl Iterator<Item = Day> {
    let archive = &manifest.archive;
    let awaited = archive.awaited.iter().map(|logged| logged.day);
    let finals = archive.finals.iter().map(|entry| entry.day);
    let finals: BTreeSet<Day> = finals.chain(awaited).collect();
    let days = std::iter::successors(Some(first), |day| Some(day.next()));
    let ended = days.take_while(move |day| day.next().start() <= until);
    ended.filter(move |day| !finals.contains(day))
}

/// The day on which a segment was begun.
pub(super) fn begun(segment: &Segment) -> Day {
    Day::of(segment.created_ms().div_euclid(1_000))
}

/// True where no delta store of the day takes or holds anything any more.
pub(super) fn is_closed(manifest: &Manifest, day: Day) -> bool {
    let stores = manifest.intake.stores.iter();
    let mut open = stores.filter(|store| store.id.day() == Some(day) && !store.is_closed());
    day < manifest.intake.today && open.next().is_none()
}

/// True where the log, which begins with the segment `oldest`, has the first event of the day.
pub(crate) fn reaches_back(intake: &IntakeEntry, oldest: &Segment, day: Day) -> bool {
    log_reaches_back(intake, (oldest.first_sequence(), oldest.created_ms()), day)
}
