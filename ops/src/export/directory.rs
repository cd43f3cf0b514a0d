//! The directory of an export: a file for each month, and what each was made of.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use tallyring_archive::Partition;

use super::file::{self, MonthFiles};
use super::plan::{Asked, Group, Plan, is_asked};
use crate::cli::ExportFormat;
use crate::error::{CommandError, Result, doing};

/// Says what the directory has, and by it the next export knows what is new.
const STATE: &str = "tallyring-export.json";

/// The directory that an export writes to.
pub(super) struct Directory {
    path: PathBuf,
    state: State,
    /// The advisory lock of the directory says that an export writes there.
    _lock: File,
}

/// The store, the form and the namespaces of an export: a directory has one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Of {
    pub store: String,
    /// A store that was restored counts apart since then, and has one of its own.
    #[serde(default)]
    pub lineage: Option<String>,
    pub format: ExportFormat,
    /// Ascending; none for all.
    pub namespaces: Vec<String>,
}

/// The content of [`STATE`].
#[derive(Serialize, Deserialize)]
struct State {
    #[serde(flatten)]
    of: Of,
    months: BTreeMap<Partition, Month>,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Month {
    digest: String,
    #[serde(flatten)]
    made: Made,
}

/// A file of a month.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Made {
    /// Its name.
    pub file: String,
    /// There is no file where there are no rows.
    pub rows: u64,
    /// Size of the file.
    pub bytes: u64,
}

impl Directory {
    /// Opens the directory, or makes it. Fails where it has something else, or another export writes to it.
    pub(super) fn open(path: &Path, of: Of) -> Result<Self> {
        let shown = path.display();
        fs::create_dir_all(path).map_err(doing(format!("make {shown}")))?;
        let lock = File::open(path).map_err(doing(format!("open {shown}")))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(CommandError::Unavailable(format!(
                    "another export writes to {shown}; wait until it has ended"
                )));
            }
            Err(error) => return Err(doing(format!("lock {shown}"))(io::Error::from(error))),
        }
        let kept = match fs::read(path.join(STATE)) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(doing(format!("read {shown}/{STATE}"))(error)),
        };
        let state = match kept {
            Some(text) => serde_json::from_slice(&text).map_err(doing(format!(
                "read {shown}/{STATE}; name an empty directory"
            )))?,
            None => {
                check_empty(path)?;
                let months = BTreeMap::new();
                State {
                    of: of.clone(),
                    months,
                }
            }
        };
        check_same(path, &state.of, &of)?;
        let directory = Self {
            path: path.to_owned(),
            state,
            _lock: lock,
        };
        directory.save()?;
        Ok(directory)
    }

    /// Namespaces that are exported; none for all.
    pub(super) fn namespaces(&self) -> &[String] {
        &self.state.of.namespaces
    }

    /// How many files there are.
    pub(super) fn files(&self) -> usize {
        let months = self.state.months.values();
        months.filter(|month| month.made.rows > 0).count()
    }

    /// The months of a group that are not there as they should be.
    pub(super) fn due(&self, group: &Group<'_>) -> Vec<Partition> {
        let is_due = |(month, digest): &(&Partition, &String)| {
            let known = self.state.months.get(month);
            !known.is_some_and(|known| known.digest == **digest && self.is_there(&known.made))
        };
        let due = group.months.iter().filter(is_due);
        due.map(|(month, _)| *month).collect()
    }

    fn is_there(&self, made: &Made) -> bool {
        let found = fs::metadata(self.path.join(&made.file));
        made.rows == 0 || found.is_ok_and(|found| found.len() == made.bytes)
    }

    /// Begins files of these months.
    pub(super) fn begin(&self, months: &[Partition]) -> MonthFiles {
        MonthFiles::new(&self.path, self.state.of.format, months)
    }

    /// Puts the file of a month in its place. Returns what it has, and none where there was nothing and is nothing.
    pub(super) fn keep(
        &mut self,
        files: &mut MonthFiles,
        group: &Group<'_>,
        month: Partition,
    ) -> Result<Option<Made>> {
        let made = files.finish(month)?;
        let before = self.state.months.get(&month);
        let had_rows = before.is_some_and(|before| before.made.rows > 0);
        if made.rows == 0 {
            self.remove(&made.file)?;
        }
        let digest = group.months[&month].clone();
        let is_told = had_rows || made.rows > 0;
        let entry = Month {
            digest,
            made: made.clone(),
        };
        self.state.months.insert(month, entry);
        Ok(is_told.then_some(made))
    }

    /// Months that are asked for and that the plan does not have any more.
    pub(super) fn superfluous(&self, plan: &Plan<'_>, asked: Asked) -> Vec<Partition> {
        let is_planned =
            |month: &Partition| plan.groups.iter().any(|of| of.months.contains_key(month));
        let months = self.state.months.keys().copied();
        months
            .filter(|month| is_asked(*month, asked) && !is_planned(month))
            .collect()
    }

    /// Removes a month. True where it had rows.
    pub(super) fn forget(&mut self, month: Partition) -> Result<bool> {
        let Some(gone) = self.state.months.remove(&month) else {
            return Ok(false);
        };
        self.remove(&file::name(month, self.state.of.format))?;
        Ok(gone.made.rows > 0)
    }

    /// Notes durably what is there.
    pub(super) fn save(&self) -> Result<()> {
        let (path, new) = (
            self.path.join(STATE),
            self.path.join(format!("{STATE}.part")),
        );
        let mut text = serde_json::to_vec_pretty(&self.state)?;
        text.push(b'\n');
        let written = File::create(&new).and_then(|mut file| {
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(&self.path)?.sync_all()
        });
        written.map_err(doing(format!("write {}", path.display())))
    }

    fn remove(&self, file: &str) -> Result<()> {
        let path = self.path.join(file);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(doing(format!("remove {}", path.display()))(error))
            }
            _ => Ok(()),
        }
    }
}

/// Fails where a directory without a state has files, which may be somebody's.
fn check_empty(path: &Path) -> Result<()> {
    let shown = path.display();
    let entries = fs::read_dir(path).map_err(doing(format!("read {shown}")))?;
    let is_other = |name: &std::ffi::OsStr| name != format!("{STATE}.part").as_str();
    match entries.flatten().any(|entry| is_other(&entry.file_name())) {
        true => Err(CommandError::Usage(format!(
            "{shown} has files and no {STATE}; name an empty directory"
        ))),
        false => Ok(()),
    }
}

/// Fails where the directory has an export of something else.
fn check_same(path: &Path, found: &Of, wanted: &Of) -> Result<()> {
    let what = if (&found.store, &found.lineage) != (&wanted.store, &wanted.lineage) {
        "of another store"
    } else if found.format != wanted.format {
        "in another format"
    } else if found.namespaces != wanted.namespaces {
        "of other namespaces"
    } else {
        return Ok(());
    };
    Err(CommandError::Usage(format!(
        "{} has an export {what}; name an empty directory",
        path.display()
    )))
}
