//! Point and range reads through the block index agree with a scan of all lines.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tallyring_archive::{BlockCache, Run};

use crate::{Line, MemoryDisk, lines, read_all, read_from, write_april};

/// Key text with bytes on both sides of `.` (0x2e) and `|` (0x7c).
fn stored() -> impl Strategy<Value = String> {
    "[-+%!/0a~}é]{1,4}"
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        stored().prop_map(|stored| format!("u|{stored}").into_bytes()),
        (stored(), "c41[0-9]")
            .prop_map(|(stored, code)| format!("c.u|{stored}.{code}").into_bytes()),
        stored().prop_map(|stored| format!("~{stored}").into_bytes()),
    ]
}

/// Sorted lines with payloads so long that they fill several blocks, some longer than one.
fn sorted_lines() -> impl Strategy<Value = Vec<Line>> {
    let length =
        prop_oneof![3 => 1..100_usize, 2 => 5_000..40_000_usize, 1 => 65_000..70_000_usize];
    prop::collection::btree_map(key(), length, 1..40).prop_map(|keys: BTreeMap<Vec<u8>, usize>| {
        keys.into_iter()
            .map(|(key, length)| {
                let payload = match key.starts_with(b"u|") {
                    true => b"c411:7".to_vec(),
                    false => [&vec![b'v'; length][..], b":1"].concat(),
                };
                (key, payload)
            })
            .collect()
    })
}

/// Every read from `from`, of every length up to a few lines and of all, is what a scan finds.
fn check_from(lines: &[Line], run: &Run, caches: &[BlockCache], from: &[u8]) {
    let expected: Vec<&Line> = lines.iter().filter(|(key, _)| **key >= *from).collect();
    for cache in caches {
        for count in [1, 2, 5, usize::MAX] {
            let found = read_from(run, cache, from, count).unwrap();
            let expected = expected.iter().take(count).copied();
            assert!(
                found.iter().eq(expected),
                "{count} lines from {:?}",
                String::from_utf8_lossy(from)
            );
        }
    }
}

#[test]
fn a_run_spans_the_days_of_its_actions() {
    let day = |number: i64| 1_333_238_400 + (number - 1) * 86_400;
    let action = "_a.@|MnJ1sQy6-tY2gQkB.c42,69134.click..ad=1:1";
    // Totals of the shard may be of other hours.
    for (text, last) in [
        (action.to_owned(), day(2)),
        (format!("{action}\nad_click|1,c43n:1"), day(4) - 3_600),
    ] {
        let meta = write_april(&MemoryDisk::default(), &lines(&text)).meta;
        assert_eq!((meta.first, meta.last), (day(2), last));
        assert!(meta.overlaps(day(2), day(2) + 1) && !meta.overlaps(day(1), day(2)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn prop_reads_agree_with_a_scan(lines in sorted_lines(), absent in prop::collection::vec(key(), 8)) {
        let disk = MemoryDisk::default();
        let entry = write_april(&disk, &lines);
        prop_assert!(read_all(&disk, &entry.name).unwrap() == lines);
        let run = Run::open(&disk, &entry.name).unwrap();
        let caches = [0, 100_000, 64 << 20].map(BlockCache::new);
        for (key, _) in &lines {
            check_from(&lines, &run, &caches, key);
            check_from(&lines, &run, &caches, &key[..key.len() - 1]);
            check_from(&lines, &run, &caches, &[key, &b"\0"[..]].concat());
            check_from(&lines, &run, &caches, &[key, &b"."[..]].concat());
        }
        for from in absent.iter().map(|key| &key[..]).chain([&b""[..], b"\0", b"c.", b"u|", b"~", b"\xff"]) {
            check_from(&lines, &run, &caches, from);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn prop_a_cursor_that_seeks_stands_on_the_first_line_from_there_on_and_never_goes_back(
        lines in sorted_lines(),
        absent in prop::collection::vec(key(), 4),
        among in prop::collection::vec(any::<prop::sample::Index>(), 1..6),
    ) {
        let disk = MemoryDisk::default();
        let entry = write_april(&disk, &lines);
        let mut cursor = Run::open(&disk, &entry.name).unwrap().cursor();
        let wanted = among.iter().map(|index| index.get(&lines).0.clone()).chain(absent);
        let mut at = 0;
        for (step, wanted) in wanted.enumerate() {
            at += lines[at..].iter().take_while(|(key, _)| *key < wanted).count();
            prop_assert_eq!(cursor.seek(&wanted).unwrap(), at < lines.len());
            let line = cursor.line().unwrap().map(|(key, payload)| (key.to_vec(), payload.to_vec()));
            prop_assert!(line.as_ref() == lines.get(at));
            if step % 2 == 1 && at < lines.len() {
                at += 1;
                prop_assert_eq!(cursor.advance().unwrap(), at < lines.len());
            }
        }
    }
}

#[test]
fn bytes_below_the_dot_sort_before_it() {
    let disk = MemoryDisk::default();
    let text = "c.u|a+.c411,US:1\n\
        c.u|a-.c411,US:1\n\
        c.u|a-b.c411,US:1\n\
        c.u|a.c411,US:2\n\
        c.u|a.c412,US:3\n\
        c.u|a/.c411,US:1\n\
        u|a,c411:2 c412:3\n\
        u|a+,c411:1\n\
        u|a-,c411:1\n\
        u|a-b,c411:1\n\
        u|a/,c411:1\n";
    let entry = write_april(&disk, &lines(text));
    let run = Run::open(&disk, &entry.name).unwrap();
    let cache = BlockCache::new(1 << 20);
    let found = read_from(&run, &cache, b"c.u|a.", 2).unwrap();
    assert_eq!(found, lines("c.u|a.c411,US:2\nc.u|a.c412,US:3"));
    let found = read_from(&run, &cache, b"u|a", 1).unwrap();
    assert_eq!(found, lines("u|a,c411:2 c412:3"));
}

#[test]
fn runs_share_a_cache_without_mixing_their_blocks() {
    let disk = MemoryDisk::default();
    let cache = BlockCache::new(1 << 20);
    let runs: Vec<_> = (1..20)
        .map(|count| {
            let text = format!("u|a,c411:{count}");
            let entry = write_april(&disk, &lines(&text));
            (lines(&text), Run::open(&disk, &entry.name).unwrap())
        })
        .collect();
    for _ in 0..2 {
        for (lines, run) in &runs {
            assert_eq!(read_from(run, &cache, b"u|a", 9).unwrap(), *lines);
        }
    }
}

#[test]
fn what_was_found_of_a_key_is_found_again_without_its_block() {
    let disk = MemoryDisk::default();
    let day = |number: i64| 1_333_238_400 + (number - 1) * 86_400;
    // A folded day, hours of two days, and texts behind hashes.
    let runs: Vec<_> = (1..4)
        .map(|count| {
            let others: String = (0..10_000)
                .map(|key| format!("u|k{key:05},c42l:1\n"))
                .collect();
            let text = format!("u|a,c41:5 c42l:{count} c43m:9\n{others}~q2Xb9K0fJt4w,text {count}");
            let entry = write_april(&disk, &lines(&text));
            (count, Run::open(&disk, &entry.name).unwrap())
        })
        .collect();
    // A block of totals has no room in it.
    let cache = BlockCache::new(128 << 10);
    let hour = 3_600;
    let check = || {
        for (count, run) in &runs {
            for (range, sum) in [
                (0..i64::MAX, 14 + count),
                (day(1)..day(4), 14 + count),
                (day(1) + 1..day(4), 9 + count),
                (day(2)..day(3), *count),
                (day(2) + 20 * hour..day(2) + 22 * hour, *count),
                (day(2) + 22 * hour..day(3), 0),
                (day(4)..day(1), 0),
            ] {
                let found = run.sum_of(&cache, b"u|a", &range).unwrap();
                assert_eq!(found, sum, "{range:?} of {count}");
            }
            assert_eq!(run.sum_of(&cache, b"u|c", &(0..i64::MAX)).unwrap(), 0);
            let text = run.look_up(&cache, b"q2Xb9K0fJt4w").unwrap();
            assert_eq!(text, Some(format!("text {count}")));
            assert_eq!(run.look_up(&cache, b"q2Xb9K0fJt4x").unwrap(), None);
        }
    };
    check();
    let decoded = cache.decoded();
    check();
    assert_eq!(cache.decoded(), decoded);
}
