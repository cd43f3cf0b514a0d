//! Merges id runs, so that they stay few. A run is merged only with runs of the same stretch of time, so that runs can
//! be forgotten as the window moves.
//!
//! In the newest stretches, four runs of about one size are merged at a time, so that an id is written again only a few
//! times. Each older stretch becomes one run.

use std::collections::BTreeMap;

use tallyring_archive::merge::{Horizon, merge};
use tallyring_archive::{Blobs, IdRunEntry, Result, Run, RunWriter};

use super::spec;

/// Stretches that make a window.
const STRETCHES: i64 = 8;
/// Runs of about one size that are merged at a time.
const RUNS_MAX: usize = 4;

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
    for ((stretch, _), group) in groups {
        let enough = if stretch >= newest { RUNS_MAX } else { 2 };
        if group.len() < enough {
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
