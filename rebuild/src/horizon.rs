//! The horizon, from which on finer detail is kept: older minutes are dropped, because hours have their sums, and older
//! hours fold into days.
//!
//! Invariant: detail goes month by month and never comes back. The detail of a month goes once every day of the month
//! is older than the detail is kept. A generation says from when on it has detail, and no later generation reaches
//! further back. A rebuild publishes the coarser form together with the loss of the finer one, so nothing is lost in
//! between.

use tallyring_archive::merge::Horizon;
use tallyring_archive::{GenerationEntry, Manifest, Partition, RunEntry};
use tallyring_records::{Day, is_minutes_section};

use crate::generation::BuildOptions;

/// The horizon of the next generation of `manifest`.
pub(crate) fn horizon(manifest: &Manifest, options: &BuildOptions) -> Horizon {
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
        // Minutes are stored with the hour that they belong to, so they go with it.
        minutes_from: minutes_from.max(hours_from),
        hours_from,
    }
}

/// True when the run may hold detail from before the horizon.
pub(crate) fn loses(run: &RunEntry, horizon: Horizon) -> bool {
    let has_minutes = || {
        let mut sections = run.meta.sums.keys();
        sections.any(|section| is_minutes_section(section))
    };
    run.meta.first < horizon.hours_from || run.meta.first < horizon.minutes_from && has_minutes()
}

/// True when the files of `partition` in `generation` may serve a generation with this horizon.
pub(crate) fn keeps_as_much(
    generation: &GenerationEntry,
    partition: Partition,
    horizon: Horizon,
) -> bool {
    let within = |instant: i64| instant.clamp(partition.start(), partition.end());
    let within = |horizon: Horizon| (within(horizon.hours_from), within(horizon.minutes_from));
    let mut files = generation.files.iter();
    within(generation.horizon()) == within(horizon)
        || !files.any(|file| file.meta.partition == partition && loses(file, horizon))
}
