//! A log segment of any bytes is read, cut or refused, never believed where it is damaged.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tallyring_archive::Disk;
use tallyring_realtime::oplog::{ReadFrom, scan};
use tallyring_records::decode_all;
use tallyring_tests::sim_disk::SimDisk;

fuzz_target!(|bytes: &[u8]| {
    let disk = SimDisk::default();
    disk.create_directory("oplog").unwrap();
    let mut file = disk.create("oplog/0000000000000000.tlog").unwrap();
    file.write_at(0, bytes).unwrap();
    let _ = scan(&disk, None, ReadFrom::Oldest, &mut |frame| {
        decode_all(frame.payload, frame.count)?;
        Ok(())
    });
});
