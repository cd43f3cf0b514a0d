//! The data directory of a demonstration, which no other command made. The history is made once, in steps that the
//! manifest shows: a demonstration that was interrupted continues at the next start.

use std::fs;
use std::ops::Range;
use std::path::Path;

use tallyring_archive::{Manifest, names};
use tallyring_bench::{Sightings, World, write_history};

use super::HOUR_S;
use crate::cli::{DataArgs, LoadArgs, OnError, RebuildArgs};
use crate::config::Config;
use crate::data_directory::{blobs, lock, open};
use crate::error::{CommandError, Result, doing};
use crate::in_process::InProcess;
use crate::progress::count_bar;
use crate::{load, rebuild};

/// Name of the dataset.
const DATASET: &str = "demo-history";
const DAY_S: i64 = 24 * HOUR_S;
/// The history before it is loaded.
const FILE: &str = "demo-history.csv";

/// Caps of a new demonstration.
const CAPS: &str = include_str!("caps.toml");

/// The last step of the history that was made.
#[derive(PartialEq)]
enum Made {
    Nothing,
    Loaded,
    Published,
}

/// Marks a new directory as a demonstration's and gives it caps, or checks that it is one. Takes the lock meanwhile.
/// Fails when the directory is another store, or another process holds it.
pub(super) fn claim(data: &Path) -> Result<()> {
    let _lock = lock(data)?;
    if data.join(names::DEMO).exists() {
        return Ok(());
    }
    if !data.join(names::IDENTITY).exists() {
        // The mark comes last: with it the directory is complete.
        let mark = "`tallyring demo` made this; its counts are made up\n";
        for (name, text) in [(names::DEMO_CAPS, CAPS), (names::DEMO, mark)] {
            let path = data.join(name);
            fs::write(&path, text).map_err(doing(format!("write {}", path.display())))?;
        }
        return Ok(());
    }
    // Older demonstrations left no mark.
    if manifest(data)?.is_some_and(|manifest| manifest.archive.dataset(DATASET).is_some()) {
        return Ok(());
    }
    Err(CommandError::Failed(format!(
        "{} is a data directory that `tallyring demo` did not make, and it would count made-up clicks into it; name \
         a new directory with --data, or serve this one with `tallyring serve`",
        data.display()
    )))
}

/// Makes the missing steps of the history: `days` before `end` (Unix seconds), `busy` times the expected traffic. Fails
/// as `load` and `rebuild` do; an error that is only about their output is none.
pub(super) fn make_history(
    world: &World,
    data: &DataArgs,
    (days, end, busy): (u32, i64, f64),
    json: bool,
) -> Result<()> {
    let file = data.data.join(FILE);
    // An earlier run that was stopped while loading left the file.
    let _ = fs::remove_file(&file);
    // Each look opens the store, which replays its log: a complete demonstration needs one look only.
    let mut so_far = made(data)?;
    let hours = end - i64::from(days) * DAY_S..end;
    let sightings = |times: Range<i64>| Sightings::new(world, hours.clone(), times, busy);
    let yesterday = end - end.rem_euclid(DAY_S) - DAY_S;
    if so_far == Made::Nothing {
        let bar = count_bar("making history", "hours", u64::from(days) * 24);
        let set = |done| bar.set_position(done);
        let written = write_history(world, &file, hours.clone(), busy, &set);
        bar.finish_and_clear();
        let loaded = written
            .map_err(doing(format!("write {}", file.display())))
            .and_then(|()| load_file(data, &file, json));
        // The archive has the rows now, or the error says why not.
        let _ = fs::remove_file(&file);
        so_far = made(data)?;
        unless(so_far == Made::Loaded, loaded)?;
    }
    if so_far == Made::Loaded {
        count_users(data, &sightings(0..yesterday))?;
        let args = RebuildArgs {
            data: data.clone(),
            trust_clock: true,
        };
        let rebuilt = rebuild::run(&args, json);
        unless(made(data)? == Made::Published, rebuilt)?;
        // The ring holds the counts of these days.
        count_users(data, &sightings(yesterday..end))?;
    }
    Ok(())
}

/// Counts what users saw. Events that an interrupted run has counted are duplicates now.
fn count_users(data: &DataArgs, sightings: &Sightings<'_>) -> Result<()> {
    let config = Config::for_command(None, &data.data)?;
    let lock = lock(&data.data)?;
    let api = InProcess::over(open(&data.data, &config, &lock)?)?;
    let bar = count_bar("counting users of ads", "days", sightings.days());
    sightings.send(|route, items, done| {
        bar.set_position(done);
        api.post(route, items).map(drop)
    })?;
    bar.finish_and_clear();
    api.stop()
}

/// Returns the result of a step; an error of a step that was taken is about its output only and is dropped.
fn unless(taken: bool, result: Result<()>) -> Result<()> {
    if taken { Ok(()) } else { result }
}

fn made(data: &DataArgs) -> Result<Made> {
    // Opening completes a store whose making was interrupted.
    let config = Config::for_command(None, &data.data)?;
    let lock = lock(&data.data)?;
    let store = open(&data.data, &config, &lock)?;
    let manifest = store.manifest();
    let active = manifest.archive.active_generation();
    Ok(match (manifest.archive.dataset(DATASET), active) {
        (None, None) => Made::Nothing,
        (Some(dataset), active) if !active.is_some_and(|active| dataset.is_in(active)) => {
            Made::Loaded
        }
        // Published earlier, or dropped by the user since.
        _ => Made::Published,
    })
}

fn manifest(data: &Path) -> Result<Option<Manifest>> {
    Ok(Manifest::load(&blobs(data)?)?)
}

fn load_file(data: &DataArgs, file: &Path, json: bool) -> Result<()> {
    let load = LoadArgs {
        data: data.clone(),
        dataset: DATASET.into(),
        files: vec![file.to_owned()],
        from: None,
        namespace: None,
        key: None,
        replace: false,
        is_final: false,
        fill: true,
        dry_run: false,
        memory: None,
        on_error: OnError::Stop,
        rejects: None,
    };
    load::run(&load, json)
}
