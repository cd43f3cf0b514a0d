//! Counters over UDP, as StatsD clients send them.

use std::net::UdpSocket;

use tallyring_tests::server::{Server, tallyring, tallyring_ok, wait_until};
use tempfile::TempDir;

fn start(data: &TempDir) -> (Server, UdpSocket) {
    let config = data.path().join("statsd.toml");
    std::fs::write(&config, "[statsd]\nlisten = \"127.0.0.1:0\"\n").expect("write a file");
    let directory = data.path().join("data");
    let server = Server::start(&directory, &["--config", config.to_str().expect("text")]);
    let messages = server.messages();
    let line = messages.lines().find(|line| line.contains("StatsD"));
    let address = line.and_then(|line| line.rsplit("address=").next());
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket
        .connect(address.expect("an address").trim())
        .expect("connect");
    (server, socket)
}

#[test]
fn counters_are_counted_and_what_is_wrong_is_told_in_the_metrics() {
    let data = TempDir::new().unwrap();
    let (server, socket) = start(&data);
    let config = data.path().join("statsd.toml");
    let config = config.to_str().unwrap();
    let checked = tallyring_ok(&["config", "check", config, "--output", "json"]);
    let checked: serde_json::Value = serde_json::from_str(&checked).unwrap();
    assert_eq!(checked["statsd"], "127.0.0.1:0");
    assert_eq!(checked["declared"]["namespaces"][0]["name"], "l");
    socket
        .send(
            b"l.abc:2|c|#c:US,key.u:jehiah,env:prod\nl.abc:1|c|@0.25|#c:DE\nnonsense \x1b[2J\nl.abc:5|ms\n",
        )
        .unwrap();
    let total =
        |path: &str| server.get_json(&format!("/v1/{path}/summary?units=1"))["total"].as_u64();
    wait_until("they are counted", || total("l/abc") == Some(6));
    assert_eq!(total("u/jehiah"), Some(2));
    let by = server.get_json("/v1/l/abc/by/c?units=1");
    assert_eq!(by["values"][0]["value"], "DE", "{by}");
    let metrics = server.get("/metrics").text;
    assert!(
        metrics.contains("tallyring_statsd_bad_lines_total 2"),
        "{metrics}"
    );
    // However many lines are bad, the log has one line a minute about them.
    for _ in 0..50 {
        socket.send(b"nonsense \x1b[2J").unwrap();
    }
    wait_until("all bad lines are counted", || {
        let metrics = server.get("/metrics").text;
        metrics.contains("tallyring_statsd_bad_lines_total 52")
    });
    let messages = server.messages();
    let told = messages.lines().filter(|line| line.contains("sample="));
    let told: Vec<&str> = told.collect();
    assert_eq!(told.len(), 1, "{messages}");
    assert!(
        told[0].contains(r#"lines=1 sample="nonsense \u{1b}[2J""#),
        "{told:?}"
    );
    // A stop writes every counter that had come in before.
    for _ in 0..100 {
        socket.send(b"l.last:1|c").unwrap();
    }
    wait_until("they are counted too", || total("l/last") == Some(100));
    server.terminate();
}

#[test]
fn ids_without_a_key_are_those_of_the_installation() {
    let data = TempDir::new().unwrap();
    let (server, socket) = start(&data);
    let directory = data.path().join("data");
    let new = [
        "key",
        "new",
        "--data",
        directory.to_str().unwrap(),
        "--scope",
    ];
    let key = |more: &[&str]| {
        let made = tallyring_ok(&[&new, more].concat());
        made.trim().to_owned()
    };
    let reader = key(&["read"]);
    let (own, shared) = (key(&["write"]), key(&["write", "--shared-ids"]));
    let total = || {
        let answer = server.get_as(&reader, "/v1/l/abc/summary?units=1");
        answer.json()["total"].as_u64()
    };
    let is_known = |key: &str| {
        let answer = server.get_as(key, "/v1/incr?key.l=abc&id=one");
        assert_eq!(answer.status, 204, "{answer:?}");
        answer.header("tallyring-duplicate").is_some()
    };
    socket.send(b"l.abc:1|c|#id:one").unwrap();
    wait_until("it is counted", || total() == Some(1));
    assert_eq!(
        [&own, &shared, &own].map(|key| is_known(key)),
        [false, true, true]
    );
    socket.send(b"l.abc:10|c|#id:one\nl.abc:100|c").unwrap();
    wait_until("both are there", || total() >= Some(102));
    assert_eq!(total(), Some(102));
}

#[test]
fn udp_beyond_this_machine_is_refused() {
    let data = TempDir::new().unwrap();
    let config = data.path().join("statsd.toml");
    std::fs::write(&config, "[statsd]\nlisten = \"0.0.0.0:8125\"\n").unwrap();
    let checked = tallyring(&["config", "check", config.to_str().unwrap()]);
    assert_eq!(checked.code, 2, "{checked:?}");
    assert!(checked.stderr.contains("statsd.listen"), "{checked:?}");
}
