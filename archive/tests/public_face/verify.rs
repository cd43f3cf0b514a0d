//! Verification beyond checksums: the books, and subtotals against totals.

use tallyring_archive::verify_run;

use crate::{MemoryDisk, lines, write_april};

fn check_wrong(text: &str, said: &str) {
    let disk = MemoryDisk::default();
    let entry = write_april(&disk, &lines(text));
    let error = verify_run(&disk, &entry).expect_err(text).to_string();
    assert!(error.contains(said), "{text}: {error}");
    assert!(error.contains(&entry.name), "{text}: {error}");
}

#[test]
fn subtotals_that_exceed_their_total_are_reported() {
    check_wrong(
        "c.u|a.c411,US:2\nu|a,c411:1",
        "the books do not balance: the values of `c.u|a.c411` sum to 2, the total is 1",
    );
    check_wrong("c.u|a.c412,US:1\nu|a,c411:1", "sum to 1, the total is 0");
    check_wrong("c.u|a.c411,US:1\nu|b,c411:1", "sum to 1, the total is 0");
    check_wrong("c.u|a.c411,US:1\nu|a-,c411:1", "sum to 1, the total is 0");
}

#[test]
fn breakdowns_by_minute_that_exceed_their_minute_are_reported() {
    let minutes = "_m.u|a.c411,0b:3 0a:1\nu|a,c411:4";
    check_wrong(
        &format!("_m*c.u|a.c4110a,US:1 JP:1\n{minutes}"),
        "the values of `_m*c.u|a.c4110a` sum to 2, the total is 1",
    );
    check_wrong(
        &format!("_m*c.u|a.c4110c,US:1\n{minutes}"),
        "sum to 1, the total is 0",
    );
    check_wrong(
        &format!("_m*_u.u|a.c4110c,AgEHDAMIAQhLu0wK\n{minutes}"),
        "has users, but its bucket counted nothing",
    );
    let disk = MemoryDisk::default();
    let text = format!(
        "_m*_u.u|a.c4110a,AgEHDAMIAQhLu0wK\n_m*c.u|a.c4110a,US:1\n_m*c.u|a.c4110b,US:2\n{minutes}"
    );
    let checked = verify_run(&disk, &write_april(&disk, &lines(&text))).unwrap();
    assert_eq!((checked.subtotals, checked.with_remainder), (3, 1));
}

#[test]
fn a_hash_without_its_lookup_is_reported() {
    let key = "u|123456789012,c411:3";
    let value = "c.u|a.c411,123456789012:3\nu|a,c411:3";
    for uses in [key, value] {
        check_wrong(
            uses,
            "is not what it should be: `123456789012`: is a hash without its lookup",
        );
        let other = format!("{uses}\n~123456789013,another text");
        check_wrong(&other, "is a hash without its lookup");
        let disk = MemoryDisk::default();
        let complete = lines(&format!("{uses}\n~123456789012,a long text"));
        verify_run(&disk, &write_april(&disk, &complete)).unwrap();
    }
}

#[test]
fn an_action_of_a_user_may_be_as_long_as_a_hash() {
    let disk = MemoryDisk::default();
    let line = lines("_a.@|MnJ1sQy6-tY2gQkB.c41,69134.e..l=a:1");
    verify_run(&disk, &write_april(&disk, &line)).unwrap();
}

#[test]
fn buckets_that_do_not_ascend_are_reported() {
    check_wrong("u|a,c412:1 c411:1", "is no line of ascending buckets");
    check_wrong("u|a,c411:1 c411:1", "is no line of ascending buckets");
}

#[test]
fn subtotals_that_sum_to_less_have_a_remainder() {
    let disk = MemoryDisk::default();
    let text = "c.u|a.c411,US:2 JP:1\nc.u|a.c412,US:1\nr.u|a.c411,-:3\nu|a,c411:3 c412:9";
    let checked = verify_run(&disk, &write_april(&disk, &lines(text))).unwrap();
    assert_eq!((checked.subtotals, checked.with_remainder), (3, 1));
}

#[test]
fn an_entry_that_says_something_else_is_reported() {
    let disk = MemoryDisk::default();
    let good = write_april(&disk, &lines("c.u|a.c411,US:2\nu|a,c411:3"));
    let mut bytes = good.clone();
    bytes.bytes += 1;
    let mut hash = good.clone();
    hash.hash.replace_range(..4, "0000");
    let mut meta = good.clone();
    meta.meta.sums.insert("u|".into(), 4);
    for wrong in [bytes, hash, meta] {
        let error = verify_run(&disk, &wrong).unwrap_err().to_string();
        assert!(error.contains(&good.name), "{error}");
    }
    verify_run(&disk, &good).unwrap();
}

#[test]
fn a_file_that_is_gone_is_reported() {
    let disk = MemoryDisk::default();
    let mut entry = write_april(&disk, &lines("u|a,c411:3"));
    entry.name = "runs/gone.csv.zst".into();
    let error = verify_run(&disk, &entry).unwrap_err().to_string();
    assert!(
        error.starts_with("cannot read runs/gone.csv.zst"),
        "{error}"
    );
}
