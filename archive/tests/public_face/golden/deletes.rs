//! A manifest of a store with orders about the counts of keys.

use tallyring_archive::DeleteEntry;
use tallyring_records::Delete;

use super::{MANIFEST, at, check_written, day, manifest, read};
use crate::MemoryDisk;

#[test]
fn a_manifest_with_orders_about_keys_is_read_and_written_as_it_was() {
    let mut manifest = manifest();
    let entry = |sequence, undo| DeleteEntry {
        at: at(2, sequence),
        arrived_ms: 1_331_985_000_000,
        order: Delete {
            namespace: "l".into(),
            key: "abc".into(),
            from: day("2012-03-14"),
            to: day("2012-03-16"),
            undo,
            reason: "a crawler".into(),
            actor: "2bq4xyz7".into(),
        },
    };
    manifest.intake.deletes = vec![entry(41, false), entry(60, true)];
    let disk = MemoryDisk::default();
    manifest.commit(&disk).unwrap();
    check_written("manifest-74", &disk.read(MANIFEST).unwrap());
    assert_eq!(read("manifest-74"), manifest);
}
