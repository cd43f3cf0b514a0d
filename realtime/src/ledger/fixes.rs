//! Fixes of days: runs of what a day counts more, and of what it counts less, are named by one manifest.

use std::collections::BTreeSet;
use std::sync::Arc;

use tallyring_archive::{
    Corrects, GenerationEntry, Manifest, Origin, Partition, Run, RunEntry, Sign, names, verify_run,
};
use tallyring_records::line::{self, Kind};
use tallyring_records::{Day, is_actions_section, is_breakdown_section};

use super::{Ledger, Root};
use crate::error::{Error, Result};
use crate::view::LogFiles;

/// A fix of one UTC day, to be published. Its runs are in `incoming/`, with origins `sorted`.
#[derive(Debug, Clone)]
pub struct Fix {
    /// The day, which has all counts of the runs.
    pub day: Day,
    /// The version that it is to have, above those of all fixes and final versions of the day; numbers may be skipped.
    /// So a fix that is published again is refused.
    pub version: u32,
    /// The records of the log that were judged again. All counts that are taken away are counts of these.
    pub corrects: Corrects,
    /// Counts to add, one run for each shard at most.
    pub plus: Vec<RunEntry>,
    /// Counts to take away, one run for each shard at most.
    pub minus: Vec<RunEntry>,
}

impl Ledger {
    /// Publishes a fix: one manifest names its runs, which count from then on. Every byte and every key is checked
    /// before. Fails with [`Error::Fix`] where a count of the log would fall below zero, a subtotal would exceed its
    /// total, or the fix has what cannot be corrected; fails when a run is damaged or the disk fails. No count has
    /// changed then, and memory may be flushed. A fix is never withdrawn: a later one gives back what it took.
    pub fn publish_fix(&self, fix: &Fix) -> Result<()> {
        fix.check_version(&self.intake.live().manifest())?;
        self.try_fix(fix)?;
        let mut root = self.root();
        fix.check_version(&root.manifest)?;
        self.check_detail(fix, &root)?;
        let runs = fix.named();
        self.name_sorted(&mut root, &runs, |next| fix.correct(next))?;
        drop(root);
        self.forget_sorted(&runs);
        Ok(())
    }

    /// Checks everything of a fix that can be checked without the lock of the root, but for its version.
    pub(super) fn try_fix(&self, fix: &Fix) -> Result<()> {
        let live = self.intake.live();
        fix.check_records(live.applied().sequence)?;
        let (plus, minus) = (
            self.check_runs(fix, &fix.plus)?,
            self.check_runs(fix, &fix.minus)?,
        );
        if plus.is_empty() && minus.is_empty() {
            return Err(Error::Fix("it has no run".into()));
        }
        let mut files = self.files_of_log(fix)?;
        files.plus.extend(plus);
        files.minus.extend(minus.iter().cloned());
        let less: Vec<(Arc<Run>, &RunEntry)> = minus.into_iter().zip(&fix.minus).collect();
        // Counts of the log only grow meanwhile, but for other fixes of the day.
        live.try_fix(fix.day, &files, &less)
    }

    /// Flushes, and opens the files that hold the counts of the log which a merge of the fix will find. A loss of power
    /// then takes none of the records that are corrected.
    fn files_of_log(&self, fix: &Fix) -> Result<LogFiles> {
        let mut root = self.root();
        self.flush_locked(&mut root)?;
        let Manifest {
            intake, archive, ..
        } = &root.manifest;
        let (start, end) = (fix.day.start(), fix.day.next().start());
        let of_day = |run: &&RunEntry| run.meta.overlaps(start, end);
        // A merge takes the earlier fixes of the day first, and what they correct.
        let earlier = archive.runs.iter().filter(of_day);
        let corrects: Vec<Corrects> = earlier.filter_map(|run| run.corrects).collect();
        let stores = intake.stores.iter().filter(|store| {
            fix.corrects.meets(store) || corrects.iter().any(|corrects| corrects.meets(store))
        });
        let runs = archive
            .runs
            .iter()
            .chain(stores.flat_map(|store| &store.runs));
        let runs = runs.filter(of_day);
        let runs = Run::open_all(&self.blobs, runs)?;
        let (plus, minus) = runs.into_iter().partition(|run| run.sign() == Sign::Plus);
        Ok(LogFiles { plus, minus })
    }

    /// Copies sorted runs to the names that they have from now on, and commits the manifest that `change` makes of the
    /// next one. After an error the names are gone.
    pub(super) fn name_sorted(
        &self,
        root: &mut Root,
        runs: &[SortedRun],
        change: impl FnOnce(&mut Manifest),
    ) -> Result<()> {
        let mut next = self.next_manifest(root)?;
        let copied = runs.iter().try_for_each(|run| {
            let copied = self.blobs.copy(&run.sorted, &run.named.name);
            copied.map(drop).map_err(Error::from)
        });
        let published = copied.and_then(|()| {
            change(&mut next);
            // Bounds may be too high, never too low.
            let sources = runs.iter().filter(|run| run.named.origin.is_fix());
            let sources: Vec<RunEntry> = sources.map(|run| run.named.clone()).collect();
            self.intake.raise_bounds(&sources);
            self.switch(root, next, &[])
        });
        if published.is_err() && root.check().is_ok() {
            let made = runs.iter().map(|run| run.named.name.as_str());
            let Root {
                files, manifest, ..
            } = root;
            files.remove_unnamed(&self.blobs, made, manifest);
        }
        published
    }

    /// Removes sorted runs that have other names now. A file that cannot be removed only takes space.
    pub(super) fn forget_sorted(&self, runs: &[SortedRun]) {
        for run in runs {
            let _ = self.blobs.remove(&run.sorted);
        }
    }

    /// Checks the bytes and the lines of runs, and opens them.
    fn check_runs(&self, fix: &Fix, runs: &[RunEntry]) -> Result<Vec<Arc<Run>>> {
        check_sorted(fix.day, runs, true).map_err(Error::Fix)?;
        let mut open = Vec::new();
        for entry in runs {
            verify_run(&self.blobs, entry)?;
            let run = Run::open_named(&self.blobs, entry)?;
            let mut cursor = run.cursor();
            while cursor.advance()? {
                if let Some((key, _)) = cursor.line()?
                    && line::kind_of(key) == Some(Kind::Users)
                {
                    return Err(Error::Fix(format!(
                        "{} has users at `{}`, and sketches of users are not corrected yet; leave them out",
                        entry.name,
                        line::shown(key)
                    )));
                }
            }
            open.push(run);
        }
        Ok(open)
    }

    /// Checks that all kept files have the detail that is corrected.
    pub(super) fn check_detail(&self, fix: &Fix, root: &Root) -> Result<()> {
        let now = self.intake.believed_ms().div_euclid(1_000);
        let ends = fix.day.next().start();
        let minutes_from = self.intake.options().breakdowns_from(now);
        if ends > minutes_from {
            return Err(Error::Fix(format!(
                "breakdowns by minute of {} are still kept, and are not corrected; correct the day {} hours later",
                fix.day,
                (ends - minutes_from).div_euclid(3_600) + 1
            )));
        }
        let start = fix.day.start();
        let generations = &root.manifest.archive.generations;
        let detail = |kept: &GenerationEntry| {
            let horizon = kept.horizon();
            (horizon.minutes_from <= start, horizon.hours_from <= start)
        };
        let oldest = generations.first();
        if let Some(other) = generations
            .iter()
            .find(|kept| oldest.map(detail) != Some(detail(kept)))
        {
            return Err(Error::Fix(format!(
                "generation {} has no hours, or no minutes, of {}, and an older one that is kept has them; correct the day \
                 once rebuilds have replaced that",
                other.number, fix.day
            )));
        }
        for run in fix.plus.iter().chain(&fix.minus) {
            let mut kept = generations.iter();
            if let Some(kept) = kept.find(|kept| kept.horizon().loses(run)) {
                return Err(Error::Fix(format!(
                    "generation {} has no hours, no minutes or no actions of {} any more; leave minutes and actions \
                     out, and correct only days whose hours are kept",
                    kept.number, fix.day
                )));
            }
        }
        Ok(())
    }
}

impl Fix {
    fn check_version(&self, manifest: &Manifest) -> Result<()> {
        let next = manifest.archive.next_fix(self.day);
        if self.version >= next {
            return Ok(());
        }
        Err(Error::Fix(format!(
            "it is version {} of {}, whose next version is {next}: another one came before it",
            self.version, self.day
        )))
    }

    /// Checks that the log, which ends before the record `end`, has the records that are corrected.
    fn check_records(&self, end: u64) -> Result<()> {
        let Corrects { from, until } = self.corrects;
        if from < until && until <= end {
            return Ok(());
        }
        Err(Error::Fix(format!(
            "it corrects the records from {from} until {until}, and these are not records of the log, which ends at \
             {end}"
        )))
    }

    /// Its runs, under their names among the source runs: those that are added, and then those that are taken away.
    pub(super) fn named(&self) -> Vec<SortedRun> {
        let named = |sign, run: &RunEntry| SortedRun {
            sorted: run.name.clone(),
            named: RunEntry {
                corrects: (sign == Sign::Minus).then_some(self.corrects),
                ..run.renamed(Origin::Fix {
                    day: self.day,
                    version: self.version,
                    sign,
                })
            },
        };
        let plus = self.plus.iter().map(|run| named(Sign::Plus, run));
        let minus = self.minus.iter().map(|run| named(Sign::Minus, run));
        plus.chain(minus).collect()
    }

    /// Lets `next` count its runs.
    pub(super) fn add_to(&self, next: &mut Manifest) {
        let runs = self.named().into_iter().map(|run| run.named);
        next.archive.runs.extend(runs);
    }

    /// As [`Fix::add_to`], where no final version of the day knows the fix.
    fn correct(&self, next: &mut Manifest) {
        self.add_to(next);
        next.archive.touch_finals(self.day..=self.day);
    }
}

/// A sorted run of `incoming/` that gets another name.
pub(super) struct SortedRun {
    /// The name that it had.
    pub sorted: String,
    /// Its entry under the name that a manifest gives it.
    pub named: RunEntry,
}

/// Checks that runs are sorted runs with counts of one day alone, one for each shard at most, without what cannot be
/// kept; `with_actions` where they may have actions of users. Fails with what is wrong.
pub(super) fn check_sorted(day: Day, runs: &[RunEntry], with_actions: bool) -> Result<(), String> {
    let mut shards = BTreeSet::new();
    for run in runs {
        let meta = &run.meta;
        if !shards.insert((meta.shard, meta.shards)) {
            return Err(format!("it has two runs of shard {}", meta.shard));
        }
        let refuse = |what: &str| Err(format!("{} {what}", run.name));
        let is_sorted =
            matches!(run.origin, Origin::Sorted(_)) && run.name == run.name_of(&run.hash);
        if !is_sorted {
            return refuse(&format!("is no sorted run of {}/", names::INCOMING));
        }
        if meta.partition != Partition::month_of(day.code()) {
            return refuse(&format!("is not of the month of {day}"));
        }
        if meta.first < day.start() || meta.last >= day.next().start() {
            return refuse(&format!(
                "has counts of other days than {day}; correct each day by itself"
            ));
        }
        let mut sections = meta.sums.keys();
        let section = sections
            .find(|name| is_breakdown_section(name) || !with_actions && is_actions_section(name));
        if let Some(section) = section {
            return refuse(&format!(
                "has `{section}`: breakdowns by minute are not corrected yet, and final books have no actions; leave \
                 them out"
            ));
        }
    }
    Ok(())
}
