//! Declarations that change while the store is open: each increment is judged and counted by the one at its place in
//! the log, however it is read, and what was checked by another one counts by the one in force or not at all.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;

use tallyring_realtime::{Batch, Options, Read, Refusal, Store};
use tallyring_records::{
    Event, EventType, Filter, Grain, Increment, Namespace, Schema, TIME_MAX, TIME_MIN, TimeCode,
};
use tallyring_tests::model::{Chance, ManualClock, world};
use tallyring_tests::sim_disk::{SimDisk, random};

/// 2012-03-16T18:40:00Z.
const START: i64 = 1_331_923_200;
const NAMES: [&str; 3] = ["a", "b", "c"];
const SUBTOTALS: [&str; 2] = ["x", "y"];
const VALUES: [&str; 2] = ["1", "2"];
const KEYS: [&str; 2] = ["k", "l"];

fn namespace(name: &str, grain: Grain) -> Namespace {
    Namespace {
        name: name.into(),
        title: String::new(),
        grain,
        subtotals: Vec::new(),
        minutes: false,
        uniques: false,
    }
}

/// Clicks of ads, and namespaces of increments.
fn with_clicks(mut namespaces: Vec<Namespace>, filters: Vec<Filter>) -> Schema {
    namespaces.push(namespace("ad_click", Grain::Hour));
    Schema {
        namespaces,
        filters,
        events: vec![EventType {
            name: "click".into(),
            entities: vec!["ad".into()],
            lateness_seconds: 300,
            actions: false,
        }],
        ..Schema::default()
    }
}

fn click(id: &str, user: &str, at: i64) -> Increment {
    Increment {
        id: Some(id.into()),
        user: Some(user.into()),
        event: Some(Box::new(Event {
            kind: "click".into(),
            view: None,
            correction: false,
        })),
        ..Increment::new(at, 1, [("ad_click", "k")])
    }
}

fn filter(json: &str) -> Filter {
    serde_json::from_str(json).expect("a rule")
}

fn bots() -> Filter {
    filter(r#"{"name":"bots","field":"user","values":["bot"]}"#)
}

fn options() -> Options {
    Options {
        shards: 2,
        segment_bytes: 1 << 14,
        ..Options::default()
    }
}

fn open(disk: &SimDisk, clock: &Arc<ManualClock>, schema: &Schema) -> Store {
    let world = world(disk.clone(), Arc::clone(clock) as _);
    let opened = Store::open_as_it_is(world, options(), schema);
    opened.expect("it opens").0
}

/// The sum of one key, or of one value of a subtotal.
fn sum(store: &Store, namespace: &str, key: &str, of: Option<(&str, &str)>) -> u64 {
    let read = Read {
        namespace: namespace.into(),
        key: key.into(),
        subtotal: of.map(|(subtotal, _)| subtotal.into()),
        from: TIME_MIN,
        to: TIME_MAX,
        rolled: None,
    };
    let series = store.view().read(&read, None).expect("an answer");
    let Some((_, value)) = of else {
        return series.totals.sum();
    };
    let points = series.points.iter();
    let points = points.filter(|point| *series.values[point.value as usize] == *value);
    points.map(|point| point.count).sum()
}

/// A store and a naive count of what was sent to it.
struct Model {
    disk: SimDisk,
    clock: Arc<ManualClock>,
    store: Option<Store>,
    chance: Chance,
    now: i64,
    sent: u64,
    /// By namespace, key and base bucket.
    totals: BTreeMap<(String, String, TimeCode), u64>,
    /// By namespace, key, subtotal and value.
    values: BTreeMap<(String, String, String, String), u64>,
    clicks: u64,
    refused: u64,
}

impl Model {
    fn new(seed: u64) -> Self {
        let (disk, clock) = (SimDisk::default(), ManualClock::new(START * 1_000, true));
        let clock = Arc::new(clock);
        let schema = with_clicks(vec![namespace("a", Grain::Hour)], Vec::new());
        Self {
            store: Some(open(&disk, &clock, &schema)),
            disk,
            clock,
            chance: Chance::new(seed),
            now: START,
            sent: 0,
            totals: BTreeMap::new(),
            values: BTreeMap::new(),
            clicks: 0,
            refused: 0,
        }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("it is open")
    }

    fn draw_schema(&mut self) -> Schema {
        let mut namespaces = Vec::new();
        for name in NAMES {
            if self.chance.percent(30) {
                continue;
            }
            let grain = *self.chance.pick(&[Grain::Hour, Grain::Quarter]);
            let mut drawn = namespace(name, grain);
            drawn.minutes = self.chance.percent(50);
            let subtotals = SUBTOTALS.iter().filter(|_| self.chance.percent(50));
            drawn.subtotals = subtotals.map(|name| (*name).into()).collect();
            namespaces.push(drawn);
        }
        let filters = [bots()].into_iter().filter(|_| self.chance.percent(50));
        let filters = filters.collect();
        with_clicks(namespaces, filters)
    }

    /// An increment that goes with a schema.
    fn draw(&mut self, schema: &Schema) -> Increment {
        self.sent += 1;
        let id = format!("i{}", self.sent);
        let at = self.now - i64::try_from(self.chance.below(7_200)).expect("small");
        let names = NAMES.iter().filter(|name| schema.namespace(name).is_some());
        let names: Vec<&&str> = names.filter(|_| self.chance.percent(70)).collect();
        if names.is_empty() {
            let user = *self.chance.pick(&["bot", "person"]);
            return click(&id, user, at);
        }
        let keys: Vec<(&str, &str)> = names
            .iter()
            .map(|name| (**name, *self.chance.pick(&KEYS)))
            .collect();
        let mut increment = Increment::new(at, 1 + self.chance.below(3), keys);
        increment.id = Some(id);
        for subtotal in SUBTOTALS {
            if increment.declares(schema, subtotal) && self.chance.percent(70) {
                let value = *self.chance.pick(&VALUES);
                increment.by.push((subtotal.into(), value.into()));
            }
        }
        increment
    }

    fn count(&mut self, schema: &Schema, increment: &Increment) {
        if increment.event.is_some() {
            let is_bot = increment.user.as_deref() == Some("bot");
            self.clicks += u64::from(!is_bot || schema.filters.is_empty());
            return;
        }
        for (name, key) in &increment.keys {
            let namespace = schema.namespace(name).expect("declared");
            let code = TimeCode::containing(increment.at, namespace.grain);
            let total = (name.to_string(), key.to_string(), code);
            *self.totals.entry(total).or_default() += increment.n;
            for subtotal in &namespace.subtotals {
                if let Some(value) = increment.value(subtotal) {
                    let value = (
                        name.to_string(),
                        key.to_string(),
                        subtotal.clone(),
                        value.to_owned(),
                    );
                    *self.values.entry(value).or_default() += increment.n;
                }
            }
        }
    }

    /// Sends a batch that was checked by this schema, which may be in force no longer.
    fn send(&mut self, declared: &Arc<Schema>) {
        let many = 1 + self.chance.below(3);
        let increments: Vec<_> = (0..many).map(|_| self.draw(declared)).collect();
        assert!(increments.iter().all(|of| of.is_declared(declared)));
        let batch = Batch {
            increments: increments.clone(),
            declared: Some(Arc::clone(declared)),
            ..Batch::default()
        };
        let in_force = self.store().schema();
        let goes = increments.iter().all(|of| of.is_declared(&in_force));
        let answer = self.store().intake().commit(vec![batch]).remove(0);
        match answer {
            Ok(accepted) => {
                assert!(goes, "{increments:?} count by {in_force:?}");
                assert_eq!(accepted.accepted + accepted.filtered, many);
                increments
                    .iter()
                    .for_each(|increment| self.count(&in_force, increment));
            }
            Err(refusal) => {
                assert_eq!(refusal, Refusal::Redeclared);
                assert!(!goes, "{increments:?} go with {in_force:?}");
                self.refused += 1;
            }
        }
    }

    /// Every count of what is declared now.
    fn check(&self) {
        let schema = self.store().schema();
        for (name, key) in NAMES.iter().flat_map(|name| KEYS.map(|key| (*name, key))) {
            let Some(namespace) = schema.namespace(name) else {
                continue;
            };
            let of_key = |(of, known, _): &(String, String, TimeCode)| of == name && known == key;
            let totals = self.totals.iter().filter(|(of, _)| of_key(of));
            let expected: u64 = totals.map(|(_, n)| n).sum();
            assert_eq!(sum(self.store(), name, key, None), expected, "{name} {key}");
            for (subtotal, value) in namespace
                .subtotals
                .iter()
                .flat_map(|subtotal| VALUES.map(|value| (subtotal.as_str(), value)))
            {
                let of = [name, key, subtotal, value].map(str::to_owned);
                let expected = self.values.get(&of.into()).copied().unwrap_or(0);
                let found = sum(self.store(), name, key, Some((subtotal, value)));
                assert_eq!(found, expected, "{name} {key} by {subtotal} {value}");
            }
        }
        assert_eq!(sum(self.store(), "ad_click", "k", None), self.clicks);
    }

    fn restart(&mut self) {
        let schema = Schema::clone(&self.store().schema());
        drop(self.store.take());
        self.disk = self.disk.kill();
        self.store = Some(open(&self.disk, &self.clock, &schema));
        assert_eq!(*self.store().schema(), schema);
    }

    fn step(&mut self, earlier: &mut Vec<Arc<Schema>>) {
        match self.chance.below(12) {
            0..6 => {
                let declared = self.store().schema();
                self.send(&declared);
            }
            6 | 7 => {
                let declared = Arc::clone(self.chance.pick(earlier));
                self.send(&declared);
            }
            8 | 9 => {
                let schema = self.draw_schema();
                self.store().declare(schema.clone()).expect("usable");
                assert_eq!(*self.store().schema(), schema);
                earlier.push(self.store().schema());
            }
            10 if self.chance.percent(50) => self.store().ledger().flush().expect("flushed"),
            10 => {
                self.now += 40_000;
                self.clock.set(self.now * 1_000);
                self.store().intake().tick().expect("turned");
                self.store().ledger().cut().expect("cut");
            }
            _ => self.restart(),
        }
    }
}

#[test]
fn each_increment_counts_by_the_declaration_at_its_place() {
    let mut refused = 0;
    for seed in 0..40 {
        let mut model = Model::new(seed);
        let mut earlier = vec![model.store().schema()];
        for step in 0..60 {
            model.step(&mut earlier);
            if step % 5 == 0 {
                model.check();
            }
        }
        // All that was ever counted can be read.
        let all = NAMES.map(|name| Namespace {
            subtotals: SUBTOTALS.map(str::to_owned).into(),
            ..namespace(name, Grain::Quarter)
        });
        let all = with_clicks(all.into(), Vec::new());
        model.store().declare(all).expect("usable");
        model.check();
        model.restart();
        model.check();
        refused += model.refused;
    }
    assert!(
        refused > 100,
        "{refused} batches came by another declaration"
    );
}

#[test]
fn a_declaration_that_a_start_would_refuse_changes_nothing() {
    let model = Model::new(1);
    let (store, before) = (model.store(), model.store().schema());
    let applied = store.status().applied;
    let with = |change: &dyn Fn(&mut Schema)| {
        let mut schema = Schema::clone(&before);
        change(&mut schema);
        let refused = store.declare(schema).expect_err("it is refused");
        refused.to_string()
    };
    let refusals = [
        (
            with(&|schema| schema.namespaces[0].grain = Grain::Day),
            "namespace `a`: grain must be \"hour\" or \"quarter\"",
        ),
        (
            with(&|schema| schema.namespaces[0].name = "query".into()),
            "got `query`: choose another name",
        ),
        (
            with(&|schema| schema.filters = vec![filter(r#"{"name":"f","list":"l"}"#)]),
            "declare it as [lists.l]",
        ),
        (
            with(&|schema| schema.namespaces.truncate(1)),
            "which is not declared",
        ),
    ];
    for (refusal, says) in refusals {
        assert!(refusal.contains(says), "{refusal}");
    }
    assert!(!store.declare(Schema::clone(&before)).expect("the same"));
    assert!(Arc::ptr_eq(&store.schema(), &before));
    assert_eq!(store.status().applied, applied);
}

#[test]
fn a_rule_with_memory_goes_on_while_others_change() {
    let double = filter(r#"{"name":"double","within":"30s","same":["user","ad"]}"#);
    let model = Model::new(1);
    let is_caught = |id: &str, at: i64| {
        let batch = Batch {
            increments: vec![click(id, "person", at)],
            ..Batch::default()
        };
        let answer = model.store().intake().commit(vec![batch]).remove(0);
        answer.expect("taken").filtered == 1
    };
    let declare = |filters: Vec<Filter>| {
        let schema = with_clicks(vec![namespace("a", Grain::Hour)], filters);
        assert!(model.store().declare(schema).expect("usable"));
    };
    declare(vec![double.clone()]);
    assert!(!is_caught("1", START));
    declare(vec![bots(), double.clone()]);
    assert!(is_caught("2", START + 10));
    declare(vec![bots()]);
    assert!(!is_caught("3", START + 11));
    declare(vec![double]);
    assert!(!is_caught("4", START + 12), "it was forgotten");
    assert!(is_caught("5", START + 13));
}

#[test]
fn a_power_cut_or_a_fault_at_any_call_leaves_one_of_both_declarations_whole() {
    let before = with_clicks(vec![namespace("a", Grain::Hour)], Vec::new());
    let after = with_clicks(
        NAMES.map(|name| namespace(name, Grain::Hour)).into(),
        vec![bots()],
    );
    let send = |store: &Store, id: &str| {
        let mut increment = Increment::new(START, 1, [("b", "k")]);
        increment.id = Some(id.into());
        let batch = Batch {
            increments: vec![increment, click(&format!("{id} click"), "bot", START)],
            declared: Some(Arc::new(after.clone())),
            ..Batch::default()
        };
        store.intake().commit(vec![batch]).remove(0)
    };
    for is_cut in [true, false] {
        for call in 1.. {
            let (disk, clock) = (SimDisk::default(), ManualClock::new(START * 1_000, true));
            let clock = Arc::new(clock);
            let store = open(&disk, &clock, &before);
            let early = send(&store, "early");
            assert!(matches!(early, Err(Refusal::Redeclared)));
            let calls = disk.calls();
            match is_cut {
                true => disk.stop_at_nth_call(call),
                false => disk.fail_nth_call(call, ErrorKind::Other),
            }
            let is_declared = store.declare(after.clone()).is_ok();
            let is_sent = send(&store, "late").is_ok();
            let is_over = disk.calls() - calls < call;
            let disk = disk.crash(&mut random(call));
            drop(store);
            let store = open(&disk, &clock, &before);
            let found = *store.schema() == after;
            assert!(found || *store.schema() == before, "call {call}");
            assert!(found || !is_declared && !is_sent, "call {call}");
            if found {
                assert_eq!(sum(&store, "a", "k", None), 0);
                send(&store, "late").expect("it goes on");
                assert_eq!(sum(&store, "b", "k", None), 1, "call {call}");
            }
            assert_eq!(sum(&store, "ad_click", "k", None), 0, "call {call}");
            if is_over {
                break;
            }
        }
    }
}
