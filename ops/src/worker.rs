//! The hidden workers of a server: heavy work in a process of its own, at the lowest priority, which tells what it does (`child.rs`).

use std::io::Read;
use std::thread;

use tallyring_archive::{KeepDays, Manifest};
use tallyring_rebuild::{BuildOptions, build};

use crate::backup;
use crate::child::Teller;
use crate::cli::{BackupArgs, RecompressArgs, WorkerArgs};
use crate::data_directory::blobs;
use crate::error::{CommandError, Result};
use crate::out::note;

/// Lowest scheduling priority.
const NICE: i32 = 19;

/// Builds from one manifest; tells the build, or nothing when there is nothing to do.
///
/// # Errors
/// What the build says.
pub fn rebuild(args: &WorkerArgs) -> Result<()> {
    begin();
    let blobs = blobs(&args.data)?;
    let manifest = Manifest::load_number(&blobs, args.manifest)?;
    let options = BuildOptions {
        shards: args.shards,
        level: args.level,
        keep: KeepDays {
            minutes: args.minute_days,
            hours: args.hour_days,
        },
    };
    let teller = Teller::default();
    let progress = |done, total| teller.progress(done, total);
    let built = build(&blobs, &manifest, options, &progress)?;
    teller.done(built)
}

/// Writes one file of a manifest again; tells what was made of it.
///
/// # Errors
/// When it is no file of the manifest, or what writing it again says.
pub fn recompress(args: &RecompressArgs) -> Result<()> {
    begin();
    let blobs = blobs(&args.data)?;
    let manifest = Manifest::load_number(&blobs, args.manifest)?;
    let file = manifest
        .files()
        .find(|file| file.name == args.file)
        .ok_or_else(|| CommandError::Failed(format!("{} is no such file", args.file)))?;
    let teller = Teller::default();
    let progress = |done, total| teller.progress(done, total);
    let made = tallyring_rebuild::recompress(&blobs, file, args.level, &progress)?;
    teller.done(made)
}

/// Brings a backup up to date; tells what was copied.
///
/// # Errors
/// What the backup says.
pub fn back_up(args: &BackupArgs) -> Result<()> {
    begin();
    let teller = Teller::default();
    let progress = |done, total| teller.progress(done, total);
    let copied = backup::make(&args.data, &args.backup, &backup::todays_part, &progress)?;
    teller.done(copied)
}

fn begin() {
    end_with_parent();
    if let Err(error) = rustix::process::nice(NICE) {
        note!("warning: cannot lower the priority: {error}");
    }
}

/// The parent holds our standard input open as long as it lives; without it nobody would publish,
/// and the next server must find no writer but itself.
fn end_with_parent() {
    thread::spawn(|| {
        let mut nothing = [0_u8; 1];
        while matches!(std::io::stdin().read(&mut nothing), Ok(1..)) {}
        std::process::exit(1);
    });
}
