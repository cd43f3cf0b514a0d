//! Days that can become final: closed, and whole in the log.

use std::collections::BTreeSet;

use tallyring_archive::{Blobs, Manifest};
use tallyring_records::Day;

use crate::error::Result;
use crate::oplog::{Segment, oldest_segment};

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
    let can_be_final =
        |day: &Day| !left_out(*day) && is_closed(manifest, *day) && reaches_back(&oldest, *day);
    Ok(open_days(manifest, begun(&oldest), until).find(can_be_final))
}

/// Days that are not final although they ended before `until` (Unix seconds): those behind the first final day, and
/// those before it that are whole in the log. At most 400. Fails when the log cannot be listed.
pub fn not_final(blobs: &Blobs, manifest: &Manifest, until: i64) -> Result<Vec<Day>> {
    const DAYS_MAX: usize = 400;
    // Versions ascend by their days.
    let archive = &manifest.archive;
    let finals = archive.finals.first().map(|entry| entry.day);
    let awaited = archive.awaited.first().map(|logged| logged.day);
    let first_final = finals.into_iter().chain(awaited).min();
    let oldest = oldest_segment(blobs.disk())?;
    let is_wanted = |day: &Day| {
        first_final.is_some_and(|first| *day > first)
            || oldest
                .as_ref()
                .is_some_and(|oldest| reaches_back(oldest, *day))
    };
    let begins = oldest.as_ref().map(begun);
    let first = first_final.into_iter().chain(begins).min();
    let open = first.map(|first| open_days(manifest, first, until).filter(is_wanted));
    Ok(open.into_iter().flatten().take(DAYS_MAX).collect())
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

/// True where the log has the first event of the day: events can come from the beginning of the day before on.
pub(crate) fn reaches_back(oldest: &Segment, day: Day) -> bool {
    let first_ms = day.previous().start().saturating_mul(1_000);
    oldest.first_sequence() == 0 || oldest.created_ms() <= first_ms
}
