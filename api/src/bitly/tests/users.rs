//! Version 3: `/v3/user/*`.

use serde_json::{Value, json};

use super::{NOW, Site, v3_echo as with_echo};

#[tokio::test]
async fn without_a_unit_user_clicks_have_the_form_of_old() {
    let site = Site::documented().await;
    let days = json!({
        "clicks": [
            {"clicks": 1, "day_start": 1360299600},
            {"clicks": 2, "day_start": 1360213200},
            {"clicks": 2, "day_start": 1360126800},
            {"clicks": 3, "day_start": 1360040400},
            {"clicks": 10, "day_start": 1359954000},
            {"clicks": 0, "day_start": 1359867600},
            {"clicks": 0, "day_start": 1359781200},
        ],
        "days": 7,
        "total_clicks": 18,
    });
    for query in [
        "access_token=orofrog",
        "access_token=T&login=orofrog&unit=",
        "access_token=orofrog&rollup=true",
    ] {
        site.check_v3(&format!("/v3/user/clicks?{query}"), days.clone())
            .await;
    }
    let two = json!({
        "clicks": [days["clicks"][0], days["clicks"][1]],
        "days": 2,
        "total_clicks": 3,
    });
    for query in ["days=2", "units=2"] {
        site.check_v3(
            &format!("/v3/user/clicks?access_token=orofrog&{query}"),
            two.clone(),
        )
        .await;
    }
}

#[tokio::test]
async fn with_a_unit_they_have_the_form_of_links() {
    let site = Site::documented().await;
    let path = "/v3/user/clicks?access_token=orofrog&unit=day";
    let rolled = json!({"user_clicks": 9139, "total_clicks": 9139});
    site.check_v3(path, with_echo(rolled, -1)).await;
    let rows = json!({
        "user_clicks": [{"clicks": 1, "dt": 1360299600}, {"clicks": 2, "dt": 1360213200}],
        "total_clicks": 3,
    });
    site.check_v3(&format!("{path}&units=2"), with_echo(rows, 2))
        .await;
    let missing = "MISSING_ARG_ACCESS_TOKEN";
    site.check_v3_fault("/v3/user/clicks", 500, missing).await;
    // A header is not enough for this version.
    let request = axum::http::Request::get("/v3/user/clicks?unit=day");
    let request = request.header("authorization", "Bearer orofrog");
    let answer = site
        .ask(request.body(axum::body::Body::empty()).unwrap())
        .await;
    assert!(answer.text.contains(missing), "{}", answer.text);
}

#[tokio::test]
async fn users_have_countries_referrers_and_domains_under_both_names() {
    let site = Site::documented().await;
    let query = "access_token=orofrog&units=3";
    let countries = json!([{"clicks": 3, "country": "US"}, {"clicks": 2, "country": "DE"}]);
    let referrers = json!([
        {"clicks": 4, "referrer": "direct"},
        {"clicks": 1, "referrer": "http://t.co/a"},
    ]);
    let domains = json!([
        {"clicks": 4, "domain": "direct", "url": null},
        {"clicks": 1, "domain": "t.co", "url": "http://t.co/"},
    ]);
    for (name, list) in [
        ("countries", countries),
        ("referrers", referrers),
        ("referring_domains", domains),
    ] {
        let both = json!({name: list, format!("user_{name}"): list});
        site.check_v3(&format!("/v3/user/{name}?{query}"), with_echo(both, 3))
            .await;
    }
}

#[tokio::test]
async fn tracking_domains_are_counted_in_their_namespace() {
    let site = Site::documented().await;
    let path = "/v3/user/tracking_domain_clicks?access_token=T&domain=nytimes.com";
    let rolled = json!({"tracking_domain_clicks": 9139});
    site.check_v3(path, with_echo(rolled, -1)).await;
    let rows = json!({"tracking_domain_clicks": [{"clicks": 1, "dt": 1360299600}]});
    site.check_v3(&format!("{path}&units=1"), with_echo(rows, 1))
        .await;
    let path = "/v3/user/tracking_domain_clicks?access_token=T";
    site.check_v3_fault(path, 500, "MISSING_ARG_DOMAIN").await;
}

#[tokio::test]
async fn nothing_is_shortened_here() {
    let site = Site::documented().await;
    let path = "/v3/user/shorten_counts?access_token=orofrog";
    let both = |counts: Value| json!({"user_shorten_counts": counts, "shorten_counts": counts});
    site.check_v3(path, with_echo(both(json!(0)), -1)).await;
    let rows = json!([
        {"dt": 1360299600, "shortens": 0},
        {"dt": 1360213200, "shortens": 0},
    ]);
    site.check_v3(&format!("{path}&units=2"), with_echo(both(rows), 2))
        .await;
    let text = site.get(&format!("{path}&format=txt")).await;
    assert_eq!(text.text, "0\n");
}

#[tokio::test]
async fn popular_links_are_those_of_the_user_where_it_is_broken_down_by_link() {
    let mut schema = tallyring_records::Schema::default_clicks();
    schema.namespaces[1].subtotals.push("l".to_owned());
    let site = Site::with_schema(schema);
    let click = |user: &str, link: &str, n: u32| json!({"at": NOW, "n": n, "keys": {"u": user, "l": link}, "by": {"l": link}});
    site.count(json!([
        click("orofrog", "few", 1),
        click("orofrog", "many", 5),
        click("other", "theirs", 9),
        {"at": NOW, "n": 7, "keys": {"u": "orofrog"}},
    ]))
    .await;
    let path = "/v3/user/popular_links?access_token=orofrog&units=1";
    let links = |links: Value| with_echo(json!({"popular_links": links}), 1);
    let both = json!([{"link": "many", "clicks": 5}, {"link": "few", "clicks": 1}]);
    site.check_v3(path, links(both.clone())).await;
    site.check_v3(&format!("{path}&limit=1"), links(json!([both[0]])))
        .await;
    let sorted = json!({
        "sorted_links": [{"id": "many", "clicks": 5}, {"id": "few", "clicks": 1}],
        "links": [{"id": "many"}, {"id": "few"}],
    });
    site.check_v4("/v4/groups/orofrog/bitlinks/clicks", sorted)
        .await;
}

#[tokio::test]
async fn popular_links_are_those_of_all_where_nothing_says_whose_they_are() {
    let site = Site::documented().await;
    let path = "/v3/user/popular_links?access_token=orofrog";
    let links = json!({"popular_links": [{"link": "1234", "clicks": 9139}]});
    site.check_v3(path, with_echo(links, -1)).await;
    let links = json!({"popular_links": [{"link": "1234", "clicks": 3}]});
    site.check_v3(&format!("{path}&units=2"), with_echo(links, 2))
        .await;
}
