//! A manifest of any text, under a checksum that holds, is read and written again as the same, or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tallyring_archive::{Disk, Manifest, sealed};
use tallyring_tests::sim_disk::SimDisk;

fuzz_target!(|bytes: &[u8]| {
    for content in [sealed::seal("manifest", 1, bytes), bytes.to_vec()] {
        let disk = SimDisk::default();
        disk.create_directory("manifests").unwrap();
        let mut file = disk.create("manifests/manifest-00000001").unwrap();
        file.write_at(0, &content).unwrap();
        let Ok(Some(manifest)) = Manifest::load(&disk) else {
            continue;
        };
        let _ = (manifest.pending().count(), manifest.files().count());
        let again = SimDisk::default();
        again.create_directory("manifests").unwrap();
        manifest.commit(&again).unwrap();
        assert_eq!(Manifest::load(&again).unwrap(), Some(manifest));
    }
});
