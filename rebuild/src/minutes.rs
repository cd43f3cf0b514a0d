//! When minutes expire: their hours hold the sums, so only the finer form goes.
//!
//! Invariant: minutes go month by month and never come back. A month's minutes are left out once every day of
//! it is older than they are kept; a generation says from when on it has them, and a later one never says less.

use tallyring_archive::{GenerationEntry, Manifest, Partition, RunEntry};
use tallyring_records::{Day, is_minutes_section};

/// Start of the first base bucket that the next generation of `manifest` keeps minutes of (Unix seconds), when
/// they are kept for `days`.
pub fn minutes_from(manifest: &Manifest, days: u32) -> i64 {
    let oldest = Day::from_number(manifest.today.number().saturating_sub(days));
    let before = manifest.generations.last();
    let before = before.and_then(|generation| generation.minutes_from);
    let month = Partition::month_of(oldest.code());
    month.start().max(before.unwrap_or(i64::MIN))
}

/// True when the run may hold minutes of base buckets that began before `minutes_from`.
pub fn loses_minutes(run: &RunEntry, minutes_from: i64) -> bool {
    run.meta.first < minutes_from
        && run
            .meta
            .sums
            .keys()
            .any(|section| is_minutes_section(section))
}

/// True when files of `partition` that a generation has built may serve one that keeps minutes from
/// `minutes_from` on.
pub fn keeps_as_many(
    generation: &GenerationEntry,
    partition: Partition,
    minutes_from: i64,
) -> bool {
    let within = |instant: i64| instant.clamp(partition.start(), partition.end());
    let built_from = generation.minutes_from.unwrap_or(i64::MIN);
    let mut files = generation.files.iter();
    within(built_from) == within(minutes_from)
        || !files.any(|file| file.meta.partition == partition && loses_minutes(file, minutes_from))
}
