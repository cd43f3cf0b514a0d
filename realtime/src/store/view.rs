//! What queries see, and how it changes.
//!
//! A view is taken in constant time, whatever is counted: it shares everything with the store. What changes the store while
//! a view is held copies first what both would share, which is little: counts themselves go to another layer
//! (`realtime/src/delta/layers.rs`). Invariant: a view never changes.

use std::sync::Arc;

use tallyring_archive::{Manifest, Run, SchemaEntry};
use tallyring_records::Offset;

use super::files::ArchiveFiles;
use super::lateness::Watermarks;
use crate::error::{Error, Result};
use crate::heavy::Heavy;
use crate::ring::Ring;

/// One state of everything that is counted. A clone shares it.
#[derive(Clone)]
pub(super) struct View {
    pub ring: Ring,
    /// All declarations, the one in force last.
    pub schemas: Arc<Vec<SchemaEntry>>,
    pub archive: Arc<ArchiveFiles>,
    pub manifest: Arc<Manifest>,
    /// Everything before this offset is applied.
    pub applied: Offset,
    /// Until when events are expected.
    pub watermarks: Watermarks,
}

impl View {
    /// The files of a kept generation.
    pub fn kept(&self, number: u64) -> Result<&[Arc<Run>]> {
        let kept = &self.archive.kept;
        match kept.get(&number) {
            Some(files) => Ok(files.as_slice()),
            None => {
                let kept: Vec<String> = kept.keys().map(u64::to_string).collect();
                Err(Error::NoGeneration {
                    number,
                    kept: kept.join(", "),
                })
            }
        }
    }
}

/// The newest view, and what ranks the keys of recent hours. Its lock is held for a moment only.
pub(super) struct Live {
    view: Arc<View>,
    /// Heavy keys of recent hours, and whether they are those of all that is counted.
    pub heavy: Heavy,
    pub knows_heavy: bool,
}

impl Live {
    /// Begins with this view.
    pub fn new(view: View, heavy: Heavy, knows_heavy: bool) -> Self {
        Self {
            view: Arc::new(view),
            heavy,
            knows_heavy,
        }
    }

    /// The newest view.
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.view)
    }

    /// The newest view, to change; views that are held stay as they are.
    pub fn view_mut(&mut self) -> &mut View {
        Arc::make_mut(&mut self.view)
    }
}
