//! Refusals, which say what to change.

use super::*;

/// Queries, the status and the kind of each refusal, and words that it has.
const REFUSALS: [(&str, u16, &str, &str); 23] = [
    ("", 400, "bad_data", "`query` is missing."),
    (
        "sum(",
        400,
        "bad_data",
        "`query` cannot be read at character 5: expected there is a number, `(`, `sum`",
    ),
    (
        "é",
        400,
        "bad_data",
        "at character 1: expected there is a selector, a number or an operator",
    ),
    (
        "increase(tallyring_count)",
        400,
        "bad_data",
        "a range in brackets, such as [1h]",
    ),
    (
        "increase(tallyring_count[0s])",
        400,
        "bad_data",
        "at character 26",
    ),
    (
        "increase(tallyring_count[1.5h])",
        400,
        "bad_data",
        "a length of time up to 100y",
    ),
    (
        "tallyring_count[1h]",
        400,
        "bad_data",
        "increase(tallyring_count{…}[1h])",
    ),
    (
        "avg(tallyring_count)",
        400,
        "bad_data",
        "at character 1: expected there is a number, `(`, `sum`",
    ),
    (
        "sum without (c) (tallyring_count)",
        400,
        "bad_data",
        "name the labels that stay",
    ),
    (
        "topk(0, tallyring_count)",
        400,
        "bad_data",
        "a whole number from 1 to 1000",
    ),
    ("topk(2, 1)", 400, "bad_data", "`topk` must be of series"),
    ("1 > 2", 400, "bad_data", "two numbers are not compared"),
    (
        "tallyring_count > bool 1",
        400,
        "bad_data",
        "`bool` is not supported",
    ),
    (
        "other_total",
        400,
        "bad_data",
        "`metric` must be tallyring_count",
    ),
    (
        r#"tallyring_count{key=~"("}"#,
        400,
        "bad_data",
        "an expression that can be read",
    ),
    (
        r#"tallyring_count{key!="a"}"#,
        400,
        "bad_data",
        "`key` must be a key, keys such as a|b",
    ),
    (
        r#"tallyring_count{country="US"}"#,
        400,
        "bad_data",
        "`label` must be a label of counts: namespace, key, timezone, c, r, v",
    ),
    (
        "sum by (country) (tallyring_count)",
        400,
        "bad_data",
        "got `country`",
    ),
    (
        r#"sum by (c) (topk(1, tallyring_count{namespace="l"}))"#,
        400,
        "bad_data",
        "put the sum around the selector",
    ),
    (
        r#"tallyring_count{timezone="Mars"}"#,
        400,
        "bad_data",
        "must be an IANA name",
    ),
    (
        r#"tallyring_count{timezone="UTC"} - tallyring_count{timezone="Asia/Tokyo"}"#,
        400,
        "bad_data",
        "must be the same in all selectors",
    ),
    (
        r#"sum by (c, r) (tallyring_count{namespace="l",key="abc"})"#,
        422,
        "execution",
        "declare \"c*r\" beside its others",
    ),
    (
        r#"sum by (c, v) (tallyring_count{namespace="l",key="abc",r="x"})"#,
        422,
        "execution",
        "a subtotal has two at most",
    ),
];

/// Parameters of a range, and words of their refusal.
const RANGES: [(&str, &str); 6] = [
    (
        "start=-1&end=2&step=1",
        "`start` must lie in the years 1970 to 2999",
    ),
    (
        "start=1331900000&end=1331800000&step=60",
        "`end` must not lie before `start`",
    ),
    (
        "start=1331900000&end=1331900000&step=0",
        "`step` must be seconds above 0",
    ),
    ("start=1331900000&end=1331900000", "`step` is missing"),
    (
        "start=x&end=1331900000&step=60",
        "`start` must be Unix seconds, or RFC 3339",
    ),
    (
        "start=1331900000&end=1332560060&step=60",
        "it takes 11002 points, and a series has at most 11001",
    ),
];

#[tokio::test]
async fn a_refusal_says_what_to_change() {
    let site = counted().await;
    let deep = format!("{}1{}", "(".repeat(40), ")".repeat(40));
    let wide = vec!["1"; 100].join("+");
    let matchers = format!("x{{{}}}", "c=~'.',".repeat(65));
    let long = "1".repeat(20_000);
    let large: [(&str, u16, &str, &str); 4] = [
        (&deep, 400, "bad_data", "at most 32 parentheses"),
        (&wide, 400, "bad_data", "behind 64 operators"),
        (
            &matchers,
            400,
            "bad_data",
            "at most 64 conditions on labels",
        ),
        (&long, 400, "bad_data", "must have at most 16384 bytes"),
    ];
    for (query, status, kind, words) in REFUSALS.into_iter().chain(large) {
        let answer = at(&site, query, NOW).await;
        let text = &answer.text;
        assert_eq!(
            (answer.status, answer.content_type.as_str()),
            (status, "application/json"),
            "{query}: {text}"
        );
        let answer = answer.json();
        assert_eq!(
            (&answer["status"], &answer["errorType"]),
            (&json!("error"), &json!(kind)),
            "{query}"
        );
        assert!(
            answer["error"].as_str().unwrap().contains(words),
            "{query}: {text}"
        );
    }
    for (parameters, words) in RANGES {
        let answer = site
            .get(&format!("/api/v1/query_range?query=1&{parameters}"))
            .await;
        assert_eq!(answer.status, 400, "{parameters}");
        let error = answer.json()["error"].as_str().unwrap().to_owned();
        assert!(error.contains(words), "{parameters}: {error}");
    }
    let most = "/api/v1/query_range?query=1&start=1331900000&end=1332560000&step=60";
    assert_eq!(site.get(most).await.status, 200);
    // Clients look whether there are rules and exemplars.
    let rules = site.get("/api/v1/rules").await;
    assert_eq!(
        (rules.status, &rules.json()["errorType"]),
        (404, &json!("not_found"))
    );
}

#[tokio::test]
async fn conditions_are_bounded_over_all_selectors_and_long_keys_are_named() {
    let site = counted().await;
    let one = encoded(r#"{namespace="l",key=~"a.*"}"#);
    let many = vec![format!("match[]={one}"); 40].join("&");
    let answer = site.get(&format!("/api/v1/series?{many}")).await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    assert!(
        answer.text.contains("at most 64 conditions together"),
        "{}",
        answer.text
    );
    let key = "k".repeat(2_000);
    site.count(json!([{"at": NOW, "n": 7, "keys": {"l": key}}]))
        .await;
    let query = format!(r#"increase(tallyring_count{{namespace="l",key=~"{key}"}}[1d])"#);
    assert_eq!(values(&site, &query, NOW).await[0].1, "7");
}
