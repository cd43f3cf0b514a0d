//! Whether engines keep what a store relies on, in words for the person who set them up.
//!
//! A store loses counts on engines that do not: where a second put of one key is taken, two nodes overwrite each
//! other's manifests, and a topic that removes messages by time removes the only copy of the log.

use std::collections::BTreeMap;
use std::io;
use std::thread;

use serde::Serialize;
use tallyring_archive::Objects;
use tallyring_records::how_many;

use crate::settings::MESSAGE_BYTES_MAX;

/// Keys for which writers race, and writers that race for each.
const RACES: usize = 32;
const WRITERS: usize = 4;
/// Clocks that are further apart are wrong, milliseconds. Nodes judge lateness by their own.
const CLOCKS_APART_MAX_MS: u64 = 5_000;
/// Brokers that keep each message. One of them may be lost, and the two others go on.
pub(crate) const REPLICAS: usize = 3;
const IN_SYNC: usize = 2;

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How it stands.
    pub standing: Standing,
    /// A sentence. Where something is wrong, it says what to change.
    pub text: String,
}

/// How a thing stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It is as it should be.
    Ok,
    /// Nothing is lost by it now. A failure of one machine may cost more than it must.
    Risk,
    /// Counts can be lost. No node should start.
    Wrong,
}

impl Finding {
    fn new(standing: Standing, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { standing, text }
    }

    fn ok(text: impl Into<String>) -> Self {
        Self::new(Standing::Ok, text)
    }

    fn wrong(text: impl Into<String>) -> Self {
        Self::new(Standing::Wrong, text)
    }
}

/// A topic as its brokers describe it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicFacts {
    /// Its partitions.
    pub partitions: usize,
    /// Brokers that keep a partition, the fewest.
    pub replicas: usize,
    /// How many of these brokers have all messages now, the fewest.
    pub in_sync: usize,
    /// Its settings by name, as Kafka writes them.
    pub settings: BTreeMap<String, String>,
}

/// Looks at a bucket, by objects below `probe/` that it makes and removes. `now_ms` is this machine's clock, Unix
/// milliseconds. An object that stays after a failure harms nobody.
pub fn check_bucket(objects: &dyn Objects, probe: &str, now_ms: fn() -> i64) -> Vec<Finding> {
    let mut keys: Vec<String> = (0..RACES)
        .map(|race| format!("probe/{probe}-{race:02}"))
        .collect();
    let found = look(objects, &keys, now_ms);
    keys.retain(|key| objects.remove(key).is_err());
    match (found, keys.first()) {
        (Ok(mut found), Some(key)) => {
            found.push(Finding::new(
                Standing::Risk,
                format!("`{key}` could not be removed again; allow `s3:DeleteObject`, or old files stay for ever"),
            ));
            found
        }
        (Ok(found), None) => found,
        (Err(error), _) => vec![Finding::wrong(format!(
            "the bucket cannot be used: {error}; look at its name, at `AWS_ENDPOINT_URL`, `AWS_REGION` and the \
             credentials, and whether they allow get, put, list and delete"
        ))],
    }
}

fn look(objects: &dyn Objects, keys: &[String], now_ms: fn() -> i64) -> io::Result<Vec<Finding>> {
    let [first, ..] = keys else {
        return Ok(Vec::new());
    };
    let before_ms = now_ms();
    let mut winners = Vec::new();
    for key in keys {
        winners.push(race(objects, key)?);
    }
    let after_ms = now_ms();
    let mut found = vec![
        given_once(&winners),
        read_back(objects, first)?,
        listed(objects, keys)?,
    ];
    let modified_ms = objects.info(first)?.modified_ms;
    found.push(clocks(modified_ms, before_ms, after_ms));
    Ok(found)
}

/// How many of several writers were told that a key is theirs.
fn race(objects: &dyn Objects, key: &str) -> io::Result<usize> {
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| scope.spawn(move || objects.put_if_absent(key, &content(key, writer))))
            .collect();
        let mut winners = 0;
        for writer in writers {
            let put = writer
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            winners += usize::from(put?);
        }
        Ok(winners)
    })
}

fn content(key: &str, writer: usize) -> Vec<u8> {
    format!("{key} of writer {writer}").into_bytes()
}

fn given_once(winners: &[usize]) -> Finding {
    let races = winners.len();
    let most = winners.iter().max().copied().unwrap_or_default();
    match (most, winners.contains(&0)) {
        (1, false) => Finding::ok(format!(
            "a key is given once: {races} races of {WRITERS} writers had one winner each"
        )),
        (0 | 1, _) => Finding::wrong(
            "a key that nobody had was given to none of its writers: the server refuses `If-None-Match` for other \
             reasons than that the key is taken; use another server",
        ),
        _ => Finding::wrong(format!(
            "{most} of {WRITERS} writers were given one key: the server does not honour `If-None-Match: *`, so two nodes \
             would overwrite each other's manifests; use a server that does, such as S3 itself"
        )),
    }
}

fn read_back(objects: &dyn Objects, key: &str) -> io::Result<Finding> {
    let mut read = Vec::new();
    objects.get(key, &mut |part| read.extend_from_slice(part))?;
    Ok(
        match (0..WRITERS).any(|writer| content(key, writer) == read) {
            true => Finding::ok("an object is read as it was put"),
            false => Finding::wrong("an object is not read as it was put; use another server"),
        },
    )
}

fn listed(objects: &dyn Objects, keys: &[String]) -> io::Result<Finding> {
    let mut missing = keys.len();
    let mut after = String::new();
    loop {
        let part = objects.list("probe", &after)?;
        missing -= part.iter().filter(|(key, _)| keys.contains(key)).count();
        match part.into_iter().next_back() {
            Some((last, _)) if missing > 0 => after = last,
            _ => break,
        }
    }
    Ok(match missing {
        0 => Finding::ok("a list has every object that was put before it"),
        missing => Finding::wrong(format!(
            "a list lacks {missing} of {} objects that were put before it; use a server whose lists are consistent",
            keys.len()
        )),
    })
}

fn clocks(modified_ms: i64, before_ms: i64, after_ms: i64) -> Finding {
    let apart = if modified_ms < before_ms {
        before_ms.abs_diff(modified_ms)
    } else {
        modified_ms.saturating_sub(after_ms).max(0).unsigned_abs()
    };
    // The server may tell whole seconds.
    match apart.saturating_sub(1_000) {
        apart if apart <= CLOCKS_APART_MAX_MS => {
            Finding::ok("the clock of the bucket and that of this machine agree")
        }
        _ => Finding::wrong(format!(
            "the clock of the bucket and that of this machine are {} seconds apart, and may be {}: let NTP set this \
             machine's",
            apart / 1_000,
            CLOCKS_APART_MAX_MS / 1_000
        )),
    }
}

/// Judges what its brokers say of a topic of progress, whose newest messages alone say how far another topic was told.
pub fn check_progress(topic: &str, facts: &TopicFacts) -> Finding {
    let why = "time would remove the only word of how far its topic was told";
    wanted(topic, facts, ("cleanup.policy", "compact"), why)
}

/// Judges what its brokers say of the topic of the logs of a store that has so many strands. `brokers` is how many of
/// them there are.
pub fn check_topic(
    topic: &str,
    (strands, brokers): (usize, usize),
    facts: &TopicFacts,
) -> Vec<Finding> {
    let wanted = |name, right, why| wanted(topic, facts, (name, right), why);
    let by_time = "the brokers would remove the only copy of the log, and the store removes what is no longer needed";
    let mut found = vec![
        partitions(topic, facts.partitions, strands),
        wanted("cleanup.policy", "delete", "compaction removes messages"),
        wanted("retention.ms", "-1", by_time),
        wanted("retention.bytes", "-1", by_time),
        wanted(
            "unclean.leader.election.enable",
            "false",
            "a broker that lacks acknowledged messages could become the leader",
        ),
        message_bytes(facts),
    ];
    found.extend(replicas(topic, brokers, facts));
    found.push(fsync(facts));
    found
}

/// Judges the addresses of nodes, by their names.
pub fn check_addresses(addresses: &BTreeMap<String, String>) -> Option<Finding> {
    let is_secure = |(_, address): &(&String, &String)| address.starts_with("https://");
    let (secure, plain): (Vec<_>, Vec<_>) = addresses.iter().partition(is_secure);
    let names = |of: &[(&String, &String)]| {
        let names = of.iter().map(|(name, _)| name.escape_debug().to_string());
        names.collect::<Vec<_>>().join(", ")
    };
    match (secure.is_empty(), plain.is_empty()) {
        (true, true) => None,
        (false, true) => Some(Finding::ok("the nodes ask each other over TLS")),
        (true, false) => Some(Finding::ok("the nodes ask each other without TLS")),
        (false, false) => Some(Finding::new(
            Standing::Risk,
            format!(
                "the addresses of nodes mix https ({}) and http ({}): what is handed over to the latter is not encrypted, \
                 nor are the API keys that go with it; set [tls] and an `address` with https:// on all, or on none",
                names(&secure),
                names(&plain)
            ),
        )),
    }
}

fn wanted(topic: &str, facts: &TopicFacts, (name, right): (&str, &str), why: &str) -> Finding {
    let told = facts.settings.get(name).map_or("", String::as_str);
    match told == right {
        true => Finding::ok(format!("`{name}` of the topic is {right}")),
        false => Finding::wrong(format!(
            "`{name}` of the topic `{topic}` is `{}`: {why}; set it to {right}",
            told.escape_debug()
        )),
    }
}

fn partitions(topic: &str, partitions: usize, strands: usize) -> Finding {
    match unfit_partitions(topic, partitions, strands) {
        Some(unfit) => Finding::wrong(unfit),
        None if strands == 1 => Finding::ok("the topic has one partition"),
        None => Finding::ok(format!(
            "the topic has {partitions} partitions, one for each strand"
        )),
    }
}

/// Why a topic does not fit a store of so many strands, and what to do; none where it fits.
pub(crate) fn unfit_partitions(topic: &str, partitions: usize, strands: usize) -> Option<String> {
    let (has, wanted) = (
        how_many(partitions as u64, "partition"),
        how_many(strands as u64, "strand"),
    );
    (partitions != strands).then(|| {
        format!(
            "the topic `{topic}` has {has}, and a store with {wanted} needs {strands}; name the topic of this store, \
             or for a new store an absent one, which `tallyring cluster init` makes"
        )
    })
}

fn number<T: std::str::FromStr>(facts: &TopicFacts, name: &str) -> Option<T> {
    facts.settings.get(name)?.parse().ok()
}

fn message_bytes(facts: &TopicFacts) -> Finding {
    let bytes = number::<usize>(facts, "max.message.bytes").unwrap_or_default();
    match bytes >= MESSAGE_BYTES_MAX {
        true => Finding::ok("the topic takes messages of any size that a log has"),
        false => Finding::new(
            Standing::Risk,
            format!(
                "`max.message.bytes` of the topic is {bytes}: batches that need more are refused; set it to \
                 {MESSAGE_BYTES_MAX}"
            ),
        ),
    }
}

fn replicas(topic: &str, brokers: usize, facts: &TopicFacts) -> Vec<Finding> {
    let (replicas, in_sync) = (facts.replicas, facts.in_sync);
    let least = number::<usize>(facts, "min.insync.replicas").unwrap_or_default();
    let mut found = vec![match replicas >= REPLICAS {
        true => Finding::ok(format!("{replicas} of {brokers} brokers keep the topic")),
        false => Finding::new(
            Standing::Risk,
            format!(
                "{replicas} of {brokers} brokers keep the topic `{topic}`: what is acknowledged may be lost with one \
                 machine; use {REPLICAS} brokers and as many replicas"
            ),
        ),
    }];
    found.push(match least {
        least if least >= IN_SYNC && least < replicas => Finding::ok(format!(
            "a message is acknowledged when {least} of {replicas} replicas have it"
        )),
        least if replicas < REPLICAS && least >= 1 && least <= replicas => Finding::new(
            Standing::Risk,
            format!("a message is acknowledged when {least} of {replicas} replicas have it"),
        ),
        least if least >= replicas => Finding::new(
            Standing::Risk,
            format!(
                "`min.insync.replicas` of the topic is {least} of {replicas}: writes stop when one broker does; set it \
                 to {IN_SYNC}"
            ),
        ),
        least => Finding::wrong(format!(
            "`min.insync.replicas` of the topic `{topic}` is {least} of {replicas}: a message that one broker alone has \
             is acknowledged; set it to {IN_SYNC}"
        )),
    });
    if in_sync < replicas {
        found.push(Finding::new(
            Standing::Risk,
            format!(
                "{in_sync} of {replicas} replicas have all messages now: a broker is down or behind"
            ),
        ));
    }
    found
}

fn fsync(facts: &TopicFacts) -> Finding {
    match number::<u64>(facts, "flush.messages") {
        Some(1) => Finding::ok("an acknowledged message is on the disks of its replicas"),
        _ => Finding::new(
            Standing::Risk,
            "an acknowledged message is in the memory of its replicas: it survives any one machine, and not a loss of \
             power of all at once; `flush.messages` = 1 on the topic closes that for about a millisecond a commit",
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::sync::Mutex;

    use tallyring_archive::{Content, ObjectInfo};

    use super::*;

    const NOW_MS: i64 = 1_700_000_000_000;

    /// A bucket in memory. It may be at fault in one way.
    #[derive(Debug, Default)]
    struct Bucket {
        objects: Mutex<BTreeMap<String, Vec<u8>>>,
        overwrites: bool,
        refuses: bool,
        lists_late: bool,
        keeps: bool,
        ahead_ms: i64,
    }

    impl Objects for Bucket {
        fn put_if_absent(&self, key: &str, bytes: &[u8]) -> io::Result<bool> {
            if self.refuses {
                return Err(ErrorKind::PermissionDenied.into());
            }
            let mut objects = self.objects.lock().unwrap();
            let is_given = self.overwrites || !objects.contains_key(key);
            if is_given {
                objects.insert(key.into(), bytes.into());
            }
            Ok(is_given)
        }

        fn put(&self, _: &str, _: &Content) -> io::Result<()> {
            Err(ErrorKind::Unsupported.into())
        }

        fn get(&self, key: &str, part: &mut dyn FnMut(&[u8])) -> io::Result<()> {
            let objects = self.objects.lock().unwrap();
            part(objects.get(key).ok_or(ErrorKind::NotFound)?);
            Ok(())
        }

        fn get_part(&self, _: &str, _: u64, _: usize) -> io::Result<Vec<u8>> {
            Err(ErrorKind::Unsupported.into())
        }

        fn info(&self, _: &str) -> io::Result<ObjectInfo> {
            Ok(ObjectInfo {
                bytes: 1,
                modified_ms: NOW_MS + self.ahead_ms,
            })
        }

        fn list(&self, _: &str, after: &str) -> io::Result<Vec<(String, ObjectInfo)>> {
            let objects = self.objects.lock().unwrap();
            let skipped = usize::from(self.lists_late);
            let keys = objects.keys().skip(skipped);
            let rest = keys.filter(|key| key.as_str() > after).take(10);
            rest.map(|key| Ok((key.clone(), self.info(key)?))).collect()
        }

        fn remove(&self, key: &str) -> io::Result<()> {
            if self.keeps {
                return Err(ErrorKind::PermissionDenied.into());
            }
            self.objects.lock().unwrap().remove(key);
            Ok(())
        }
    }

    fn check(bucket: &Bucket) -> Vec<Finding> {
        check_bucket(bucket, "node-a", || NOW_MS)
    }

    /// The findings that are not as they should be.
    fn faults(found: Vec<Finding>) -> Vec<(Standing, String)> {
        let faults = found.into_iter();
        faults
            .filter(|finding| finding.standing != Standing::Ok)
            .map(|finding| (finding.standing, finding.text))
            .collect()
    }

    #[track_caller]
    fn one_fault(found: Vec<Finding>, standing: Standing, text: &str) {
        let faults = faults(found);
        let [(found, said)] = &faults[..] else {
            panic!("{faults:?}");
        };
        assert_eq!(*found, standing, "{said}");
        assert!(said.contains(text), "{said}");
    }

    #[test]
    fn a_bucket_that_gives_a_key_once_is_right_and_nothing_stays_in_it() {
        let bucket = Bucket::default();
        let found = check(&bucket);
        assert_eq!(faults(found.clone()), []);
        assert_eq!(found.len(), 4);
        assert!(bucket.objects.lock().unwrap().is_empty());
    }

    #[test]
    fn what_is_wrong_with_a_bucket_is_told() {
        let bucket = |change: fn(&mut Bucket)| {
            let mut bucket = Bucket::default();
            change(&mut bucket);
            check(&bucket)
        };
        let wrong = Standing::Wrong;
        let found = bucket(|bucket| bucket.overwrites = true);
        one_fault(found, wrong, "4 of 4 writers were given one key");
        let found = bucket(|bucket| bucket.refuses = true);
        one_fault(found, wrong, "the bucket cannot be used: permission denied");
        let found = bucket(|bucket| bucket.lists_late = true);
        one_fault(found, wrong, "a list lacks 1 of 32 objects");
        let found = bucket(|bucket| bucket.keeps = true);
        one_fault(found, Standing::Risk, "allow `s3:DeleteObject`");
        for ahead_ms in [-7_000, 7_000] {
            let found = |ahead_ms| {
                check(&Bucket {
                    ahead_ms,
                    ..Bucket::default()
                })
            };
            one_fault(found(ahead_ms), wrong, "7 seconds apart, and may be 5");
            assert_eq!(faults(found(ahead_ms / 2)), []);
        }
    }

    fn topic(change: impl FnOnce(&mut TopicFacts)) -> Vec<Finding> {
        let settings = [
            ("cleanup.policy", "delete"),
            ("retention.ms", "-1"),
            ("retention.bytes", "-1"),
            ("unclean.leader.election.enable", "false"),
            ("min.insync.replicas", "2"),
            ("max.message.bytes", "17825792"),
            ("flush.messages", "1"),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut facts = TopicFacts {
            partitions: 1,
            replicas: 3,
            in_sync: 3,
            settings: settings.into(),
        };
        change(&mut facts);
        check_topic("tallyring.x.log", (1, 3), &facts)
    }

    #[test]
    fn a_topic_has_a_partition_for_each_strand() {
        let fits = partitions("t", 6, 6);
        assert_eq!(fits.standing, Standing::Ok);
        assert!(fits.text.contains("has 6 partitions"), "{}", fits.text);
        for partitions in [1, 5, 7] {
            let unfit = unfit_partitions("t", partitions, 6).unwrap();
            assert!(unfit.contains("a store with 6 strands needs 6;"), "{unfit}");
        }
    }

    #[test]
    fn progress_is_kept_by_compaction_alone() {
        let facts = |policy: &str| TopicFacts {
            partitions: 1,
            replicas: 1,
            in_sync: 1,
            settings: [("cleanup.policy".to_owned(), policy.to_owned())].into(),
        };
        let standing = |policy| check_progress("counts.progress", &facts(policy)).standing;
        assert_eq!(standing("compact"), Standing::Ok);
        for policy in ["", "delete", "compact,delete", "delete,compact"] {
            assert_eq!(standing(policy), Standing::Wrong, "{policy}");
        }
        let said = check_progress("counts.progress", &facts("delete")).text;
        let begins = "`cleanup.policy` of the topic `counts.progress` is `delete`: ";
        assert!(
            said.starts_with(begins) && said.ends_with("set it to compact"),
            "{said}"
        );
    }

    #[test]
    fn a_topic_that_loses_nothing_is_right() {
        assert_eq!(faults(topic(|_| {})), []);
    }

    #[test]
    fn nodes_that_are_asked_in_two_ways_are_named() {
        let judged = |addresses: &[(&str, &str)]| {
            let owned = |(node, address): &(&str, &str)| (node.to_string(), address.to_string());
            check_addresses(&addresses.iter().map(owned).collect())
        };
        let (a, b, c) = (
            ("a", "http://a:1"),
            ("b", "https://b:1"),
            ("c", "http://c:1"),
        );
        assert_eq!(judged(&[]), None);
        for alike in [&[a, c][..], &[b][..]] {
            assert_eq!(judged(alike).unwrap().standing, Standing::Ok);
        }
        let mixed = judged(&[a, b, c]).unwrap();
        assert_eq!(mixed.standing, Standing::Risk);
        assert!(
            mixed.text.contains("mix https (b) and http (a, c)"),
            "{}",
            mixed.text
        );
    }

    #[test]
    fn what_is_wrong_with_a_topic_is_told() {
        let set = |name: &'static str, value: &'static str| {
            topic(|facts| drop(facts.settings.insert(name.into(), value.into())))
        };
        let (wrong, risk) = (Standing::Wrong, Standing::Risk);
        for (name, value, standing, text) in [
            ("cleanup.policy", "compact", wrong, "set it to delete"),
            (
                "retention.ms",
                "604800000",
                wrong,
                "is `604800000`: the brokers would remove",
            ),
            ("retention.bytes", "1", wrong, "set it to -1"),
            (
                "unclean.leader.election.enable",
                "true",
                wrong,
                "set it to false",
            ),
            ("min.insync.replicas", "1", wrong, "one broker alone"),
            (
                "min.insync.replicas",
                "3",
                risk,
                "writes stop when one broker does",
            ),
            ("max.message.bytes", "1048588", risk, "set it to 17825792"),
            (
                "flush.messages",
                "9223372036854775807",
                risk,
                "a loss of power",
            ),
        ] {
            one_fault(set(name, value), standing, text);
        }
        one_fault(
            topic(|facts| facts.partitions = 6),
            wrong,
            "has 6 partitions, and a store with 1 strand needs 1;",
        );
        one_fault(
            topic(|facts| facts.in_sync = 2),
            risk,
            "2 of 3 replicas have all",
        );
        let alone = faults(topic(|facts| {
            facts.replicas = 1;
            facts.in_sync = 1;
            facts
                .settings
                .insert("min.insync.replicas".into(), "1".into());
        }));
        let standings: Vec<_> = alone.iter().map(|(standing, _)| *standing).collect();
        assert_eq!(
            standings,
            [risk, risk],
            "one machine is a choice: {alone:?}"
        );
    }
}
