//! Keeps the runs of ids few: those of one stretch of time are merged, and a run is never merged with
//! one of another stretch, so that runs can be forgotten as the window moves.
//!
//! In the newest stretches runs of about one size are merged four at a time, so an id is written
//! again only a few times; older stretches become one run each.

use std::collections::BTreeMap;

use tallyring_archive::merge::{Horizon, merge};
use tallyring_archive::{Blobs, IdRunEntry, Result, Run, RunWriter};

use super::spec;

/// Stretches that a window is divided into.
const STRETCHES: i64 = 8;
/// Runs of about one size that are merged.
const RUNS_MAX: usize = 4;

/// Merges what has added up at `now_ms`, with a window of `window_ms` (milliseconds both): the runs
/// there are then, oldest first. What was merged is no longer among them.
///
/// # Errors
/// When the directory cannot be synced. What cannot be merged, such as a damaged run, stays as it is.
pub fn compact(
    blobs: &Blobs,
    entries: Vec<IdRunEntry>,
    now_ms: i64,
    window_ms: i64,
    level: i32,
) -> Result<Vec<IdRunEntry>> {
    let stretch_ms = (window_ms / STRETCHES).max(1);
    let newest = now_ms.div_euclid(stretch_ms) - 1;
    let mut groups: BTreeMap<(i64, u32), Vec<IdRunEntry>> = BTreeMap::new();
    for entry in entries {
        let stretch = entry.newest_ms.div_euclid(stretch_ms);
        let size = if stretch >= newest {
            entry.run.meta.lines.max(1).ilog(RUNS_MAX as u64)
        } else {
            0
        };
        groups.entry((stretch, size)).or_default().push(entry);
    }
    let mut kept = Vec::new();
    let mut merged = false;
    for ((stretch, _), group) in groups {
        let enough = if stretch >= newest { RUNS_MAX } else { 2 };
        if group.len() < enough {
            kept.extend(group);
            continue;
        }
        match merge_group(blobs, &group, level) {
            Ok(run) => {
                kept.extend(run);
                merged = true;
            }
            // To be few is not worth a flush: were it to fail, memory would fill up.
            Err(error) => {
                tracing::error!(%error, "runs of ids stay as many as they are");
                kept.extend(group);
            }
        }
    }
    if merged {}
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
