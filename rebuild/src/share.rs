//! Moves the store of one directory to an object store and a topic, which several nodes share.
//!
//! The order is: files, contents of lists and log; then a mark in the directory, so that no server opens it any more;
//! then the manifest, without which no node starts. So the directory serves, or the nodes do, and never both. Each step
//! can be repeated, and leaves out what is there: a move that was stopped is completed by another one.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use tallyring_archive::{Blobs, Error, Manifest, RunEntry, manifest, names};
use tallyring_realtime::oplog::{OplogError, Owner, Topic, Transfer};
use tallyring_realtime::{Identity, is_same_store};
use tallyring_records::content_hash;
use thiserror::Error as ThisError;

use crate::backup::Progress;

/// Why a store was not moved. Files and messages that were sent stay for the next try.
#[derive(Debug, ThisError)]
pub enum ShareError {
    /// A file cannot be read, or the object store refuses.
    #[error(transparent)]
    Archive(#[from] Error),
    /// The log cannot be read, or the topic refuses.
    #[error(transparent)]
    Log(#[from] OplogError),
    /// The identity of the directory cannot be read.
    #[error(transparent)]
    Store(#[from] tallyring_realtime::Error),
    /// The directory is no store.
    #[error(
        "the directory has no {0}: it is not a data directory; name one that `tallyring serve` made"
    )]
    NoStore(&'static str),
    /// The object store has another store.
    #[error("the bucket has another store; name an empty bucket or prefix as files.s3")]
    OtherStore,
    /// The object store has a whole store.
    #[error(
        "the bucket has a store with manifest {newest} already; name an empty bucket or prefix as files.s3, or start \
         the nodes of that store"
    )]
    InUse {
        /// Number of its newest manifest.
        newest: u64,
    },
    /// The content of a list is damaged.
    #[error(
        "{0}: the content of the list does not have the hash that its name says: remove the file, and start the server \
         with the configuration of the list, which writes it again; or restore it from a backup"
    )]
    List(String),
}

/// A store whose move was prepared.
pub struct Share<'b> {
    local: &'b Blobs,
    shared: &'b Blobs,
    manifest: Manifest,
    log: Transfer<'b>,
}

/// The amount that a move has sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Shared {
    /// The store's id, 32 hexadecimal digits.
    pub store: String,
    /// Files that were uploaded.
    pub files: u64,
    /// Bytes of these files, and of the log.
    pub bytes: u64,
    /// Files that the object store had already.
    pub kept: u64,
    /// Sequence number after the last record of the log.
    pub records: u64,
}

/// True when the directory is marked as moved, and the object store has its manifest: nodes may serve it. False while a
/// move is to be completed, or has not begun.
pub fn is_shared(local: &Blobs, shared: &Blobs) -> Result<bool, ShareError> {
    let is_marked = local.read_if_there(names::MOVED)?.is_some();
    Ok(is_marked && is_same_store(local, shared) && !manifest::numbers(shared)?.is_empty())
}

impl<'b> Share<'b> {
    /// Looks at all of the log, and at what the object store and the topic have; changes nothing. `local` are the blobs
    /// of the directory, and `shared` those of its disk over the object store. The caller holds the lock of the
    /// directory, whose log was closed in good order. Fails where object store or topic have something of another
    /// store, or a whole store, and where the log is damaged or has a message that the topic does not take.
    pub fn prepare(
        local: &'b Blobs,
        shared: &'b Blobs,
        topic: Arc<dyn Topic>,
    ) -> Result<Self, ShareError> {
        let identity = Identity::load(local)?.ok_or(ShareError::NoStore(names::IDENTITY))?;
        let manifest = Manifest::load(local)?.ok_or(ShareError::NoStore("manifest"))?;
        if shared.read_if_there(names::IDENTITY)?.is_some() {
            let lineage = |blobs: &Blobs| blobs.read_if_there(names::LINEAGE);
            if !is_same_store(local, shared) || lineage(local)? != lineage(shared)? {
                return Err(ShareError::OtherStore);
            }
        }
        if let Some(newest) = manifest::numbers(shared)?.pop() {
            return Err(ShareError::InUse { newest });
        }
        Ok(Self {
            log: Transfer::prepare(local.disk(), topic, identity.store_id)?,
            local,
            shared,
            manifest,
        })
    }

    /// Sends what object store and topic lack, all but the manifest, marks the directory as moved to `place`, and
    /// commits the manifest. `owner` is new, as for a take-over. Fails when a file is damaged, and when the disk, the
    /// object store or the topic does; the move can be prepared and run again then.
    pub fn run(
        self,
        owner: Owner,
        place: &str,
        progress: Progress<'_>,
    ) -> Result<Shared, ShareError> {
        self.identity()?;
        // One content may have several names.
        let files: BTreeMap<Option<String>, &RunEntry> = self
            .manifest
            .files()
            .map(|entry| (names::object_key(&entry.name), entry))
            .collect();
        let file_bytes: u64 = files.values().map(|entry| entry.bytes).sum();
        let total = file_bytes + self.log.bytes();
        let mut sent = Shared {
            store: self.manifest.store_id.clone(),
            bytes: self.log.bytes(),
            records: self.log.end(),
            ..Shared::default()
        };
        let mut done = 0;
        for file in files.into_values() {
            if self.shared.upload(&file.name)? {
                sent.files += 1;
                sent.bytes += file.bytes;
            } else {
                sent.kept += 1;
            }
            done += file.bytes;
            progress(done, total);
        }
        self.lists()?;
        self.log
            .run(owner, &|bytes| progress(file_bytes + bytes, total))?;
        self.local.put(names::MOVED, place.as_bytes())?;
        commit(&self.manifest, self.shared)?;
        Ok(sent)
    }

    /// Puts the lineage before the identity, which says whose the object store is.
    fn identity(&self) -> Result<(), ShareError> {
        match self.local.read_if_there(names::LINEAGE)? {
            Some(lineage) => self.shared.put_over(names::LINEAGE, &lineage)?,
            None => self.shared.remove(names::LINEAGE)?,
        }
        let identity = self.local.read(names::IDENTITY)?;
        Ok(self.shared.put_over(names::IDENTITY, &identity)?)
    }

    fn lists(&self) -> Result<(), ShareError> {
        let listed = match self.local.list(names::RULES) {
            // An earlier build had no lists.
            Err(error) if error.is_gone() => return Ok(()),
            listed => listed?,
        };
        for file in listed {
            let name = names::list_content(&file);
            let content = self.local.read(&name)?;
            if content_hash(&content) != file {
                return Err(ShareError::List(name));
            }
            self.shared.put(&name, &content)?;
        }
        Ok(())
    }
}

/// Commits the manifest; an earlier try may have committed it, too, whose answer was lost.
fn commit(manifest: &Manifest, shared: &Blobs) -> Result<(), Error> {
    match manifest.commit(shared) {
        Err(Error::Conflict { number })
            if Manifest::load_number(shared, number).is_ok_and(|there| there == *manifest) =>
        {
            Ok(())
        }
        committed => committed,
    }
}
