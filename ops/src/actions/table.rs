//! Answers about actions for people, and as rows of a file.

use std::fmt::Write as _;

use serde_json::Value;
use tallyring_records::grouped;

use crate::escape::{line, visible};

const APPROXIMATE: &str = "note: some of these actions are known by their hour alone";
/// Cells of the longest bar.
const BAR_CELLS: u64 = 30;

/// Rows of user, range, action, view, entity, key and count.
pub(super) fn count_rows(answer: &Value) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for (user, ranges) in fields(&answer["users"]) {
        for (range, actions) in fields(ranges) {
            for (action, of_action) in fields(actions) {
                // Views stand between where each has counts of its own: one level more.
                let is_by_view = fields(of_action)
                    .flat_map(|(_, of)| fields(of))
                    .any(|(_, count)| count.is_object());
                let views: Vec<(&str, &Value)> = match is_by_view {
                    true => fields(of_action).collect(),
                    false => vec![("", of_action)],
                };
                for (view, entities) in views {
                    for (entity, keys) in fields(entities) {
                        for (key, count) in fields(keys) {
                            let names = [user, range, action, view, entity, key];
                            let mut row = names.map(str::to_owned).to_vec();
                            row.push(count.to_string());
                            rows.push(row);
                        }
                    }
                }
            }
        }
    }
    rows
}

/// A line for each user, action, view and key, with a column for each of these ranges.
pub(super) fn counts(ranges: &[String], answer: &Value) -> String {
    let mut lines: Vec<(Vec<String>, Vec<String>)> = Vec::new();
    for row in count_rows(answer) {
        let [user, range, action, view, entity, key, count] = cells(row);
        let name = vec![user, action, view, format!("{entity} {key}")];
        let index = match lines.iter().position(|(known, _)| *known == name) {
            Some(index) => index,
            None => {
                lines.push((name, vec![String::new(); ranges.len()]));
                lines.len() - 1
            }
        };
        let columns = ranges.iter().zip(&mut lines[index].1);
        for (_, column) in columns.filter(|(asked, _)| **asked == range) {
            *column = grouped(count.parse().unwrap_or(0_u64));
        }
    }
    let has_views = lines.iter().any(|(name, _)| !name[2].is_empty());
    let head = ["user", "action", "view", "of"].map(str::to_owned).to_vec();
    lines.insert(0, (head, ranges.to_vec()));
    let rows = lines.into_iter().map(|(mut name, counts)| {
        if !has_views {
            name.remove(2);
        }
        (name, counts)
    });
    let mut text = aligned(rows);
    if answer["approximate"] == Value::Bool(true) {
        line(&mut text, APPROXIMATE);
    }
    text
}

/// Rows of candidate, allowed, cap, count, limit, again_at and below_floor.
pub(super) fn verdict_rows(answer: &Value) -> Vec<Vec<String>> {
    let asked = items(&answer["asked"]);
    let verdicts = items(&answer["candidates"]);
    let row = |(asked, verdict): (&Value, &Value)| {
        let by = &verdict["by"];
        let of_cap = ["cap", "count", "limit", "again_at"].map(|name| cell(&by[name]));
        let mut row = vec![entities(asked, ","), cell(&verdict["allowed"])];
        row.extend(of_cap);
        row.push(cell(&verdict["below_floor"]));
        row
    };
    asked.iter().zip(verdicts).map(row).collect()
}

/// A line for each candidate.
pub(super) fn verdicts(answer: &Value) -> String {
    let rows = verdict_rows(answer).into_iter().map(|row| {
        let [candidate, allowed, cap, count, limit, again_at, below] = cells(row);
        let mut verdict = match allowed.as_str() {
            "true" => "yes".to_owned(),
            _ => {
                let until = match again_at.as_str() {
                    "" => "never again".to_owned(),
                    again => format!("again at {again}"),
                };
                format!("no   {cap}: {count} of {limit}, {until}")
            }
        };
        if below == "true" {
            verdict.push_str("  (below its floor)");
        }
        (vec![candidate, verdict], Vec::new())
    });
    aligned(rows)
}

/// Rows of times, or_more and users.
pub(super) fn frequency_rows(answer: &Value) -> Vec<Vec<String>> {
    let row = |row: &Value| {
        ["times", "or_more", "users"]
            .map(|name| cell(&row[name]))
            .to_vec()
    };
    items(&answer["frequency"]).iter().map(row).collect()
}

/// Reach, the average, and a bar for the users of each number of times.
pub(super) fn frequencies(title: &str, answer: &Value) -> String {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let (reach, actions) = (number(&answer["reach"]), number(&answer["actions"]));
    let mut text = String::new();
    line(&mut text, title);
    if reach == 0 {
        line(&mut text, "nobody was reached");
        return text;
    }
    let average = actions as f64 / reach as f64;
    line(&mut text, &format!("reach    {:>12}", grouped(reach)));
    line(&mut text, &format!("actions  {:>12}", grouped(actions)));
    line(&mut text, &format!("average  {average:>12.2}"));
    line(
        &mut text,
        &format!("{:>5}  {:>12}  {:>6}", "times", "users", "share"),
    );
    let rows = items(&answer["frequency"]);
    let last = rows.iter().rposition(|row| number(&row["users"]) > 0);
    let rows = &rows[..last.map_or(0, |last| last + 1)];
    let most = rows.iter().map(|row| number(&row["users"])).max();
    for row in rows {
        let users = number(&row["users"]);
        let more = if row["or_more"] == Value::Bool(true) {
            "+"
        } else {
            ""
        };
        let times = format!("{}{more}", number(&row["times"]));
        let share = 100.0 * users as f64 / reach as f64;
        let bar = bar(users, most.unwrap_or(1));
        line(
            &mut text,
            &format!("{times:>5}  {:>12}  {share:>5.1}%  {bar}", grouped(users)),
        );
    }
    if answer["approximate"] == Value::Bool(true) {
        line(&mut text, APPROXIMATE);
    }
    text
}

/// Rows of at, by_hour, type, view, entities, insertion and n.
pub(super) fn deed_rows(answer: &Value) -> Vec<Vec<String>> {
    rows_of_deeds(answer, ",")
}

fn rows_of_deeds(answer: &Value, between: &str) -> Vec<Vec<String>> {
    let row = |deed: &Value| {
        let n = deed["n"].as_u64().unwrap_or(1);
        vec![
            cell(&deed["at"]),
            cell(&deed["by_hour"]),
            cell(&deed["type"]),
            cell(&deed["view"]),
            entities(&deed["entities"], between),
            cell(&deed["insertion"]),
            n.to_string(),
        ]
    };
    items(&answer["actions"]).iter().map(row).collect()
}

/// A line for each action.
pub(super) fn deeds(answer: &Value) -> String {
    let user = cell(&answer["user"]);
    let rows = rows_of_deeds(answer, " ");
    if rows.is_empty() {
        let mut text = String::new();
        line(&mut text, &format!("nothing is kept of {user}"));
        return text;
    }
    let head = ["time", "action", "view", "of", "insertion"];
    let head = (head.map(str::to_owned).to_vec(), vec!["n".to_owned()]);
    let rows = rows.into_iter().map(|row| {
        let [at, by_hour, kind, view, of, insertion, n] = cells(row);
        let at = match by_hour.as_str() {
            "true" => format!("{at} + 1 h"),
            _ => at,
        };
        (vec![at, kind, view, of, insertion], vec![n])
    });
    let mut text = aligned(std::iter::once(head).chain(rows));
    if let Some(from) = answer["kept_from"].as_str() {
        line(
            &mut text,
            &format!("note: actions before {from} may be gone"),
        );
    }
    if !answer["next"].is_null() {
        line(&mut text, "note: there are older ones; --limit gives more");
    }
    text
}

/// Lines of names at the left and numbers at the right of their columns.
fn aligned(rows: impl Iterator<Item = (Vec<String>, Vec<String>)>) -> String {
    let (names, numbers): (Vec<_>, Vec<_>) = rows.unzip();
    let (names, numbers) = (shown(names), shown(numbers));
    let widths = (widths(&names), widths(&numbers));
    let mut text = String::new();
    for (of_row, numbers_of_row) in names.iter().zip(&numbers) {
        let mut row = String::new();
        for (name, width) in of_row.iter().zip(&widths.0) {
            let _ = write!(row, "{name:<width$}  ");
        }
        for (number, width) in numbers_of_row.iter().zip(&widths.1) {
            let _ = write!(row, "{number:>width$}  ");
        }
        line(&mut text, &row);
    }
    text
}

/// The cells with control characters escaped.
fn shown(rows: Vec<Vec<String>>) -> Vec<Vec<String>> {
    let shown = |row: Vec<String>| row.iter().map(|cell| visible(cell).into_owned()).collect();
    rows.into_iter().map(shown).collect()
}

/// Characters of the longest cell of each column.
fn widths(rows: &[Vec<String>]) -> Vec<usize> {
    let mut widths = Vec::new();
    for row in rows {
        widths.resize(widths.len().max(row.len()), 0);
        for (cell, width) in row.iter().zip(&mut widths) {
            *width = cell.chars().count().max(*width);
        }
    }
    widths
}

/// `ad=42,campaign=7`
fn entities(of: &Value, between: &str) -> String {
    let pairs = fields(of).map(|(name, key)| format!("{name}={}", cell(key)));
    pairs.collect::<Vec<_>>().join(between)
}

/// The cells of a row of so many columns.
fn cells<const N: usize>(row: Vec<String>) -> [String; N] {
    row.try_into()
        .expect("BUG: a row has a cell for each column")
}

/// A text, or a number or a flag as text; nothing for what is missing.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn fields(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let fields = value.as_object().into_iter().flatten();
    fields.map(|(name, value)| (name.as_str(), value))
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A bar in whole cells; a number above 0 has at least one.
fn bar(number: u64, most: u64) -> String {
    let cells = u128::from(number) * u128::from(BAR_CELLS) / u128::from(most.max(1));
    let cells = usize::try_from(cells).unwrap_or(0);
    "█".repeat(cells.max(usize::from(number > 0)))
}
