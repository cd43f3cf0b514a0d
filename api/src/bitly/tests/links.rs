//! Version 3: `/v3/link/*`, its parameters and its envelope.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use tallyring_records::Schema;

use super::{NOW, Site, v3_echo as with_echo};

const LINK: &str = "link=http%3A%2F%2Fbit.ly%2F1234&access_token=T";

#[tokio::test]
async fn the_documented_requests_answer_as_documented() {
    let site = Site::documented().await;
    let rolled = with_echo(json!({"link_clicks": 9139}), -1);
    site.check_v3(&format!("/v3/link/clicks?{LINK}"), rolled.clone())
        .await;
    let rows = json!({"link_clicks": [
        {"clicks": 1, "dt": 1360299600},
        {"clicks": 2, "dt": 1360213200},
        {"clicks": 2, "dt": 1360126800},
        {"clicks": 3, "dt": 1360040400},
        {"clicks": 10, "dt": 1359954000},
    ]});
    let rows = with_echo(rows, 5);
    site.check_v3(
        &format!("/v3/link/clicks?{LINK}&units=5&rollup=false"),
        rows.clone(),
    )
    .await;
    // Parameters that clients add or leave out change nothing.
    for extra in [
        "units=5",
        "units=5&unit=day&unit_reference_ts=now&timezone=America/New_York&rollup=FALSE",
        "units=5&tz_offset=-5&format=json&signature=x&t=1&limit=1",
        "units=5&unit=&rollup=&timezone=&limit=&unit_reference_ts=",
    ] {
        site.check_v3(&format!("/v3/link/clicks?{LINK}&{extra}"), rows.clone())
            .await;
    }
    let rolled = with_echo(json!({"link_clicks": 5}), 3);
    site.check_v3(
        &format!("/v3/link/clicks?{LINK}&units=3&rollup=true"),
        rolled,
    )
    .await;
}

#[tokio::test]
async fn all_of_time_lists_what_is_not_zero_and_a_number_of_units_every_unit() {
    let site = Site::documented().await;
    let rows = |units: &str| format!("/v3/link/clicks?{LINK}&unit=month&rollup=false&{units}");
    let month = |clicks: Value, units: i64| json!({"link_clicks": clicks, "tz_offset": -5, "unit": "month", "units": units, "unit_reference_ts": NOW});
    let february = json!({"clicks": 18, "dt": 1359694800});
    let november = json!({"clicks": 9121, "dt": 1351742400});
    site.check_v3(&rows("units=-1"), month(json!([february, november]), -1))
        .await;
    let zeros = [1357016400, 1354338000].map(|dt| json!({"clicks": 0, "dt": dt}));
    let filled = json!([february, zeros[0], zeros[1], november]);
    site.check_v3(&rows("units=4"), month(filled, 4)).await;
    // A key that was never counted.
    let never = "/v3/link/clicks?link=http://bit.ly/never";
    site.check_v3(never, with_echo(json!({"link_clicks": 0}), -1))
        .await;
    site.check_v3(
        &format!("{never}&rollup=false"),
        with_echo(json!({"link_clicks": []}), -1),
    )
    .await;
}

#[tokio::test]
async fn a_history_of_more_units_than_the_bound_of_other_reads_is_answered() {
    let site = Site::with_schema(Schema::default_clicks());
    let click = |at: &str| json!({"at": at, "keys": {"l": "old"}});
    site.count(json!([
        click("2000-01-01T00:00:00Z"),
        click("2013-02-08T19:00:00Z"),
        // Ahead of the clock, which is counted too.
        click("2013-02-09T10:00:00Z"),
    ]))
    .await;
    let clicks = json!([
        {"clicks": 1, "dt": 1360404000},
        {"clicks": 1, "dt": 1360350000},
        {"clicks": 1, "dt": 946684800},
    ]);
    let path = "/v3/link/clicks?link=old&unit=hour&units=-1&rollup=false&timezone=0";
    let expected = json!({"link_clicks": clicks, "tz_offset": 0, "unit": "hour", "units": -1, "unit_reference_ts": NOW});
    site.check_v3(path, expected).await;
    // A reference ends it with the unit that holds it.
    let expected = json!({"link_clicks": [clicks[1], clicks[2]], "tz_offset": 0, "unit": "hour", "units": -1, "unit_reference_ts": NOW});
    site.check_v3(&format!("{path}&unit_reference_ts={NOW}"), expected)
        .await;
}

#[tokio::test]
async fn zones_and_weeks_are_those_of_the_calendar() {
    let site = Site::documented().await;
    let data = |extra: &'static str| {
        let path = format!("/v3/link/clicks?{LINK}&rollup=false&{extra}");
        let site = &site;
        async move { site.v3(&path).await["data"].clone() }
    };
    // 2013-02-08 is a Friday; bitly's weeks begin on Sunday, its own client's `mweek` on Monday.
    let sunday = data("unit=week&units=1").await;
    assert_eq!(
        sunday["link_clicks"],
        json!([{"clicks": 18, "dt": 1359867600}])
    );
    let monday = data("unit=mweek&units=1").await;
    assert_eq!(
        monday["link_clicks"],
        json!([{"clicks": 18, "dt": 1359954000}])
    );
    assert_eq!(monday["unit"], "mweek");
    let half = data("units=1&timezone=Asia/Kolkata").await;
    assert_eq!(half["tz_offset"], json!(5.5));
    assert_eq!(
        half["link_clicks"],
        json!([{"clicks": 0, "dt": 1360348200}])
    );
    let fixed = data("units=1&tz_offset=5.5").await;
    assert_eq!(fixed["link_clicks"], half["link_clicks"]);
    // Further west than any zone in use.
    let west = data("units=1&timezone=-14").await;
    assert_eq!(west["tz_offset"], json!(-14));
    assert_eq!(
        west["link_clicks"],
        json!([{"clicks": 0, "dt": 1360332000}])
    );
    // The offset is that of the reference, here in summer; days in winter still begin at midnight.
    let summer = data("units=1&unit_reference_ts=1344000000").await;
    assert_eq!(
        (&summer["tz_offset"], &summer["unit_reference_ts"]),
        (&json!(-4), &json!(1344000000))
    );
    assert_eq!(
        summer["link_clicks"],
        json!([{"clicks": 0, "dt": 1343966400}])
    );
    let spring = site
        .v3("/v3/link/clicks?link=x&units=3&unit_reference_ts=1363060799")
        .await;
    let starts: Vec<&Value> = spring["data"]["link_clicks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row["dt"])
        .collect();
    // 2013-03-11 and 10 begin with −4 and −5: the day between has 23 hours.
    assert_eq!(starts, [1362974400, 1362891600, 1362805200]);
}

#[tokio::test]
async fn countries_and_referrers_are_listed_by_clicks() {
    let site = Site::documented().await;
    let countries = json!({"countries": [
        {"clicks": 9121, "country": "-"},
        {"clicks": 13, "country": "US"},
        {"clicks": 3, "country": "FR"},
        {"clicks": 2, "country": "DE"},
    ]});
    let path = format!("/v3/link/countries?{LINK}");
    site.check_v3(&path, with_echo(countries.clone(), -1)).await;
    let first = json!({"countries": [countries["countries"][0]]});
    site.check_v3(&format!("{path}&limit=1"), with_echo(first, -1))
        .await;
    let days =
        json!({"countries": [{"clicks": 3, "country": "US"}, {"clicks": 2, "country": "DE"}]});
    site.check_v3(&format!("{path}&units=3"), with_echo(days, 3))
        .await;
    // Our `-` and a stored `direct` are one.
    let referrers = json!({"referrers": [
        {"clicks": 9121, "referrer": "https://news.example/2"},
        {"clicks": 10, "referrer": "http://news.example/1"},
        {"clicks": 4, "referrer": "direct"},
        {"clicks": 3, "referrer": "https://www.facebook.com/x"},
        {"clicks": 1, "referrer": "http://t.co/a"},
    ]});
    let path = format!("/v3/link/referrers?{LINK}");
    site.check_v3(&path, with_echo(referrers, -1)).await;
    let domains = json!({"referring_domains": [
        {"clicks": 9131, "domain": "news.example", "url": "https://news.example/"},
        {"clicks": 4, "domain": "direct", "url": null},
        {"clicks": 3, "domain": "www.facebook.com", "url": "https://www.facebook.com/"},
        {"clicks": 1, "domain": "t.co", "url": "http://t.co/"},
    ]});
    let path = format!("/v3/link/referring_domains?{LINK}");
    site.check_v3(&path, with_echo(domains, -1)).await;
    let by_domain = json!({"referrers": {
        "news.example": [
            {"clicks": 9121, "referrer": "https://news.example/2"},
            {"clicks": 10, "referrer": "http://news.example/1"},
        ],
        "direct": [{"clicks": 4, "referrer": "direct"}],
        "www.facebook.com": [{"clicks": 3, "referrer": "https://www.facebook.com/x"}],
        "t.co": [{"clicks": 1, "referrer": "http://t.co/a"}],
    }});
    let path = format!("/v3/link/referrers_by_domain?{LINK}");
    site.check_v3(&path, with_echo(by_domain, -1)).await;
}

#[tokio::test]
async fn a_limit_cuts_ties_by_text_and_long_referrers_are_written_out() {
    let site = Site::with_schema(Schema::default_clicks());
    let long = |letter: &str| format!("http://long.example/{}", letter.repeat(200));
    let click = |r: &str| json!({"at": NOW, "keys": {"l": "abc"}, "by": {"r": r}});
    let clicks = ["c", "a", "b", "d"].map(|letter| click(&long(letter)));
    site.count(json!(clicks)).await;
    let listed = site.v3("/v3/link/referrers?link=abc&limit=2").await;
    let expected = ["a", "b"].map(|letter| json!({"clicks": 1, "referrer": long(letter)}));
    assert_eq!(listed["data"]["referrers"], json!(expected));
    let domains = site.v3("/v3/link/referring_domains?link=abc&limit=1").await;
    let expected = json!([{"clicks": 4, "domain": "long.example", "url": "http://long.example/"}]);
    assert_eq!(domains["data"]["referring_domains"], expected);
}

#[tokio::test]
async fn a_single_number_can_be_text() {
    let site = Site::documented().await;
    let answer = site
        .get(&format!("/v3/link/clicks?{LINK}&format=txt"))
        .await;
    assert_eq!((answer.status, answer.text.as_str()), (200, "9139\n"));
    assert_eq!(answer.content_type, "text/plain; charset=utf-8");
    for path in [
        format!("/v3/link/clicks?{LINK}&format=txt&rollup=false"),
        format!("/v3/link/countries?{LINK}&format=txt"),
        format!("/v3/link/clicks?{LINK}&format=yaml"),
        format!("/v3/link/encoders_count?{LINK}&format=txt"),
        format!("/v3/link/shares?{LINK}&format=txt"),
    ] {
        site.check_v3_fault(&path, 500, "INVALID_ARG_FORMAT").await;
    }
}

#[tokio::test]
async fn a_link_has_one_encoder_and_no_shares() {
    let site = Site::documented().await;
    let encoders = json!({"count": 1, "aggregate_link": "http://bit.ly/1234"});
    let path = format!("/v3/link/encoders_count?{LINK}");
    site.check_v3(&path, encoders).await;
    let shares = json!({"shares": [], "total_shares": 0});
    let path = format!("/v3/link/shares?{LINK}&units=3");
    site.check_v3(&path, with_echo(shares, 3)).await;
}

#[tokio::test]
async fn the_envelope_comes_as_xml_too() {
    let site = Site::documented().await;
    let path = format!("/v3/link/clicks?{LINK}&units=2&format=xml");
    let answer = site.get(&path).await;
    assert_eq!(
        (answer.status, answer.content_type.as_str()),
        (200, "application/xml; charset=utf-8")
    );
    assert_eq!(
        answer.text,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<response><data>\
         <link_clicks><clicks>1</clicks><dt>1360299600</dt></link_clicks>\
         <link_clicks><clicks>2</clicks><dt>1360213200</dt></link_clicks>\
         <tz_offset>-5</tz_offset><unit>day</unit><unit_reference_ts>1360351157</unit_reference_ts>\
         <units>2</units></data><status_code>200</status_code><status_txt>OK</status_txt></response>\n"
    );
    for path in ["/v3/link/clicks?format=xml", "/v3/none?format=xml"] {
        let answer = site.get(path).await;
        assert_eq!(answer.content_type, "application/xml; charset=utf-8");
        assert!(
            answer.text.contains("<data></data><status_code>"),
            "{}",
            answer.text
        );
    }
}

#[tokio::test]
async fn faults_are_told_in_the_envelope_with_status_200() {
    let site = Site::documented().await;
    for (query, text) in [
        ("", "MISSING_ARG_LINK"),
        ("link=", "MISSING_ARG_LINK"),
        ("link=http://bit.ly/", "INVALID_ARG_LINK"),
        ("link=x&unit=fortnight", "INVALID_ARG_UNIT"),
        ("link=x&units=0", "INVALID_ARG_UNITS"),
        ("link=x&units=-2", "INVALID_ARG_UNITS"),
        ("link=x&units=many", "INVALID_ARG_UNITS"),
        ("link=x&units=10001", "INVALID_ARG_UNITS"),
        ("link=x&unit=minute&units=61", "INVALID_ARG_UNITS"),
        ("link=x&timezone=Mars/Olympus", "INVALID_ARG_TIMEZONE"),
        ("link=x&tz_offset=15", "INVALID_ARG_TZ_OFFSET"),
        ("link=x&tz_offset=-14.5", "INVALID_ARG_TZ_OFFSET"),
        ("link=%zz", "INVALID_ARG_LINK"),
        ("link=x&rollup=perhaps", "INVALID_ARG_ROLLUP"),
        ("link=x&limit=0", "INVALID_ARG_LIMIT"),
        ("link=x&limit=1001", "INVALID_ARG_LIMIT"),
        (
            "link=x&unit_reference_ts=soon",
            "INVALID_ARG_UNIT_REFERENCE_TS",
        ),
        (
            "link=x&unit_reference_ts=1",
            "INVALID_ARG_UNIT_REFERENCE_TS",
        ),
        (
            "link=x&unit=minute&unit_reference_ts=1360351157",
            "INVALID_ARG_UNIT_REFERENCE_TS",
        ),
        ("link=x&link=y", "INVALID_ARG_LINK"),
        ("link=%FF", "INVALID_ARG_LINK"),
    ] {
        site.check_v3_fault(&format!("/v3/link/clicks?{query}"), 500, text)
            .await;
    }
    for path in ["/v3/shorten?longUrl=x", "/v3/link/cities", "/v3/a/b/c"] {
        site.check_v3_fault(path, 404, "UNKNOWN").await;
    }
    for path in ["/v3/link/encoders_count", "/v3/link/shares"] {
        site.check_v3_fault(path, 500, "MISSING_ARG_LINK").await;
    }
    let post = axum::http::Request::post("/v3/link/clicks?link=x");
    let answer = site
        .ask(post.body(axum::body::Body::empty()).unwrap())
        .await;
    assert_eq!(answer.status, 200);
    assert!(answer.text.contains("\"UNKNOWN\""), "{}", answer.text);
}

#[tokio::test]
async fn the_roots_speak_the_language_of_their_version() {
    let site = Site::documented().await;
    for root in ["/v3", "/v3/"] {
        site.check_v3_fault(root, 404, "UNKNOWN").await;
    }
    for root in ["/v4", "/v4/"] {
        site.check_v4_fault(root, 404, super::not_found("")).await;
    }
}

#[tokio::test]
async fn what_the_configuration_does_not_count_is_not_found() {
    let mut schema = Schema::default_clicks();
    schema.namespaces.truncate(1);
    schema.namespaces[0].subtotals.clear();
    schema.titles.clear();
    let site = Site::with_schema(schema);
    site.check_v3(
        "/v3/link/clicks?link=x",
        with_echo(json!({"link_clicks": 0}), -1),
    )
    .await;
    for path in [
        "/v3/link/countries?link=x",
        "/v3/link/referrers?link=x",
        "/v3/user/clicks?access_token=T",
        "/v3/user/tracking_domain_clicks?domain=nytimes.com",
        "/v3/countries?hash=x",
    ] {
        site.check_v3_fault(path, 404, "NOT_FOUND").await;
    }
    for (path, resource) in [
        ("/v4/bitlinks/bit.ly/x/countries", "bitlinks"),
        ("/v4/groups/g/clicks", "groups"),
    ] {
        site.check_v4_fault(path, 404, super::not_found(resource))
            .await;
    }
}

#[tokio::test]
async fn what_reached_what_is_counted_at_most_says_so_in_both_versions() {
    const MOST: u64 = (1 << 53) - 1;
    let site = Site::with_schema(Schema::default_clicks());
    let hours = [0, 1].map(|hour| {
        let at = NOW - hour * 3_600;
        json!({"at": at, "n": MOST, "keys": {"l": "a", "u": "o"}, "by": {"c": "US"}})
    });
    site.count(hours.into_iter().collect()).await;
    for path in [
        "/v3/link/clicks?link=a",
        "/v3/link/clicks?link=a&units=2&rollup=false",
        "/v3/link/countries?link=a",
        "/v3/user/clicks?login=o",
        "/v3/clicks?hash=a",
    ] {
        assert_eq!(site.v3(path).await["data"]["overflow"], true, "{path}");
    }
    for path in [
        "/v4/bitlinks/bit.ly/a/clicks",
        "/v4/bitlinks/bit.ly/a/clicks/summary",
        "/v4/bitlinks/bit.ly/a/countries",
        "/v4/groups/o/clicks",
    ] {
        assert_eq!(site.get(path).await.json()["overflow"], true, "{path}");
    }
    for path in [
        "/v4/bitlinks/bit.ly/b/clicks",
        "/v4/bitlinks/bit.ly/a/clicks?unit=hour&units=1",
    ] {
        let answer = site.get(path).await.json();
        let reached = path.contains("/a/").then_some(Value::Bool(true));
        assert_eq!(answer.get("overflow").cloned(), reached, "{path}");
    }
    let text = site.get("/v3/link/clicks?link=a&format=txt").await;
    assert_eq!(text.text, format!("{MOST}\n"));
    assert_eq!(text.header("tallyring-overflow"), "1");
    let request = Request::get("/v4/bitlinks/bit.ly/a/countries").header("accept", "text/csv");
    let file = site.ask(request.body(Body::empty()).unwrap()).await;
    assert_eq!(
        file.text,
        format!("Country, Clicks,overflow\nUS, {MOST},true\n")
    );
}
