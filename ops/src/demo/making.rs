//! The data directory of a demonstration: made by it, and never another one. Its history is made once, in steps of
//! which each is seen in the manifest: whoever is interrupted goes on at the next start.

use std::fs;
use std::path::Path;

use tallyring_archive::{Manifest, names};

use super::world::World;
use super::{HOUR_S, history};
use crate::cli::{DataArgs, LoadArgs, OnError, RebuildArgs};
use crate::config::Config;
use crate::data_directory::{blobs, lock, open};
use crate::error::{CommandError, Result, doing};
use crate::progress::count_bar;
use crate::{load, rebuild};

/// Name of the dataset.
const DATASET: &str = "demo-history";
/// The history before it is loaded.
const FILE: &str = "demo-history.csv";

/// How far the history is.
#[derive(PartialEq)]
enum Made {
    Nothing,
    Loaded,
    Published,
}

/// Makes the directory a demonstration's, or makes sure that it is one; nobody else holds it.
///
/// # Errors
/// When it is a data directory of something else, or is held.
pub fn claim(data: &Path) -> Result<()> {
    let _lock = lock(data)?;
    if data.join(names::DEMO).exists() {
        return Ok(());
    }
    if !data.join(names::IDENTITY).exists() {
        let mark = data.join(names::DEMO);
        return fs::write(
            &mark,
            "`tallyring demo` made this; its counts are made up\n",
        )
        .map_err(doing(format!("write {}", mark.display())));
    }
    // It was made before there were marks.
    if manifest(data)?.is_some_and(|manifest| manifest.archive.dataset(DATASET).is_some()) {
        return Ok(());
    }
    Err(CommandError::Failed(format!(
        "{} is a data directory that `tallyring demo` did not make, and it would count made-up clicks into it; name \
         a new directory with --data, or serve this one with `tallyring serve`",
        data.display()
    )))
}

/// Makes what is missing of the history: `days` before `end` (Unix seconds), `busy` times as busy as the world expects.
///
/// # Errors
/// As `load` and `rebuild`; not when nobody reads what they print.
pub fn make_history(
    world: &World,
    data: &DataArgs,
    (days, end, busy): (u32, i64, f64),
    json: bool,
) -> Result<()> {
    let file = data.data.join(FILE);
    // An earlier run was stopped while it loaded it.
    let _ = fs::remove_file(&file);
    // Each look opens the store, which replays its log: one is enough where everything is made.
    let mut so_far = made(data)?;
    if so_far == Made::Nothing {
        let hours = i64::from(days) * 24;
        let length = u64::try_from(hours).unwrap_or(0);
        let bar = count_bar("making history", "hours", length);
        let written = history::write(world, &file, (end - hours * HOUR_S, end), busy, &|done| {
            bar.set_position(done);
        });
        bar.finish_and_clear();
        let loaded = written.and_then(|()| load_file(data, &file, json));
        // It is in the archive now, or the error says why not.
        let _ = fs::remove_file(&file);
        so_far = made(data)?;
        unless(so_far == Made::Loaded, loaded)?;
    }
    if so_far == Made::Loaded {
        let args = RebuildArgs {
            data: data.clone(),
            trust_clock: true,
        };
        let rebuilt = rebuild::run(&args, json);
        unless(made(data)? == Made::Published, rebuilt)?;
    }
    Ok(())
}

/// The result of a step, unless it was taken: then it could only not say so.
fn unless(taken: bool, result: Result<()>) -> Result<()> {
    if taken { Ok(()) } else { result }
}

fn made(data: &DataArgs) -> Result<Made> {
    // Opened, so that a store which was being made when a run was stopped is a whole one.
    let config = Config::for_command(None, &data.data)?;
    let lock = lock(&data.data)?;
    let store = open(&data.data, &config, &lock)?;
    let manifest = store.manifest();
    let active = manifest.archive.generation(manifest.archive.active);
    Ok(match (manifest.archive.dataset(DATASET), active) {
        (None, None) => Made::Nothing,
        (Some(dataset), active) if !active.is_some_and(|active| dataset.is_in(active)) => {
            Made::Loaded
        }
        // Also when somebody dropped it.
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
        replace: false,
        fill: true,
        dry_run: false,
        memory: tallyring_rebuild::load::MEMORY_DEFAULT,
        on_error: OnError::Stop,
        rejects: None,
    };
    load::run(&load, json)
}
