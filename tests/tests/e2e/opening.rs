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
    // A reader of the pipe waits until somebody writes, and so does the start: it looks for zone rules while it opens.
    let zones = directory.path().join("zones");
    fs::create_dir(&zones).expect("a directory");
    let pipe = zones.join("tzdata.zi");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("run mkfifo").success());

    let address = free_address();
    let process = Killed(serve(&data, &address, &zones));
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
    wait_until("it is ready", || {
        // Nobody writes anything, so there are no rules there. (Opened for reading, too, so that it waits for nobody.)
        drop(OpenOptions::new().read(true).write(true).open(&pipe));
        client.get("/readyz").status == 200
    });
    drop(process);

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

/// A server that looks for zone rules in `zones` first.
fn serve(data: &Path, address: &str, zones: &Path) -> Child {
    let mut command = Command::new(binary());
    command.arg("serve").arg("--data").arg(data);
    command.args(["--listen", address]).env("TZDIR", zones);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::null());
    command.spawn().expect("start tallyring")
}
