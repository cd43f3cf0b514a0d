//! Counts by month for a preview, where files may hold whole years.
//!
//! Invariant: the sum over all months equals the sum of the runs' totals, less those of runs whose counts are taken
//! away. The entry of a file of one month has its sums; a file of a year is read line by line.

use std::collections::BTreeMap;

use rayon::prelude::*;
use tallyring_archive::{Blobs, Error, Partition, Result, Run, RunEntry, Sign};
use tallyring_records::line::{self, Kind};

/// Sums of totals by month and namespace; 128 bits, because every counter may be at its limit.
pub type Months = BTreeMap<(Partition, String), u128>;

/// Sums the totals of these runs by UTC month and namespace. Fails when a run is damaged, or more is taken away than is
/// counted.
pub fn months(blobs: &Blobs, runs: &[&RunEntry]) -> Result<Months> {
    let of_runs: Vec<(Sign, Months)> = runs
        .par_iter()
        .map(|run| Ok((run.sign(), of_run(blobs, run)?)))
        .collect::<Result<_>>()?;
    let (plus, minus): (Vec<_>, Vec<_>) =
        (of_runs.into_iter()).partition(|(sign, _)| *sign == Sign::Plus);
    let mut sums = Months::new();
    for (group, sum) in plus.into_iter().flat_map(|(_, months)| months) {
        *sums.entry(group).or_insert(0) += sum;
    }
    for (group, less) in minus.into_iter().flat_map(|(_, months)| months) {
        let sum = sums.entry(group.clone()).or_insert(0);
        *sum = sum.checked_sub(less).ok_or_else(|| Error::Imbalance {
            name: group.0.to_string(),
            what: format!("{less} is to be taken away from {sum} of `{}`", group.1),
        })?;
    }
    Ok(sums)
}

fn of_run(blobs: &Blobs, entry: &RunEntry) -> Result<Months> {
    let mut sums = Months::new();
    if !entry.meta.partition.is_year() {
        for (section, sum) in &entry.meta.sums {
            if line::kind_of(section.as_bytes()) == Some(Kind::Total) {
                let group = (entry.meta.partition, namespace_of(section.as_bytes()));
                *sums.entry(group).or_insert(0) += sum;
            }
        }
        return Ok(sums);
    }
    let mut cursor = Run::open_named(blobs, entry)?.cursor();
    while cursor.advance()? {
        let Some((key, payload)) = cursor.line()? else {
            break;
        };
        if line::kind_of(key) != Some(Kind::Total) {
            continue;
        }
        let mut of_line: BTreeMap<Partition, u128> = BTreeMap::new();
        for hour in line::hours(payload) {
            let (code, count) = hour.ok_or_else(|| Error::Damaged {
                name: entry.name.clone(),
                offset: 0,
                what: format!("the line of `{}` cannot be read", line::shown(key)),
            })?;
            *of_line.entry(Partition::month_of(code)).or_insert(0) += u128::from(count);
        }
        for (month, sum) in of_line {
            *sums.entry((month, namespace_of(key))).or_insert(0) += sum;
        }
    }
    Ok(sums)
}

/// The namespace of a total key: `l` for `l|abc`.
fn namespace_of(key: &[u8]) -> String {
    let section = line::section(key);
    let name = section.strip_suffix(b"|").unwrap_or(section);
    String::from_utf8_lossy(name).into_owned()
}
