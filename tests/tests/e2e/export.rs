//! Exported counts: only closed days, only what is new, and a load of the files counts what was exported.
//!
//! `TALLYRING_EXPORTS=1000 cargo test --release -p tallyring-tests --test e2e export` takes as many books there and
//! back.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use tallyring_archive::OsDisk;
use tallyring_realtime::{Options, Read, Store};
use tallyring_records::{TIME_MAX, TIME_MIN, cross};
use tallyring_tests::model::{ManualClock, world};
use tallyring_tests::server::{Server, tallyring, tallyring_ok};

use crate::chance::Chance;
use crate::final_numbers::{click, reconcile, start};
use crate::stored::{Stored, files, text};
use crate::voids::void;

/// Books that the gate takes there and back.
const BOOKS: u64 = 32;
const SEED: u64 = 20_261_128;

const CONFIG: &str = "[[namespace]]\nname = \"l\"\nsubtotals = [\"c\", \"r\", \"c*r\"]\n\
    [[namespace]]\nname = \"q\"\ngrain = \"quarter\"\nsubtotals = [\"c\"]\n";
const NAMESPACES: [(&str, &[&str]); 2] = [("l", &["c", "r", "c*r"]), ("q", &["c"])];
const KEYS: [&str; 8] = [
    "a",
    "b",
    "=1+1",
    "-",
    "exactly12chr",
    "https://a.example/?q=\"x\",\n'y'",
    "Ä and ü\r\n",
    "'",
];
const VALUES: [&str; 7] = [
    "US",
    "",
    "a*b",
    r"c:\x\",
    "a long country name",
    "-",
    "x,\"y\"",
];

/// Files of an export in `target`, without its state, with what they have.
fn exported(target: &Path) -> BTreeMap<String, String> {
    let names = files(target, ".").into_iter();
    let names = names.map(|name| name.trim_start_matches("./").to_owned());
    let tables = names.filter(|name| !name.starts_with("tallyring-export"));
    tables
        .map(|name| {
            let packed = fs::read(target.join(&name)).expect("read");
            let plain = zstd::decode_all(&packed[..]).expect("zstd");
            (name, String::from_utf8(plain).expect("text"))
        })
        .collect()
}

fn export(data: &Path, target: &Path, more: &[&str]) -> Value {
    let arguments = [
        "export",
        text(target),
        "--data",
        text(data),
        "--output",
        "json",
    ];
    let said = tallyring_ok(&[&arguments[..], more].concat());
    serde_json::from_str(&said).expect("JSON")
}

/// Months that the export wrote and removed.
fn months(said: &Value) -> (Vec<&str>, Vec<&str>) {
    let of = |what: &str| said[what].as_array().expect("a list").iter();
    let written = of("written").map(|of| of["month"].as_str().expect("a month"));
    let removed = of("removed").map(|month| month.as_str().expect("a month"));
    (written.collect(), removed.collect())
}

fn count(server: &Server, at: &str, n: u64) {
    let body = json!([{"at": at, "n": n, "keys": {"l": "a", "u": "x"}, "by": {"c": "US"}}]);
    assert_eq!(server.post("/v1/increments", body.to_string()).status, 200);
}

#[test]
fn closed_days_are_exported_beside_a_server_and_only_what_is_new() {
    let stored = Stored::new();
    let directory = tempfile::tempdir().expect("a directory");
    let target = directory.path().join("out");
    let (data, nothing) = (&stored.data, Vec::<&str>::new());
    let server = stored.serve("2012-03-01T12:00:00Z@0");
    count(&server, "2012-02-29T10:00:00Z", 1);
    count(&server, "2012-03-01T10:00:00Z", 2);
    let said = export(data, &target, &[]);
    assert_eq!(
        months(&said),
        (nothing.clone(), nothing.clone()),
        "no day is closed: {said}"
    );
    server.terminate();

    let server = stored.serve("2012-03-04T12:00:00Z@0");
    server.client().rebuild();
    count(&server, "2012-03-04T10:00:00Z", 4);
    let said = export(data, &target, &[]);
    assert_eq!(months(&said), (vec!["2012-02", "2012-03"], nothing.clone()));
    let header = "namespace,key,hour,count,subtotal,value,unit\n";
    let of = |at: &str, n: u64| {
        let row = |namespace: &str, key: &str, part: &str| {
            format!("{namespace},{key},{at},{n},{part},hour\n")
        };
        let rows = [
            row("l", "a", ","),
            row("l", "a", "c,US"),
            row("u", "x", ","),
            row("u", "x", "c,US"),
        ];
        BTreeSet::from(rows)
    };
    let rows = |month: &str| {
        let all = exported(&target);
        let rows = all[&format!("{month}.csv.zst")].strip_prefix(header);
        let rows = rows.expect("a header").lines();
        let is_named = |row: &&str| ["", "c"].contains(&row.split(',').nth(4).expect("cells"));
        let rows = rows.filter(is_named).map(|row| format!("{row}\n"));
        rows.collect::<BTreeSet<String>>()
    };
    assert_eq!(rows("2012-02"), of("2012-02-29T10:00:00Z", 1));
    assert_eq!(rows("2012-03"), of("2012-03-01T10:00:00Z", 2));
    let said = export(data, &target, &[]);
    assert_eq!(months(&said), (nothing.clone(), nothing.clone()), "{said}");
    assert_eq!(said["files"], 2, "{said}");

    // A late click comes with the next rebuild, and March with a file that is gone.
    count(&server, "2012-02-29T10:30:00Z", 8);
    server.client().rebuild();
    let said = export(data, &target, &[]);
    assert_eq!(months(&said), (vec!["2012-02"], nothing.clone()), "{said}");
    assert_eq!(rows("2012-02"), of("2012-02-29T10:00:00Z", 9));
    fs::remove_file(target.join("2012-03.csv.zst")).expect("removed");
    let said = export(data, &target, &["--to", "2012-02"]);
    assert_eq!(months(&said), (nothing.clone(), nothing.clone()), "{said}");
    let said = export(data, &target, &["--from", "2012-03"]);
    assert_eq!(months(&said), (vec!["2012-03"], nothing), "{said}");
    server.terminate();
}

#[test]
fn a_month_that_counts_nothing_any_more_goes() {
    let directory = tempfile::tempdir().expect("a directory");
    let [data, target, rows] = ["data", "out", "rows.csv"].map(|of| directory.path().join(of));
    fs::write(
        &rows,
        "namespace,key,hour,count\nl,a,2011-05-01T00:00:00Z,1\n",
    )
    .expect("written");
    let on = ["--data", text(&data)];
    tallyring_ok(&[&["load", "h", text(&rows)][..], &on].concat());
    assert_eq!(
        months(&export(&data, &target, &[])).0,
        Vec::<&str>::new(),
        "it waits"
    );
    tallyring_ok(&[&["rebuild"][..], &on].concat());
    assert_eq!(months(&export(&data, &target, &[])).0, ["2011-05"]);
    tallyring_ok(&[&["drop", "h"][..], &on].concat());
    tallyring_ok(&[&["rebuild"][..], &on].concat());
    let said = export(&data, &target, &[]);
    assert_eq!(months(&said), (vec![], vec!["2011-05"]), "{said}");
    assert_eq!(exported(&target), BTreeMap::new());
}

#[test]
fn what_a_fix_takes_away_is_not_exported() {
    let directory = tempfile::tempdir().expect("a directory");
    let [data, target] = ["data", "out"].map(|of| directory.path().join(of));
    let server = start(directory.path(), "2026-03-10T12:00:01Z", "");
    for id in ["e1", "e2"] {
        assert_eq!(server.post("/v1/events", click(id, "phone")).status, 200);
    }
    server.terminate();
    let server = start(directory.path(), "2026-03-13T13:00:01Z", "");
    let client = server.client();
    client.rebuild();
    export(&data, &target, &[]);
    let sums = || {
        let rows = exported(&target).remove("2026-03.csv.zst").expect("March");
        let cells = |row: &str| {
            let mut cells = row.split(',').map(str::to_owned);
            let place = cells.next().zip(cells.nth(2));
            place.expect("a row")
        };
        let mut sums = BTreeMap::<String, u64>::new();
        for (namespace, count) in rows.lines().skip(1).map(cells) {
            *sums.entry(namespace).or_default() += count.parse::<u64>().expect("a count");
        }
        sums
    };
    let before = sums();
    assert!(!before.is_empty());
    reconcile(client, &json!({"day": "2026-03-10"}));
    assert_eq!(void(client, "e1", "a test").0, 201);
    reconcile(client, &json!({"day": "2026-03-10"}));
    // The fix waits for a rebuild, and then is merged.
    let halved: BTreeMap<String, u64> = before.iter().map(|(of, n)| (of.clone(), n / 2)).collect();
    assert_eq!(months(&export(&data, &target, &[])).0, ["2026-03"]);
    assert_eq!(sums(), halved);
    client.rebuild();
    export(&data, &target, &[]);
    assert_eq!(sums(), halved);
    server.terminate();
}

#[test]
fn a_directory_with_something_else_is_refused_and_stays_as_it_is() {
    let directory = tempfile::tempdir().expect("a directory");
    let [one, other, target, full] =
        ["one", "other", "out", "full"].map(|of| directory.path().join(of));
    let rows = directory.path().join("rows.csv");
    fs::write(
        &rows,
        "namespace,key,hour,count\nl,a,2011-05-01T00:00:00Z,1\n",
    )
    .expect("written");
    for data in [&one, &other] {
        tallyring_ok(&["load", "h", text(&rows), "--data", text(data)]);
        tallyring_ok(&["rebuild", "--data", text(data)]);
    }
    export(&one, &target, &["--namespace", "l", "--namespace", "u"]);
    fs::create_dir(&full).expect("made");
    fs::write(full.join("mine.txt"), "mine").expect("written");
    let before = exported(&target);
    assert_eq!(before.len(), 1);
    let of = ["--namespace", "u", "--namespace", "l"];
    for (data, target, more, why) in [
        (
            &other,
            &target,
            &of[..],
            "an export of another store; name an empty directory",
        ),
        (&one, &target, &of[..2], "an export of other namespaces"),
        (
            &one,
            &target,
            &["--namespace", "l", "--namespace", "u", "--format", "ndjson"][..],
            "in another format",
        ),
        (
            &one,
            &full,
            &of[..],
            "has files and no tallyring-export.json",
        ),
        (
            &one,
            &target,
            &["--namespace", "x"][..],
            "must be one of l, u, d",
        ),
        (&full, &target, &of[..], "is no data directory"),
    ] {
        let arguments = ["export", text(target), "--data", text(data)];
        let refused = tallyring(&[&arguments[..], more].concat());
        assert_ne!(refused.code, 0, "{refused:?}");
        assert!(refused.stderr.contains(why), "{refused:?}");
    }
    assert_eq!(exported(&target), before);
    assert_eq!(files(&full, "."), ["./mine.txt"]);
}

/// Rows of a random history: totals, and where there is a breakdown, values of some of each.
fn book(chance: &mut Chance) -> String {
    let mut rows = String::from("namespace,key,hour,count,subtotal,value,unit\n");
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let pick = |chance: &mut Chance| VALUES[chance.below(VALUES.len() as u64) as usize];
    for _ in 0..1 + chance.below(40) {
        let (namespace, subtotals) = NAMESPACES[chance.below(2) as usize];
        let key = quoted(KEYS[chance.below(KEYS.len() as u64) as usize]);
        // Some days of two years.
        let day = [1_293_840_000, 1_298_937_600, 1_330_560_000][chance.below(3) as usize];
        let at = day + chance.below(3) * 86_400 + chance.below(30) * 900;
        let unit = ["", "hour", "quarter", "day"][chance.below(4) as usize];
        let count = 1 + chance.below(9);
        let _ = writeln!(rows, "{namespace},{key},{at},{count},,,{unit}");
        for subtotal in subtotals {
            let mut rest = count - chance.below(count + 1);
            while rest > 0 {
                let part = 1 + chance.below(rest);
                let value = match *subtotal {
                    "c*r" => cross([pick(chance), pick(chance)]),
                    _ => pick(chance).to_owned(),
                };
                let value = quoted(&value);
                let _ = writeln!(
                    rows,
                    "{namespace},{key},{at},{part},{subtotal},{value},{unit}"
                );
                rest -= part;
            }
        }
    }
    rows
}

/// Everything that a store answers of the keys: by base bucket and value, and the heaviest keys.
fn counts(data: &Path) -> Vec<String> {
    let disk = OsDisk::new(data).expect("a disk");
    let now = jiff::Timestamp::now().as_millisecond();
    let clock = Arc::new(ManualClock::new(now, true));
    let opened = Store::open_read_only(world(disk, clock), Options::for_memory(1 << 28));
    let store = opened.expect("a store");
    let view = store.view();
    let mut all = Vec::new();
    for (namespace, subtotals) in NAMESPACES {
        for key in KEYS {
            for subtotal in subtotals {
                let read = Read {
                    namespace: namespace.to_owned(),
                    key: key.to_owned(),
                    subtotal: Some((*subtotal).to_owned()),
                    from: TIME_MIN,
                    to: TIME_MAX,
                    rolled: None,
                };
                let series = view.read(&read, None).expect("read");
                let mut values = BTreeMap::new();
                for point in &series.points {
                    let value = &series.values[point.value as usize];
                    let value = view.expand(&series, value).expect("texts");
                    *values.entry((point.code, value)).or_insert(0) += point.count;
                }
                let totals: Vec<_> = series.totals.iter().collect();
                all.push(format!(
                    "{namespace} {key:?} {subtotal}: {totals:?} {values:?}"
                ));
            }
        }
        let top = view.top(namespace, TIME_MIN..TIME_MAX, false, (100, true), None);
        let top = top.expect("a ranking");
        all.push(format!("{namespace}: {} {:?}", top.total, top.keys));
    }
    all
}

/// Makes a store of exactly these files.
fn loaded(data: PathBuf, config: &Path, inputs: &[PathBuf], more: &[&str]) -> PathBuf {
    let on = ["--data", text(&data), "--config", text(config)];
    let inputs: Vec<&str> = inputs.iter().map(|input| text(input)).collect();
    tallyring_ok(&[&["load", "h"][..], &inputs[..], &on[..], more].concat());
    tallyring_ok(&[&["rebuild"][..], &on].concat());
    data
}

#[test]
fn random_books_come_back_as_they_were_exported() {
    let books = std::env::var("TALLYRING_EXPORTS");
    let books = books.map_or(BOOKS, |text| text.parse().expect("a number"));
    for seed in SEED..SEED + books {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        let (config, rows, target) = (at("c.toml"), at("rows.csv"), at("out"));
        fs::write(&config, CONFIG).expect("written");
        fs::write(&rows, book(&mut Chance::new(seed))).expect("written");
        let one = loaded(at("one"), &config, &[rows], &["--fill"]);
        let format = ["csv", "ndjson"][(seed % 2) as usize];
        export(&one, &target, &["--format", format]);
        let tables: Vec<PathBuf> = exported(&target)
            .keys()
            .map(|name| target.join(name))
            .collect();
        let other = loaded(at("other"), &config, &tables, &[]);
        assert_eq!(counts(&one), counts(&other), "seed {seed}");
        // The next export has the rows of the first one; stores sort long keys by other hashes.
        export(&other, &at("again"), &["--format", format]);
        let [first, again] = [&target, &at("again")].map(|of| {
            let tables = exported(of).into_iter().map(|(name, rows)| {
                let mut rows: Vec<String> = rows.lines().map(str::to_owned).collect();
                rows.sort_unstable();
                (name, rows)
            });
            tables.collect::<Vec<_>>()
        });
        assert_eq!(first, again, "seed {seed}");
    }
}
