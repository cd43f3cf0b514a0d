//! `tallyring rebuild`: by hand, through the server that holds the directory or without one.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tallyring_archive::{Build, names};
use tallyring_realtime::catalog::{Catalog, Job};
use tallyring_realtime::{Lock, Store};
use tallyring_rebuild::Progress;

use crate::backup;
use crate::cli::{DataArgs, RebuildArgs};
use crate::config::Config;
use crate::data_directory::{open, require_store, try_lock};
use crate::error::{CommandError, Result};
use crate::http_client::Server;
use crate::merge::merge;
use crate::out::{note, say};
use crate::progress::{bytes_bar, next, on};

const POLL: Duration = Duration::from_millis(200);

/// The work that the bar names.
const MERGING: &str = "merging";
const BACKING_UP: &str = "backing up";

/// Exports finished days, and merges them into a new generation where a month is worth a rewrite. When the rebuild
/// fails, the generation before goes on serving. Fails when the configured backup fails, too.
pub(crate) fn run(args: &RebuildArgs, json: bool) -> Result<()> {
    let trust_clock = args.trust_clock;
    let args = &args.data;
    let mut config = Config::for_command(args.config.as_deref(), &args.data)?;
    config.options.trusts_clock = trust_clock;
    require_store(&args.data)?;
    let (before, generation) = match try_lock(&args.data)? {
        Ok(lock) => alone(args, &config, &lock)?,
        Err(holder) => through(&Server::of_holder(&args.data, &holder)?)?,
    };
    if json {
        say!("{}", json!({ "generation": generation }))
    } else if before == generation {
        say!(
            "generation {generation} stands: nothing is new, or too little to be worth a rewrite of its month"
        )
    } else {
        say!("generation {generation} is published")
    }
}

/// Rebuilds without a server; the catalog keeps the job as it keeps one of a server.
fn alone(args: &DataArgs, config: &Config, lock: &Lock) -> Result<(u64, u64)> {
    let store = open(&args.data, config, lock)?;
    let catalog = Catalog::open(&args.data.join(names::CATALOG))?;
    let now_ms = || store.world().clock.now_ms();
    let mut job = Job::begin(catalog.last_job()?, now_ms());
    if config.backup.is_none() {
        job.backup = None;
    }
    let before = store.manifest().archive.active;
    let bar = bytes_bar(MERGING);
    let progress = on(&bar);
    let merged = cut_and_merge(&store, config, &progress);
    let generation = store.manifest().archive.active;
    let ended = merged.as_ref();
    let ended = ended.map(|build| (generation, build.clone()));
    job.end(now_ms(), ended.map_err(ToString::to_string));
    let mut noted = catalog.put_job(&job);
    merged?;
    if let Some(target) = &config.backup {
        next(&bar, BACKING_UP);
        let copied = backup::make(&args.data, target, &backup::todays_part, &progress);
        job.backup = Some(backup::outcome(now_ms(), &copied));
        noted = noted.and_then(|()| catalog.put_job(&job));
        copied.map_err(|error| not_backed_up(generation, &error.to_string()))?;
    }
    bar.finish_and_clear();
    noted?;
    Ok((before, generation))
}

fn cut_and_merge(store: &Store, config: &Config, progress: Progress<'_>) -> Result<Option<Build>> {
    store
        .intake()
        .tick()
        .map_err(|error| CommandError::Failed(error.to_string()))?;
    if store.status().clock_jumped {
        note!(
            "the clock is more than a day from the newest record that was written by a plausible one: the ring does not turn \
             to its day; set the clock, or use --trust-clock if it is right"
        );
    }
    let manifest = store.ledger().cut()?;
    let options = config.rebuild.build_options(&config.options);
    let build = merge(store, &manifest, options, progress)?;
    store.intake().seal()?;
    Ok(build)
}

fn through(server: &Server) -> Result<(u64, u64)> {
    let before = server.get("/v1/admin/status")?["generation"]
        .as_u64()
        .unwrap_or(0);
    let started = server.post("/v1/admin/rebuild")?;
    let job = started["job"]
        .as_u64()
        .ok_or_else(|| CommandError::Failed("the server named no job".into()))?;
    let bar = bytes_bar(MERGING);
    let mut is_merged = false;
    loop {
        let status = server.get("/v1/admin/status")?;
        let last = &status["last_rebuild"];
        if last["job"].as_u64() >= Some(job) {
            let backs_up = last["backing_up"] == Value::Bool(true);
            match last["state"].as_str() {
                Some("done") if backs_up => {
                    if !is_merged {
                        next(&bar, BACKING_UP);
                    }
                    is_merged = true;
                }
                Some("done") => {
                    bar.finish_and_clear();
                    let generation = last["generation"].as_u64().unwrap_or(0);
                    return match last["backup"]["error"].as_str() {
                        Some(error) => Err(not_backed_up(generation, error)),
                        None => Ok((before, generation)),
                    };
                }
                Some("failed") => {
                    bar.finish_and_clear();
                    return Err(CommandError::Failed(text(&last["error"])));
                }
                _ => {}
            }
            let progress = &last["progress"];
            if let Some(total) = progress["total_bytes"].as_u64() {
                bar.set_length(total);
                bar.set_position(progress["done_bytes"].as_u64().unwrap_or(0));
            }
        }
        thread::sleep(POLL);
    }
}

fn not_backed_up(generation: u64, error: &str) -> CommandError {
    CommandError::Failed(format!(
        "generation {generation} is published, but not backed up: {error}"
    ))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("the rebuild failed").to_owned()
}
