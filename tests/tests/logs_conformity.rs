//! Logs in a local directory that loses power, and in a topic that loses messages.
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use std::io::ErrorKind;
use std::sync::Arc;

use tallyring_realtime::oplog::{
    FileLog, Log, LogOptions, Owner, ReadFrom, Tail, TopicLog, begin_log,
};
use tallyring_tests::conformity::logs::{Bench, OPTIONS, check};
use tallyring_tests::sim_disk::SimDisk;
use tallyring_tests::sim_topic::{SimTopic, Way};

#[test]
fn a_log_in_a_directory_holds_the_laws() {
    check(&|| Bench {
        disk: SimDisk::default(),
        open: Box::new(|disk: &SimDisk, options: LogOptions, now_ms| {
            let from = ReadFrom::Oldest;
            let disk = Arc::new(disk.clone());
            let (log, _) = FileLog::open(disk, options, now_ms, from, &mut |_| Ok(()))?;
            Ok(Box::new(log) as Box<dyn Log>)
        }),
        lose_next: Box::new(|disk: &SimDisk| disk.fail_nth_call(1, ErrorKind::Other)),
    });
}

#[test]
fn a_log_in_a_topic_holds_the_laws() {
    check(&|| {
        let topic = SimTopic::default();
        begin_log(&topic, OPTIONS.store_id, Owner(0), 0).unwrap();
        let (log, mut owners) = (topic.clone(), 0);
        Bench {
            disk: SimDisk::default(),
            open: Box::new(move |disk: &SimDisk, options: LogOptions, now_ms| {
                owners += 1;
                let tail = Tail::open(Arc::new(disk.clone()), Arc::new(log.clone()), options)?;
                let taken = TopicLog::take_over(tail, Owner(owners), now_ms, &mut |_| Ok(()));
                match taken {
                    Ok(log) => Ok(Box::new(log) as Box<dyn Log>),
                    Err(not) => Err(not.error),
                }
            }),
            lose_next: Box::new(move |_| topic.ways([Way::Lost])),
        }
    });
}
