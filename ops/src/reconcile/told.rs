//! The result of a reconcile for people: a line for each event type, cause and key, and one about each day.

use serde_json::{Map, Value, json};
use tallyring_api::ReconcileOrder;
use tallyring_records::how_many;

use super::beside::Beside;
use crate::escape::visible;

/// The whole text. `beside` compares the rules of a what-if with those in force.
pub(super) fn told(order: &ReconcileOrder, result: &Value, beside: Option<&Beside>) -> String {
    let mut lines = Vec::new();
    match result["days"].as_array() {
        Some(days) => tell_days(order, (days, &result["sums"]), &mut lines),
        None => {
            tell_numbers(result, &mut lines);
            tell_ids(result, &mut lines);
            let day = order.days.to_string();
            lines.push(version_of(order, &day, result));
        }
    }
    if let Some(beside) = beside {
        if let Some(apply) = &beside.apply
            && let Some(last) = lines.last_mut()
        {
            last.push_str(&format!("; to apply these rules, {apply}"));
        }
        lines.push(match &beside.differs {
            None => "these rules are in force".into(),
            Some((names, _)) => format!("these rules differ from those in force: {names}"),
        });
    }
    lines.join("\n")
}

fn tell_days(order: &ReconcileOrder, (days, sums): (&[Value], &Value), lines: &mut Vec<String>) {
    let (mut new, mut failed) = (0_u64, 0_u64);
    for of in days {
        let day = of["day"].as_str().unwrap_or_default();
        lines.push(format!("{day}:"));
        tell_numbers(of, lines);
        tell_ids(of, lines);
        match of["error"].as_str() {
            Some(error) => {
                failed += 1;
                lines.push(format!("{day} failed: {}", visible(error)));
            }
            None => {
                new += u64::from(of["new"] == json!(true));
                lines.push(version_of(order, day, of));
            }
        }
        lines.push(String::new());
    }
    let of_all = match failed {
        0 => "all days:",
        _ => "all days that did not fail:",
    };
    lines.push(of_all.into());
    tell_numbers(sums, lines);
    let days = how_many(days.len() as u64, "day");
    let versions = match order.only_tells() {
        true => format!("nothing was published: {new} of {days} would have a new version"),
        false => format!("{new} of {days} have a new version"),
    };
    lines.push(match failed {
        0 => versions,
        failed => format!("{versions}, and {failed} failed"),
    });
}

/// The line about the version of a day.
fn version_of(order: &ReconcileOrder, day: &str, found: &Value) -> String {
    let version = &found["version"];
    let is_new = found["new"] == json!(true);
    let told = match (is_new, order.only_tells()) {
        (true, false) => return format!("version {version} of {day} is published"),
        (true, true) => format!("this would be version {version} of {day}"),
        (false, true) if order.rules.is_some() => {
            format!("version {version} of {day} stands, because nothing differs")
        }
        (false, _) => return format!("version {version} of {day} stands: nothing differs"),
    };
    let refused = found["guard"].as_str();
    let refused = refused.map_or(String::new(), |why| format!(", refused at first: {why}"));
    format!("nothing was published: {told}{refused}")
}

/// The line about ids of other days, where one was known.
fn tell_ids(found: &Value, lines: &mut Vec<String>) {
    let from = found["ids_from"].as_str().into_iter();
    lines.extend(from.map(|from| format!("ids that came since {from} were known")));
}

/// Lines with the sums of each event type.
fn tell_numbers(found: &Value, lines: &mut Vec<String>) {
    let none = Map::new();
    for (kind, sums) in found["types"].as_object().unwrap_or(&none) {
        lines.push(format!("{kind:<16} {:>16}", number(&sums["before"])));
        for (cause, n) in sums["causes"].as_object().unwrap_or(&none) {
            lines.push(format!("  {cause:<30} {:>+16}", n.as_i64().unwrap_or(0)));
            tell_keys(&found["by"]["types"][kind][cause], lines);
        }
        lines.push(format!("  {:<14} {:>16}", "final", number(&sums["after"])));
        tell_filtered(&sums["filtered"], lines);
    }
    for of in found["repeated"]["most"].as_array().into_iter().flatten() {
        let key = visible(of["key"].as_str().unwrap_or_default());
        let namespace = of["namespace"].as_str().unwrap_or_default();
        let (n, before) = (&of["n"], &of["before"]);
        lines.push(format!(
            "of {key} of {namespace}, {n} of {before} had counted twice"
        ));
    }
    if found["by"]["limited"] == json!(true) {
        lines.push("there are more keys than memory holds: later ones are in (others)".into());
    }
}

/// Lines with all that rules filter, by class and rule.
fn tell_filtered(filtered: &Value, lines: &mut Vec<String>) {
    let classes = filtered.as_object().into_iter().flatten();
    let classes = classes.map(|(class, of)| (class, of, number(&of["n"])));
    for (class, of, n) in classes.filter(|(.., n)| *n > 0) {
        let title = format!("filtered, {class}");
        lines.push(format!("  {title:<23} {n:>7}"));
        for (rule, n) in of["rules"].as_object().into_iter().flatten() {
            lines.push(format!("    {rule:<21} {:>7}", number(n)));
        }
    }
}

/// A sum, as a number that fills its column.
fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn tell_keys(sums: &Value, lines: &mut Vec<String>) {
    let mut tell = |key: &str, n: &Value| {
        let n = n.as_i64().unwrap_or(0);
        lines.push(format!("    {:<28} {n:>+16}", visible(key)));
    };
    for of in sums["keys"].as_array().into_iter().flatten() {
        tell(of["key"].as_str().unwrap_or_default(), &of["n"]);
    }
    for (name, told) in [("others", "(others)"), ("without", "(without a key)")] {
        if sums[name].as_i64().is_some_and(|n| n != 0) {
            tell(told, &sums[name]);
        }
    }
}
