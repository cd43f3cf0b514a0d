//! Answers as CSV.
//!
//! Rankings have a column `kind`: `value` for a counted value, `other` for the sum of the values that a limit left
//! out (its value is empty, as no counted one can be), and by bucket `none` for a bucket without counts. In the table
//! of many queries every row has a kind: rows of counts are a `bucket`, the row of a summary is the `total`.
//!
//! With `filtered=true`, tables of counts and of a total have the columns `filtered` and `gross`.
//!
//! Where buckets have states in JSON, tables of counts have a column `state`. Where JSON says `overflow`, a last column
//! `overflow` says of each row whether its count reached 2^53−1.

use super::answer::{Answer, Body, Bucket};
use super::filtered::FILTERED_COLUMNS;
use super::value::Value;
use crate::table::Table;

/// The answer's rows.
pub(super) fn render(answer: &Answer) -> String {
    let new = |columns: &[&str]| Table::of_counts(columns, answer.overflow.is_some());
    let mut table;
    match &answer.body {
        Body::Summary {} => {
            let filtered = answer.filtered.as_ref();
            let beside = filtered.map_or(&[][..], |_| &FILTERED_COLUMNS);
            table = new(&[&["total"], beside].concat());
            let beside = filtered.map(|filtered| [filtered.total, filtered.gross]);
            let cells = [answer.total]
                .into_iter()
                .chain(beside.into_iter().flatten());
            let cells: Vec<String> = cells.map(|n| n.to_string()).collect();
            let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
            table.counted(
                &cells,
                filtered.map_or(answer.total, |filtered| filtered.gross),
            );
        }
        Body::Counts { counts } => {
            table = new(&counts.columns(answer.filtered.as_ref()));
            counts.add_rows(answer.filtered.as_ref(), &mut table);
        }
        Body::Rolled { values, other } => {
            table = new(&["value", "count", "kind"]);
            ranking(&mut table, &[], pairs(values), *other);
        }
        Body::Buckets { buckets } => {
            table = new(&["start", "value", "count", "kind"]);
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
    let overflows = answers.iter().any(|answer| answer.overflow.is_some());
    let mut table = Table::of_counts(&columns, overflows);
    for (number, answer) in answers.iter().enumerate() {
        let number = number.to_string();
        let key = answer.key.as_deref().unwrap_or_default();
        let query = [number.as_str(), &answer.namespace, key];
        match &answer.body {
            Body::Summary {} => {
                let total = answer.total.to_string();
                let cells = ["", "", &total, "total"];
                table.counted(&[&query[..], &cells].concat(), answer.total);
            }
            Body::Counts { counts } => {
                for (start, count) in counts.iter() {
                    let text = count.to_string();
                    let cells = [start, "", &text, "bucket"];
                    table.counted(&[&query[..], &cells].concat(), count);
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
            table.counted(&[&before[..], &["", "0", "none"]].concat(), 0);
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
        let cells = [value, &count.to_string(), kind];
        table.counted(&[before, &cells].concat(), count);
    }
}

fn pairs(values: &[Value]) -> impl Iterator<Item = (&str, u64)> {
    values
        .iter()
        .map(|value| (value.value.as_str(), value.count))
}
