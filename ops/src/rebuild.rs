//! `tallyring rebuild`: by hand, through the server that holds the directory or without one.

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
use crate::jobs::{self, InStrand, Ordered};
use crate::merge::merge;
use crate::out::{note, say};
use crate::progress::{bytes_bar, next, on};

/// Where a server begins a rebuild, and tells of the newest.
const PATH: &str = "/v1/admin/rebuild";

/// The work that the bar names.
const MERGING: &str = "merging";
const BACKING_UP: &str = "backing up";

/// Exports finished days, and merges them into a new generation where a month is worth a rewrite; in each strand of the
/// store. When the rebuild fails, the generation before goes on serving. Fails when the configured backup fails, too.
pub(crate) fn run(args: &RebuildArgs, json: bool) -> Result<()> {
    let trust_clock = args.trust_clock;
    let args = &args.data;
    let mut config = Config::for_command(args.config.as_deref(), &args.data)?;
    config.options.trusts_clock = trust_clock;
    require_store(&args.data)?;
    let rebuilt = match try_lock(&args.data)? {
        Ok(lock) => InStrand::only(alone(args, &config, &lock)),
        Err(holder) => through(&Server::of_holder(&args.data, &holder)?)?,
    };
    tell(&rebuilt, json)?;
    jobs::check(rebuilt)
}

/// The generations before and after a rebuild.
type Generations = (u64, u64);

/// Tells of the strands in which the rebuild did not fail, and as JSON of the others, too.
fn tell(rebuilt: &[InStrand<Generations>], json: bool) -> Result<()> {
    let is_divided = rebuilt.iter().any(|of| of.strand.is_some());
    if json && is_divided {
        let all = rebuilt.iter().map(|of| match &of.outcome {
            Ok((_, generation)) => json!({ "generation": generation }),
            Err(error) => json!({ "error": error.to_string() }),
        });
        let all: Vec<Value> = all.collect();
        return say!("{}", json!({ "strands": all }));
    }
    for InStrand { strand, outcome } in rebuilt {
        let Ok((before, generation)) = outcome else {
            continue;
        };
        let name = strand.map_or(String::new(), |strand| format!("strand {strand}: "));
        if json {
            say!("{}", json!({ "generation": generation }))
        } else if before == generation {
            say!(
                "{name}generation {generation} stands: nothing is new, or too little to be worth a rewrite of its month"
            )
        } else {
            say!("{name}generation {generation} is published")
        }?;
    }
    Ok(())
}

/// Rebuilds without a server; the catalog keeps the job as it keeps one of a server.
fn alone(args: &DataArgs, config: &Config, lock: &Lock) -> Result<Generations> {
    let store = open(&args.data, config, lock)?;
    let catalog = Catalog::open(&args.data.join(names::CATALOG))?;
    let now_ms = || store.world().clock.now_ms();
    let mut job = Job::begin(catalog.last_job()?.as_ref(), now_ms());
    let before = store.manifest().archive.active;
    let bar = bytes_bar(MERGING);
    let progress = on(&bar);
    let merged = cut_and_merge(&store, config, &progress);
    let generation = store.manifest().archive.active;
    let ended = merged.as_ref();
    let ended = ended.map(|build| (generation, build.clone()));
    job.end(now_ms(), ended.map_err(ToString::to_string));
    let noted = catalog.put_job(&job);
    merged?;
    if let Some(target) = &config.backup {
        next(&bar, BACKING_UP);
        let copied = backup::make(&args.data, target, &backup::todays_part, &progress);
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

fn through(server: &Server) -> Result<Vec<InStrand<Generations>>> {
    let status = server.get("/v1/admin/status")?;
    let before = |strand: Option<usize>| match strand {
        None => &status["generation"],
        Some(strand) => &status["strands"][strand]["generation"],
    };
    let ordered = Ordered::all(server, &server.post(PATH)?, PATH)?.into_iter();
    let waited = ordered.map(|job| {
        let before = before(job.strand()).as_u64().unwrap_or(0);
        wait(server, job, before)
    });
    Ok(waited.collect())
}

/// Waits for a job and its backup. `before` is the generation that was active when it was ordered.
fn wait(server: &Server, job: Ordered, before: u64) -> InStrand<Generations> {
    let bar = bytes_bar(MERGING);
    let mut is_merged = false;
    let waited = job.wait(server, |told| {
        let backs_up = told["backup"]["running"] == Value::Bool(true);
        match told["state"].as_str() {
            Some("done") if backs_up => {
                if !is_merged {
                    next(&bar, BACKING_UP);
                }
                is_merged = true;
            }
            Some("done") => {
                let generation = told["generation"].as_u64().unwrap_or(0);
                return Some(match told["backup"]["error"].as_str() {
                    Some(error) => Err(not_backed_up(generation, error)),
                    None => Ok((before, generation)),
                });
            }
            Some("failed") => return Some(Err(CommandError::Failed(text(&told["error"])))),
            _ => {}
        }
        let progress = match is_merged {
            true => &told["backup"]["progress"],
            false => &told["progress"],
        };
        if let Some(total) = progress["total_bytes"].as_u64() {
            on(&bar)(progress["done_bytes"].as_u64().unwrap_or(0), total);
        }
        None
    });
    bar.finish_and_clear();
    waited
}

fn not_backed_up(generation: u64, error: &str) -> CommandError {
    CommandError::Failed(format!(
        "generation {generation} is published, but not backed up: {error}"
    ))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("the rebuild failed").to_owned()
}
