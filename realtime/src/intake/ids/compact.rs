//! Merges id runs, so that they stay few. A run is merged only with runs of the same stretch of time, so that runs can
//! be forgotten as the window moves.
//!
//! In the newest stretches, four runs of about one size are merged at a time, so that an id is written again only a few
//! times. Each older stretch becomes one run. Once a UTC day is beyond the window, its runs become one, and then those
//! of a month with few ids: runs are kept for as long as the log, and few of them are open then. Large runs beyond the
//! window stay as they are, because a flush would wait for long.

use std::collections::{BTreeMap, BTreeSet};

use tallyring_archive::merge::{Horizon, merge};
use tallyring_archive::{Blobs, IdRunEntry, Result, Run, RunWriter};
use tallyring_records::Day;

use super::spec;

/// Stretches that make a window.
const STRETCHES: i64 = 8;
/// Runs of about one size that are merged at a time.
const RUNS_MAX: usize = 4;
/// Ids of a run that is merged with the others of its day, at most.
const IDS_OF_PART_MAX: u64 = 4 << 20;
/// Ids of days that become one run, at most.
const IDS_OF_MONTH_MAX: u64 = 1_000_000;

/// Merges the runs that have added up at `now_ms`, for a window of `window_ms` (both milliseconds). Returns the
/// remaining runs, oldest first; merged inputs are no longer among them. A run whose file is in `damaged` stays as it
/// is, and a file that a merge finds damaged is added there.
pub(crate) fn compact(
    blobs: &Blobs,
    entries: Vec<IdRunEntry>,
    (now_ms, window_ms): (i64, i64),
    level: i32,
    damaged: &mut BTreeSet<String>,
) -> Result<Vec<IdRunEntry>> {
    let stretch_ms = (window_ms / STRETCHES).max(1);
    let newest = now_ms.div_euclid(stretch_ms) - 1;
    let is_beyond = |entry: &IdRunEntry| {
        let ends_ms = day_of(entry).next().start() * 1_000;
        ends_ms + window_ms <= now_ms
    };
    let (mut kept, mut beyond, mut due) = (Vec::new(), Vec::new(), Vec::new());
    // By stretch, and by the order of magnitude of the runs where it is among the newest.
    let mut stretches: BTreeMap<(i64, u32), Vec<IdRunEntry>> = BTreeMap::new();
    for entry in entries {
        let lines = entry.run.meta.lines;
        match entry.newest_ms.div_euclid(stretch_ms) {
            _ if damaged.contains(&entry.run.name) => kept.push(entry),
            _ if is_beyond(&entry) && lines > IDS_OF_PART_MAX => kept.push(entry),
            _ if is_beyond(&entry) => beyond.push(entry),
            stretch => {
                let magnitude = lines.max(1).ilog(RUNS_MAX as u64);
                let of = (stretch, if stretch < newest { 0 } else { magnitude });
                stretches.entry(of).or_default().push(entry);
            }
        }
    }
    for ((stretch, _), group) in stretches {
        let least = if stretch < newest { 2 } else { RUNS_MAX };
        match group.len() >= least {
            true => due.push(group),
            false => kept.extend(group),
        }
    }
    // One group at a time, so that no flush takes long.
    let mut groups = groups_beyond(beyond);
    if let Some(newest) = groups.iter().rposition(|group| group.len() > 1) {
        due.push(groups.remove(newest));
    }
    kept.extend(groups.into_iter().flatten());
    for group in due {
        match merge_group(blobs, &group, level) {
            Ok(run) => kept.extend(run),
            // A failed merge must not fail the flush: memory would fill up.
            Err(error) => {
                tracing::error!(%error, "cannot merge runs of ids; the runs stay as they are");
                let is_of_group = |file: &&str| group.iter().any(|entry| entry.run.name == **file);
                let file = error.file().filter(|_| error.is_damage());
                damaged.extend(file.filter(is_of_group).map(str::to_owned));
                kept.extend(group);
            }
        }
    }
    kept.sort_by_key(|entry| entry.newest_ms);
    Ok(kept)
}

/// The UTC day of the newest id of a run.
fn day_of(entry: &IdRunEntry) -> Day {
    Day::of(entry.newest_ms.div_euclid(1_000))
}

/// Runs beyond the window as they become one: those of a day, and those of a month once each day has one.
fn groups_beyond(mut runs: Vec<IdRunEntry>) -> Vec<Vec<IdRunEntry>> {
    runs.sort_by_key(|entry| entry.newest_ms);
    let days = grouped(runs, |group, entry| day_of(&group[0]) == day_of(entry));
    if days.iter().any(|day| day.len() > 1) {
        return days;
    }
    grouped(days.into_iter().flatten(), |group, entry| {
        let ids = group.iter().chain([entry]).map(|of| of.run.meta.lines);
        let is_of_month = day_of(&group[0]).year_month() == day_of(entry).year_month();
        is_of_month && ids.fold(0, u64::saturating_add) <= IDS_OF_MONTH_MAX
    })
}

/// Runs, each in the group before it where it joins that one.
fn grouped(
    runs: impl IntoIterator<Item = IdRunEntry>,
    joins: impl Fn(&[IdRunEntry], &IdRunEntry) -> bool,
) -> Vec<Vec<IdRunEntry>> {
    let mut groups: Vec<Vec<IdRunEntry>> = Vec::new();
    for run in runs {
        match groups.last_mut() {
            Some(group) if joins(group, &run) => group.push(run),
            _ => groups.push(vec![run]),
        }
    }
    groups
}

fn merge_group(blobs: &Blobs, group: &[IdRunEntry], level: i32) -> Result<Option<IdRunEntry>> {
    let newest_ms = group.iter().map(|entry| entry.newest_ms).max().unwrap_or(0);
    let inputs = Run::open_all(blobs, group.iter().map(|entry| &entry.run))?;
    let out = RunWriter::create(blobs, spec(newest_ms, level))?;
    let run = merge(&inputs, out, Horizon::ALL)?;
    Ok(run.map(|run| IdRunEntry { newest_ms, run }))
}
