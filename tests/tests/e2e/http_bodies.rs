//! Bodies: compressed, repeated under one key, too large.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;

use crate::http_writes::{server, total};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("compress");
    encoder.finish().expect("compress")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).expect("compress")
}

#[test]
fn gzip_and_zstd_bodies_count_like_plain_ones() {
    let (_data, server) = server();
    let body = json!([{"keys": {"l": "a"}}, {"keys": {"l": "a"}, "n": 2}]).to_string();
    let (gzip, zstd) = (gzip(body.as_bytes()), zstd(body.as_bytes()));
    for (encoding, bytes) in [
        ("gzip", gzip.clone()),
        ("GZIP", gzip.clone()),
        ("x-gzip", gzip),
        ("zstd", zstd),
        ("identity", body.into_bytes()),
    ] {
        let headers = [("content-encoding", encoding)];
        let answer = server.post_with("/v1/increments", &headers, &bytes);
        assert_eq!(
            (answer.status, &answer.json()["accepted"]),
            (200, &json!(2)),
            "{encoding}"
        );
    }
    assert_eq!(total(&server, "l/a"), 15);
}

#[test]
fn a_body_that_is_not_what_its_encoding_says_is_refused() {
    let (_data, server) = server();
    let short = gzip(b"[]");
    for (encoding, bytes, status) in [
        ("gzip", &b"{}"[..], 400),
        ("gzip", &short[..short.len() - 4], 400),
        ("zstd", b"{}", 400),
        ("br", b"{}", 415),
    ] {
        let headers = [("content-encoding", encoding)];
        let answer = server.post_with("/v1/increments", &headers, bytes);
        assert_eq!(answer.status, status, "{encoding}: {answer:?}");
    }
}

#[test]
fn a_body_above_8_mib_decompressed_or_10_000_items_is_413_and_counts_nothing() {
    let (_data, server) = server();
    let large = format!("[{}{{\"keys\":{{\"l\":\"a\"}}}}]", " ".repeat(8 << 20));
    let items = |count: usize| json!(vec![json!({"keys": {"l": "a"}}); count]).to_string();
    let many = items(10_001);
    let cases = [
        ("gzip", gzip(large.as_bytes())),
        ("zstd", zstd(large.as_bytes())),
        ("identity", many.into_bytes()),
    ];
    for (encoding, bytes) in cases {
        let headers = [("content-encoding", encoding)];
        let answer = server.post_with("/v1/increments", &headers, &bytes);
        assert_eq!(answer.status, 413, "{encoding}: {answer:?}");
    }
    assert_eq!(total(&server, "l/a"), 0);
    let answer = server.post("/v1/increments", items(10_000));
    assert_eq!(answer.json()["accepted"], 10_000);
    assert_eq!(total(&server, "l/a"), 10_000);
}

#[test]
fn an_idempotency_key_answers_a_repeated_batch_as_before_and_refuses_another_body() {
    let (_data, server) = server();
    let post = |key: &str, body: &str| {
        server.post_with(
            "/v1/increments",
            &[("idempotency-key", key)],
            body.as_bytes(),
        )
    };
    let body = json!([{"keys": {"l": "a"}}, {"keys": {"l": "a"}, "id": "x"}]).to_string();
    let first = post("one", &body);
    assert_eq!(
        first.json(),
        json!({"accepted": 2, "duplicates": 0, "late": 0})
    );
    let again = post("one", &body);
    assert_eq!((again.status, again.json()), (200, first.json()));
    let other = post("one", &body.replace("\"a\"", "\"b\""));
    assert_eq!(other.status, 422, "{other:?}");
    assert_eq!(
        other.header("content-type"),
        Some("application/problem+json")
    );
    assert_eq!(other.json()["field"], "idempotency-key");
    // Another key is another batch; its id was counted already.
    let second = post("two", &body);
    assert_eq!(
        second.json(),
        json!({"accepted": 1, "duplicates": 1, "late": 0})
    );
    assert_eq!(total(&server, "l/a"), 3);
    assert_eq!(total(&server, "l/b"), 0);
    assert_eq!(post("", &body).status, 400);
}
