//! A log segment of any bytes is read, cut or refused, never believed where it is damaged.

use tallyring_archive::Disk;
use tallyring_realtime::oplog::{ReadFrom, scan};
use tallyring_records::decode_all;

use crate::sim_disk::SimDisk;

/// Reads `bytes`.
///
/// # Errors
/// When they are refused.
pub fn read(bytes: &[u8]) -> Result<(), String> {
    let disk = SimDisk::default();
    disk.create_directory("oplog").expect("a disk in memory");
    let mut file = disk
        .create("oplog/0000000000000000.tlog")
        .expect("a disk in memory");
    file.write_at(0, bytes).expect("a disk in memory");
    let scanned = scan(&disk, None, ReadFrom::Oldest, &mut |frame| {
        decode_all(frame.payload, frame.count)?;
        Ok(())
    });
    scanned.map(drop).map_err(|error| error.to_string())
}
