//! The books of a merge: its inputs sum to its output and to what was left out, section by section.

use std::collections::BTreeMap;
use std::sync::Arc;

use tallyring_records::is_actions_section;

use crate::error::{Error, Result};
use crate::run::{Run, RunEntry, RunMeta, Sums};
use crate::sign::Sign;

/// Sum of the books of several runs, less those of runs with the sign minus. Sections that sum to zero are left out.
/// Fails where a section would fall below zero, but for actions: those of an erased user may be gone from the runs that
/// count them before they are from those that take them away.
pub fn add_sums<'m>(metas: impl IntoIterator<Item = (Sign, &'m RunMeta)>) -> Result<Sums> {
    let (mut sums, mut less) = (Sums::new(), Sums::new());
    for (sign, meta) in metas {
        let side = match sign {
            Sign::Plus => &mut sums,
            Sign::Minus => &mut less,
        };
        add_to(side, &meta.sums);
    }
    for (section, less) in less {
        let sum = sums.entry(section.clone()).or_insert(0);
        *sum = match sum.checked_sub(less) {
            Some(left) => left,
            None if is_actions_section(&section) => 0,
            None => {
                return Err(Error::Imbalance {
                    name: "the runs of a merge".to_owned(),
                    what: format!("{less} is to be taken away from {sum} in `{section}`"),
                });
            }
        };
    }
    sums.retain(|_, sum| *sum > 0);
    Ok(sums)
}

fn add_to(sums: &mut Sums, more: &Sums) {
    for (section, &count) in more {
        *sums.entry(section.clone()).or_insert(0) += count;
    }
}

/// Checks that the sums of the inputs are those of the output and of what was left out.
pub(super) fn balance(
    inputs: &[Arc<Run>],
    output: Option<&RunEntry>,
    left_out: BTreeMap<String, i128>,
) -> Result<()> {
    let (mut before, mut after) = (BTreeMap::new(), left_out);
    for run in inputs {
        add_signed(&mut before, run.sign(), run.meta())?;
    }
    if let Some(entry) = output {
        add_signed(&mut after, Sign::Plus, &entry.meta)?;
    }
    before.retain(|_, sum| *sum != 0);
    after.retain(|_, sum| *sum != 0);
    if before == after {
        return Ok(());
    }
    Err(Error::Imbalance {
        name: output.map_or_else(|| "merge".to_owned(), |entry| entry.name.clone()),
        what: format!(
            "the inputs sum to {before:?}, the output and what was left out to {after:?}"
        ),
    })
}

fn add_signed(sums: &mut BTreeMap<String, i128>, sign: Sign, meta: &RunMeta) -> Result<()> {
    for (section, &count) in &meta.sums {
        let sum = sums.entry(section.clone()).or_insert(0);
        let count = i128::try_from(count).ok();
        let more = count.and_then(|count| sum.checked_add(sign.of(count)));
        *sum = more.ok_or_else(|| Error::Overflow {
            key: section.clone(),
        })?;
    }
    Ok(())
}
