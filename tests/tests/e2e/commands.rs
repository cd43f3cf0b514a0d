//! Commands beside a server, through it, and without one.

use std::fs;

use serde_json::{Value, json};
use tallyring_tests::server::{Server, binary, tallyring, tallyring_ok, wait_until};

use crate::stored::{Stored, text};

fn json_of(arguments: &[&str]) -> Value {
    serde_json::from_str(&tallyring_ok(arguments)).expect("JSON")
}

#[test]
fn a_second_server_on_one_directory_ends_with_1_and_names_the_first() {
    let stored = Stored::new();
    let server = stored.serve("2012-03-16T12:00:00Z");
    let second = tallyring(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data",
        stored.argument(),
    ]);
    assert_eq!(second.code, 1, "{second:?}");
    let process = format!("process {}", server.pid());
    assert!(second.stderr.contains(&process), "{second:?}");
    assert!(second.stderr.contains(server.url()), "{second:?}");
    assert_eq!(
        server.get("/v1/incr?key.l=a").status,
        204,
        "the first goes on"
    );
}

#[test]
fn rebuild_works_without_a_server_and_through_a_running_one() {
    let stored = Stored::new();
    let server = stored.serve("2012-03-16T12:00:00Z");
    assert_eq!(server.get("/v1/incr?key.l=a&n=5").status, 204);
    server.terminate();
    // Past midnight, but before the server would rebuild by itself.
    let clock = "2012-03-17T00:01:00Z@0";
    stored.serve(clock).terminate();
    let rebuild = ["rebuild", "--data", stored.argument()];
    assert_eq!(tallyring_ok(&rebuild), "generation 1 is published\n");
    assert_eq!(
        tallyring_ok(&rebuild),
        "generation 1 stands: nothing is new, or too little to be worth a rewrite of its month\n"
    );
    let server = stored.serve(clock);
    assert_eq!(server.status()["generation"], 1);
    let late = server.get("/v1/incr?key.l=a&n=2&at=2012-03-16T12:00:00Z");
    assert_eq!(late.status, 204);
    let through = [&rebuild[..], &["--output", "json"]].concat();
    assert_eq!(json_of(&through), json!({"generation": 2}));
    assert_eq!(server.status()["generation"], 2);
    let total = server.get_json("/v1/l/a/counts?unit=day&units=2")["total"].clone();
    assert_eq!(total, 7);
}

#[test]
fn query_answers_the_same_from_the_files_as_through_the_server() {
    let stored = Stored::with_a_file_of_every_kind();
    let long = "l/a link with blanks, commas and more";
    let range = [
        "--from",
        "2012-03-15T00:00:00Z",
        "--until",
        "2012-03-18T23:00:00Z",
    ];
    let mut questions = Vec::new();
    for key in ["u/somebody", "l/link7", long, "l/never"] {
        for unit in ["hour", "day"] {
            for zone in ["UTC", "Asia/Kolkata"] {
                questions.push(
                    [
                        &["query", key, "--unit", unit, "--timezone", zone],
                        &range[..],
                    ]
                    .concat(),
                );
            }
        }
        let by = ["query", key, "--by", "r", "--limit", "3"];
        questions.push([&by, &range[..]].concat());
    }
    // `settled_until` depends on the clock alone, and with it the state of days that are not final.
    let ask = |question: &[&str], place: &[&str]| {
        let mut answer = json_of(&[question, place, &["--output", "json"]].concat());
        for field in ["settled_until", "state"] {
            let of_clock = answer.as_object_mut();
            let of_clock = of_clock.and_then(|answer| answer.remove(field));
            assert!(of_clock.is_some(), "{field}: {answer}");
        }
        answer
    };
    let files: Vec<Value> = questions
        .iter()
        .map(|question| ask(question, &["--data", stored.argument()]))
        .collect();
    let server = stored.serve("2012-03-18T12:00:00Z");
    for (question, expected) in questions.iter().zip(&files) {
        let found = ask(question, &["--data", stored.argument()]);
        assert_eq!(found, *expected, "through the directory: {question:?}");
        let found = ask(question, &["--to", server.url()]);
        assert_eq!(found, *expected, "through the URL: {question:?}");
    }
    assert_eq!(files[0]["total"], 760, "{}", files[0]);
    let table = tallyring_ok(&["query", "u/somebody", "--data", stored.argument()]);
    assert!(table.starts_with("u/somebody by day in UTC\n"), "{table}");
    let csv = [
        &questions[4][..],
        &["--data", stored.argument(), "--output", "csv"],
    ]
    .concat();
    let csv = tallyring_ok(&csv);
    assert!(csv.starts_with("value,count,kind\n"), "{csv}");
}

#[test]
fn usage_errors_end_with_2_and_say_what_to_change() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = text(directory.path());
    let bad = directory.path().join("bad.toml");
    fs::write(&bad, "[ids]\nwindow_hours = 1\n").expect("write the configuration");
    let cases: [(&[&str], &str); 8] = [
        (
            &["serve", "--listen", "0.0.0.0:0", "--data", data],
            "127.0.0.1",
        ),
        (
            &["serve", "--listen", "[::]:0", "--data", data],
            "127.0.0.1",
        ),
        (&["serve", "--clock", "noon", "--data", data], "RFC 3339"),
        (
            &["serve", "--config", text(&bad), "--data", data],
            "ids.window_hours",
        ),
        (&["config", "check", text(&bad)], "ids.window_hours"),
        (&["config", "check", "missing.toml"], "missing.toml"),
        (&["query", "/abc", "--data", data], "NAMESPACE/KEY"),
        (
            &["load", "a b", "missing.csv", "--data", data],
            "cannot be the name of a dataset",
        ),
    ];
    for (arguments, named) in cases {
        let finished = tallyring(arguments);
        assert_eq!(finished.code, 2, "{arguments:?}: {finished:?}");
        assert!(
            finished.stderr.contains(named),
            "{arguments:?}: {finished:?}"
        );
        assert_eq!(finished.stdout, "", "{arguments:?}");
    }
    assert!(!directory.path().join("oplog").exists(), "nothing was made");
}

#[test]
fn the_default_configuration_is_printed_and_can_be_used() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("tallyring.toml");
    fs::write(&path, tallyring_ok(&["config", "default"])).expect("write the configuration");
    let explained = tallyring_ok(&["config", "check", text(&path)]);
    assert!(
        explained.starts_with("The configuration can be used."),
        "{explained}"
    );
    for line in [
        "  4 shards, acknowledges what is synced to the disk\n",
        "  counts l (Link) by hours, broken down by c (country), r (referrer), v (device)\n",
        "  counts ad_click (Ad click) by hours, with minutes and distinct users, broken down by country, device, country*device (country × device)\n",
    ] {
        assert!(explained.contains(line), "{line} is not in {explained}");
    }
    let cap = "[caps.ad_day]\nentity = \"ad\"\naction = \"impression\"\nlimit = 3\nwithin = \"24h\"\nview = [\"home\"]\n";
    fs::write(&path, cap).expect("write one with a cap");
    let capped = tallyring_ok(&["config", "check", text(&path)]);
    for line in [
        "  keeps what users did (click, impression) for 32 days, and reservations in memory\n",
        "  cap ad_day: at most 3 × impression of one ad within 24h for each user, on home\n",
    ] {
        assert!(capped.contains(line), "{line} is not in {capped}");
    }
    fs::write(&path, "[[namespace]]\nname = \"x\"\n").expect("write a bare one");
    let bare = tallyring_ok(&["config", "check", text(&path)]);
    let line = "  counts x by hours, broken down by nothing\n";
    assert!(bare.ends_with(line), "{bare}");
    fs::write(&path, tallyring_ok(&["config", "default"])).expect("write the configuration");
    let data = directory.path().join("data");
    let server = Server::start(&data, &["--config", text(&path)]);
    assert_eq!(server.get("/v1/incr?key.l=a").status, 204);
    server.terminate();
}

#[test]
fn a_directory_that_cannot_be_read_ends_with_1() {
    let directory = tempfile::tempdir().expect("a directory");
    let missing = directory.path().join("missing");
    for arguments in [
        &["query", "l/a", "--data", text(&missing)][..],
        &["cat", "oplog", "--data", text(&missing)],
        &["query", "l/a", "--to", "http://127.0.0.1:1"],
    ] {
        let finished = tallyring(arguments);
        assert_eq!(finished.code, 1, "{arguments:?}: {finished:?}");
        assert!(finished.stderr.starts_with("error: "), "{finished:?}");
    }
    let empty = text(directory.path());
    let finished = tallyring(&["query", "l/a", "--data", empty]);
    assert_eq!(finished.code, 1, "{finished:?}");
    let left = fs::read_dir(directory.path()).expect("list it").count();
    assert_eq!(left, 0, "reading made files");
}

#[test]
fn everything_acknowledged_before_sigterm_is_there_after_a_restart() {
    let stored = Stored::new();
    let server = stored.serve("2012-03-16T12:00:00Z");
    let acknowledged = std::sync::atomic::AtomicU64::new(0);
    let count = || acknowledged.load(std::sync::atomic::Ordering::SeqCst);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let client = server.client().clone();
            let acknowledged = &acknowledged;
            scope.spawn(move || {
                while let Ok(answer) = client.try_post("/v1/incr?key.l=a", &[], b"") {
                    // While it drains it may say that it stops, but never lose what it took.
                    match answer.status {
                        204 => acknowledged.fetch_add(1, std::sync::atomic::Ordering::SeqCst),
                        503 => continue,
                        _ => panic!("{answer:?}"),
                    };
                }
            });
        }
        wait_until("the load runs", || count() > 200);
        server.terminate();
    });
    let server = stored.serve("2012-03-16T12:00:00Z");
    let total = server.get_json("/v1/l/a/counts")["total"].clone();
    assert_eq!(total, count());
    assert_eq!(
        server.status()["oplog"]["unflushed_records"],
        1,
        "it was flushed: only the note of the last manifest follows"
    );
}

#[test]
fn the_version_and_the_help_are_printed() {
    assert!(binary().exists());
    assert!(tallyring_ok(&["--version"]).starts_with("tallyring "));
    let help = tallyring_ok(&["--help"]);
    for command in [
        "serve", "send", "query", "rebuild", "verify", "cat", "config",
    ] {
        assert!(
            help.contains(&format!("  {command} ")),
            "{command} is not in {help}"
        );
    }
}

#[test]
fn commands_without_a_configuration_keep_what_the_store_was_given() {
    let directory = tempfile::tempdir().expect("a directory");
    let (data, config) = (
        directory.path().join("data"),
        directory.path().join("c.toml"),
    );
    let settings = "shards = 2\n[minutes]\nkeep_days = 400\n[[namespace]]\nname = \"page\"\nsubtotals = [\"c\"]\nminutes = true\n";
    std::fs::write(&config, settings).expect("written");
    let [data, config] = [&data, &config].map(|path| path.to_str().expect("a path of text"));
    let clock = "2026-11-21T12:00:00Z@0";
    let given = ["--clock", clock, "--config", config];
    let start = |arguments: &[&str]| Server::start(std::path::Path::new(data), arguments);
    let server = start(&given);
    let item = json!([{"at": "2026-09-10T10:07:00Z", "keys": {"page": "abc"}}]);
    assert_eq!(server.post("/v1/increments", item.to_string()).status, 200);
    server.client().rebuild();
    server.terminate();
    for _ in 0..4 {
        let rows = directory.path().join("rows.csv");
        let text = "namespace,key,hour,count\npage,other,2025-05-01T10:00:00Z,1\n";
        std::fs::write(&rows, text).expect("written");
        let rows = rows.to_str().expect("a path of text");
        tallyring_ok(&["load", "more", rows, "--replace", "--data", data]);
        tallyring_ok(&["rebuild", "--data", data]);
    }
    let told = tallyring_ok(&[
        "query", "page/abc", "--unit", "year", "--units", "1", "--data", data,
    ]);
    assert!(told.contains("page/abc"), "{told}");
    for arguments in [&given[..], &given[..2]] {
        let server = start(arguments);
        let minutes =
            "/v1/page/abc/counts?unit=minute&from=2026-09-10T10:05:00Z&to=2026-09-10T10:09:00Z";
        assert_eq!(server.get_json(minutes)["total"], 1, "{arguments:?}");
        server.terminate();
    }
    let archive = std::fs::read_dir(std::path::Path::new(data).join("archive")).expect("files");
    for file in archive {
        let name = file.expect("a file").file_name();
        assert!(name.to_string_lossy().contains("of02."), "{name:?}");
    }
}

#[test]
fn hours_that_were_folded_into_days_say_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let (data, config) = (
        directory.path().join("data"),
        directory.path().join("c.toml"),
    );
    std::fs::write(&config, "[hours]\nkeep_days = 40\n").expect("written");
    let config = config.to_str().expect("a path of text");
    let server = Server::start(
        &data,
        &["--clock", "2012-03-15T12:00:00Z@0", "--config", config],
    );
    let item = |hour: u32, n: u32| json!({"at": format!("2012-01-10T{hour:02}:00:00Z"), "n": n, "keys": {"l": "a"}});
    let items = json!([item(9, 11), item(11, 100)]);
    assert_eq!(server.post("/v1/increments", items.to_string()).status, 200);
    server.client().rebuild();
    let status = server.status();
    assert_eq!(
        status["archive"]["hours_from"], "2012-02-01T00:00:00Z",
        "{status:#}"
    );
    let within = "from=2012-01-10T08:00:00Z&to=2012-01-10T12:00:00Z";
    for (read, aligned, total) in [
        (format!("counts?unit=hour&{within}"), false, 0),
        (format!("summary?unit=hour&{within}"), false, 0),
        (format!("by/c?unit=hour&{within}"), false, 0),
        (
            "counts?unit=day&from=2012-01-10T00:00:00Z&to=2012-01-10T12:00:00Z".into(),
            true,
            111,
        ),
        (
            "counts?unit=month&units=1&to=2012-01-31T00:00:00Z&timezone=America/New_York".into(),
            false,
            111,
        ),
    ] {
        let answer = server.get_json(&format!("/v1/l/a/{read}"));
        assert_eq!(
            (&answer["aligned"], &answer["total"]),
            (&json!(aligned), &json!(total)),
            "{read}: {answer}"
        );
    }
}
