//! A server whose store takes long to open answers from the first moment on.

use std::fs::{self, OpenOptions};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tallyring_tests::server::{Client, Killed, Server, binary, wait_until};

#[test]
fn while_its_store_is_being_opened_a_server_is_alive_and_not_ready() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    let server = Server::start(&data, &[]);
    assert_eq!(server.get("/v1/incr?key.l=a").status, 204);
    server.terminate();
    // Whoever reads it waits until somebody writes: so does the start.
    let name = "0000000000000000.tlog";
    let (segment, away) = (data.join("oplog").join(name), directory.path().join(name));
    fs::rename(&segment, &away).expect("move it away");
    let made = Command::new("mkfifo").arg(&segment).status();
    assert!(made.expect("run mkfifo").success());

    let address = free_address();
    let mut process = Killed(serve(&data, &address));
    let client = Client::new(&format!("http://{address}"));
    wait_until("it answers", || client.try_get("/healthz").is_ok());
    assert_eq!(client.get("/healthz").text, "ok\n");
    for path in ["/readyz", "/v1/incr?key.l=a"] {
        let answer = client.get(path);
        assert_eq!(answer.status, 503, "{path}: {answer:?}");
        assert!(answer.header("retry-after").is_some(), "{path}: {answer:?}");
        let detail = answer.json()["detail"].to_string();
        assert!(detail.contains("being opened"), "{path}: {detail}");
    }
    // Nobody writes anything, which is no segment. (Opened for reading, too, so that it waits for nobody.)
    let mut writer = OpenOptions::new();
    let writer = writer.read(true).write(true).open(&segment);
    drop(writer.expect("open it for who waits"));
    let mut status = None;
    wait_until("it has ended", || {
        status = process.0.try_wait().expect("ask for its end");
        status.is_some()
    });
    assert_eq!(status.and_then(|status| status.code()), Some(1));

    fs::rename(&away, &segment).expect("put it back");
    let server = Server::start(&data, &[]);
    assert_eq!(server.get("/readyz").status, 200);
    assert_eq!(server.get_json("/v1/l/a/summary")["total"], 1);
}

/// One that is free now; that somebody else is given it before it is used is unlikely.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
    let address = listener.local_addr().expect("its port");
    address.to_string()
}

fn serve(data: &Path, address: &str) -> Child {
    let mut command = Command::new(binary());
    command.arg("serve").arg("--data").arg(data);
    command.args(["--listen", address]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::null());
    command.spawn().expect("start tallyring")
}
