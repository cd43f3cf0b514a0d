//! Answers as CSV.
//!
//! Rankings have a column `kind`: `value` for a counted value, `other` for the sum of the values that a limit left
//! out (its value is empty, as no counted one can be), and by bucket `none` for a bucket without counts. In the table
//! of many queries every row has a kind: rows of counts are a `bucket`, the row of a summary is the `total`.
//!
//! With `filtered=true`, tables of counts and of a total have the columns `filtered` and `gross`. With `compare`,
//! tables of counts have the column `before`, which is empty where the earlier period is not covered.
//!
//! Where buckets have states in JSON, tables have a column `state`: that of the row's bucket, or of the whole range.
//! Where JSON says `overflow`, a last column `overflow` says of each row whether its count reached 2^53−1.

use tallyring_realtime::State;

use super::answer::{Answer, Body, Bucket};
use super::filtered::FILTERED_COLUMNS;
use super::value::Value;
use crate::table::Table;

/// The column of states.
pub(super) const STATE_COLUMN: &str = "state";

/// The answer's rows.
pub(super) fn render(answer: &Answer) -> String {
    let state = answer.head.told_state();
    let cell = |state: Option<State>| state.map(State::as_str);
    let new = |columns: &[&str]| Table::of_counts(columns, answer.overflow.is_some());
    let mut table;
    match &answer.body {
        Body::Summary {} => {
            let filtered = answer.filtered.as_ref();
            let beside = filtered.map_or(&[][..], |_| &FILTERED_COLUMNS);
            table = new(&[&with_state(&["total"], state)[..], beside].concat());
            let total = answer.total.to_string();
            let beside = filtered.map(|filtered| [filtered.total, filtered.gross]);
            let beside = beside.map(|beside| beside.map(|n| n.to_string()));
            let mut cells = vec![total.as_str()];
            cells.extend(state.map(State::as_str));
            cells.extend(beside.iter().flatten().map(String::as_str));
            table.counted(
                &cells,
                filtered.map_or(answer.total, |filtered| filtered.gross),
            );
        }
        Body::Counts { counts } => {
            table = new(&counts.columns(answer));
            counts.add_rows(answer, &mut table);
        }
        Body::Rolled { values, other } => {
            table = new(&with_state(&["value", "count", "kind"], state));
            ranking(&mut table, (&[], cell(state)), pairs(values), *other);
        }
        Body::Buckets { buckets } => {
            table = new(&with_state(&["start", "value", "count", "kind"], state));
            rankings(&mut table, (&[], &cell), buckets);
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
    let told = answers.iter().find_map(|answer| answer.head.told_state());
    // An answer about a kept generation has no states beside those that have.
    let cell = |state: Option<State>| told.map(|_| state.map_or("", State::as_str));
    let mut table = Table::of_counts(&with_state(&columns, told), overflows);
    for (number, answer) in answers.iter().enumerate() {
        let number = number.to_string();
        let key = answer.key.as_deref().unwrap_or_default();
        let query = [number.as_str(), &answer.namespace, key];
        let state = cell(answer.head.told_state());
        match &answer.body {
            Body::Summary {} => {
                let total = answer.total.to_string();
                let mut cells = [&query[..], &["", "", &total, "total"]].concat();
                cells.extend(state);
                table.counted(&cells, answer.total);
            }
            Body::Counts { counts } => {
                for (index, (start, count)) in counts.iter().enumerate() {
                    let text = count.to_string();
                    let mut cells = [&query[..], &[start, "", &text, "bucket"]].concat();
                    cells.extend(cell(counts.state(index)));
                    table.counted(&cells, count);
                }
            }
            Body::Rolled { values, other } => {
                let before = [&query[..], &[""]].concat();
                ranking(&mut table, (&before, state), pairs(values), *other);
            }
            Body::Buckets { buckets } => rankings(&mut table, (&query, &cell), buckets),
        }
    }
    table.end()
}

/// The cell of a state, where the table has a column for it.
type StateCell<'c> = &'c dyn Fn(Option<State>) -> Option<&'static str>;

/// Adds the ranking of every bucket, each row behind the cells `before`.
fn rankings(table: &mut Table, (before, cell): (&[&str], StateCell<'_>), buckets: &[Bucket]) {
    for bucket in buckets {
        let before = [before, &[&*bucket.start]].concat();
        let state = cell(bucket.state);
        if bucket.values.is_empty() {
            let mut cells = [&before[..], &["", "0", "none"]].concat();
            cells.extend(state);
            table.counted(&cells, 0);
        }
        ranking(table, (&before, state), pairs(&bucket.values), bucket.other);
    }
}

/// Adds a ranking, each row behind the cells `before` and with the state where the table tells it, and the sum of what
/// the ranking left out.
pub(super) fn ranking<'v>(
    table: &mut Table,
    (before, state): (&[&str], Option<&str>),
    listed: impl Iterator<Item = (&'v str, u64)>,
    other: u64,
) {
    let listed = listed.map(|(value, count)| (value, count, "value"));
    let rest = (other > 0).then_some(("", other, "other"));
    for (value, count, kind) in listed.chain(rest) {
        let text = count.to_string();
        let mut cells = [before, &[value, &text, kind]].concat();
        cells.extend(state);
        table.counted(&cells, count);
    }
}

/// These columns, and that of states where there are some.
pub(super) fn with_state<'c>(columns: &[&'c str], state: Option<State>) -> Vec<&'c str> {
    let mut columns = columns.to_vec();
    columns.extend(state.map(|_| STATE_COLUMN));
    columns
}

fn pairs(values: &[Value]) -> impl Iterator<Item = (&str, u64)> {
    values
        .iter()
        .map(|value| (value.value.as_str(), value.count))
}
