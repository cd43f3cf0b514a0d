//! What a load would change, month by month, without changing it.

use serde_json::{Value, json};
use tallyring_archive::{DatasetEntry, Disk, Manifest, Partition, RunEntry};
use tallyring_rebuild::{Months, months};

use crate::error::Result;

/// One month that a load touches, in counts of all namespaces together.
pub struct Month {
    month: Partition,
    now: u128,
    comes: u128,
    goes: u128,
}

/// The months that rows of `loaded`, or of the dataset they would replace, lie in. What is counted now is what
/// the manifest names: increments that only the server's memory holds come on top.
///
/// # Errors
/// A run that cannot be read.
pub fn preview(
    disk: &dyn Disk,
    manifest: &Manifest,
    loaded: &[RunEntry],
    replaced: Option<&DatasetEntry>,
) -> Result<Vec<Month>> {
    let comes = months(disk, &loaded.iter().collect::<Vec<_>>())?;
    let goes = match replaced {
        Some(dataset) => months(disk, &dataset.runs.iter().collect::<Vec<_>>())?,
        None => Months::new(),
    };
    let touched = |run: &&RunEntry| {
        let months = comes.keys().chain(goes.keys());
        let mut months = months.filter(|month| run.meta.partition.holds(**month));
        months.next().is_some()
    };
    let next: Vec<&RunEntry> = manifest
        .sources()
        .chain(manifest.stores.iter().flat_map(|store| &store.runs))
        .filter(touched)
        .collect();
    let now = months(disk, &next)?;
    let mut touched: Vec<Partition> = comes.keys().chain(goes.keys()).copied().collect();
    touched.sort_unstable();
    touched.dedup();
    let of = |months: &Months, month| months.get(&month).copied().unwrap_or(0);
    let month = |month| Month {
        month,
        now: of(&now, month),
        comes: of(&comes, month),
        goes: of(&goes, month),
    };
    Ok(touched.into_iter().map(month).collect())
}

impl Month {
    /// Counts are strings: their sums may be above what every JSON reader takes.
    pub fn json(&self) -> Value {
        json!({
            "month": self.month, "counted": self.now.to_string(), "added": self.comes.to_string(),
            "removed": self.goes.to_string(), "after": self.after().to_string(),
        })
    }

    fn after(&self) -> u128 {
        (self.now + self.comes).saturating_sub(self.goes)
    }
}

/// The months as a table.
pub fn table(months: &[Month]) -> String {
    let mut text = format!(
        "{:<8} {:>18} {:>18} {:>18} {:>18}\n",
        "MONTH", "COUNTED", "ADDED", "REMOVED", "AFTER"
    );
    for month in months {
        let (now, comes, goes, after) = (month.now, month.comes, month.goes, month.after());
        let month = month.month.to_string();
        text.push_str(&format!(
            "{month:<8} {now:>18} {comes:>18} {goes:>18} {after:>18}\n"
        ));
    }
    text
}
