//! Blobs that become durable together.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use super::{Blobs, Unnamed, directory_of};
use crate::error::Result;

/// Blobs that get their names one after the other, also on several threads, and become durable together: each sync of a
/// directory costs a commit of the file system's journal, for which the log waits, too.
#[must_use = "the blobs are durable once the group is committed"]
pub struct PutGroup<'b> {
    blobs: &'b Blobs,
    directories: Mutex<BTreeSet<String>>,
}

impl<'b> PutGroup<'b> {
    pub(super) fn of(blobs: &'b Blobs) -> Self {
        Self {
            blobs,
            directories: Mutex::default(),
        }
    }

    /// The blobs of which these are some.
    pub fn blobs(&self) -> &Blobs {
        self.blobs
    }

    /// Names a blob unless the name is taken; true when it was free. It can be read then. See [`Blobs::put`].
    pub fn put(&self, blob: Unnamed, name: &str) -> Result<bool> {
        let is_free = blob.name(name)?;
        let mut directories = self
            .directories
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        directories.insert(directory_of(name).to_owned());
        Ok(is_free)
    }

    /// Makes all blobs of the group durable. After an error it is unknown whether the blobs survive a power cut.
    pub fn commit(self) -> Result<()> {
        let directories = self
            .directories
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        directories
            .iter()
            .try_for_each(|directory| self.blobs.sync(directory))
    }
}
