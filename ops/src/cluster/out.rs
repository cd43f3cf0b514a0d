//! Settled buckets go into a topic of Kafka, page by page, and again when they change.
//!
//! A message is a line of `GET /v1/closed`. The cursors behind the messages are a message themselves, in a second
//! topic, and follow once the brokers have all messages of the page. A server that goes on from them, after a crash or
//! where another node writes now, sends the messages of one page again at most: each comes at least once, and those
//! with one id say the same. Nothing of this is in the store.
//!
//! Versions rise with the log, so they are in order for one store alone. A restored store counts on from an earlier
//! record: its lineage is another one, and it gets another topic.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tallyring_api::ClosedLine;
use tallyring_archive::names;
use tallyring_cluster::{OutMessage, OutTopic};
use tallyring_realtime::{
    Charge, ClosedCursor, ClosedPage, ClosedReader, Error, Part, Reading, Service, Store,
};
use tallyring_records::Namespace;

use crate::config::KafkaOutConfig;
use crate::error::{CommandError, Result, doing};

/// Lines of a page, at most; more only where one key or one increment has more.
const LINES_MAX: usize = 1_000;
/// The pause once all is told.
const PAUSE: Duration = Duration::from_secs(1);
/// The pause after a failure.
const RETRY_AFTER: Duration = Duration::from_secs(5);
const MESSAGES: &str = "tallyring_kafka_out_messages_total";
const FAILURES: &str = "tallyring_kafka_out_failures_total";
const BEHIND: &str = "tallyring_kafka_out_behind_seconds";

/// Tells of settled buckets where this server writes the log, until it is aborted.
pub(crate) async fn tell_settled(service: &Service, config: KafkaOutConfig) {
    metrics::describe_gauge!(
        BEHIND,
        "How far the buckets that Kafka has are behind those that are settled, seconds"
    );
    let (kafka, topic) = (config.kafka.clone(), config.topic.clone());
    let open = move || OutTopic::open(&kafka, &topic);
    let telling = Telling::new(Arc::clone(service.store()), config, Box::new(open));
    let telling = Arc::new(Mutex::new(telling));
    loop {
        let pause = match service.store().part() {
            Part::Writes => tell_once(&telling).await,
            _ => {
                telling.lock().leave();
                PAUSE
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Tells of a page of each namespace, on a thread that may wait. Returns the pause before the next ones.
async fn tell_once<O: Out + Send + 'static>(telling: &Arc<Mutex<Telling<O>>>) -> Duration {
    let telling = Arc::clone(telling);
    let round = tokio::task::spawn_blocking(move || telling.lock().round()).await;
    let error = match round {
        Ok(Ok(true)) => return Duration::ZERO,
        Ok(Ok(false)) => return PAUSE,
        Ok(Err(error)) => error.to_string(),
        // It panicked, and the next round opens the topic again.
        Err(error) => error.to_string(),
    };
    metrics::counter!(FAILURES).increment(1);
    tracing::warn!(
        error,
        "cannot tell Kafka of settled buckets; this is tried again"
    );
    RETRY_AFTER
}

/// Where messages go, and where the progress is kept.
trait Out {
    fn progress(&self) -> io::Result<Option<Vec<u8>>>;
    fn send(&mut self, messages: &[OutMessage]) -> io::Result<()>;
    fn keep(&mut self, progress: &[u8]) -> io::Result<()>;
}

impl Out for OutTopic {
    fn progress(&self) -> io::Result<Option<Vec<u8>>> {
        Self::progress(self)
    }

    fn send(&mut self, messages: &[OutMessage]) -> io::Result<()> {
        Self::send(self, messages)
    }

    fn keep(&mut self, progress: &[u8]) -> io::Result<()> {
        Self::keep(self, progress)
    }
}

type Open<O> = Box<dyn Fn() -> io::Result<O> + Send>;

/// The state of telling: where it goes, and how far it is.
struct Telling<O> {
    store: Arc<Store>,
    config: KafkaOutConfig,
    open: Open<O>,
    /// None before the first round, and after a failure: then nobody knows what the brokers have.
    opened: Option<Opened<O>>,
    /// For each namespace the time until which its settled buckets were told, Unix seconds. Before anything is known of
    /// that it is what was settled at the first look, so that a failure that lasts is seen.
    told_until: BTreeMap<String, i64>,
}

struct Opened<O> {
    out: O,
    progress: Progress,
}

/// How far the topic was told, as a message.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Progress {
    /// The identity of the store.
    store: String,
    /// The lineage of the store; empty for one that was never restored.
    lineage: String,
    /// The cursor of each namespace that was told of.
    cursors: BTreeMap<String, String>,
}

/// A page as it is sent.
struct Lines {
    messages: Vec<OutMessage>,
    /// The cursor behind them, and the time until which buckets are told then.
    next: String,
    told_until: i64,
    has_more: bool,
    /// Memory of the page.
    _charge: Charge,
}

impl<O: Out> Telling<O> {
    fn new(store: Arc<Store>, config: KafkaOutConfig, open: Open<O>) -> Self {
        Self {
            store,
            config,
            open,
            opened: None,
            told_until: BTreeMap::new(),
        }
    }

    /// Another node goes on, from where this one was.
    fn leave(&mut self) {
        self.opened = None;
        self.told_until.clear();
        metrics::gauge!(BEHIND).set(0.0);
    }

    /// Tells of a page of each namespace; true where more pages follow at once.
    fn round(&mut self) -> Result<bool> {
        // First, so that it grows where all else fails.
        metrics::gauge!(BEHIND).set(self.behind() as f64);
        let opened = match self.opened.take() {
            Some(opened) => opened,
            None => self.open()?,
        };
        let (opened, has_more) = self.tell(opened)?;
        self.opened = Some(opened);
        Ok(has_more)
    }

    /// How far the buckets that were told are behind those that are settled, seconds.
    fn behind(&mut self) -> i64 {
        let mut behind = 0;
        for namespace in self.namespaces() {
            let name = namespace.name.clone();
            let settled = self.read(&namespace, |reader| reader.settled_until());
            let told = *self.told_until.entry(name).or_insert(settled);
            behind = behind.max(settled - told);
        }
        behind
    }

    fn open(&self) -> Result<Opened<O>> {
        let doing = || doing(format!("open the topic {}", self.config.topic.as_str()));
        let out = (self.open)().map_err(doing())?;
        let lineage = self.store.world().blobs().read_if_there(names::LINEAGE)?;
        let lineage = String::from_utf8_lossy(&lineage.unwrap_or_default())
            .trim_end()
            .to_owned();
        let store = self.store.manifest().store_id.clone();
        let progress = match out.progress().map_err(doing())? {
            None => Progress {
                store,
                lineage,
                cursors: BTreeMap::new(),
            },
            Some(kept) => {
                let kept: Progress = serde_json::from_slice(&kept).map_err(|_| self.foreign())?;
                if kept.store != store {
                    return Err(self.foreign());
                }
                if kept.lineage != lineage {
                    return Err(self.restored());
                }
                kept
            }
        };
        Ok(Opened { out, progress })
    }

    fn tell(&mut self, mut opened: Opened<O>) -> Result<(Opened<O>, bool)> {
        let mut has_more = false;
        for namespace in self.namespaces() {
            let cursor = opened.progress.cursors.get(&namespace.name);
            let lines = self.lines(&namespace, cursor)?;
            let sent = opened.out.send(&lines.messages);
            sent.map_err(doing("send settled buckets"))?;
            has_more |= lines.has_more;
            if cursor != Some(&lines.next) {
                let cursors = &mut opened.progress.cursors;
                cursors.insert(namespace.name.clone(), lines.next);
                let progress = serde_json::to_vec(&opened.progress);
                let progress = progress.expect("BUG: texts by name are JSON");
                let kept = opened.out.keep(&progress);
                kept.map_err(doing("keep how far settled buckets were told"))?;
            }
            self.told_until.insert(namespace.name, lines.told_until);
            metrics::counter!(MESSAGES).increment(lines.messages.len() as u64);
        }
        Ok((opened, has_more))
    }

    /// The namespaces that are told of.
    fn namespaces(&self) -> Vec<Namespace> {
        let named = &self.config.namespaces;
        let is_told = |name: &String| named.is_empty() || named.contains(name);
        let schema = self.store.schema();
        let told = schema.namespaces.iter().filter(|of| is_told(&of.name));
        told.cloned().collect()
    }

    /// Reads in a view of now, which ends with the read: nothing waits for brokers while it holds a view.
    fn read<T>(&self, namespace: &Namespace, read: impl FnOnce(&ClosedReader<'_>) -> T) -> T {
        let view = self.store.view_for(Reading::new(self.store.read_budget()));
        let now = self.store.world().clock.now_ms().div_euclid(1_000);
        read(&ClosedReader::new(&self.store, &view, namespace, now))
    }

    /// The page that follows the cursor of a namespace.
    fn lines(&self, namespace: &Namespace, cursor: Option<&String>) -> Result<Lines> {
        self.read(namespace, |reader| {
            let page = self.page(reader, namespace, cursor)?;
            Ok(Lines {
                messages: messages(namespace, &page)?,
                next: reader.text_of(&page.next),
                told_until: page.next.settled_until(),
                has_more: reader.has_more(&page.next),
                _charge: page.charge,
            })
        })
    }

    fn page(
        &self,
        reader: &ClosedReader<'_>,
        namespace: &Namespace,
        cursor: Option<&String>,
    ) -> Result<ClosedPage> {
        let cursor = match cursor {
            Some(text) => reader.read_cursor(text).ok_or_else(|| self.foreign())?,
            None => self.first(reader, namespace),
        };
        match reader.page(cursor, LINES_MAX) {
            Err(Error::CursorAhead { .. }) => Err(self.restored()),
            Err(Error::CursorGone { settled }) => {
                tracing::error!(
                    namespace = namespace.name,
                    settled,
                    "the log no longer holds what came since Kafka was told last: buckets that settled before this time and \
                     changed since are not told again; read them anew"
                );
                Ok(reader.page(reader.begin(Some(settled)), LINES_MAX)?)
            }
            page => Ok(page?),
        }
    }

    /// The cursor of a namespace that was never told of: without a time in the configuration it is that of the first
    /// look, since when the brokers may have failed.
    fn first(&self, reader: &ClosedReader<'_>, namespace: &Namespace) -> ClosedCursor {
        let settled = reader.settled_until();
        let looked = self.told_until.get(&namespace.name).copied();
        let from = self.config.from.map(|from| from.as_second());
        let from = from.or(looked).unwrap_or(settled);
        let kept = reader.kept_from().unwrap_or(i64::MIN);
        reader.begin(Some(from.max(kept).min(settled)))
    }

    fn foreign(&self) -> CommandError {
        CommandError::Failed(format!(
            "the newest message of the topic {} is not of this store: name a topic in kafka_out.topic that no other store \
             or program has",
            self.config.topic.of_progress()
        ))
    }

    /// Versions of this store are not in one order with those of the topic. A node that another one deposed just now is
    /// refused the same way, and does not ask again once it knows.
    fn restored(&self) -> CommandError {
        CommandError::Failed(format!(
            "the topic {} was told of counts that this store lacks: it was told before a restore from a backup, or by the \
             other one of two stores that count apart since a restore; name a new topic in kafka_out.topic, and in \
             kafka_out.from the first time that it is to have",
            self.config.topic.as_str()
        ))
    }
}

fn messages(namespace: &Namespace, page: &ClosedPage) -> Result<Vec<OutMessage>> {
    let lines = page.buckets.iter().map(|bucket| {
        let line = ClosedLine::of(namespace, bucket, page.version);
        Ok(OutMessage {
            key: bucket.key.clone(),
            id: line.id(),
            value: serde_json::to_vec(&line).map_err(io::Error::other)?,
        })
    });
    let lines: io::Result<_> = lines.collect();
    lines.map_err(doing("write settled buckets"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;
    use std::sync::atomic::{AtomicI64, Ordering};

    use tallyring_realtime::{Batch, Clock, Options};
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
    struct Topics(Arc<Mutex<Kept>>);

    #[derive(Default)]
    struct Kept {
        messages: Vec<OutMessage>,
        progress: Option<Vec<u8>>,
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
        fn progress(&self) -> io::Result<Option<Vec<u8>>> {
            Ok(self.0.lock().progress.clone())
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
                kept.progress = Some(progress.to_vec());
            }
            if fails { Err(lost()) } else { Ok(()) }
        }
    }

    impl Topics {
        /// The counts by key and start: of messages of one bucket, the highest version counts.
        fn counts(&self) -> BTreeMap<(String, String), u64> {
            let mut newest: BTreeMap<(String, String), (u64, u64)> = BTreeMap::new();
            let mut said: BTreeMap<String, Vec<u8>> = BTreeMap::new();
            for message in &self.0.lock().messages {
                let line: serde_json::Value = serde_json::from_slice(&message.value).unwrap();
                let text = |name: &str| line[name].as_str().unwrap().to_owned();
                let number = |name: &str| line[name].as_u64().unwrap();
                assert_eq!(
                    (text("namespace"), text("key")),
                    ("l".into(), message.key.clone())
                );
                let other = said.insert(message.id.clone(), message.value.clone());
                assert!(other.is_none_or(|other| other == message.value), "{line}");
                let of = newest
                    .entry((message.key.clone(), text("start")))
                    .or_default();
                *of = (*of).max((number("version"), number("count")));
            }
            let newest = newest.into_iter();
            newest.map(|(bucket, (_, count))| (bucket, count)).collect()
        }
    }

    fn config(more: &str) -> KafkaOutConfig {
        let text = format!(
            "[kafka_out]\nkafka = [\"127.0.0.1:9\"]\ntopic = \"t\"\nnamespaces = [\"l\"]\n{more}"
        );
        Config::parse(&text, "test").unwrap().kafka_out.unwrap()
    }

    fn store(directory: &Path) -> (Arc<TestClock>, Arc<Store>) {
        let clock = Arc::new(TestClock(AtomicI64::new(START)));
        let world = world(directory, Arc::clone(&clock) as _).unwrap();
        let options = Options::for_memory(1 << 28);
        let (store, _) = Store::open(world, options, Schema::default_clicks()).unwrap();
        (clock, Arc::new(store))
    }

    fn telling(store: &Arc<Store>, topics: &Topics, more: &str) -> Telling<Topics> {
        let topics = topics.clone();
        let open = Box::new(move || Ok(topics.clone()));
        Telling::new(Arc::clone(store), config(more), open)
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
        for fails_each in [0, 2, 3, 5, 7] {
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
            topics.0.lock().progress = Some(other.into());
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
}
