//! Connections that clients keep: no answer may make them lose the next request.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tallyring_tests::server::{Client, wait_until};

use crate::http_writes::{server, total};

/// A connection by hand, as no client library uses it.
struct Connection(BufReader<TcpStream>);

impl Connection {
    fn open(client: &Client) -> Self {
        let address = client.url().strip_prefix("http://").expect("a URL");
        let stream = TcpStream::connect(address).expect("connect");
        let timeout = Some(Duration::from_secs(30));
        stream.set_read_timeout(timeout).expect("set the timeout");
        stream.set_nodelay(true).expect("send at once");
        Self(BufReader::new(stream))
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).expect("send");
    }

    /// The head of the next answer, in lower case; its body is passed over.
    fn answer(&mut self) -> String {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let read = self.0.read_line(&mut head).expect("read the answer");
            assert!(read > 0, "the connection ended after {head:?}");
        }
        let head = head.to_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.map_or(0, |length| length.parse().expect("a length"));
        self.0
            .read_exact(&mut vec![0; length])
            .expect("read the body");
        head
    }
}

#[test]
fn a_body_that_comes_after_it_was_counted_leaves_the_connection_usable() {
    let (_data, server) = server();
    let mut connection = Connection::open(&server);
    for count in 1..=3 {
        connection.send(
            b"POST /v1/incr?key.l=a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 8\r\n\r\n",
        );
        wait_until("it is counted", || total(&server, "l/a") == count);
        connection.send(b"ignored!");
        let head = connection.answer();
        assert!(head.starts_with("http/1.1 204 "), "{head}");
        assert!(!head.contains("connection: close"), "{head}");
    }
}

#[test]
fn a_refused_request_with_a_body_leaves_the_connection_usable_or_says_that_it_ends() {
    let (_data, server) = server();
    let waits = "expect: 100-continue\r\n";
    for (path, bytes, expect, status) in [
        ("/v1/increments?unknown=1", 10, "", 400),
        ("/v1/incr?key.x=a", 10_000, "", 400),
        ("/v1/incr?key.l=a", 4 << 20, "", 204),
        ("/nothing", 10, "", 404),
        ("/nothing", 1 << 20, "", 404),
        ("/nothing", 1 << 20, waits, 404),
        ("/v1/increments", 9 << 20, "", 413),
        ("/v1/increments", 9 << 20, waits, 413),
        ("/v1/increments", 17 << 20, "", 413),
    ] {
        let mut connection = Connection::open(&server);
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\n{expect}content-length: {bytes}\r\n\r\n"
        );
        connection.send(head.as_bytes());
        let is_sent = expect.is_empty() && bytes <= 16 << 20;
        if is_sent {
            // All of it before it reads, as simple clients do.
            connection.send(&vec![b' '; bytes]);
        }
        let answer = connection.answer();
        assert!(
            answer.starts_with(&format!("http/1.1 {status} ")),
            "{path}: {answer}"
        );
        let ends = answer.contains("connection: close");
        assert_eq!(ends, !is_sent, "{path} with {bytes} bytes: {answer}");
        if !ends {
            connection.send(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n");
            assert!(connection.answer().starts_with("http/1.1 200 "));
        }
    }
}
