//! Whole runs against a scripted server, and over real data where it is at hand.

pub(super) mod server;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use clap::Parser;

use super::error::SendError;
use super::plan::Plan;
use super::post::RetryPolicy;
use super::session::Session;
use super::summary::Totals;
use super::{SendArgs, random_run_id};
use server::{Reply, Request, Server, serve};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    send: SendArgs,
}

const RETRY: RetryPolicy = RetryPolicy {
    attempts_max: Some(3),
    pause_first: Duration::from_millis(1),
    pause_max: Duration::from_millis(5),
};
const TWO: &str = r#"{"accepted":2,"duplicates":0,"late":0}"#;
const ONE: &str = r#"{"accepted":1,"duplicates":0,"late":0}"#;

fn ok(body: &'static str) -> Reply {
    Reply::Answer(200, "", body)
}

fn plan(to: &str, options: &[&str]) -> Plan {
    let arguments = ["send", "--to", to]
        .into_iter()
        .chain(options.iter().copied());
    Plan::new(Cli::try_parse_from(arguments).expect("options").send, None).expect("plan")
}

fn run(plan: &Plan) -> (Result<(), SendError>, Totals) {
    let interrupted = AtomicBool::new(false);
    let mut session = Session::new(plan, "run".to_owned(), RETRY, &interrupted).expect("session");
    let outcome = session.run();
    (outcome, *session.totals())
}

/// Sends `content` as a file called `name` with `options`.
fn send(
    replies: Vec<Reply>,
    name: &str,
    content: &str,
    options: &[&str],
) -> (Result<(), String>, Totals, Vec<Request>) {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join(name);
    std::fs::write(&path, content).expect("write");
    let server = serve(replies);
    let plan = plan(
        &server.url,
        &[options, &[path.to_str().expect("UTF-8")]].concat(),
    );
    let (outcome, totals) = run(&plan);
    let prefix = format!("{}/", directory.path().display());
    (
        outcome.map_err(|error| error.to_string().replace(&prefix, "")),
        totals,
        server.requests(),
    )
}

const CLICKS: [&str; 3] = ["--map=at=t", "--map=key.l=g", "--batch=2"];

fn body(request: &Request) -> &str {
    std::str::from_utf8(&request.body).expect("UTF-8")
}

#[test]
fn batches_are_numbered_and_hold_as_many_as_asked() {
    let lines = "{\"t\":1,\"g\":\"a\"}\n\n{\"t\":2,\"g\":\"b\"}\n{\"t\":3,\"g\":\"c\"}";
    let (outcome, totals, requests) = send(vec![ok(TWO), ok(ONE)], "a.jsonl", lines, &CLICKS);
    assert_eq!(outcome, Ok(()));
    let expected = Totals {
        sent: 3,
        accepted: 3,
        batches: 2,
        ..Totals::default()
    };
    assert_eq!(totals, expected);
    assert_eq!(
        body(&requests[0]),
        "{\"at\":1,\"keys\":{\"l\":\"a\"}}\n{\"at\":2,\"keys\":{\"l\":\"b\"}}\n"
    );
    assert_eq!(body(&requests[1]), "{\"at\":3,\"keys\":{\"l\":\"c\"}}\n");
    let keys: Vec<_> = requests
        .iter()
        .filter_map(|request| request.header("idempotency-key"))
        .collect();
    assert_eq!(keys, ["run-1", "run-2"]);
}

#[test]
fn a_busy_server_is_tried_again_with_the_same_key_and_body() {
    let replies = vec![Reply::Answer(503, "Retry-After: 0\r\n", "{}"), ok(ONE)];
    let (outcome, totals, requests) = send(replies, "a.jsonl", "{\"t\":1,\"g\":\"a\"}", &CLICKS);
    assert_eq!((outcome, totals.retries, totals.sent), (Ok(()), 1, 1));
    assert_eq!(
        requests[0].header("idempotency-key"),
        requests[1].header("idempotency-key")
    );
    assert_eq!(requests[0].body, requests[1].body);
}

#[test]
fn stop_sends_nothing_further_and_says_how_far_it_came() {
    let lines =
        "{\"t\":1,\"g\":\"a\"}\n{\"t\":2,\"g\":\"b\"}\n{\"t\":3,\"g\":\"c\"}\nbroken \u{1b}[2J\n";
    let (outcome, totals, requests) = send(vec![ok(TWO)], "a.jsonl", lines, &CLICKS);
    let error = outcome.expect_err("stopped");
    assert!(
        error.starts_with("a.jsonl:4: not valid JSON at column 1"),
        "{error}"
    );
    assert!(error.contains("2 events were sent before that"), "{error}");
    assert!(
        error.contains("the first line not sent is a.jsonl:3"),
        "{error}"
    );
    assert!(!error.contains('\u{1b}'));
    assert_eq!((totals.sent, requests.len()), (2, 1));
}

#[test]
fn a_refused_batch_is_traced_to_its_line() {
    let lines = "{\"t\":1,\"g\":\"a\"}\n\n\n{\"t\":2,\"g\":\"b\"}\n";
    let problem =
        r#"{"title":"Clock skew","status":422,"detail":"in the future","field":"at","index":1}"#;
    let (outcome, totals, _) = send(
        vec![Reply::Answer(422, "", problem)],
        "a.jsonl",
        lines,
        &CLICKS,
    );
    let error = outcome.expect_err("refused");
    assert!(
        error.starts_with("a.jsonl:4: the server refused the batch: 422 Clock skew: in the future"),
        "{error}"
    );
    assert_eq!(totals.sent, 0);
}

#[test]
fn skip_counts_and_records_bad_lines_and_those_the_server_refused() {
    let directory = tempfile::tempdir().expect("directory");
    let rejects = directory.path().join("rejects.jsonl");
    let lines = "ts,key\n1,a\nsoon,b\n2\n3,\n4,\"c\nd\"\n5,e";
    let answer = r#"{"accepted":1,"duplicates":0,"late":1,"rejected":[{"index":1,"field":"keys.l","detail":"no"}]}"#;
    let options = [
        "--map=at=ts",
        "--map=key.l=key",
        "--on-error=skip",
        "--batch=2",
        "--rejects",
    ];
    let options = [&options[..], &[rejects.to_str().expect("UTF-8")]].concat();
    let (outcome, totals, requests) = send(vec![ok(answer), ok(ONE)], "a.csv", lines, &options);
    assert_eq!(outcome, Ok(()));
    let expected = Totals {
        sent: 3,
        accepted: 2,
        late: 1,
        rejected: 1,
        bad_lines: 3,
        batches: 2,
        ..Totals::default()
    };
    assert_eq!(totals, expected);
    assert_eq!(
        requests[0].first_line,
        "POST /v1/increments?on_error=skip HTTP/1.1"
    );
    let recorded = std::fs::read_to_string(&rejects).expect("rejects");
    let numbers: Vec<u64> = recorded
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"))
        .filter_map(|reject| reject["line"].as_u64())
        .collect();
    assert_eq!(numbers, [3, 4, 5, 6]);
    assert!(
        recorded.contains(r#""reason":"refused by the server: no","text":"4,\"c\nd\"""#),
        "{recorded}"
    );
}

/// Four requests: a redirect, one of the page without a link, one that is not there, and what no client should send.
const REQUESTS: &str = r#"10.0.0.1 - - [16/Mar/2012:18:40:47 +0000] "GET /abc HTTP/1.1" 302 5 "-" "curl"
10.0.0.1 - - [16/Mar/2012:18:40:47 +0000] "GET / HTTP/1.1" 301 5 "-" "curl"
10.0.0.1 - - [16/Mar/2012:18:40:47 +0000] "GET /no HTTP/1.1" 404 5 "-" "curl"
10.0.0.1 - - [16/Mar/2012:18:40:47 +0000] "\x16\x03\x01" 400 5 "-" "-"
"#;

#[test]
fn requests_without_a_key_and_those_that_where_excludes_are_skipped_and_told() {
    let mapped = ["--map=at=time", "--map=key.l=link"];
    let (outcome, totals, _) = send(vec![ok(TWO)], "a.log", REQUESTS, &mapped);
    assert_eq!(outcome, Ok(()));
    let told = |totals: Totals| (totals.sent, totals.skipped, totals.bad_lines);
    assert_eq!(told(totals), (2, 2, 0));

    let only = [&mapped[..], &["--where=status=3xx", "--where=method=GET"]].concat();
    let (outcome, totals, requests) = send(vec![ok(ONE)], "a.log", REQUESTS, &only);
    assert_eq!((outcome, told(totals)), (Ok(()), (1, 3, 0)));
    assert_eq!(
        body(&requests[0]),
        "{\"at\":1331923247,\"keys\":{\"l\":\"abc\"}}\n"
    );

    // A column may be asked for without being mapped; in CSV and JSON a line without a key is bad.
    let only = ["--map=at=ts", "--map=key.l=key", "--where=code=200,301"];
    let lines = "ts,key,code\n1,a,301\nsoon,b,404\n2,c,200\n";
    let (outcome, totals, _) = send(vec![ok(TWO)], "a.csv", lines, &only);
    assert_eq!((outcome, told(totals)), (Ok(()), (2, 1, 0)));
    let (outcome, ..) = send(vec![], "a.csv", "ts,key,code\n1,,301\n", &only);
    let error = outcome.expect_err("bad");
    assert!(error.starts_with("a.csv:2: no key"), "{error}");
}

#[test]
fn refusals_that_the_server_does_not_name_are_counted_too() {
    let lines = "{\"t\":1,\"g\":\"a\"}\n{\"t\":2,\"g\":\"b\"}\n";
    let answer = r#"{"accepted":0,"duplicates":0,"late":0,"rejected":[{"index":0,"detail":"no"}]}"#;
    let options = [&CLICKS[..], &["--on-error=skip"]].concat();
    let (outcome, totals, _) = send(vec![ok(answer)], "a.jsonl", lines, &options);
    assert_eq!((outcome, totals.rejected), (Ok(()), 2));
}

#[test]
fn a_missing_file_stops_before_anything_is_sent() {
    let plan = plan(
        "http://127.0.0.1:1",
        &[&CLICKS[..], &["/nowhere/a.jsonl"]].concat(),
    );
    let interrupted = AtomicBool::new(false);
    let Err(error) = Session::new(&plan, "run".to_owned(), RETRY, &interrupted) else {
        panic!("no error")
    };
    let error = error.to_string();
    assert!(
        error.starts_with("/nowhere/a.jsonl: No such file"),
        "{error}"
    );
    assert!(error.contains("no event was sent"), "{error}");
}

#[test]
fn a_csv_file_without_a_mapped_column_is_unusable_even_under_skip() {
    let options = ["--map=at=ts", "--map=key.l=key", "--on-error=skip"];
    let (outcome, ..) = send(vec![], "a.csv", "time,key\n1,a\n", &options);
    let error = outcome.expect_err("unusable");
    assert!(
        error.starts_with("a.csv: no column \"ts\"; its columns are \"time\", \"key\""),
        "{error}"
    );
}

#[test]
fn following_sends_what_is_appended_and_ends_well() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("a.jsonl");
    std::fs::write(
        &path,
        "{\"t\":1,\"g\":\"a\"}\n{\"t\":2,\"g\":\"b\"}\n{\"t\":3,",
    )
    .expect("write");
    let server: Server = serve(vec![ok(TWO), ok(ONE)]);
    let plan = plan(
        &server.url,
        &[&CLICKS[..], &["--follow", path.to_str().expect("UTF-8")]].concat(),
    );
    let interrupted = AtomicBool::new(false);
    thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let mut session =
                Session::new(&plan, "run".to_owned(), RETRY, &interrupted).expect("session");
            (session.run().is_ok(), session.totals().sent)
        });
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .expect("open");
        file.write_all(b"\"g\":\"c\"}\n").expect("append");
        // The server ends once it has given both answers, the second without any further line.
        assert_eq!(server.requests().len(), 2);
        interrupted.store(true, Ordering::Relaxed);
        assert_eq!(sending.join().expect("thread"), (true, 3));
    });
}

#[test]
fn every_run_has_its_own_id() {
    let (one, other) = (random_run_id(), random_run_id());
    assert_ne!(one, other);
    assert_eq!(one.len(), 32);
}

/// A file of the shared data, or `None` with a note where there is none. A folder that lacks this file alone is a
/// failure where `TALLYRING_REQUIRE` is set.
fn shared(name: &str, test: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    let path = folder.join(name);
    if path.exists() {
        return Some(path);
    }
    let is_required = std::env::var_os("TALLYRING_REQUIRE").is_some();
    assert!(!(is_required && folder.exists()), "{name} is not there");
    writeln!(
        std::io::stderr(),
        "skipped {test}: {} is not there",
        path.display()
    )
    .expect("stderr");
    None
}

/// Sends a whole file of real data as one batch at a time and returns what was sent and bad.
fn send_shared(name: &str, test: &str, options: &[&str], batches: usize) -> Option<(u64, u64)> {
    let path = shared(name, test)?;
    let answer = || ok(r#"{"accepted":0,"duplicates":10000,"late":0}"#);
    let server = serve((0..batches).map(|_| answer()).collect());
    let path = path.to_str().expect("UTF-8").to_owned();
    let common = ["--batch=10000", "--on-error=skip", path.as_str()];
    let plan = plan(&server.url, &[&common, options].concat());
    let (outcome, totals) = run(&plan);
    outcome.expect("sent");
    server.requests();
    Some((totals.sent, totals.bad_lines))
}

#[test]
fn real_clicks_are_sent_and_heartbeats_are_bad() {
    let options = [
        "--map=at=t",
        "--map=key.l=g",
        "--map=key.u=l",
        "--map=by.c=c",
        "--map=by.r=r",
    ];
    let name = "bitly_usagov_2012-03-16.jsonl";
    if let Some(counts) = send_shared(name, "real_clicks", &options, 1) {
        assert_eq!(counts, (3440, 120));
    }
}

#[test]
fn a_real_access_log_is_sent_but_for_the_line_that_is_cut() {
    let options = [
        "--map=at=time",
        "--map=key.l=path",
        "--map=by.r=referrer",
        "--map=user=host",
    ];
    // Line 8,899 of it ends in the middle of the agent.
    if let Some(counts) = send_shared("apache_access.log.gz", "a_real_access_log", &options, 1) {
        assert_eq!(counts, (9_999, 1));
    }
}

#[test]
fn real_events_have_ids() {
    let options = [
        "--map=at=t",
        "--map=key.l=key",
        "--map=user=user",
        "--map=id=id",
    ];
    let name = "gharchive_2015-01-01.ndjson.gz";
    if let Some(counts) = send_shared(name, "real_events", &options, 2) {
        assert_eq!(counts, (15_129, 0));
    }
}
