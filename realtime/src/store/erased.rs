//! Where erased users still are: in files that no rebuild has written again yet, and in the log until its segments go.

use std::collections::BTreeMap;

use tallyring_archive::{Hidden, Run, RunEntry};
use tallyring_records::{Offset, Record, UserKey, decode_all};

use super::Store;
use crate::error::Result;
use crate::oplog::{ApplyError, Frame, ReadFrom, scan};

/// Leftovers of erased users.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Users that were erased and may be left somewhere.
    pub users: usize,
    /// Lines of hidden actions, by the name of the file that holds them.
    pub lines: BTreeMap<String, u64>,
    /// Records of the log that name an erased user, and are older than the erasure.
    pub records: u64,
}

impl Leftovers {
    /// True when nothing is left.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.records == 0
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

    /// Looks for what is left of erased users, in every file that the manifest names and in the whole log. Takes as
    /// long as to read them. Fails when a file or the log is damaged.
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
                leftovers.records += u64::from(erased_at.is_some_and(|at| sequence < at));
            }
            Ok(())
        };
        let disk = self.world().blobs();
        scan(disk.disk(), None, ReadFrom::Oldest, &mut apply)?;
        Ok(leftovers)
    }

    fn hidden_lines(&self, file: &RunEntry, hidden: &Hidden) -> Result<u64> {
        if hidden.is_empty() {
            return Ok(0);
        }
        let mut lines = 0;
        let mut cursor = Run::open_named(&self.world().blobs(), file)?.cursor();
        while cursor.advance()? {
            lines += u64::from(cursor.line()?.is_some_and(|(key, _)| hidden.has(key)));
        }
        Ok(lines)
    }
}
