//! Loads compared with a naive model: the bytes do not depend on the order of rows, on the division into files, or on
//! memory.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;

use proptest::prelude::*;
use tallyring_archive::{Blobs, Run, RunEntry, names, verify_run};
use tallyring_records::line::{self, Kind};
use tallyring_records::{COUNT_MAX, Day, LongKeys, Schema};

use super::*;

mod presets;

/// Stored key, bucket and value → count.
type Counts = BTreeMap<String, u64>;

struct Stand {
    root: tempfile::TempDir,
    blobs: Blobs,
    schema: Schema,
    keys: LongKeys,
}

impl Stand {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let blobs = Blobs::local(root.path()).unwrap();
        blobs.prepare().unwrap();
        Self {
            root,
            blobs,
            schema: Schema::default_clicks(),
            keys: LongKeys::new([5; 32]),
        }
    }

    fn options(&self, memory: u64, fill: bool) -> LoadOptions<'_> {
        LoadOptions {
            id: "0123456789abcdef",
            schema: &self.schema,
            keys: &self.keys,
            today: "2012-03-16".parse::<Day>().unwrap(),
            latest: i64::MAX,
            shards: 3,
            level: 1,
            memory,
            fill,
            preset: None,
        }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.root.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn load(&self, files: &[PathBuf], memory: u64, fill: bool) -> Result<Loaded, LoadError> {
        let stop = |row| Err(LoadError::Row(row));
        load(
            &self.blobs,
            files,
            self.options(memory, fill),
            &stop,
            &|_| {},
        )
    }

    /// Loads a file without its bad rows, which it lists.
    fn load_and_list(&self, file: PathBuf) -> (Loaded, Vec<BadRow>) {
        let bad = Mutex::new(Vec::new());
        let keep = |row| {
            bad.lock().unwrap().push(row);
            Ok(())
        };
        let options = self.options(MEMORY_MIN, false);
        let loaded = load(&self.blobs, &[file], options, &keep, &|_| {}).unwrap();
        (loaded, bad.into_inner().unwrap())
    }

    /// Loads one file with the default memory, and returns the error as text.
    fn error(&self, text: &str) -> String {
        let file = self.file("rows.csv", text);
        self.load(&[file], MEMORY_MIN, false)
            .unwrap_err()
            .to_string()
    }

    fn counts(&self, runs: &[RunEntry]) -> Counts {
        let mut counts = Counts::new();
        for entry in runs {
            verify_run(&self.blobs, entry).unwrap();
            let run = Run::open(&self.blobs, &entry.name).unwrap();
            let mut cursor = run.cursor();
            while cursor.advance().unwrap() {
                let (key, payload) = cursor.line().unwrap().unwrap();
                if line::kind_of(key) == Some(Kind::Lookup) {
                    continue;
                }
                for (name, count) in line::entries(payload).flatten() {
                    let place = [key, b",", name].concat();
                    counts.insert(String::from_utf8(place).unwrap(), count);
                }
            }
        }
        counts
    }
}

#[derive(Debug, Clone)]
struct Click {
    key: String,
    hour: i64,
    count: u64,
    country: &'static str,
}

fn click() -> impl Strategy<Value = Click> {
    let key = prop_oneof!["[ab]{1,3}", Just("http://a.example/,\"x\"\n".to_owned())];
    // Both sides of a closed year, and of months in open years.
    let hour = prop_oneof![
        1_325_370_000..1_325_380_000_i64,
        1_330_550_000..1_330_570_000_i64
    ];
    let country = prop_oneof![
        Just("US"),
        Just("JP"),
        Just("a long country name"),
        Just("")
    ];
    (key, hour, 1..1_000_u64, country).prop_map(|(key, hour, count, country)| Click {
        key,
        hour,
        count,
        country,
    })
}

/// Totals and breakdowns of some clicks as CSV rows.
fn rows(clicks: &[Click]) -> Vec<String> {
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let mut rows = Vec::new();
    for click in clicks {
        let key = quoted(&click.key);
        rows.push(format!("{},{key},{},u,,\n", click.count, click.hour));
        rows.push(format!(
            "{},{key},{},u,c,{}\n",
            click.count, click.hour, click.country
        ));
    }
    rows
}

const HEADER: &str = "count,key,hour,namespace,subtotal,value\n";

fn naive(clicks: &[Click], keys: &LongKeys) -> Counts {
    let mut counts = Counts::new();
    for click in clicks {
        let code =
            tallyring_records::TimeCode::containing(click.hour, tallyring_records::Grain::Hour);
        let key = keys.stored(&click.key);
        let value = match click.country {
            "" => "-".into(),
            country => keys.stored(country),
        };
        *counts.entry(format!("u|{key},{code}")).or_insert(0) += click.count;
        *counts
            .entry(format!("c.u|{key}.{code},{value}"))
            .or_insert(0) += click.count;
    }
    counts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn prop_the_same_rows_make_the_same_runs(
        clicks in prop::collection::vec(click(), 1..60),
        parts in 1..8_usize,
        seed in any::<u64>(),
    ) {
        let one = Stand::new();
        let file = one.file("all.csv", &(HEADER.to_owned() + &rows(&clicks).concat()));
        let whole = one.load(&[file], MEMORY_MIN, false).unwrap();
        prop_assert_eq!(one.counts(&whole.runs), naive(&clicks, &one.keys));
        prop_assert_eq!(whole.rows, 2 * clicks.len() as u64);

        let other = Stand::new();
        let mut shuffled = rows(&clicks);
        let mut state = seed | 1;
        for at in (1..shuffled.len()).rev() {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            shuffled.swap(at, (state % (at as u64 + 1)) as usize);
        }
        let files: Vec<PathBuf> = shuffled
            .chunks(shuffled.len().div_ceil(parts))
            .enumerate()
            .map(|(number, rows)| other.file(&format!("{number}.csv"), &(HEADER.to_owned() + &rows.concat())))
            .collect();
        // Every file fills this memory.
        let spilled = other.load(&files, 1, false).unwrap();
        prop_assert_eq!(&spilled.runs, &whole.runs);
        // Each thread may read a file before memory is found full.
        prop_assert!(spilled.spills > 0 || files.len() <= rayon::current_num_threads());
        let left = other.blobs.list(names::INCOMING).unwrap();
        prop_assert_eq!(left.len(), whole.runs.len());
    }
}

#[test]
fn compressed_files_and_json_lines_load_as_plain_csv_does() {
    let stand = Stand::new();
    let csv = "namespace,key,hour,count\nl,abc,2012-03-16T18:00:00Z,5\nl,abc,1331920800,2\n";
    let json = "{\"namespace\":\"l\",\"key\":\"abc\",\"hour\":\"2012-03-16T18:00:00Z\",\"count\":5}\n\
                {\"namespace\":\"l\",\"key\":\"abc\",\"hour\":1331920800,\"count\":2}\n";
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(csv.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    let zstd = zstd::encode_all(csv.as_bytes(), 1).unwrap();
    let mut loaded = Vec::new();
    for content in [
        csv.as_bytes(),
        json.as_bytes(),
        &gzip,
        &zstd,
        format!("\u{feff}{csv}").as_bytes(),
    ] {
        let path = stand.root.path().join("input");
        std::fs::write(&path, content).unwrap();
        loaded.push(stand.load(&[path], MEMORY_MIN, false).unwrap().runs);
    }
    assert!(loaded.windows(2).all(|pair| pair[0] == pair[1]));
    let expected = Counts::from([("l|abc,c3gi".to_owned(), 7)]);
    assert_eq!(stand.counts(&loaded[0]), expected);
}

#[test]
fn bad_rows_are_named_by_file_and_line() {
    let stand = Stand::new();
    let row = |row: &str| {
        stand.error(&format!(
            "namespace,key,hour,count,subtotal,value\nl,a,1331920800,1,,\n{row}\n"
        ))
    };
    for (bad, expected) in [
        (
            "x,a,1331920800,1,,",
            "line 3: `namespace` must be one of l, u, d; got `x`",
        ),
        ("l,,1331920800,1,,", "line 3: `key` is empty"),
        (
            "l,a,noon,1,,",
            "line 3: `hour` is `noon`; write Unix seconds",
        ),
        ("l,a,1331920800,-1,,", "line 3: `count` is `-1`"),
        (
            "l,a,1331920800,1,q,x",
            "line 3: `subtotal` is `q`; `l` declares c, r, v",
        ),
        (
            "l,a,1331920800,1,,x",
            "line 3: `value` is `x`, but `subtotal` is empty",
        ),
        ("l,a,1331920800", "line 3: it has 3 fields, the header 6"),
        ("\"l\",\"a\n\",1331920800,x,,", "line 3: `count` is `x`"),
        (
            "l,\"foo\" bar,1331920800,1,,",
            "line 3: a quoted field goes on behind its closing quote",
        ),
        (
            "l,\"foo,1331920800,1,,",
            "line 3: a quoted field lacks its closing quote",
        ),
    ] {
        let error = row(bad);
        assert!(error.contains(expected), "{bad}: {error}");
        assert!(error.contains("rows.csv line 3"), "{error}");
    }
}

#[test]
fn bad_rows_can_be_left_out() {
    let stand = Stand::new();
    let file = stand.file(
        "rows.csv",
        "namespace,key,hour,count\nl,a,1331920800,1\nl,a,x,1\nl,a,1331920800,2\n",
    );
    let (loaded, bad) = stand.load_and_list(file);
    assert_eq!(loaded.rows, 2);
    assert_eq!(
        (bad.len(), bad[0].line, bad[0].text.as_slice()),
        (1, 3, &b"l,a,x,1"[..])
    );
}

#[test]
fn an_unclosed_quote_spoils_only_its_line() {
    const ROWS: usize = 600_000;
    let stand = Stand::new();
    const HEADER_SHORT: &str = "namespace,key,hour,count\n";
    let mut text = format!("{HEADER_SHORT}l,\"a,1331920800,1\n");
    text.push_str(&"l,a,1331920800,1\n".repeat(ROWS));
    assert!(text.len() > 9 << 20, "more than a record can be");
    let (loaded, bad) = stand.load_and_list(stand.file("rows.csv", &text));
    assert_eq!(loaded.rows, ROWS as u64);
    assert_eq!((bad.len(), bad[0].line), (1, 2));
    // A file in which this goes on line after line is not valid, and is not read to its end.
    let text = format!(
        "{HEADER_SHORT}{}",
        "l,a\",\"1331920800\",\"1\n".repeat(ROWS)
    );
    let error = stand.error(&text);
    assert!(error.contains("closing quote"), "{error}");
    let file = stand.file("rows.csv", &text);
    let skip = |_| Ok(());
    let options = stand.options(MEMORY_MIN, false);
    let error = load(&stand.blobs, &[file], options, &skip, &|_| {}).unwrap_err();
    assert!(
        error.to_string().contains("line 18 is longer than 8 MiB"),
        "{error}"
    );
}

#[test]
fn breakdowns_balance_or_are_filled() {
    let stand = Stand::new();
    let header = "namespace,key,hour,count,subtotal,value\n";
    let total = "l,http://a.example/,1331920800,5,,\n";
    let part = |count: u64| format!("l,http://a.example/,1331920800,{count},c,US\n");
    let error = stand.error(&format!("{header}{total}{}", part(3)));
    assert_eq!(
        error,
        "the breakdown by c of l/http://a.example/ at 2012-03-16T18:00:00Z: the values sum to 3, but the total is \
         5; add the missing counts, or load with --fill to count them under `-`"
    );
    assert!(
        stand
            .error(&format!("{header}{total}{}", part(6)))
            .contains("the total is only 5")
    );
    assert!(
        stand
            .error(&format!("{header}{}", part(6)))
            .contains("there is no total")
    );
    let file = stand.file("rows.csv", &format!("{header}{total}{}", part(3)));
    let filled = stand.load(&[file], MEMORY_MIN, true).unwrap();
    let counts = stand.counts(&filled.runs);
    let values: Vec<(&str, u64)> = counts
        .iter()
        .map(|(place, &count)| (place.rsplit(',').next().unwrap(), count))
        .collect();
    assert_eq!(values, [("-", 2), ("US", 3), ("c3gi", 5)]);
}

#[test]
fn days_stand_before_their_hours_and_their_breakdowns_balance_apart() {
    let stand = Stand::new();
    let header = "namespace,key,hour,count,subtotal,value,unit\n";
    let rows = [
        "l,abc,2012-03-15T00:00:00Z,1,,,hour\n",
        "l,abc,2012-03-15T23:59:00Z,2,,,\n",
        "l,abc,2012-03-15,3,,,day\n",
        "l,abc,2012-03-15T12:00:00Z,4,,,day\n",
        "l,abc,2012-03-15,7,c,US,day\n",
        "l,abc,2012-03-15T00:00:00Z,1,c,JP,quarter\n",
    ];
    let expected = [
        ("c.l|abc.c3f,US", 7),
        ("c.l|abc.c3f0,JP", 1),
        ("l|abc,c3f", 7),
        ("l|abc,c3f0", 1),
        ("l|abc,c3fn", 2),
    ];
    let expected: Counts = expected.map(|(place, n)| (place.to_owned(), n)).into();
    let file = stand.file("rows.csv", &(header.to_owned() + &rows.concat()));
    for memory in [MEMORY_MIN, 1] {
        let loaded = stand
            .load(std::slice::from_ref(&file), memory, false)
            .unwrap();
        assert_eq!(stand.counts(&loaded.runs), expected);
    }
    let error = stand.error(&format!("{header}{}{}", rows[0], rows[4]));
    assert!(
        error.contains("at 2012-03-15T00:00:00Z: the values sum to 7, but there is no total"),
        "{error}"
    );
    let error = stand.error(&format!("{header}l,abc,2012-03-15,3,,,week\n"));
    assert!(error.contains("line 2: `unit` is `week`"), "{error}");
}

#[test]
fn missing_counts_of_a_crossed_breakdown_are_filled() {
    let mut stand = Stand::new();
    for namespace in &mut stand.schema.namespaces {
        namespace.subtotals.push("c*r".to_owned());
    }
    let header = "namespace,key,hour,count,subtotal,value\n";
    let total = "l,http://a.example/,1331920800,5,,\n";
    let crossed = "l,http://a.example/,1331920800,1,c*r,*\n\
                   l,http://a.example/,1331920800,3,c*r,US*x\n";
    let file = stand.file("rows.csv", &format!("{header}{total}{crossed}"));
    let filled = stand.load(&[file], MEMORY_MIN, true).unwrap();
    let counts = stand.counts(&filled.runs);
    let missing = counts.iter().find(|(place, _)| place.ends_with(",-*-"));
    assert_eq!(missing.map(|(_, &count)| count), Some(2));
    assert!(!counts.keys().any(|place| place.ends_with(",-")));
}

#[test]
fn a_key_and_hour_without_any_row_of_a_breakdown_is_no_error() {
    let stand = Stand::new();
    let header = "namespace,key,hour,count,subtotal,value\n";
    let total = "l,http://a.example/,1331920800,5,,\n";
    let file = stand.file("rows.csv", &format!("{header}{total}"));
    assert!(stand.load(&[file], MEMORY_MIN, false).is_ok());
}

#[test]
fn counts_that_no_counter_holds_are_refused() {
    let stand = Stand::new();
    let row = "l,a,1331920800,9007199254740991\n";
    let later = "l,a,2025-03-01T00:00:00Z,9007199254740991\n";
    // The first bucket in time is named, in whatever order the rows are.
    let error = stand.error(&format!(
        "namespace,key,hour,count\n{later}{later}{row}{row}"
    ));
    assert!(
        error.contains("the count of l/a at 2012-03-16T18:00:00Z"),
        "{error}"
    );
}

#[test]
fn files_that_are_no_input_are_refused() {
    let stand = Stand::new();
    assert!(stand.error("").contains("it has no header"));
    assert!(stand.error("a,b\n").contains("unknown column `a`"));
    let missing = stand
        .load(&[stand.root.path().join("no.csv")], MEMORY_MIN, false)
        .unwrap_err();
    assert!(missing.to_string().contains("cannot read"), "{missing}");
    let open = format!("namespace,key,hour,count\nl,\"{}", "x".repeat(9 << 20));
    let error = stand.error(&open);
    assert!(
        error.contains("begins at line 2 is longer than 8 MiB"),
        "{error}"
    );
}

#[test]
fn empty_files_are_parts_without_rows_unless_there_are_no_others() {
    let stand = Stand::new();
    let header = "namespace,key,hour,count\n";
    let empty = stand.file("part-0.csv", "");
    let rows = stand.file("part-1.csv", &format!("{header}l,a,1331920800,1\n"));
    let none = stand.file("part-2.csv", header);
    let files = [empty.clone(), rows, empty.clone()];
    let loaded = stand.load(&files, MEMORY_MIN, false).unwrap();
    assert_eq!(loaded.rows, 1);
    let named: Vec<bool> = loaded
        .empty
        .iter()
        .map(|file| file.ends_with("part-0.csv"))
        .collect();
    assert_eq!(named, [true, true]);
    let loaded = stand.load(&[empty.clone(), none], MEMORY_MIN, false);
    assert_eq!(loaded.unwrap().rows, 0, "a header is an answer");
    for others in [vec![], vec![empty.clone()]] {
        let files = [vec![empty.clone()], others].concat();
        let refused = stand.load(&files, MEMORY_MIN, false).unwrap_err();
        let refused = refused.to_string();
        assert!(
            refused.contains("part-0.csv: it has no header"),
            "{refused}"
        );
    }
}

#[test]
fn a_sum_that_no_counter_holds_is_refused_whether_memory_was_written_out_between_or_not() {
    let stand = Stand::new();
    let row = format!("{HEADER}{COUNT_MAX},abc,1331920800,l,,\n");
    let files: Vec<PathBuf> = (0..32)
        .map(|number| stand.file(&format!("{number}.csv"), &row))
        .collect();
    // One thread finds memory full after every file, so no two files are summed before they are written.
    let threads = rayon::ThreadPoolBuilder::new().num_threads(1);
    let one = threads.build().unwrap();
    for memory in [MEMORY_MIN, 1] {
        let loaded = one.install(|| stand.load(&files, memory, false));
        let error = loaded.unwrap_err().to_string();
        let expected = ["l/abc", "2012-03-16T18:00:00Z", "which no counter can hold"];
        assert!(expected.iter().all(|part| error.contains(part)), "{error}");
    }
}
