//! `tallyring reconcile`: makes a closed day final, through the server that holds the directory or without one.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tallyring_api::{ReconcileOrder, describe_reconciled};
use tallyring_realtime::{Lock, Reconcile};

use crate::cli::ReconcileArgs;
use crate::config::Config;
use crate::data_directory::{open, require_store, try_lock};
use crate::error::{CommandError, Result};
use crate::http_client::{Server, holder_url};
use crate::incoming::Incoming;
use crate::out::say;
use crate::progress::{count_bar, on};
use crate::reconciles::publish;

const POLL: Duration = Duration::from_millis(200);
const PATH: &str = "/v1/admin/reconcile";

/// Reconciles a day. Fails where the day cannot be reconciled, a count has no explanation, or the disk fails.
pub(crate) fn run(args: &ReconcileArgs, json: bool) -> Result<()> {
    let data = &args.data.data;
    let config = Config::for_command(args.data.config.as_deref(), data)?;
    require_store(data)?;
    let order = ReconcileOrder {
        day: args.day,
        dry_run: args.dry_run,
    };
    let result = match try_lock(data)? {
        Ok(lock) => alone(args, &config, &lock)?,
        Err(holder) => {
            let url = holder_url(&holder)?;
            through(&Server::of(data, &url), order)?
        }
    };
    match json {
        true => say!("{result}"),
        false => say!("{}", told(order, &result)),
    }
}

fn alone(args: &ReconcileArgs, config: &Config, lock: &Lock) -> Result<Value> {
    let data = &args.data.data;
    let store = open(data, config, lock)?;
    store.ledger().flush()?;
    let incoming = Incoming::begin(data)?;
    let reconcile = Reconcile {
        day: args.day,
        load: incoming.load(),
        shards: config.options.shards,
        level: config.rebuild.build_options(&config.options).level,
        memory_bytes: config.options.delta_bytes_max,
    };
    let bar = count_bar("reconciling", "records", 0);
    let reconciled = reconcile.run(&store.world().blobs(), &store.manifest(), &on(&bar))?;
    bar.finish_and_clear();
    let mut result = describe_reconciled(&reconciled);
    result["published"] = publish(&store, reconciled, args.dry_run)?.into();
    store.intake().seal()?;
    Ok(result)
}

fn through(server: &Server, order: ReconcileOrder) -> Result<Value> {
    let started = server.post_json(PATH, &order)?;
    let bar = count_bar("reconciling", "records", 0);
    loop {
        let job = server.get(PATH)?;
        if job["job"].as_u64() > started["job"].as_u64() {
            let what = "another reconcile has begun since; see GET /v1/admin/reconcile";
            return Err(CommandError::Failed(what.into()));
        }
        match job["state"].as_str() {
            Some("done") => {
                bar.finish_and_clear();
                return Ok(job);
            }
            Some("failed") => {
                bar.finish_and_clear();
                let why = job["error"].as_str().unwrap_or("the reconcile failed");
                return Err(CommandError::Failed(why.to_owned()));
            }
            _ => {}
        }
        let progress = &job["progress"];
        if let Some(total) = progress["total"].as_u64() {
            bar.set_length(total);
            bar.set_position(progress["done"].as_u64().unwrap_or(0));
        }
        thread::sleep(POLL);
    }
}

/// The result for people: a line for each event type and cause, and one about the day.
fn told(order: ReconcileOrder, result: &Value) -> String {
    let mut lines = Vec::new();
    let none = serde_json::Map::new();
    for (kind, sums) in result["types"].as_object().unwrap_or(&none) {
        lines.push(format!("{kind:<16} {:>16}", sums["before"]));
        for (cause, n) in sums["causes"].as_object().unwrap_or(&none) {
            lines.push(format!("  {cause:<30} {:>+16}", n.as_i64().unwrap_or(0)));
        }
        lines.push(format!("  {:<14} {:>16}", "final", sums["after"]));
    }
    let (day, version) = (order.day, &result["version"]);
    let is_new = result["new"] == json!(true);
    lines.push(match (is_new, order.dry_run) {
        (true, false) => format!("version {version} of {day} is published"),
        (true, true) => format!("nothing was published: this would be version {version} of {day}"),
        (false, _) => format!("version {version} of {day} stands: nothing differs"),
    });
    lines.join("\n")
}
