//! Final datasets, as a manifest and the log know them.

use std::collections::BTreeMap;
use std::fmt;

use tallyring_records::line::{self, Kind};
use tallyring_records::{DatasetGone, Day, Grain, LoggedDataset, Namespace, Record};

use super::{ArchiveEntry, DatasetEntry, DatasetProof, Manifest};
use crate::run::RunEntry;

/// A final dataset that waited for a rebuild, and is dropped because the log proves that it was dropped or replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Its name.
    pub dataset: String,
    /// Name of the lost dataset that counted in its place.
    pub lost: String,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the dataset {}, which is final and waited for a rebuild, is left out: the log says that the dataset {} counted \
             under its name or on one of its days, so it was dropped or replaced before",
            self.dataset, self.lost
        )
    }
}

/// The records of final datasets in a part of the log.
#[derive(Debug, Clone, Default)]
pub struct LoggedDatasets {
    /// Datasets that are not given up behind their record, ascending.
    counted: Vec<LoggedDataset>,
    gone: Vec<DatasetGone>,
}

impl LoggedDatasets {
    /// Notes the next record, if it is about a final dataset.
    pub fn note(&mut self, record: &Record) {
        match record {
            Record::Dataset(logged) => self.counted.push(logged.clone()),
            Record::DatasetGone(gone) => {
                self.counted.retain(|logged| !gone.is_of(logged));
                self.gone.push(gone.clone());
            }
            _ => {}
        }
    }

    /// True where the dataset has a record, and was not given up since.
    pub fn has(&self, dataset: &LoggedDataset) -> bool {
        let mut counted = self.counted.iter();
        counted.any(|known| known.is(&dataset.name, &dataset.content))
    }

    /// Tells an archive of the datasets: each is known to be in the log, or lost, or gone.
    pub fn tell(&self, archive: &mut ArchiveEntry) {
        self.gone.iter().for_each(|gone| archive.give_up(gone));
        let counted = self.counted.iter();
        counted.for_each(|logged| archive.follow_dataset(logged));
    }
}

/// True where the dataset `name` of these runs would take the name of a lost final dataset, or one of its days in one
/// of its namespaces.
pub fn takes_place(name: &str, runs: &[RunEntry], lost: &LoggedDataset) -> bool {
    let takes_days = |run: &RunEntry| {
        let days = run.meta.days();
        let spans = lost.days.iter().filter(|(namespace, _)| {
            let total = line::total_key(namespace, "");
            run.meta.sums.contains_key(&total)
        });
        let mut spans = spans.flat_map(|(_, spans)| spans);
        spans.any(|(first, last)| first <= days.end() && days.start() <= last)
    };
    lost.name == name || runs.iter().any(takes_days)
}

impl Manifest {
    /// By what equal files may give other counts than a final dataset had, in words to go behind a sentence: namespaces
    /// of it that are no longer declared as they were. Empty where there are none.
    pub fn told_differences(&self, dataset: &LoggedDataset) -> String {
        let Some((now, before)) = self.intake.schemas.split_last() else {
            return String::new();
        };
        let mut told = Vec::new();
        for name in dataset.days.keys() {
            let former = before.iter().rev();
            let mut former = former.filter_map(|entry| entry.schema.namespace(name));
            match now.schema.namespace(name) {
                None => told.push(format!("the namespace `{name}` is not declared any more")),
                Some(now) => told.extend(former.find_map(|before| difference(now, before))),
            }
        }
        match told.is_empty() {
            true => String::new(),
            false => format!("; {}: declare that for the load as it was", told.join(", ")),
        }
    }
}

/// The declaration of a namespace by which rows count otherwise than by another one; none where they count alike.
fn difference(now: &Namespace, before: &Namespace) -> Option<String> {
    let name = &now.name;
    if now.grain != before.grain {
        let [now, before] = [now, before].map(|of| match of.grain {
            Grain::Quarter => "quarter",
            _ => "hour",
        });
        return Some(format!(
            "the namespace `{name}` has `grain = \"{now}\"`, and had `grain = \"{before}\"`"
        ));
    }
    let mut lost = before.subtotals.iter();
    let lost = lost.find(|subtotal| !now.subtotals.contains(subtotal))?;
    Some(format!(
        "the namespace `{name}` has no subtotal `{lost}` any more"
    ))
}

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

    /// Gives up a final dataset: it is missed no more, is no part of final numbers, and the next generation does not
    /// count it.
    fn give_up(&mut self, gone: &DatasetGone) {
        self.lost_datasets.retain(|lost| !gone.is_of(lost));
        let mut datasets = self.datasets.iter_mut();
        if let Some(known) = datasets.find(|of| of.is_told(&gone.dataset)) {
            known.wanted = false;
            known.is_final = false;
            known.proof = None;
        }
        self.forget_datasets();
    }

    /// Drops the final datasets that wait for a rebuild in the place of a lost one, and returns them. No load takes
    /// that place, so they were there first, and the rebuild that counted the lost one would have counted them. The log
    /// must have been followed to its end: a later record may tell that such a dataset counts.
    pub fn leave_out_beside_lost(&mut self) -> Vec<LeftOut> {
        let beside = self.datasets.iter().map(|dataset| {
            let lost = self.lost_beside(dataset)?;
            Some(lost.name.clone())
        });
        let beside: Vec<Option<String>> = beside.collect();
        let mut left_out = Vec::new();
        for (dataset, lost) in self.datasets.iter_mut().zip(beside) {
            if let Some(lost) = lost {
                dataset.wanted = false;
                left_out.push(LeftOut {
                    dataset: dataset.name.clone(),
                    lost,
                });
            }
        }
        if !left_out.is_empty() {
            self.forget_datasets();
        }
        left_out
    }

    /// The lost dataset in whose place a final one waits.
    fn lost_beside(&self, dataset: &DatasetEntry) -> Option<&LoggedDataset> {
        if !dataset.is_final || !dataset.wanted || self.has_in_finals(dataset) {
            return None;
        }
        let mut lost = self.lost_datasets.iter();
        lost.find(|lost| takes_place(&dataset.name, &dataset.runs, lost))
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
