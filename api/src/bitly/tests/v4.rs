//! Version 4.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use super::{HOURS, NOW, Site, invalid, not_found};

const CLICKS: &str = "/v4/bitlinks/bit.ly/1234/clicks";

/// The echoes of a request for `units` days up to now.
fn with_echo(mut answer: Value, units: i64) -> Value {
    answer["unit_reference"] = json!("2013-02-08T19:19:17+0000");
    answer["unit"] = json!("day");
    answer["units"] = json!(units);
    answer
}

fn row(date: &str, clicks: u64) -> Value {
    json!({"date": date, "clicks": clicks})
}

#[tokio::test]
async fn all_of_time_is_sparse_and_a_number_of_units_is_filled() {
    let site = Site::documented().await;
    let all = with_echo(
        json!({"link_clicks": [
            row("2013-02-08T00:00:00+0000", 1),
            row("2013-02-07T00:00:00+0000", 2),
            row("2013-02-06T00:00:00+0000", 2),
            row("2013-02-05T00:00:00+0000", 3),
            row("2013-02-04T00:00:00+0000", 10),
            row("2012-11-15T00:00:00+0000", 9121),
        ]}),
        -1,
    );
    for path in [
        CLICKS,
        "/v4/bitlinks/bit.ly/1234/clicks?unit=day&units=-1&size=50&unit_reference=",
        "/v4/bitlinks/bit.ly%2F1234/clicks?size=2",
        "/v4/bitlinks/1234/clicks",
        "/v4/custom_bitlinks/bit.ly/1234/clicks",
    ] {
        site.check_v4(path, all.clone()).await;
    }
    let filled = with_echo(
        json!({"link_clicks": [
            row("2013-02-04T00:00:00+0000", 10),
            row("2013-02-03T00:00:00+0000", 0),
        ]}),
        2,
    );
    let filled = |reference: &str| {
        let mut filled = filled.clone();
        filled["unit_reference"] = json!(reference);
        filled
    };
    let path = format!("{CLICKS}?units=2&unit_reference=2013-02-04T23:59:59%2B0000");
    site.check_v4(&path, filled("2013-02-04T23:59:59+0000"))
        .await;
    let path = format!("{CLICKS}?units=2&unit_reference=2013-02-04T23:59:59+0000");
    site.check_v4(&path, filled("2013-02-04T23:59:59+0000"))
        .await;
    let summary = |total: u64, units: i64| with_echo(json!({"total_clicks": total}), units);
    site.check_v4(&format!("{CLICKS}/summary"), summary(9139, -1))
        .await;
    site.check_v4(&format!("{CLICKS}/summary?units=3"), summary(5, 3))
        .await;
}

#[tokio::test]
async fn the_offset_of_the_reference_or_a_timezone_moves_the_days() {
    let site = Site::documented().await;
    let rows = json!([row("2013-02-08T05:00:00+0000", 1)]);
    let expected = |reference: &str| {
        let mut answer = with_echo(json!({"link_clicks": rows}), 1);
        answer["unit_reference"] = json!(reference);
        answer
    };
    let path = format!("{CLICKS}?units=1&unit_reference=2013-02-08T12:00:00-0500");
    site.check_v4(&path, expected("2013-02-08T17:00:00+0000"))
        .await;
    let path = format!("{CLICKS}?units=1&timezone=America/New_York");
    site.check_v4(&path, expected("2013-02-08T19:19:17+0000"))
        .await;
    // All of time ends with the unit that holds the reference.
    let path = format!("{CLICKS}/summary?unit_reference=2012-12-31T00:00:00Z");
    let mut answer = with_echo(json!({"total_clicks": 9121}), -1);
    answer["unit_reference"] = json!("2012-12-31T00:00:00+0000");
    site.check_v4(&path, answer).await;
}

#[tokio::test]
async fn facets_list_values_by_clicks() {
    let site = Site::documented().await;
    let facet = |facet: &str, metrics: Value, units: i64| {
        with_echo(json!({"facet": facet, "metrics": metrics}), units)
    };
    let countries = json!([
        {"value": "-", "clicks": 9121},
        {"value": "US", "clicks": 13},
        {"value": "FR", "clicks": 3},
        {"value": "DE", "clicks": 2},
    ]);
    let path = |end: &str| format!("/v4/bitlinks/bit.ly/1234/{end}");
    site.check_v4(
        &path("countries"),
        facet("countries", countries.clone(), -1),
    )
    .await;
    let two = json!([countries[0], countries[1]]);
    site.check_v4(&path("countries?size=2"), facet("countries", two, -1))
        .await;
    let referrers = json!([
        {"value": "direct", "clicks": 4},
        {"value": "http://t.co/a", "clicks": 1},
    ]);
    site.check_v4(&path("referrers?units=3"), facet("referrers", referrers, 3))
        .await;
    let domains =
        json!([{"value": "news.example", "clicks": 9131}, {"value": "direct", "clicks": 4}]);
    site.check_v4(
        &path("referring_domains?size=2"),
        facet("referring_domains", domains, -1),
    )
    .await;
    let devices = json!([
        {"device_type": "-", "clicks": 9138},
        {"device_type": "mobile", "clicks": 1},
    ]);
    site.check_v4(&path("devices"), facet("devices", devices, -1))
        .await;
    let networks = json!({
        "facet": "referrers_by_domain",
        "unit": "day",
        "units": -1,
        "unit_reference": NOW,
        "referrers_by_domain": [
            {"network": "other", "referrers": [
                {"value": "https://news.example/2", "clicks": 9121},
                {"value": "http://news.example/1", "clicks": 10},
            ]},
            {"network": "direct", "referrers": [{"value": "direct", "clicks": 4}]},
            {"network": "facebook", "referrers": [{"value": "https://www.facebook.com/x", "clicks": 3}]},
            {"network": "twitter", "referrers": [{"value": "http://t.co/a", "clicks": 1}]},
        ],
    });
    site.check_v4(&path("referrers_by_domains"), networks).await;
}

#[tokio::test]
async fn groups_and_engagements_have_forms_of_their_own() {
    let site = Site::documented().await;
    let data = json!({"data": [
        {"ts": "2013-02-08T00:00:00+0000", "count": 1},
        {"ts": "2013-02-07T00:00:00+0000", "count": 2},
    ]});
    site.check_v4("/v4/groups/orofrog/clicks?units=2", with_echo(data, 2))
        .await;
    let networks = json!({"facet": "referring_networks", "metrics": [
        {"value": "other", "clicks": 9131},
        {"value": "direct", "clicks": 4},
        {"value": "facebook", "clicks": 3},
        {"value": "twitter", "clicks": 1},
    ]});
    site.check_v4(
        "/v4/groups/orofrog/referring_networks",
        with_echo(networks, -1),
    )
    .await;
    let countries = json!({"facet": "countries", "metrics": [{"value": "US", "clicks": 1}]});
    site.check_v4(
        "/v4/groups/orofrog/countries?units=1",
        with_echo(countries, 1),
    )
    .await;
    let engagements = json!({"engagements": [{
        "engagement_count": 1,
        "engagements": {"lib_button_clicks": 0, "clicks": 1, "scans": 0},
        "date": "2013-02-08T00:00:00+0000",
    }]});
    site.check_v4(
        "/v4/bitlinks/bit.ly/1234/engagements?units=1",
        with_echo(engagements, 1),
    )
    .await;
    let summary = json!({
        "total_engagements": 3,
        "engagements": {"lib_button_clicks": 0, "clicks": 3, "scans": 0},
    });
    site.check_v4(
        "/v4/bitlinks/bit.ly/1234/engagements/summary?units=2",
        with_echo(summary, 2),
    )
    .await;
    site.check_v4(
        "/v4/organizations/o/plan_limits",
        json!({"organization_guid": "o", "plan_limits": []}),
    )
    .await;
    site.check_v4("/v4/user/platform_limits", json!({"platform_limits": []}))
        .await;
}

#[tokio::test]
async fn what_is_not_known_of_clicks_is_answered_as_that() {
    let site = Site::documented().await;
    // Users are not broken down by device: of every click it is unknown.
    let devices = |clicks: Value| json!({"facet": "devices", "metrics": clicks});
    let unknown = json!([{"device_type": "-", "clicks": 3}]);
    let path = "/v4/groups/orofrog/devices?units=2";
    site.check_v4(path, with_echo(devices(unknown), 2)).await;
    let path = "/v4/groups/never/devices";
    site.check_v4(path, with_echo(devices(json!([])), -1)).await;
    let destinations = json!({
        "facet": "clicks_by_destination",
        "metrics": [{"value": "-", "clicks": 3}],
    });
    let path = "/v4/custom_bitlinks/bit.ly/1234/clicks_by_destination?units=2";
    site.check_v4(path, with_echo(destinations, 2)).await;
    let shortened = json!({"facet": "shorten_counts", "metrics": [
        {"key": "2013-02-08T00:00:00+0000", "value": 0},
        {"key": "2013-02-07T00:00:00+0000", "value": 0},
    ]});
    for path in [
        "/v4/groups/orofrog/shorten_counts?units=2",
        "/v4/organizations/o/shorten_counts?units=2",
    ] {
        site.check_v4(path, with_echo(shortened.clone(), 2)).await;
    }
    let sorted = json!({
        "sorted_links": [{"id": "1234", "clicks": 9139}],
        "links": [{"id": "1234"}],
    });
    for path in [
        "/v4/groups/orofrog/bitlinks/clicks",
        "/v4/groups/orofrog/links/clicks/top?size=5",
    ] {
        site.check_v4(path, sorted.clone()).await;
    }
}

#[tokio::test]
async fn hours_answer_for_minutes_that_are_not_kept() {
    let site = Site::documented().await;
    let keys = json!({"l": "1234", "u": "orofrog"});
    site.count(json!([{"at": NOW, "n": 4, "keys": keys, "by": {"c": "US"}}]))
        .await;
    let hours = |mut answer: Value, units: i64| {
        let echo = with_echo(json!({}), units);
        answer["unit_reference"] = echo["unit_reference"].clone();
        answer["unit"] = json!("hour");
        answer["units"] = json!(units);
        answer["note"] = json!(HOURS);
        answer
    };
    let click = |date: &str, clicks: u32| json!({"date": date, "clicks": clicks});
    let clicks = json!({"link_clicks": [
        click("2013-02-08T19:00:00+0000", 4),
        click("2013-02-08T18:00:00+0000", 0),
    ]});
    site.check_v4(&format!("{CLICKS}?unit=minute&units=60"), hours(clicks, 2))
        .await;
    let sorted = json!({
        "sorted_links": [{"id": "1234", "clicks": 4}], "links": [{"id": "1234"}], "note": HOURS,
    });
    let links = "/v4/groups/orofrog/bitlinks/clicks?unit=minute&units=60";
    site.check_v4(links, sorted).await;
    // All minutes are all hours.
    let answer = site.get(&format!("{CLICKS}?unit=minute")).await;
    let answer: Value = serde_json::from_str(&answer.text).unwrap();
    assert_eq!(
        answer["link_clicks"].as_array().map(Vec::len),
        Some(7),
        "{answer}"
    );
    let request = Request::get("/v4/bitlinks/bit.ly/1234/countries?unit=minute&units=5")
        .header("accept", "text/csv")
        .body(Body::empty());
    let answer = site.ask(request.unwrap()).await;
    let noted = (answer.text.as_str(), answer.header("tallyring-note"));
    assert_eq!(noted, ("Country, Clicks\nUS, 4\n", HOURS));
}

#[tokio::test]
async fn lists_of_values_come_as_csv_to_who_accepts_it() {
    let site = Site::documented().await;
    for (end, expected) in [
        ("countries?units=3", "Country, Clicks\nUS, 3\nDE, 2\n"),
        (
            "referrers?units=3",
            "Referrer, Clicks\ndirect, 4\nhttp://t.co/a, 1\n",
        ),
        ("devices?units=1", "Device, Clicks\nmobile, 1\n"),
    ] {
        let request = Request::get(format!("/v4/bitlinks/bit.ly/1234/{end}"))
            .header("accept", "text/csv")
            .body(Body::empty());
        let answer = site.ask(request.unwrap()).await;
        assert_eq!((answer.status, answer.text.as_str()), (200, expected));
        assert_eq!(answer.content_type, "text/csv; charset=utf-8");
        assert_eq!(answer.header("vary"), "accept, accept-encoding");
        assert_eq!(answer.header("cache-control"), "no-cache");
    }
}

#[tokio::test]
async fn any_form_of_authorization_is_taken() {
    let site = Site::documented().await;
    for authorization in ["TOKEN", "Bearer TOKEN"] {
        let request = Request::get(CLICKS)
            .header("authorization", authorization)
            .body(Body::empty());
        assert_eq!(site.ask(request.unwrap()).await.status, 200);
    }
}

#[tokio::test]
async fn faults_have_their_status_and_name_the_field() {
    let site = Site::documented().await;
    for (query, field) in [
        ("unit=fortnight", "unit"),
        ("units=0", "units"),
        ("units=x", "units"),
        ("units=10001", "units"),
        ("size=0", "size"),
        ("size=x", "size"),
        ("size=10001", "size"),
        ("size=18446744073709551615", "size"),
        ("unit_reference=soon", "unit_reference"),
        ("unit_reference=1999-01-01T00:00:00Z", "unit_reference"),
        (
            "unit_reference=2013-01-01T00:00:00%2B1500",
            "unit_reference",
        ),
        ("timezone=Mars/Olympus", "timezone"),
        ("unit=day&unit=week", "unit"),
    ] {
        site.check_v4_fault(
            &format!("{CLICKS}?{query}"),
            400,
            invalid("bitlinks", field),
        )
        .await;
    }
    for (path, resource) in [
        ("/v4/bitlinks/bit.ly/1234", "bitlinks"),
        ("/v4/bitlinks/bit.ly/1234/cities", "bitlinks"),
        ("/v4/bitlinks/%FF/clicks", "bitlinks"),
        ("/v4/custom_bitlinks/bit.ly/1234/cities", "custom_bitlinks"),
        ("/v4/groups/g/cities", "groups"),
        ("/v4/groups/g/bitlinks/created", "groups"),
        ("/v4/groups/g/codes/scans/over_time", "groups"),
        ("/v4/groups/g/feature_usage", "groups"),
        ("/v4/organizations/o", "organizations"),
        ("/v4/shorten", "shorten"),
    ] {
        site.check_v4_fault(path, 404, not_found(resource)).await;
    }
    let post = Request::post("/v4/shorten").body(Body::empty()).unwrap();
    assert_eq!(site.ask(post).await.status, 404);
}
