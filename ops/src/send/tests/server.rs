//! A tiny HTTP server for tests: gives scripted replies and keeps the requests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::{self, JoinHandle};

/// The reply to one request.
pub(crate) enum Reply {
    /// Status, further headers (each with its line end) and body.
    Answer(u16, &'static str, &'static str),
    /// Close the connection without an answer.
    Drop,
}

/// A request.
#[derive(Debug)]
pub(crate) struct Request {
    pub first_line: String,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(header, _)| header == name)
            .map(|(_, value)| value.as_str())
    }
}

/// A server that ends after its last reply.
pub(crate) struct Server {
    pub url: String,
    thread: JoinHandle<Vec<Request>>,
}

impl Server {
    /// Waits until every reply was given.
    pub(crate) fn requests(self) -> Vec<Request> {
        self.thread.join().expect("server thread")
    }
}

/// Starts a server on a free port of the loopback address.
pub(crate) fn serve(replies: Vec<Reply>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").expect("port");
    let url = format!("http://{}", listener.local_addr().expect("address"));
    let thread = thread::spawn(move || {
        let answer = |reply| {
            let (mut stream, _) = listener.accept().expect("connection");
            let request = read_request(&stream);
            if let Reply::Answer(status, headers, body) = reply {
                let length = body.len();
                write!(
                    stream,
                    "HTTP/1.1 {status} X\r\n{headers}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}"
                )
                .expect("answer");
            }
            request
        };
        replies.into_iter().map(answer).collect()
    });
    Server { url, thread }
}

fn read_request(stream: &TcpStream) -> Request {
    let mut reader = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("header");
        if line.trim().is_empty() {
            break;
        }
        lines.push(line.trim_end().to_owned());
    }
    let mut lines = lines.into_iter();
    let first_line = lines.next().expect("request line");
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| {
            line.split_once(':')
                .map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()))
        })
        .collect();
    let mut request = Request {
        first_line,
        headers,
        body: Vec::new(),
    };
    let length = request
        .header("content-length")
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    request.body.resize(length, 0);
    reader.read_exact(&mut request.body).expect("body");
    request
}
