//! A manifest of a store in which the fix of a day has actions of users.

use super::{MANIFEST, check_written, manifest_with_fixes, read};
use crate::MemoryDisk;

#[test]
fn a_manifest_with_a_fix_of_actions_is_read_and_written_as_it_was() {
    let mut manifest = manifest_with_fixes();
    for fix in manifest
        .archive
        .runs
        .iter_mut()
        .filter(|run| run.origin.is_fix())
    {
        fix.meta.sums.insert("_a.@|".to_owned(), 3);
        fix.erased_until = 78;
    }
    let disk = MemoryDisk::default();
    manifest.commit(&disk).unwrap();
    check_written("manifest-35", &disk.read(MANIFEST).unwrap());
    assert_eq!(read("manifest-35"), manifest);
}
