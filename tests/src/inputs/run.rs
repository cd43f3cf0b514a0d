//! A run of any bytes is opened and read to its end, or refused.

use std::ops::ControlFlow;

use tallyring_archive::{BlockCache, Disk, Run};

use crate::sim_disk::SimDisk;

/// Reads `bytes`.
pub fn read(bytes: &[u8]) {
    let disk = SimDisk::default();
    disk.create_directory("archive").expect("a disk in memory");
    let mut file = disk.create("archive/run").expect("a disk in memory");
    file.write_at(0, bytes).expect("a disk in memory");
    let Ok(run) = Run::open(&disk.blobs(), "archive/run") else {
        return;
    };
    let mut cursor = run.cursor();
    while let Ok(true) = cursor.advance() {
        let _ = cursor.line();
    }
    let cache = BlockCache::new(1 << 20);
    for key in [&b""[..], b"l|a", b"c.l|a.c41l", b"~"] {
        let _ = run.visit_from(&cache, key, &mut |_, _| ControlFlow::Continue(()));
    }
}
