//! A person who is forgotten, in a data directory with a backup.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tallyring_tests::server::{Server, tallyring, tallyring_ok, wait_until};
use tempfile::TempDir;

use crate::stored::text;

/// A name that stands nowhere else.
const ANN: &str = "ann-of-the-first-events";

fn impression(id: &str, user: &str) -> Value {
    json!({"id": id, "type": "impression", "at": "2012-03-16T12:00:00Z", "user": user, "insertion": "i",
        "entities": {"ad": "42"}})
}

fn posted(server: &Server, path: &str, body: &Value) -> Value {
    let answer = server.client().post_with(
        path,
        &[("content-type", "application/json")],
        body.to_string().as_bytes(),
    );
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    answer.json()
}

fn seen(server: &Server, user: &str) -> u64 {
    let question = json!({"users": [user], "ranges": ["30d"], "action": ["impression"], "entity": {"ad": ["42"]}});
    let answer = posted(server, "/v1/actions/query", &question);
    let seen = &answer["users"][user]["30d"]["impression"]["ad"]["42"];
    seen.as_u64().expect("a count")
}

/// The estimate of distinct users of the ad.
fn distinct(server: &Server) -> u64 {
    let answer = server.get_json("/v1/ad_impression/42/uniques?unit=day&units=20");
    answer["estimate"].as_u64().expect("an estimate")
}

fn recount_says_who_is_missing(data: &Path) {
    let told = tallyring(&["recount", "--data", text(data)]);
    assert!(
        told.code == 0 && told.stderr.contains("the log lacks users who were erased"),
        "{told:?}"
    );
}

/// Files below a directory that hold these bytes as they are.
fn naming(directory: &Path, bytes: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("a directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(naming(&path, bytes));
        } else if let Ok(content) = fs::read(&path)
            && content
                .windows(bytes.len())
                .any(|window| window == bytes.as_bytes())
        {
            found.push(path.display().to_string());
        }
    }
    found
}

/// A data directory with a backup.
struct Place {
    root: TempDir,
}

impl Place {
    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn new(log_days: u32) -> Self {
        let root = tempfile::tempdir().expect("a directory");
        let place = Self { root };
        let (backup, copy) = (place.path("backup"), place.path("copy"));
        let config = format!(
            "[backup]\npath = {:?}\n[log_copy]\npath = {:?}\n[oplog]\nkeep_days = {log_days}\n",
            text(&backup),
            text(&copy)
        );
        fs::write(place.path("t.toml"), config).expect("written");
        place
    }

    /// A server at one o'clock of a day.
    fn on(&self, day: &str) -> Server {
        let clock = format!("{day}T13:00:00Z@0");
        let config = self.path("t.toml");
        let arguments = ["--clock", &clock, "--config", text(&config)];
        Server::start(&self.path("data"), &arguments)
    }

    fn rebuild(&self) {
        let (data, config) = (self.path("data"), self.path("t.toml"));
        tallyring_ok(&["rebuild", "--data", text(&data), "--config", text(&config)]);
    }

    /// The report about erased users, of the data directory and the copy of its log, or of its backup.
    fn erased(&self, name: &str) -> Value {
        let (directory, config) = (self.path(name), self.path("t.toml"));
        let mut command = vec!["--output", "json", "verify", "--erased", "--data"];
        command.push(text(&directory));
        if name == "data" {
            command.extend(["--config", text(&config)]);
        }
        let told = tallyring(&command);
        let report: Value = serde_json::from_str(&told.stdout).expect("a report");
        assert_eq!(report["findings"], json!([]), "{report}");
        let left = report["erased"].clone();
        let nothing = [json!({}), json!([]), json!(0), Value::Null];
        let places = ["files", "unread", "log_records", "log_copy_records"];
        let is_left = places.iter().any(|place| !nothing.contains(&left[place]));
        assert_eq!(told.code == 0, !is_left, "{report}");
        left
    }
}

#[test]
fn an_erased_person_leaves_answers_at_once_files_by_night_and_the_log_in_time() {
    let place = Place::new(7);
    let server = place.on("2012-03-16");
    let user = |number: u64| if number.is_multiple_of(2) { ANN } else { "bob" };
    let events = (0..20).map(|number| impression(&format!("e{number}"), user(number)));
    posted(
        &server,
        "/v1/events",
        &Value::from(events.collect::<Vec<_>>()),
    );
    server.terminate();
    let server = place.on("2012-03-17");
    place.rebuild();
    let both = |server: &Server| [ANN, "bob"].map(|user| seen(server, user));
    assert_eq!(both(&server), [10, 10]);
    assert_eq!(place.erased("data")["users"], 0);

    posted(&server, "/v1/users/erase", &json!({"user": ANN}));
    assert_eq!(both(&server), [0, 10]);
    server.kill9();
    let server = place.on("2012-03-17");
    assert_eq!(both(&server), [0, 10]);
    let left = place.erased("data");
    assert_eq!(
        (&left["users"], &left["log_records"]),
        (&json!(1), &json!(10)),
        "{left}"
    );
    assert!(left["files"] != json!({}), "{left}");

    posted(&server, "/v1/events", &impression("again", ANN));
    place.rebuild();
    for name in ["data", "backup"] {
        assert_eq!(place.erased(name)["files"], json!({}));
    }
    assert_eq!(both(&server), [1, 10]);
    server.terminate();

    // The event that came later is of the 17th, and its segment may go with the older one.
    let server = place.on("2012-03-26");
    place.rebuild();
    for name in ["data", "backup"] {
        assert_eq!(place.erased(name)["log_records"], 0);
        assert_eq!(naming(&place.path(name), ANN), Vec::<String>::new());
    }
    assert_eq!(both(&server), [1, 10]);
    let counts = server.get_json("/v1/ad_impression/42/counts?unit=day&units=20");
    assert_eq!(counts["total"], 21, "counts stay: {counts}");
    server.terminate();
    tallyring_ok(&["verify", "--deep", "--data", text(&place.path("data"))]);
}

#[test]
fn a_log_that_is_kept_for_long_loses_an_erased_person_within_nights() {
    let place = Place::new(30);
    let server = place.on("2012-03-16");
    let mut events: Vec<Value> = (0..20)
        .map(|number| impression(&format!("e{number}"), [ANN, "bob"][number % 2]))
        .collect();
    events[0]["meta"] = json!({"page": ANN});
    posted(&server, "/v1/events", &Value::from(events));
    server.terminate();
    let server = place.on("2012-03-17");
    place.rebuild();
    posted(&server, "/v1/users/erase", &json!({"user": ANN}));
    let left = place.erased("data");
    assert_eq!(
        [&left["log_records"], &left["log_copy_records"]],
        [&json!(10); 2]
    );
    server.terminate();

    let server = place.on("2012-03-18");
    place.rebuild();
    wait_until("neither the log nor its copy names the person", || {
        let left = place.erased("data");
        left["log_records"] == 0 && left["log_copy_records"] == 0
    });
    tallyring_ok(&[
        "backup",
        text(&place.path("backup")),
        "--data",
        text(&place.path("data")),
    ]);
    assert_eq!(place.erased("backup")["log_records"], 0);
    for name in ["data", "copy", "backup"] {
        assert_eq!(naming(&place.path(name), ANN), Vec::<String>::new());
    }
    assert_eq!(distinct(&server), 2, "no estimate tells of one person");
    // The events are still there, and count.
    let event = server.get_json("/v1/events/e0");
    assert_eq!(
        (&event["verdict"], &event["counted"]["user"]),
        (&json!("corrected"), &Value::Null),
        "{event}"
    );
    let counts = server.get_json("/v1/ad_impression/42/counts?unit=day&units=20");
    assert_eq!(counts["total"], 20, "{counts}");
    server.terminate();
    let data = place.path("data");
    let day = ["--output", "json", "cat", "oplog", "--day", "2012-03-16"];
    let events = tallyring_ok(&[&day[..], &["--data", text(&data)]].concat());
    assert_eq!(events.lines().count(), 20, "{events}");
    assert!(!events.contains(ANN) && events.contains("bob"), "{events}");
    // Nobody knows what is in a file that no start could place.
    let aside = data.join("aside");
    fs::create_dir_all(&aside).expect("a directory");
    fs::write(aside.join("00000001.runs.x"), ANN).expect("written");
    let left = place.erased("data");
    assert_eq!(left["unread"], json!(["aside/00000001.runs.x"]), "{left}");
    fs::remove_dir_all(&aside).expect("removed");
    assert_eq!(place.erased("data")["unread"], json!([]));
    recount_says_who_is_missing(&data);
    tallyring_ok(&["verify", "--deep", "--data", text(&data)]);
    let server = place.on("2012-03-18");
    assert_eq!(distinct(&server), 1, "nothing tells of her any more");
    let counts = server.get_json("/v1/ad_impression/42/counts?unit=day&units=20");
    assert_eq!(counts["total"], 20, "{counts}");
    server.terminate();
}
