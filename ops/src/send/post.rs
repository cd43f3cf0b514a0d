//! Posts batches to `/v1/increments`, with retries that count nothing twice.
//!
//! Invariant: a batch keeps its `Idempotency-Key` and its body through all attempts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::answer::{Answer, PostError, describe};
use crate::escape::{quoted, visible};
use crate::http_client::{Server, is_tls_failure};

/// How long and how often a batch is tried again.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetryPolicy {
    /// Attempts in all, the first included; `None` for no limit. Before the first answer the limit is at most
    /// [`ATTEMPTS_TO_MEET`], because a wrong address stays wrong.
    pub attempts_max: Option<u32>,
    /// The pause after the first failure; each further one is twice as long.
    pub pause_first: Duration,
    /// The longest pause that is taken, also when the server asks for more.
    pub pause_max: Duration,
}

impl Default for RetryPolicy {
    /// About two minutes in all, and 45 seconds before the first answer: a server that restarts is back by then.
    fn default() -> Self {
        Self {
            attempts_max: Some(12),
            pause_first: Duration::from_millis(200),
            pause_max: Duration::from_secs(20),
        }
    }
}

impl RetryPolicy {
    /// No limit, for a followed file: a new run would count the whole file again.
    pub(super) fn forever() -> Self {
        Self {
            attempts_max: None,
            ..Self::default()
        }
    }
}

/// The most attempts before the first answer, where attempts are limited.
const ATTEMPTS_TO_MEET: u32 = 9;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest time of one attempt.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// How soon a pause notices an interruption.
const PAUSE_STEP: Duration = Duration::from_millis(50);

/// The result of one attempt.
enum Attempt {
    Answered(Answer),
    Failed(PostError),
    Retry {
        why: String,
        after: Option<Duration>,
        maybe_counted: bool,
    },
}

/// Sends batches of one run to one server.
pub(super) struct Poster<'a> {
    server: &'a Server,
    path: &'a str,
    run_id: String,
    retry: RetryPolicy,
    interrupted: &'a AtomicBool,
    /// True once the server has answered.
    has_met: bool,
    /// Attempts that were repeated so far.
    pub retry_count: u64,
}

impl<'a> Poster<'a> {
    /// Posts to `path` of `server`; `run_id` must be new for every run of the program.
    pub(super) fn new(
        server: &'a Server,
        path: &'a str,
        run_id: String,
        retry: RetryPolicy,
        interrupted: &'a AtomicBool,
    ) -> Self {
        Self {
            server,
            path,
            run_id,
            retry,
            interrupted,
            has_met: false,
            retry_count: 0,
        }
    }

    /// Posts the batch numbered `batch_number`, and repeats failed attempts that may succeed; `notice` receives each
    /// failure. Fails when the batch was not counted, or may have been counted without an answer.
    pub(super) fn post(
        &mut self,
        batch_number: u64,
        body: &[u8],
        mut notice: impl FnMut(&str),
    ) -> Result<Answer, PostError> {
        let batch_key = format!("{}-{batch_number}", self.run_id);
        let mut pause = self.retry.pause_first;
        let mut maybe_counted_ever = false;
        for attempt in 1.. {
            let (why, after, maybe_counted) = match self.attempt(&batch_key, body) {
                Attempt::Answered(answer) => return Ok(answer),
                Attempt::Failed(error) => return Err(error),
                Attempt::Retry {
                    why,
                    after,
                    maybe_counted,
                } => (why, after, maybe_counted),
            };
            maybe_counted_ever |= maybe_counted;
            // A server that reads its log asks for an early retry again and again; the growing pause gives it time.
            let wait = after.map_or(pause, |after| after.max(pause));
            let wait = wait.min(self.retry.pause_max);
            let of = self.attempts_max();
            let over = of.is_some_and(|most| attempt >= most);
            if !over {
                let seconds = wait.as_secs_f64();
                let of = of.map_or(String::new(), |most| format!(" of {most}"));
                notice(&format!(
                    "{why}; attempt {}{of} in {seconds:.1} s",
                    attempt + 1
                ));
            }
            if over || self.paused_is_interrupted(wait) {
                let maybe_counted = maybe_counted_ever;
                return Err(PostError::Unreachable {
                    attempts: attempt,
                    last: why,
                    maybe_counted,
                });
            }
            pause = (pause * 2).min(self.retry.pause_max);
            self.retry_count += 1;
        }
        unreachable!("BUG: the attempts are bounded")
    }

    fn attempts_max(&self) -> Option<u32> {
        let limit = if self.has_met {
            u32::MAX
        } else {
            ATTEMPTS_TO_MEET
        };
        self.retry.attempts_max.map(|most| most.min(limit))
    }

    fn attempt(&mut self, batch_key: &str, body: &[u8]) -> Attempt {
        let request = self
            .server
            .prepare_post(self.path)
            .header("Content-Type", "application/x-ndjson")
            .header("Idempotency-Key", batch_key)
            .config()
            // Following a redirect would turn the POST into a GET that counts nothing.
            .max_redirects(0)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_global(Some(REQUEST_TIMEOUT))
            .build();
        let mut response = match request.send(body) {
            Ok(response) => response,
            Err(error) => return failed_attempt(self.server.url(), &error),
        };
        self.has_met = true;
        let status = response.status().as_u16();
        let retry_after = response
            .headers()
            .get("retry-after")
            // Seconds only; a date, which our server never sends, falls back to the growing pause.
            .and_then(|value| value.to_str().ok()?.trim().parse().ok())
            .map(Duration::from_secs);
        match response
            .body_mut()
            .with_config()
            .limit(ANSWER_BYTES_MAX)
            .read_to_vec()
        {
            Ok(bytes) => judge(status, retry_after, &bytes),
            Err(error) => failed_attempt(self.server.url(), &error),
        }
    }

    /// Sleeps `wait`; returns early, with true, when the user interrupts.
    fn paused_is_interrupted(&self, wait: Duration) -> bool {
        let until = Instant::now() + wait;
        loop {
            if self.interrupted.load(Ordering::Relaxed) {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            thread::sleep(left.min(PAUSE_STEP));
        }
    }
}

/// Sorts out an exchange that had no answer.
fn failed_attempt(url: &str, error: &ureq::Error) -> Attempt {
    let why = visible(&format!("no answer from {url}: {error}")).into_owned();
    if is_tls_failure(error) {
        return Attempt::Failed(PostError::Untrusted(why));
    }
    let never_arrived = match error {
        ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => true,
        ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => true,
        ureq::Error::Io(error) => {
            // The standard library has no kind for a name that nobody knows.
            error.kind() == std::io::ErrorKind::ConnectionRefused
                || error.to_string().starts_with("failed to lookup address")
        }
        ureq::Error::Timeout(_) | ureq::Error::Protocol(_) => false,
        _ => return Attempt::Failed(PostError::NotTallyring(why)),
    };
    Attempt::Retry {
        why,
        after: None,
        maybe_counted: !never_arrived,
    }
}

/// Sorts out an answer.
fn judge(status: u16, retry_after: Option<Duration>, body: &[u8]) -> Attempt {
    if status == 200 {
        return match serde_json::from_slice(body) {
            Ok(answer) => Attempt::Answered(answer),
            Err(_) => Attempt::Failed(PostError::NotTallyring(format!(
                "the answer 200 has no counts but {}",
                quoted(&String::from_utf8_lossy(body))
            ))),
        };
    }
    let (why, index) = describe(status, body);
    match status {
        429 => Attempt::Retry {
            why,
            after: retry_after,
            maybe_counted: false,
        },
        // Tallyring gives some of these before it counts, but a proxy in between may have lost the answer.
        408 | 500 | 502..=504 | 507 => Attempt::Retry {
            why,
            after: retry_after,
            maybe_counted: true,
        },
        400..=499 => Attempt::Failed(PostError::Refused { why, index }),
        _ => Attempt::Failed(PostError::NotTallyring(why)),
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::super::tests::server::{Reply, Request, serve};
    use super::*;

    const RETRY: RetryPolicy = RetryPolicy {
        attempts_max: Some(3),
        pause_first: Duration::from_millis(1),
        pause_max: Duration::from_millis(20),
    };
    const BODY: &[u8] = b"{\"at\":1,\"keys\":{\"l\":\"a\"}}\n";
    const ONE: &str = r#"{"accepted":1,"duplicates":0,"late":0}"#;

    const PATH: &str = "/v1/increments";

    fn client(url: &str) -> Server {
        Server::with_key(url, Some("secret"), None).expect("no file of certificates")
    }

    fn post(replies: Vec<Reply>) -> (Result<Answer, PostError>, Vec<Request>, Vec<String>) {
        let server = serve(replies);
        let interrupted = AtomicBool::new(false);
        let to = client(&server.url);
        let mut poster = Poster::new(&to, PATH, "run".to_owned(), RETRY, &interrupted);
        let mut notices = Vec::new();
        let result = poster.post(7, BODY, |notice| notices.push(notice.to_owned()));
        (result, server.requests(), notices)
    }

    #[test]
    fn a_retry_carries_the_same_idempotency_key_and_body() {
        let busy = Reply::Answer(
            503,
            "Retry-After: 0\r\n",
            r#"{"title":"Busy","detail":"queue full"}"#,
        );
        let (result, requests, notices) =
            post(vec![busy, Reply::Drop, Reply::Answer(200, "", ONE)]);
        assert_eq!(result.expect("taken").accepted, 1);
        assert_eq!(requests.len(), 3);
        for request in &requests {
            assert_eq!(request.first_line, "POST /v1/increments HTTP/1.1");
            assert_eq!(request.header("idempotency-key"), Some("run-7"));
            assert_eq!(request.header("authorization"), Some("Bearer secret"));
            assert_eq!(request.header("content-type"), Some("application/x-ndjson"));
            assert_eq!(request.body, BODY);
        }
        assert!(
            notices[0].starts_with("503 Busy: queue full; attempt 2 of 3"),
            "{notices:?}"
        );
    }

    #[test]
    fn attempts_are_bounded_and_a_lost_answer_is_owned_up_to() {
        let (result, requests, _) =
            post(vec![Reply::Drop, Reply::Drop, Reply::Answer(503, "", "{}")]);
        let error = result.expect_err("gave up");
        assert!(
            matches!(
                error,
                PostError::Unreachable {
                    attempts: 3,
                    maybe_counted: true,
                    ..
                }
            ),
            "{error}"
        );
        assert_eq!(requests.len(), 3);

        let busy = || Reply::Answer(429, "Retry-After: 9999\r\n", "{}");
        let error = post(vec![busy(), busy(), busy()]).0.expect_err("gave up");
        assert!(
            matches!(
                error,
                PostError::Unreachable {
                    maybe_counted: false,
                    ..
                }
            ),
            "{error}"
        );
    }

    #[test]
    fn an_address_where_nothing_ever_answered_is_given_up_sooner() {
        let patient = RetryPolicy {
            attempts_max: Some(12),
            ..RETRY
        };
        let busy = || Reply::Answer(503, "Retry-After: 0\r\n", "{}");
        let drops = || (0..12).map(|_| Reply::Drop);
        for (replies, expected) in [
            (drops().collect::<Vec<_>>(), ATTEMPTS_TO_MEET),
            (iter::once(busy()).chain(drops()).collect(), 12),
        ] {
            let server = serve(replies);
            let (to, interrupted) = (client(&server.url), AtomicBool::new(false));
            let mut poster = Poster::new(&to, PATH, "run".to_owned(), patient, &interrupted);
            let error = poster.post(1, BODY, |_| {}).expect_err("gave up");
            let PostError::Unreachable { attempts, .. } = error else {
                panic!("{error}");
            };
            assert_eq!(attempts, expected);
        }
    }

    #[test]
    fn a_refusal_names_the_event_and_is_not_retried() {
        let body =
            r#"{"title":"Bad","status":400,"detail":"no\u001b[2J","field":"keys.x","index":7}"#;
        let error = post(vec![Reply::Answer(400, "", body)])
            .0
            .expect_err("refused");
        let expected = PostError::Refused {
            why: "400 Bad: no\\u{1b}[2J".to_owned(),
            index: Some(7),
        };
        assert_eq!(error, expected);
    }

    #[test]
    fn another_kind_of_server_is_recognised() {
        for (status, headers) in [(200, ""), (301, "Location: /elsewhere\r\n")] {
            let error = post(vec![Reply::Answer(status, headers, "<html>")])
                .0
                .expect_err("HTML");
            assert!(matches!(error, PostError::NotTallyring(_)), "{error}");
        }
        let (result, ..) = post(vec![Reply::Answer(401, "", "no")]);
        assert!(
            result
                .expect_err("401")
                .to_string()
                .contains("TALLYRING_KEY")
        );
    }

    #[test]
    fn a_refused_connection_is_retried_and_surely_not_counted() {
        let interrupted = AtomicBool::new(false);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("port");
        let url = format!("http://{}/", listener.local_addr().expect("address"));
        drop(listener);
        let to = client(&url);
        let mut poster = Poster::new(&to, PATH, "run".to_owned(), RETRY, &interrupted);
        let error = poster.post(1, BODY, |_| {}).expect_err("nobody there");
        assert!(
            matches!(
                error,
                PostError::Unreachable {
                    attempts: 3,
                    maybe_counted: false,
                    ..
                }
            ),
            "{error}"
        );
        assert_eq!(poster.retry_count, 2);
    }

    #[test]
    fn an_interruption_ends_the_pause() {
        let interrupted = AtomicBool::new(true);
        let retry = RetryPolicy {
            pause_first: Duration::from_secs(600),
            ..RETRY
        };
        let server = serve(vec![Reply::Answer(503, "", "{}")]);
        let to = client(&server.url);
        let mut poster = Poster::new(&to, PATH, "run".to_owned(), retry, &interrupted);
        assert!(poster.post(1, BODY, |_| {}).is_err());
    }
}
