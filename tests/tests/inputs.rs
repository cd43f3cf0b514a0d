//! What the fuzzer starts from is read in every run of the tests, whole and a little harmed: a target that does not
//! fit its reader any more, or a finding that was kept as a seed, fails here.

use std::fs;
use std::path::Path;

use tallyring_tests::inputs::ALL;

/// Harmed copies of each seed.
const HARMED: usize = 60;

#[test]
fn every_reader_takes_its_seeds_whole_and_harmed() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds");
    for (name, read) in ALL {
        read(b"");
        let files = match fs::read_dir(seeds.join(name)) {
            Ok(files) => files.map(|file| file.expect("an entry").path()).collect(),
            Err(_) => Vec::new(),
        };
        for file in files {
            let seed = fs::read(&file).expect("a seed");
            read(&seed);
            for harm in 0..HARMED.min(seed.len()) {
                let place = harm * seed.len() / HARMED.min(seed.len());
                read(&seed[..place]);
                let mut harmed = seed.clone();
                harmed[place] ^= 1 << (harm % 8);
                read(&harmed);
            }
        }
    }
}

#[test]
fn every_reader_is_a_target_of_the_fuzzer() {
    let targets = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/fuzz_targets");
    let mut names: Vec<String> = fs::read_dir(targets)
        .expect("targets")
        .map(|file| file.expect("an entry").path())
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort_unstable();
    assert_eq!(names, ALL.map(|(name, _)| name));
}
