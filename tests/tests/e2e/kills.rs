//! SIGKILL at random moments under load: acknowledged clicks are counted, and a retry with the id or key of before
//! makes each click count exactly once.
//!
//! `TALLYRING_KILLS=500 cargo test --release -p tallyring-tests --test e2e kills` kills as often as that.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use serde_json::{Value, json};
use tallyring_tests::server::{Answer, Client, Server, wait_until};

use crate::chance::Chance;

const SEED: u64 = 20_120_316;
/// Kills of an ordinary run.
const CYCLES: u64 = 10;
/// Kills of a day: then midnight and a rebuild come.
const CYCLES_A_DAY: u64 = 6;
/// At most so many acknowledgements before a kill.
const ACKNOWLEDGED_MAX: u64 = 300;
const BATCH_ITEMS: u64 = 15;
const KEYS: u64 = 5;

/// Memory is flushed every thousand records, so that kills meet flushes and merges of runs too.
const CONFIG: &str = "[memory]\nreplay_records = 1000\n[oplog]\nsegment_mib = 1\n";

/// One call that counts, and can be repeated.
enum Call {
    /// `/v1/incr` with an id.
    Single(u64),
    /// `/v1/increments` with an Idempotency-Key; its items have no ids.
    Batch(u64),
    /// The batch as NDJSON, each item with an id and the batch without a key.
    Ids(u64),
}

impl Call {
    fn make(&self, client: &Client) -> Result<Answer, String> {
        match self {
            Self::Single(number) => {
                let key = number % KEYS;
                let path = format!("/v1/incr?key.l=single{key}&by.c=C{key}&id=single-{number}");
                client.try_post(&path, &[], b"")
            }
            Self::Batch(number) => {
                let items: Vec<Value> = (0..BATCH_ITEMS)
                    .map(|item| json!({"keys": {"l": format!("batch{}", item % KEYS)}, "by": {"c": "XX"}}))
                    .collect();
                let key = format!("batch-{number}");
                let body = json!(items).to_string();
                client.try_post(
                    "/v1/increments",
                    &[("idempotency-key", &key)],
                    body.as_bytes(),
                )
            }
            Self::Ids(number) => {
                let mut body = String::new();
                for item in 0..BATCH_ITEMS {
                    let keys = json!({"l": format!("ids{}", item % KEYS), "u": "all"});
                    let item = json!({"keys": keys, "id": format!("ids-{number}-{item}")});
                    body.push_str(&format!("{item}\n"));
                }
                let headers = [("content-type", "application/x-ndjson")];
                client.try_post("/v1/increments", &headers, body.as_bytes())
            }
        }
    }

    /// A retry gets the first answer again, as a duplicate.
    fn check_repeated(&self, client: &Client) {
        let answer = self.make(client).expect("an answer");
        match self {
            Self::Single(_) => {
                let duplicate = answer.header("tallyring-duplicate");
                assert_eq!((answer.status, duplicate), (204, Some("1")), "{answer:?}");
            }
            Self::Batch(_) => assert_eq!(answer.json()["accepted"], BATCH_ITEMS, "{answer:?}"),
            Self::Ids(_) => assert_eq!(answer.json()["duplicates"], BATCH_ITEMS, "{answer:?}"),
        }
    }
}

/// Calls so far.
#[derive(Default)]
struct Book {
    next: AtomicU64,
    acknowledged: Mutex<Vec<Call>>,
    unanswered: Mutex<Vec<Call>>,
}

impl Book {
    /// Calls until the server is gone.
    fn call_until_killed(&self, client: &Client, kind: fn(u64) -> Call) {
        loop {
            let call = kind(self.next.fetch_add(1, Ordering::Relaxed));
            match call.make(client) {
                Ok(answer) => {
                    assert!(matches!(answer.status, 200 | 204), "{answer:?}");
                    self.acknowledged.lock().expect("no panic").push(call);
                }
                Err(_) => {
                    self.unanswered.lock().expect("no panic").push(call);
                    return;
                }
            }
        }
    }

    fn acknowledged(&self) -> u64 {
        self.acknowledged.lock().expect("no panic").len() as u64
    }

    /// Repeats what got no answer, until it has one, and a few calls that had one.
    fn settle(&self, client: &Client, chance: &mut Chance, fresh_from: usize) {
        let mut acknowledged = self.acknowledged.lock().expect("no panic");
        for call in self.unanswered.lock().expect("no panic").drain(..) {
            let answer = call.make(client).expect("an answer");
            assert!(matches!(answer.status, 200 | 204), "{answer:?}");
            acknowledged.push(call);
        }
        // Older ids are no longer remembered.
        let fresh = &acknowledged[fresh_from..];
        for _ in 0..fresh.len().min(20) {
            let index = chance.below(fresh.len() as u64);
            fresh[index as usize].check_repeated(client);
        }
    }

    /// Each call counts exactly once.
    fn check(&self, client: &Client) {
        let mut expected = [0, 0, 0].map(|_: u64| [0; KEYS as usize]);
        for call in self.acknowledged.lock().expect("no panic").iter() {
            match call {
                Call::Single(number) => expected[0][(number % KEYS) as usize] += 1,
                Call::Batch(_) => expected[1].iter_mut().for_each(|count| *count += 3),
                Call::Ids(_) => expected[2].iter_mut().for_each(|count| *count += 3),
            }
        }
        for (kind, counts) in ["single", "batch", "ids"].iter().zip(expected) {
            for (key, count) in counts.iter().enumerate() {
                let path = format!("/v1/l/{kind}{key}/by/c?unit=year&units=-1");
                let answer = client.get_json(&path);
                let value = match *kind {
                    "single" => format!("C{key}"),
                    "batch" => "XX".to_owned(),
                    _ => "-".to_owned(),
                };
                let values = match count {
                    0 => json!([]),
                    _ => json!([{"value": value, "count": count}]),
                };
                assert_eq!(answer["values"], values, "{path}");
                assert_eq!(answer["total"], *count, "{path}");
            }
        }
        let all: u64 = expected[2].iter().sum();
        let answer = client.get_json("/v1/u/all/summary?unit=year&units=-1");
        assert_eq!(answer["total"], all);
    }
}

#[test]
fn a_click_acknowledged_before_a_kill_counts_and_another_counts_once_retried() {
    let directory = tempfile::tempdir().expect("a directory");
    let (data, config) = (
        directory.path().join("data"),
        directory.path().join("c.toml"),
    );
    std::fs::write(&config, CONFIG).expect("write the configuration");
    let config = config.to_str().expect("a path of text");
    let (book, mut chance) = (Book::default(), Chance::new(SEED));
    let cycles =
        std::env::var("TALLYRING_KILLS").map_or(CYCLES, |text| text.parse().expect("a number"));
    let (mut fresh_from, mut today) = (0, 0);
    for cycle in 0..cycles {
        let is_midnight = cycle.is_multiple_of(CYCLES_A_DAY);
        if is_midnight {
            // A day is remembered, but not much more.
            fresh_from = today;
        }
        let server = start(&data, config, cycle);
        book.settle(&server, &mut chance, fresh_from);
        book.check(&server);
        if is_midnight {
            // A click that was repeated just now may have counted the day before.
            today = book.acknowledged() as usize;
        }
        kill_under_load(server, &book, &mut chance);
    }
    // On the last day still, so that its ids are remembered.
    let server = start(&data, config, cycles.saturating_sub(1));
    book.settle(&server, &mut chance, fresh_from);
    book.check(&server);
    assert!(book.acknowledged() > cycles, "the load did something");
    server.rebuild();
    book.check(&server);
}

/// A day passes between some cycles, so that rebuilds run under the load too.
fn start(data: &Path, config: &str, cycle: u64) -> Server {
    /// 2012-03-16T00:04:59.800Z.
    const START_MS: i64 = 1_331_856_299_800;
    let days = i64::try_from(cycle / CYCLES_A_DAY).expect("few days");
    let clock = jiff::Timestamp::from_millisecond(START_MS + days * 86_400_000);
    let clock = clock.expect("a time").to_string();
    Server::start(data, &["--clock", &clock, "--config", config])
}

fn kill_under_load(server: Server, book: &Book, chance: &mut Chance) {
    let enough = book.acknowledged() + chance.below(ACKNOWLEDGED_MAX);
    thread::scope(|scope| {
        let kinds = [Call::Single, Call::Single, Call::Batch, Call::Ids];
        for kind in kinds {
            let client = server.client().clone();
            scope.spawn(move || book.call_until_killed(&client, kind));
        }
        wait_until("enough is acknowledged", || book.acknowledged() >= enough);
        server.kill9();
    });
}
