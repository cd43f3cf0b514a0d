//! Answers of a view to all kinds of questions.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Range;

use tallyring_realtime::{BooksView, Error, Ranking, Read, State, View};
use tallyring_records::{
    Day, MINUTES, Namespace, Schema, TIME_MAX, TIME_MIN, UserKey, Users, by_minute, is_hash,
};
use tallyring_tests::model::deeds;

use crate::life::{DAY, HOUR};

/// Users of events are numbered below it.
pub(crate) const USERS: u64 = 20;

#[derive(Default)]
pub(crate) struct Answers(BTreeMap<String, String>);

impl Answers {
    pub(crate) fn of(view: &View<'_>, now: i64) -> Self {
        let mut answers = Self::default();
        let schema = view.schema().clone();
        for namespace in &schema.namespaces {
            answers.namespace((view, namespace), now);
        }
        answers.people(view, now);
        answers.finals((view, &schema), now);
        answers
    }

    fn add(&mut self, what: impl Into<String>, found: impl Debug) {
        self.0.insert(what.into(), format!("{found:?}"));
    }

    /// The first question that others answer otherwise.
    pub(crate) fn difference(&self, expected: &Self) -> Option<String> {
        let mut questions = self.0.keys().chain(expected.0.keys());
        let differs = questions.find(|what| self.0.get(*what) != expected.0.get(*what))?;
        let of = |answers: &Self| answers.0.get(differs).cloned();
        Some(format!(
            "`{differs}`:\n{:?}\nand not\n{:?}",
            of(self),
            of(expected)
        ))
    }

    fn namespace(&mut self, (view, namespace): (&View<'_>, &Namespace), now: i64) {
        let name = &*namespace.name;
        let hour = now - now.rem_euclid(HOUR);
        let ranges = [
            TIME_MIN..TIME_MAX,
            hour - DAY..hour + HOUR,
            hour - 2 * HOUR..hour + HOUR,
            hour - HOUR..hour,
            hour - 3 * HOUR + 600..hour + 1_320,
        ];
        let mut keys = Vec::new();
        for range in &ranges {
            let exact = top(view, namespace, range, (1_000, true), None);
            self.add(format!("top {name} {range:?}"), told(&exact));
            keys.extend(exact.keys.iter().map(|top| top.key.clone()).take(6));
            for limit in [0, 1, 3] {
                let few = top(view, namespace, range, (limit, true), None);
                assert_eq!(
                    told(&few),
                    (
                        exact.total,
                        &exact.keys[..limit.min(exact.keys.len())],
                        exact.is_cut
                    )
                );
                let near = top(view, namespace, range, (limit, false), None);
                if near.bound.is_none() {
                    assert_eq!(near.keys, few.keys);
                }
                assert!(near.keys.iter().all(|key| exact.keys.contains(key)));
            }
        }
        let days = hour - hour.rem_euclid(DAY) - 3 * DAY..hour + HOUR;
        for minutes in [false, true] {
            if namespace.minutes || !minutes {
                let totals = view.totals(name, days.clone(), minutes, None);
                self.add(format!("totals {name} {minutes}"), totals.expect("totals"));
            }
        }
        for subtotal in &namespace.subtotals {
            let of = (name, subtotal.as_str());
            let values = view.values(of, TIME_MIN..TIME_MAX, days.clone(), None);
            let values = values.expect("values");
            let sums = values.values.iter().zip(&values.sums);
            let sums = sums.map(|(value, sum)| (view.expand(&values, value).expect("texts"), *sum));
            let sums: BTreeMap<Vec<String>, u64> = sums.collect();
            self.add(format!("values {of:?}"), (&values.totals, sums));
        }
        keys.sort();
        keys.dedup();
        for key in keys {
            self.key(view, (namespace, &key), None, &ranges[1]);
        }
    }

    /// All that a key has.
    fn key(
        &mut self,
        view: &View<'_>,
        (namespace, key): (&Namespace, &str),
        as_of: Option<u64>,
        day: &Range<i64>,
    ) {
        let name = &*namespace.name;
        let mut by: Vec<(Option<String>, Range<i64>)> = vec![(None, TIME_MIN..TIME_MAX)];
        let subtotals = namespace.subtotals.iter();
        by.extend(subtotals.map(|name| (Some(name.clone()), TIME_MIN..TIME_MAX)));
        if namespace.minutes && as_of.is_none() {
            by.push((Some(MINUTES.to_owned()), TIME_MIN..TIME_MAX));
            let recent = day.end - 3 * HOUR..day.end;
            let subtotals = namespace.subtotals.iter();
            by.extend(subtotals.map(|name| (Some(by_minute(name)), recent.clone())));
        }
        for (subtotal, range) in by {
            for rolled in [None, Some(day.clone())] {
                let read = read((name, key), subtotal.as_deref(), &range, rolled.clone());
                let series = view.read(&read, as_of).expect("counts");
                let mut values: BTreeMap<(String, Vec<String>), u64> = BTreeMap::new();
                let text =
                    |value: usize| view.expand(&series, &series.values[value]).expect("texts");
                for point in &series.points {
                    let at = format!("{:?}", point.code);
                    *values.entry((at, text(point.value as usize))).or_default() += point.count;
                }
                for (value, sum) in series.sums.iter().enumerate() {
                    *values.entry((String::new(), text(value))).or_default() += sum;
                }
                let what = format!("key {name} {key} {subtotal:?} {rolled:?} {as_of:?}");
                let cached = view.read_cached(&read, as_of).expect("counts");
                assert!(cached.is_none_or(|cached| cached.totals == series.totals));
                self.add(what, (&series.totals, values));
                if let Some((first, _)) = series.totals.iter().next()
                    && as_of.is_none()
                {
                    let stored = view.stored(key);
                    let text = view.text_at((name, &*stored), &stored, first.start());
                    let text = text.expect("a text");
                    assert!(!is_hash(&*stored) || text == key, "{stored} is {text}");
                }
            }
        }
        let minutes = [None, Some(MINUTES)];
        let of_minutes = minutes
            .iter()
            .filter(|by| by.is_none() || namespace.minutes && as_of.is_none());
        for by in of_minutes.filter(|_| namespace.uniques) {
            let users = view.users(read((name, key), *by, &(TIME_MIN..TIME_MAX), None), as_of);
            let users = users.expect("users");
            let number = |start: i64| usize::try_from(start / 60).ok();
            // Older users by minute may be forgotten.
            let span = match by {
                None => TIME_MIN..TIME_MAX,
                Some(_) => day.end - 3 * HOUR..day.end,
            };
            let united = users.unite(&span, number).expect("users");
            let estimates = united
                .iter()
                .map(|(at, users)| (*at, Users::estimate(users)));
            let estimates: BTreeMap<usize, u64> = estimates.collect();
            self.add(format!("users {name} {key} {by:?} {as_of:?}"), estimates);
        }
    }

    fn people(&mut self, view: &View<'_>, now: i64) {
        let users: Vec<String> = (0..USERS).map(|number| format!("user {number}")).collect();
        for range in [now - 60 * DAY..now + DAY, now - 30 * HOUR..now - 600] {
            let did = deeds(view, &users, &range).expect("actions");
            self.add(format!("actions {range:?}"), did);
            let mut all: BTreeMap<UserKey, BTreeMap<_, u64>> = BTreeMap::new();
            let mut last = None;
            let pass = view.all_actions(&range, &mut |user, at, action, n| {
                assert!(
                    last == Some(user) || !all.contains_key(&user),
                    "a user comes once"
                );
                last = Some(user);
                let did = (at, action.what.to_vec(), action.tag, action.by_hour);
                *all.entry(user).or_default().entry(did).or_default() += n;
            });
            pass.expect("actions");
            let span = view.actions_span();
            let inside = |at: &i64| span.contains(at);
            assert!(all.values().flatten().all(|((at, ..), _)| inside(at)));
            self.add(format!("all actions {range:?}"), all);
        }
        self.add("actions from", view.actions_from());
    }

    fn finals(&mut self, (view, schema): (&View<'_>, &Schema), now: i64) {
        for namespace in &schema.namespaces {
            let name = &*namespace.name;
            let states = view.states(&[name], now - 10 * HOUR, None);
            self.add(
                format!("final until {name}"),
                (states.has_finals(), states.final_until()),
            );
            for ago in -1..12 {
                let day = Day::of(now - ago * DAY);
                let range = day.start()..day.next().start();
                let state = Some(states.of(&range)).filter(|state| *state >= State::Corrected);
                self.add(
                    format!("state {name} {day}"),
                    (state, states.is_before_store(day)),
                );
                match view.books(&[(name, None)], &range, None) {
                    Err(error) => self.add(format!("books {name} {day}"), error_of(&error)),
                    Ok(books) => self.books(&books, (namespace, &range)),
                }
            }
        }
    }

    fn books(&mut self, books: &BooksView<'_>, (namespace, range): (&Namespace, &Range<i64>)) {
        let as_of = Some(BooksView::AS_OF);
        let all = top(books.view(), namespace, range, (1_000, true), as_of);
        self.add(format!("books {} {range:?}", namespace.name), told(&all));
        for key in all.keys.iter().take(3) {
            self.key(books.view(), (namespace, &key.key), as_of, range);
        }
    }
}

/// Times settle with the last strand, and no generation is kept of all strands.
pub(crate) fn compare_settled(one: &View<'_>, strands: &View<'_>, now: i64) {
    for namespace in &one.schema().namespaces {
        let [one, strands] = [one, strands].map(|of| of.settled_until(&namespace.name, None, now));
        assert!(strands <= one);
    }
    let none = strands.read(
        &read(("l", "a"), None, &(TIME_MIN..TIME_MAX), None),
        Some(1),
    );
    assert!(matches!(none, Err(Error::ManyGenerations { number: 1 })));
    assert_eq!(
        (
            one.position().offsets().len(),
            strands.position().offsets().len()
        ),
        (1, 3)
    );
}

fn error_of(error: &Error) -> &'static str {
    match error {
        Error::NotFinal { .. } => "not final",
        Error::Loaded { .. } => "loaded",
        error => panic!("{error}"),
    }
}

fn read(
    (namespace, key): (&str, &str),
    subtotal: Option<&str>,
    range: &Range<i64>,
    rolled: Option<Range<i64>>,
) -> Read {
    Read {
        namespace: namespace.into(),
        key: key.into(),
        subtotal: subtotal.map(Into::into),
        from: range.start,
        to: range.end,
        rolled,
    }
}

fn top(
    view: &View<'_>,
    namespace: &Namespace,
    range: &Range<i64>,
    of: (usize, bool),
    as_of: Option<u64>,
) -> Ranking {
    let by_minute = namespace.minutes && as_of.is_none();
    let ranking = view.top(&namespace.name, range.clone(), by_minute, of, as_of);
    ranking.expect("a ranking")
}

/// Which span was counted, and in which grain, depends on the files.
fn told(ranking: &Ranking) -> (u64, &[tallyring_realtime::TopKey], bool) {
    (ranking.total, &ranking.keys, ranking.is_cut)
}
