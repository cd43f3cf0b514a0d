//! Every run of the tests reads the seeds that the fuzzer starts from, whole and a little harmed. A seed that its
//! reader no longer understands fails here, and so does a finding that was kept as a seed.

use std::fs;
use std::path::Path;

use tallyring_tests::inputs::ALL;

/// Harmed copies of each seed.
const HARMED: usize = 60;

/// How the names of seeds begin that their reader must refuse.
const BAD: &str = "bad-";

#[test]
fn every_reader_understands_its_good_seeds_and_takes_harmed_ones() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds");
    let mut wrong = Vec::new();
    for (name, read) in ALL {
        let _ = read(b"");
        let files = fs::read_dir(seeds.join(name)).expect("seeds of every reader");
        for file in files.map(|file| file.expect("an entry").path()) {
            let seed = fs::read(&file).expect("a seed");
            let file_name = file.file_name().and_then(|name| name.to_str());
            let is_bad = file_name.is_some_and(|name| name.starts_with(BAD));
            match read(&seed) {
                Err(error) if !is_bad => wrong.push(format!("{}: {error}", file.display())),
                Ok(()) if is_bad => wrong.push(format!("{} is good", file.display())),
                _ => {}
            }
            for harm in 0..HARMED.min(seed.len()) {
                let place = harm * seed.len() / HARMED.min(seed.len());
                let _ = read(&seed[..place]);
                let mut harmed = seed.clone();
                harmed[place] ^= 1 << (harm % 8);
                let _ = read(&harmed);
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
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
