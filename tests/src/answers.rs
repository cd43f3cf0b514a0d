//! Answers of a store to all kinds of questions, by which nodes are compared.

use std::collections::BTreeMap;

use tallyring_realtime::{Read, Reading, Store, View};
use tallyring_records::{TIME_MAX, TIME_MIN, Users};

use crate::model::deeds;

/// Answers of a store to all kinds of questions, for comparison with another node at the same position. `now` is in
/// Unix seconds. A store of several strands has several here, in their order.
pub fn answers(strands: &[&Store], now: i64, ids: &[String]) -> BTreeMap<String, String> {
    let first = strands[0];
    let lives = strands.iter().map(|store| store.live());
    let view = View::over(lives, Reading::new(first.read_budget()));
    let mut answers = BTreeMap::new();
    let mut answer = |what: String, found: String| {
        answers.insert(what, found);
    };
    answer("keys".into(), format!("{:?}", first.intake().keys()));
    let schema = first.schema();
    answer("schema".into(), format!("{schema:?}"));
    for namespace in &schema.namespaces {
        let name = &namespace.name;
        let hour = now - now.rem_euclid(3_600);
        let days = hour - 86_400..hour + 86_400;
        let ranges = [TIME_MIN..TIME_MAX, days.clone(), hour - 7_200..hour + 3_600];
        let mut keys = Vec::new();
        for range in ranges {
            let top = view.top(name, range.clone(), namespace.minutes, (1_000, true), None);
            let top = top.expect("a ranking");
            // Which span was counted, and in which grain, depends on the files that a node has.
            let ranking = (top.total, &top.keys, top.is_cut);
            answer(format!("top {name} {range:?}"), format!("{ranking:?}"));
            keys.extend(top.keys.into_iter().map(|top| top.key).take(9));
        }
        let totals = view.totals(name, days, namespace.minutes, None);
        answer(
            format!("totals {name}"),
            format!("{:?}", totals.expect("totals").totals),
        );
        let settled = view.settled_until(name, None, now);
        answer(format!("settled {name}"), settled.to_string());
        keys.sort();
        keys.dedup();
        for key in keys {
            let of_key = of_key(&view, (name.as_str(), key.as_str()), &namespace.subtotals);
            answer(format!("key {name} {key}"), of_key);
            if namespace.uniques {
                let users = view.users(read(name, &key, None), None).expect("users");
                let users = users.unite(&(TIME_MIN..TIME_MAX), |_| Some(0));
                let users = users.expect("users").remove(&0);
                let users = users.as_ref().map_or(0, Users::estimate);
                answer(format!("users {name} {key}"), users.to_string());
            }
        }
    }
    let users: Vec<String> = (0..20).map(|number| format!("user {number}")).collect();
    let did = deeds(&view, &users, &(TIME_MIN..TIME_MAX)).expect("actions");
    answer("actions".into(), format!("{did:?}"));
    answers.extend(of_strands(strands, ids));
    answers
}

/// Answers that strands have each for itself: how far they are, their files, and the ids that they know.
fn of_strands(strands: &[&Store], ids: &[String]) -> BTreeMap<String, String> {
    let mut answers = BTreeMap::new();
    let mut answer = |what: String, found: String| {
        answers.insert(what, found);
    };
    let mut of_each = |what: &str, of: &dyn Fn(&Store) -> String| {
        let each: Vec<String> = strands.iter().map(|store| of(store)).collect();
        answer(what.to_owned(), each.join(","));
    };
    of_each("position", &|store| {
        store.live().applied().sequence.to_string()
    });
    of_each("manifest", &|store| store.manifest().number.to_string());
    of_each("today", &|store| store.status().today.to_string());
    for id in ids {
        let histories = strands.iter();
        let histories = histories.map(|store| store.intake().id_history(None, id));
        let history = histories.reduce(|all, more| Ok(all?.and(more?)));
        let mut history = history.expect("a strand").expect("a history");
        // A later repeat is noted where the first one is forgotten, and each node forgets when it reads a manifest.
        history.again.truncate(1);
        answer(format!("id {id}"), format!("{history:?}"));
    }
    for (strand, store) in strands.iter().enumerate() {
        for id in store.live().store_ids() {
            let points = store.live().points(id).expect("counters");
            answer(format!("store {strand} {id}"), format!("{points:?}"));
        }
    }
    answers
}

/// All that a key has counted.
///
/// # Panics
/// When the store cannot read it.
pub fn total(store: &Store, namespace: &str, key: &str) -> u64 {
    let series = store.view().read(&read(namespace, key, None), None);
    series.expect("a view").totals.sum()
}

fn read(namespace: &str, key: &str, subtotal: Option<&str>) -> Read {
    Read {
        namespace: namespace.into(),
        key: key.into(),
        subtotal: subtotal.map(Into::into),
        from: TIME_MIN,
        to: TIME_MAX,
        rolled: None,
    }
}

/// Totals of a key, and the values of its subtotals.
fn of_key(view: &View<'_>, (name, key): (&str, &str), subtotals: &[String]) -> String {
    let mut all = Vec::new();
    let none = std::iter::once(None);
    for subtotal in none.chain(subtotals.iter().map(Some)) {
        let series = view.read(&read(name, key, subtotal.map(String::as_str)), None);
        let series = series.expect("counts");
        let mut values: BTreeMap<(String, Vec<String>), u64> = BTreeMap::new();
        for point in &series.points {
            let value = &series.values[point.value as usize];
            let texts = view.expand(&series, value).expect("texts");
            *values
                .entry((format!("{:?}", point.code), texts))
                .or_default() += point.count;
        }
        all.push(format!("{subtotal:?} {:?} {values:?}", series.totals));
    }
    all.join("\n")
}

/// The first question that the second of two stores answers otherwise than the first.
pub fn difference(
    answers: &BTreeMap<String, String>,
    others: &BTreeMap<String, String>,
) -> Option<String> {
    let questions = answers.keys().chain(others.keys());
    let mut differ = questions.filter(|what| answers.get(*what) != others.get(*what));
    differ.next().map(|what| {
        let of = |answers: &BTreeMap<String, String>| answers.get(what).cloned();
        format!("`{what}`: {:?} and {:?}", of(answers), of(others))
    })
}
