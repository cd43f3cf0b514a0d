//! Answers as CSV.
//!
//! Rankings have a column `kind`: `value` for what was counted, `other` for the sum of what a limit left
//! out (its value is empty, as no counted one can be), and by bucket `none` for a bucket without counts. Of many queries
//! at once every row has one: those of counts are a `bucket`, that of a summary is the `total`.

use super::answer::{Answer, Body, Bucket};
use super::value::Value;
use crate::csv::row;

/// The answer's rows.
pub fn render(answer: &Answer) -> String {
    let mut out = String::new();
    match &answer.body {
        Body::Summary {} => {
            out.push_str("total\n");
            row(&mut out, &[&answer.total.to_string()]);
        }
        Body::Counts { counts } => {
            out.push_str("start,count\n");
            for (start, count) in counts.iter() {
                row(&mut out, &[start, &count.to_string()]);
            }
        }
        Body::Rolled { values, other } => {
            out.push_str("value,count,kind\n");
            ranking(&mut out, &[], pairs(values), *other);
        }
        Body::Buckets { buckets } => {
            out.push_str("start,value,count,kind\n");
            rankings(&mut out, &[], buckets);
        }
    }
    out
}

/// The rows of several answers in one table: of every row the number of its query, and of which kind it is.
pub fn render_all(answers: &[Answer]) -> String {
    let mut out = String::from("query,namespace,key,start,value,count,kind\n");
    for (number, answer) in answers.iter().enumerate() {
        let number = number.to_string();
        let asked = [number.as_str(), &answer.namespace, &answer.key];
        match &answer.body {
            Body::Summary {} => {
                let total = answer.total.to_string();
                row(&mut out, &[&asked[..], &["", "", &total, "total"]].concat());
            }
            Body::Counts { counts } => {
                for (start, count) in counts.iter() {
                    let count = count.to_string();
                    let cells = [start, "", &count, "bucket"];
                    row(&mut out, &[&asked[..], &cells].concat());
                }
            }
            Body::Rolled { values, other } => {
                let before = [&asked[..], &[""]].concat();
                ranking(&mut out, &before, pairs(values), *other);
            }
            Body::Buckets { buckets } => rankings(&mut out, &asked, buckets),
        }
    }
    out
}

/// Appends the ranking of every bucket.
fn rankings(out: &mut String, before: &[&str], buckets: &[Bucket]) {
    for bucket in buckets {
        let before = [before, &[&*bucket.start]].concat();
        if bucket.values.is_empty() {
            row(out, &[&before[..], &["", "0", "none"]].concat());
        }
        ranking(out, &before, pairs(&bucket.values), bucket.other);
    }
}

/// Appends a ranking, each row behind the cells `before`, and what it left out.
pub fn ranking<'v>(
    out: &mut String,
    before: &[&str],
    listed: impl Iterator<Item = (&'v str, u64)>,
    other: u64,
) {
    let listed = listed.map(|(value, count)| (value, count, "value"));
    let rest = (other > 0).then_some(("", other, "other"));
    for (value, count, kind) in listed.chain(rest) {
        row(out, &[before, &[value, &count.to_string(), kind]].concat());
    }
}

fn pairs(values: &[Value]) -> impl Iterator<Item = (&str, u64)> {
    values
        .iter()
        .map(|value| (value.value.as_str(), value.count))
}
