//! A run of any bytes is opened and read to its end, or refused.
#![no_main]

use std::ops::ControlFlow;

use libfuzzer_sys::fuzz_target;
use tallyring_archive::{BlockCache, Disk, Run};
use tallyring_tests::sim_disk::SimDisk;

fuzz_target!(|bytes: &[u8]| {
    let disk = SimDisk::default();
    disk.create_directory("archive").unwrap();
    let mut file = disk.create("archive/run").unwrap();
    file.write_at(0, bytes).unwrap();
    let Ok(run) = Run::open(&disk, "archive/run") else {
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
});
