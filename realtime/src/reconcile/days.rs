//! Days that can become final: closed, and whole in the log.

use std::collections::BTreeSet;

use tallyring_archive::{Blobs, Manifest};
use tallyring_records::Day;

use crate::error::Result;
use crate::oplog::{Segment, segments};

/// The oldest closed day that ended before `until` (Unix seconds), is not final, and is whole in the log. Days that are
/// `left_out` are passed over. Fails when the log cannot be listed.
pub fn first_not_final(
    blobs: &Blobs,
    manifest: &Manifest,
    until: i64,
    left_out: impl Fn(Day) -> bool,
) -> Result<Option<Day>> {
    let segments = segments(blobs.disk())?;
    let Some(oldest) = segments.first() else {
        return Ok(None);
    };
    let begun = Day::of(oldest.created_ms().div_euclid(1_000));
    let finals: BTreeSet<Day> = (manifest.archive.finals.iter())
        .map(|entry| entry.day)
        .collect();
    let days = std::iter::successors(Some(begun), |day| Some(day.next()));
    let mut ended = days.take_while(|day| day.next().start() <= until);
    Ok(ended.find(|day| {
        let is_known = finals.contains(day) || left_out(*day);
        !is_known && is_closed(manifest, *day) && reaches_back(oldest, *day)
    }))
}

/// Days that are not final although they ended before `until` (Unix seconds): those behind the first final day, or from
/// the beginning of the log on where no day is final. At most 400. Fails when the log cannot be listed.
pub fn not_final(blobs: &Blobs, manifest: &Manifest, until: i64) -> Result<Vec<Day>> {
    const DAYS_MAX: usize = 400;
    let finals: BTreeSet<Day> = (manifest.archive.finals.iter())
        .map(|entry| entry.day)
        .collect();
    let first = match finals.first() {
        Some(first) => *first,
        None => match segments(blobs.disk())?.first() {
            Some(oldest) => Day::of(oldest.created_ms().div_euclid(1_000)),
            None => return Ok(Vec::new()),
        },
    };
    let days = std::iter::successors(Some(first), |day| Some(day.next()));
    let ended = days.take_while(|day| day.next().start() <= until);
    let open = ended.filter(|day| !finals.contains(day));
    Ok(open.take(DAYS_MAX).collect())
}

/// True where no delta store of the day takes or holds anything any more.
pub(super) fn is_closed(manifest: &Manifest, day: Day) -> bool {
    let stores = manifest.intake.stores.iter();
    let mut open = stores.filter(|store| store.id.day() == Some(day) && !store.is_closed());
    day < manifest.intake.today && open.next().is_none()
}

/// True where the log has the first event of the day: events can come from the beginning of the day before on.
pub(super) fn reaches_back(oldest: &Segment, day: Day) -> bool {
    let first_ms = day.previous().start().saturating_mul(1_000);
    oldest.first_sequence() == 0 || oldest.created_ms() <= first_ms
}
