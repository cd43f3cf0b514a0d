//! Version 3's endpoints for several links at once.

use serde_json::{Value, json};
use tallyring_records::Schema;

use super::{HOURS, NOW, Site};

#[tokio::test]
async fn clicks_of_several_links_come_from_one_view() {
    let site = Site::documented().await;
    let path = "/v3/clicks?shortUrl=http%3A%2F%2Fbit.ly%2F1234&shortUrl=http://bit.ly/&hash=never&login=x&apiKey=y";
    let clicks = json!({"clicks": [
        {
            "short_url": "http://bit.ly/1234",
            "user_hash": "1234",
            "global_hash": "1234",
            "user_clicks": 9139,
            "global_clicks": 9139,
        },
        {"short_url": "http://bit.ly/", "error": "NOT_FOUND"},
        {
            "hash": "never",
            "user_hash": "never",
            "global_hash": "never",
            "user_clicks": 0,
            "global_clicks": 0,
        },
    ]});
    site.check_v3(path, clicks).await;
    // Clients take what is no `http://` link for a hash.
    let path = "/v3/clicks?hash=https%3A%2F%2Fbit.ly%2F1234";
    let taken = &site.v3(path).await["data"]["clicks"][0];
    assert_eq!(taken["hash"], "https://bit.ly/1234");
    assert_eq!(taken["user_clicks"], 9139);
    site.check_v3_fault("/v3/clicks", 500, "MISSING_ARG_SHORTURL")
        .await;
    let most = vec!["hash=a"; 15].join("&");
    let listed = site.v3(&format!("/v3/clicks?{most}")).await;
    assert_eq!(listed["data"]["clicks"].as_array().map(Vec::len), Some(15));
    site.check_v3_fault(
        &format!("/v3/clicks?{most}&hash=a"),
        500,
        "INVALID_ARG_HASH",
    )
    .await;
}

#[tokio::test]
async fn days_are_newest_first_and_seven_unless_asked_otherwise() {
    let site = Site::documented().await;
    let path = "/v3/clicks_by_day?hash=1234";
    let item = |clicks: Value| {
        json!({"clicks_by_day": [
            {"hash": "1234", "user_hash": "1234", "global_hash": "1234", "clicks": clicks},
        ]})
    };
    let two = json!([
        {"clicks": 1, "day_start": 1360299600},
        {"clicks": 2, "day_start": 1360213200},
    ]);
    site.check_v3(&format!("{path}&days=2"), item(two)).await;
    let week = site.v3(path).await;
    let days = week["data"]["clicks_by_day"][0]["clicks"].as_array();
    assert_eq!(days.map(Vec::len), Some(7));
    for days in ["0", "31", "x"] {
        site.check_v3_fault(&format!("{path}&days={days}"), 500, "INVALID_ARG_DAYS")
            .await;
    }
}

#[tokio::test]
async fn hours_answer_for_minutes_where_whole_hours_are_counted() {
    let site = Site::with_schema(Schema::default_clicks());
    let click = |ago: i64, n: u32, country: &str| json!({"at": NOW - ago, "n": n, "keys": {"l": "now", "u": "me"}, "by": {"c": country}});
    site.count(json!([
        click(0, 4, "US"),
        click(3_600, 2, "DE"),
        click(7_200, 9, "FR")
    ]))
    .await;
    let clicks = json!([{
        "short_url": "bit.ly/now", "user_hash": "now", "global_hash": "now", "clicks": [4, 2],
    }]);
    let data = json!({"unit": "hour", "note": HOURS, "clicks_by_minute": clicks});
    site.check_v3("/v3/clicks_by_minute?shortUrl=bit.ly/now", data)
        .await;
    let countries = json!([{"clicks": 4, "country": "US"}, {"clicks": 2, "country": "DE"}]);
    let links = json!([{"clicks": 6, "link": "now"}]);
    for (path, name, expected) in [
        ("link/clicks?link=now", "link_clicks", json!(6)),
        ("link/countries?link=now", "countries", countries),
        ("user/popular_links?access_token=me", "popular_links", links),
    ] {
        let answer = site.v3(&format!("/v3/{path}&unit=minute")).await;
        let data = &answer["data"];
        assert_eq!(data[name], expected, "{path}: {answer}");
        let echo = [&data["unit"], &data["units"], &data["note"]];
        assert_eq!(echo, [&json!("hour"), &json!(2), &json!(HOURS)], "{path}");
    }
    for zone in ["Asia/Kathmandu", "Asia/Kolkata", "America/St_Johns"] {
        let path = format!("/v3/link/clicks?link=now&unit=minute&units=1&timezone={zone}");
        let answer = site.v3(&path).await;
        let hours = json!([{"clicks": 4, "dt": NOW - NOW % 3_600}]);
        assert_eq!(answer["data"]["link_clicks"], hours, "{zone}");
        assert_eq!(answer["data"]["tz_offset"], 0, "{zone}");
    }
    let text = "/v3/link/clicks?link=now&unit=minute&units=1&rollup=true&format=txt";
    let answer = site.get(text).await;
    assert_eq!(
        (answer.text.as_str(), answer.header("tallyring-note")),
        ("4\n", HOURS)
    );
    // A text that is no link needs no minutes.
    let item = json!({"clicks_by_minute": [{"short_url": "http://bit.ly/", "error": "NOT_FOUND"}]});
    site.check_v3("/v3/clicks_by_minute?shortUrl=http://bit.ly/", item)
        .await;
}

#[tokio::test]
async fn minutes_are_answered_where_they_are_kept() {
    let mut schema = Schema::default_clicks();
    schema.namespaces[0].minutes = true;
    let site = Site::open(schema, NOW);
    let click = |ago: i64, n: u64| json!({"at": NOW - ago, "n": n, "keys": {"l": "now"}, "by": {"c": "US"}});
    site.count(json!([
        click(0, 4),
        click(60, 2),
        click(119, 1),
        click(1_700, 7)
    ]))
    .await;
    let minutes = site.v3("/v3/clicks_by_minute?shortUrl=bit.ly/now").await;
    let minutes = minutes["data"]["clicks_by_minute"][0]["clicks"].clone();
    let counted = |minute: usize| minutes[minute].as_u64();
    let newest = [0, 1, 2, 3].map(counted);
    assert_eq!(newest, [Some(4), Some(2), Some(1), Some(0)], "{minutes}");
    assert_eq!(minutes.as_array().map(Vec::len), Some(60));
    let path = "/v3/link/clicks?link=bit.ly/now&unit=minute&units=2&rollup=true";
    assert_eq!(site.v3(path).await["data"]["link_clicks"], 6);
    // All minutes are the last hour's.
    let path = "/v3/link/clicks?link=bit.ly/now&unit=minute";
    let all = site.v3(path).await["data"].clone();
    let sum: u64 = (0..60).filter_map(counted).sum();
    assert_eq!([&all["link_clicks"], &all["units"]], [sum, 60], "{all}");
    // One by one, those that are not zero.
    let path = "/v3/link/clicks?link=bit.ly/now&unit=minute&units=-1&rollup=false";
    let listed = site.v3(path).await["data"].clone();
    let rows = listed["link_clicks"].as_array().unwrap().iter();
    let clicks: Vec<_> = rows.map(|row| row["clicks"].as_u64()).collect();
    assert_eq!(clicks, [Some(4), Some(2), Some(1), Some(7)], "{listed}");
    assert_eq!(listed["units"], -1, "{listed}");
    let path = "/v4/bitlinks/bit.ly/now/clicks?unit=minute&units=3";
    let clicks: Value = serde_json::from_str(&site.get(path).await.text).unwrap();
    assert_eq!(clicks["link_clicks"][1]["clicks"], 2, "{clicks}");
    // Breakdowns keep the minutes of the last hours.
    let path = "/v3/link/countries?link=bit.ly/now&unit=minute&units=2";
    let countries = site.v3(path).await["data"]["countries"].clone();
    assert_eq!(countries, json!([{"country": "US", "clicks": 6}]));
}

#[tokio::test]
async fn days_of_half_hour_zones_are_exact_where_minutes_are_kept() {
    let mut schema = Schema::default_clicks();
    schema.namespaces[0].minutes = true;
    let site = Site::open(schema, NOW);
    // Kolkata's day began at 18:30 UTC.
    let midnight = NOW - (NOW - 66_600).rem_euclid(86_400);
    let key = json!({"l": "now", "u": "me"});
    site.count(json!([
        {"at": midnight - 60, "n": 3, "keys": key},
        {"at": midnight, "n": 2, "keys": key},
    ]))
    .await;
    let days = |path: &str| format!("{path}&unit=day&units=2&timezone=Asia/Kolkata");
    let clicks = site
        .v3(&days("/v3/link/clicks?link=bit.ly/now&rollup=false"))
        .await;
    let clicks = clicks["data"]["link_clicks"].clone();
    assert_eq!(
        (&clicks[0]["clicks"], &clicks[1]["clicks"]),
        (&json!(2), &json!(3)),
        "{clicks}"
    );
    let path = days("/v4/bitlinks/bit.ly/now/clicks?");
    let clicks: Value = serde_json::from_str(&site.get(&path).await.text).unwrap();
    let clicks = &clicks["link_clicks"];
    assert_eq!(
        (&clicks[0]["clicks"], &clicks[1]["clicks"]),
        (&json!(2), &json!(3)),
        "{clicks}"
    );
    // Users are counted by the hour, which counts where it starts.
    let clicks = site
        .v3(&days("/v3/user/clicks?access_token=me&rollup=false"))
        .await;
    assert_eq!(clicks["data"]["user_clicks"][0]["clicks"], 0, "{clicks}");
    let links = site
        .v3("/v3/user/popular_links?access_token=me&unit=day&units=1&timezone=Asia/Kolkata")
        .await;
    assert_eq!(
        links["data"]["popular_links"],
        json!([{"link": "now", "clicks": 2}])
    );
    let minutes = "/v3/user/popular_links?access_token=me&unit=minute&units=60";
    assert_eq!(site.v3(minutes).await["status_code"], 200);
}

#[tokio::test]
async fn one_link_is_broken_down() {
    let site = Site::documented().await;
    let link = |mut data: Value| {
        data["hash"] = json!("1234");
        data["user_hash"] = json!("1234");
        data["global_hash"] = json!("1234");
        data
    };
    let countries = json!({"countries": [
        {"clicks": 9121, "country": "-"},
        {"clicks": 13, "country": "US"},
        {"clicks": 3, "country": "FR"},
        {"clicks": 2, "country": "DE"},
    ]});
    site.check_v3("/v3/countries?hash=1234", link(countries))
        .await;
    let referrers = site.v3("/v3/referrers?shortUrl=http://bit.ly/1234").await;
    assert_eq!(
        referrers["data"]["referrers"][2],
        json!({"clicks": 4, "referrer": "direct"})
    );
    site.check_v3_fault("/v3/referrers?hash=a&hash=b", 500, "INVALID_ARG_SHORTURL")
        .await;
}
