//! Settled buckets go into a topic of Kafka, page by page, and again when they change.
//!
//! A message is a line of `GET /v1/closed`, so it counts all strands. The node that writes strand 0 tells; its version
//! is the sum of the records that its view counted of each log. The progress is a message itself, in a second topic:
//! the cursors behind what the brokers have, and how far the views counted from which something was told (`seen`).
//!
//! Invariant: all views from which messages come are in one order, so the highest version of a bucket is its newest
//! count, and equal versions say the same. Two nodes may believe that they write, and each may lack records that the
//! other one has. So a teller keeps what its view counted before it sends a page, and then reads what others kept
//! meanwhile:
//!
//! * A teller begins with a progress of its own, and sends from no view that lacks something that was kept before.
//! * A teller that reads a later epoch of strand 0 than its own sends nothing more.
//!
//! The later one of two tellers has read what the earlier one kept, or the earlier one reads the later one's begin
//! before it sends. Cursors move only behind what was sent, so a successor sends one page of each namespace again
//! at most. Nothing of this is in the store.
//!
//! A restored store counts on from an earlier record: its lineage is another one, and it gets another topic.

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
    Charge, ClosedCursor, ClosedPage, ClosedReader, Error, Part, Reading, Stores,
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

/// Tells of the settled buckets of all strands where this server writes the first one, until it is aborted.
pub(crate) async fn tell_settled(stores: Arc<Stores>, config: KafkaOutConfig) {
    metrics::describe_gauge!(
        BEHIND,
        "How far the buckets that Kafka has are behind those that are settled, seconds"
    );
    let of = config.clone();
    let open = move || OutTopic::open(&of.kafka, &of.topic, &of.teller);
    let telling = Telling::new(Arc::clone(&stores), config, Box::new(open));
    let telling = Arc::new(Mutex::new(telling));
    loop {
        let pause = match stores.first().part() {
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
    /// The next progress that a teller kept; none where all there is was read.
    fn next_kept(&mut self) -> io::Result<Option<Vec<u8>>>;
    fn send(&mut self, messages: &[OutMessage]) -> io::Result<()>;
    fn keep(&mut self, progress: &[u8]) -> io::Result<()>;
}

impl Out for OutTopic {
    fn next_kept(&mut self) -> io::Result<Option<Vec<u8>>> {
        Self::next_kept(self)
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
    stores: Arc<Stores>,
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
    /// The epoch of this teller, which is that of strand 0.
    epoch: u32,
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
    /// The epoch in which its teller writes strand 0. Builds before did not say, nor what they had seen.
    #[serde(default)]
    epoch: u32,
    /// For each strand, behind the last record that the views counted from which messages were sent.
    #[serde(default)]
    seen: Vec<u64>,
    /// The cursor of each namespace that was told of.
    cursors: BTreeMap<String, String>,
}

impl Progress {
    /// Goes on from what a teller kept; that of the latest epoch says from where.
    fn merge(&mut self, kept: Self) {
        for (seen, more) in self.seen.iter_mut().zip(kept.seen) {
            *seen = more.max(*seen);
        }
        let (mut cursors, mut older) = (kept.cursors, std::mem::take(&mut self.cursors));
        if kept.epoch < self.epoch {
            std::mem::swap(&mut cursors, &mut older);
        }
        // A namespace that only the earlier one had begun goes on from there.
        older.extend(cursors);
        (self.epoch, self.cursors) = (kept.epoch.max(self.epoch), older);
    }
}

/// A page as it is sent.
struct Lines {
    messages: Vec<OutMessage>,
    /// How far the view of the page has counted each log.
    seen: Vec<u64>,
    /// The cursor behind them, and the time until which buckets are told then.
    next: String,
    told_until: i64,
    has_more: bool,
    /// Memory of the page.
    _charge: Charge,
}

impl<O: Out> Telling<O> {
    fn new(stores: Arc<Stores>, config: KafkaOutConfig, open: Open<O>) -> Self {
        Self {
            stores,
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
        let mut opened = match self.opened.take() {
            Some(opened) => opened,
            None => self.open()?,
        };
        let has_more = self.tell(&mut opened)?;
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
        let epoch = self.stores.first().intake().epoch();
        let epoch = epoch.ok_or_else(|| self.deposed())?;
        let out = (self.open)();
        let out = out.map_err(doing(format!(
            "open the topic {}",
            self.config.topic.as_str()
        )))?;
        let lineage = self.stores.first().world().blobs();
        let lineage = lineage.read_if_there(names::LINEAGE)?.unwrap_or_default();
        let progress = Progress {
            store: self.stores.first().manifest().store_id.clone(),
            lineage: String::from_utf8_lossy(&lineage).trim_end().to_owned(),
            epoch: 0,
            seen: vec![0; self.stores.all().len()],
            cursors: BTreeMap::new(),
        };
        let mut opened = Opened {
            out,
            epoch,
            progress,
        };
        self.read_kept(&mut opened)?;
        self.keep(&mut opened)?;
        Ok(opened)
    }

    /// Keeps the progress, and reads what others kept before that. Fails where another teller came later.
    fn keep(&self, opened: &mut Opened<O>) -> Result<()> {
        opened.progress.epoch = opened.epoch;
        let progress = serde_json::to_vec(&opened.progress);
        let progress = progress.expect("BUG: texts by name are JSON");
        let kept = opened.out.keep(&progress);
        kept.map_err(doing("keep how far settled buckets were told"))?;
        self.read_kept(opened)
    }

    fn read_kept(&self, opened: &mut Opened<O>) -> Result<()> {
        let doing = || doing("read how far settled buckets were told");
        while let Some(kept) = opened.out.next_kept().map_err(doing())? {
            let kept: Progress = serde_json::from_slice(&kept).map_err(|_| self.foreign())?;
            if kept.store != opened.progress.store {
                return Err(self.foreign());
            }
            if kept.lineage != opened.progress.lineage {
                return Err(self.restored());
            }
            opened.progress.merge(kept);
        }
        match opened.progress.epoch > opened.epoch {
            true => Err(self.deposed()),
            false => Ok(()),
        }
    }

    fn tell(&mut self, opened: &mut Opened<O>) -> Result<bool> {
        let (mut has_more, mut has_moved) = (false, false);
        for namespace in self.namespaces() {
            let before = opened.progress.cursors.get(&namespace.name).cloned();
            let Some(lines) = self.lines(&namespace, &mut opened.progress)? else {
                continue;
            };
            has_moved |= before.as_ref() != Some(&lines.next);
            if !lines.messages.is_empty() {
                opened.progress.seen = lines.seen;
                self.keep(opened)?;
                let sent = opened.out.send(&lines.messages);
                sent.map_err(doing("send settled buckets"))?;
            }
            has_more |= lines.has_more;
            let cursors = &mut opened.progress.cursors;
            cursors.insert(namespace.name.clone(), lines.next);
            self.told_until.insert(namespace.name, lines.told_until);
            metrics::counter!(MESSAGES).increment(lines.messages.len() as u64);
        }
        // The next page keeps it, where one follows at once.
        if has_moved && !has_more {
            self.keep(opened)?;
        }
        Ok(has_more)
    }

    /// The namespaces that are told of.
    fn namespaces(&self) -> Vec<Namespace> {
        let named = &self.config.namespaces;
        let is_told = |name: &String| named.is_empty() || named.contains(name);
        let schema = self.stores.first().schema();
        let told = schema.namespaces.iter().filter(|of| is_told(&of.name));
        told.cloned().collect()
    }

    /// Reads in a view of now, which ends with the read: nothing waits for brokers while it holds a view.
    fn read<T>(&self, namespace: &Namespace, read: impl FnOnce(&ClosedReader<'_>) -> T) -> T {
        let stores = &*self.stores;
        let view = stores.view_for(Reading::new(stores.read_budget()));
        let now = stores.first().world().clock.now_ms().div_euclid(1_000);
        read(&stores.closed(&view, namespace, now))
    }

    /// The page that follows the cursor of a namespace; none where the view has to count on first. A namespace that was
    /// never told of gets its first cursor, from which another teller goes on.
    fn lines(&self, namespace: &Namespace, progress: &mut Progress) -> Result<Option<Lines>> {
        self.read(namespace, |reader| {
            let mut seen = progress.seen.iter().zip(reader.applied());
            if seen.any(|(seen, applied)| seen > applied) {
                return self.ahead();
            }
            let cursors = &mut progress.cursors;
            let first = || reader.text_of(&self.first(reader, namespace));
            let cursor = cursors.entry(namespace.name.clone()).or_insert_with(first);
            let Some(page) = self.page(reader, namespace, cursor)? else {
                return Ok(None);
            };
            Ok(Some(Lines {
                messages: messages(namespace, &page)?,
                seen: reader.applied().to_vec(),
                next: reader.text_of(&page.next),
                told_until: page.next.settled_until(),
                has_more: reader.has_more(&page.next),
                _charge: page.charge,
            }))
        })
    }

    fn page(
        &self,
        reader: &ClosedReader<'_>,
        namespace: &Namespace,
        cursor: &str,
    ) -> Result<Option<ClosedPage>> {
        let cursor = reader.read_cursor(cursor).ok_or_else(|| self.foreign())?;
        match reader.page(cursor, LINES_MAX) {
            Err(Error::CursorAhead { .. }) => self.ahead(),
            Err(Error::CursorGone { settled }) => {
                tracing::error!(
                    namespace = namespace.name,
                    settled,
                    "the log no longer holds what came since Kafka was told last: buckets that settled before this time and \
                     changed since are not told again; read them anew"
                );
                Ok(Some(reader.page(reader.begin(Some(settled)), LINES_MAX)?))
            }
            page => Ok(Some(page?)),
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
            "a message of the topic {} is not of this store: name a topic in kafka_out.topic that no other store or \
             program has",
            self.config.topic.of_progress()
        ))
    }

    /// Another node took strand 0 over. This one does not ask again once it knows.
    fn deposed(&self) -> CommandError {
        CommandError::Failed(format!(
            "another node tells the topic {}, because it took the log over later; this one sends nothing",
            self.config.topic.as_str()
        ))
    }

    /// This view lacks records that were told of: a node of several counts them soon, and nothing is told before.
    fn ahead<T>(&self) -> Result<Option<T>> {
        match self.stores.first().world().objects.is_some() {
            true => Ok(None),
            false => Err(self.restored()),
        }
    }

    /// Versions of this store are not in one order with those of the topic.
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
}
