//! The description of the API says what the server does.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tallyring_records::{EventType, Namespace, Ratio, Schema};

use super::site::Site;

const NOW: i64 = 1_360_351_157;

/// A site that has counted something of everything, and its description.
async fn described() -> (Site, Value) {
    let mut schema = Schema::default_clicks();
    let event = |name: &str| EventType {
        name: name.into(),
        entities: vec!["ad".into()],
        lateness_seconds: 300,
        actions: false,
    };
    let namespace = |name: &str| Namespace {
        name: name.into(),
        uniques: true,
        ..schema.namespaces[0].clone()
    };
    let of_ads = ["ad_click", "ad_impression"].map(namespace);
    schema.namespaces.extend(of_ads);
    schema.events = vec![event("click"), event("impression")];
    schema.ratios = vec![Ratio {
        name: "ctr".into(),
        numerator: "click".into(),
        denominator: "impression".into(),
    }];
    let site = Site::open(schema, NOW);
    site.count(json!([{
        "at": NOW,
        "n": 5,
        "keys": {"l": "abc", "u": "orofrog", "d": "nytimes.com"},
        "by": {"c": "US", "r": "http://t.co/a"},
    }]))
    .await;
    let document = site.get("/openapi.json").await.json();
    (site, document)
}

fn names(value: &Value) -> BTreeSet<&str> {
    let fields = value.as_object().into_iter().flatten();
    fields.map(|(name, _)| name.as_str()).collect()
}

/// The example of a GET's answer.
fn example(operation: &Value) -> &Value {
    &operation["responses"]["200"]["content"]["application/json"]["example"]
}

#[tokio::test]
async fn the_page_lists_every_operation_with_its_parameters_answers_and_an_example_to_copy() {
    let (site, document) = described().await;
    let page = site.get("/docs").await.text;
    for name in ["<script", "<style", " style=", "src=", "-d 'null'"] {
        assert!(!page.contains(name), "{name}");
    }
    for quoted in page.split("href=\"").skip(1) {
        let address = quoted.split('"').next().unwrap();
        match address.strip_prefix('#') {
            Some(id) => assert!(page.contains(&format!(" id=\"{id}\"")), "{id}"),
            None => assert_eq!(site.get(address).await.status, 200, "{address}"),
        }
    }
    let mut examples = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap();
            let section = page.split(&format!("<details id=\"{id}\">")).nth(1);
            let section = section.unwrap_or_else(|| panic!("{id}"));
            let section = section.split("</details>").next().unwrap();
            assert!(section.contains(&format!("<code>{path}</code>")), "{id}");
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            for name in parameters.map(|of| of["name"].as_str().unwrap()) {
                let name = name.replace('<', "&lt;").replace('>', "&gt;");
                assert!(
                    section.contains(&format!("<code>{name}</code>")),
                    "{id} {name}"
                );
            }
            for status in names(&operation["responses"]) {
                assert!(
                    section.contains(&format!("<td>{status}</td>")),
                    "{id} {status}"
                );
            }
            let command = section.split("<pre>curl ").nth(1).expect(id);
            let address = command.split('\'').nth(1).unwrap();
            let address = address.strip_prefix("http://127.0.0.1:7117").expect(id);
            assert!(!address.contains(['{', ' ']), "{id}: {address}");
            // A stream lasts, the id is not known, no day is final, and this process keeps no keys.
            let left_out = [
                "/v1/live",
                "/v1/events/{id}",
                "/v1/finals/{day}",
                "/v1/finals/{day}.csv",
                "/v1/finals/{day}.svg",
                "/v1/admin/reconciles/{day}",
                "/v1/admin/keys",
                "/v1/admin/shares",
            ];
            let asks = method == "get" && !left_out.contains(&path.as_str());
            if asks {
                let answer = site.get(&address.replace("&amp;", "&")).await;
                assert!(
                    (200..300).contains(&answer.status),
                    "{address}: {}",
                    answer.text
                );
                examples += 1;
            }
        }
    }
    assert!(examples > 60, "{examples}");
}

#[tokio::test]
async fn every_operation_says_how_it_is_refused_and_has_a_name_of_its_own() {
    let (_site, document) = described().await;
    let mut ids = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap();
            assert!(
                ids.insert(id.to_owned()),
                "{method} {path}: {id} stands twice"
            );
            for (status, answer) in operation["responses"].as_object().unwrap() {
                let problem = &answer["content"]["application/problem+json"];
                let shown = problem["example"]["status"].as_u64().unwrap_or(0);
                let is_shown = problem.is_null() || shown.to_string() == *status;
                assert!(is_shown, "{method} {path}: {status}");
            }
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                if parameter["name"] == "unit" && path.starts_with("/v1/") {
                    let schema = &parameter["schema"];
                    assert!(schema["description"].is_string(), "{path}: {parameter}");
                    assert_eq!(schema["default"], "day", "{path}");
                }
            }
            let answers = names(&operation["responses"]);
            assert!(answers.contains("431"), "{method} {path}");
            let is_open = ["/healthz", "/readyz"].contains(&path.as_str());
            let is_v3 = path.starts_with("/v3/");
            for status in ["401", "403", "429"] {
                let is_told = answers.contains(status);
                assert_eq!(is_told, !is_open && !is_v3, "{method} {path}: {status}");
            }
            // A stream lasts, and version 4 has 503 for what takes too long.
            let has_limit = !is_open && !is_v3 && !path.starts_with("/v4/") && path != "/v1/live";
            assert_eq!(answers.contains("408"), has_limit, "{method} {path}");
            // Only what has a validator can be known already.
            let has_validator = method == "get"
                && (path.contains("/{namespace}/")
                    || path.starts_with("/v1/compare")
                    || path.starts_with("/v1/ratios/")
                    || path.starts_with("/v1/finals"));
            assert_eq!(answers.contains("304"), has_validator, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn reads_are_described_in_every_form_with_an_example_of_each() {
    let (site, document) = described().await;
    for read in [
        "/v1/{namespace}/{key}/counts",
        "/v1/{namespace}/{key}/summary",
        "/v1/{namespace}/{key}/by/{subtotal}",
        "/v1/{namespace}/counts",
        "/v1/{namespace}/by",
        "/v1/{namespace}/top",
        "/v1/{namespace}/{key}/uniques",
        "/v1/ratios/{ratio}/{entity}/{key}",
    ] {
        let query = match read.ends_with("/by") {
            true => "?units=1&subtotal=c",
            false => "?units=1",
        };
        let plain = &document["paths"][read]["get"];
        let filled = |path: &str| {
            let namespace = if read.ends_with("/uniques") {
                "ad_click"
            } else {
                "l"
            };
            path.replace("{namespace}", namespace)
                .replace("{key}", "abc")
                .replace("{subtotal}", "c")
                .replace("{ratio}", "ctr")
                .replace("{entity}", "ad")
        };
        let answer = site.get(&format!("{}{query}", filled(read))).await.json();
        assert_eq!(names(example(plain)), names(&answer), "{read}");
        for (suffix, kind) in [
            (".csv", "text/csv; charset=utf-8; header=present"),
            (".svg", "image/svg+xml"),
        ] {
            let path = format!("{read}{suffix}");
            let form = &document["paths"][&path]["get"]["responses"]["200"]["content"];
            assert_eq!(names(form), BTreeSet::from([kind]), "{path}");
            let by_accept = &plain["responses"]["200"]["content"][kind];
            assert_eq!(by_accept, &form[kind], "{path}");
            let answer = site.get(&format!("{}{query}", filled(&path))).await;
            assert_eq!(
                (answer.status, answer.content_type.as_str()),
                (200, kind),
                "{path}"
            );
            if suffix == ".csv" {
                let header = |text: &str| text.lines().next().unwrap().to_owned();
                let example = form[kind]["example"].as_str().unwrap();
                assert_eq!(header(example), header(&answer.text), "{path}");
            }
        }
    }
    let limit = document["paths"]["/v1/{namespace}/top"]["get"]["parameters"]
        .as_array()
        .unwrap()
        .iter()
        .find(|parameter| parameter["name"] == "limit")
        .unwrap();
    let bounds = (&limit["schema"]["minimum"], &limit["schema"]["maximum"]);
    assert_eq!(bounds, (&json!(1), &json!(10_000)));
}

#[tokio::test]
async fn every_json_answer_has_an_example_that_is_like_the_answer() {
    let (site, document) = described().await;
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            for (status, answer) in operation["responses"].as_object().unwrap() {
                let json = &answer["content"]["application/json"];
                let is_good = status.starts_with('2') && json.is_object();
                assert!(
                    !is_good || json.get("example").is_some(),
                    "{method} {path}: {status}"
                );
            }
            let body = &operation["requestBody"]["content"]["application/json"]["schema"];
            assert_ne!(
                body["type"], "object",
                "{method} {path}: the body's fields are not said"
            );
        }
    }
    for path in [
        "/v1/namespaces",
        "/v1/admin/status",
        "/v1/admin/generations",
        "/v1/admin/datasets",
    ] {
        let example = example(&document["paths"][path]["get"]).clone();
        let answer = site.get(path).await.json();
        check_like(&example, &answer, path);
    }
    let body = json!([{"keys": {"l": "x"}, "id": "i1"}]).to_string();
    for (path, body) in [
        ("/v1/increments", body.as_str()),
        ("/v1/query", r#"{"queries":[{"namespace":"l","key":"x"}]}"#),
    ] {
        let request = axum::http::Request::post(path).header("content-type", "application/json");
        let answer = site
            .ask(request.body(body.to_owned().into()).unwrap())
            .await;
        check_like(
            example(&document["paths"][path]["post"]),
            &answer.json(),
            path,
        );
    }
    site.count(json!([{"keys": {"l": "x"}, "id": "i1"}])).await;
    let verdict = site.get("/v1/events/i1").await.json();
    let example = example(&document["paths"]["/v1/events/{id}"]["get"]);
    assert_eq!(names(example), names(&verdict));
    assert_eq!(names(&example["duplicate"]), names(&verdict["duplicate"]));
}

#[tokio::test]
async fn every_route_is_described_and_nothing_else_is() {
    let (site, document) = described().await;
    let described = document["paths"].as_object().unwrap();
    let of_bitly = |path: &&String| path.starts_with("/v3/") || path.starts_with("/v4/");
    let expected: BTreeSet<&String> = described.keys().filter(|path| !of_bitly(path)).collect();
    let routes = [crate::writes(), crate::reads(), crate::operations()].concat();
    // Single increments are answered past the router.
    let single = "/v1/incr".to_owned();
    let mut found: BTreeSet<&String> = routes.iter().map(|(path, _)| path).collect();
    found.insert(&single);
    // A subtotal takes the suffix along in its segment, and so does the key of a ratio.
    let in_segment = |path: &&String| {
        let plain = path.strip_suffix(".csv").or(path.strip_suffix(".svg"));
        plain.is_some_and(|plain| plain.ends_with('}') && found.contains(&plain.to_owned()))
    };
    let missing: Vec<_> = found.difference(&expected).collect();
    assert!(missing.is_empty(), "not described: {missing:?}");
    let unknown = expected.difference(&found).copied();
    let unknown: Vec<_> = unknown.filter(|path| !in_segment(path)).collect();
    assert!(unknown.is_empty(), "no routes: {unknown:?}");
    // Methods: what is described is answered, and what is not described is not.
    for (path, item) in described {
        for method in ["GET", "POST", "DELETE"] {
            // A stream lasts.
            if of_bitly(&path) || (path.as_str(), method) == ("/v1/live", "GET") {
                continue;
            }
            let filled = path
                .replace("{subtotal}", "c")
                .replace("{ratio}", "ctr")
                .replace("{entity}", "ad")
                .replace("{namespace}", "l")
                .replace(['{', '}'], "");
            let request = axum::http::Request::builder().method(method).uri(&filled);
            let answer = site.ask(request.body("".into()).unwrap()).await;
            let is_described = item.get(method.to_lowercase()).is_some();
            assert_eq!(answer.status != 405, is_described, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn the_stream_of_live_counts_is_described_as_it_is_sent() {
    let (site, document) = described().await;
    let live = &document["paths"]["/v1/live"]["get"];
    let content = &live["responses"]["200"]["content"]["text/event-stream"];
    let parameters = live["parameters"].as_array().unwrap();
    let named: BTreeSet<&str> = parameters
        .iter()
        .map(|parameter| parameter["name"].as_str().unwrap())
        .collect();
    let expected = ["namespace", "key", "timezone", "hour_offset"];
    assert_eq!(named, BTreeSet::from(expected));
    let request = axum::http::Request::get("/v1/live?namespace=l&key=abc");
    let (kind, sent) = site.first_frame(request.body("".into()).unwrap()).await;
    assert_eq!(kind, "text/event-stream");
    let data = |text: &str| -> Value {
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "event: tick", "{text}");
        serde_json::from_str(lines[1].strip_prefix("data: ").unwrap()).unwrap()
    };
    let (example, sent) = (data(content["example"].as_str().unwrap()), data(&sent));
    assert_eq!(names(&example), names(&sent));
    assert_eq!(sent["today"], 5);
}

#[tokio::test]
async fn bodies_of_events_have_fields_and_examples_no_others() {
    let (_site, document) = described().await;
    let schemas = &document["components"]["schemas"];
    for name in ["Event", "Increment", "CloudEvent", "IdVerdict"] {
        let schema = &schemas[name];
        assert!(schema["properties"].is_object(), "{name}: {schema}");
        let unknown: Vec<_> = names(&schema["example"])
            .difference(&names(&schema["properties"]))
            .map(|name| (*name).to_owned())
            .collect();
        assert!(unknown.is_empty(), "{name}: {unknown:?}");
    }
    let counted = example(&document["paths"]["/v1/events/{id}"]["get"]);
    let known = names(&schemas["CountedEvent"]["properties"]);
    assert!(names(&counted["counted"]).is_subset(&known), "{counted}");
}

#[tokio::test]
async fn bodies_of_items_are_one_or_a_list_or_lines_as_described() {
    let (site, document) = described().await;
    let schemas = &document["components"]["schemas"];
    for (path, name) in [("/v1/increments", "Increment"), ("/v1/events", "Event")] {
        let body = &document["paths"][path]["post"]["requestBody"]["content"];
        let json = &body["application/json"]["schema"]["$ref"];
        assert_eq!(*json, format!("#/components/schemas/{name}s"), "{body}");
        let either = &schemas[format!("{name}s")]["oneOf"];
        let item = format!("#/components/schemas/{name}");
        let described = (&either[0]["$ref"], &either[1]["items"]["$ref"]);
        assert_eq!(described, (&json!(item), &json!(item)), "{body}");
        let lines = body["application/x-ndjson"]["example"].as_str().unwrap();
        let first = lines.lines().next().unwrap();
        for (kind, body, count) in [
            ("application/x-ndjson", lines, lines.lines().count()),
            ("application/json", first, 1),
            ("application/json", &format!("[{first},{first}]"), 2),
        ] {
            let request = axum::http::Request::post(path).header("content-type", kind);
            let answer = site.ask(request.body(body.to_owned().into()).unwrap());
            let answer = answer.await.json();
            let taken =
                answer["accepted"].as_u64().unwrap() + answer["duplicates"].as_u64().unwrap();
            assert_eq!(taken, count as u64, "{path} {kind}: {answer}");
        }
    }
}

/// Checks that both have the same fields, also within them; lists are compared by their first items.
fn check_like(example: &Value, answer: &Value, place: &str) {
    match (example, answer) {
        (Value::Object(_), Value::Object(_)) => {
            assert_eq!(names(example), names(answer), "{place}");
            for name in names(example) {
                check_like(&example[name], &answer[name], &format!("{place} {name}"));
            }
        }
        (Value::Array(examples), Value::Array(answers)) => {
            if let (Some(example), Some(answer)) = (examples.first(), answers.first()) {
                check_like(example, answer, place);
            }
        }
        _ => {}
    }
}

#[tokio::test]
async fn what_bitlys_routes_are_said_to_answer_they_do() {
    let (site, document) = described().await;
    let mut asked = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        let is_v3 = path.starts_with("/v3/");
        if !is_v3 && !path.starts_with("/v4/") {
            continue;
        }
        asked += 1;
        let filled = path
            .replace("{bitlink}", "abc")
            .replace("{group}", "orofrog")
            .replace("{organization}", "o");
        let query = match path.split('/').nth(2).unwrap() {
            _ if !is_v3 => "",
            "link" => "?link=abc",
            "user" if path.ends_with("tracking_domain_clicks") => "?domain=nytimes.com",
            "user" => "?access_token=orofrog&unit=day",
            _ => "?hash=abc",
        };
        let answer = site.get(&format!("{filled}{query}")).await.json();
        let (mut expected, mut found) = (example(&item["get"]).clone(), answer);
        if is_v3 {
            assert_eq!(found["status_txt"], "OK", "{path}");
            (expected, found) = (expected["data"].take(), found["data"].take());
        }
        for name in names(&expected) {
            assert!(found.get(name).is_some(), "{path}: no {name} in {found}");
        }
    }
    assert!(asked >= 40, "only {asked} routes are described");
}
