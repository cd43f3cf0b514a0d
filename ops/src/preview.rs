//! The effect that a load would have, month by month.

use std::path::Path;

use serde_json::{Value, json};
use tallyring_archive::{Blobs, DatasetEntry, Manifest, Partition, RunEntry};
use tallyring_rebuild::{Months, months};

use crate::data_directory::{self, blobs};
use crate::error::Result;
use crate::strands;

/// One month of a namespace that a load touches.
pub(crate) struct Month {
    month: Partition,
    namespace: String,
    now: u128,
    comes: u128,
    goes: u128,
}

/// Returns the months with rows of `loaded` or of the dataset that it would replace. The present counts are those of
/// the manifests of all strands: increments that only a server's memory holds are not in them. `manifest` is that of
/// the datasets.
pub(crate) fn preview(
    data: &Path,
    manifest: &Manifest,
    loaded: &[RunEntry],
    replaced: Option<&DatasetEntry>,
) -> Result<Vec<Month>> {
    let directories = strands::directories(data)?;
    let of_strands: Result<Vec<Blobs>> = directories.iter().map(|of| blobs(of)).collect();
    let of_strands = of_strands?;
    let (first, others) = of_strands.split_first().expect("BUG: a store has a strand");
    let comes = months(first, &loaded.iter().collect::<Vec<_>>())?;
    let goes = match replaced {
        Some(dataset) => months(first, &dataset.runs.iter().collect::<Vec<_>>())?,
        None => Months::new(),
    };
    let touched = |run: &&RunEntry| {
        let months = comes.keys().chain(goes.keys());
        let mut months = months.filter(|(month, _)| run.meta.partition.holds(*month));
        months.next().is_some()
    };
    let counted = |blobs: &Blobs, manifest: &Manifest| {
        let flushed = manifest.intake.stores.iter().flat_map(|store| &store.runs);
        let next = manifest.archive.sources().chain(flushed).filter(touched);
        months(blobs, &next.collect::<Vec<_>>())
    };
    let mut now = counted(first, manifest)?;
    for blobs in others {
        for (place, sum) in counted(blobs, &data_directory::manifest(blobs)?)? {
            *now.entry(place).or_insert(0) += sum;
        }
    }
    let mut touched: Vec<&(Partition, String)> = comes.keys().chain(goes.keys()).collect();
    touched.sort_unstable();
    touched.dedup();
    let of = |months: &Months, place: &(Partition, String)| months.get(place).copied().unwrap_or(0);
    let month = |place: &(Partition, String)| Month {
        month: place.0,
        namespace: place.1.clone(),
        now: of(&now, place),
        comes: of(&comes, place),
        goes: of(&goes, place),
    };
    Ok(touched.into_iter().map(month).collect())
}

impl Month {
    /// The counts as strings: sums may be larger than the numbers that every JSON reader takes.
    pub(crate) fn json(&self) -> Value {
        json!({
            "month": self.month, "namespace": self.namespace, "counted": self.now.to_string(), "added": self.comes.to_string(),
            "removed": self.goes.to_string(), "after": self.after().to_string(),
        })
    }

    fn after(&self) -> u128 {
        (self.now + self.comes).saturating_sub(self.goes)
    }
}

/// The months as a table.
pub(crate) fn table(months: &[Month]) -> String {
    let names = months.iter().map(|month| month.namespace.len());
    let width = names.max().unwrap_or(0).max("NAMESPACE".len());
    let mut text = format!(
        "{:<8} {:<width$} {:>16} {:>16} {:>16} {:>16}\n",
        "MONTH", "NAMESPACE", "COUNTED", "ADDED", "REMOVED", "AFTER"
    );
    for month in months {
        let (now, comes, goes, after) = (month.now, month.comes, month.goes, month.after());
        let (namespace, month) = (&month.namespace, month.month.to_string());
        text.push_str(&format!(
            "{month:<8} {namespace:<width$} {now:>16} {comes:>16} {goes:>16} {after:>16}\n"
        ));
    }
    text
}
