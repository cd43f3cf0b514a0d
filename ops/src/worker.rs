//! The hidden workers of a server: heavy work in a process of its own at the lowest priority, which prints its progress
//! (`child.rs`).

use std::io::{Read, stdin};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use serde::{Deserialize, Serialize};
use tallyring_archive::{Blobs, Manifest};
use tallyring_realtime::{Reconcile, priority};
use tallyring_rebuild::{BuildOptions, Progress, build, recompress};
use tallyring_records::{Day, RuleSet};

use crate::backup;
use crate::child::Teller;
use crate::data_directory::blobs;
use crate::error::{CommandError, Result, doing};

/// The work of a child. A manifest is named by its number.
#[derive(Serialize, Deserialize)]
pub(crate) enum Work {
    /// Build a generation from a manifest; there may be nothing to do.
    Rebuild {
        manifest: u64,
        options: BuildOptions,
    },
    /// Judge and count a day again. The runs of the result go with a load.
    Reconcile(ReconcileWork),
    /// Write a file of a manifest again.
    Recompress {
        manifest: u64,
        file: String,
        level: i32,
    },
    /// Bring a backup up to date.
    BackUp(PathBuf),
}

/// A [`Reconcile`] for a child.
#[derive(Serialize, Deserialize)]
pub(crate) struct ReconcileWork {
    /// A flush wrote it just before.
    pub manifest: u64,
    pub day: Day,
    pub load: String,
    pub rules: Option<RuleSet>,
    pub by: Option<String>,
    pub shards: u16,
    pub level: i32,
    pub memory_bytes: u64,
    /// The awaited version that is made again.
    pub version: Option<u32>,
}

/// Does the work that the standard input tells, and prints its result. Fails as the work does.
pub(crate) fn run(data: &Path) -> Result<()> {
    let mut work = String::new();
    stdin()
        .read_line(&mut work)
        .map_err(doing("read the work of a worker"))?;
    end_with_parent();
    priority::run_last();
    match serde_json::from_str(&work)? {
        Work::Rebuild { manifest, options } => {
            work_on(data, manifest, |blobs, manifest, progress| {
                Ok(build(blobs, manifest, options, progress)?)
            })
        }
        Work::Reconcile(work) => reconcile(data, &work),
        Work::Recompress {
            manifest,
            file,
            level,
        } => work_on(data, manifest, |blobs, manifest, progress| {
            let found = manifest.files().find(|known| known.name == file);
            let found = found.ok_or_else(|| {
                CommandError::Failed(format!("the manifest names no file {file}"))
            })?;
            Ok(recompress(blobs, found, level, progress)?)
        }),
        Work::BackUp(backup) => {
            let teller = Arc::new(Teller::default());
            let reading = Arc::clone(&teller);
            let read = move || reading.goes_on();
            let progress = |done, total| teller.progress(done, total);
            let copied =
                backup::make_watched((data, &backup), &backup::todays_part, &progress, read)?;
            teller.done(copied)
        }
    }
}

fn reconcile(data: &Path, work: &ReconcileWork) -> Result<()> {
    work_on(data, work.manifest, |blobs, manifest, progress| {
        let reconcile = Reconcile {
            day: work.day,
            load: &work.load,
            rules: work.rules.as_ref(),
            by: work.by.as_deref(),
            shards: work.shards,
            level: work.level,
            memory_bytes: work.memory_bytes,
        };
        let Some(version) = work.version else {
            return Ok(reconcile.run(blobs, manifest, progress)?);
        };
        let mut awaited = manifest.archive.awaited_of(work.day);
        let logged = awaited.find(|logged| logged.version == version);
        let logged = logged.ok_or_else(|| {
            CommandError::Failed(format!("no version {version} of {} is awaited", work.day))
        })?;
        Ok(reconcile.again(blobs, manifest, logged, progress)?)
    })
}

/// Does a part of a manifest's work and prints its result. The parent learns of every file that is made, and removes it
/// if it is not published.
fn work_on<T: Serialize>(
    data: &Path,
    manifest: u64,
    work: impl FnOnce(&Blobs, &Manifest, Progress<'_>) -> Result<T>,
) -> Result<()> {
    let teller = Arc::new(Teller::default());
    let (making, reading) = (Arc::clone(&teller), Arc::clone(&teller));
    let blobs = blobs(data)?.telling(move |name| making.made(name));
    let blobs = blobs.telling_parts(move || reading.goes_on());
    let manifest = Manifest::load_number(&blobs, manifest)?;
    let done = work(&blobs, &manifest, &|done, total| {
        teller.progress(done, total)
    })?;
    teller.done(done)
}

/// Ends the process with its parent, which holds the standard input open: without the parent nothing would publish the
/// result, and the next server must be the only writer.
fn end_with_parent() {
    thread::spawn(|| {
        let mut nothing = [0_u8; 1];
        while matches!(stdin().read(&mut nothing), Ok(1..)) {}
        std::process::exit(1);
    });
}
