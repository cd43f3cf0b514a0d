//! Final days: one manifest names the books of a day that is closed for good, and the fix that moves what is counted
//! to them.

use std::ops::ControlFlow;

use tallyring_archive::{FinalEntry, Manifest, Origin, RunEntry, verify_run};
use tallyring_records::{Day, LoggedFinal, RULES_CHARS_MAX, is_hash_of_rules, line};

use super::Ledger;
use super::fixes::{Fix, SortedRun, check_sorted};
use crate::error::{Error, Result};

/// The namespace of verdicts.
const VERDICTS: &str = "verdict";

/// A final version of one UTC day, to be published.
#[derive(Debug, Clone)]
pub struct Final {
    /// The entry that the manifest is to have. The version is the next one of the day ([`ArchiveEntry::next_fix`]). Its
    /// runs are in `incoming/`, with origins `sorted`, and have counts of the day alone. The books have no actions of
    /// users and no breakdowns by minute, because those are erased and forgotten. The time of publication and
    /// `touched` are filled in.
    ///
    /// [`ArchiveEntry::next_fix`]: tallyring_archive::ArchiveEntry::next_fix
    pub entry: FinalEntry,
    /// The fix of the same day and version; none where the day counts as its books say.
    pub fix: Option<Fix>,
}

impl Ledger {
    /// Publishes a final version of a day: one manifest names its books, its verdicts and its fix. The fix counts from
    /// then on; the books never count. Every byte is checked before, and of the fix all that [`Ledger::publish_fix`]
    /// checks. Fails with [`Error::Final`] or [`Error::Fix`] where something is wrong, when a run is damaged, and when
    /// the disk fails. Nothing is published then, and memory may be flushed.
    pub fn publish_final(&self, closed: &Final) -> Result<()> {
        self.make_final(closed, Final::check_version)
    }

    /// Publishes a final version that manifests allow by `check_version`.
    pub(super) fn make_final(
        &self,
        closed: &Final,
        check_version: fn(&Final, &Manifest) -> Result<()>,
    ) -> Result<()> {
        let live = self.intake.live();
        check_version(closed, &live.manifest())?;
        closed.check_entry()?;
        closed.check_end(live.applied().sequence, live.snapshot().ring.today())?;
        self.check_books(&closed.entry)?;
        if let Some(fix) = &closed.fix {
            self.try_fix(fix)?;
        }
        let mut root = self.root();
        check_version(closed, &root.manifest)?;
        if let Some(fix) = &closed.fix {
            self.check_detail(fix, &root)?;
        }
        let runs = closed.named();
        let published = self.is_touched(&closed.entry).and_then(|touched| {
            self.name_sorted(&mut root, &runs, |next| closed.add_to(next, touched))
        });
        live.unwatch();
        published?;
        drop(root);
        self.forget_sorted(&runs);
        Ok(())
    }

    /// True when the log counts something of the day behind the judged records. The view notes what counts of the day
    /// meanwhile.
    fn is_touched(&self, entry: &FinalEntry) -> Result<bool> {
        let end = self.intake.live().watch(entry.day);
        let (mut next, mut is_touched) = (entry.upto, false);
        while next < end && !is_touched {
            let began = next;
            next = self.intake.changes(began, end, &mut |increment| {
                is_touched = Day::of(increment.at) == entry.day;
                Ok(match is_touched {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                })
            })?;
            if next == began && !is_touched {
                return Err(Error::Final(format!(
                    "the log cannot be read from record {next} on, which was not judged"
                )));
            }
        }
        Ok(is_touched)
    }

    /// Checks the bytes and the lines of books and verdicts.
    fn check_books(&self, entry: &FinalEntry) -> Result<()> {
        check_sorted(entry.day, &entry.books, false).map_err(Error::Final)?;
        check_sorted(entry.day, entry.verdicts.as_slice(), false).map_err(Error::Final)?;
        for run in entry.files() {
            verify_run(&self.blobs, run)?;
        }
        let verdicts = line::total_key(VERDICTS, "");
        let of_verdicts = entry.verdicts.iter();
        let mut sections = of_verdicts.flat_map(|run| run.meta.sums.keys());
        match sections.find(|section| **section != verdicts) {
            Some(section) => Err(Error::Final(format!(
                "the verdicts have `{section}`, and only totals of `{VERDICTS}` are verdicts"
            ))),
            None => Ok(()),
        }
    }
}

impl Final {
    fn check_version(&self, manifest: &Manifest) -> Result<()> {
        let FinalEntry { day, version, .. } = self.entry;
        if let Some(awaited) = manifest.archive.awaited_of(day).next() {
            return Err(Error::Final(format!(
                "version {} of {day} is to be made again before another one is published",
                awaited.version
            )));
        }
        let next = manifest.archive.next_fix(day);
        if version == next {
            return Ok(());
        }
        Err(Error::Final(format!(
            "it is version {version} of {day}, whose next version is {next}; judge the day again"
        )))
    }

    /// Checks what the entry and the fix say by themselves.
    fn check_entry(&self) -> Result<()> {
        let entry = &self.entry;
        let refuse = |what: String| Err(Error::Final(what));
        if !is_hash_of_rules(&entry.rules) {
            return refuse(format!(
                "`{}` is no hash of rules; give 1 to {RULES_CHARS_MAX} hex digits",
                entry
                    .rules
                    .chars()
                    .take(80)
                    .collect::<String>()
                    .escape_debug()
            ));
        }
        for (kind, sums) in &entry.types {
            if let Err(what) = sums.check() {
                return refuse(format!("of `{}`, {what}", kind.escape_debug()));
            }
        }
        let Some(fix) = &self.fix else {
            return Ok(());
        };
        if (fix.day, fix.version) != (entry.day, entry.version) {
            return refuse(format!(
                "its fix is version {} of {}, and it is version {} of {}",
                fix.version, fix.day, entry.version, entry.day
            ));
        }
        if fix.corrects.until > entry.upto {
            return refuse(format!(
                "its fix corrects records until {}, and those before {} were judged",
                fix.corrects.until, entry.upto
            ));
        }
        Ok(())
    }

    /// Checks that the day is over, and that the log, which ends before the record `end`, has the judged records.
    fn check_end(&self, end: u64, today: Day) -> Result<()> {
        let FinalEntry { day, upto, .. } = self.entry;
        if day >= today {
            return Err(Error::Final(format!(
                "{day} is not over: the ring stands at {today}"
            )));
        }
        if upto > end {
            return Err(Error::Final(format!(
                "it judged the records before {upto}, and the log ends at {end}"
            )));
        }
        Ok(())
    }

    /// All its runs, under the names that they get.
    fn named(&self) -> Vec<SortedRun> {
        let named = self.published(0);
        let own = self.entry.files().zip(named.files());
        let own = own.map(|(sorted, named)| SortedRun {
            sorted: sorted.name.clone(),
            named: named.clone(),
        });
        own.chain(self.fix.iter().flat_map(Fix::named)).collect()
    }

    /// Its entry as a manifest has it.
    fn published(&self, at_ms: i64) -> FinalEntry {
        let FinalEntry { day, version, .. } = self.entry;
        let named = |run: &RunEntry| run.renamed(Origin::Final { day, version });
        let verdicts = self.entry.verdicts.as_ref();
        FinalEntry {
            at_ms,
            books: self.entry.books.iter().map(named).collect(),
            verdicts: verdicts.map(|run| run.renamed(Origin::Verdicts { day, version })),
            touched: false,
            ..self.entry.clone()
        }
    }

    fn add_to(&self, next: &mut Manifest, touched: bool) {
        let FinalEntry { day, version, .. } = self.entry;
        let awaited = &mut next.archive.awaited;
        let is_awaited = |known: &LoggedFinal| (known.day, known.version) == (day, version);
        let awaited = (awaited.iter().position(is_awaited)).map(|place| awaited.remove(place));
        if awaited.is_none() {
            next.archive.told_by_log.remove(&day);
        }
        let at_ms = awaited.as_ref().map(|awaited| awaited.at_ms);
        let mut entry = FinalEntry {
            touched,
            ..self.published(at_ms.unwrap_or(next.written_at_ms))
        };
        if let Some(awaited) = &awaited {
            (entry.forced, entry.actor) = (awaited.forced, awaited.actor.clone());
        }
        if let Some(proof) = &mut entry.proof {
            proof.is_logged = awaited.is_some();
        }
        let finals = &mut next.archive.finals;
        let place = finals.partition_point(|before| (before.day, before.version) < (day, version));
        finals.insert(place, entry);
        if let Some(fix) = &self.fix {
            fix.add_to(next);
        }
    }
}
