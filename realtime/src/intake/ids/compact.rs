//! Merges id runs, so that they stay few. A run is merged only with runs of the same stretch of time, so that runs can
//! be forgotten as the window moves.
//!
//! In the newest stretches, four runs of about one size are merged at a time, so that an id is written again only a few
//! times. Each older stretch becomes one run. Once a UTC day is beyond the window, its runs become one, where they are
//! not so large that a flush would wait for long: runs are kept for as long as the log, and few of them are open then.

use std::collections::BTreeMap;

use tallyring_archive::merge::{Horizon, merge};
use tallyring_archive::{Blobs, IdRunEntry, Result, Run, RunWriter};

use super::spec;

/// Stretches that make a window.
const STRETCHES: i64 = 8;
/// Runs of about one size that are merged at a time.
const RUNS_MAX: usize = 4;
/// Ids of a run that is merged with the others of its day, at most.
const IDS_OF_PART_MAX: u64 = 4 << 20;
const DAY_MS: i64 = 86_400_000;

/// Runs that are merged with each other alone, oldest first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    /// A UTC day beyond the window.
    Day(i64),
    /// A stretch, and the order of magnitude of the runs where it is among the newest.
    Stretch(i64, u32),
}

/// Merges the runs that have added up at `now_ms`, for a window of `window_ms` (both milliseconds). Returns the
/// remaining runs, oldest first; merged inputs are no longer among them. A run that cannot be merged, such as a damaged
/// one, stays as it is.
pub(crate) fn compact(
    blobs: &Blobs,
    entries: Vec<IdRunEntry>,
    now_ms: i64,
    window_ms: i64,
    level: i32,
) -> Result<Vec<IdRunEntry>> {
    let stretch_ms = (window_ms / STRETCHES).max(1);
    let newest = now_ms.div_euclid(stretch_ms) - 1;
    let group_of = |entry: &IdRunEntry| {
        let (day, lines) = (entry.newest_ms.div_euclid(DAY_MS), entry.run.meta.lines);
        let is_beyond = (day + 1) * DAY_MS + window_ms <= now_ms;
        match entry.newest_ms.div_euclid(stretch_ms) {
            _ if is_beyond && lines <= IDS_OF_PART_MAX => Group::Day(day),
            stretch if stretch < newest => Group::Stretch(stretch, 0),
            stretch => Group::Stretch(stretch, lines.max(1).ilog(RUNS_MAX as u64)),
        }
    };
    let mut groups: BTreeMap<Group, Vec<IdRunEntry>> = BTreeMap::new();
    for entry in entries {
        groups.entry(group_of(&entry)).or_default().push(entry);
    }
    // One day at a time, so that no flush takes long.
    let mut days = groups.iter().rev().filter_map(|(of, group)| match of {
        Group::Day(day) if group.len() > 1 => Some(*day),
        _ => None,
    });
    let newest_day = days.next();
    let mut kept = Vec::new();
    for (of, group) in groups {
        let is_due = match of {
            Group::Day(day) => newest_day == Some(day),
            Group::Stretch(stretch, _) if stretch >= newest => group.len() >= RUNS_MAX,
            Group::Stretch(..) => group.len() > 1,
        };
        if !is_due {
            kept.extend(group);
            continue;
        }
        match merge_group(blobs, &group, level) {
            Ok(run) => kept.extend(run),
            // A failed merge must not fail the flush: memory would fill up.
            Err(error) => {
                tracing::error!(%error, "cannot merge runs of ids; the runs stay as they are");
                kept.extend(group);
            }
        }
    }
    kept.sort_by_key(|entry| entry.newest_ms);
    Ok(kept)
}

fn merge_group(blobs: &Blobs, group: &[IdRunEntry], level: i32) -> Result<Option<IdRunEntry>> {
    let newest_ms = group.iter().map(|entry| entry.newest_ms).max().unwrap_or(0);
    let inputs = Run::open_all(blobs, group.iter().map(|entry| &entry.run))?;
    let out = RunWriter::create(blobs, spec(newest_ms, level))?;
    let run = merge(&inputs, out, Horizon::ALL)?;
    Ok(run.map(|run| IdRunEntry { newest_ms, run }))
}
