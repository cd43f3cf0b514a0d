//! The pages of the dashboard: what they are made of, and what they may load.

use axum::body::Body;
use axum::http::{Request, header};
use serde_json::json;
use tallyring_records::Schema;

use super::actions;
use super::site::{Answer, Site};

const NOW: i64 = 1_331_923_200;

#[tokio::test]
async fn pages_load_only_their_own_files_and_hold_no_inline_script_or_style() {
    let site = Site::open(Schema::default_clicks(), NOW);
    for path in [
        "/",
        "/search?q=x",
        "/namespaces",
        "/compare?key=l/a&key=l/b",
        "/state",
        "/keys/l/a%2Fb%20c",
        "/keys/l/a%2Fb%20c/by/c",
        "/reach/ad_click/a%2Fb",
        "/people",
        "/days",
        "/days/2026-03-10",
    ] {
        let page = site.get(path).await;
        assert_eq!(
            (page.status, page.content_type.as_str()),
            (200, "text/html; charset=utf-8")
        );
        let policy = page.header("content-security-policy");
        assert!(
            policy.starts_with("default-src 'none'") && !policy.contains("unsafe"),
            "{policy}"
        );
        assert!(!page.text.contains("<style") && !page.text.contains(" style="));
        assert!(!page.text.contains("http://") && !page.text.contains("https://"));
        for script in page.text.split("<script").skip(1) {
            assert!(
                script.starts_with(" type=\"module\" src=\"/dashboard/"),
                "{script}"
            );
        }
        let mut files = 0;
        for quoted in page
            .text
            .split('"')
            .filter(|text| text.starts_with("/dashboard/"))
        {
            assert_eq!(site.get(quoted).await.status, 200, "{quoted}");
            files += 1;
        }
        assert!(files >= 4);
    }
    let missing = site.get("/dashboard/none.js").await;
    assert_eq!(
        (missing.status, missing.json()["field"].clone()),
        (404, json!("path"))
    );
}

#[tokio::test]
async fn a_browsers_wrong_address_gets_a_page_and_a_programs_a_problem_document() {
    const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    let site = Site::open(Schema::default_clicks(), NOW);
    let ask = async |path: &str, accept: &str| -> Answer {
        let request = Request::get(path).header(header::ACCEPT, accept);
        site.ask(request.body(Body::empty()).unwrap()).await
    };
    for path in [
        "/nothing",
        "/v1/l/a",
        "/dashboard/none.js",
        "/docs/none",
        "/a\"b&c",
    ] {
        let page = ask(path, BROWSER).await;
        assert_eq!(page.status, 404, "{path}");
        assert_eq!(page.content_type, "text/html; charset=utf-8", "{path}");
        assert_eq!(page.header("vary"), "accept", "{path}");
        let policy = page.header("content-security-policy");
        assert!(
            policy.starts_with("default-src 'none'") && !policy.contains("unsafe"),
            "{policy}"
        );
        let shown = path.replace('&', "&amp;").replace('"', "&quot;");
        for part in [
            &format!("<code>{shown}</code>"),
            "href=\"/\"",
            "href=\"/docs/\"",
        ] {
            assert!(page.text.contains(part), "{path}: {}", page.text);
        }
        assert!(!page.text.contains("<script") && !page.text.contains(" style="));
        for accept in [
            "*/*",
            "application/json",
            "application/json, text/html;q=0.9",
            "text/html;q=0",
        ] {
            let refused = ask(path, accept).await;
            let kind = (refused.status, refused.content_type.as_str());
            assert_eq!(kind, (404, "application/problem+json"), "{path} {accept}");
            assert_eq!(refused.header("vary"), "accept", "{path}");
        }
    }
    let long = ask(&format!("/{}", "x".repeat(4_000)), BROWSER).await;
    assert!(long.text.len() < 4_000 && long.text.contains("xx…</code>"));
    // bitly's clients get bitly's answers.
    let old = ask("/v3/nothing", BROWSER).await;
    assert_eq!(old.json()["status_txt"], "UNKNOWN", "{}", old.text);
    let new = ask("/v4/nothing", BROWSER).await;
    let told = (new.status, new.json()["message"].clone());
    assert_eq!(told, (404, json!("NOT_FOUND")), "{}", new.text);
}

#[tokio::test]
async fn a_file_whose_name_is_no_text_is_a_problem_document() {
    let site = Site::open(Schema::default_clicks(), NOW);
    for path in ["/dashboard/%FF", "/docs/%FF"] {
        let refused = site.get(path).await;
        assert_eq!(refused.status, 400, "{path}: {}", refused.text);
        assert_eq!(refused.content_type, "application/problem+json", "{path}");
        assert_eq!(refused.json()["value"], path);
    }
}

#[tokio::test]
async fn scripts_import_files_that_are_there_and_a_browser_asks_again() {
    let site = Site::open(Schema::default_clicks(), NOW);
    let mut waiting = vec!["app.js".to_owned()];
    let mut seen = Vec::new();
    while let Some(name) = waiting.pop() {
        if seen.contains(&name) {
            continue;
        }
        let script = site.get(&format!("/dashboard/{name}")).await;
        assert_eq!(
            script.content_type, "text/javascript; charset=utf-8",
            "{name}"
        );
        assert_eq!(script.header("cache-control"), "no-cache", "{name}");
        assert!(script.header("etag").starts_with("W/"), "{name}");
        let imports = script.text.split("from \"./").skip(1);
        waiting.extend(
            imports
                .filter_map(|rest| rest.split('"').next())
                .map(str::to_owned),
        );
        seen.push(name);
    }
    assert!(seen.len() >= 8, "{seen:?}");
    let charts = site.get("/dashboard/charts.css").await;
    assert!(
        charts
            .text
            .contains(".tallyring .b{fill:light-dark(#2563eb,#5b9bf8)}")
    );
    // A browser asks for all of it compressed.
    let mut bytes = 0;
    let others = ["style.css", "charts.css", "icon.svg"].map(str::to_owned);
    let files = others.iter().chain(&seen);
    let files = files.map(|name| format!("/dashboard/{name}"));
    for path in files.chain(["/".to_owned()]) {
        let request = Request::get(&path).header(header::ACCEPT_ENCODING, "gzip");
        let file = site.ask(request.body(Body::empty()).unwrap()).await;
        assert_eq!(file.status, 200, "{path}");
        bytes += file.sent;
    }
    assert!((30_000..=50_000).contains(&bytes), "{bytes}");
}

#[tokio::test]
async fn what_is_declared_is_listed() {
    let site = Site::open(Schema::default_clicks(), NOW);
    let listed = site.get("/v1/namespaces").await.json();
    assert_eq!(listed["namespaces"][0]["name"], "l");
    assert_eq!(listed["namespaces"][0]["subtotals"], json!(["c", "r", "v"]));
    assert_eq!(listed["namespaces"][2]["title"], "Domain");
    assert_eq!(listed["with_key"], false);
    assert_eq!(
        (&listed["actions"], &listed["people"]),
        (&json!(true), &json!(true))
    );
    assert!(listed["namespaces"][0].get("actions").is_none());
    assert_eq!(listed["caps"], json!([]));
    let cap = json!({"ad_day": {"entity": "ad", "action": "click", "limit": 3, "within": "24h"}});
    let site = Site::open_with_actions(actions::schema(), NOW, actions::caps(cap));
    let listed = site.get("/v1/namespaces").await.json();
    assert_eq!(
        listed["caps"],
        json!([{"name": "ad_day", "entity": "ad", "action": "click", "within": "24h"}])
    );
    let namespaces = listed["namespaces"].as_array().unwrap();
    let of_groups = namespaces
        .iter()
        .find(|namespace| namespace["name"] == "ad_group_impression");
    assert_eq!(
        of_groups.unwrap()["actions"],
        json!({"type": "impression", "entity": "ad_group"})
    );
}

#[tokio::test]
async fn a_namespace_counts_what_its_keys_do() {
    let site = Site::open(Schema::default_clicks(), NOW);
    let hour = 3_600;
    let long = "a key of many more than twelve characters";
    site.count(json!([
        {"at": NOW, "n": 5, "keys": {"l": "a", "u": "x"}},
        {"at": NOW - hour, "n": 2, "keys": {"l": long}},
        {"at": NOW - 24 * hour, "n": 3, "keys": {"l": "b"}},
    ]))
    .await;
    let days = site.get("/v1/l/counts?unit=day&units=2").await.json();
    let counts = |answer: &serde_json::Value| -> Vec<u64> {
        let rows = answer["counts"].as_array().unwrap().iter();
        rows.map(|row| row["count"].as_u64().unwrap()).collect()
    };
    assert_eq!((counts(&days), &days["total"]), (vec![3, 7], &json!(10)));
    let hours = site
        .get("/v1/l/counts?unit=hour&units=3&hour_offset=1")
        .await
        .json();
    assert_eq!(counts(&hours), [0, 2, 5]);
    assert_eq!(site.get("/v1/u/counts?units=1").await.json()["total"], 5);
    let all = site.get("/v1/l/counts?unit=year&units=-1").await.json();
    assert_eq!(counts(&all), [10]);
    let csv = site.get("/v1/l/counts.csv?units=1").await.text;
    assert_eq!(csv, "start,count\n2012-03-16T00:00:00+00:00,7\n");
    assert_eq!(site.get("/v1/x/counts").await.status, 404);
}

#[tokio::test]
async fn pictures_take_a_width_a_theme_and_the_period_before() {
    let site = Site::open(Schema::default_clicks(), NOW);
    site.count(json!([
        {"at": NOW, "n": 6, "keys": {"l": "a"}},
        {"at": NOW - 7 * 86_400, "n": 4, "keys": {"l": "a"}},
    ]))
    .await;
    for path in ["/v1/l/a/counts.svg", "/v1/l/counts.svg"] {
        let asked = format!("{path}?units=7&width=360&theme=dark&compare=before");
        let picture = site.get(&asked).await;
        assert_eq!(picture.status, 200, "{}", picture.text);
        assert!(picture.text.contains("viewBox=\"0 0 360 320\""), "{path}");
        assert!(!picture.text.contains("@media"), "{path}");
        assert!(
            picture.text.contains("before 4"),
            "{path}: {}",
            picture.text
        );
        let plain = site.get(&format!("{path}?units=7")).await;
        assert_ne!(picture.header("etag"), plain.header("etag"), "{path}");
        for (parameters, field, status) in [
            ("width=100", "width", 422),
            ("width=x", "width", 400),
            ("theme=pink", "theme", 400),
            ("compare=after", "compare", 400),
            ("units=-1&compare=before", "compare", 422),
        ] {
            let answer = site.get(&format!("{path}?{parameters}")).await;
            assert_eq!(
                (answer.status, &answer.json()["field"]),
                (status, &json!(field)),
                "{parameters}"
            );
        }
        let compared = site
            .get(&format!(
                "{}?units=7&compare=before",
                path.trim_end_matches(".svg")
            ))
            .await
            .json();
        let before = json!({
            "kind": "before",
            "from": "2012-03-03T00:00:00+00:00",
            "to": "2012-03-10T00:00:00+00:00",
            "covered": false,
            "counts": [0, 0, 0, 0, 0, 0, 4],
        });
        assert_eq!(
            (&compared["before"], &compared["total"]),
            (&before, &json!(6))
        );
        let csv = path.replace(".svg", ".csv?compare=before");
        let csv = site.get(&csv).await;
        assert!(csv.text.starts_with("start,count,before\n"), "{}", csv.text);
        let json = site
            .get(&format!("{}?width=300", path.trim_end_matches(".svg")))
            .await;
        assert_eq!((json.status, &json.json()["field"]), (400, &json!("width")));
    }
    let top = site.get("/v1/l/top.svg?width=300").await;
    assert!(top.text.contains("viewBox=\"0 0 300 "));
}

#[tokio::test]
async fn a_range_compares_with_the_same_weekdays_and_with_the_year_before() {
    let site = Site::open(Schema::default_clicks(), NOW);
    site.count(json!([{"at": NOW, "n": 1, "keys": {"l": "a"}}]))
        .await;
    let compared = async |parameters: &str| {
        let path = format!("/v1/l/a/counts?timezone=Europe/Berlin&{parameters}");
        let answer = site.get(&path).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let before = answer.json()["before"].clone();
        let of = |name: &str| before[name].as_str().expect("a time")[..16].to_owned();
        (
            of("from"),
            of("to"),
            before["counts"].as_array().expect("counts").len(),
        )
    };
    let is = |from: &str, to: &str, count| (from.to_owned(), to.to_owned(), count);
    for (parameters, expected) in [
        // Three days from Wednesday to Friday, and ten, which reach into two weeks.
        (
            "from=2012-03-14&to=2012-03-16&compare=weekdays",
            is("2012-03-07T00:00", "2012-03-10T00:00", 3),
        ),
        (
            "from=2012-03-07&to=2012-03-16&compare=weekdays",
            is("2012-02-22T00:00", "2012-03-03T00:00", 10),
        ),
        // Over the begin of summer time.
        (
            "from=2012-03-26T10:00:00+02:00&to=2012-03-26T11:59:00+02:00&unit=hour&compare=weekdays",
            is("2012-03-19T10:00", "2012-03-19T12:00", 2),
        ),
        (
            "from=2012-03-01&to=2012-03-16&compare=year",
            is("2011-03-01T00:00", "2011-03-17T00:00", 16),
        ),
        (
            "from=2012-02-29&to=2012-02-29&compare=year",
            is("2011-02-28T00:00", "2011-03-01T00:00", 1),
        ),
        (
            "from=2012-01-01&to=2012-03-01&unit=month&compare=year",
            is("2011-01-01T00:00", "2011-04-01T00:00", 3),
        ),
        (
            "from=2012-03-05&to=2012-03-11&unit=mweek&compare=year",
            is("2011-03-07T00:00", "2011-03-14T00:00", 1),
        ),
        // As many days, from the last one back: February was shorter.
        (
            "from=2012-02-01&to=2012-02-29&compare=year",
            is("2011-01-31T00:00", "2011-03-01T00:00", 29),
        ),
        (
            "from=2012-01-01&to=2012-01-01&unit=quarter&compare=year",
            is("2011-01-01T00:00", "2011-04-01T00:00", 1),
        ),
    ] {
        let parameters = parameters.replace('+', "%2B");
        assert_eq!(compared(&parameters).await, expected, "{parameters}");
    }
}

#[tokio::test]
async fn a_comparison_is_named_in_pictures_and_refused_where_nothing_is_before() {
    let site = Site::open(Schema::default_clicks(), NOW);
    site.count(json!([{"at": NOW, "n": 1, "keys": {"l": "a"}}]))
        .await;
    let picture = site
        .get("/v1/l/a/counts.svg?units=7&compare=weekdays&width=1000")
        .await;
    assert!(
        picture.text.contains("the same weekdays before"),
        "{}",
        picture.text
    );
    let early = site
        .get("/v1/l/a/counts?from=2000-01-01T00:00:00Z&to=2000-02-01T00:00:00Z&compare=year")
        .await;
    assert_eq!(
        (early.status, &early.json()["field"]),
        (422, &json!("compare"))
    );
    let months = site.get("/v1/l/a/counts?unit=month&compare=weekdays").await;
    assert_eq!(
        (months.status, &months.json()["field"]),
        (422, &json!("compare"))
    );
}

#[tokio::test]
async fn a_change_is_told_only_where_counting_had_begun_when_the_period_before_did() {
    const DAY: i64 = 86_400;
    let site = Site::open(Schema::default_clicks(), NOW);
    let midnight = NOW - NOW % DAY;
    // The seven days before the last seven begin 13 days before today.
    let begins = midnight - 13 * DAY;
    let click = |key: &str, at: i64, n: u32| json!({"at": at, "n": n, "keys": {"l": key}});
    site.count(json!([
        click("within", begins + 3_600, 4),
        click("from the first hour", begins + 60, 4),
        click("earlier", begins - 300 * DAY, 1),
        click("earlier", begins + 5 * DAY, 4),
        click("not before", begins - 300 * DAY, 1),
    ]))
    .await;
    for (key, before, covered, says) in [
        ("within", 4, false, "before 4 · "),
        ("from the first hour", 4, true, "before 4 (+50.0%) · "),
        ("earlier", 4, true, "before 4 (+50.0%) · "),
        ("not before", 0, true, "before 0 · "),
    ] {
        site.count(json!([click(key, NOW - DAY, 6)])).await;
        let path = format!("/v1/l/{}/counts", key.replace(' ', "%20"));
        let asked = format!("{path}?units=7&compare=before");
        let answer = site.get(&asked).await.json();
        let counts = answer["before"]["counts"].as_array().unwrap().iter();
        let sum: u64 = counts.map(|count| count.as_u64().unwrap()).sum();
        let told = (sum, answer["before"]["covered"].as_bool());
        assert_eq!(told, (before, Some(covered)), "{key}");
        let picture = site.get(&asked.replace("/counts", "/counts.svg")).await;
        assert!(picture.text.contains(says), "{key}: {}", picture.text);
    }
    // All keys together were counted from the first hour on.
    let all = site.get("/v1/l/counts.svg?units=7&compare=before").await;
    assert!(all.text.contains("before 12 (+100.0%)"), "{}", all.text);
    let later = site.get("/v1/l/counts.svg?units=6&compare=before").await;
    assert!(later.text.contains("before 4 (+500.0%)"), "{}", later.text);
    let unseen = site.get("/v1/u/counts.svg?units=7&compare=before").await;
    assert!(!unseen.text.contains("(+"), "{}", unseen.text);
}
