//! Verdicts of rules with memory, exact: each gets the events of one key in the order of time, and of the log where
//! times are equal. Events of the days beside, as far as a rule looks, are judged with them and not counted.

use std::collections::VecDeque;
use std::ops::Range;

use rayon::prelude::*;
use tallyring_archive::Blobs;
use tallyring_records::{Day, LongKeys, Memory, MemoryRule, NameUser, Role, Rules, UserKey};

use super::ids::IdVerdicts;
use super::log::{Part, Sent};
use super::marks::Marks;
use super::rows::{Merge, Row, Rows};
use crate::error::Result;

/// Tells the bits of keys of rules from others.
const KEY_DOMAIN: u8 = 17;
/// The bits of a row beside the sequence number: the rule among those with memory, and the role.
const RULE_BITS: u32 = 8;
/// Makes times sort as numbers without a sign.
const SIGN: u64 = 1 << 63;

/// Collects what rules with memory look at.
pub(super) struct EventsOfDay<'b> {
    keys: &'b LongKeys,
    rules: &'b Rules,
    day: Day,
    rows: Rows<'b>,
}

impl<'b> EventsOfDay<'b> {
    /// Holds `bytes_max` bytes in memory; files of `incoming/` begin with `load`.
    pub(super) fn new(
        blobs: &'b Blobs,
        (keys, rules): (&'b LongKeys, &'b Rules),
        (load, day): (&str, Day),
        bytes_max: u64,
    ) -> Self {
        Self {
            keys,
            rules,
            day,
            rows: Rows::new(blobs, load, "events", bytes_max),
        }
    }

    /// Takes the events whose ids let them count. The parts come in the order of the log. Fails when the disk does.
    pub(super) fn take(&mut self, part: &Part, ids: &mut IdVerdicts) -> Result<()> {
        let (keys, rules, day) = (self.keys, self.rules, self.day);
        let sent = part.sent.iter();
        let unique: Vec<&Sent> = sent
            .filter(|sent| ids.of(sent.sequence).is_none())
            .collect();
        let rows = unique.into_par_iter();
        self.rows
            .add(rows.flat_map_iter(|sent| rows_of(keys, rules, day, sent)))
    }

    /// The events of the day that a rule catches. Fails when the disk does.
    pub(super) fn caught(self) -> Result<Caught> {
        let day = self.day;
        let rules: Vec<&MemoryRule> = self.rules.memory_rules().collect();
        let mut found = Caught::default();
        let mut events = Merge::new(self.rows.into_sources()?)?;
        let mut of_key: Option<((u64, u64), OfKey<'_>)> = None;
        while let Some([high, low, at, last]) = events.next()? {
            let key = (high, low);
            if of_key.as_ref().map(|(of, _)| *of) != Some(key) {
                let rule = rules[(last >> 1) as usize & ((1 << (RULE_BITS - 1)) - 1)];
                of_key = Some((key, OfKey::new(rule)));
            }
            if let Some((_, of_key)) = &mut of_key {
                let role = if last & 1 == 1 {
                    Role::Judged
                } else {
                    Role::Needed
                };
                let at = (at ^ SIGN) as i64;
                of_key.next(
                    at,
                    last >> RULE_BITS,
                    role,
                    &mut |at, sequence, index| match Day::of(at) == day {
                        true => found.push(sequence, index),
                        false => Ok(()),
                    },
                )?;
            }
        }
        found.0.sort();
        Ok(found)
    }
}

/// Times of the events by which a rule judges a day (Unix seconds). Whether an event repeats a kept one depends on what
/// was kept before it, so a rule of repeats begins a day earlier: a chain that is not broken for so long is rare.
pub(super) fn times_of(rule: &MemoryRule, day: Day) -> Range<i64> {
    const CHAIN_SECONDS: i64 = 86_400;
    let reach = i64::from(rule.reach_seconds());
    let chain = if rule.depends_on_kept() {
        CHAIN_SECONDS
    } else {
        0
    };
    let after = if rule.takes_all() { reach } else { 0 };
    day.start() - reach - chain..day.next().start() + after
}

fn rows_of(keys: &LongKeys, rules: &Rules, day: Day, sent: &Sent) -> Vec<Row> {
    let numbered = (0_u64..).zip(rules.memory_rules());
    let row = |(number, rule): (u64, &MemoryRule)| -> Option<Row> {
        let role = rule.role(&sent.increment)?;
        if !times_of(rule, day).contains(&sent.increment.at) {
            return None;
        }
        // Some segments of the log may have names, and others pseudonyms.
        let name: NameUser<'_> = &|user| UserKey::of(keys, user).to_string().into();
        let mut key = rule.key_of_users(&sent.increment, name)?;
        // Each rule has keys of its own.
        key.push(number as u8);
        let bits = keys.identity(KEY_DOMAIN, &key);
        let last = sent.sequence << RULE_BITS | number << 1 | u64::from(role == Role::Judged);
        let at = sent.increment.at as u64 ^ SIGN;
        Some([(bits >> 64) as u64, bits as u64, at, last])
    };
    numbered.filter_map(row).collect()
}

/// The events of one key.
struct OfKey<'r> {
    rule: &'r MemoryRule,
    memory: Memory,
    /// Judged events that a later one may take with it: time and record.
    before: VecDeque<(i64, u64)>,
}

impl<'r> OfKey<'r> {
    fn new(rule: &'r MemoryRule) -> Self {
        Self {
            rule,
            memory: rule.begin(),
            before: VecDeque::new(),
        }
    }

    /// Takes the next event, and passes on every one that is caught now.
    fn next(
        &mut self,
        at: i64,
        sequence: u64,
        role: Role,
        caught: &mut dyn FnMut(i64, u64, usize) -> Result<()>,
    ) -> Result<()> {
        let is_caught = self.memory.next(at, role);
        let index = self.rule.index();
        if is_caught {
            caught(at, sequence, index)?;
        }
        if self.rule.takes_all() {
            let reach = i64::from(self.rule.reach_seconds());
            while self.before.front().is_some_and(|(of, _)| *of <= at - reach) {
                self.before.pop_front();
            }
            if is_caught {
                let taken = self.before.drain(..);
                taken
                    .into_iter()
                    .try_for_each(|(at, sequence)| caught(at, sequence, index))?;
            }
            self.before.push_back((at, sequence));
        }
        Ok(())
    }
}

/// Records that a rule with memory catches.
#[derive(Debug, Default)]
pub(super) struct Caught(Marks);

impl Caught {
    fn push(&mut self, sequence: u64, index: usize) -> Result<()> {
        let index = u8::try_from(index).expect("BUG: a schema has few rules");
        let what = "events that rules with memory catch";
        self.0.push(sequence, index, what)
    }

    /// The index of the first rule that catches a record. The records are asked for in ascending order.
    pub(super) fn by(&mut self, sequence: u64) -> Option<usize> {
        self.0.of(sequence).map(usize::from)
    }
}

const _: () = assert!(tallyring_records::FILTERS_MAX <= 1 << (RULE_BITS - 1));
