//! One request over one connection, with any method and any header.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// Longer than anything here should take.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// An answer as it came.
#[derive(Debug)]
pub(crate) struct Reply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Reply {
    /// Takes an answer apart.
    pub(crate) fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .unwrap_or_else(|| panic!("no answer but {text:?}"));
        Self {
            status,
            head: head.to_owned(),
            body: body.to_owned(),
        }
    }

    /// The value of a header, its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Where a server listens.
pub(crate) fn address(url: &str) -> SocketAddr {
    let address = url.rsplit("//").next().expect("a URL");
    address
        .parse()
        .unwrap_or_else(|error| panic!("{url}: {error}"))
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connect");
    stream
        .set_read_timeout(Some(READ_TIMEOUT))
        .expect("set a timeout");
    stream
}

/// Connects from an address of this machine, such as `127.0.0.2`.
pub(crate) fn connect_from(own: &str, address: SocketAddr) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .expect("a runtime");
    let stream = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        let own = own.parse().expect("an address");
        socket.bind(SocketAddr::new(own, 0)).expect("bind it");
        let stream = socket.connect(address).await.expect("connect");
        stream.into_std().expect("a stream")
    });
    stream.set_nonblocking(false).expect("make it block");
    stream
        .set_read_timeout(Some(READ_TIMEOUT))
        .expect("set a timeout");
    stream
}

/// Sends a request and reads its answer.
pub(crate) fn ask(address: SocketAddr, line: &str, headers: &[(&str, &str)], body: &str) -> Reply {
    let mut stream = connect(address);
    let mut text = format!("{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
    stream.write_all(text.as_bytes()).expect("send");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("read the answer");
    Reply::parse(&String::from_utf8_lossy(&answer))
}

/// As above, as the bearer of a key.
pub(crate) fn ask_as(address: SocketAddr, key: &str, line: &str, body: &str) -> Reply {
    let bearer = format!("Bearer {key}");
    let headers = [
        ("Authorization", bearer.as_str()),
        ("Content-Type", "application/json"),
    ];
    ask(address, line, &headers, body)
}
