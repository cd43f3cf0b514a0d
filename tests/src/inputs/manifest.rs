//! A manifest of any text, under a checksum that holds, is read and written again as the same, or refused.

use tallyring_archive::{Disk, Manifest, sealed};

use crate::sim_disk::SimDisk;

/// Reads `bytes`.
///
/// # Errors
/// When they are refused.
pub fn read(bytes: &[u8]) -> Result<(), String> {
    let mut outcome = None;
    for content in [sealed::seal("manifest", 1, bytes), bytes.to_vec()] {
        let disk = SimDisk::default();
        disk.create_directory("manifests")
            .expect("a disk in memory");
        let mut file = disk
            .create("manifests/manifest-00000001")
            .expect("a disk in memory");
        file.write_at(0, &content).expect("a disk in memory");
        let manifest = match Manifest::load(&disk.blobs()) {
            Ok(manifest) => manifest.expect("the file is there"),
            Err(error) => {
                outcome.get_or_insert(Err(error.to_string()));
                continue;
            }
        };
        outcome = Some(Ok(()));
        let _ = (manifest.archive.pending().count(), manifest.files().count());
        let again = SimDisk::default();
        again
            .create_directory("manifests")
            .expect("a disk in memory");
        manifest.commit(&again.blobs()).expect("a disk in memory");
        assert_eq!(
            Manifest::load(&again.blobs()).expect("what was written"),
            Some(manifest)
        );
    }
    outcome.expect("BUG: two contents were read")
}
