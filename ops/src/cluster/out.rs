//! Settled buckets go into a topic of Kafka, page by page, and again when they change.
//!
//! A message is a line of `GET /v1/closed`. The cursors behind the messages are a message themselves, in a second
//! topic, and follow once the brokers have all messages of the page. A server that goes on from them, after a crash or
//! where another node writes now, sends the messages of one page again at most: each comes at least once, and those
//! with one id say the same. Nothing of this is in the store.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tallyring_api::ClosedLine;
use tallyring_cluster::{OutMessage, OutTopic};
use tallyring_realtime::{
    ClosedCursor, ClosedPage, ClosedReader, Error, Part, Reading, Service, Store,
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
    let mut telling = Telling::new(Arc::clone(service.store()), config, Box::new(open));
    let mut pause = PAUSE;
    loop {
        tokio::time::sleep(pause).await;
        if service.store().part() != Part::Writes {
            // Another node goes on meanwhile, from where this one was.
            telling.opened = None;
            pause = PAUSE;
            continue;
        }
        let round = tokio::task::spawn_blocking(move || {
            let told = telling.round();
            (telling, told)
        });
        let told = match round.await {
            Ok((back, told)) => {
                telling = back;
                told
            }
            Err(error) => {
                tracing::error!(%error, "settled buckets are no longer told to Kafka until the next start");
                return;
            }
        };
        pause = match told {
            Ok(true) => Duration::ZERO,
            Ok(false) => PAUSE,
            Err(error) => {
                metrics::counter!(FAILURES).increment(1);
                tracing::warn!(%error, "cannot tell Kafka of settled buckets; this is tried again");
                RETRY_AFTER
            }
        };
    }
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

/// What is told, and how far.
struct Telling<O> {
    store: Arc<Store>,
    config: KafkaOutConfig,
    open: Open<O>,
    /// None before the first round, and after a failure: then nobody knows what the brokers have.
    opened: Option<Opened<O>>,
}

struct Opened<O> {
    out: O,
    /// The cursor of each namespace that was told of.
    cursors: BTreeMap<String, String>,
}

impl<O: Out> Telling<O> {
    fn new(store: Arc<Store>, config: KafkaOutConfig, open: Open<O>) -> Self {
        Self {
            store,
            config,
            open,
            opened: None,
        }
    }

    /// Tells of a page of each namespace; true where more pages follow at once.
    fn round(&mut self) -> Result<bool> {
        let opened = match self.opened.take() {
            Some(opened) => opened,
            None => self.open()?,
        };
        let (opened, has_more) = self.tell(opened)?;
        self.opened = Some(opened);
        Ok(has_more)
    }

    fn open(&self) -> Result<Opened<O>> {
        let doing = || doing(format!("open the topic {}", self.config.topic.as_str()));
        let out = (self.open)().map_err(doing())?;
        let cursors = match out.progress().map_err(doing())? {
            None => BTreeMap::new(),
            Some(progress) => serde_json::from_slice(&progress).map_err(|_| self.foreign())?,
        };
        Ok(Opened { out, cursors })
    }

    fn tell(&self, mut opened: Opened<O>) -> Result<(Opened<O>, bool)> {
        let (mut has_more, mut behind) = (false, 0);
        let schema = self.store.schema();
        let named = &self.config.namespaces;
        let is_told = |name: &str| named.is_empty() || named.iter().any(|named| named == name);
        for namespace in schema.namespaces.iter().filter(|of| is_told(&of.name)) {
            let view = self.store.view_for(Reading::new(self.store.read_budget()));
            let now = self.store.world().clock.now_ms().div_euclid(1_000);
            let reader = ClosedReader::new(&self.store, &view, namespace, now);
            let page = self.page(&reader, namespace, &opened.cursors)?;
            let messages = messages(namespace, &page)?;
            let sent = opened.out.send(&messages);
            sent.map_err(doing("send settled buckets"))?;
            has_more |= reader.has_more(&page.next);
            behind = behind.max(reader.settled_until() - page.next.settled_until());
            let next = reader.text_of(&page.next);
            if opened.cursors.get(&namespace.name) == Some(&next) {
                continue;
            }
            opened.cursors.insert(namespace.name.clone(), next);
            let progress = serde_json::to_vec(&opened.cursors);
            let progress = progress.expect("BUG: texts by name are JSON");
            let kept = opened.out.keep(&progress);
            kept.map_err(doing("keep how far settled buckets were told"))?;
            metrics::counter!(MESSAGES).increment(messages.len() as u64);
        }
        metrics::gauge!(BEHIND).set(behind as f64);
        Ok((opened, has_more))
    }

    /// The page that follows the cursor of a namespace.
    fn page(
        &self,
        reader: &ClosedReader<'_>,
        namespace: &Namespace,
        cursors: &BTreeMap<String, String>,
    ) -> Result<ClosedPage> {
        let cursor = match cursors.get(&namespace.name) {
            Some(text) => reader.read_cursor(text).ok_or_else(|| self.foreign())?,
            None => self.first(reader),
        };
        match reader.page(cursor, LINES_MAX) {
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

    /// The cursor of a namespace that was never told of.
    fn first(&self, reader: &ClosedReader<'_>) -> ClosedCursor {
        let from = self.config.from.map(|from| {
            let kept = reader.kept_from().unwrap_or(i64::MIN);
            from.as_second().max(kept).min(reader.settled_until())
        });
        reader.begin(from)
    }

    fn foreign(&self) -> CommandError {
        let topic = self.config.topic.as_str();
        CommandError::Failed(format!(
            "the newest message of the topic {topic}.progress is not of this store: name a topic in kafka_out.topic that \
             no other store or program has"
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

    use parking_lot::Mutex;
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
    }

    impl Kept {
        /// True where a call fails.
        fn fails(&mut self) -> bool {
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
        telling(&store, &topics, "").round().unwrap();
        for other in ["{\"l\":\"17.1331920800.8c1f0e5a92b3d476\"}", "[]", "", "a"] {
            topics.0.lock().progress = Some(other.into());
            let said = telling(&store, &topics, "")
                .round()
                .unwrap_err()
                .to_string();
            assert!(said.contains("t.progress is not of this store"), "{said}");
        }
    }
}
