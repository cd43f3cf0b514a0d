//! Nodes whose archive is larger than their disks: they read its files in parts, and answer as all others do.

use tallyring_archive::names;
use tallyring_tests::sim_disk::SimDisk;

use super::play::Play;
use super::stand::take_over;

/// Room for two parts.
const BYTES_MAX: u64 = 128 << 10;

/// Copies of files of the archive on a node's disk.
fn copies(disk: &SimDisk) -> Vec<String> {
    let files = disk.files().into_iter().map(|(name, _)| name);
    files.filter(|name| names::is_of_archive(name)).collect()
}

fn parts(disk: &SimDisk) -> usize {
    let files = disk.files().into_iter();
    files.filter(|(name, _)| name.starts_with("parts/")).count()
}

/// Compares the follower with the writer.
fn check(play: &mut Play) {
    let mut follower = play.follower.take().expect("a follower");
    play.check(&mut follower, &[]);
    play.follower = Some(follower);
}

#[test]
fn a_node_that_lets_go_of_its_copies_answers_as_the_writer_does() {
    let mut let_go = 0;
    for seed in 770..774 {
        let mut play = Play::new(seed);
        (0..40).for_each(|_| play.step());
        play.rebuild();
        check(&mut play);
        let_go += copies(&play.disk).len();
        // The follower begins anew, with the disk of before or an empty one.
        play.stand.parts_max = Some(BYTES_MAX);
        play.crash();
        for _ in 0..4 {
            assert_eq!(copies(&play.disk), [""; 0], "seed {seed}");
            (0..15).for_each(|_| play.step());
            play.rebuild();
            check(&mut play);
            assert!(parts(&play.disk) <= 2, "seed {seed}");
        }
    }
    assert!(let_go > 0, "there was no copy to let go of");
}

#[test]
fn a_node_without_copies_of_its_archive_writes_and_merges_it() {
    for seed in 780..784 {
        let mut play = Play::new(seed);
        play.stand.parts_max = Some(BYTES_MAX);
        let (disk, follower) = play.stand.follower(3);
        let owner = play.stand.owner();
        play.writer = take_over(follower, owner);
        for _ in 0..5 {
            (0..20).for_each(|_| play.step());
            play.rebuild();
            assert_eq!(copies(&disk), [""; 0], "seed {seed}");
            check(&mut play);
        }
        assert!(!play.writer.manifest().archive.generations.is_empty());
    }
}
