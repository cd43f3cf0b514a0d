//! Events of random lives: their types, users, entities and times.

use std::collections::BTreeMap;

use tallyring_records::{
    Details, Event, EventType, Filter, Grain, Increment, Namespace, Schema, TIME_MIN,
};
use tallyring_tests::model::Chance;

use crate::{DAY, HOUR};

pub(crate) const USERS: [&str; 7] = ["u", "v", "0", "me", "ein Nutzer, höflich", "x.y|z", "bot"];
const VIEWS: [&str; 4] = ["home", "-", "#AAAAAAAAAA", "the results of a search"];
const KEYS: [&str; 6] = [
    "1",
    "2",
    "a=b",
    "#AAAAAAAAAA",
    "x.y:z",
    "a key that is hashed",
];
/// Types of events with their entities; the last one keeps no actions.
const KINDS: [(&str, &[&str]); 3] = [
    ("click", &["ad", "ad_group", "campaign"]),
    ("impression", &["campaign", "ad"]),
    ("scroll", &["ad"]),
];

pub(crate) fn schema() -> Schema {
    let namespace = |(kind, entity): (&str, &str)| Namespace {
        name: format!("{entity}_{kind}"),
        title: String::new(),
        grain: Grain::Hour,
        subtotals: vec!["c".into()],
        minutes: true,
        uniques: entity == "ad",
    };
    let counted = KINDS.iter();
    let counted =
        counted.flat_map(|(kind, entities)| entities.iter().map(|entity| (*kind, *entity)));
    Schema {
        namespaces: counted.map(namespace).collect(),
        events: KINDS
            .iter()
            .map(|(kind, entities)| EventType {
                name: (*kind).to_owned(),
                entities: entities.iter().map(|&entity| entity.to_owned()).collect(),
                lateness_seconds: 300,
                actions: *kind != "scroll",
            })
            .collect(),
        ratios: Vec::new(),
        filters: vec![Filter::of_values("own", &[], "user", &["me"])],
        lists: Vec::new(),
        titles: BTreeMap::new(),
        settings: BTreeMap::new(),
    }
}

/// A click of a user on two entities.
pub(crate) fn click(at: i64) -> Increment {
    Increment {
        user: Some(USERS[0].into()),
        event: Some(Box::new(Event {
            kind: "click".into(),
            view: None,
            correction: false,
        })),
        ..Increment::new(at, 1, [("ad_click", "1"), ("campaign_click", "7")])
    }
}

/// An increment, mostly an event, at any time that a client may send. Its id may be one of `ids`. Nearly all events of
/// a bot have insertions of their own.
pub(crate) fn event(chance: &mut Chance, now: i64, ids: &[String], is_bot: bool) -> Increment {
    let at = match chance.below(20) {
        _ if is_bot => now - chance.between(0, 600),
        0..10 => now - chance.between(0, HOUR),
        10..13 => now - chance.between(0, DAY),
        13 => now + chance.between(0, DAY),
        14..16 => now - now % DAY + chance.between(-1, 0),
        16..18 => now - chance.between(DAY, 3 * DAY),
        _ => now - chance.between(3 * DAY, 50 * DAY),
    };
    let (kind, entities) = *chance.pick(&KINDS);
    let some = |chance: &mut Chance, of: &[&str]| {
        chance.percent(70).then(|| (*chance.pick(of)).to_owned())
    };
    let mut keys: Vec<(String, &str)> = Vec::new();
    for (number, entity) in entities.iter().enumerate() {
        if number == 0 || chance.percent(60) {
            let key = *chance.pick(&KEYS);
            keys.push((format!("{entity}_{kind}"), key));
        }
    }
    let insertion = some(chance, &["i", "an insertion of many words", "7"]);
    let insertion = if is_bot {
        Some(format!("{}", chance.below(1_000_000)))
    } else {
        insertion
    };
    let event = Event {
        kind: kind.to_owned(),
        view: some(chance, &VIEWS),
        correction: false,
    };
    let id = match chance.below(10) {
        0..2 if !ids.is_empty() && !is_bot => Some(chance.pick(ids).clone()),
        0..5 => Some(format!("id {}", chance.below(1 << 40))),
        _ => None,
    };
    Increment {
        user: match is_bot {
            true => Some("bot".into()),
            false => some(chance, &USERS),
        },
        by: some(chance, &["US", "a country of some length"])
            .map(|country| ("c".into(), country.into()))
            .into_iter()
            .collect(),
        event: chance.percent(90).then(|| Box::new(event)),
        details: Details {
            insertion,
            ..Details::default()
        }
        .boxed(),
        id,
        n: match chance.below(10) {
            0 => 1 + chance.below(5),
            1 => 1 + chance.below(1 << 20),
            _ => 1,
        },
        ..Increment::new(at.max(TIME_MIN), 1, keys)
    }
}
