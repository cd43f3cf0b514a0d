//! Merging runs of one shard count into another: every key goes to one shard, with its lookups.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tallyring_archive::{Error, RunEntry, Sums, merge::add_sums, verify_run};
use tallyring_records::shard_of;

use crate::model::{Click, click, lines_of};
use crate::{MemoryDisk, lines, merge_runs, read_all, spec, write};

fn in_shard(click: &Click, shard: u16, shards: u16) -> bool {
    shard_of(format!("u|{}", click.key).as_bytes(), shards) == shard
}

/// One run a shard, for the shards that have clicks.
fn shard_runs(disk: &MemoryDisk, clicks: &[Click], shards: u16) -> Vec<RunEntry> {
    (0..shards)
        .filter_map(|shard| {
            let kept = clicks.iter().filter(|click| in_shard(click, shard, shards));
            write(disk, spec("2012-04", shard, shards), &lines_of(kept)).unwrap()
        })
        .collect()
}

/// Merging runs of `from` shards into `to` gives what writing `to` shards at once gives.
fn check_resharding(clicks: &[Click], from: u16, to: u16) {
    let disk = MemoryDisk::default();
    let inputs = shard_runs(&disk, clicks, from);
    let mut outputs = Vec::new();
    for shard in 0..to {
        let expected = lines_of(clicks.iter().filter(|click| in_shard(click, shard, to)));
        let merged = merge_runs(&disk, &inputs, spec("2012-04", shard, to)).unwrap();
        let found = merged
            .as_ref()
            .map(|entry| read_all(&disk, &entry.name).unwrap());
        assert_eq!(found.unwrap_or_default(), expected, "shard {shard} of {to}");
        outputs.extend(merged);
    }
    assert_eq!(outputs, shard_runs(&disk, clicks, to));
    for entry in &outputs {
        verify_run(&disk, entry).unwrap();
    }
    let sums = |entries: &[RunEntry]| -> Sums {
        add_sums(entries.iter().map(|entry| (entry.sign(), &entry.meta))).unwrap()
    };
    assert_eq!(sums(&inputs), sums(&outputs));
}

proptest! {
    #[test]
    fn four_shards_become_three(clicks in prop::collection::vec(click(), 1..80)) {
        check_resharding(&clicks, 4, 3);
    }

    #[test]
    fn any_shard_count_becomes_any_other(
        clicks in prop::collection::vec(click(), 1..40),
        from in 1..7_u16,
        to in 1..7_u16,
    ) {
        check_resharding(&clicks, from, to);
    }

    #[test]
    fn runs_of_different_shard_counts_merge_into_one(
        clicks in prop::collection::vec(click(), 2..40),
        shards in 2..7_u16,
    ) {
        let disk = MemoryDisk::default();
        let (left, right) = clicks.split_at(clicks.len() / 2);
        let mut inputs = shard_runs(&disk, left, shards);
        inputs.extend(shard_runs(&disk, right, 1));
        let merged = merge_runs(&disk, &inputs, spec("2012-04", 0, 1)).unwrap().unwrap();
        prop_assert_eq!(read_all(&disk, &merged.name).unwrap(), lines_of(&clicks));
    }
}

#[test]
fn a_shard_keeps_exactly_the_lookups_it_uses() {
    let disk = MemoryDisk::default();
    let text = "c*r.u|a.c41l,US*RRRRRRRRRRR1:1\n\
        u|KKKKKKKKKKK1,c41l:1\n\
        u|a,c41l:1\n\
        ~KKKKKKKKKKK1,a long key\n\
        ~RRRRRRRRRRR1,a referrer\n\
        ~UUUUUUUUUUU1,used by nothing";
    let input = write(&disk, spec("2012-04", 0, 1), &lines(text))
        .unwrap()
        .unwrap();
    let shards = 5;
    let of_long_key = shard_of(b"u|KKKKKKKKKKK1", shards);
    let of_a = shard_of(b"u|a", shards);
    assert_ne!(of_long_key, of_a);
    let mut lookups = BTreeMap::new();
    for shard in 0..shards {
        let inputs = std::slice::from_ref(&input);
        let merged = merge_runs(&disk, inputs, spec("2012-04", shard, shards)).unwrap();
        for (key, _) in merged.map_or(Vec::new(), |entry| read_all(&disk, &entry.name).unwrap()) {
            if key[0] == b'~' {
                lookups.insert(shard, String::from_utf8(key).unwrap());
            }
        }
    }
    let expected = [(of_long_key, "~KKKKKKKKKKK1"), (of_a, "~RRRRRRRRRRR1")];
    assert_eq!(
        lookups,
        expected.map(|(shard, key)| (shard, key.to_owned())).into()
    );
}

#[test]
fn two_texts_with_one_hash_in_two_shards_are_reported_when_shards_join() {
    let disk = MemoryDisk::default();
    let inputs = ["one text", "another text"].map(|text| {
        let text = format!("c.u|a.c41l,KKKKKKKKKKK1:1\nu|a,c41l:1\n~KKKKKKKKKKK1,{text}");
        write(&disk, spec("2012-04", 0, 2), &lines(&text))
            .unwrap()
            .unwrap()
    });
    let error = merge_runs(&disk, &inputs, spec("2012-04", 0, 1)).unwrap_err();
    assert!(matches!(error, Error::Collision { .. }), "{error}");
}
