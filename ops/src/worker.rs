//! The hidden workers of a server: heavy work in a process of its own at the lowest priority, which prints its progress
//! (`child.rs`).

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use serde::Serialize;
use tallyring_archive::{Blobs, Manifest};
use tallyring_realtime::Reconcile;
use tallyring_rebuild::{Progress, build, recompress as recompress_file};

use crate::backup;
use crate::child::Teller;
use crate::cli::{BackupArgs, RecompressArgs, ReconcileWorkerArgs, WorkerArgs};
use crate::data_directory::blobs;
use crate::error::{CommandError, Result};
use crate::incoming::read_rules;
use crate::out::note;

/// Lowest scheduling priority.
const NICE: i32 = 19;

/// Builds a generation from one manifest and prints it; prints nothing when there is nothing to do.
pub(crate) fn rebuild(args: &WorkerArgs) -> Result<()> {
    work(&args.data, args.manifest, |blobs, manifest, progress| {
        Ok(build(blobs, manifest, args.options, progress)?)
    })
}

/// Judges and counts a day again and prints the result, whose runs are in `incoming/`.
pub(crate) fn reconcile(args: &ReconcileWorkerArgs) -> Result<()> {
    work(&args.data, args.manifest, |blobs, manifest, progress| {
        let rules = match args.rules {
            true => Some(read_rules(&args.data, &args.load)?),
            false => None,
        };
        let reconcile = Reconcile {
            day: args.day,
            load: &args.load,
            rules: rules.as_ref(),
            by: args.by.as_deref(),
            shards: args.shards,
            level: args.level,
            memory_bytes: args.memory,
        };
        let Some(version) = args.version else {
            return Ok(reconcile.run(blobs, manifest, progress)?);
        };
        let mut awaited = manifest.archive.awaited_of(args.day);
        let logged = awaited.find(|logged| logged.version == version);
        let logged = logged.ok_or_else(|| {
            CommandError::Failed(format!("no version {version} of {} is awaited", args.day))
        })?;
        Ok(reconcile.again(blobs, manifest, logged, progress)?)
    })
}

/// Writes one file of a manifest again and prints the new file. Fails when the manifest has no such file.
pub(crate) fn recompress(args: &RecompressArgs) -> Result<()> {
    work(&args.data, args.manifest, |blobs, manifest, progress| {
        let file = manifest.files().find(|file| file.name == args.file);
        let file = file.ok_or_else(|| {
            CommandError::Failed(format!("the manifest names no file {}", args.file))
        })?;
        Ok(recompress_file(blobs, file, args.level, progress)?)
    })
}

/// Brings a backup up to date and prints what was copied.
pub(crate) fn back_up(args: &BackupArgs) -> Result<()> {
    begin();
    let teller = Teller::default();
    let progress = |done, total| teller.progress(done, total);
    let copied = backup::make(&args.data, &args.backup, &backup::todays_part, &progress)?;
    teller.done(copied)
}

/// Does a part of a manifest's work and prints its result. The parent learns of every file that is made, and removes it
/// if it is not published.
fn work<T: Serialize>(
    data: &Path,
    manifest: u64,
    work: impl FnOnce(&Blobs, &Manifest, Progress<'_>) -> Result<T>,
) -> Result<()> {
    begin();
    let teller = Arc::new(Teller::default());
    let telling = Arc::clone(&teller);
    let blobs = blobs(data)?.telling(move |name| telling.made(name));
    let manifest = Manifest::load_number(&blobs, manifest)?;
    let done = work(&blobs, &manifest, &|done, total| {
        teller.progress(done, total)
    })?;
    teller.done(done)
}

fn begin() {
    end_with_parent();
    if let Err(error) = rustix::process::nice(NICE) {
        note!("warning: cannot lower the priority: {error}");
    }
}

/// Ends the process with its parent, which holds the standard input open: without the parent nothing would publish the
/// result, and the next server must be the only writer.
fn end_with_parent() {
    thread::spawn(|| {
        let mut nothing = [0_u8; 1];
        while matches!(std::io::stdin().read(&mut nothing), Ok(1..)) {}
        std::process::exit(1);
    });
}
