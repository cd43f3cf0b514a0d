//! Final datasets, as a manifest and the log know them.

use std::collections::BTreeMap;

use tallyring_records::line::{self, Kind};
use tallyring_records::{Day, LoggedDataset};

use super::{ArchiveEntry, DatasetEntry, DatasetProof};

impl DatasetEntry {
    /// The dataset as the log tells of it; none without a proof.
    pub fn logged(&self) -> Option<LoggedDataset> {
        let proof = self.proof.as_ref()?;
        Some(LoggedDataset {
            name: self.name.clone(),
            at_ms: self.adopted_at_ms,
            rows: self.rows,
            content: proof.content.clone(),
            days: self.days(),
        })
    }

    /// By namespace, the spans of UTC days of which it may have counts, ascending and apart.
    pub fn days(&self) -> BTreeMap<String, Vec<(Day, Day)>> {
        let mut days: BTreeMap<String, Vec<(Day, Day)>> = BTreeMap::new();
        for run in &self.runs {
            let totals = run.meta.sums.keys();
            let totals = totals.filter(|of| line::kind_of(of.as_bytes()) == Some(Kind::Total));
            for namespace in totals.filter_map(|section| section.strip_suffix('|')) {
                let spans = days.entry(namespace.to_owned()).or_default();
                spans.push(run.meta.days().into_inner());
            }
        }
        for spans in days.values_mut() {
            spans.sort_unstable();
            // Shards of a month have spans of their own, which meet.
            spans.dedup_by(|next, span| {
                let meets = next.0 <= span.1;
                span.1 = if meets { span.1.max(next.1) } else { span.1 };
                meets
            });
        }
        days
    }

    /// True where the log tells of this dataset. One without a proof is known by its name, rows and days.
    fn is_told(&self, logged: &LoggedDataset) -> bool {
        self.is_final
            && match &self.proof {
                Some(proof) => logged.is(&self.name, &proof.content),
                None => {
                    let rows = (self.rows, &*self.name) == (logged.rows, &*logged.name);
                    rows && self.days() == logged.days
                }
            }
    }
}

impl ArchiveEntry {
    /// True where the counts of a dataset are part of final numbers: it is final, and a kept generation counts it or
    /// one did of which the log tells.
    pub fn has_in_finals(&self, dataset: &DatasetEntry) -> bool {
        let is_logged = dataset.proof.as_ref().is_some_and(|proof| proof.is_logged);
        dataset.is_final && (is_logged || self.is_in_kept(dataset))
    }

    fn is_in_kept(&self, dataset: &DatasetEntry) -> bool {
        let mut kept = self.generations.iter();
        kept.any(|kept| dataset.is_in(kept))
    }

    /// Follows a record of a final dataset: the dataset is known to be in the log, or it is lost.
    pub fn follow_dataset(&mut self, logged: &LoggedDataset) {
        if let Some(known) = self.datasets.iter_mut().find(|of| of.is_told(logged)) {
            known.proof = Some(DatasetProof {
                content: logged.content.clone(),
                is_logged: true,
            });
        } else if !(self.lost_datasets.iter()).any(|lost| lost.is(&logged.name, &logged.content)) {
            self.lost_datasets.push(logged.clone());
        }
    }

    /// Final datasets that count, and that the log may lack.
    pub fn unlogged_datasets(&self) -> impl Iterator<Item = LoggedDataset> {
        let unlogged = self.datasets.iter().filter(|dataset| {
            let is_logged = dataset.proof.as_ref().is_some_and(|proof| proof.is_logged);
            dataset.is_final && !is_logged && self.is_in_kept(dataset)
        });
        unlogged.filter_map(DatasetEntry::logged)
    }
}
