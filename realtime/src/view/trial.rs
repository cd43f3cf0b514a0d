//! A trial: whether a fix of a day may be published, read by read.
//!
//! A trial reads the files that hold the counts of the log, and no others: datasets may be dropped, and a minus run is
//! merged without the delta stores that it does not correct.

use std::collections::BTreeSet;
use std::sync::Arc;

use tallyring_archive::{Hidden, Run, RunEntry};
use tallyring_records::line::{self, Kind};
use tallyring_records::{Day, MINUTES, UserKey, is_actions_section, is_breakdown_section};

use super::actions::UserLines;
use super::gather::{Gather, may_hold};
use super::less_actions::Taken;
use super::parts::File;
use super::{Live, View};
use crate::budget::Reading;
use crate::error::{Error, Result};

/// Files that hold all counts of the log that a fix may correct.
pub(crate) struct LogFiles {
    /// Files whose counts are added.
    pub plus: Vec<Arc<Run>>,
    /// Files whose counts are taken away.
    pub minus: Vec<Arc<Run>>,
}

impl Live {
    /// Checks that nothing of `day` falls below zero in `files`, and that no value of a subtotal exceeds its total. It
    /// reads every key of the runs `less`, which are among the files, and their users but for those who were erased
    /// since, and holds no lock. Fails with [`Error::Fix`] at the first key that is wrong, or when a block is damaged.
    pub(crate) fn try_fix(
        &self,
        day: Day,
        files: &LogFiles,
        less: &[(Arc<Run>, &RunEntry)],
    ) -> Result<()> {
        let view = self.view_for(Reading::new(&self.read_budget));
        let trial = Trial {
            subtotals: view.subtotals_of(day, files),
            view,
            files,
            day,
        };
        less.iter().try_for_each(|(run, entry)| {
            let erased = trial.view.first.snapshot.erasures.hidden_in(entry);
            trial.run(run, &erased)
        })
    }
}

impl View<'_> {
    /// Subtotals with counts in `files`, and their namespaces, without breakdowns by minute. Minutes are among them
    /// where all minutes of the day are kept.
    fn subtotals_of(&self, day: Day, files: &LogFiles) -> BTreeSet<(String, String)> {
        let minutes_from = self.minutes_from(None);
        let has_minutes = minutes_from.is_none_or(|from| from <= day.start());
        let runs = files.plus.iter().chain(&files.minus);
        let sections = runs.flat_map(|run| run.meta().sums.keys());
        let sections =
            sections.filter(|name| !is_breakdown_section(name) && !is_actions_section(name));
        let subtotals = sections.filter_map(|section| {
            let (subtotal, namespace) = section.strip_suffix('|')?.rsplit_once('.')?;
            Some((subtotal.to_owned(), namespace.to_owned()))
        });
        subtotals
            .filter(|(subtotal, _)| has_minutes || subtotal != MINUTES)
            .collect()
    }
}

struct Trial<'l> {
    view: View<'l>,
    files: &'l LogFiles,
    /// Subtotals and their namespaces.
    subtotals: BTreeSet<(String, String)>,
    day: Day,
}

impl Trial<'_> {
    fn of<'v>(&'v self, runs: &'v [Arc<Run>]) -> impl Iterator<Item = File<'v>> {
        runs.iter().map(|run| self.view.first.file(run))
    }

    /// Checks every key of a run whose counts are taken away, and every user who is not `erased`. A run has the totals
    /// of all its values.
    fn run(&self, run: &Arc<Run>, erased: &Hidden) -> Result<()> {
        let mut cursor = run.cursor();
        while cursor.advance()? {
            let Some((key, _)) = cursor.line()? else {
                break;
            };
            if let Some(user) = UserKey::of_line(key) {
                if !erased.has_user(&user) {
                    self.check_actions(user)?;
                }
                continue;
            }
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

    /// Checks what a user did on the day. Whether less is left than nothing is a matter of the sums of each hour, which
    /// take little memory however much a user did.
    fn check_actions(&self, user: UserKey) -> Result<()> {
        let range = self.day.start()..self.day.next().start();
        let lines = UserLines::new(user, self.day..self.day.next());
        let crc = user.crc();
        let holds = |file: &File<'_>| {
            may_hold(file.run, &range, crc) && !self.view.hidden_in(*file).has_user(&user)
        };
        let mut taken = Taken::new(self.view.reading.charge());
        for file in self.of(&self.files.minus).filter(holds) {
            lines.visit(file, Run::visit_prefix, &mut |day, action, n| {
                taken.less(day, action.of_its_hour(), n)
            })?;
        }
        for file in self.of(&self.files.plus).filter(holds) {
            lines.visit(file, Run::visit_prefix, &mut |day, action, n| {
                taken.more(day, action.of_its_hour(), n).map(drop)
            })?;
        }
        match taken.settle() {
            Some(_) => Ok(()),
            None => Err(Error::Fix(format!(
                "user `{user}` would have done less than nothing on {}: more is taken away than the files have",
                self.day
            ))),
        }
    }

    fn check(&self, total_key: &[u8], subtotal: Option<&str>) -> Result<()> {
        let total = String::from_utf8_lossy(total_key);
        let Some((namespace, stored)) = total.split_once('|') else {
            return Ok(());
        };
        let range = self.day.start()..self.day.next().start();
        let mut gather = Gather::new(&self.view.reading, namespace, stored, subtotal, range);
        gather.note(self.of(&self.files.plus), self.of(&self.files.minus));
        let what = match gather.settle() {
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
