//! Random clicks: the schemas they are counted under, their keys, values, times and ids.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use tallyring_records::{
    COUNT_MAX, Details, Event, EventType, Evidence, Filter, Form, Grain, Increment, List, ListKind,
    Namespace, Origin, Role, Rules, Schema, TIME_MIN, Text, check_time, content_hash,
};

use super::chance::Chance;

/// Takes a mark from each batch whose fate may become uncertain; the key is never used again.
pub(super) const MARKS: &str = "m";

/// The type of events, and where they count.
const EVENT: &str = "e";
/// Users of events are numbered below it.
const USERS: u64 = 20;
const VIEWS: [&str; 4] = ["home", "", "-", "the results of a search"];
const EVENTS: &str = "l_e";

/// The types of events that nobody is named by. A list judges two of them, and a rule with memory each.
const TAP: &str = "t";
const SWIPE: &str = "s";
const PRESS: &str = "p";
/// The types, and where they count.
pub(super) const TAPS: [(&str, &str); 3] = [(TAP, "l_t"), (SWIPE, "l_s"), (PRESS, "l_p")];
/// The types that are sent together: a press needs a tap.
pub(super) const TOGETHER: [&[(&str, &str)]; 3] = [&[TAPS[0]], &[TAPS[1]], &[TAPS[0], TAPS[2]]];
/// Few, so that taps repeat each other, swipes are many, and a press has its tap.
const TAP_KEYS: [&str; 3] = ["a", "b", "\u{65e5}\u{672c}"];
/// Some are in both lists, some in one of them.
const ADDRESSES: [&str; 4] = ["192.0.2.7", "203.0.113.9", "198.51.100.7", "2001:db8::7"];

/// How many schemas there are; each declares as much as the one before or more. The last one has another list only.
pub(super) const SCHEMAS: usize = 4;

/// One of the schemas.
pub fn schema(number: usize) -> &'static Schema {
    static ALL: LazyLock<[Schema; SCHEMAS]> = LazyLock::new(|| std::array::from_fn(declared));
    &ALL[number]
}

/// One of the schemas without its list and the rule of that, for stores that lack the content.
pub fn schema_without_lists(number: usize) -> Schema {
    let mut schema = schema(number).clone();
    schema.lists.clear();
    let has_list = |filter: &Filter| matches!(filter.form, Form::List { .. });
    schema.filters.retain(|filter| !has_list(filter));
    schema
}

fn declared(number: usize) -> Schema {
    let namespace = |name: &str, grain: Grain, subtotals: &[&str]| Namespace {
        name: name.into(),
        title: String::new(),
        grain,
        subtotals: subtotals.iter().map(|&subtotal| subtotal.into()).collect(),
        minutes: name == EVENTS || name == "q" || name == "u" && number > 0,
        uniques: name == "l" || name == "q" && number > 0,
    };
    let links: &[&str] = [&["c", "r"][..], &["c", "r", "v"]][number.min(1)];
    let users: &[&str] = [&["c", "c*r"][..], &["c", "c*r", "v*r"]][usize::from(number > 1)];
    Schema {
        events: [EVENT, TAP, SWIPE, PRESS].map(event_type).into(),
        ratios: Vec::new(),
        titles: BTreeMap::new(),
        settings: BTreeMap::new(),
        filters: filters(number),
        lists: lists(number),
        namespaces: vec![
            namespace("l", Grain::Hour, links),
            namespace("u", Grain::Hour, users),
            namespace("q", Grain::Quarter, &["c"]),
            namespace(EVENTS, Grain::Hour, &["c"]),
            namespace(TAPS[0].1, Grain::Hour, &[]),
            namespace(TAPS[1].1, Grain::Hour, &[]),
            namespace(TAPS[2].1, Grain::Hour, &[]),
            namespace(MARKS, Grain::Hour, &[]),
        ],
    }
}

fn event_type(name: &str) -> EventType {
    EventType {
        name: name.into(),
        entities: vec!["l".into()],
        lateness_seconds: 86_400,
        actions: name == EVENT,
    }
}

/// The names of all rules.
pub(super) const RULES: [&str; 6] = ["own", "few", "nets", "twice", "many", "lone"];
/// The list.
pub(super) const NETWORKS: &str = "networks";

/// The content of the list of a schema; none where it has no list.
pub(super) fn networks(number: usize) -> Option<&'static [u8]> {
    match number {
        0 => None,
        1 | 2 => Some(b"192.0.2.0/24\n203.0.113.0/24\n"),
        _ => Some(b"192.0.2.0/24\n198.51.100.0/24\n2001:db8::/32\n"),
    }
}

fn lists(number: usize) -> Vec<List> {
    let list = |content| List {
        name: NETWORKS.into(),
        kind: ListKind::Ip,
        sha256: content_hash(content),
    };
    networks(number).map(list).into_iter().collect()
}

/// The rules of a schema.
pub(super) fn rules(number: usize) -> &'static Rules {
    static ALL: LazyLock<[Rules; SCHEMAS]> = LazyLock::new(|| {
        std::array::from_fn(|number| {
            let content = |_: &str| networks(number).map(<[u8]>::to_vec);
            Rules::compile(schema(number), &content).expect("BUG: the rules are usable")
        })
    });
    &ALL[number]
}

/// One rule stands, one changes and goes, one gets a list and later another, and three change.
fn filters(number: usize) -> Vec<Filter> {
    let own = ["user 0", "user 1", "user 2", "user 3", "user 4"];
    let own = Filter::of_values(RULES[0], &[], "user", &own);
    let few: &[&str] = match number {
        0 => &["user 5", "user 6", "user 7"],
        1 => &["user 7", "user 8"],
        _ => &[],
    };
    let few = (!few.is_empty()).then(|| Filter::of_values(RULES[1], &[EVENT], "user", few));
    let of = |rule: usize, events: &[&str], form: Form| Filter {
        form,
        ..Filter::of_values(RULES[rule], events, "user", &[])
    };
    let list = NETWORKS.to_owned();
    let nets = (number > 0).then(|| of(2, &[TAP, SWIPE], Form::List { list }));
    let within_seconds = if number < 2 { 1_200 } else { 2_400 };
    let same = vec!["entities.l".to_owned()];
    let twice = Form::Repeat {
        within_seconds,
        same: same.clone(),
    };
    let many = Form::Rate {
        more_than: 2,
        within_seconds,
        same: same.clone(),
        all: number > 1,
    };
    let lone = Form::Needs {
        needs: TAP.to_owned(),
        within_seconds,
        same,
    };
    let with_memory = [
        of(3, &[TAP], twice),
        of(4, &[SWIPE], many),
        of(5, &[PRESS], lone),
    ];
    let without = [Some(own), few, nets].into_iter().flatten();
    without.chain(with_memory).collect()
}

/// The subtotals that the newest schema declares in a namespace with minutes.
pub(super) fn by_minute(name: &str) -> &'static [String] {
    let schema = schema(SCHEMAS - 1);
    let namespace = schema.namespace(name).filter(|known| known.minutes);
    namespace.map_or(&[], |known| &known.subtotals)
}

/// Short and long, plain and reserved, and neighbours of the characters that lines are split at.
const KEYS: [&str; 16] = [
    "a",
    "b",
    "a-",
    "a!",
    "a+b",
    "日本",
    "12345678901",
    "123456789012",
    "a b",
    "x|y.z,w:1",
    "http://example.com/a/long/path?with=query&and=more",
    "http://example.com/a/long/path?with=query&and=mor",
    "-",
    "~tilde",
    "new\nline",
    "%2C",
];

const VALUES: [&str; 12] = [
    "US",
    "JP",
    "-",
    "",
    "a*b",
    "b",
    "http://referrer.example.com/page",
    "quote\"d",
    "x:1 y:2",
    "c41l",
    "twelve bytes",
    "~",
];

/// Draws increments that the store's caller would let through at `now` (Unix seconds).
pub fn increment(chance: &mut Chance, schema: &Schema, now: i64, ids: &[String]) -> Increment {
    if chance.percent(15) {
        return event(chance, now, ids);
    }
    loop {
        let mut keys = Vec::new();
        for name in ["l", "u", "q"] {
            if chance.percent(60) {
                keys.push((Text::from(name), Text::from(key(chance))));
            }
        }
        let mut by = Vec::new();
        for dimension in ["c", "r", "v"] {
            let declared = keys
                .iter()
                .filter_map(|(name, _)| schema.namespace(name))
                .any(|namespace| namespace.has_dimension(dimension));
            if declared && chance.percent(70) {
                by.push((Text::from(dimension), Text::from(value(chance))));
            }
        }
        let increment = Increment {
            at: time(chance, now),
            n: count(chance),
            keys,
            by,
            id: id(chance, ids),
            user: chance
                .percent(30)
                .then(|| format!("user {}", chance.below(500))),
            event: None,
            origin: None,
            identity: None,
            details: None,
        };
        // Bulk loads count on these keys too, and are not checked against the largest count.
        let is_bulk = increment.keys.iter().any(|(_, key)| key.starts_with('k'));
        if is_bulk && increment.n > 5 {
            continue;
        }
        if increment.validate(schema).is_ok() && check_time(increment.at, now).is_ok() {
            return increment;
        }
    }
}

/// Draws an increment without an id: one of many in a burst.
pub(super) fn plain(chance: &mut Chance, schema: &Schema, now: i64) -> Increment {
    loop {
        let drawn = increment(chance, schema, now, &[]);
        if drawn.n < COUNT_MAX / 4 {
            return Increment { id: None, ..drawn };
        }
    }
}

/// An event of the last hour, which is never late: what is, the log says and not the model.
fn event(chance: &mut Chance, now: i64, ids: &[String]) -> Increment {
    Increment {
        at: (now - chance.between(0, 3_600)).max(TIME_MIN),
        n: 1,
        keys: vec![(EVENTS.into(), key(chance).into())],
        by: vec![("c".into(), value(chance).into())],
        id: id(chance, ids),
        user: chance.percent(90).then(|| user(chance.below(USERS))),
        event: Some(Box::new(Event {
            kind: EVENT.to_owned(),
            view: Some(*chance.pick(&VIEWS))
                .filter(|view| !view.is_empty())
                .map(str::to_owned),
            correction: false,
        })),
        origin: None,
        identity: None,
        details: Details {
            insertion: chance
                .percent(50)
                .then(|| format!("insertion {}", chance.below(9))),
            ..Details::default()
        }
        .boxed(),
    }
}

/// A tap, swipe or press at some time.
pub(super) fn tap(
    chance: &mut Chance,
    (kind, namespace): (&str, &str),
    at: i64,
    id: Option<String>,
) -> Increment {
    let evidence = Evidence {
        ip: Some((*chance.pick(&ADDRESSES)).to_owned()),
        ..Evidence::default()
    };
    Increment {
        id,
        event: Some(Box::new(Event {
            kind: kind.to_owned(),
            view: None,
            correction: false,
        })),
        details: Details {
            evidence,
            ..Details::default()
        }
        .boxed(),
        ..Increment::new(at, 1, [(namespace, *chance.pick(&TAP_KEYS))])
    }
}

/// The rules with memory that look at an event, by the schema `number`: the key by which events belong together, and
/// the part of the event, which one rule at most judges.
pub(super) fn with_memory(
    increment: &Increment,
    number: usize,
) -> impl Iterator<Item = (&'static Filter, &str, Role)> {
    let event = increment.event.as_ref().zip(increment.keys.first());
    event.into_iter().flat_map(move |(event, (_, key))| {
        let filters = schema(number).filters.iter();
        filters.filter_map(move |filter| {
            let role = match &filter.form {
                Form::Needs { needs, .. } if *needs == event.kind => Role::Needed,
                Form::Repeat { .. } | Form::Rate { .. } | Form::Needs { .. }
                    if filter.events.contains(&event.kind) =>
                {
                    Role::Judged
                }
                _ => return None,
            };
            Some((filter, &**key, role))
        })
    })
}

/// The users of events, and one without any.
pub(super) fn users() -> Vec<String> {
    (0..=USERS).map(user).collect()
}

fn user(number: u64) -> String {
    format!("user {number}")
}

/// Increments that a producer numbers, on keys that nothing else counts on: no counter of those keys comes near the
/// largest count.
pub(super) fn numbered(chance: &mut Chance, now: i64, origin: Origin) -> Increment {
    let at = (now - chance.between(0, 3_600)).max(TIME_MIN);
    let key = format!("numbered {}", chance.below(3));
    Increment {
        origin: Some(Box::new(origin)),
        ..Increment::new(at, 1 + chance.below(5), [("u", key)])
    }
}

/// The mark of a batch.
pub(super) fn mark(key: &str, now: i64) -> Increment {
    Increment::new(now, 1, [(MARKS, key)])
}

fn key(chance: &mut Chance) -> String {
    match chance.below(200) {
        0 => "k".repeat(2_048),
        1..40 => format!("k{}", chance.below(30)),
        _ => (*chance.pick(&KEYS)).to_owned(),
    }
}

fn value(chance: &mut Chance) -> String {
    match chance.below(50) {
        0 => "v ".repeat(1_000),
        1..5 => format!("v{}", chance.below(20)),
        _ => (*chance.pick(&VALUES)).to_owned(),
    }
}

fn count(chance: &mut Chance) -> u64 {
    match chance.below(400) {
        0 => COUNT_MAX,
        1 => COUNT_MAX - chance.below(20),
        2 => COUNT_MAX / 2,
        _ => 1 + chance.below(5),
    }
}

fn time(chance: &mut Chance, now: i64) -> i64 {
    const DAY: i64 = 86_400;
    match chance.below(20) {
        0..10 => now - chance.between(0, 3_600),
        10..13 => now - chance.between(0, DAY),
        13..15 => now + chance.between(0, DAY),
        15 => now + DAY,
        16 => now - chance.between(DAY, 3 * DAY),
        17 => now - chance.between(3 * DAY, 60 * DAY),
        18 => now - now.rem_euclid(DAY) + chance.between(-1, 0),
        _ => *chance.pick(&[946_684_800, 978_307_199, 1_325_375_999, 1_325_376_000]),
    }
}

/// An id that is drawn anew, or one of these.
pub(super) fn id(chance: &mut Chance, ids: &[String]) -> Option<String> {
    match chance.below(10) {
        0..6 => None,
        6..8 if !ids.is_empty() => Some(chance.pick(ids).clone()),
        _ => Some(format!("id-{:016x}", chance.bits())),
    }
}
