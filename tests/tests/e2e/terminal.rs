//! The command line as people see it: the state, rankings, a demonstration, completions and manuals.

use serde_json::{Value, json};
use tallyring_tests::server::{Server, tallyring, tallyring_ok, wait_until};
use tempfile::TempDir;

#[test]
fn the_state_is_shown_by_the_server_that_holds_the_directory() {
    let data = TempDir::new().unwrap();
    let path = data.path().to_str().unwrap();
    let none = tallyring(&["status", "--data", path]);
    assert_eq!(none.code, 1, "{none:?}");
    assert!(none.stderr.contains("is no data directory"), "{none:?}");
    let server = Server::start(data.path(), &[]);
    assert_eq!(server.get("/v1/incr?key.l=a").status, 204);
    for arguments in [["--data", path], ["--to", server.url()]] {
        let table = tallyring_ok(&[&["status"], &arguments[..]].concat());
        for line in [
            "state     ok, ",
            "today     day-",
            "log       at 1, ",
            "archive   generation 0, ",
            "backup    not configured; `path` in [backup]",
        ] {
            assert!(table.contains(line), "{table}");
        }
        let json = tallyring_ok(&[&["status", "--output", "json"], &arguments[..]].concat());
        let status: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(status["generation"], 0);
    }
    server.terminate();
    let stopped = tallyring(&["status", "--data", path]);
    assert_eq!(stopped.code, 1, "{stopped:?}");
    assert!(stopped.stderr.contains("no server holds"), "{stopped:?}");
}

#[test]
fn a_namespace_is_queried_as_a_whole_and_by_its_heaviest_keys() {
    let data = TempDir::new().unwrap();
    let path = data.path().to_str().unwrap();
    let server = Server::start(data.path(), &[]);
    for query in ["key.l=a&n=5", "key.l=b&n=2", "key.l=b&n=1"] {
        assert_eq!(server.get(&format!("/v1/incr?{query}")).status, 204);
    }
    let query =
        |arguments: &[&str]| tallyring_ok(&[&["query", "--data", path], arguments].concat());
    let top = query(&["l", "--top", "--units", "1", "--limit", "1"]);
    assert!(
        top.starts_with("top of l, ")
            && top.contains("\n              5   62.5%  ████████████████████  a\n"),
        "{top}"
    );
    assert!(
        top.contains("              3   37.5%                        (all others)\n"),
        "{top}"
    );
    let whole = query(&["l", "--units", "2"]);
    assert!(whole.starts_with("l by day in UTC\n▁█\n"), "{whole}");
    assert!(
        whole.ends_with("total                                 8\n"),
        "{whole}"
    );
    let users = query(&["ad_click/none", "--uniques", "--units", "1"]);
    assert!(users.contains("each user once"), "{users}");
    let keys = query(&["l", "--prefix", "", "--limit", "1"]);
    assert!(keys.starts_with("keys of l, "), "{keys}");
    let rows = "              5  ████████████████████  a\nmore: --page 'a'\n";
    assert!(keys.ends_with(rows), "{keys}");
    let keys = query(&["l", "--page", "a", "--output", "csv"]);
    assert_eq!(keys, "key,count,kind\nb,3,value\n");
    let none = query(&["l", "--contains", "c", "--sort", "count"]);
    assert!(none.ends_with("no key was found\n"), "{none}");
    let svg = query(&["l", "--output", "svg"]);
    assert!(svg.starts_with("<svg "), "{svg}");
    for wrong in [
        &["l/a", "--top"][..],
        &["l/a", "--prefix", "a"],
        &["l", "--prefix", "a", "--contains", "b"],
        &["l", "--sort", "name"],
        &["/a"],
        &["l/"],
        &["l", "--by", "c"],
        &["l", "--uniques"],
    ] {
        let refused = tallyring(&[&["query", "--data", path], wrong].concat());
        assert_eq!(refused.code, 2, "{wrong:?}: {refused:?}");
    }
    for (option, value) in [("--units", "0"), ("--hour-offset", "15")] {
        let refused = tallyring(&["query", "--data", path, "l/a", option, value]);
        assert_eq!(refused.code, 2, "{refused:?}");
        let said = format!("error: `{option}` ");
        assert!(refused.stderr.starts_with(&said), "{refused:?}");
        assert!(
            refused.stderr.contains(&format!("got `{value}`")),
            "{refused:?}"
        );
    }
}

#[test]
fn a_demonstration_has_history_and_traffic() {
    let data = TempDir::new().unwrap();
    let path = data.path().join("demo");
    let server = Server::start_as("demo", &path, &["--days", "2", "--rate", "5"]);
    let read = |server: &Server, query: &str| server.get_json(&format!("/v1/l/launch/{query}"));
    let counted = read(&server, "counts?unit=hour&units=49");
    assert_eq!(counted["generation"], 1);
    let counts = counted["counts"].as_array().unwrap();
    // Up to the present: every hour but this one, which may have just begun, and the minutes of its ads.
    let is_counted = |row: &Value| row["count"].as_u64() > Some(0);
    assert!(counts[..48].iter().all(is_counted), "{counted}");
    let minutes = server.get_json("/v1/ad_impression/42/counts?unit=minute&units=90");
    let minutes = minutes["counts"].as_array().unwrap();
    assert!(minutes[..85].iter().all(is_counted), "{minutes:?}");
    // The ads were seen and clicked by users on every day of the history, by some of them on both days.
    let yesterday = jiff::Timestamp::now().as_second() - 86_400;
    for namespace in ["ad_impression", "ad_click"] {
        let path = format!("/v1/{namespace}/42/uniques?unit=day&units=2&to={yesterday}");
        let users = server.get_json(&path);
        let days = users["counts"].as_array().unwrap().iter();
        let days: Vec<u64> = days.map(|day| day["estimate"].as_u64().unwrap()).collect();
        assert!(days[0] > 0 && days[1] > 100, "{users}");
        assert!(
            users["estimate"].as_u64() < Some(days.iter().sum()),
            "{users}"
        );
    }
    check_people(&server);
    let by = read(&server, "by/c?unit=hour&units=49");
    assert_eq!(by["values"][0]["value"], "US");
    let total = counted["total"].as_u64();
    wait_until("traffic comes", || {
        read(&server, "summary?unit=hour&units=49")["total"].as_u64() > total
    });
    wait_until("ads are seen", || {
        let users = server.get_json("/v1/ad_impression/42/uniques?unit=hour&units=1");
        users["estimate"].as_u64() > Some(0)
    });
    server.terminate();
    tallyring_ok(&["verify", "--data", path.to_str().unwrap()]);
    // The second time goes on with what is there.
    let server = Server::start_as("demo", &path, &["--rate", "0"]);
    assert!(read(&server, "summary?unit=hour&units=49")["total"].as_u64() > total);
    assert_eq!(server.get("/").status, 200);
}

/// The pages of reach and of people show something: users who saw an ad once and more often, what they did where, and
/// caps that block some of them.
fn check_people(server: &Server) {
    let ask = |path: &str, question: Value| {
        let answer = server.post(path, question.to_string());
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    };
    let question = json!({"entity": {"ad": "42"}, "action": "impression", "range": "7d"});
    let reach = ask("/v1/actions/frequency", question);
    assert!(reach["reach"].as_u64() > Some(100), "{reach}");
    let frequency = reach["frequency"].as_array().expect("a list");
    let users: Vec<u64> = (frequency.iter().map(|row| &row["users"]))
        .map(|users| users.as_u64().expect("a number"))
        .collect();
    // How often one who comes again saw the ad depends on the hours that today has had.
    assert!(
        users[0] > 0 && users[1..].iter().sum::<u64>() > 0,
        "{reach}"
    );
    let person = ask("/v1/users/lookup", json!({"user": "u1"}));
    let did = person["actions"].as_array().expect("a list");
    assert!(!did.is_empty(), "{person}");
    for field in ["view", "insertion"] {
        assert!(
            did.iter().all(|action| action[field].is_string()),
            "{person}"
        );
    }
    let declared = server.get_json("/v1/namespaces");
    assert_eq!(
        declared["caps"].as_array().map(Vec::len),
        Some(3),
        "{declared}"
    );
    let allowed = |user: u64| {
        let candidates = json!([{"ad": "42", "campaign": "spring-sale"}]);
        let question = json!({"user": format!("u{user}"), "candidates": candidates});
        ask("/v1/actions/check", question)["candidates"][0]["allowed"] == true
    };
    let first: Vec<bool> = (0..20).map(allowed).collect();
    assert!(first.contains(&false) && allowed(1_000_000), "{first:?}");
}

#[test]
fn a_demonstration_counts_into_no_other_store() {
    let data = TempDir::new().unwrap();
    let path = data.path().to_str().unwrap();
    let server = Server::start(data.path(), &[]);
    assert_eq!(server.get("/v1/incr?key.l=launch").status, 204);
    server.terminate();
    let files = || {
        let files = std::fs::read_dir(data.path()).unwrap();
        let names = files.map(|file| file.unwrap().file_name());
        names.collect::<std::collections::BTreeSet<_>>()
    };
    let before = files();
    let refused = tallyring(&["demo", "--data", path, "--listen", "127.0.0.1:0"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    for part in ["that `tallyring demo` did not make", path, "--data"] {
        assert!(refused.stderr.contains(part), "{refused:?}");
    }
    assert_eq!(files(), before);
    let server = Server::start(data.path(), &[]);
    let counted = server.get_json("/v1/l/launch/summary?unit=year&units=-1");
    assert_eq!(counted["total"], 1);
}

#[test]
fn a_demonstration_that_was_stopped_while_it_was_made_makes_the_rest() {
    let data = TempDir::new().unwrap();
    let path = data.path().join("demo");
    let text = path.to_str().unwrap();
    let file = path.join("demo-history.csv");
    let (days, mut stopped) = (["--days", "20"], 0);
    // Stopped while it writes the history, and while it loads it.
    for until in [false, true] {
        let mut command = std::process::Command::new(tallyring_tests::server::binary());
        command.args(["demo", "--data", text, "--listen", "127.0.0.1:0"]);
        let null = std::process::Stdio::null;
        let mut child = command
            .args(days)
            .stdout(null())
            .stderr(null())
            .spawn()
            .unwrap();
        wait_until("the history is being made", || {
            file.exists() && (!until || path.join("STORE").exists())
        });
        child.kill().unwrap();
        child.wait().unwrap();
        stopped += u32::from(file.exists());
    }
    assert_eq!(stopped, 2, "both left the file");
    let demo = ["--rate", "0", "--days", "2"];
    let server = Server::start_as("demo", &path, &demo);
    assert!(!file.exists());
    let counted = server.get_json("/v1/l/launch/counts?unit=hour&units=49");
    let counts = counted["counts"].as_array().unwrap();
    let is_counted = |row: &Value| row["count"].as_u64() > Some(0);
    assert!(counts[1..48].iter().all(is_counted), "{counted}");
    server.terminate();
    tallyring_ok(&["verify", "--data", text]);
}

#[test]
fn a_demonstration_whose_port_is_taken_makes_nothing() {
    let data = TempDir::new().unwrap();
    let path = data.path().join("demo");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let refused = tallyring(&[
        "demo",
        "--data",
        path.to_str().unwrap(),
        "--listen",
        &address,
    ]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(
        refused
            .stderr
            .contains(&format!("cannot listen on {address}")),
        "{refused:?}"
    );
    assert!(!path.join("STORE").exists());
}

#[test]
fn shells_and_manuals_know_every_command() {
    for (shell, begins) in [
        ("bash", "_tallyring()"),
        ("zsh", "#compdef tallyring"),
        ("fish", "# "),
    ] {
        let script = tallyring_ok(&["completions", shell]);
        assert!(script.starts_with(begins), "{shell}: {}", &script[..80]);
        assert!(script.contains("status"), "{shell}");
    }
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("man1");
    tallyring_ok(&["man", path.to_str().unwrap()]);
    let page = |name: &str| std::fs::read_to_string(path.join(name)).unwrap_or_default();
    assert!(page("tallyring.1").contains("counts clicks"));
    for command in [
        "serve", "send", "load", "query", "status", "demo", "verify", "key-new",
    ] {
        assert!(
            page(&format!("tallyring-{command}.1")).contains(".TH"),
            "{command}"
        );
    }
    assert_eq!(page("tallyring-worker.1"), "");
}
