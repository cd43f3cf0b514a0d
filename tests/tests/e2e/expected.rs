//! The counts that there must be: a plain list of clicks for each key.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tallyring_tests::needs::data_file;

use crate::calendar::Buckets;

/// The value of a click that lacks one.
pub(crate) const MISSING: &str = "-";

/// One click, or several of the same kind.
#[derive(Clone)]
pub(crate) struct Click {
    pub at: i64,
    pub n: u64,
    /// `(namespace, key)`
    pub keys: Vec<(&'static str, String)>,
    /// `(subtotal, value)`
    pub by: Vec<(&'static str, String)>,
}

impl Click {
    /// The value of a subtotal.
    fn value(&self, subtotal: &str) -> &str {
        let found = self.by.iter().find(|(name, _)| *name == subtotal);
        found.map_or(MISSING, |(_, value)| value)
    }

    /// As an item of `POST /v1/increments`.
    pub(crate) fn item(&self) -> Value {
        let map = |pairs: &[(&'static str, String)]| -> BTreeMap<_, _> {
            pairs.iter().cloned().collect()
        };
        json!({"at": self.at, "n": self.n, "keys": map(&self.keys), "by": map(&self.by)})
    }
}

/// Every click of every key.
#[derive(Default)]
pub(crate) struct Expected(BTreeMap<(&'static str, String), Vec<Click>>);

/// Counts of the values of a subtotal, largest first, ties by value.
pub(crate) type Ranking = Vec<(String, u64)>;

impl Expected {
    /// Counts clicks.
    pub(crate) fn add(&mut self, clicks: &[Click]) {
        for click in clicks {
            for key in &click.keys {
                self.0.entry(key.clone()).or_default().push(click.clone());
            }
        }
    }

    /// All keys.
    pub(crate) fn keys(&self) -> impl ExactSizeIterator<Item = &(&'static str, String)> {
        self.0.keys()
    }

    fn clicks(&self, key: &(&'static str, String)) -> &[Click] {
        self.0.get(key).map_or(&[], Vec::as_slice)
    }

    /// Total of each bucket. An hour counts where its start lies.
    pub(crate) fn totals(&self, key: &(&'static str, String), buckets: &Buckets) -> Vec<u64> {
        let mut totals = vec![0; buckets.count()];
        for click in self.clicks(key) {
            totals[buckets.holding(hour(click.at))] += click.n;
        }
        totals
    }

    /// Values of a subtotal in each bucket.
    pub(crate) fn rankings(
        &self,
        key: &(&'static str, String),
        subtotal: &str,
        buckets: &Buckets,
    ) -> Vec<Ranking> {
        let mut values = vec![BTreeMap::new(); buckets.count()];
        for click in self.clicks(key) {
            let bucket = &mut values[buckets.holding(hour(click.at))];
            *bucket.entry(click.value(subtotal)).or_insert(0) += click.n;
        }
        values.into_iter().map(ranked).collect()
    }

    /// Values of a subtotal over all of time.
    pub(crate) fn ranking(&self, key: &(&'static str, String), subtotal: &str) -> Ranking {
        let mut values = BTreeMap::new();
        for click in self.clicks(key) {
            *values.entry(click.value(subtotal)).or_insert(0) += click.n;
        }
        ranked(values)
    }
}

fn ranked(values: BTreeMap<&str, u64>) -> Ranking {
    let mut ranking: Ranking = values
        .into_iter()
        .map(|(value, count)| (value.to_owned(), count))
        .collect();
    // The sort is stable, so ties stay in the order of their values.
    ranking.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    ranking
}

fn hour(at: i64) -> i64 {
    at - at.rem_euclid(3_600)
}

/// The file of real bitly clicks; none (and a message) when it is not there.
pub(crate) fn bitly_file() -> Option<PathBuf> {
    data_file("bitly_usagov_2012-03-16.jsonl")
}

/// The clicks of that file, read without any of our code.
pub(crate) fn bitly_clicks(path: &Path) -> Vec<Click> {
    let text = fs::read_to_string(path).expect("read the clicks");
    let lines = text.lines().map(|line| {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    });
    let clicks = lines.filter(|line| line.get("_heartbeat_").is_none());
    clicks.map(|line| bitly_click(&line)).collect()
}

fn bitly_click(line: &Value) -> Click {
    let texts = |names: &[(&'static str, &str)]| {
        let named = names.iter();
        let found = named.filter_map(|(ours, theirs)| {
            let text = line[theirs].as_str().filter(|text| !text.is_empty())?;
            Some((*ours, text.to_owned()))
        });
        found.collect()
    };
    Click {
        at: line["t"].as_i64().expect("a time"),
        n: 1,
        keys: texts(&[("l", "g"), ("u", "l"), ("d", "hh")]),
        by: texts(&[("c", "c"), ("r", "r")]),
    }
}
