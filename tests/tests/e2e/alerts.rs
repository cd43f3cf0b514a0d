//! People are told of counts by the real program: each message is signed, and arrives once its receiver takes it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use tallyring_tests::server::{Server, tallyring, tallyring_ok, wait_until};
use tempfile::TempDir;

use crate::stored::text;

/// Takes webhooks where it may, and answers 503 to others.
fn receiver(takes: &Arc<AtomicBool>) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/hook", listener.local_addr().expect("an address"));
    let (takes, ids) = (Arc::clone(takes), Arc::<Mutex<Vec<String>>>::default());
    let taken = Arc::clone(&ids);
    thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.expect("a connection");
            let mut reader = BufReader::new(&socket);
            let (mut id, mut length, mut line) = (String::new(), 0, String::new());
            while line != "\r\n" {
                line.clear();
                reader.read_line(&mut line).expect("a head");
                let field = line.trim_end().split_once(": ");
                match field.map(|(name, value)| (name.to_ascii_lowercase(), value)) {
                    Some((name, value)) if name == "webhook-id" => id = value.to_owned(),
                    Some((name, value)) if name == "content-length" => {
                        length = value.parse().expect("a length");
                    }
                    _ => {}
                }
            }
            reader.read_exact(&mut vec![0; length]).expect("a body");
            let status = match takes.load(Ordering::Relaxed) {
                true => {
                    taken.lock().expect("the ids").push(id);
                    "204 No Content"
                }
                false => "503 Service Unavailable",
            };
            let head =
                format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            socket.write_all(head.as_bytes()).expect("an answer");
        }
    });
    (url, ids)
}

fn serve(directory: &Path, clock: &str) -> Server {
    let config = directory.join("c.toml");
    let arguments = ["--clock", clock, "--config", text(&config)];
    Server::start(&directory.join("data"), &arguments)
}

/// A directory with a configuration: an alert of many clicks, and a receiver.
fn place(url: &str) -> (TempDir, PathBuf) {
    let directory = TempDir::new().expect("a directory");
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n";
    fs::write(directory.path().join("secret"), secret).expect("write the secret");
    let config = format!(
        "[receivers.ops]\nurl = \"{url}\"\nsecret = \"secret\"\n\
         [alerts.many]\nof = \"l/abc\"\nkind = \"threshold\"\nabove = 100\nto = [\"ops\"]\n"
    );
    let file = directory.path().join("c.toml");
    fs::write(&file, config).expect("write the configuration");
    (directory, file)
}

#[test]
fn a_test_tells_what_receivers_answer_and_a_wrong_secret_is_named() {
    let takes = Arc::new(AtomicBool::new(true));
    let (url, ids) = receiver(&takes);
    let (directory, file) = place(&url);
    let tested = tallyring_ok(&["alerts", "test", "many", "--config", text(&file)]);
    assert_eq!(tested, "ops  taken, answered 204 No Content\n");
    assert!(ids.lock().expect("the ids")[0].starts_with("test-ops-"));
    takes.store(false, Ordering::Relaxed);
    let refused = tallyring(&["alerts", "test", "--config", text(&file)]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert_eq!(
        refused.stdout,
        "ops  not taken, answered 503 Service Unavailable\n"
    );
    let unknown = tallyring(&["alerts", "test", "nobody", "--config", text(&file)]);
    assert!(
        unknown.code == 2 && unknown.stderr.contains("receivers are: ops"),
        "{unknown:?}"
    );

    fs::write(directory.path().join("secret"), "guess").expect("write the secret");
    let data = directory.path().join("data");
    for wrong in [
        tallyring(&["serve", "--data", text(&data), "--config", text(&file)]),
        tallyring(&["config", "check", text(&file)]),
    ] {
        assert_eq!(wrong.code, 2, "{wrong:?}");
        let is_named = wrong.stderr.contains("receivers.ops.secret");
        assert!(
            is_named && wrong.stderr.contains("openssl rand"),
            "{wrong:?}"
        );
    }
}

#[test]
fn an_alert_begins_and_ends_over_restarts_and_a_receiver_that_was_away_gets_both() {
    let takes = Arc::new(AtomicBool::new(false));
    let (url, ids) = receiver(&takes);
    let (directory, _) = place(&url);
    let server = serve(directory.path(), "2012-03-16T18:30:00Z@0");
    let counted = server.client().post("/v1/incr?key.l=abc&n=200", "");
    assert_eq!(counted.status, 204);
    server.terminate();
    let server = serve(directory.path(), "2012-03-16T19:10:00Z@0");
    wait_until("the receiver was asked", || {
        server.client().status()["alerts"]["receivers"][0]["failure"].is_string()
    });
    let told = server.client().status()["alerts"].clone();
    assert_eq!(told["alerts"][0]["on"], true, "{told}");
    assert_eq!(told["alerts"][0]["since"], "2012-03-16T18:00:00Z");
    assert_eq!(told["alerts"][0]["count"], 200);
    let data = directory.path().join("data");
    let shown = tallyring_ok(&["status", "--data", text(&data)]);
    assert!(
        shown.contains("many, of l/abc, since 2012-03-16T18:00:00Z"),
        "{shown}"
    );
    assert!(
        shown.contains("receiver ops has yet to take 1 message: answered 503"),
        "{shown}"
    );
    let metrics = server.client().get("/metrics").text;
    assert!(
        metrics.contains("tallyring_alert_on{alert=\"many\"} 1"),
        "{metrics}"
    );
    server.kill9();

    takes.store(true, Ordering::Relaxed);
    let server = serve(directory.path(), "2012-03-16T20:10:00Z@0");
    wait_until("both messages came", || {
        ids.lock().expect("the ids").len() == 2
    });
    let of_alert = ids.lock().expect("the ids").clone();
    assert_eq!(of_alert, ["many-1331920800-begun", "many-1331924400-ended"]);
    server.terminate();
}
