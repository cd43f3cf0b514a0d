//! The file: what `zstdcat` prints, what its name says, and files of every format version so far.

use std::io::Read;
use std::path::Path;

use tallyring_archive::{BLOCK_BYTES, Blobs, Error, Run, RunEntry, names, verify_run};

use crate::summaries::lines_of_many_keys;
use crate::sums::lines_of_clicks;
use crate::{Line, MemoryDisk, csv, lines, read_all, spec, write, write_april};

/// The archive form of DESIGN §3, with the lookups of its two referrers.
const DESIGN: &str = "c.u|jehiah.c41l,US:4 JP:1\n\
    r.u|jehiah.c41l,5bmehgOB4+w=:3 h0aMB8AuNw4=:2\n\
    u|jehiah,c413:2 c41l:5\n\
    ~5bmehgOB4+w=,http://www.example.com/\n\
    ~h0aMB8AuNw4=,a%2Cb\n";

/// The output of `zstdcat`: every frame one after another, skippable frames skipped.
pub(crate) fn zstdcat(file: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut decoder = zstd::stream::read::Decoder::new(file).unwrap();
    decoder.read_to_end(&mut plain).unwrap();
    plain
}

#[test]
fn the_lines_of_the_design_are_what_zstdcat_prints() {
    let disk = MemoryDisk::default();
    let entry = write_april(&disk, &lines(DESIGN));
    let file = disk.read(&entry.name).unwrap();
    assert_eq!(String::from_utf8(zstdcat(&file)).unwrap(), DESIGN);
    assert_eq!(read_all(&disk, &entry.name).unwrap(), lines(DESIGN));
    let checked = verify_run(&disk, &entry).unwrap();
    assert_eq!(
        (checked.lines, checked.buckets, checked.subtotals),
        (5, 2, 2)
    );
}

#[test]
fn lines_of_many_blocks_are_what_zstdcat_prints_of_a_flushed_run() {
    let disk = MemoryDisk::default();
    let lines = golden_lines();
    let mut spec = spec("2012", 0, 1);
    spec.origin = "flush day-2012-03-16".parse().unwrap();
    let entry = write(&disk, spec, &lines).unwrap().unwrap();
    let file = disk.read(&entry.name).unwrap();
    assert_eq!(zstdcat(&file), csv(&lines));
    assert!(BLOCK_BYTES < entry.meta.plain_bytes as usize);
    assert!(Run::open(&disk, &entry.name).unwrap().block_count() > 2);
}

#[test]
fn an_entry_says_what_the_file_holds() {
    let disk = MemoryDisk::default();
    let entry = write_april(&disk, &lines(DESIGN));
    let file = disk.read(&entry.name).unwrap();
    assert_eq!(entry.bytes, file.len() as u64);
    assert_eq!(entry.hash, blake3::hash(&file).to_hex()[..32]);
    assert_eq!(
        entry.name,
        format!(
            "runs/ring-day-2012-03-16.2012-04.s00of01.{}.csv.zst",
            &entry.hash[..16]
        )
    );
    let instant = |text: &str| text.parse::<jiff::Timestamp>().unwrap().as_second();
    assert_eq!(entry.meta.first, instant("2012-04-01T03:00:00Z"));
    assert_eq!(entry.meta.last, instant("2012-04-01T21:00:00Z"));
    assert_eq!(entry.meta.lines, 5);
    assert_eq!(entry.meta.plain_bytes, DESIGN.len() as u64);
    let sums: Vec<(&str, u128)> = (entry.meta.sums.iter())
        .map(|(section, &sum)| (section.as_str(), sum))
        .collect();
    assert_eq!(sums, [("c.u|", 5), ("r.u|", 5), ("u|", 7)]);
    assert_eq!(*Run::open(&disk, &entry.name).unwrap().meta(), entry.meta);
    assert_eq!(disk.list(names::RUNS).unwrap().len(), 1, "no leftovers");
}

#[test]
fn the_same_lines_give_the_same_file_and_it_may_be_there_already() {
    let disk = MemoryDisk::default();
    let first = write_april(&disk, &lines(DESIGN));
    let second = write_april(&disk, &lines(DESIGN));
    assert_eq!(first, second);
    assert_eq!(disk.list(names::RUNS).unwrap().len(), 1);
}

#[test]
fn a_run_without_lines_leaves_nothing_behind() {
    let disk = MemoryDisk::default();
    assert_eq!(write(&disk, spec("2012-04", 0, 1), &[]).unwrap(), None);
    assert!(disk.list(names::RUNS).unwrap().is_empty());
}

fn check_refused(line: &str) {
    let disk = MemoryDisk::default();
    let result = write(&disk, spec("2012-04", 0, 1), &lines(line));
    let error = result.expect_err(line).to_string();
    assert!(error.contains("no line of counts"), "{line}: {error}");
}

#[test]
fn lines_that_are_no_lines_of_counts_are_refused_when_they_are_written() {
    for line in [
        "jehiah,c41l:1",
        ",c41l:1",
        "u|jehiah,",
        "u|jehiah,c41l",
        "u|jehiah,c41l:-1",
        "u|jehiah,c41l:1  c41m:1",
        "u|jehiah,US:1",
        "u|jehiah,c41l:1 US:1",
        "c.u|jehiah.c41l,US:1.5",
        "c.u|jehiah.c41l,:1",
    ] {
        check_refused(line);
    }
}

#[test]
#[should_panic(expected = "BUG: lines of a run ascend")]
fn lines_out_of_order_are_a_bug_of_the_writer() {
    let disk = MemoryDisk::default();
    let _ = write(
        &disk,
        spec("2012-04", 0, 1),
        &lines("u|b,c41l:1\nu|a,c41l:1"),
    );
}

#[test]
fn a_file_of_a_newer_format_says_which_build_to_run() {
    let disk = MemoryDisk::default();
    let entry = write_april(&disk, &lines(DESIGN));
    let mut file = disk.read(&entry.name).unwrap().to_vec();
    let (format_at, crc_at) = (file.len() - 16, file.len() - 4);
    file[format_at] += 1;
    let crc = crc32fast::hash(&file[file.len() - 40..crc_at]);
    file[crc_at..].copy_from_slice(&crc.to_le_bytes());
    disk.put(&entry.name, file);
    let error = Run::open(&disk, &entry.name).unwrap_err();
    assert!(matches!(&error, Error::Version { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains(&entry.name) && text.contains("run the build that wrote it"));
}

/// Content of the golden files, in every format: never to be changed. A total longer than a block,
/// crossed and escaped values, and keys around `.`.
fn golden_lines() -> Vec<Line> {
    let mut text = String::from(
        "c*v.u|jehiah.c41l,US*iphone:3 JP*5bmehgOB4+w=:1 -*-:1\n\
         c.u|a-b.c411,US:1\n\
         c.u|a.c411,US:2 -:1\n\
         c.u|jehiah.c41l,US:4 JP:1\n\
         r.u|jehiah.c41l,5bmehgOB4+w=:3 h0aMB8AuNw4=:2\n\
         u|a,c411:3 c412:9223372036854775807\n\
         u|a-b,c411:1\n",
    );
    for month in 1..=12_i8 {
        let mut payload = Vec::new();
        for day in 1..=jiff::civil::date(2012, month, 1).days_in_month() {
            for hour in 0..24 {
                let digits = [month as u8, day as u8, hour]
                    .map(|digit| char::from_digit(digit.into(), 32).unwrap());
                payload.push(format!("c{}:1000000000", String::from_iter(digits)));
            }
        }
        text.push_str(&format!("u|jehiah,{}\n", payload.join(" ")));
    }
    text.push_str("~5bmehgOB4+w=,http://www.example.com/?q=100%25%2C%22\n");
    text.push_str("~h0aMB8AuNw4=,日本語 or a longer text\n");
    lines(&text)
}

/// A line of every kind, at every grain, and days that were folded: never to be changed either.
fn lines_of_every_kind() -> Vec<Line> {
    let mut lines = lines(
        "_m.ad_click|42.c41l,1q:3 1r:2\n\
         _m.q|k.c41l2,10:7 11:3\n\
         _u.l|abc.c31,AgEHDAMIAQhLu0wK\n\
         _u.l|abc.c41l,AgEHDAMIBQjoq3oF+xkeBnZCLAaLruoHS7tMCg\n\
         ad_click|42,c41l:5\n\
         c*v.l|abc.c41l,US*iphone:3 JP*-:2\n\
         c.l|abc.c31,US:6 JP:5\n\
         c.l|abc.c41l,US:4 JP:1\n\
         c.q|k.c41l2,NZ:7 -:3\n\
         id|0123456789abcdef0123456789abcdef,c41l1q:7\n\
         l|abc,c31:11 c41l:5\n\
         q|k,c41l2:10\n\
         r.l|abc.c41l,5bmehgOB4+w=:5\n\
         ~5bmehgOB4+w=,http://www.example.com/?q=100%25%2C%22\n",
    );
    lines.sort();
    lines
}

/// Breakdowns and users by minute, beside what they sum to: never to be changed either.
fn lines_by_minute() -> Vec<Line> {
    let mut lines = lines(
        "_m*_u.ad_click|42.c41l1q,AgEHDAMIAQhLu0wK\n\
         _m*c*v.ad_click|42.c41l1q,US*iphone:2 JP*-:1\n\
         _m*c.ad_click|42.c41l1q,US:2 JP:1\n\
         _m*c.ad_click|42.c41l1r,5bmehgOB4+w=:2\n\
         _m.ad_click|42.c41l,1q:3 1r:2\n\
         _u.ad_click|42.c41l,AgEHDAMIAQhLu0wK\n\
         ad_click|42,c41l:5\n\
         c.ad_click|42.c41l,5bmehgOB4+w=:2 US:2 JP:1\n\
         ~5bmehgOB4+w=,http://www.example.com/?q=100%25%2C%22\n",
    );
    lines.sort();
    lines
}

/// Actions of two users, beside counts: never to be changed either.
fn lines_of_actions() -> Vec<Line> {
    let mut lines = lines(
        "_a.@|MnJ1sQy6-tY2gQkB.c41,00000.click..ad=42:3 78301.click.home.ad=42.campaign=7.#3q2-7wAAAAA:1\n\
         _a.@|MnJ1sQy6-tY2gQkB.c42,86399.impression.5bmehgOB4+w-.ad=5bmehgOB4+w-:1\n\
         _a.@|zzJ1sQy6-tY2gQkB.c41,78302.click.home.ad=42.campaign=7.#_________8A:1\n\
         ad_click|42,c41l:5\n",
    );
    lines.sort();
    lines
}

/// Two blocks of values, whose blocks become columns with a list, before totals: never to be changed either.
pub(crate) fn lines_of_columns() -> Vec<Line> {
    let (mut values, mut totals) = (String::new(), String::new());
    for key in 0..2_500_u32 {
        let mut hours = Vec::new();
        for hour in 0..6 {
            let number = 6 * key + hour;
            let (listed, count) = (number * 7_919 % 4_001, number % 40 + 2);
            let (line, total) = match number % 5 {
                0 => (format!("A{listed:04}:{count} US:2 JP:1"), count + 3),
                1 => ("US:3".to_owned(), 3),
                _ => (format!("DE:4 A{:04}:1", number % 977), 5),
            };
            values.push_str(&format!("r.u|key{key:05}.c41{hour},{line}\n"));
            hours.push(format!("c41{hour}:{total}"));
        }
        totals.push_str(&format!("u|key{key:05},{}\n", hours.join(" ")));
    }
    lines(&(values + &totals))
}

/// Actions of many users, whose blocks become columns with a list: never to be changed either.
fn lines_of_many_users() -> Vec<Line> {
    let mut text = String::new();
    for user in 0..700_u32 {
        for day in 1..=user % 3 + 1 {
            let action = |number: u32| {
                let second = (user * 131 + number * 7_919) % 86_400;
                let ad = (user * number + day) % 97;
                match number % 4 {
                    0 => format!(
                        "{:05}~click..ad={ad}:{}",
                        second / 3_600 * 3_600,
                        2 + number % 5
                    ),
                    1 => format!("{second:05}.impression.home.ad={ad}:1"),
                    _ => format!("{second:05}.impression.home.ad={ad}.#{user:07}-_{number}A:1"),
                }
            };
            let mut actions: Vec<String> = (user % 5..user % 5 + 4).map(action).collect();
            let count = |action: &str| action.rsplit_once(':').unwrap().1.parse::<u32>().unwrap();
            actions.sort_by_key(|action| (std::cmp::Reverse(count(action)), action.clone()));
            text.push_str(&format!(
                "_a.@|{user:012}-_AB.c4{day},{}\n",
                actions.join(" ")
            ));
        }
    }
    lines(&text)
}

/// The golden runs, by how their names begin, and the first format that each has.
fn golden_runs() -> [(&'static str, u32, Vec<Line>); 8] {
    [
        ("format", 1, golden_lines()),
        ("kinds", 1, lines_of_every_kind()),
        ("minutes", 1, lines_by_minute()),
        ("columns", 2, lines_of_columns()),
        ("summaries", 3, lines_of_many_keys()),
        ("actions", 3, lines_of_actions()),
        ("users", 4, lines_of_many_users()),
        ("sums", 5, lines_of_clicks()),
    ]
}

/// Reads a golden run, written by the first build with its format and never again, with the entry a manifest had for
/// it.
fn check_golden(run: &str, version: u32, lines: &[Line]) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let disk = Blobs::local(&directory).unwrap();
    let name = format!("{run}-{version}.csv.zst");
    let entry = std::fs::read(directory.join(format!("{run}-{version}.json"))).unwrap();
    let entry = golden_entry(&entry);
    assert_eq!(entry.name, name);
    assert_eq!(read_all(&disk, &name).unwrap(), lines);
    let plain = String::from_utf8(zstdcat(&disk.read(&name).unwrap())).unwrap();
    match plain.contains("columns ") || plain.contains("\nsummary ") {
        false => assert_eq!(plain.into_bytes(), csv(lines)),
        true => assert_ne!(version, 1),
    }
    let checked = verify_run(&disk, &entry).unwrap();
    assert_eq!(checked.lines, entry.meta.lines);
}

/// The entry as the first build with that format wrote it, which did not say the origin, and under a name that tells
/// none.
fn golden_entry(json: &[u8]) -> RunEntry {
    let mut entry: serde_json::Value = serde_json::from_slice(json).unwrap();
    entry["origin"] = "merge".into();
    serde_json::from_value(entry).unwrap()
}

#[test]
fn files_of_every_format_so_far_are_still_read() {
    for (run, first, lines) in golden_runs() {
        for version in first..=written_run(run, &lines).version {
            check_golden(run, version, &lines);
        }
    }
}

#[test]
fn the_golden_lines_still_give_the_golden_bytes() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for (run, _, lines) in golden_runs() {
        let written = written_run(run, &lines);
        let json = serde_json::to_vec_pretty(&written.entry).unwrap();
        let golden = directory.join(&written.entry.name);
        if !golden.exists() {
            let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join(&written.entry.name);
            std::fs::write(&made, written.file).unwrap();
            std::fs::write(made.with_extension("").with_extension("json"), json).unwrap();
            panic!(
                "the newest format has no golden file: copy {} and its .json to {}",
                made.display(),
                directory.display()
            );
        }
        let kept_json = std::fs::read(golden.with_extension("").with_extension("json")).unwrap();
        let kept = golden_entry(&kept_json);
        // Another zstd may compress otherwise; the file says which one it was.
        if kept.meta.compression == written.entry.meta.compression {
            let bytes = std::fs::read(&golden).unwrap();
            assert!(
                bytes == written.file,
                "{run}: the format changed: raise its version"
            );
            assert_eq!(
                kept.meta, written.entry.meta,
                "{run}: the entry of a run changed"
            );
        }
    }
}

/// A golden run as this build writes it.
struct Written {
    version: u32,
    entry: RunEntry,
    file: Vec<u8>,
}

fn written_run(run: &str, lines: &[Line]) -> Written {
    let disk = MemoryDisk::default();
    let mut entry = write(&disk, spec("2012", 0, 1), lines).unwrap().unwrap();
    let file = disk.read(&entry.name).unwrap().to_vec();
    let version = file[file.len() - 16..][..4].try_into().unwrap();
    let version = u32::from_le_bytes(version);
    entry.name = format!("{run}-{version}.csv.zst");
    Written {
        version,
        entry,
        file,
    }
}
