//! Errors: `application/problem+json`, the documented status, and what to change.

use serde_json::{Value, json};
use tallyring_tests::server::{Answer, Server};

use crate::http_writes::{server, total};

/// One request that is refused.
struct Case<'a> {
    /// A path for GET, or `POST ` and a path.
    call: &'a str,
    body: &'a str,
    status: u16,
    /// The field that the problem names; empty when it names none.
    field: &'a str,
}

fn get<'a>(call: &'a str, status: u16, field: &'a str) -> Case<'a> {
    post(call, "", status, field)
}

fn post<'a>(call: &'a str, body: &'a str, status: u16, field: &'a str) -> Case<'a> {
    Case {
        call,
        body,
        status,
        field,
    }
}

/// Every problem has a type, a title, its status and a detail.
fn check_problem(call: &str, answer: &Answer, status: u16) -> Value {
    assert_eq!(answer.status, status, "{call}: {answer:?}");
    let kind = answer.header("content-type");
    assert_eq!(kind, Some("application/problem+json"), "{call}");
    let problem = answer.json();
    assert_eq!(problem["status"], json!(status), "{call}: {problem}");
    for name in ["type", "title", "detail"] {
        let text = problem[name].as_str().unwrap_or_default();
        assert!(!text.is_empty(), "{call}: no {name} in {problem}");
    }
    problem
}

fn check(server: &Server, cases: &[Case<'_>]) {
    for case in cases {
        let answer = match case.call.strip_prefix("POST ") {
            Some(path) => server.post(path, case.body),
            None => server.get(case.call),
        };
        let problem = check_problem(case.call, &answer, case.status);
        let field = problem["field"].as_str().unwrap_or_default();
        assert_eq!(field, case.field, "{} {}: {problem}", case.call, case.body);
    }
}

#[test]
fn writes_that_cannot_be_understood_are_400_and_name_the_field() {
    let (_data, server) = server();
    let increments = "POST /v1/increments";
    check(
        &server,
        &[
            get("/v1/incr", 400, "keys"),
            get("/v1/incr?key.x=a", 400, "key.x"),
            get("/v1/incr?key.l=", 400, "key.l"),
            get("/v1/incr?key.l=a&n=0", 400, "n"),
            get("/v1/incr?key.l=a&n=-1", 400, "n"),
            get("/v1/incr?key.l=a&n=9007199254740992", 400, "n"),
            get("/v1/incr?key.l=a&at=yesterday", 400, "at"),
            get("/v1/incr?key.l=a&key.l=b", 400, "key.l"),
            get("/v1/incr?key.l=a&unknown=1", 400, "unknown"),
            get("/v1/incr?key.l=%ff", 400, "key.l"),
            post(increments, "", 400, "body"),
            post(increments, "not json", 400, "body"),
            post(increments, "[1]", 400, "item"),
            post(increments, r#"{"keys":{"l":1}}"#, 400, "keys.l"),
            post(increments, r#"{"keys":{"l":"a"},"n":1.5}"#, 400, "n"),
            post(increments, r#"{"keys":{"l":"a"},"at":true}"#, 400, "at"),
            post(increments, r#"{"keys":{"l":"a"},"at":1.5}"#, 422, "at"),
            post(increments, r#"{"keys":{"l":"a"},"key":"b"}"#, 400, "key"),
            post(increments, r#"{"keys":{}}"#, 400, "keys"),
            post("POST /v1/increments?on_error=ask", "[]", 400, "on_error"),
            post("POST /v1/increments?skip=1", "[]", 400, "skip"),
        ],
    );
    let long = "a".repeat(2_049);
    check(
        &server,
        &[get(&format!("/v1/incr?key.l={long}"), 400, "key.l")],
    );
    assert_eq!(
        server.get(&format!("/v1/incr?key.l={}", &long[1..])).status,
        204
    );
    assert_eq!(total(&server, "l/a"), 0, "nothing was counted");
}

#[test]
fn writes_that_are_understood_but_refused_are_422_and_an_overflow_is_409() {
    let (_data, server) = server();
    let increments = "POST /v1/increments";
    // The clock stands at 2012-03-16T18:40:00Z.
    let skewed = r#"[{"keys":{"l":"a"}},{"keys":{"l":"a"},"at":"2012-03-17T18:40:01Z"}]"#;
    check(
        &server,
        &[
            get("/v1/incr?key.l=a&at=2012-03-17T18:40:01Z", 422, "at"),
            get("/v1/incr?key.l=a&at=1999-12-31T23:59:59Z", 422, "at"),
            post(increments, skewed, 422, "at"),
        ],
    );
    assert_eq!(total(&server, "l/a"), 0, "nothing was counted");
    let most = "9007199254740991";
    assert_eq!(
        server.get(&format!("/v1/incr?key.l=full&n={most}")).status,
        204
    );
    check(&server, &[get("/v1/incr?key.l=full&key.u=b", 409, "key.l")]);
    let items = r#"[{"keys":{"u":"b"}},{"keys":{"u":"b","l":"full"}}]"#;
    let answer = server.post("/v1/increments", items);
    let problem = check_problem("an overflowing batch", &answer, 409);
    assert_eq!(problem["index"], 1, "{problem}");
    assert_eq!(total(&server, "u/b"), 0, "nothing of the batch was counted");
    assert_eq!(total(&server, "l/full"), json!(9_007_199_254_740_991_u64));
    // Another hour is another counter.
    let answer = server.get("/v1/incr?key.l=full&at=2012-03-16T17:00:00Z");
    assert_eq!(answer.status, 204, "{answer:?}");
}

#[test]
fn reads_that_are_wrong_answer_404_400_or_422_and_say_what_exists() {
    let (_data, server) = server();
    let counts = |query: &str| format!("/v1/l/a/counts?{query}");
    check(
        &server,
        &[
            get("/v1/x/a/counts", 404, "namespace"),
            get("/v1/l/a/by/x", 404, "subtotal"),
            get("/v1/u/a/by/v", 404, "subtotal"),
            get("/v2/l/a/counts", 404, "path"),
            get("/nothing", 404, "path"),
            get(&counts("unit=fortnight"), 400, "unit"),
            get(&counts("timezone=Mars/Olympus"), 400, "timezone"),
            get(&counts("units=some"), 400, "units"),
            get(&counts("from=then"), 400, "from"),
            get(&counts("days=7"), 400, "days"),
            get(&counts("unit=day&unit=hour"), 400, "unit"),
            get(&counts("from=1331900000&units=3"), 400, "units"),
            get(&counts("units=0"), 422, "units"),
            get(&counts("units=10001&unit=hour"), 422, "units"),
            get(&counts("hour_offset=15"), 422, "hour_offset"),
            get(&counts("hour_offset=0.1"), 422, "hour_offset"),
            get(&counts("from=1331900001&to=1331900000"), 422, "from"),
            get(
                &counts("unit=minute&from=2012-03-01T00:00:00Z"),
                422,
                "from",
            ),
            get(&counts("as_of=7"), 404, "as_of"),
            get("/v1/l/a/by/c?limit=0", 400, "limit"),
            get("/v1/l/a/by/c?limit=10001", 400, "limit"),
            get("/v1/l/a/by/c?rollup=maybe", 400, "rollup"),
            post(
                "POST /v1/admin/generations/7/activate",
                "",
                404,
                "generation",
            ),
            post(
                "POST /v1/admin/generations/x/activate",
                "",
                400,
                "generation",
            ),
        ],
    );
    let unknown = server.get("/v1/x/a/counts").json();
    let detail = unknown["detail"].as_str().expect("a detail");
    assert!(
        ["l", "u", "d"].iter().all(|name| detail.contains(name)),
        "{detail}"
    );
    let answer = server.get("/v1/increments");
    check_problem("GET /v1/increments", &answer, 405);
    assert_eq!(server.get(&counts("units=10000&unit=hour")).status, 200);
}
