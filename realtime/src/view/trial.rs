//! A trial: whether a fix of a day may be published, read by read as queries would read it afterwards.

use std::collections::BTreeSet;
use std::sync::Arc;

use tallyring_archive::Run;
use tallyring_records::line::{self, Kind};
use tallyring_records::{Day, MINUTES, is_actions_section, is_breakdown_section};

use super::gather::Gather;
use super::snapshot::{ArchiveFiles, Snapshot};
use super::{Live, View};
use crate::budget::Reading;
use crate::error::{Error, Result};

impl Live {
    /// Checks that nothing of `day` falls below zero once `plus` is added and `minus` is taken away, and that no value
    /// of a subtotal then exceeds its total. Nothing changes. It reads every key from which counts are taken away, and
    /// holds no lock. Fails with [`Error::Fix`] at the first key that is wrong, or when a block is damaged.
    pub(crate) fn try_fix(&self, day: Day, plus: &[Arc<Run>], minus: &[Arc<Run>]) -> Result<()> {
        let before = self.snapshot();
        let archive = ArchiveFiles {
            plus: [&before.archive.plus, plus].concat(),
            minus: [&before.archive.minus, minus].concat(),
            ..(*before.archive).clone()
        };
        let mut snapshot = Snapshot::clone(&before);
        snapshot.archive = Arc::new(archive);
        let view = View {
            live: self,
            snapshot: Arc::new(snapshot),
            reading: Reading::new(&self.read_budget),
        };
        let trial = Trial {
            subtotals: view.subtotals_of(day),
            view,
            day,
        };
        minus.iter().try_for_each(|run| trial.run(run))
    }
}

impl View<'_> {
    /// Subtotals that may have counts of a day, as sections (`c.u|`) name them, without breakdowns by minute.
    fn subtotals_of(&self, day: Day) -> BTreeSet<(String, String)> {
        let (start, end) = (day.start(), day.next().start());
        let declared = self.schema().namespaces.iter().flat_map(|namespace| {
            let subtotals = namespace.subtotals.iter().map(String::as_str);
            let subtotals = subtotals.chain([MINUTES]);
            subtotals.map(|subtotal| (subtotal.to_owned(), namespace.name.clone()))
        });
        let stores = self.snapshot.ring.stores();
        let flushed = stores.flat_map(|store| store.runs.iter().map(|run| &run.run));
        let archive = &self.snapshot.archive;
        let runs = flushed.chain(&archive.plus).chain(&archive.minus);
        let runs = runs.filter(|run| run.meta().overlaps(start, end));
        let sections = runs.flat_map(|run| run.meta().sums.keys());
        let sections =
            sections.filter(|name| !is_breakdown_section(name) && !is_actions_section(name));
        let counted = sections.filter_map(|section| {
            let (subtotal, namespace) = section.strip_suffix('|')?.rsplit_once('.')?;
            Some((subtotal.to_owned(), namespace.to_owned()))
        });
        let has_minutes = self.minutes_from(None).is_none_or(|from| from <= start);
        declared
            .chain(counted)
            .filter(|(subtotal, _)| has_minutes || subtotal != MINUTES)
            .collect()
    }
}

/// A view with the fix.
struct Trial<'l> {
    view: View<'l>,
    /// Subtotals and their namespaces.
    subtotals: BTreeSet<(String, String)>,
    day: Day,
}

impl Trial<'_> {
    /// Checks every key of a run whose counts are taken away. A run has the totals of all its values.
    fn run(&self, run: &Arc<Run>) -> Result<()> {
        let mut cursor = run.cursor();
        while cursor.advance()? {
            let Some((key, _)) = cursor.line()? else {
                break;
            };
            if line::kind_of(key) != Some(Kind::Total) {
                continue;
            }
            self.check(key, None)?;
            let namespace = line::section(key).strip_suffix(b"|").unwrap_or_default();
            let of_key = self.subtotals.iter();
            for (subtotal, _) in of_key.filter(|(_, of)| of.as_bytes() == namespace) {
                self.check(key, Some(subtotal))?;
            }
        }
        Ok(())
    }

    fn check(&self, total_key: &[u8], subtotal: Option<&str>) -> Result<()> {
        let live = self.view.live;
        let total = String::from_utf8_lossy(total_key);
        let Some((namespace, stored)) = total.split_once('|') else {
            return Ok(());
        };
        let range = self.day.start()..self.day.next().start();
        let mut gather = Gather::new(&self.view.reading, namespace, stored, subtotal, range);
        gather.begin(&self.view.snapshot, None)?;
        let what = match gather.settle(&live.cache) {
            Ok(true) => return Ok(()),
            Ok(false) => {
                let subtotal = subtotal.unwrap_or_default();
                format!("the values of `{subtotal}` would sum to more than the total")
            }
            Err(Error::Archive(error @ tallyring_archive::Error::Malformed { .. })) => {
                error.to_string()
            }
            Err(error) => return Err(error),
        };
        Err(Error::Fix(format!(
            "of `{}` on {}, {what}",
            line::shown(total_key),
            self.day
        )))
    }
}
