//! Answers as CSV.
//!
//! Rankings have a column `kind`: `value` for what was counted, `other` for the sum of what a limit left
//! out (its value is empty, as no counted one can be), and by bucket `none` for a bucket without counts.

use super::answer::{Answer, Body};
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
            for count in counts {
                row(&mut out, &[&count.start, &count.count.to_string()]);
            }
        }
        Body::Rolled { values, other } => {
            out.push_str("value,count,kind\n");
            ranking(&mut out, &[], pairs(values), *other);
        }
        Body::Buckets { buckets } => {
            out.push_str("start,value,count,kind\n");
            for bucket in buckets {
                if bucket.values.is_empty() {
                    row(&mut out, &[&bucket.start, "", "0", "none"]);
                }
                let before = [&*bucket.start];
                ranking(&mut out, &before, pairs(&bucket.values), bucket.other);
            }
        }
    }
    out
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
