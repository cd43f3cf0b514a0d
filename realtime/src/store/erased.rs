//! Where erased users still are: in files that no rebuild has written again yet, in files that were put aside, and in
//! the log until its segments are written again.

use std::collections::BTreeMap;
use std::sync::Arc;

use tallyring_archive::{Disk, Erasures, Hidden, Run, RunEntry, names};
use tallyring_records::{Offset, Record, UserKey, decode_all};

use super::Store;
use crate::error::Result;
use crate::oplog::{ApplyError, Frame, ReadFrom, scan};

/// Leftovers of erased users.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Users that were erased and may be left somewhere.
    pub users: usize,
    /// Lines of hidden actions, by the name of the file that holds them. In a file of `aside/`, which nobody reads,
    /// also lines of what these users did later.
    pub lines: BTreeMap<String, u64>,
    /// Files of `aside/` that cannot be read as sorted files, so that nothing can be said of them.
    pub unread: Vec<String>,
    /// Records of the log that name an erased user, and are older than the erasure.
    pub records: u64,
}

impl Leftovers {
    /// True when nothing is left.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.unread.is_empty() && self.records == 0
    }
}

impl Store {
    /// Erases users, as [`Intake::erase`](crate::Intake::erase) does, and ends what is held for them.
    pub fn erase(&self, users: &[String]) -> Result<Offset> {
        let after = self.intake().erase(users)?;
        for user in users {
            self.holds().end_all(UserKey::of(self.live().keys(), user));
        }
        Ok(after)
    }

    /// Looks for what is left of erased users: in every file that the manifest names, in those that were put aside, and
    /// in the whole log. Takes as long as to read them. Fails when a file or the log is damaged.
    pub fn leftovers(&self) -> Result<Leftovers> {
        let erasures = self.live().erasures();
        let mut leftovers = Leftovers {
            users: erasures.len(),
            ..Leftovers::default()
        };
        if erasures.is_empty() {
            return Ok(leftovers);
        }
        let manifest = self.manifest();
        let files: BTreeMap<&str, &RunEntry> = manifest
            .files()
            .map(|file| (file.name.as_str(), file))
            .collect();
        for file in files.into_values() {
            let lines = self.hidden_lines(file, &erasures.hidden_in(file))?;
            if lines > 0 {
                leftovers.lines.insert(file.name.clone(), lines);
            }
        }
        self.look_aside(&erasures, &mut leftovers)?;
        leftovers.records = self.records_of_erased(self.world().blobs().disk())?;
        Ok(leftovers)
    }

    /// Records of a log, or of a copy of it, that name an erased user and are older than the erasure. Reads all of it;
    /// 0 where there is none. Fails when the log is damaged.
    pub fn records_of_erased(&self, disk: &dyn Disk) -> Result<u64> {
        let erasures = self.live().erasures();
        let mut found = 0;
        let mut apply = |frame: Frame<'_>| -> Result<(), ApplyError> {
            let records = decode_all(frame.payload, frame.count)?;
            for (sequence, record) in (frame.first_sequence..).zip(&records) {
                let key = |user: &String| UserKey::of(self.live().keys(), user);
                let user = match record {
                    Record::Hold(hold) => Some(hold.user),
                    Record::Filtered { increment, .. } => increment.user.as_ref().map(key),
                    other => other
                        .increment()
                        .and_then(|(_, of)| of.user.as_ref().map(key)),
                };
                let erased_at = user.and_then(|user| erasures.erased_at(&user));
                found += u64::from(erased_at.is_some_and(|at| sequence < at));
            }
            Ok(())
        };
        scan(disk, None, ReadFrom::Oldest, &mut apply)?;
        Ok(found)
    }

    /// Looks through the files that a start could not place.
    fn look_aside(&self, erasures: &Erasures, leftovers: &mut Leftovers) -> Result<()> {
        let blobs = self.world().blobs();
        let is_erased = |key: &[u8]| {
            let user = UserKey::of_line(key);
            user.is_some_and(|user| erasures.erased_at(&user).is_some())
        };
        for file in blobs.list(names::ASIDE)? {
            let name = format!("{}/{file}", names::ASIDE);
            let lines = Run::open(&blobs, &name).and_then(|run| count_lines(&run, &is_erased));
            match lines {
                Ok(0) => {}
                Ok(lines) => drop(leftovers.lines.insert(name, lines)),
                Err(_) => leftovers.unread.push(name),
            }
        }
        Ok(())
    }

    fn hidden_lines(&self, file: &RunEntry, hidden: &Hidden) -> Result<u64> {
        if hidden.is_empty() {
            return Ok(0);
        }
        let run = Run::open_named(&self.world().blobs(), file)?;
        Ok(count_lines(&run, &|key| hidden.has(key))?)
    }
}

fn count_lines(
    run: &Arc<Run>,
    is_counted: &dyn Fn(&[u8]) -> bool,
) -> tallyring_archive::Result<u64> {
    if !run.meta().has_actions() {
        return Ok(0);
    }
    let (mut lines, mut cursor) = (0, run.cursor());
    while cursor.advance()? {
        lines += u64::from(cursor.line()?.is_some_and(|(key, _)| is_counted(key)));
    }
    Ok(lines)
}
