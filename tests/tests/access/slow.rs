//! Clients that hold a connection and do little with it, over raw sockets.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use tallyring_api::ServerLimits;

use super::http::{Reply, connect};
use super::stand::{Stand, Wanted};

const SHORT: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(60);

fn with(server: ServerLimits) -> Stand {
    Stand::start(Wanted {
        server,
        ..Wanted::default()
    })
}

/// How long the server leaves the connection open, and what it said.
fn until_closed(mut stream: TcpStream) -> (Duration, String) {
    let began = Instant::now();
    let mut text = Vec::new();
    match stream.read_to_end(&mut text) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the connection stayed open: {error}"),
    }
    (began.elapsed(), String::from_utf8_lossy(&text).into_owned())
}

fn read_one(stream: &mut TcpStream) -> Reply {
    let mut text = [0; 8_192];
    let length = stream.read(&mut text).expect("an answer");
    Reply::parse(&String::from_utf8_lossy(&text[..length]))
}

#[test]
fn a_client_that_sends_no_head_or_half_of_one_is_cut_off() {
    let stand = with(ServerLimits {
        header_timeout: SHORT,
        ..ServerLimits::default()
    });
    for sent in [
        "",
        "G",
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-",
        "PRI * HTTP/2.0\r\n",
    ] {
        let mut stream = connect(stand.address);
        stream.write_all(sent.as_bytes()).expect("send");
        let (open, _) = until_closed(stream);
        assert!(open >= SHORT / 2, "{sent:?} was cut off after {open:?}");
        assert!(open < LONG / 4, "{sent:?} was left open for {open:?}");
    }
}

#[test]
fn a_head_that_comes_drop_by_drop_is_cut_off() {
    let stand = with(ServerLimits {
        header_timeout: SHORT,
        ..ServerLimits::default()
    });
    let mut stream = connect(stand.address);
    let began = Instant::now();
    let mut head = "GET /healthz HTTP/1.1\r\n".to_owned();
    head.push_str(&"X-Slow: 1\r\n".repeat(500));
    for byte in head.as_bytes() {
        if stream.write_all(&[*byte]).is_err() {
            break;
        }
        assert!(began.elapsed() < LONG / 4, "it was read for too long");
        thread::sleep(Duration::from_millis(10));
    }
    assert!(began.elapsed() < LONG / 4);
}

#[test]
fn a_connection_idles_for_longer_than_a_head_may_take() {
    let stand = with(ServerLimits {
        header_timeout: SHORT,
        idle_timeout: SHORT * 6,
        ..ServerLimits::default()
    });
    let mut stream = connect(stand.address);
    let request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for _ in 0..2 {
        stream.write_all(request).expect("send");
        assert_eq!(read_one(&mut stream).status, 200);
        thread::sleep(SHORT * 2);
    }
    // The second head is bound again, from its first byte.
    stream.write_all(b"GET /hea").expect("send");
    let (open, _) = until_closed(stream);
    assert!(open < SHORT * 5, "{open:?}");

    let mut idle = connect(stand.address);
    idle.write_all(request).expect("send");
    assert_eq!(read_one(&mut idle).status, 200);
    let (open, _) = until_closed(idle);
    assert!(open >= SHORT * 4 && open < LONG / 4, "{open:?}");
}

#[test]
fn a_connection_of_http_2_is_watched_by_its_pings_instead() {
    let stand = with(ServerLimits {
        header_timeout: SHORT,
        idle_timeout: SHORT,
        ..ServerLimits::default()
    });
    let mut stream = connect(stand.address);
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    // An empty SETTINGS frame.
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    stream.write_all(preface).expect("send");
    stream.write_all(&settings).expect("send");
    stream.set_read_timeout(Some(SHORT * 4)).expect("a timeout");
    let mut buffer = [0; 256];
    let error = loop {
        match stream.read(&mut buffer) {
            Ok(0) => panic!("it was cut off"),
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}

#[test]
fn an_answer_may_take_longer_than_a_connection_idles() {
    let stand = with(ServerLimits {
        header_timeout: SHORT,
        idle_timeout: SHORT,
        ..ServerLimits::default()
    });
    let mut stream = connect(stand.address);
    let request = b"GET /v1/live HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request).expect("send");
    stream.set_read_timeout(Some(SHORT * 2)).expect("a timeout");
    let began = Instant::now();
    let mut buffer = [0; 8_192];
    let mut said = 0;
    while began.elapsed() < SHORT * 8 {
        match stream.read(&mut buffer) {
            Ok(0) => panic!("it was cut off after {:?}", began.elapsed()),
            Ok(length) => said += length,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
    assert!(said > 0);
}

#[test]
fn compressed_bodies_that_have_not_come_take_no_room() {
    let stand = with(ServerLimits::default());
    let body = r#"{"keys":{"l":"a"}}"#;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body.as_bytes()).expect("pack");
    let packed = encoder.finish().expect("pack");
    let head = format!(
        "POST /v1/increments HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\nExpect: 100-continue\r\n\
         Content-Length: {}\r\n\r\n",
        packed.len()
    );
    // Each may unpack to 8 MiB; all bodies together have room for 32 such.
    let mut crowd: Vec<TcpStream> = (0..100).map(|_| connect(stand.address)).collect();
    for stream in &mut crowd {
        stream.write_all(head.as_bytes()).expect("send");
        // Said when the body is waited for.
        assert_eq!(read_one(stream).status, 100);
        stream.write_all(&packed[..2]).expect("send");
    }
    assert_eq!(stand.ask("POST /v1/increments", &[], body).status, 200);
    let queries = r#"{"queries":[{"namespace":"l","key":"a","summary":true}]}"#;
    assert_eq!(stand.ask("POST /v1/query", &[], queries).status, 200);
    for stream in &mut crowd {
        stream.write_all(&packed[2..]).expect("send");
    }
    for stream in &mut crowd {
        assert_eq!(read_one(stream).status, 200);
    }
    let total = stand.ask("GET /v1/l/a/summary", &[], "").json()["total"].clone();
    assert_eq!(total, 101);
}

#[test]
fn a_slow_answer_is_no_slow_head() {
    let stand = Stand::start(Wanted {
        server: ServerLimits {
            header_timeout: SHORT,
            ..ServerLimits::default()
        },
        ..Wanted::default()
    });
    let mut stream = connect(stand.address);
    let body = br#"{"queries":[{"namespace":"l","key":"a"}]}"#;
    let head = format!(
        "POST /v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("send");
    thread::sleep(SHORT * 3);
    stream.write_all(body).expect("send");
    assert_eq!(read_one(&mut stream).status, 200);
}

#[test]
fn a_client_that_does_not_read_is_cut_off() {
    let stand = with(ServerLimits {
        write_timeout: SHORT,
        ..ServerLimits::default()
    });
    let document = stand.ask("GET /openapi.json", &[], "").body.len();
    let requests = (64 << 20) / document;
    let mut stream = connect(stand.address);
    let mut sender = stream.try_clone().expect("a second handle");
    let sending = thread::spawn(move || {
        // Ends with an error when the server has closed.
        for _ in 0..requests {
            if sender
                .write_all(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
                .is_err()
            {
                break;
            }
        }
    });
    thread::sleep(SHORT * 8);
    let mut read = 0;
    let mut buffer = vec![0; 1 << 20];
    while let Ok(length) = stream.read(&mut buffer) {
        if length == 0 {
            break;
        }
        read += length;
    }
    sending.join().expect("the sender ends");
    assert!(
        read < requests * document,
        "all {read} bytes were kept for it"
    );
}

#[test]
fn heads_that_are_too_large_are_431() {
    let stand = Stand::start(Wanted::default());
    let many: Vec<(String, String)> = (0..100)
        .map(|number| (format!("X-{number}"), "1".to_owned()))
        .collect();
    let many: Vec<(&str, &str)> = many
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let long = "x".repeat(40 << 10);
    for headers in [many, vec![("X-Long", long.as_str())]] {
        let reply = stand.ask("GET /healthz", &headers, "");
        assert_eq!(reply.status, 431, "{reply:?}");
        assert_eq!(reply.json()["status"], 431, "{reply:?}");
    }
    // A head of twice the size is refused before any of it is understood.
    let longer = "x".repeat(80 << 10);
    let reply = stand.ask("GET /healthz", &[("X-Long", &longer)], "");
    assert_eq!(reply.status, 431, "{reply:?}");
}

#[test]
fn connections_beyond_the_limit_wait_for_a_place() {
    let stand = with(ServerLimits {
        connections_max: 2,
        header_timeout: SHORT,
        ..ServerLimits::default()
    });
    let _idle: Vec<TcpStream> = (0..8).map(|_| connect(stand.address)).collect();
    // The silent ones lose their places, so this one gets its answer.
    assert_eq!(stand.ask("GET /healthz", &[], "").status, 200);
}

#[test]
fn a_stop_ends_idle_connections_at_once_and_lets_requests_end() {
    let mut stand = with(ServerLimits {
        drain_timeout: LONG,
        ..ServerLimits::default()
    });
    let request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut idle = connect(stand.address);
    idle.write_all(request).expect("send");
    assert_eq!(read_one(&mut idle).status, 200);
    let _silent = connect(stand.address);
    let mut busy = connect(stand.address);
    let body = br#"{"queries":[{"namespace":"l","key":"a"}]}"#;
    let head = format!(
        "POST /v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    busy.write_all(head.as_bytes()).expect("send");
    thread::sleep(SHORT);
    let began = Instant::now();
    thread::scope(|scope| {
        let stopping = scope.spawn(|| stand.stop());
        thread::sleep(SHORT);
        busy.write_all(body).expect("send");
        assert_eq!(read_one(&mut busy).status, 200);
        stopping.join().expect("it stops");
    });
    assert!(began.elapsed() < LONG / 4, "{:?}", began.elapsed());
    let (_, rest) = until_closed(idle);
    assert_eq!(rest, "");
}

/// The frames of a client of HTTP/2 that lets no byte of any answer come, and asks for `path`.
fn asked_without_a_window(path: &str) -> Vec<u8> {
    const INITIAL_WINDOW_SIZE: u8 = 4;
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    sent.extend([0, 0, 6, 4, 0, 0, 0, 0, 0]);
    sent.extend([0, INITIAL_WINDOW_SIZE, 0, 0, 0, 0]);
    // Entries of HPACK's static table: GET, http; a path and an authority by their names.
    let mut head = vec![
        0x82,
        0x86,
        0x44,
        u8::try_from(path.len()).expect("a short path"),
    ];
    head.extend(path.as_bytes());
    head.extend([0x41, 1, b'a']);
    let length = u8::try_from(head.len()).expect("a short head");
    // HEADERS, of which no more come, of stream 1, whose request ends.
    sent.extend([0, 0, length, 1, 5, 0, 0, 0, 1]);
    sent.extend(head);
    sent
}

#[test]
fn an_answer_over_http_2_that_is_not_read_is_cut_off() {
    let stand = with(ServerLimits {
        write_timeout: SHORT,
        ..ServerLimits::default()
    });
    for path in ["/openapi.json", "/v1/live"] {
        let mut stream = connect(stand.address);
        stream
            .write_all(&asked_without_a_window(path))
            .expect("send");
        let (open, _) = until_closed(stream);
        assert!(open >= SHORT / 2, "{path} was cut off after {open:?}");
        assert!(open < LONG / 4, "{path} was left open for {open:?}");
    }
}
