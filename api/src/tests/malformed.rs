//! Every malformed request has its exact problem document, and none changes a count.
//!
//! `malformed.txt` holds a request a line: method, path, and perhaps a content type and a body behind
//! ` | `. `{n*text}` repeats a text, `{gzip:…}` and `{zstd:…}` compress what is within. The answers are
//! the snapshot.

use std::io::Write;

use axum::body::Body;
use axum::http::{Request, header};
use serde_json::Value;
use tallyring_records::{EventType, Grain, LATENESS_SECONDS_DEFAULT, Namespace, Ratio, Schema};

use super::site::Site;
use crate::WriteRules;

const NOW: i64 = 1_331_923_200;
const REQUESTS: &str = include_str!("malformed.txt");
const STRICT_REQUESTS: &str = include_str!("malformed_strict.txt");
/// Keys that the requests name.
const KEYS: [&str; 6] = ["l/a", "l/b", "u/a", "d/a", "ad_click/a", "ad_impression/a"];

#[tokio::test]
async fn every_malformed_request_has_its_problem_and_changes_no_count() {
    let (answers, asked) = answers(&Site::open(with_ads(), NOW), REQUESTS).await;
    assert!(asked >= 300, "only {asked} requests");
    insta::assert_snapshot!(answers);
}

#[tokio::test]
async fn strict_rules_refuse_what_is_set_aside_otherwise() {
    let rules = WriteRules {
        strict: true,
        ..WriteRules::default()
    };
    let site = Site::open_with(with_ads(), NOW, rules);
    insta::assert_snapshot!(answers(&site, STRICT_REQUESTS).await.0);
}

/// The answers to the requests, none of which changes a count, and how many they are.
async fn answers(site: &Site, requests: &str) -> (String, usize) {
    let counted = r#"{"keys":{"l":"a","u":"a","d":"a"},"by":{"c":"US"},"n":3}"#;
    let request = Request::post("/v1/increments")
        .body(Body::from(counted))
        .unwrap();
    assert_eq!(site.ask(request).await.status, 200);
    let before = counts(site).await;
    let mut answers = String::new();
    let mut asked = 0;
    for line in requests
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let answer = site.ask(request_of(line)).await;
        assert!(
            (400..600).contains(&answer.status),
            "{line}: {} {}",
            answer.status,
            answer.text
        );
        let is_v4 = line.contains(" /v4");
        let kind = if is_v4 {
            "application/json"
        } else {
            "application/problem+json"
        };
        assert_eq!(answer.content_type, kind, "{line}: {}", answer.text);
        if is_v4 {
            let error: Value = serde_json::from_str(&answer.text).unwrap();
            assert!(
                error["message"].is_string() && error["resource"].is_string(),
                "{line}: {error}"
            );
        } else if !line.starts_with("HEAD ") {
            let problem: Value = serde_json::from_str(&answer.text).unwrap();
            assert_eq!(problem["status"], answer.status, "{line}");
        }
        answers.push_str(&format!("{line}\n    {}\n", answer.text));
        asked += 1;
    }
    assert_eq!(counts(site).await, before);
    (answers, asked)
}

/// Links, users and domains, and clicks and impressions of ads.
fn with_ads() -> Schema {
    let mut schema = Schema::default_clicks();
    for name in ["click", "impression"] {
        let event = EventType {
            name: name.to_owned(),
            entities: vec!["ad".to_owned()],
            lateness_seconds: LATENESS_SECONDS_DEFAULT,
            actions: false,
        };
        schema.namespaces.push(Namespace {
            name: event.namespace_of("ad"),
            title: String::new(),
            grain: Grain::Hour,
            subtotals: ["country", "device", "country*device"]
                .map(str::to_owned)
                .into(),
            minutes: true,
            uniques: true,
        });
        schema.events.push(event);
    }
    schema.ratios.push(Ratio {
        name: "ctr".to_owned(),
        numerator: "click".to_owned(),
        denominator: "impression".to_owned(),
    });
    schema
}

async fn counts(site: &Site) -> Vec<String> {
    let mut counts = Vec::new();
    for key in KEYS {
        let path = format!("/v1/{key}/counts?units=-1&unit=hour");
        counts.push(
            site.ask(Request::get(path).body(Body::empty()).unwrap())
                .await
                .text,
        );
    }
    counts
}

fn request_of(line: &str) -> Request<Body> {
    let mut parts = line.splitn(3, " | ");
    let (method, path) = parts.next().unwrap().split_once(' ').unwrap();
    let mut request = Request::builder().method(method).uri(path_of(path));
    for pair in parts
        .next()
        .unwrap_or_default()
        .split("; ")
        .filter(|pair| !pair.is_empty())
    {
        match pair.split_once(": ") {
            Some((name, value)) => request = request.header(name, body_of(value)),
            None => request = request.header(header::CONTENT_TYPE, pair),
        }
    }
    request
        .body(Body::from(body_of(parts.next().unwrap_or_default())))
        .unwrap()
}

fn path_of(path: &str) -> String {
    String::from_utf8(body_of(path)).unwrap()
}

fn body_of(text: &str) -> Vec<u8> {
    if let Some(inner) = text
        .strip_prefix("{gzip:")
        .and_then(|inner| inner.strip_suffix('}'))
    {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&body_of(inner)).unwrap();
        return encoder.finish().unwrap();
    }
    if let Some(inner) = text
        .strip_prefix("{zstd:")
        .and_then(|inner| inner.strip_suffix('}'))
    {
        return zstd::encode_all(&*body_of(inner), 1).unwrap();
    }
    repeated(text).replace("\\n", "\n").into_bytes()
}

/// `{3*ab}` is `ababab`.
fn repeated(text: &str) -> String {
    let Some(start) = text.find("{*") else {
        return text.to_owned();
    };
    let end = start + text[start..].find("*}").unwrap();
    let (count, unit) = text[start + 2..end].split_once('*').unwrap();
    let middle = unit.repeat(count.parse().unwrap());
    format!("{}{middle}{}", &text[..start], repeated(&text[end + 2..]))
}
