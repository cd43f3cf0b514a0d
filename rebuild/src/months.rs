//! Counts by month: what a preview shows, where files may hold whole years.
//!
//! Invariant: the sum over all months is the sum of the runs' totals. A file of one month tells by its own books;
//! a year's file is read line by line.

use std::collections::BTreeMap;

use rayon::prelude::*;
use tallyring_archive::{Disk, Error, Partition, Result, Run, RunEntry};
use tallyring_records::line::{self, Kind};

/// Sums of totals by month; 128 bits, because every counter may be at its limit.
pub type Months = BTreeMap<Partition, u128>;

/// Sums the totals of all namespaces in these runs by UTC month.
///
/// # Errors
/// A run that cannot be read or is damaged.
pub fn months(disk: &dyn Disk, runs: &[&RunEntry]) -> Result<Months> {
    let of_runs: Vec<Months> = runs
        .par_iter()
        .map(|run| of_run(disk, run))
        .collect::<Result<_>>()?;
    let mut sums = Months::new();
    for (month, sum) in of_runs.into_iter().flatten() {
        *sums.entry(month).or_insert(0) += sum;
    }
    Ok(sums)
}

fn of_run(disk: &dyn Disk, entry: &RunEntry) -> Result<Months> {
    let mut sums = Months::new();
    if !entry.meta.partition.is_year() {
        let sections = entry.meta.sums.iter();
        let totals =
            sections.filter(|(section, _)| line::kind_of(section.as_bytes()) == Some(Kind::Total));
        sums.insert(entry.meta.partition, totals.map(|(_, sum)| sum).sum());
        return Ok(sums);
    }
    let mut cursor = Run::open_named(disk, entry)?.cursor();
    while cursor.advance()? {
        let Some((key, payload)) = cursor.line()? else {
            break;
        };
        if line::kind_of(key) != Some(Kind::Total) {
            continue;
        }
        for hour in line::hours(payload) {
            let (code, count) = hour.ok_or_else(|| Error::Damaged {
                name: entry.name.clone(),
                offset: 0,
                what: format!("the line of `{}` cannot be read", line::shown(key)),
            })?;
            *sums.entry(Partition::month_of(code)).or_insert(0) += u128::from(count);
        }
    }
    Ok(sums)
}
