//! Any interleaving of several writers that believe to own the log, against a naive judge.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::chain::{A, Sent, frame};
use super::*;
use crate::oplog::{Ahead, Chain, Owner, Verdict};

#[derive(Debug, Clone)]
enum Step {
    /// The writer reads to the end, and sends the seal of the next epoch.
    TakeOver(usize),
    Write(usize),
    Roll(usize),
    /// The oldest message on the way comes to the topic, or a later one of the writer's overtakes it.
    Deliver {
        writer: usize,
        at: usize,
        again: bool,
    },
    Drop {
        writer: usize,
        at: usize,
    },
}

fn any_step() -> impl Strategy<Value = Step> {
    let writer = 0..4_usize;
    let at = prop_oneof![8 => Just(0_usize), 1 => 0..3_usize];
    prop_oneof![
        2 => writer.clone().prop_map(Step::TakeOver),
        6 => writer.clone().prop_map(Step::Write),
        1 => writer.clone().prop_map(Step::Roll),
        8 => (writer.clone(), at.clone(), prop::bool::weighted(0.1))
            .prop_map(|(writer, at, again)| Step::Deliver { writer, at, again }),
        1 => (writer, at).prop_map(|(writer, at)| Step::Drop { writer, at }),
    ]
}

/// A message as the naive judge sees it: it names the one that its sender took for the last that counts.
#[derive(Debug, Clone)]
struct Wish {
    number: usize,
    behind: usize,
    owner: Owner,
    takes_over: bool,
    is_frame: bool,
    bytes: Vec<u8>,
}

/// A writer that believes to own the log.
struct Writer {
    ahead: Ahead,
    /// The last message that it sent.
    last: usize,
    on_the_way: VecDeque<Wish>,
    /// The messages that it judged, and the numbers of its own that it waits for.
    judged: Chain,
    waits_for: VecDeque<usize>,
    acknowledged: Vec<usize>,
}

struct Race {
    sent: Sent,
    wishes: Vec<Wish>,
    writers: Vec<Writer>,
    next: usize,
}

impl Race {
    fn new() -> Self {
        let (sent, chain) = Sent::begun(A);
        let first = Wish {
            number: 0,
            behind: usize::MAX,
            owner: A,
            takes_over: false,
            is_frame: false,
            bytes: sent.0[0].bytes.clone(),
        };
        // The others believe what the first one does, in its very name: none of them took over.
        let writer = || Writer {
            ahead: chain.ahead(),
            last: 0,
            on_the_way: VecDeque::new(),
            judged: chain.clone(),
            waits_for: VecDeque::new(),
            acknowledged: Vec::new(),
        };
        let mut race = Self {
            writers: (0..4).map(|_| writer()).collect(),
            sent,
            wishes: vec![first],
            next: 1,
        };
        (1..4).for_each(|writer| race.take_over(writer));
        race
    }

    fn wish(&mut self, writer: usize, takes_over: bool, is_frame: bool, bytes: Vec<u8>) {
        let number = self.next;
        self.next += 1;
        let writer = &mut self.writers[writer];
        writer.on_the_way.push_back(Wish {
            number,
            behind: std::mem::replace(&mut writer.last, number),
            owner: writer.ahead.owner(),
            takes_over,
            is_frame,
            bytes,
        });
        writer.waits_for.push_back(number);
    }

    fn take_over(&mut self, writer: usize) {
        let counts = self.counts();
        let end = self.sent.read();
        let owner = Owner(0x1000 + self.next as u128);
        let one = &mut self.writers[writer];
        (one.last, one.ahead, one.judged) = (*counts.last().unwrap(), end.ahead(), end);
        one.waits_for.clear();
        let seal = one.ahead.take_over(owner, NOW_MS, true);
        self.wish(writer, true, false, seal);
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::TakeOver(writer) => self.take_over(writer),
            Step::Write(writer) => {
                let bytes = frame(&mut self.writers[writer].ahead, b"the payload of all");
                self.wish(writer, false, true, bytes);
            }
            Step::Roll(writer) => {
                let ahead = &mut self.writers[writer].ahead;
                if ahead.has_record() {
                    let bytes = ahead.header(NOW_MS).to_vec();
                    self.wish(writer, false, false, bytes);
                }
            }
            Step::Deliver { writer, at, again } => {
                let way = &mut self.writers[writer].on_the_way;
                let found = match again {
                    true => way.get(at).cloned(),
                    false => way.remove(at),
                };
                if let Some(wish) = found {
                    self.deliver(writer, wish);
                }
            }
            Step::Drop { writer, at } => {
                self.writers[writer].on_the_way.remove(at);
            }
        }
    }

    /// Appends a message to the topic, and tells its writer the offset.
    fn deliver(&mut self, writer: usize, wish: Wish) {
        let offset = self.sent.send(wish.owner, &wish.bytes).offset;
        let number = wish.number;
        self.wishes.push(wish);
        let writer = &mut self.writers[writer];
        // The gap check: everything up to the own message is judged before that is acknowledged.
        for message in &self.sent.0[writer.judged.next() as usize..] {
            let counts = !matches!(writer.judged.judge(message), Verdict::Void(_));
            if counts && message.offset == offset && writer.waits_for.front() == Some(&number) {
                writer.waits_for.pop_front();
                writer.acknowledged.push(number);
            }
        }
    }

    /// The naive judge: numbers of the messages that count.
    fn counts(&self) -> Vec<usize> {
        let mut counts = vec![0];
        let mut owner = A;
        for wish in &self.wishes[1..] {
            if wish.behind == *counts.last().unwrap() && (wish.owner == owner || wish.takes_over) {
                owner = wish.owner;
                counts.push(wish.number);
            }
        }
        counts
    }

    fn check(&self) {
        let counts = self.counts();
        let mut naive = counts.iter().copied().peekable();
        let is_next = |wish: &Wish| naive.next_if_eq(&wish.number).is_some();
        let expected: Vec<bool> = self.wishes.iter().map(is_next).collect();
        let mut records = 0;
        for (from, begin) in self.sent.0.iter().enumerate() {
            if !expected[from] || !begin.bytes.starts_with(b"TLRLOG01") {
                continue;
            }
            let mut chain = Chain::begin(begin, OPTIONS.store_id).unwrap();
            for (message, wanted) in self.sent.0.iter().zip(&expected).skip(from + 1) {
                let verdict = chain.judge(message);
                assert_eq!(!matches!(verdict, Verdict::Void(_)), *wanted, "{verdict:?}");
            }
            assert_eq!(chain.next(), self.sent.0.len() as u64);
            records = chain.end().sequence;
        }
        let frames = self.wishes.iter().zip(&expected);
        let frames = frames.filter(|(wish, counts)| **counts && wish.is_frame);
        assert_eq!(records, frames.count() as u64);
        let mut acknowledged: Vec<usize> = Vec::new();
        for writer in &self.writers {
            acknowledged.extend(&writer.acknowledged);
        }
        let all = acknowledged.len();
        acknowledged.sort_unstable();
        acknowledged.dedup();
        assert_eq!(acknowledged.len(), all, "acknowledged twice");
        assert!(acknowledged.iter().all(|number| counts.contains(number)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn prop_all_readers_judge_alike_and_what_a_writer_acknowledges_counts_once(
        steps in prop::collection::vec(any_step(), 1..120),
    ) {
        let mut race = Race::new();
        for step in steps {
            race.step(step);
            race.check();
        }
    }
}
