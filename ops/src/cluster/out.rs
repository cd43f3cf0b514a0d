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
mod tests;
