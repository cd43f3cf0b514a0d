//! Subtotals that are left out are filled at the door, and nothing else of a client is kept.

use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use tallyring_records::{EventType, Filter, Schema};

use super::site::Site;
use crate::enrich::tests::mmdb;
use crate::{Enrich, Geo, GeoFile, Proxies, WriteRules};

const NOW: i64 = 1_331_923_200;
const CALIFORNIA: &str = "203.0.113.9";
const TELEPHONE: &str = "Mozilla/5.0 (Linux; Android 10; K) Chrome/131.0.0.0 Mobile Safari/537.36";

/// Links and clicks of ads, broken down by country, device and campaign.
fn schema() -> Schema {
    let mut schema = Schema::default_clicks();
    schema.titles.clear();
    schema.namespaces[0].subtotals = ["c", "device", "campaign", "site"]
        .map(str::to_owned)
        .into();
    schema.namespaces[1].name = "ad_click".into();
    schema.namespaces[1].subtotals = schema.namespaces[0].subtotals.clone();
    schema.events.push(EventType {
        name: "click".into(),
        entities: vec!["ad".into()],
        lateness_seconds: 300,
        actions: false,
    });
    let bots = Filter::of_values("bots", &[], "by.device", &["bot"]);
    schema.filters.push(bots);
    schema
}

fn rules(strict: bool, evidence: bool) -> WriteRules {
    let fill = [
        ("c", "country"),
        ("device", "device"),
        ("campaign", "utm_campaign"),
        ("site", "site"),
    ];
    let fill = fill.map(|(subtotal, source)| (subtotal.to_owned(), source.to_owned()));
    let geo = Geo::open(mmdb::small("GeoLite2-Country"), false).expect("usable");
    let enrich = Enrich::new(&fill.into(), &schema()).expect("usable");
    WriteRules {
        strict,
        evidence,
        enrich: enrich.with_geo(Arc::new(GeoFile::new("small.mmdb".into(), geo))),
        ..WriteRules::default()
    }
}

async fn send(site: &Site, path: &str, body: &Value) -> (u16, String) {
    let request = Request::post(path).body(Body::from(body.to_string()));
    let answer = site.ask(request.expect("a request")).await;
    (answer.status, answer.text)
}

/// The only value of each subtotal of a key.
async fn values(site: &Site, key: &str) -> Vec<String> {
    let mut values = Vec::new();
    for subtotal in ["c", "device", "campaign", "site"] {
        let path = format!("/v1/{key}/by/{subtotal}?unit=day&units=1");
        let found = site.get(&path).await.json();
        let [value] = found["values"].as_array().expect("values").as_slice() else {
            panic!("{key} by {subtotal}: {found}");
        };
        values.push(value["value"].as_str().expect("a text").to_owned());
    }
    values
}

fn evidence() -> Value {
    json!({"ip": CALIFORNIA, "ua": TELEPHONE, "referrer": "https://www.news.example/today"})
}

#[tokio::test]
async fn what_is_left_out_is_filled_on_every_way_in_and_the_address_goes() {
    let mut site = Site::open_with(schema(), NOW, rules(false, false));
    let url = "https://shop.example/?utm_campaign=spring";
    let event = json!({"id": "e", "type": "click", "entities": {"ad": "a"}, "evidence": evidence(), "url": url});
    let (status, text) = send(&site, "/v1/events", &event).await;
    assert_eq!((status, text.contains("set_aside")), (200, false), "{text}");
    let increment = json!({"id": "i", "keys": {"l": "a"}, "evidence": evidence(), "url": url});
    assert_eq!(send(&site, "/v1/increments", &increment).await.0, 200);
    let encoded = TELEPHONE.replace(';', "%3B").replace(' ', "+");
    let query = format!(
        "key.l=b&id=q&evidence.ip={CALIFORNIA}&evidence.ua={encoded}&evidence.referrer=https://news.example\
         &url=/%3Futm_campaign%3Dspring"
    );
    let answer = site.get(&format!("/v1/incr?{query}")).await;
    assert_eq!(answer.status, 204, "{}", answer.text);
    // A replay of the log counts the filled values, whatever the rules are by then.
    for _ in 0..2 {
        for key in ["ad_click/a", "l/a", "l/b"] {
            let wanted = ["US", "mobile", "spring", "news.example"];
            assert_eq!(values(&site, key).await, wanted, "{key}");
        }
        for id in ["e", "i", "q"] {
            let verdict = site.get(&format!("/v1/events/{id}")).await.text;
            assert!(verdict.contains("\"counted\""), "{verdict}");
            for gone in [CALIFORNIA, "Android", "news.example/today", "shop.example"] {
                assert!(!verdict.contains(gone), "{gone}: {verdict}");
            }
        }
        site.reopen(schema(), NOW);
    }
}

#[tokio::test]
async fn a_named_subtotal_stays_and_no_fault_of_the_fields_costs_an_increment() {
    for strict in [false, true] {
        let site = Site::open_with(schema(), NOW, rules(strict, false));
        let long = "x".repeat(3_000);
        for (key, fields, wanted) in [
            (
                "sent",
                json!({"by": {"c": "AT", "device": "-", "site": ""}, "evidence": evidence()}),
                ["AT", "-", "-", "-"],
            ),
            (
                "null",
                json!({"by": {"c": null}, "evidence": {"ip": "198.51.100.1"}}),
                ["DE", "-", "-", "-"],
            ),
            (
                "private",
                json!({"evidence": {"ip": "192.168.7.7"}}),
                ["-"; 4],
            ),
            ("text", json!({"evidence": CALIFORNIA}), ["-"; 4]),
            (
                "number",
                json!({"evidence": {"ip": 7, "ua": [CALIFORNIA]}, "url": {"a": 1}}),
                ["-"; 4],
            ),
            (
                "unknown",
                json!({"evidence": {"ip": "unknown", "more": CALIFORNIA}}),
                ["-"; 4],
            ),
            (
                "long",
                json!({"evidence": {"ip": long, "ua": long, "referrer": long}, "url": long}),
                ["-"; 4],
            ),
            (
                "hostile",
                json!({"url": "?utm_campaign=%00", "evidence": {"referrer": "https://%"}}),
                ["-"; 4],
            ),
        ] {
            let mut event = json!({"id": key, "type": "click", "entities": {"ad": key}});
            let mut increment = json!({"keys": {"l": key}});
            for (name, value) in fields.as_object().expect("fields") {
                event[name] = value.clone();
                increment[name] = value.clone();
            }
            for (path, item) in [("/v1/events", &event), ("/v1/increments", &increment)] {
                let (status, text) = send(&site, path, item).await;
                let told = (text.contains("set_aside"), text.contains(CALIFORNIA));
                assert_eq!((status, told), (200, (false, false)), "{item}: {text}");
            }
            for of in ["ad_click", "l"] {
                assert_eq!(values(&site, &format!("{of}/{key}")).await, wanted, "{key}");
            }
            let verdict = site.get(&format!("/v1/events/{key}")).await.text;
            assert!(!verdict.contains(CALIFORNIA), "{verdict}");
        }
    }
}

#[tokio::test]
async fn wrong_parameters_of_a_query_are_not_repeated() {
    let site = Site::open_with(schema(), NOW, rules(true, false));
    let twice =
        format!("key.l=twice&evidence.ip={CALIFORNIA}&evidence.ip={CALIFORNIA}&url=a&url=b");
    assert_eq!(site.get(&format!("/v1/incr?{twice}")).await.status, 204);
    for wrong in [
        "evidence.ip=%zz",
        "evidence.more=",
        "url=%ff",
        "url=http%3A//a/%zz",
    ] {
        let answer = site
            .get(&format!("/v1/incr?key.l=a&id=w&{wrong}{CALIFORNIA}"))
            .await;
        assert_eq!(
            (answer.status, answer.text.contains(CALIFORNIA)),
            (400, false)
        );
    }
    assert_eq!(values(&site, "l/twice").await, ["-"; 4]);
}

#[tokio::test]
async fn evidence_that_is_kept_is_told_and_a_wrong_one_is_set_aside_or_refused() {
    let site = Site::open_with(schema(), NOW, rules(false, true));
    let event = json!({
        "id": "e", "type": "click", "entities": {"ad": "a"}, "evidence": evidence(), "url": "/page", "meta": {"a": 1},
    });
    assert_eq!(send(&site, "/v1/events", &event).await.0, 200);
    let increment = json!({"id": "i", "keys": {"l": "a"}, "evidence": evidence(), "url": "/page"});
    assert_eq!(send(&site, "/v1/increments", &increment).await.0, 200);
    for (id, meta) in [("e", json!({"a": 1, "url": "/page"})), ("i", Value::Null)] {
        let counted = site.get(&format!("/v1/events/{id}")).await.json()["counted"].clone();
        assert_eq!(
            (&counted["evidence"], &counted["meta"]),
            (&evidence(), &meta)
        );
    }
    let wrong = json!({"keys": {"l": "wrong"}, "evidence": {"ip": 7}, "id": "w"});
    let (status, text) = send(&site, "/v1/increments", &wrong).await;
    assert_eq!(
        (status, text.contains("\"set_aside\":1")),
        (200, true),
        "{text}"
    );
    let site = Site::open_with(schema(), NOW, rules(true, true));
    let (status, text) = send(&site, "/v1/increments", &wrong).await;
    assert_eq!(
        (status, text.contains("\"evidence.ip\"")),
        (400, true),
        "{text}"
    );
}

#[tokio::test]
async fn a_page_never_costs_an_event_or_its_meta() {
    for strict in [false, true] {
        let site = Site::open_with(schema(), NOW, rules(strict, true));
        let meta = json!({"a": "x".repeat(4_000)});
        let own = json!({"url": "own"});
        for (id, meta) in [("long", meta), ("own", own)] {
            let event = json!({"id": id, "type": "click", "entities": {"ad": "a"}, "meta": meta,
                "url": format!("?utm_campaign={}", "y".repeat(100))});
            let (status, text) = send(&site, "/v1/events", &event).await;
            assert_eq!((status, text.contains("set_aside")), (200, false), "{text}");
            let counted = site.get(&format!("/v1/events/{id}")).await.json()["counted"].clone();
            assert_eq!(counted["meta"], meta);
        }
        assert_eq!(values(&site, "ad_click/a").await[2], "y".repeat(100));
    }
}

#[tokio::test]
async fn a_filter_sees_the_filled_value() {
    let site = Site::open_with(schema(), NOW, rules(false, false));
    let event = json!({"id": "e", "type": "click", "entities": {"ad": "a"}, "evidence": {"ua": "curl/8.5.0"}});
    let (_, text) = send(&site, "/v1/events", &event).await;
    assert!(text.contains("\"filtered\":1"), "{text}");
}

/// Rules that read requests behind a proxy on this machine.
fn of_requests(evidence: bool) -> WriteRules {
    let rules = rules(false, evidence);
    let proxies = Proxies::new(&["127.0.0.1".to_owned()]).expect("networks");
    WriteRules {
        enrich: rules.enrich.clone().with_requests(proxies),
        ..rules
    }
}

/// A request of the client in California, passed on by a proxy that added to what the client said.
async fn passed_on(site: &Site, path: &str, body: String) -> u16 {
    let request = Request::post(path)
        .header("x-forwarded-for", "198.51.100.1")
        .header("x-forwarded-for", CALIFORNIA)
        .header("user-agent", TELEPHONE)
        .header(
            "referer",
            "https://www.news.example/today?utm_campaign=spring",
        )
        .body(Body::from(body));
    site.ask(request.expect("a request")).await.status
}

#[tokio::test]
async fn single_increments_and_events_take_from_the_request_what_they_leave_out() {
    let site = Site::open_with(schema(), NOW, of_requests(false));
    let event = |key: &str| json!({"id": key, "type": "click", "entities": {"ad": key}});
    let mut told = event("told");
    told["evidence"] = json!({"ip": "198.51.100.1", "ua": ""});
    let mut page = event("page");
    page["evidence"] = json!({"referrer": "https://search.example/"});
    page["url"] = "?utm_campaign=summer".into();
    for (path, body, status) in [
        ("/v1/events", page.to_string(), 200),
        ("/v1/incr?key.l=a&id=i", String::new(), 204),
        (
            "/v1/incr?key.l=b&evidence.ip=198.51.100.1",
            String::new(),
            204,
        ),
        ("/v1/events", event("one").to_string(), 200),
        ("/v1/events", json!([event("list")]).to_string(), 200),
        ("/v1/events", told.to_string(), 200),
        (
            "/v1/events",
            json!([event("x"), event("y")]).to_string(),
            200,
        ),
        (
            "/v1/increments",
            json!({"keys": {"l": "many"}}).to_string(),
            200,
        ),
    ] {
        assert_eq!(passed_on(&site, path, body).await, status, "{path}");
    }
    // The page before is that with the link; a page itself tells its campaign.
    let of_redirect = ["US", "mobile", "-", "news.example"];
    let of_page = ["US", "mobile", "spring", "-"];
    // A sender that tells of another client tells all.
    let of_item = ["DE", "-", "-", "-"];
    for (key, wanted) in [
        ("l/a", of_redirect),
        ("l/b", of_item),
        ("ad_click/one", of_page),
        ("ad_click/told", of_item),
        (
            "ad_click/page",
            ["US", "mobile", "summer", "search.example"],
        ),
        // The sender of many is no client, however many they are.
        ("ad_click/list", ["-"; 4]),
        ("ad_click/x", ["-"; 4]),
        ("l/many", ["-"; 4]),
    ] {
        assert_eq!(values(&site, key).await, wanted, "{key}");
    }
    let line = Request::post("/v1/events")
        .header("content-type", "application/x-ndjson")
        .header("user-agent", TELEPHONE)
        .body(Body::from(event("line").to_string()));
    assert_eq!(site.ask(line.expect("a request")).await.status, 200);
    assert_eq!(values(&site, "ad_click/line").await, ["-"; 4]);
    for id in ["i", "one"] {
        let verdict = site.get(&format!("/v1/events/{id}")).await.text;
        assert!(!verdict.contains(CALIFORNIA), "{verdict}");
    }
}

#[tokio::test]
async fn a_cloud_event_takes_from_its_request_too() {
    let site = Site::open_with(schema(), NOW, of_requests(false));
    let request = Request::post("/v1/events")
        .header("content-type", "application/json")
        .header("ce-specversion", "1.0")
        .header("ce-id", "c")
        .header("ce-source", "/shop")
        .header("ce-type", "com.example.click")
        .header("x-forwarded-for", CALIFORNIA)
        .body(Body::from(json!({"entities": {"ad": "c"}}).to_string()));
    let answer = site.ask(request.expect("a request")).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(values(&site, "ad_click/c").await, ["US", "-", "-", "-"]);
}

#[tokio::test]
async fn requests_tell_nothing_unless_they_are_asked_and_evidence_of_them_is_kept_where_it_is() {
    let site = Site::open_with(schema(), NOW, rules(false, true));
    assert_eq!(
        passed_on(&site, "/v1/incr?key.l=a&id=i", String::new()).await,
        204
    );
    assert_eq!(values(&site, "l/a").await, ["-"; 4]);
    let counted = site.get("/v1/events/i").await.json()["counted"].clone();
    assert_eq!(counted["evidence"], Value::Null);
    let status = site.get("/v1/admin/status").await.json();
    let kept = json!({"kept": true, "from": ["body"], "keep_days": 7});
    assert_eq!(status["evidence"], kept);

    let site = Site::open_with(schema(), NOW, of_requests(true));
    assert_eq!(
        passed_on(&site, "/v1/incr?key.l=a&id=i", String::new()).await,
        204
    );
    let counted = site.get("/v1/events/i").await.json()["counted"].clone();
    let page = "https://www.news.example/today?utm_campaign=spring";
    let kept = json!({"ip": CALIFORNIA, "ua": TELEPHONE, "referrer": page});
    assert_eq!(counted["evidence"], kept);
    let event = json!({"id": "e", "type": "click", "entities": {"ad": "e"}});
    assert_eq!(passed_on(&site, "/v1/events", event.to_string()).await, 200);
    let counted = site.get("/v1/events/e").await.json()["counted"].clone();
    let kept = json!({"ip": CALIFORNIA, "ua": TELEPHONE});
    assert_eq!(
        (&counted["evidence"], &counted["meta"]["url"]),
        (&kept, &json!(page))
    );
    let status = site.get("/v1/admin/status").await.json();
    assert_eq!(status["evidence"]["from"], json!(["body", "request"]));
    assert_eq!(status["enrich"]["from_request"], true);
    assert_eq!(status["enrich"]["geo"]["type"], "GeoLite2-Country");
    assert_eq!(status["enrich"]["geo"]["built_at"], "2023-11-14T22:13:20Z");
    let fill = json!({"subtotal": "c", "source": "country"});
    assert_eq!(status["enrich"]["fill"][0], fill);
}
