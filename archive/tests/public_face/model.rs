//! A naive model: increments are added up in a map and written as lines, without any of the code
//! under test.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::Line;

/// One increment of a key of `u`, broken down by country, referrer and both.
#[derive(Debug, Clone)]
pub(crate) struct Click {
    pub key: &'static str,
    pub code: &'static str,
    pub country: &'static str,
    pub referrer: &'static str,
    pub count: u64,
}

/// Stored keys: plain ones, some that sort around `.` and `,`, and hashes of long ones.
const KEYS: [&str; 8] = [
    "jehiah",
    "a",
    "a-b",
    "a+",
    "a~",
    "-",
    "KKKKKKKKKKK1",
    "KKKKKKKKKKK2",
];
const CODES: [&str; 6] = ["c413", "c41l", "c42", "c430", "c4un", "c411"];
const COUNTRIES: [&str; 4] = ["US", "JP", "-", "FR"];
const REFERRERS: [&str; 5] = [
    "-",
    "direct",
    "RRRRRRRRRRR1",
    "RRRRRRRRRRR2",
    "RRRRRRRRRRR3",
];

pub(crate) fn click() -> impl Strategy<Value = Click> {
    let select = prop::sample::select;
    (
        select(&KEYS[..]),
        select(&CODES[..]),
        select(&COUNTRIES[..]),
        select(&REFERRERS[..]),
        prop_oneof![4 => 1..4_u64, 1 => 1..1_u64 << 40],
    )
        .prop_map(|(key, code, country, referrer, count)| Click {
            key,
            code,
            country,
            referrer,
            count,
        })
}

/// The text behind a hash of the model.
fn text_of(hash: &str) -> String {
    format!("a text behind {hash}")
}

fn is_hash(stored: &str) -> bool {
    stored.len() == 12
}

/// The lines of these clicks: totals, subtotals and the lookups that they use.
pub(crate) fn lines_of<'c>(clicks: impl IntoIterator<Item = &'c Click>) -> Vec<Line> {
    let mut totals = BTreeMap::<String, BTreeMap<String, u64>>::new();
    let mut subtotals = BTreeMap::<String, BTreeMap<String, u64>>::new();
    let mut lookups = BTreeMap::<String, String>::new();
    for click in clicks {
        let Click {
            key,
            code,
            country,
            referrer,
            count,
        } = click;
        let add = |map: &mut BTreeMap<String, BTreeMap<String, u64>>, key, name| {
            *map.entry(key).or_default().entry(name).or_default() += count;
        };
        add(&mut totals, format!("u|{key}"), (*code).to_owned());
        for (subtotal, value) in [
            ("c", (*country).to_owned()),
            ("r", (*referrer).to_owned()),
            ("c*r", format!("{country}*{referrer}")),
        ] {
            add(&mut subtotals, format!("{subtotal}.u|{key}.{code}"), value);
        }
        for stored in [key, referrer].into_iter().filter(|stored| is_hash(stored)) {
            lookups.insert(format!("~{stored}"), text_of(stored));
        }
    }
    let mut lines = BTreeMap::<String, String>::new();
    for (key, hours) in totals {
        lines.insert(key, payload(hours.into_iter().collect()));
    }
    for (key, values) in subtotals {
        let mut values: Vec<(String, u64)> = values.into_iter().collect();
        values.sort_by_key(|(value, count)| (std::cmp::Reverse(*count), value.clone()));
        lines.insert(key, payload(values));
    }
    lines.extend(lookups);
    lines
        .into_iter()
        .map(|(key, payload)| (key.into_bytes(), payload.into_bytes()))
        .collect()
}

fn payload(entries: Vec<(String, u64)>) -> String {
    let entries = entries
        .iter()
        .map(|(name, count)| format!("{name}:{count}"));
    entries.collect::<Vec<_>>().join(" ")
}
