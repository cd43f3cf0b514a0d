//! Tellers over topics that lose answers and messages, and that others write to.

mod model;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};

use tallyring_realtime::{Batch, Clock, Options, Store};
use tallyring_records::{Increment, Schema};

use super::*;
use crate::config::Config;
use crate::data_directory::world;

const HOUR: i64 = 3_600;
/// 2012-03-16T18:00:00Z
const START: i64 = 1_331_920_800;
/// Hours after which an hour of the default namespaces is settled at the latest.
const SETTLES: i64 = 30;

#[derive(Debug)]
struct TestClock(AtomicI64);

impl Clock for TestClock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::Relaxed) * 1_000
    }

    fn elapsed_ms(&self) -> i64 {
        self.now_ms()
    }

    fn jumps_are_meant(&self) -> bool {
        true
    }
}

/// Topics that lose some answers, and some messages.
#[derive(Clone, Default)]
struct Topics(Arc<Mutex<Kept>>, usize);

#[derive(Default)]
struct Kept {
    messages: Vec<OutMessage>,
    progress: Vec<Vec<u8>>,
    calls: u64,
    /// Each call that this number divides fails; none where it is 0.
    fails_each: u64,
    /// The next call panics.
    panics: bool,
}

impl Kept {
    /// True where a call fails.
    fn fails(&mut self) -> bool {
        assert!(!std::mem::take(&mut self.panics), "a client with a mistake");
        self.calls += 1;
        self.fails_each > 0 && self.calls.is_multiple_of(self.fails_each)
    }
}

fn lost() -> io::Error {
    io::Error::other("no answer")
}

impl Out for Topics {
    fn next_kept(&mut self) -> io::Result<Option<Vec<u8>>> {
        let next = self.0.lock().progress.get(self.1).cloned();
        self.1 += usize::from(next.is_some());
        Ok(next)
    }

    fn send(&mut self, messages: &[OutMessage]) -> io::Result<()> {
        let mut kept = self.0.lock();
        if kept.fails() {
            // Some of them are there all the same.
            let some = messages.iter().step_by(2).cloned();
            kept.messages.extend(some);
            return Err(lost());
        }
        kept.messages.extend(messages.iter().cloned());
        Ok(())
    }

    fn keep(&mut self, progress: &[u8]) -> io::Result<()> {
        let mut kept = self.0.lock();
        let (fails, is_there) = (kept.fails(), kept.calls.is_multiple_of(2));
        if !fails || is_there {
            kept.progress.push(progress.to_vec());
        }
        if fails { Err(lost()) } else { Ok(()) }
    }
}

impl Topics {
    fn counts(&self) -> BTreeMap<(String, String), u64> {
        counts(&self.0.lock().messages)
    }
}

/// The counts by key and start: of messages of one bucket, the highest version counts. Increments only add here, so
/// a higher version never has a lower count.
fn counts(messages: &[OutMessage]) -> BTreeMap<(String, String), u64> {
    let mut told: BTreeMap<(String, String), BTreeSet<(u64, u64)>> = BTreeMap::new();
    let mut said: BTreeMap<&str, &[u8]> = BTreeMap::new();
    for message in messages {
        let line: serde_json::Value = serde_json::from_slice(&message.value).unwrap();
        let text = |name: &str| line[name].as_str().unwrap().to_owned();
        let number = |name: &str| line[name].as_u64().unwrap();
        assert_eq!(
            (text("namespace"), text("key")),
            ("l".into(), message.key.clone())
        );
        let other = said.insert(&message.id, &message.value);
        assert!(other.is_none_or(|other| other == message.value), "{line}");
        let bucket = (message.key.clone(), text("start"));
        let of = told.entry(bucket).or_default();
        of.insert((number("version"), number("count")));
    }
    let newest = told.into_iter().map(|(bucket, of)| {
        let counts = || of.iter().map(|(_, count)| *count);
        assert!(counts().is_sorted(), "{bucket:?}: {of:?}");
        (bucket, counts().next_back().unwrap())
    });
    newest.collect()
}

fn config(more: &str) -> KafkaOutConfig {
    let text = format!(
        "[kafka_out]\nkafka = [\"127.0.0.1:9\"]\ntopic = \"t\"\nnamespaces = [\"l\"]\n{more}"
    );
    Config::parse(&text, "test").unwrap().kafka_out.unwrap()
}

fn store(directory: &Path) -> (Arc<TestClock>, Arc<Store>) {
    let clock = Arc::new(TestClock(AtomicI64::new(START)));
    let store = open(directory, &clock);
    (clock, store)
}

fn open(directory: &Path, clock: &Arc<TestClock>) -> Arc<Store> {
    let world = world(directory, Arc::clone(clock) as _).unwrap();
    let options = Options {
        segment_bytes: 64 << 10,
        ..Options::for_memory(1 << 28)
    };
    let (store, _) = Store::open(world, options, Schema::default_clicks()).unwrap();
    Arc::new(store)
}

fn telling(store: &Arc<Store>, topics: &Topics, more: &str) -> Telling<Topics> {
    let topics = topics.clone();
    let open = Box::new(move || Ok(topics.clone()));
    let stores = Stores::new(vec![Arc::clone(store)]);
    Telling::new(Arc::new(stores), config(more), open)
}

fn count(store: &Store, at: i64, key: &str) {
    let batch = Batch {
        increments: vec![Increment::new(at, 1, [("l", key)])],
        ..Batch::default()
    };
    store.intake().commit(vec![batch]).remove(0).unwrap();
}

#[test]
fn every_settled_bucket_arrives_with_its_newest_count_whatever_fails() {
    for fails_each in [0, 3, 4, 5, 7] {
        let directory = tempfile::tempdir().unwrap();
        let (clock, store) = store(directory.path());
        let topics = Topics::default();
        topics.0.lock().fails_each = fails_each;
        let mut expected = BTreeMap::new();
        let mut teller = telling(&store, &topics, "from = \"2012-03-16T00:00:00Z\"");
        for step in 0..200 {
            // A third of them is late by days.
            let late = if step % 3 == 0 { 40 * HOUR } else { 0 };
            let (at, key) = (START + step * 1_300 - late, format!("key{}", step % 7));
            clock.0.store(START + step * 1_300, Ordering::Relaxed);
            count(&store, at, &key);
            let start = tallyring_api::calendar::rfc3339_utc(at - at.rem_euclid(HOUR));
            *expected.entry((key, start)).or_insert(0) += 1;
            let _ = teller.round();
            if step % 20 == 19 {
                // Another process goes on.
                teller = telling(&store, &topics, "");
            }
        }
        clock.0.fetch_add(SETTLES * HOUR, Ordering::Relaxed);
        topics.0.lock().fails_each = 0;
        while teller.round().unwrap() {}
        let first = "2012-03-16T00:00:00Z".to_owned();
        // Nobody is told of hours before the first that was asked for, until they change.
        let after = |counts: BTreeMap<(String, String), u64>| {
            let counts = counts.into_iter();
            counts
                .filter(|((_, start), _)| *start >= first)
                .collect::<BTreeMap<_, _>>()
        };
        assert_eq!(after(topics.counts()), after(expected), "{fails_each}");
        let sent = topics.0.lock().messages.len();
        assert!(!teller.round().unwrap());
        assert_eq!(
            topics.0.lock().messages.len(),
            sent,
            "nothing is told twice"
        );
    }
}

#[test]
fn what_settled_before_the_first_start_is_told_only_where_it_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let (clock, store) = store(directory.path());
    count(&store, START, "abc");
    clock.0.fetch_add(SETTLES * HOUR, Ordering::Relaxed);
    let topics = Topics::default();
    let mut teller = telling(&store, &topics, "");
    while teller.round().unwrap() {}
    assert_eq!(topics.counts(), BTreeMap::new());

    // The progress wins over the setting, which is for namespaces that were never told of.
    let mut teller = telling(&store, &topics, "from = \"2012-03-16T00:00:00Z\"");
    while teller.round().unwrap() {}
    assert_eq!(topics.counts(), BTreeMap::new());

    let topics = Topics::default();
    let mut teller = telling(&store, &topics, "from = \"1970-01-01T00:00:00Z\"");
    while teller.round().unwrap() {}
    let keys: BTreeSet<_> = topics.counts().into_keys().map(|(key, _)| key).collect();
    assert_eq!(keys, BTreeSet::from(["abc".to_owned()]));
}

#[test]
fn the_topic_of_another_store_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (_, store) = store(directory.path());
    let topics = Topics::default();
    let said = |topics: &Topics| {
        let refused = telling(&store, topics, "").round().unwrap_err();
        refused.to_string()
    };
    telling(&store, &topics, "").round().unwrap();
    let ours = store.manifest().store_id.clone();
    let progress = |store: &str, cursors: &str| {
        format!("{{\"store\":\"{store}\",\"lineage\":\"\",\"cursors\":{{{cursors}}}}}")
    };
    let foreign = progress(&ours, "\"l\":\"17.1331920800.8c1f0e5a92b3d476\"");
    // Another store may tell of other namespaces.
    let other = progress("8c1f0e5a92b3d4768c1f0e5a92b3d476", "");
    for other in [&*foreign, &*other, "{}", "[]", "", "a"] {
        topics.0.lock().progress = vec![other.into()];
        let said = said(&topics);
        assert!(said.contains("t.progress is not of this store"), "{said}");
    }
}

#[test]
fn a_restored_store_goes_on_in_no_topic_that_was_told_before() {
    let (before, after) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (_, began) = store(before.path());
    count(&began, START, "abc");
    drop(began);
    copy(before.path(), after.path());
    let (_, lost) = store(before.path());
    count(&lost, START, "abc");
    let topics = Topics::default();
    telling(&lost, &topics, "").round().unwrap();

    // A copy that no command made is told by the end of its log alone.
    let (_, restored) = store(after.path());
    let refused = telling(&restored, &topics, "").round().unwrap_err();
    let said = refused.to_string();
    assert!(said.contains("counts that this store lacks"), "{said}");
    for _ in 0..9 {
        count(&restored, START, "abc");
    }
    let blobs = restored.world().blobs();
    blobs
        .put_over(names::LINEAGE, b"8c1f0e5a92b3d476\n")
        .unwrap();
    let refused = telling(&restored, &topics, "").round().unwrap_err();
    let said = refused.to_string();
    assert!(said.contains("name a new topic"), "{said}");

    let topics = Topics::default();
    for _ in 0..2 {
        telling(&restored, &topics, "").round().unwrap();
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let there = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy(&path, &there),
            false => drop(std::fs::copy(&path, &there).unwrap()),
        }
    }
}

#[test]
fn while_kafka_does_not_answer_the_time_grows_by_which_it_is_behind() {
    let directory = tempfile::tempdir().unwrap();
    let (clock, store) = store(directory.path());
    let topics = Topics::default();
    topics.0.lock().fails_each = 1;
    let mut teller = telling(&store, &topics, "");
    for hours in 0..3 {
        assert!(teller.round().is_err());
        assert_eq!(teller.behind(), hours * HOUR);
        if hours == 0 {
            count(&store, teller.told_until["l"], "abc");
        }
        clock.0.fetch_add(HOUR, Ordering::Relaxed);
    }
    topics.0.lock().fails_each = 0;
    while teller.round().unwrap() {}
    assert_eq!(teller.behind(), 0);
    let told: Vec<_> = topics.counts().into_values().collect();
    assert_eq!(told, [1], "it settled since the first look");
    clock.0.fetch_add(2 * HOUR, Ordering::Relaxed);
    assert_eq!(teller.behind(), 2 * HOUR);
    teller.leave();
    assert_eq!(teller.behind(), 0);
}

#[test]
fn a_round_that_panics_is_a_failure_and_the_next_one_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let (clock, store) = store(directory.path());
    count(&store, START, "abc");
    clock.0.fetch_add(SETTLES * HOUR, Ordering::Relaxed);
    let topics = Topics::default();
    topics.0.lock().panics = true;
    let teller = telling(&store, &topics, "from = \"2012-03-16T00:00:00Z\"");
    let teller = Arc::new(Mutex::new(teller));
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(async {
        assert_eq!(tell_once(&teller).await, RETRY_AFTER);
        assert_ne!(tell_once(&teller).await, RETRY_AFTER);
    });
    assert_eq!(topics.counts().len(), 1);
}
