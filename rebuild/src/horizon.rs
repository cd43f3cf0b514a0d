//! The horizon, from which on finer detail is kept: older minutes are dropped, because hours have their sums, older
//! hours fold into days, and older actions of users are dropped. Breakdowns by minute are kept for some hours only, and
//! go hour by hour.
//!
//! Invariant: other detail goes month by month and never comes back. The detail of a month goes once every day of the
//! month is older than the detail is kept. A generation says from when on it has detail, and no later generation
//! reaches further back. A rebuild publishes the coarser form together with the loss of the finer one, so nothing is
//! lost in between.

use tallyring_archive::merge::Horizon;
use tallyring_archive::{GenerationEntry, Manifest, Partition, RunEntry};
use tallyring_records::{Day, breakdowns_from};

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
    // Minutes are stored with the hour that they belong to, so they go with it.
    let minutes_from = minutes_from.max(hours_from);
    let actions_from = options.keep.actions.map_or(i64::MIN, month_of);
    let breakdowns_from = of_breakdowns(manifest, options).max(before.breakdowns_from);
    Horizon {
        minutes_from,
        hours_from,
        breakdowns_from: breakdowns_from.max(minutes_from),
        actions_from: actions_from.max(before.actions_from),
    }
}

/// The horizon of a generation that leaves these fixes as deltas: counts that are taken away must find those counts in
/// the same buckets. So the detail of a month stays while a fix of it has such detail and waits.
pub(crate) fn held_back<'r>(horizon: Horizon, left: impl Iterator<Item = &'r RunEntry>) -> Horizon {
    let mut held = horizon;
    for run in left {
        let month = run.meta.partition.start();
        if horizon.loses_actions(run) {
            held.actions_from = held.actions_from.min(month);
        }
        if horizon.loses_counts(run) {
            held.minutes_from = held.minutes_from.min(month);
            held.hours_from = held.hours_from.min(month);
        }
    }
    held
}

/// From when on breakdowns by minute were kept when the manifest was written, Unix seconds. A doubted clock forgets
/// nothing.
pub(crate) fn of_breakdowns(manifest: &Manifest, options: &BuildOptions) -> i64 {
    let now_ms = manifest.written_at_ms.min(manifest.plausible_ms());
    breakdowns_from(now_ms.div_euclid(1_000), options.breakdown_hours)
}

/// True when the files of `partition` in `generation` may serve a generation with this horizon.
pub(crate) fn keeps_as_much(
    generation: &GenerationEntry,
    partition: Partition,
    horizon: Horizon,
) -> bool {
    let within = |instant: i64| instant.clamp(partition.start(), partition.end());
    let within = |horizon: Horizon| {
        [
            horizon.hours_from,
            horizon.minutes_from,
            horizon.breakdowns_from,
            horizon.actions_from,
        ]
        .map(within)
    };
    let mut files = generation.files.iter();
    within(generation.horizon()) == within(horizon)
        || !files.any(|file| file.meta.partition == partition && horizon.loses(file))
}
