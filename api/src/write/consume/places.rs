//! Where each partition is read: found by the log and by the topic, never by what was read before.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use tallyring_realtime::{Advance, Batch, Source, SourceError};
use tallyring_records::{Consumed, TopicPartition};

use super::{Consumer, FAULTS, MESSAGES_MAX, PartitionStanding, SHOWN_MAX};

/// Messages that retention removed before they were consumed, by topic.
pub(crate) const LOST: &str = "tallyring_kafka_in_lost_total";
/// Messages behind the next one that is consumed, by topic and partition.
pub(crate) const LAG: &str = "tallyring_kafka_in_lag";

/// A partition that is read.
#[derive(Clone)]
pub(super) struct Place {
    pub of: TopicPartition,
    /// The next offset, as the log has it; none where nothing was consumed.
    pub from: Option<u64>,
    /// The offset that is read next.
    pub read: u64,
    /// The offset behind the newest message, as of the last look.
    end: u64,
}

impl Place {
    /// The offset of the next message that is to be counted.
    fn next(&self) -> u64 {
        self.from.unwrap_or(self.read)
    }

    /// The step from there to a next offset.
    pub(super) fn step(&self, next: u64) -> Advance {
        let of = self.of.clone();
        Advance {
            from: self.from,
            to: Consumed { of, next },
        }
    }
}

type Places = BTreeMap<(String, u32), Place>;

impl Consumer {
    /// Finds the places anew at the next turn.
    pub(super) fn forget(&mut self) {
        self.places.clear();
        self.waiting.clear();
        self.most = MESSAGES_MAX;
        self.begun = None;
        self.looked_ms = None;
    }

    /// Consumes nothing, because this store does not write its log.
    pub(super) fn leave(&mut self) {
        if self.epoch.take().is_some() {
            self.forget();
            for topic in &self.topics {
                self.note_error(&topic.name, None);
                self.tell(&topic.name);
            }
            self.passing.clear();
        }
    }

    /// Tells of a source that fails. The topics are looked at soon, and read anew; not at once after every fault, which
    /// would keep the other partitions from being read.
    pub(super) fn fail(&mut self, error: &SourceError) {
        if self.is_stopped() {
            return;
        }
        if self.is_past(self.failed_ms) {
            self.looked_ms = None;
        }
        self.failed_ms = Some(self.elapsed_ms());
        self.seeks = true;
        for topic in self.topics.clone() {
            self.note_passing(&topic.name, error.0.clone());
        }
    }

    /// Notes why nothing of a topic counts now; not in the place of what a look found.
    pub(super) fn note_passing(&mut self, topic: &str, error: String) {
        let topics = self.state.admin.consuming.topics();
        let is_found = topics.get(topic).is_some_and(|known| known.error.is_some());
        if !is_found || self.passing.contains(topic) {
            self.passing.insert(topic.to_owned());
            self.note_error(topic, Some(error));
        }
    }

    /// Takes such an error back.
    pub(super) fn pass_by(&mut self, topic: &str) {
        if self.passing.remove(topic) {
            self.note_error(topic, None);
        }
    }

    /// Looks at the topics, and reads all partitions where the log says, if these are not the ones that are read
    /// already. Brokers that do not answer keep no other partition waiting: the first partition without an answer ends
    /// the asking for this look, and is the last one that the next look asks for.
    pub(super) fn look(&mut self) -> Result<(), SourceError> {
        let known = self.state.store().intake().consumed();
        let (mut found, mut errors) = (Places::new(), BTreeMap::new());
        let mut asks = true;
        for of in self.wanted(&known, &mut errors) {
            let from = known.iter().find(|known| known.of == of);
            let (place, error) = self.find(&of, from.map(|known| known.next), &mut asks);
            if let Some(error) = error {
                let error = format!("partition {}: {error}", of.partition);
                errors.entry(of.topic.clone()).or_insert(error);
            }
            found.extend(place.map(|place| ((of.topic, of.partition), place)));
        }
        if self.is_stopped() {
            return Ok(());
        }
        let is_same = found.len() == self.places.len()
            && found.iter().zip(&self.places).all(|(new, old)| {
                (new.0, &new.1.of, new.1.next()) == (old.0, &old.1.of, old.1.read)
            });
        if !is_same || self.seeks {
            let to = found.values().map(|place| Consumed {
                of: place.of.clone(),
                next: place.read,
            });
            self.source.seek(&to.collect::<Vec<_>>())?;
        }
        self.places = found;
        self.seeks = false;
        self.looked_ms = Some(self.elapsed_ms());
        let is_quiet = self.is_past(self.failed_ms);
        for topic in self.topics.clone() {
            let error = errors.remove(&topic.name);
            if error.is_some() || is_quiet || !self.passing.contains(&topic.name) {
                self.passing.remove(&topic.name);
                self.note_error(&topic.name, error);
            }
        }
        self.topics.iter().for_each(|topic| self.tell(&topic.name));
        Ok(())
    }

    /// The partitions to be read, those last that did not answer, and why topics have none.
    fn wanted(
        &mut self,
        known: &[Consumed],
        errors: &mut BTreeMap<String, String>,
    ) -> Vec<TopicPartition> {
        let mut wanted = Vec::new();
        for topic in self.topics.clone() {
            let (partitions, checked) = match self.ask(|source| source.partitions(&topic.name)) {
                Ok(partitions) if topic.reset => (partitions, Ok(())),
                Ok(partitions) => match check_known(&partitions, known) {
                    Ok(()) => (partitions, Ok(())),
                    Err(error) => (Vec::new(), Err(error)),
                },
                // They are read on. Before their messages count, brokers must say that the topic is this one.
                Err(error) => {
                    let read = self.places.values().map(|place| &place.of);
                    let read = read.filter(|of| of.topic == topic.name);
                    (read.cloned().collect(), Err(error))
                }
            };
            wanted.extend(partitions);
            errors.extend(checked.err().map(|error| (topic.name, error.0)));
        }
        wanted.sort_by_key(|of| self.silent_ms.get(of).copied());
        wanted
    }

    /// The place of one partition, of which the log has the next offset, and why it is not read or may not be. One that
    /// is read where the log says stays so where `asks` is false, or where no broker answers.
    fn find(
        &mut self,
        of: &TopicPartition,
        from: Option<u64>,
        asks: &mut bool,
    ) -> (Option<Place>, Option<SourceError>) {
        let asked = asks.then(|| self.ask(|source| source.kept(of)));
        if let Some(Ok(kept)) = asked {
            self.silent_ms.remove(of);
            return match self.place(of, from, kept) {
                Ok(place) => (Some(place), None),
                Err(error) => (None, Some(error)),
            };
        }
        let mut error = asked.and_then(Result::err);
        if error.is_some() {
            *asks = false;
            self.silent_ms.insert(of.clone(), self.elapsed_ms());
        }
        let mut read = self.places.values();
        let read = read.find(|read| read.of == *of && read.from == from);
        if read.is_none() && error.is_none() {
            error = Some(SourceError(
                "brokers of other partitions do not answer".into(),
            ));
        }
        (read.cloned(), error)
    }

    /// The place of one partition that keeps these offsets. A loss is told.
    fn place(
        &self,
        of: &TopicPartition,
        from: Option<u64>,
        kept: Range<u64>,
    ) -> Result<Place, SourceError> {
        if !of.is_valid() {
            return Err(SourceError(
                "the brokers tell no id of it, so that one that is made again could not be told apart".into(),
            ));
        }
        let from = match from {
            Some(next) if next > kept.end => {
                return Err(SourceError(format!(
                    "it ends at offset {}, and the messages before {next} were consumed: brokers lost some, and what comes \
                     before that offset again is not counted",
                    kept.end
                )));
            }
            Some(next) if next < kept.start => Some(self.lose(of, next, kept.start)?),
            from => from,
        };
        Ok(Place {
            of: of.clone(),
            read: from.unwrap_or(kept.start),
            from,
            end: kept.end,
        })
    }

    /// Notes in the log that messages of a partition are gone. Returns the offset behind them.
    fn lose(&self, of: &TopicPartition, from: u64, until: u64) -> Result<u64, SourceError> {
        let to = Consumed {
            of: of.clone(),
            next: until,
        };
        let batch = Batch {
            consumed: vec![Advance {
                from: Some(from),
                to,
            }],
            ..Batch::default()
        };
        // A crash behind the record would leave nobody to tell.
        tracing::error!(
            topic = ?of.topic, partition = of.partition, from, until,
            "messages of a topic were removed by its retention before they were consumed, and are not counted"
        );
        let noted = self.runtime.block_on(self.state.count(batch));
        noted.map_err(|refusal| SourceError(refusal.to_string()))?;
        metrics::counter!(LOST, "topic" => of.topic.clone()).increment(until - from);
        Ok(until)
    }

    /// Makes sure that these topics are the ones that the places are of, and were not made again under their names.
    /// Messages that were read before are of the topic that is found now or of none.
    pub(super) fn check_topics(&mut self, names: BTreeSet<String>) -> Result<(), SourceError> {
        for name in names {
            let partitions = self.ask(|source| source.partitions(&name))?;
            let mut known = self.places.values().filter(|place| place.of.topic == name);
            if !known.all(|place| partitions.contains(&place.of)) {
                return Err(SourceError(format!("the topic {name} was made again")));
            }
        }
        Ok(())
    }

    /// Asks the brokers, unless this is stopped: a stop waits for one answer at most.
    fn ask<T>(
        &mut self,
        question: impl FnOnce(&mut dyn Source) -> Result<T, SourceError>,
    ) -> Result<T, SourceError> {
        match self.is_stopped() {
            true => Err(SourceError("the server stops".into())),
            false => question(&mut *self.source),
        }
    }

    /// Tells how far a topic is consumed. Nothing waits in a partition that is read here no more.
    pub(super) fn tell(&self, topic: &str) {
        let gauge = |partition: u32| {
            let labels = [
                ("topic", topic.to_owned()),
                ("partition", partition.to_string()),
            ];
            metrics::gauge!(LAG, &labels)
        };
        let places = self.places.values().filter(|place| place.of.topic == topic);
        let partitions = places.map(|place| PartitionStanding {
            partition: place.of.partition,
            next: place.next(),
            lag: place.end.saturating_sub(place.next()),
        });
        let partitions: Vec<PartitionStanding> = partitions.collect();
        self.state.admin.consuming.note(topic, |standing| {
            for now in &partitions {
                gauge(now.partition).set(now.lag as f64);
            }
            let is_read = |before: &u32| partitions.iter().any(|now| now.partition == *before);
            let before = standing.partitions.iter().map(|before| before.partition);
            for left in before.filter(|before| !is_read(before)) {
                gauge(left).set(0.0);
            }
            standing.partitions = partitions;
        });
    }

    fn note_error(&self, topic: &str, error: Option<String>) {
        let error: Option<String> = error.map(|error| error.chars().take(2 * SHOWN_MAX).collect());
        self.state.admin.consuming.note(topic, |standing| {
            if let Some(error) = error.as_ref().filter(|_| standing.error != error)
                && let Some(times) = FAULTS.due()
            {
                tracing::error!(
                    ?topic,
                    error,
                    times,
                    "a topic is not consumed, or not all of it"
                );
            }
            standing.error = error;
        });
    }
}

/// Refuses a topic whose name the log knows with another id.
fn check_known(partitions: &[TopicPartition], known: &[Consumed]) -> Result<(), SourceError> {
    let Some(first) = partitions.first() else {
        return Ok(());
    };
    let mut of_name = known.iter().filter(|known| known.of.topic == first.topic);
    let is_same = |known: &Consumed| {
        (&known.of.topic_id, &known.of.cluster) == (&first.topic_id, &first.cluster)
    };
    match of_name.next() {
        Some(known) if !is_same(known) && !of_name.any(is_same) => Err(SourceError(format!(
            "it is not the topic that was consumed under this name: its id is {} in the cluster {}, and that of the other \
             one {} in {}; set `reset = true` for it to consume it from its beginning",
            first.topic_id, first.cluster, known.of.topic_id, known.of.cluster
        ))),
        _ => Ok(()),
    }
}
