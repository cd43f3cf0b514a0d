//! When finer forms expire: minutes go, whose hours hold the sums, and hours fold into days.
//!
//! Invariant: both go month by month and never come back. A month's go once every day of it is older than they are
//! kept; a generation says from when on it has them, and a later one never says less. Since a rebuild publishes the
//! coarser form together with the loss of the finer one, nothing is lost in between.

use tallyring_archive::merge::Horizon;
use tallyring_archive::{GenerationEntry, Manifest, Partition, RunEntry};
use tallyring_records::{Day, is_minutes_section};

use crate::generation::BuildOptions;

/// From when on the next generation of `manifest` keeps finer forms.
pub fn horizon(manifest: &Manifest, options: &BuildOptions) -> Horizon {
    let month_of = |days: u32| {
        let oldest = Day::from_number(manifest.intake.today.number().saturating_sub(days));
        Partition::month_of(oldest.code()).start()
    };
    let before = manifest.archive.generations.last();
    let before = before.map_or(Horizon::ALL, GenerationEntry::horizon);
    let hours_from = options.keep.hours.map_or(i64::MIN, month_of);
    let hours_from = hours_from.max(before.hours_from);
    let minutes_from = options
        .keep
        .minutes
        .map_or(i64::MIN, month_of)
        .max(before.minutes_from);
    Horizon {
        // The minutes of an hour are told from those of others by its code.
        minutes_from: minutes_from.max(hours_from),
        hours_from,
    }
}

/// True when the run may hold what is not kept as it is.
pub fn loses(run: &RunEntry, horizon: Horizon) -> bool {
    let has_minutes = || {
        let mut sections = run.meta.sums.keys();
        sections.any(|section| is_minutes_section(section))
    };
    run.meta.first < horizon.hours_from || run.meta.first < horizon.minutes_from && has_minutes()
}

/// True when files of `partition` that a generation has built may serve one with this horizon.
pub fn keeps_as_much(generation: &GenerationEntry, partition: Partition, horizon: Horizon) -> bool {
    let within = |instant: i64| instant.clamp(partition.start(), partition.end());
    let within = |horizon: Horizon| (within(horizon.hours_from), within(horizon.minutes_from));
    let mut files = generation.files.iter();
    within(generation.horizon()) == within(horizon)
        || !files.any(|file| file.meta.partition == partition && loses(file, horizon))
}
