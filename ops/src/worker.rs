//! The hidden workers of a server: heavy work in a process of its own at the lowest priority, which prints its progress
//! (`child.rs`).

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use tallyring_archive::{Blobs, Manifest};
use tallyring_realtime::Reconcile;
use tallyring_rebuild::build;

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
    begin();
    let teller = Arc::new(Teller::default());
    let blobs = telling_blobs(&args.data, &teller)?;
    let manifest = Manifest::load_number(&blobs, args.manifest)?;
    let progress = |done, total| teller.progress(done, total);
    let built = build(&blobs, &manifest, args.options, &progress)?;
    teller.done(built)
}

/// Judges and counts a day again and prints the result, whose runs are in `incoming/`.
pub(crate) fn reconcile(args: &ReconcileWorkerArgs) -> Result<()> {
    begin();
    let teller = Arc::new(Teller::default());
    let blobs = telling_blobs(&args.data, &teller)?;
    let manifest = Manifest::load_number(&blobs, args.manifest)?;
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
    let progress = |done, total| teller.progress(done, total);
    let reconciled = match args.version {
        None => reconcile.run(&blobs, &manifest, &progress)?,
        Some(version) => {
            let mut awaited = manifest.archive.awaited_of(args.day);
            let logged = awaited.find(|logged| logged.version == version);
            let logged = logged.ok_or_else(|| {
                CommandError::Failed(format!("no version {version} of {} is awaited", args.day))
            })?;
            reconcile.again(&blobs, &manifest, logged, &progress)?
        }
    };
    teller.done(reconciled)
}

/// Writes one file of a manifest again and prints the new file. Fails when the manifest has no such file.
pub(crate) fn recompress(args: &RecompressArgs) -> Result<()> {
    begin();
    let teller = Arc::new(Teller::default());
    let blobs = telling_blobs(&args.data, &teller)?;
    let manifest = Manifest::load_number(&blobs, args.manifest)?;
    let file = manifest
        .files()
        .find(|file| file.name == args.file)
        .ok_or_else(|| CommandError::Failed(format!("the manifest names no file {}", args.file)))?;
    let progress = |done, total| teller.progress(done, total);
    let made = tallyring_rebuild::recompress(&blobs, file, args.level, &progress)?;
    teller.done(made)
}

/// Brings a backup up to date and prints what was copied.
pub(crate) fn back_up(args: &BackupArgs) -> Result<()> {
    begin();
    let teller = Teller::default();
    let progress = |done, total| teller.progress(done, total);
    let copied = backup::make(&args.data, &args.backup, &backup::todays_part, &progress)?;
    teller.done(copied)
}

/// The blobs of a data directory. The parent learns of every file that is made, and removes it if it is not published.
fn telling_blobs(data: &Path, teller: &Arc<Teller>) -> Result<Blobs> {
    let teller = Arc::clone(teller);
    Ok(blobs(data)?.telling(move |name| teller.made(name)))
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
