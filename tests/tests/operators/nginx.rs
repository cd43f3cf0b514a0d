//! A stock nginx with the shipped configuration counts each request for a link once, and slows none.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use serde_json::Value;
use tallyring_tests::needs::skipped;
use tallyring_tests::server::{Client, Server, wait_until};
use tempfile::TempDir;

use crate::read;

/// Where nginx may be that is in nobody's `PATH`.
const PLACES: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

fn installed() -> Option<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let paths: Vec<PathBuf> = std::env::split_paths(&paths).collect();
    let places = paths.into_iter().chain(PLACES.map(PathBuf::from));
    places
        .map(|path| path.join("nginx"))
        .find(|path| path.is_file())
}

/// A redirector that knows every link but those that begin with `missing`. It ends with the test's process.
fn redirector() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address");
    thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.expect("a connection");
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && connection.read(&mut byte).unwrap_or(0) == 1 {
                head.push(byte[0]);
            }
            let status = match head.starts_with(b"GET /missing") {
                true => "404 Not Found",
                false => "302 Found\r\nLocation: https://example.org/",
            };
            let answer = format!("HTTP/1.0 {status}\r\nContent-Length: 0\r\n\r\n");
            let _ = connection.write_all(answer.as_bytes());
        }
    });
    address
}

/// A running nginx, ended when dropped.
struct Nginx {
    child: Child,
    address: SocketAddr,
}

impl Nginx {
    /// Starts it with the shipped file, whose three addresses are replaced.
    fn start(binary: &Path, directory: &Path, redirector: SocketAddr, tallyring: &str) -> Self {
        // Nobody takes the port in the moment in between: the system gives out others first.
        let address = TcpListener::bind("127.0.0.1:0")
            .expect("a free port")
            .local_addr()
            .expect("its address");
        let mut mirror = read("nginx/mirror.conf");
        for (shipped, used) in [
            ("server 127.0.0.1:8081;", format!("server {redirector};")),
            ("server 127.0.0.1:7117;", format!("server {tallyring};")),
            ("listen 127.0.0.1:8080;", format!("listen {address};")),
        ] {
            assert_eq!(mirror.matches(shipped).count(), 1, "{shipped}");
            mirror = mirror.replace(shipped, &used);
        }
        fs::write(directory.join("mirror.conf"), mirror).expect("write the shipped file");
        let places: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {name};\n"))
            .concat();
        let main = format!(
            "pid nginx.pid;\nerror_log error.log;\nevents {{}}\nhttp {{\naccess_log off;\n{places}include mirror.conf;\n}}\n"
        );
        fs::write(directory.join("nginx.conf"), main).expect("write the configuration");
        let prefix = format!("{}/", directory.display());
        let arguments = ["-p", &prefix, "-c", "nginx.conf", "-e", "error.log"];
        let tested = Command::new(binary)
            .args(arguments)
            .arg("-t")
            .output()
            .expect("run nginx -t");
        assert!(
            tested.status.success(),
            "{}",
            String::from_utf8_lossy(&tested.stderr)
        );
        let child = Command::new(binary)
            .args(arguments)
            .args(["-g", "daemon off; master_process off;"])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("start nginx");
        wait_until("nginx listens", || TcpStream::connect(address).is_ok());
        Self { child, address }
    }

    /// GET; the status line of the answer.
    fn get(&self, path: &str, referrer: &str) -> String {
        let mut stream = TcpStream::connect(self.address).expect("connect to nginx");
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: short.example\r\nReferer: {referrer}\r\nCookie: secret=1\r\n\
             Connection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).expect("send a request");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("read the answer");
        let text = String::from_utf8_lossy(&answer).into_owned();
        text.lines().next().unwrap_or_default().to_owned()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn counted(client: &Client, of: &str) -> Value {
    client.get_json(&format!("/v1/{of}?unit=year&units=-1"))
}

#[test]
fn a_stock_nginx_counts_each_request_for_a_link_once() {
    let Some(binary) = installed() else {
        return skipped(
            "a_stock_nginx_counts_each_request_for_a_link_once",
            "nginx is not installed",
        );
    };
    let directory = TempDir::new().unwrap();
    let server = Server::start(&directory.path().join("data"), &[]);
    let address = server.url().strip_prefix("http://").unwrap().to_owned();
    let nginx = Nginx::start(&binary, directory.path(), redirector(), &address);

    for _ in 0..20 {
        assert!(
            nginx
                .get("/abc?utm=1&at=0", "https://news.example/")
                .contains(" 302 ")
        );
    }
    assert!(
        nginx
            .get("/missing", "https://news.example/")
            .contains(" 404 ")
    );
    // A referrer that would break out of the JSON is left out; the click counts.
    assert!(
        nginx
            .get("/abc", r#"x"},"n":99,"by":{"a":"b"#)
            .contains(" 302 ")
    );
    assert!(nginx.get("/%22%2C%22n%22:9", "-").contains(" 302 "));
    wait_until("all are counted", || {
        counted(&server, "d/short.example/summary")["total"] == 23
    });
    let by = counted(&server, "l/abc/by/r");
    assert_eq!(by["total"], 21);
    let values = serde_json::json!([{"value": "https://news.example/", "count": 20}, {"value": "-", "count": 1}]);
    assert_eq!(by["values"], values);
    for link in ["missing", "%2522%252C%2522n%2522:9"] {
        assert_eq!(
            counted(&server, &format!("l/{link}/summary"))["total"],
            1,
            "{link}"
        );
    }

    let bitly =
        server.get_json("/v3/link/clicks?link=http%3A%2F%2Fshort.example%2Fabc&access_token=a");
    assert_eq!(bitly["data"]["link_clicks"], 21, "{bitly}");
    // The page itself is no link.
    assert!(nginx.get("/", "-").contains(" 302 "));
    wait_until("the page is counted", || {
        counted(&server, "d/short.example/summary")["total"] == 24
    });
    assert_eq!(counted(&server, "l/-/summary")["total"], 0);

    // Nobody waits for a Tallyring that is gone.
    server.terminate();
    assert!(nginx.get("/abc", "-").contains(" 302 "));
}

#[test]
fn what_the_shipped_file_sends_counts_in_what_bitlys_api_reads() {
    let text = read("nginx/mirror.conf");
    let body = text.split("proxy_set_body '").nth(1).expect("a body");
    let body = body.split("';").next().expect("its end");
    let mut sent = body.to_owned();
    for (variable, value) in [
        ("$time_iso8601", "2012-03-16T18:40:47+00:00"),
        ("$request_id", "0123456789abcdef"),
        ("$tallyring_link", r#""l":"abc","#),
        ("$tallyring_user", r#""u":"jehiah","#),
        ("$tallyring_domain", "short.example"),
        ("$tallyring_referrer", "https://news.example/"),
        ("$tallyring_country", ""),
    ] {
        assert!(sent.contains(variable), "{variable} in {body}");
        sent = sent.replace(variable, value);
    }
    let directory = TempDir::new().unwrap();
    let server = Server::start(directory.path(), &[]);
    for _ in 0..2 {
        assert_eq!(server.post("/v1/increments", &sent).status, 200, "{sent}");
    }
    let last = "unit_reference_ts=1331923247&units=1&access_token=jehiah";
    for (path, field) in [
        (
            "link/clicks?link=http%3A%2F%2Fshort.example%2Fabc&",
            "/data/link_clicks/0/clicks",
        ),
        ("user/clicks?", "/data/total_clicks"),
    ] {
        let answer = server.get_json(&format!("/v3/{path}{last}"));
        assert_eq!(answer.pointer(field), Some(&Value::from(1)), "{answer}");
    }
    for key in ["l/abc", "u/jehiah", "d/short.example"] {
        let by = counted(&server, &format!("{key}/by/r"));
        assert_eq!(by["values"][0]["value"], "https://news.example/", "{by}");
    }
}
