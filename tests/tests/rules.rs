//! Rules with memory on real clicks and in a live store, and lists that change while the store is open.

use std::collections::HashMap;
use std::io::{ErrorKind, Read};
use std::sync::Arc;

use flate2::read::GzDecoder;
use serde_json::Value;
use tallyring_realtime::{
    Accepted, Batch, Error, Options, Refusal, RulesStatus, Store, store_list,
};
use tallyring_records::{
    Details, Event, EventType, Evidence, Filter, Grain, Increment, List, ListKind, Memory,
    Namespace, Role, Rules, Schema,
};
use tallyring_tests::model::{ManualClock, world};
use tallyring_tests::needs::data_file;
use tallyring_tests::sim_disk::{SimDisk, random};

/// 2012-03-16T00:00:00Z.
const START: i64 = 1_331_856_000;

fn schema(filters: &[&str]) -> Schema {
    let types = ["click", "impression"];
    let namespace = |kind: &str| Namespace {
        name: format!("ad_{kind}"),
        title: String::new(),
        grain: Grain::Hour,
        subtotals: Vec::new(),
        minutes: false,
        uniques: false,
    };
    let event = |kind: &str| EventType {
        name: kind.into(),
        entities: vec!["ad".into()],
        lateness_seconds: 300,
        actions: false,
    };
    let filter = |json: &&str| serde_json::from_str::<Filter>(json).expect(json);
    Schema {
        namespaces: types.map(namespace).into(),
        events: types.map(event).into(),
        filters: filters.iter().map(filter).collect(),
        ..Schema::default()
    }
}

fn event(kind: &str, user: &str, ad: &str, at: i64) -> Increment {
    Increment {
        user: Some(user.into()),
        event: Some(Box::new(Event {
            kind: kind.into(),
            view: None,
            correction: false,
        })),
        ..Increment::new(at, 1, [(format!("ad_{kind}"), ad)])
    }
}

/// MONEY: clicks of one user on one key within 2 s, 30 s and an hour.
#[test]
fn repeats_in_real_clicks_are_those_that_were_counted_by_hand() {
    let Some(file) = data_file("obd_impressions_clicks.ndjson.gz") else {
        return;
    };
    let file = std::fs::File::open(file).expect("the events");
    let mut text = String::new();
    GzDecoder::new(file)
        .read_to_string(&mut text)
        .expect("text");
    let mut clicks: Vec<Increment> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("an event"))
        .filter(|told| told["action"] == "click")
        .map(|told| {
            let text = |name: &str| told[name].as_str().unwrap_or_default();
            let at = told["ts"].as_i64().expect("a time");
            event("click", text("user"), text("key"), at)
        })
        .collect();
    assert_eq!(clicks.len(), 207);
    clicks.sort_by_key(|click| click.at);
    for (within, repeats) in [("2s", 0), ("30s", 2), ("1h", 3)] {
        let rule = format!(r#"{{"name":"double","within":"{within}","same":["user","ad"]}}"#);
        let rules = Rules::compile(&schema(&[&rule]), &|_| None).expect("no lists");
        let rule = rules.memory_rules().next().expect("a rule");
        let mut memories: HashMap<Vec<u8>, Memory> = HashMap::new();
        let caught = clicks.iter().filter(|click| {
            let key = rule.key(click).expect("a user and a key");
            let memory = memories.entry(key).or_insert_with(|| rule.begin());
            memory.next(click.at, Role::Judged)
        });
        assert_eq!(caught.count(), repeats, "{within}");
    }
}

struct Live {
    disk: SimDisk,
    clock: Arc<ManualClock>,
    store: Store,
}

impl Live {
    fn open(disk: SimDisk, schema: Schema) -> Self {
        let clock = Arc::new(ManualClock::new(START * 1_000, true));
        let world = world(disk.clone(), Arc::clone(&clock) as _);
        let options = Options {
            drops_evidence: true,
            ..Options::default()
        };
        let (store, _) = Store::open(world, options, schema).expect("open");
        Self { disk, clock, store }
    }

    fn begin(filters: &[&str]) -> Self {
        Self::open(SimDisk::default(), schema(filters))
    }

    fn send(&self, increments: Vec<Increment>) -> Accepted {
        let batch = Batch {
            increments,
            ..Batch::default()
        };
        let outcome = self.store.intake().commit(vec![batch]).remove(0);
        outcome.expect("a batch that counts")
    }

    /// True when the event at so many seconds after the start is filtered.
    fn is_caught(&self, kind: &str, seconds: i64) -> bool {
        self.send(vec![event(kind, "u", "a", START + seconds)])
            .filtered
            == 1
    }

    fn rules(&self) -> RulesStatus {
        self.store.status().rules
    }
}

const DOUBLE: &str = r#"{"name":"double","events":["click"],"within":"30s","same":["user","ad"]}"#;
const RATE: &str =
    r#"{"name":"rate","events":["click"],"more_than":2,"within":"60s","same":["user"]}"#;
const NEEDS: &str =
    r#"{"name":"unseen","events":["click"],"needs":"impression","within":"60s","same":["ad"]}"#;

#[test]
fn the_first_rule_by_order_names_an_event_and_every_rule_sees_it() {
    let live = Live::begin(&[DOUBLE, RATE]);
    let caught: Vec<bool> = [100, 110, 131, 150, 200]
        .iter()
        .map(|seconds| live.is_caught("click", *seconds))
        .collect();
    // 110 repeats 100; 131 is kept by `double` but the third in a minute; 150 is both; 200 is the third since 140.
    assert_eq!(caught, [false, true, true, true, false]);
    let told = live.rules();
    assert_eq!((told.filtered["double"], told.filtered["rate"]), (2, 1));
    assert_eq!((told.events, told.undecided), (5, 0));
    // Without a user neither rule can judge.
    let nobody = Increment {
        user: None,
        ..event("click", "u", "a", START + 201)
    };
    assert_eq!(live.send(vec![nobody]).accepted, 1);
    assert_eq!(live.rules().undecided, 1);
}

#[test]
fn a_need_is_undecided_until_its_time_was_seen() {
    let live = Live::begin(&[NEEDS]);
    assert!(
        !live.is_caught("click", 59),
        "it may have come before the start"
    );
    assert_eq!(live.rules().undecided, 1);
    assert!(live.is_caught("click", 60));
    assert!(!live.is_caught("impression", 70));
    assert!(!live.is_caught("click", 129));
    assert!(live.is_caught("click", 130));
    assert_eq!(live.rules().undecided, 1);
    // A restart forgets.
    let Live { disk, clock, store } = live;
    drop((clock, store));
    let live = Live::open(disk, schema(&[NEEDS]));
    live.clock.set((START + 200) * 1_000);
    assert!(!live.is_caught("click", 20));
    assert_eq!(live.rules().undecided, 1);
}

#[test]
fn a_refused_batch_leaves_no_trace_by_which_its_retry_is_caught() {
    let live = Live::begin(&[DOUBLE]);
    let mut wrong = event("click", "u", "b", START + 2);
    wrong.origin = Some(Box::new(tallyring_records::Origin {
        producer: "p".into(),
        epoch: 0,
        sequence: 7,
    }));
    let first = event("click", "u", "a", START + 1);
    let batch = |increments| Batch {
        increments,
        ..Batch::default()
    };
    let commit = |increments| {
        let mut outcomes = live.store.intake().commit(vec![batch(increments)]);
        outcomes.remove(0)
    };
    assert!(commit(vec![first.clone()]).is_ok_and(|accepted| accepted.accepted == 1));
    let later = event("click", "u", "c", START + 40);
    let mut gap = wrong.clone();
    if let Some(origin) = &mut gap.origin {
        origin.epoch = 0;
        origin.sequence = 9;
    }
    assert!(commit(vec![wrong]).is_ok());
    assert!(
        commit(vec![later.clone(), gap]).is_err(),
        "a number is missing"
    );
    assert!(commit(vec![later]).is_ok_and(|accepted| accepted.accepted == 1));
}

fn with_ua(ua: &str) -> Increment {
    let details = Details {
        evidence: Evidence {
            ua: Some(ua.into()),
            ..Evidence::default()
        },
        ..Details::default()
    };
    Increment {
        details: details.boxed(),
        ..event("click", ua, "a", START)
    }
}

/// A schema with a list whose content lies on the disk.
fn listed(disk: &SimDisk, content: &str) -> Schema {
    let clock = Arc::new(ManualClock::new(START * 1_000, true));
    let blobs = world(disk.clone(), clock).blobs();
    blobs.prepare().expect("directories");
    let mut schema = schema(&[r#"{"name":"bots","list":"bots"}"#]);
    schema.lists.push(List {
        name: "bots".into(),
        kind: ListKind::UserAgent,
        sha256: store_list(&blobs, content.as_bytes()).expect("stored"),
    });
    schema
}

/// The door hands evidence on only where rules judge by it, so events that it read before a rule came have none.
#[test]
fn no_event_that_was_read_without_evidence_passes_a_rule_by_list() {
    let disk = SimDisk::default();
    let listed = listed(&disk, "first\nother\n");
    let live = Live::open(disk, schema(&[]));
    let before = live.store.schema();
    let commit = |increment: Increment, declared: &Arc<Schema>| {
        let batch = Batch {
            increments: vec![increment],
            declared: Some(Arc::clone(declared)),
            ..Batch::default()
        };
        live.store.intake().commit(vec![batch]).remove(0)
    };
    let read_before = || event("click", "u", "a", START);
    assert!(commit(read_before(), &before).is_ok());
    assert!(live.store.declare(listed).expect("usable"));
    assert_eq!(commit(read_before(), &before), Err(Refusal::Redeclared));
    let plain = Increment::new(START, 1, [("ad_click", "a")]);
    assert!(commit(plain, &before).is_ok(), "no rule judges it");
    let in_force = live.store.schema();
    let caught = commit(with_ua("the first"), &in_force).expect("read anew");
    assert_eq!((caught.accepted, caught.filtered), (0, 1));
    // Events that came without are taken from then on.
    let undecided = commit(read_before(), &in_force).expect("taken");
    assert_eq!(undecided.accepted, 1);
}

#[test]
fn a_list_that_changed_is_in_force_after_flushes_and_restarts() {
    let disk = SimDisk::default();
    let declared = listed(&disk, "first\nother\n");
    let live = Live::open(disk, declared.clone());
    assert_eq!(
        live.send(vec![with_ua("a first"), with_ua("a second")])
            .filtered,
        1
    );
    let manifests = live.store.manifest().intake.schemas.len();
    for (number, content) in ["second\nother\n", "first\nsecond\n", "second\nthird\n"]
        .iter()
        .enumerate()
    {
        live.store
            .intake()
            .put_list("bots", content.as_bytes())
            .expect("usable");
        if number == 1 {
            live.store.ledger().flush().expect("flush");
        }
    }
    let in_force = live.store.schema();
    assert_ne!(in_force.lists, declared.lists);
    assert_eq!(
        live.send(vec![with_ua("a first"), with_ua("a second")])
            .filtered,
        1
    );
    let Live { disk, clock, store } = live;
    drop((clock, store));
    // The declared list is the one in force, as a server without a configuration declares it.
    let live = Live::open(disk, Schema::clone(&in_force));
    assert_eq!(live.store.schema(), in_force);
    assert_eq!(
        live.send(vec![with_ua("b second"), with_ua("b first")])
            .filtered,
        1
    );
    live.store.ledger().flush().expect("flush");
    let schemas = &live.store.manifest().intake.schemas;
    assert_eq!(
        schemas.len(),
        manifests + 3,
        "the log has records that the lists of before judged"
    );
    assert_eq!(schemas.last().map(|entry| &entry.schema), Some(&*in_force));
}

#[test]
fn a_list_that_cannot_be_used_changes_nothing() {
    let disk = SimDisk::default();
    let declared = listed(&disk, "one\ntwo\nthree\n");
    let live = Live::open(disk, declared.clone());
    let applied = live.store.status().applied;
    for (name, content, says) in [
        ("bots", "one", "it shrank from 3 lines to 1"),
        ("bots", "", "the list is empty"),
        ("bots", "one\n(", "line 2"),
        ("cats", "one", "it is not declared"),
    ] {
        let error = live.store.intake().put_list(name, content.as_bytes());
        let error = error.expect_err(says);
        assert!(matches!(error, Error::List { .. }), "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
    // Content that is in force already is no record.
    live.store
        .intake()
        .put_list("bots", b"one\ntwo\nthree\n")
        .expect("usable");
    assert_eq!(*live.store.schema(), declared);
    assert_eq!(live.store.status().applied, applied);
    live.store
        .intake()
        .put_list("bots", b"one\ntwo\n")
        .expect("not below the half");
}

#[test]
fn a_power_cut_or_a_fault_at_any_call_leaves_one_of_both_lists_whole() {
    for is_cut in [true, false] {
        for call in 1.. {
            let disk = SimDisk::default();
            let declared = listed(&disk, "first\nother\n");
            let live = Live::open(disk, declared.clone());
            let calls = live.disk.calls();
            match is_cut {
                true => live.disk.stop_at_nth_call(call),
                false => live.disk.fail_nth_call(call, ErrorKind::Other),
            }
            let put = || live.store.intake().put_list("bots", b"second\nother\n");
            let mut is_put = put().is_ok();
            let is_over = live.disk.calls() - calls < call;
            if !is_cut && !is_put {
                assert_eq!(*live.store.schema(), declared, "call {call}");
                is_put = put().is_ok();
            }
            let disk = live.disk.crash(&mut random(call));
            drop(live);
            let clock = Arc::new(ManualClock::new(START * 1_000, true));
            let world = world(disk, clock as _);
            let (store, _) = Store::open_as_it_is(world, Options::default(), &declared)
                .unwrap_or_else(|error| panic!("call {call}: {error}"));
            let found = store.schema().lists != declared.lists;
            assert!(found || !is_put, "call {call}: the list was in force");
            let told = store.status().rules;
            assert_eq!(told.lists[0].entries, Some(2), "call {call}: {told:?}");
            if is_over {
                break;
            }
        }
    }
}
