//! Keys that are found by their text over strands, page by page, against a map: in memory, in runs and in archives,
//! with datasets that come and go, and with files that are made anew between two pages.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use tallyring_realtime::{
    Effort, FoundKey, KeyPlace, KeySearch, KeyText, Options, Read, Reading, View,
};
use tallyring_records::{Increment, MINUTES};
use tallyring_tests::model::{Chance, ManualClock, schema};

use crate::life::{DAY, HOUR, Kept, START};

const SEEDS: u64 = 6;
const STEPS: u64 = 14;
/// Beginnings of keys: plain ones, and those with which every key is a long one.
const BEGINNINGS: [&str; 7] = ["a", "ab", "Ab", "日", "aB-", "a b ", "https://a.example/"];
/// `l` has hours, and `q` minutes.
const NAMESPACES: [&str; 2] = ["l", "q"];

/// Counts by namespace, key and time.
type Model = BTreeMap<(String, String, i64), u64>;

struct Life {
    dice: Chance,
    strands: Vec<Kept>,
    logged: Model,
    /// Datasets by name. The first strand has all.
    loaded: BTreeMap<String, Model>,
    pages: u64,
}

#[test]
fn keys_that_are_found_are_those_of_a_map_whatever_happens_between_two_pages() {
    let mut pages = 0;
    for seed in 1..=SEEDS {
        let mut dice = Chance::new(seed);
        let clock = Arc::new(ManualClock::new(START * 1_000, true));
        let strands = (0..3).map(|_| Kept::new(&mut dice, &clock, Options::default().cache_bytes));
        let mut life = Life {
            strands: strands.collect(),
            dice,
            logged: Model::new(),
            loaded: BTreeMap::new(),
            pages: 0,
        };
        for step in 0..STEPS {
            match life.dice.below(6) {
                0..3 => life.send(),
                3 => life.work(),
                4 => life.load(step),
                _ => life.drop_dataset(),
            }
            for _ in 0..4 {
                life.search(&format!("seed {seed}, step {step}"));
            }
        }
        pages += life.pages;
    }
    assert!(pages > 2_000, "only {pages} pages");
}

impl Life {
    fn key(&mut self) -> String {
        let beginning = *self.dice.pick(&BEGINNINGS);
        format!("{beginning}{}", self.dice.below(40))
    }

    fn at(&mut self) -> i64 {
        START - self.dice.between(0, 40 * 24 * 60) * 60
    }

    /// Values are texts like those of keys, and stand among their lookups.
    fn send(&mut self) {
        let mut by_strand: Vec<Vec<Increment>> = vec![Vec::new(); self.strands.len()];
        for _ in 0..60 {
            let (at, key, value) = (self.at(), self.key(), self.key());
            let name = *self.dice.pick(&NAMESPACES);
            let mut increment = Increment::new(at, 1, [(name, key.clone())]);
            increment.by = vec![("c".into(), value.into())];
            *self.logged.entry((name.into(), key, at)).or_default() += 1;
            let strand = self.dice.below(3) as usize;
            by_strand[strand].push(increment);
        }
        for (strand, increments) in self.strands.iter().zip(by_strand) {
            strand.count(increments);
        }
    }

    /// Flushes or rebuilds a strand.
    fn work(&mut self) {
        let strand = &self.strands[self.dice.below(3) as usize];
        match self.dice.percent(50) {
            true => strand.store().ledger().flush().expect("flushed"),
            false => strand.rebuild(),
        }
    }

    fn load(&mut self, step: u64) {
        let name = format!("history-{step}");
        let mut of = Model::new();
        let mut rows = String::new();
        for _ in 0..8 {
            let at = START - START % HOUR - self.dice.between(50, 90) * DAY;
            let (key, count) = (self.key(), 1 + self.dice.below(9));
            rows += &format!(
                "{{\"namespace\":\"l\",\"key\":\"{key}\",\"hour\":{at},\"count\":{count}}}\n"
            );
            *of.entry(("l".into(), key, at)).or_default() += count;
        }
        assert!(self.strands[0].load(&name, (schema(0), &rows), false));
        // It counts from the next generation on.
        self.strands[0].rebuild();
        self.loaded.insert(name, of);
    }

    fn drop_dataset(&mut self) {
        if let Some((name, _)) = self.loaded.pop_first() {
            let ledger = self.strands[0].store().ledger();
            ledger.drop_dataset(&name).expect("dropped");
        }
        self.strands[0].rebuild();
    }

    fn expected(&self, name: &str, text: &KeyText, ranges: &[Range<i64>]) -> Vec<FoundKey> {
        let mut sums: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for ((of, key, at), count) in [&self.logged]
            .into_iter()
            .chain(self.loaded.values())
            .flatten()
        {
            let is_wanted = match text {
                KeyText::Any => true,
                KeyText::Prefix(text) => key.starts_with(text),
                KeyText::Contains(text) => {
                    let text = text.to_ascii_lowercase();
                    key.to_ascii_lowercase().contains(&text)
                }
            };
            for (number, range) in ranges.iter().enumerate() {
                if of == name && is_wanted && range.contains(at) {
                    sums.entry(key).or_insert_with(|| vec![0; ranges.len()])[number] += count;
                }
            }
        }
        let keys = sums.into_iter();
        keys.map(|(key, counts)| FoundKey {
            key: key.to_owned(),
            counts,
        })
        .collect()
    }

    fn text(&mut self) -> KeyText {
        let key = self.key();
        let ends = key.char_indices().map(|(at, _)| at).skip(1);
        let ends: Vec<usize> = ends.chain([key.len()]).collect();
        let to = *self.dice.pick(&ends);
        match self.dice.below(5) {
            0 => KeyText::Any,
            1..3 => KeyText::Prefix(key[..to].to_owned()),
            _ => {
                let from = *self.dice.pick(&ends[..ends.len() - 1]);
                let part = match from < to {
                    true => &key[from..to],
                    false => &key[from..],
                };
                KeyText::Contains(match self.dice.percent(50) {
                    true => part.to_ascii_uppercase(),
                    false => part.to_owned(),
                })
            }
        }
    }

    fn search(&mut self, when: &str) {
        let name = *self.dice.pick(&NAMESPACES);
        let text = self.text();
        let end = START - START % HOUR + HOUR;
        let mut start = end - self.dice.between(1, 95) * DAY;
        let minutes = name == "q" && self.dice.percent(50);
        if minutes {
            start = end - self.dice.between(1, 39 * 24 * 60) * 60;
        }
        let before = self.dice.percent(30).then(|| start - 10 * DAY..start);
        let ranges = [Some(start..end), before].into_iter().flatten();
        let ranges: Vec<Range<i64>> = ranges.collect();
        let periods: Vec<(Read, Range<i64>)> = (ranges.iter())
            .map(|range| {
                let width = if minutes { HOUR } else { 1 };
                let read = Read {
                    namespace: name.to_owned(),
                    key: String::new(),
                    subtotal: minutes.then(|| MINUTES.to_owned()),
                    from: range.start - range.start.rem_euclid(width),
                    to: range.end + (-range.end).rem_euclid(width),
                    rolled: None,
                };
                (read, range.clone())
            })
            .collect();
        let mut found = self.pages(&text, &periods);
        let first_long = found.iter().position(|found| is_long(&found.key));
        let plain = &found[..first_long.unwrap_or(found.len())];
        if text != KeyText::Any {
            assert!(
                plain.is_sorted_by(|a, b| a.key < b.key),
                "{when}: {plain:?}"
            );
            let long = &found[plain.len()..];
            assert!(long.iter().all(|of| is_long(&of.key)), "{when}: {long:?}");
        }
        found.sort_by(|a, b| a.key.cmp(&b.key));
        let expected = self.expected(name, &text, &ranges);
        assert_eq!(found, expected, "{when}: {text:?} of {name} in {ranges:?}");
    }

    /// All pages, with work between them, and each as short as chance will have it.
    fn pages(&mut self, text: &KeyText, periods: &[(Read, Range<i64>)]) -> Vec<FoundKey> {
        let (mut all, mut next) = (Vec::new(), Some(KeyPlace::default()));
        while let Some(place) = next.take() {
            self.pages += 1;
            let limit = 1 + self.dice.below(30) as usize;
            let bytes = *self.dice.pick(&[0, 1, 100_000, u64::MAX]);
            let looks = Cell::new(self.dice.below(8));
            let is_over = || looks.replace(looks.get().saturating_sub(1)) == 0;
            let is_over: &dyn Fn() -> bool = match self.dice.percent(30) {
                true => &is_over,
                false => &|| false,
            };
            let search = KeySearch {
                text,
                periods,
                as_of: None,
                at_once: 1 + self.dice.below(limit as u64) as usize,
            };
            let lives = self.strands.iter().map(|kept| kept.store().live());
            let view = View::over(lives, Reading::new(self.strands[0].store().read_budget()));
            let mut listed = 0;
            let mut effort = Effort::new(bytes, is_over);
            let searched = view.find_keys(&search, place.clone(), &mut effort, &mut |found| {
                listed += 1;
                all.push(found);
                Ok(match listed < limit {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                })
            });
            next = searched.expect("searched").next;
            assert_ne!(next.as_ref(), Some(&place), "a search comes on");
            next = next.map(|next| KeyPlace::parse(&next.to_string()).expect("a place"));
            if self.dice.percent(2) {
                self.work();
            }
        }
        all
    }
}

/// True for a key that is stored as a hash.
fn is_long(key: &str) -> bool {
    key.len() >= 12 || key.contains([' ', ':', '.'])
}
