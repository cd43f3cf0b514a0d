//! Counts of actions as CSV.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use super::actions::{DAY, NOW, post, schema, seen, send};
use super::site::{Answer, Site};

async fn file(site: &Site, question: &Value) -> Answer {
    let answer = post(site, "/v1/actions/query.csv", question).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer
}

/// A row for each count of a JSON answer, in the order of the question.
fn rows(question: &Value, answer: &Value) -> Vec<Vec<String>> {
    let list = |name: &str| {
        let texts = question[name].as_array().expect("a list").iter();
        let texts = texts.map(|text| text.as_str().expect("a text").to_owned());
        texts.collect::<Vec<_>>()
    };
    let by_view = question["by_view"] == true;
    let views = if by_view {
        list("view")
    } else {
        vec![String::new()]
    };
    let mut rows = Vec::new();
    for user in &list("users") {
        for range in &list("ranges") {
            for action in &list("action") {
                for view in &views {
                    let mut of = &answer["users"][user][range][action];
                    if by_view {
                        of = &of[view];
                    }
                    for (entity, keys) in question["entity"].as_object().expect("entities") {
                        for key in keys.as_array().expect("keys") {
                            let key = key.as_str().expect("a key");
                            let names = [user, range, action, view, entity, key];
                            let count = of[entity][key].to_string();
                            let names = names.map(str::to_owned).into_iter();
                            rows.push(names.chain([count]).collect());
                        }
                    }
                }
            }
        }
    }
    rows
}

#[tokio::test]
async fn a_table_has_a_row_for_each_count_that_json_has() {
    let site = Site::open(schema(), NOW);
    let viewed = |id: &str, view: &str, ad: &str| {
        let mut event = seen(id, NOW - 60, ad);
        event["view"] = view.into();
        event
    };
    let events = json!([
        viewed("1", "home", "7"),
        viewed("2", "a, \"b\"", "a, \"b\""),
        seen("3", NOW - DAY, "=7")
    ]);
    send(&site, events).await;
    let mut question = json!({"users": ["u", "=w"], "ranges": ["1h", "7d"], "action": ["impression", "click"],
        "entity": {"ad": ["7", "a, \"b\"", "=7"], "campaign": ["x"]}});
    for by_view in [false, true] {
        if by_view {
            question["view"] = json!(["home", "a, \"b\"", "other"]);
            question["by_view"] = true.into();
        }
        let answer = file(&site, &question).await;
        let mut table = csv::Reader::from_reader(answer.text.as_bytes());
        let columns = table.headers().expect("a header").clone();
        let expected = ["user", "range", "action", "view", "entity", "key", "count"];
        assert_eq!(columns.iter().collect::<Vec<_>>(), expected);
        let read = table.records().map(|row| row.expect("a row"));
        let read: Vec<Vec<String>> = read
            .map(|row| row.iter().map(|cell| cell.replace("'=", "=")).collect())
            .collect();
        let json = post(&site, "/v1/actions/query", &question).await.json();
        assert_eq!(read, rows(&question, &json), "{json}");
        // A spreadsheet runs no key.
        assert!(answer.text.contains("\n'=w,"), "{}", answer.text);
    }
}

#[tokio::test]
async fn a_table_is_asked_for_by_the_path_or_by_accept_and_kept_as_a_file() {
    let site = Site::open(schema(), NOW);
    send(&site, json!([seen("1", NOW, "7")])).await;
    let question = json!({"users": ["u"], "ranges": ["1h"], "action": ["impression"], "entity": {"ad": ["7", "8"]}});
    let expected = "user,range,action,view,entity,key,count\nu,1h,impression,,ad,7,1\nu,1h,impression,,ad,8,0\n";
    let answer = file(&site, &question).await;
    assert_eq!(answer.text, expected);
    assert!(answer.content_type.starts_with("text/csv"));
    let told = ["content-disposition", "cache-control"].map(|name| answer.header(name));
    let name = "attachment; filename=\"actions-query.csv\"";
    assert_eq!(told, [name, "no-store"]);
    // A small question, and a large one that the router takes.
    for spaces in [0, 20_000] {
        let body = question.to_string() + &" ".repeat(spaces);
        let ask = async |accept: &str| {
            let request = Request::post("/v1/actions/query").header("accept", accept);
            let request = request.body(Body::from(body.clone()));
            site.ask(request.expect("a request")).await
        };
        assert_eq!(ask("text/csv").await.text, expected);
        assert_eq!(
            ask("image/svg+xml").await.json()["users"]["u"]["1h"]["impression"]["ad"]["7"],
            1
        );
        assert_eq!(ask("*/*").await.content_type, "application/json");
    }
    let wrong = post(&site, "/v1/actions/query.csv", &json!({"users": ["u"]})).await;
    assert_eq!(
        (wrong.status, &wrong.json()["field"]),
        (400, &json!("ranges"))
    );
}

#[tokio::test]
async fn a_table_says_where_counts_may_be_more_or_are_known_by_the_hour_alone() {
    let site = Site::open(schema(), NOW);
    let mut most = seen("1", NOW, "7");
    most["n"] = 9_007_199_254_740_991_u64.into();
    send(&site, json!([most])).await;
    let question = json!({"users": ["u"], "ranges": ["1h"], "action": ["impression"], "entity": {"ad": ["7", "8"]}});
    let expected = "user,range,action,view,entity,key,count,overflow\n\
        u,1h,impression,,ad,7,9007199254740991,true\n\
        u,1h,impression,,ad,8,0,false\n";
    assert_eq!(file(&site, &question).await.text, expected);
    let site = Site::open(schema(), NOW);
    // The last batch folds the layers of those before into one list.
    for batch in 0..8 {
        let events = (0..9_500).map(|number| {
            let id = format!("{batch}-{number}");
            seen(&id, NOW - number % 60, &format!("x{}", number % 7))
        });
        send(&site, events.collect()).await;
    }
    let text = file(&site, &question).await.text;
    assert!(
        text.starts_with("user,range,action,view,entity,key,count\n"),
        "{text}"
    );
    let question = json!({"users": ["u"], "ranges": ["1h"], "action": ["impression"], "entity": {"ad": ["x1"]}});
    let json = post(&site, "/v1/actions/query", &question).await.json();
    assert_eq!(json["approximate"], true, "{json}");
    let text = file(&site, &question).await.text;
    let (header, row) = text.split_once('\n').expect("a header");
    assert!(header.ends_with(",count,approximate"), "{text}");
    assert!(row.ends_with(",true\n"), "{text}");
}
