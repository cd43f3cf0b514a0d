//! The result that a rebuild hands to its publisher: JSON from one process to another of the same build, never kept.

use serde::{Deserialize, Serialize};
use tallyring_records::StoreId;

use crate::manifest::GenerationEntry;
use crate::run::RunEntry;

/// The result of a rebuild of one manifest, to be published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Build {
    /// Number of the manifest it was built from.
    pub base: u64,
    /// Delta stores whose every count is in `runs`.
    pub exported: Vec<StoreId>,
    /// New source runs.
    pub runs: Vec<RunEntry>,
    /// The new generation, one above the newest, not published yet; none when it would be the one before.
    pub generation: Option<GenerationEntry>,
    /// Files that take the place of files with actions of erased users.
    pub cleaned: Vec<Cleaned>,
    /// Why fixes of days are not merged, a sentence for each partition: they take away more than was counted.
    pub refused: Vec<String>,
    /// How its files came to be.
    pub work: Work,
}

impl Build {
    /// The files that it names, those of earlier generations among them.
    pub fn files(&self) -> impl Iterator<Item = &RunEntry> {
        let of_generation = self.generation.iter().flat_map(|built| &built.files);
        let cleaned = self.cleaned.iter();
        let cleaned = cleaned.filter_map(|cleaned| cleaned.by.as_ref());
        self.runs.iter().chain(of_generation).chain(cleaned)
    }
}

/// A file without actions of erased users.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cleaned {
    /// Hash of the file in whose place it comes.
    pub hash: String,
    /// The file; none where no line is left. It is the file itself where that held no such action.
    pub by: Option<RunEntry>,
}

/// How the files of a generation came to be. The catalog keeps it with the job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Merged of several source runs, and written.
    pub merged: u64,
    /// The only run of their place, which got a second name.
    pub linked: u64,
    /// Shards taken over from an earlier generation.
    pub shared: u64,
}
