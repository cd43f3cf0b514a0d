//! A run of any bytes is opened and read to its end, or refused.

use std::ops::ControlFlow;

use tallyring_archive::{BlockCache, Disk, Run};
use tallyring_records::Day;

use crate::sim_disk::SimDisk;

/// Reads `bytes`.
///
/// # Errors
/// When they are refused.
pub fn read(bytes: &[u8]) -> Result<(), String> {
    let disk = SimDisk::default();
    disk.create_directory("archive").expect("a disk in memory");
    let mut file = disk.create("archive/run").expect("a disk in memory");
    file.write_at(0, bytes).expect("a disk in memory");
    let run = Run::open(&disk.blobs(), "archive/run").map_err(|error| error.to_string())?;
    let mut cursor = run.cursor();
    let mut whole = Ok(());
    loop {
        match cursor.advance() {
            Ok(true) => whole = whole.and(cursor.line().map(drop)),
            Ok(false) => break,
            Err(error) => {
                whole = Err(error);
                break;
            }
        }
    }
    let cache = BlockCache::new(1 << 20);
    for key in [&b""[..], b"l|a", b"c.l|a.c41l", b"~"] {
        let _ = run.visit_from(&cache, key, &mut |_, _| ControlFlow::Continue(()));
    }
    for section in [b"u|", b"l|"] {
        let Ok(Some(summary)) = run.summary(&cache, section) else {
            continue;
        };
        let days = summary.totals().map(|(code, _)| Day::of(code.start()));
        let lists = days.filter_map(|day| summary.top_of(day));
        for list in lists.chain([summary.top()]) {
            assert!(list.keys().all(|(_, count)| count >= list.rest));
        }
    }
    for section in [&b"c.u|"[..], b"r.u|", b"c.l|", b"r.l|"] {
        for range in [0..i64::MAX, 1_331_856_000..1_331_942_400] {
            let _ = run.sum_values(&cache, section, &range, &mut |_, _| ());
        }
    }
    whole.map_err(|error| error.to_string())
}
