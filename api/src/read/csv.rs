//! Answers as CSV.
//!
//! Rankings have a column `kind`: `value` for a counted value, `other` for the sum of the values that a limit left
//! out (its value is empty, as no counted one can be), and by bucket `none` for a bucket without counts. In the table
//! of many queries every row has a kind: rows of counts are a `bucket`, the row of a summary is the `total`.

use super::answer::{Answer, Body, Bucket};
use super::value::Value;
use crate::table::Table;

/// The answer's rows.
pub(super) fn render(answer: &Answer) -> String {
    let mut table;
    match &answer.body {
        Body::Summary {} => {
            table = Table::new(&["total"]);
            table.row(&[&answer.total.to_string()]);
        }
        Body::Counts { counts } => {
            table = Table::new(&["start", "count"]);
            for (start, count) in counts.iter() {
                table.row(&[start, &count.to_string()]);
            }
        }
        Body::Rolled { values, other } => {
            table = Table::new(&["value", "count", "kind"]);
            ranking(&mut table, &[], pairs(values), *other);
        }
        Body::Buckets { buckets } => {
            table = Table::new(&["start", "value", "count", "kind"]);
            rankings(&mut table, &[], buckets);
        }
    }
    table.end()
}

/// The rows of several answers in one table. Every row has the number of its query, from 0, and its kind.
pub(super) fn render_all(answers: &[Answer]) -> String {
    let columns = [
        "query",
        "namespace",
        "key",
        "start",
        "value",
        "count",
        "kind",
    ];
    let mut table = Table::new(&columns);
    for (number, answer) in answers.iter().enumerate() {
        let number = number.to_string();
        let query = [number.as_str(), &answer.namespace, &answer.key];
        match &answer.body {
            Body::Summary {} => {
                let total = answer.total.to_string();
                table.row(&[&query[..], &["", "", &total, "total"]].concat());
            }
            Body::Counts { counts } => {
                for (start, count) in counts.iter() {
                    let count = count.to_string();
                    let cells = [start, "", &count, "bucket"];
                    table.row(&[&query[..], &cells].concat());
                }
            }
            Body::Rolled { values, other } => {
                let before = [&query[..], &[""]].concat();
                ranking(&mut table, &before, pairs(values), *other);
            }
            Body::Buckets { buckets } => rankings(&mut table, &query, buckets),
        }
    }
    table.end()
}

/// Adds the ranking of every bucket.
fn rankings(table: &mut Table, before: &[&str], buckets: &[Bucket]) {
    for bucket in buckets {
        let before = [before, &[&*bucket.start]].concat();
        if bucket.values.is_empty() {
            table.row(&[&before[..], &["", "0", "none"]].concat());
        }
        ranking(table, &before, pairs(&bucket.values), bucket.other);
    }
}

/// Adds a ranking, each row behind the cells `before`, and the sum of what the ranking left out.
pub(super) fn ranking<'v>(
    table: &mut Table,
    before: &[&str],
    listed: impl Iterator<Item = (&'v str, u64)>,
    other: u64,
) {
    let listed = listed.map(|(value, count)| (value, count, "value"));
    let rest = (other > 0).then_some(("", other, "other"));
    for (value, count, kind) in listed.chain(rest) {
        table.row(&[before, &[value, &count.to_string(), kind]].concat());
    }
}

fn pairs(values: &[Value]) -> impl Iterator<Item = (&str, u64)> {
    values
        .iter()
        .map(|value| (value.value.as_str(), value.count))
}
