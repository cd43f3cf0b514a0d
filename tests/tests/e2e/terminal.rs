//! What the command line shows people: the state, rankings, a demonstration, completions and manuals.

use serde_json::Value;
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
    let svg = query(&["l", "--output", "svg"]);
    assert!(svg.starts_with("<svg "), "{svg}");
    for wrong in [
        &["l/a", "--top"][..],
        &["/a"],
        &["l/"],
        &["l", "--by", "c"],
        &["l", "--uniques"],
    ] {
        let refused = tallyring(&[&["query", "--data", path], wrong].concat());
        assert_eq!(refused.code, 2, "{wrong:?}: {refused:?}");
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
    assert_eq!(page("tallyring-rebuild-worker.1"), "");
}
