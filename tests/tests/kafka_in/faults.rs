//! Brokers, disks and topics fail, and every message counts once all the same.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tallyring_realtime::oplog::{LogCopy, LogCopyAck};
use tallyring_realtime::{Source, SourceError};
use tallyring_records::{Consumed, TopicPartition};

use super::*;

#[test]
fn messages_that_retention_removed_are_passed_over_and_the_next_ones_count() {
    let brokers = SimBrokers::default();
    brokers.make("clicks", 1);
    let up = Up::on(SimDisk::default());
    let sent = |n| brokers.send(message(0, increment("a", n)));
    sent(1);
    drain(&mut up.consumer(&brokers, clicks(), None));
    for _ in 0..4 {
        sent(10);
    }
    brokers.remove_before(("clicks", 0), 3);
    let mut consumer = up.consumer(&brokers, clicks(), None);
    consumer.turn(Duration::ZERO).unwrap();
    assert_eq!(up.total("l", "a"), 21);
    // While it is read: two more are gone before they are looked for.
    for _ in 0..3 {
        sent(100);
    }
    brokers.remove_before(("clicks", 0), 7);
    assert!(consumer.turn(Duration::ZERO).is_err());
    drain(&mut consumer);
    assert_eq!(up.total("l", "a"), 121);
    let consumed = up.store().intake().consumed();
    assert_eq!((consumed.len(), consumed[0].next), (1, 8));
}

#[test]
fn marks_of_transactions_neither_wait_nor_are_lost() {
    let brokers = SimBrokers::default();
    brokers.make("clicks", 2);
    let up = Up::on(SimDisk::default());
    let mut consumer = up.consumer(&brokers, clicks(), None);
    brokers.send(message(0, increment("a", 1)));
    [0, 0, 1]
        .iter()
        .for_each(|partition| brokers.mark(("clicks", *partition)));
    drain(&mut consumer);
    up.clock.pass(5_000);
    drain(&mut consumer);
    let partitions = || {
        let standing = up.state.admin.consuming.topics()["clicks"].clone();
        let partitions = standing.partitions.into_iter();
        let partitions = partitions.map(|of| (of.next, of.lag));
        partitions.collect::<Vec<_>>()
    };
    assert_eq!(partitions(), [(3, 0), (1, 0)]);
    // A message behind them counts, and retention of them is no loss.
    brokers.mark(("clicks", 0));
    brokers.send(message(0, increment("a", 10)));
    brokers.mark(("clicks", 0));
    drain(&mut consumer);
    brokers.remove_before(("clicks", 0), 6);
    up.clock.pass(5_000);
    let applied = up.store().live().applied();
    drain(&mut consumer);
    assert_eq!(
        (up.total("l", "a"), partitions()),
        (11, vec![(6, 0), (1, 0)])
    );
    assert_eq!(up.store().live().applied(), applied, "no step over a loss");
    let up = Up::on(up.crash(7));
    let consumed = up.store().intake().consumed();
    let next: Vec<u64> = consumed.iter().map(|of| of.next).collect();
    assert_eq!(next, [6, 1]);
}

#[test]
fn a_full_disk_holds_messages_back_and_skips_none() {
    let brokers = SimBrokers::default();
    brokers.make("clicks", 1);
    let up = Up::on(SimDisk::default());
    let mut consumer = up.consumer(&brokers, clicks(), None);
    up.disk.set_free_bytes(0);
    let mut sent = 0;
    while up.error("clicks").is_empty() {
        for _ in 0..100 {
            brokers.send(message(0, increment("a", 1)));
            sent += 1;
        }
        consumer.turn(Duration::ZERO).unwrap();
        assert!(sent < 100_000, "the disk never fills");
    }
    assert!(up.total("l", "a") < sent);
    up.disk.set_free_bytes(1 << 30);
    drain(&mut consumer);
    assert_eq!(
        (up.total("l", "a"), up.error("clicks")),
        (sent, String::new())
    );
}

#[test]
fn brokers_that_do_not_answer_keep_no_other_partition_waiting() {
    let brokers = SimBrokers::default();
    brokers.make("clicks", 6);
    let silent = |partition, is_silent| brokers.set_silent(("clicks", partition), is_silent);
    let send = |partition| {
        brokers.send(message(partition, increment("a", 1)));
    };
    let up = Up::on(SimDisk::default());
    let mut consumer = up.consumer(&brokers, clicks(), None);
    let mut look = || {
        let before = brokers.unanswered();
        drain(&mut consumer);
        assert!(brokers.unanswered() <= before + 1, "one question a look");
        up.clock.pass(5_000);
        up.total("l", "a")
    };
    [1, 2].iter().for_each(|partition| silent(*partition, true));
    (0..6).for_each(send);
    assert_eq!([look(), look(), look()], [1, 1, 4]);
    assert!(up.error("clicks").contains("no answer"));
    // One that is read is read on.
    silent(3, true);
    [0, 3, 5].into_iter().for_each(send);
    assert_eq!([look(), look(), look()], [6, 6, 6]);
    [1, 2, 3]
        .iter()
        .for_each(|partition| silent(*partition, false));
    assert_eq!(look(), 9);
    assert_eq!(up.error("clicks"), "");
}

#[test]
fn a_partition_that_cannot_be_read_keeps_no_other_from_being_counted() {
    let brokers = SimBrokers::default();
    brokers.make("clicks", 1);
    brokers.make("other", 1);
    let topics = ["clicks", "other"].map(|name| topic(name, MessageFormat::Json));
    let up = Up::on(SimDisk::default());
    let mut consumer = up.consumer(&brokers, topics.into(), None);
    drain(&mut consumer);
    brokers.set_faulty(true);
    for counted in 1..20 {
        brokers.send(message(0, increment("a", 1)));
        assert!(consumer.turn(Duration::ZERO).is_err());
        assert_eq!(up.total("l", "a"), counted, "what came before it counts");
    }
    assert_eq!(brokers.seeks(), 2, "not at every fault");
    // A fault is of no known topic. One of which messages count has none.
    let errors = || ["clicks", "other"].map(|topic| up.error(topic));
    assert_eq!(errors(), ["", "a message is damaged"]);
    brokers.set_faulty(false);
    drain(&mut consumer);
    assert_eq!(errors(), ["", "a message is damaged"]);
    up.clock.pass(5_000);
    drain(&mut consumer);
    assert_eq!((errors(), brokers.seeks()), (["", ""].map(String::from), 3));
}

/// Brokers that answer nothing, and meanwhile the server is stopped.
struct Stopping {
    stop: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
}

impl Source for Stopping {
    fn partitions(&mut self, _: &str) -> Result<Vec<TopicPartition>, SourceError> {
        self.stop.store(true, Ordering::SeqCst);
        self.asked.fetch_add(1, Ordering::SeqCst);
        Err(SourceError("no answer".into()))
    }

    fn passed(&mut self) -> Result<BTreeMap<(String, u32), u64>, SourceError> {
        Ok(BTreeMap::new())
    }

    fn kept(&mut self, _: &TopicPartition) -> Result<Range<u64>, SourceError> {
        unreachable!("there is no partition")
    }

    fn seek(&mut self, _: &[Consumed]) -> Result<(), SourceError> {
        Ok(())
    }

    fn next(&mut self, _: Duration) -> Result<Option<SourceMessage>, SourceError> {
        Ok(None)
    }
}

#[test]
fn a_stop_waits_for_one_answer_of_the_brokers_at_most() {
    let up = Up::on(SimDisk::default());
    let (stop, asked) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let source = Stopping {
        stop: Arc::clone(&stop),
        asked: Arc::clone(&asked),
    };
    let topics = ["a", "b", "c"].map(|name| topic(name, MessageFormat::Json));
    let ends = (up.runtime.handle().clone(), stop);
    Consumer::new(up.state.clone(), Box::new(source), topics.into(), ends).run();
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    assert_eq!(up.error("a"), "", "a stop is no fault");
}

#[test]
fn messages_count_once_where_the_second_copy_of_the_log_refuses_what_the_log_has() {
    let brokers = SimBrokers::default();
    brokers.make("clicks", 1);
    let (disk, there) = (SimDisk::default(), SimDisk::default());
    let copy = LogCopy::open(
        Arc::new(disk.clone()),
        Arc::new(there.clone()),
        "copy".into(),
        LogCopyAck::Both,
        START * 1_000,
    );
    let up = Up::with(disk, |store| store.with_log_copy(copy.unwrap()));
    let mut consumer = up.consumer(&brokers, clicks(), None);
    let mut counted = |n| {
        brokers.send(message(0, increment("a", n)));
        drain(&mut consumer);
        up.total("l", "a")
    };
    assert_eq!(counted(1), 1);
    there.set_free_bytes(0);
    assert_eq!(counted(10), 11, "the log has it");
    let error = up.error("clicks");
    assert!(error.contains("second copy of the log"), "{error}");
    assert_eq!(counted(100), 11);
    there.set_free_bytes(1 << 30);
    assert_eq!(counted(1_000), 1_111);
    assert_eq!(up.error("clicks"), "");
    let up = Up::on(up.crash(7));
    drain(&mut up.consumer(&brokers, clicks(), None));
    assert_eq!(up.total("l", "a"), 1_111);
}
