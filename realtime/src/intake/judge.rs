//! The rules by which a group commit judges events, and what came of them since the start.
//!
//! Rules with memory are judged in the order of the log, with memory of a fixed size, so a verdict on them is a good
//! guess: a recount of the day judges in the order of time, with all of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;
use serde::Serialize;
use tallyring_records::{
    Increment, Judged, ListKind, LongKeys, Memory, MemoryRule, Record, Role, Rules, Schema,
};

/// The rules in force. The lock of the writer protects them.
#[derive(Default)]
pub(super) struct Judge {
    rules: Arc<Rules>,
    /// One for each rule with memory.
    tables: Vec<Table>,
    tally: Tally,
    /// Why a newer content of a list is not in force, or why the list has none, by its name.
    failures: BTreeMap<String, String>,
    /// When the content of a list came in force that is not the one of the start, Unix seconds.
    changed: BTreeMap<String, i64>,
}

/// The outcome of the rules since the start.
#[derive(Default)]
struct Tally {
    events: u64,
    undecided: u64,
    filtered: BTreeMap<String, u64>,
}

/// State of the rules.
#[derive(Debug, Clone, Default, Serialize)]
pub struct RulesStatus {
    /// Events that were judged since the start: all that are no duplicates, while there are rules.
    pub events: u64,
    /// Events of these that no rule caught, and that some rule could not judge.
    pub undecided: u64,
    /// Events of these that each rule caught, by its name.
    pub filtered: BTreeMap<String, u64>,
    /// The declared lists.
    pub lists: Vec<ListStatus>,
}

/// State of a list.
#[derive(Debug, Clone, Serialize)]
pub struct ListStatus {
    /// The name of the list.
    pub name: String,
    /// The thing that a line holds.
    #[serde(rename = "match")]
    pub kind: ListKind,
    /// SHA-256 of the content in force.
    pub sha256: String,
    /// Patterns or networks; none where the content cannot be used.
    pub entries: Option<usize>,
    /// Why a newer content is not in force, or why the list has none.
    pub failure: Option<String>,
    /// When the content came in force, Unix seconds; none where that was at the start or before.
    #[serde(skip)]
    pub changed_at: Option<i64>,
}

/// Memory of all rules together, bytes.
const BYTES_MAX: usize = 16 << 20;
/// Memory of a key beside what its times take.
const ENTRY_BYTES: usize = 2 * (size_of::<u128>() + size_of::<Memory>());
/// Tells the bits of keys of rules from others.
const KEY_DOMAIN: u8 = 16;

/// The memory of one rule: two generations of keys. When the newer is full, it becomes the older, whose keys are
/// forgotten; a key that is seen comes to the newer one.
struct Table {
    bytes_max: usize,
    newer: Keys,
    older: Keys,
    /// Events until then (Unix seconds) may have been forgotten.
    forgotten_until: i64,
}

#[derive(Default)]
struct Keys {
    memories: HashMap<u128, Memory>,
    bytes: usize,
    /// Time of the newest event, Unix seconds.
    newest: Option<i64>,
}

impl Judge {
    /// The rules in force.
    pub(super) fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules)
    }

    /// Puts rules in force, with the lists that cannot be used. Rules with memory know nothing of what came before
    /// `now` (Unix seconds).
    pub(super) fn begin(&mut self, rules: Rules, failures: BTreeMap<String, String>, now: i64) {
        let tables = rules.memory_rules().count();
        let bytes_max = BYTES_MAX / (2 * tables.max(1));
        self.tables = (0..tables).map(|_| Table::new(bytes_max, now)).collect();
        self.rules = Arc::new(rules);
        self.failures = failures;
    }

    /// Puts the rules of the second schema in force, instead of those of the first one. All of its lists can be used.
    /// Rules with memory go on where they are the same; the others know nothing of what came before `now` (Unix
    /// seconds).
    pub(super) fn declare(&mut self, rules: Rules, (before, after): (&Schema, &Schema), now: i64) {
        let bytes_max = BYTES_MAX / (2 * rules.memory_rules().count().max(1));
        let known = std::mem::take(&mut self.tables).into_iter();
        let mut known: Vec<_> = self.rules.memory_rules().zip(known).collect();
        let tables = rules.memory_rules().map(|rule| {
            let same = known.iter().position(|(known, _)| known.is_same(rule));
            match same.map(|index| known.swap_remove(index).1) {
                Some(table) => Table { bytes_max, ..table },
                None => Table::new(bytes_max, now),
            }
        });
        self.tables = tables.collect();
        self.rules = Arc::new(rules);
        let content = |schema: &Schema, name: &str| {
            let list = schema.lists.iter().find(|list| list.name == name);
            list.map(|list| list.sha256.clone())
        };
        let is_kept = |name: &str| {
            let content_after = content(after, name);
            content_after.is_some() && content_after == content(before, name)
        };
        // The newer content of a list that was not declared anew may wait all the same.
        self.failures.retain(|name, _| is_kept(name));
        self.changed.retain(|name, _| is_kept(name));
        let changed = after.lists.iter().filter(|list| !is_kept(&list.name));
        self.changed
            .extend(changed.map(|list| (list.name.clone(), now)));
    }

    /// Puts rules in force that differ in the content of one list, at `now` (Unix seconds).
    pub(super) fn renew(&mut self, rules: Rules, list: &str, now: i64) {
        self.rules = Arc::new(rules);
        self.failures.remove(list);
        self.changed.insert(list.to_owned(), now);
    }

    /// Notes that the content of a list is the one in force.
    pub(super) fn keep(&mut self, list: &str) {
        self.failures.remove(list);
    }

    /// Notes why the newer content of a list is not in force.
    pub(super) fn fail(&mut self, list: &str, why: String) {
        self.failures.insert(list.to_owned(), why);
    }

    /// Judges an event that is no duplicate.
    pub(super) fn judge(&mut self, keys: &LongKeys, increment: &Increment) -> Judged {
        if self.rules.is_empty() {
            return Judged::default();
        }
        let mut judged = self.rules.stateless(increment);
        for (rule, table) in self.rules.memory_rules().zip(&mut self.tables) {
            let Some(role) = rule.role(increment) else {
                continue;
            };
            let caught = rule.key(increment).and_then(|key| {
                let key = keys.identity(KEY_DOMAIN, &key);
                table.next(rule, key, increment.at, role)
            });
            match caught {
                Some(true) => {
                    let first = judged.caught.unwrap_or(usize::MAX);
                    judged.caught = Some(first.min(rule.index()));
                }
                Some(false) => {}
                None => judged.undecided |= role == Role::Judged,
            }
        }
        judged.undecided &= judged.caught.is_none();
        judged
    }

    /// Forgets what rules with memory know: some of the events were taken back, and will come again. `now` is in Unix
    /// seconds.
    pub(super) fn forget(&mut self, now: i64) {
        for table in &mut self.tables {
            *table = Table::new(table.bytes_max, now);
        }
    }

    /// Counts what became of the events of a group.
    pub(super) fn count<'r>(&mut self, records: impl Iterator<Item = &'r Record>, undecided: u64) {
        if self.rules.is_empty() {
            return;
        }
        let tally = &mut self.tally;
        for record in records {
            match record {
                Record::Filtered { rule, .. } => {
                    tally.events += 1;
                    *tally.filtered.entry(rule.clone()).or_insert(0) += 1;
                }
                Record::Increment(increment) | Record::Late(increment) => {
                    tally.events += u64::from(increment.event.is_some());
                }
                _ => {}
            }
        }
        tally.undecided += undecided;
    }

    /// The state of the rules of `schema`, which is in force.
    pub(super) fn status(&self, schema: &Schema) -> RulesStatus {
        let mut filtered = self.tally.filtered.clone();
        for filter in &schema.filters {
            filtered.entry(filter.name.clone()).or_insert(0);
        }
        let lists = schema.lists.iter().map(|list| ListStatus {
            name: list.name.clone(),
            kind: list.kind,
            sha256: list.sha256.clone(),
            entries: self.rules.entries(&list.name),
            failure: self.failures.get(&list.name).cloned(),
            changed_at: self.changed.get(&list.name).copied(),
        });
        RulesStatus {
            events: self.tally.events,
            undecided: self.tally.undecided,
            filtered,
            lists: lists.collect(),
        }
    }
}

impl Table {
    /// A table that knows nothing of what came before `now` (Unix seconds).
    fn new(bytes_max: usize, now: i64) -> Self {
        Self {
            bytes_max,
            newer: Keys::default(),
            older: Keys::default(),
            forgotten_until: now,
        }
    }

    /// Whether the event at `at` (Unix seconds) is caught; none where the rule cannot know.
    fn next(&mut self, rule: &MemoryRule, key: u128, at: i64, role: Role) -> Option<bool> {
        let known = self.newer.take(key);
        let known = known.or_else(|| self.older.take(key));
        let mut memory = known.unwrap_or_else(|| rule.begin());
        let caught = memory.next(at, role);
        self.newer.put(key, memory, at);
        if self.newer.bytes > self.bytes_max {
            let newer = std::mem::take(&mut self.newer);
            let gone = std::mem::replace(&mut self.older, newer);
            self.forgotten_until = self.forgotten_until.max(gone.newest.unwrap_or(i64::MIN));
        }
        let reach = i64::from(rule.reach_seconds());
        let is_known = at.saturating_sub(reach) >= self.forgotten_until;
        (!caught || is_known || !rule.catches_by_absence()).then_some(caught)
    }
}

impl Keys {
    fn take(&mut self, key: u128) -> Option<Memory> {
        let memory = self.memories.remove(&key)?;
        self.bytes -= ENTRY_BYTES + memory.heap_bytes();
        Some(memory)
    }

    fn put(&mut self, key: u128, memory: Memory, at: i64) {
        self.bytes += ENTRY_BYTES + memory.heap_bytes();
        self.newest = self.newest.max(Some(at));
        self.memories.insert(key, memory);
    }
}

#[cfg(test)]
mod tests {
    use tallyring_records::{Event, EventType, Filter};

    use super::*;

    fn judge(rule: &str) -> Judge {
        let mut schema = Schema::default_clicks();
        for name in ["click", "impression"] {
            schema.events.push(EventType {
                name: name.into(),
                entities: vec!["l".into()],
                lateness_seconds: 300,
                actions: false,
            });
        }
        let rule: Filter = serde_json::from_str(rule).expect("a rule");
        schema.filters.push(rule);
        let mut judge = Judge::default();
        let rules = Rules::compile(&schema, &|_| None).expect("no lists");
        judge.begin(rules, BTreeMap::new(), 0);
        judge
    }

    fn event(kind: &str, user: u32, at: i64) -> Increment {
        Increment {
            user: Some(user.to_string()),
            event: Some(Box::new(Event {
                kind: kind.into(),
                view: None,
                correction: false,
            })),
            ..Increment::new(at, 1, [("l", "a")])
        }
    }

    fn bytes(judge: &Judge) -> usize {
        let tables = judge.tables.iter();
        tables
            .map(|table| table.newer.bytes + table.older.bytes)
            .sum()
    }

    #[test]
    fn memory_is_bounded_and_forgets_the_oldest_first() {
        let keys = LongKeys::new([7; 32]);
        let mut judge = judge(r#"{"name":"a","more_than":1000,"within":"1h","same":["user"]}"#);
        let most = BYTES_MAX + 64 * 1024;
        for user in 0..150_000 {
            for at in [0, 1] {
                judge.judge(&keys, &event("click", user, at));
            }
            assert!(bytes(&judge) <= most, "{user}");
        }
        assert!(bytes(&judge) > BYTES_MAX / 4);
        let known = |user: u32| {
            let rule = judge.rules.memory_rules().next().expect("a rule");
            let key = rule.key(&event("click", user, 0)).expect("a user");
            let key = keys.identity(KEY_DOMAIN, &key);
            let table = &judge.tables[0];
            table.newer.memories.contains_key(&key) || table.older.memories.contains_key(&key)
        };
        assert!(known(149_999) && !known(0));
    }

    #[test]
    fn a_need_that_may_be_forgotten_catches_nothing() {
        let keys = LongKeys::new([7; 32]);
        let mut judge = judge(
            r#"{"name":"a","events":["click"],"needs":"impression","within":"10s","same":["user"]}"#,
        );
        let undecided = Judged {
            caught: None,
            undecided: true,
        };
        judge.judge(&keys, &event("impression", 1, 100));
        assert_eq!(
            judge.judge(&keys, &event("click", 1, 105)),
            Judged::default()
        );
        let caught = judge.judge(&keys, &event("click", 2, 105));
        assert_eq!(caught.caught, Some(0));
        for user in 0..200_000 {
            judge.judge(&keys, &event("impression", 1_000 + user, 107));
        }
        assert_eq!(judge.judge(&keys, &event("click", 1, 108)), undecided);
        let caught = judge.judge(&keys, &event("click", 2, 200));
        assert_eq!(caught.caught, Some(0), "nothing of its time is forgotten");
        judge.forget(300);
        assert_eq!(judge.judge(&keys, &event("click", 2, 301)), undecided);
    }
}
