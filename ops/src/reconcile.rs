//! `tallyring reconcile`: makes closed days final, or tells what rules would change, through the server that holds the
//! directory or without one.

mod beside;
mod told;

use std::path::Path;

use serde_json::{Value, json};
use tallyring_api::{ReconcileJob, ReconcileOrder};
use tallyring_archive::SchemaEntry;
use tallyring_realtime::{Error, Lock, Store};
use tallyring_records::{Day, grouped};

use crate::cli::ReconcileArgs;
use crate::config::{Config, RulesFile};
use crate::data_directory::{blobs, manifest, open, require_store, try_lock};
use crate::error::{CommandError, Result};
use crate::escape::visible;
use crate::http_client::Server;
use crate::incoming::Incoming;
use crate::jobs::{self, InStrand, Ordered};
use crate::keys::actor;
use crate::lists::store_rules;
use crate::out::say;
use crate::progress::{count_bar, on};
use crate::reconciles::{publish, reconcile_of};
use crate::strands;

use beside::Beside;
use told::told;

/// Where a server begins a reconcile, and tells of the newest.
const PATH: &str = "/v1/admin/reconcile";

/// Reconciles days. Fails where a day cannot be reconciled, a count has no explanation, or the disk fails.
pub(crate) fn run(args: &ReconcileArgs, json: bool) -> Result<()> {
    let data = &args.data.data;
    require_store(data)?;
    let rules = args.rules.as_deref().map(|file| {
        let file = RulesFile::load(file)?;
        store_rules(data, file)
    });
    let rules = rules.transpose()?;
    let order = ReconcileOrder {
        days: args.days,
        dry_run: args.dry_run || rules.is_some(),
        force: args.force,
        by: args.by.clone(),
        rules,
        // A server knows who asks.
        actor: None,
    };
    let told = carry_out(data, args.data.config.as_deref(), &order, (None, json))?;
    let above = args.fail_above.and_then(|most| above(most, &told));
    above.map_or(Ok(()), Err)
}

/// Carries an order out, prints how it went, and returns that, of each strand. `put` says how the content of a list
/// comes into force, where a what-if is about that. Fails as [`run`] does.
pub(crate) fn carry_out(
    data: &Path,
    config: Option<&Path>,
    order: &ReconcileOrder,
    (put, json): (Option<&str>, bool),
) -> Result<Vec<Value>> {
    let config = Config::for_command(config, data)?;
    let reconciled = match try_lock(data)? {
        Ok(lock) => InStrand::only(alone(data, &config, &lock, order)),
        Err(holder) => through(&Server::of_holder(data, &holder)?, order)?,
    };
    let mut told = Vec::new();
    let mut ended = Vec::new();
    for InStrand { strand, outcome } in reconciled {
        let outcome = outcome.and_then(|result| {
            let failed = result["error"].as_str();
            let failed = failed.map(|error| CommandError::Failed(error.to_owned()));
            // The days of a range that did not fail are told.
            if failed.is_none() || order.days.single().is_none() {
                told.push((strand, result));
            }
            failed.map_or(Ok(()), Err)
        });
        // JSON names each strand, as that of a rebuild does.
        let is_told = told.last().is_some_and(|(last, _)| *last == strand);
        if let Err(error) = &outcome
            && json
            && strand.is_some()
            && !is_told
        {
            told.push((strand, json!({ "error": error.to_string() })));
        }
        ended.push(InStrand { strand, outcome });
    }
    let results = told.iter().map(|(_, result)| result.clone()).collect();
    if !told.is_empty() {
        print(order, told, beside(data, order, put)?.as_ref(), json)?;
    }
    jobs::check(ended)?;
    Ok(results)
}

/// The first day and event type of which duplicates are more than this part of what had counted, as an error.
fn above(most: f64, results: &[Value]) -> Option<CommandError> {
    let days = results
        .iter()
        .flat_map(|result| match result["days"].as_array() {
            Some(days) => days.iter().collect(),
            None => vec![result],
        });
    let types = days.flat_map(|of| {
        let types = of["types"].as_object().into_iter().flatten();
        types.map(|(kind, sums)| (&of["day"], kind, sums))
    });
    let mut found = types.filter_map(|(day, kind, sums)| {
        let causes = sums["causes"].as_object().into_iter().flatten();
        let causes = causes.filter(|(cause, _)| cause.starts_with("duplicate_"));
        let twice: u64 = causes
            .filter_map(|(_, n)| Some(n.as_i64()?.unsigned_abs()))
            .sum();
        let before = sums["before"].as_u64().unwrap_or(0);
        let is_above = twice as f64 > most * before as f64;
        is_above.then(|| {
            CommandError::Failed(format!(
                "of {}, {} of {} of `{}` had counted twice, more than --fail-above {most}",
                day.as_str().unwrap_or_default(),
                grouped(twice),
                grouped(before),
                visible(kind)
            ))
        })
    });
    found.next()
}

/// The rules of a what-if beside those in force. The reconcile flushed, so the newest manifest names these.
fn beside(data: &Path, order: &ReconcileOrder, put: Option<&str>) -> Result<Option<Beside>> {
    let Some(rules) = &order.rules else {
        return Ok(None);
    };
    let manifest = manifest(&blobs(&strands::first(data)?)?)?;
    let in_force = manifest.intake.schemas.last();
    let beside = |of: &SchemaEntry| Beside::new(&of.schema, rules, (order.days, put));
    Ok(in_force.map(beside))
}

/// Prints the results of strands; of a divided store, each under its number.
fn print(
    order: &ReconcileOrder,
    results: Vec<(Option<usize>, Value)>,
    beside: Option<&Beside>,
    json: bool,
) -> Result<()> {
    if json {
        return say!("{}", in_json(results, beside));
    }
    let last = results.len().saturating_sub(1);
    for (at, (strand, result)) in results.iter().enumerate() {
        if let Some(strand) = strand {
            say!("strand {strand}:")?;
        }
        say!("{}", told(order, result, beside.filter(|_| at == last)))?;
    }
    Ok(())
}

fn in_json(mut results: Vec<(Option<usize>, Value)>, beside: Option<&Beside>) -> Value {
    let mut all = match &mut results[..] {
        [(None, only)] => only.take(),
        several => {
            for (strand, result) in &mut *several {
                result["strand"] = json!(strand);
            }
            let several = several.iter_mut().map(|(_, result)| result.take());
            json!({ "strands": several.collect::<Vec<_>>() })
        }
    };
    if let (Some(fields), Some(beside)) = (all.as_object_mut(), beside) {
        let differs = beside.differs.as_ref().map(|(_, says)| says);
        fields.insert("differs".into(), json!(differs));
        fields.insert("apply".into(), json!(beside.apply));
    }
    all
}

fn alone(data: &Path, config: &Config, lock: &Lock, order: &ReconcileOrder) -> Result<Value> {
    let store = open(data, config, lock)?;
    let now_ms = || store.world().clock.now_ms();
    let order = &ReconcileOrder {
        actor: Some(actor(data, &store)?.to_owned()),
        ..order.clone()
    };
    let mut job = ReconcileJob::begin(order.clone(), None, now_ms());
    store.ledger().flush()?;
    let (blobs, manifest) = (store.world().blobs(), store.manifest());
    let first = reconcile_of(
        order,
        (order.days.first(), ""),
        &config.options,
        config.rebuild.level,
    );
    first
        .check_order(&blobs, &manifest)
        .map_err(|error| match error {
            Error::Field(error) => CommandError::Usage(error.to_string()),
            error => error.into(),
        })?;
    for day in order.days.iter() {
        reconcile_day(&store, (data, config), &mut job, day);
    }
    job.end(now_ms());
    store.intake().seal()?;
    let mut result = job.described();
    if let Some(fields) = result.as_object_mut() {
        // The number is that of a server's job.
        fields.remove("job");
    }
    Ok(result)
}

fn reconcile_day(
    store: &Store,
    (data, config): (&Path, &Config),
    job: &mut ReconcileJob,
    day: Day,
) {
    let judge = || -> Result<_> {
        let incoming = Incoming::begin(data)?;
        let manifest = store.ledger().begin_reconcile()?;
        let reconcile = reconcile_of(
            &job.order,
            (day, incoming.load()),
            &config.options,
            config.rebuild.level,
        );
        let bar = count_bar("reconciling", "records", 0);
        let reconciled = reconcile.run(&store.world().blobs(), &manifest, &on(&bar))?;
        bar.finish_and_clear();
        // Dropping it removes the files of the result.
        Ok((reconciled, incoming))
    };
    let (found, published) = match judge() {
        Ok((reconciled, _incoming)) => {
            let found = reconciled.clone();
            (Some(found), publish(store, reconciled, &job.order))
        }
        Err(error) => (None, Err(error)),
    };
    job.note(day, found, published.map_err(|error| error.to_string()));
}

fn through(server: &Server, order: &ReconcileOrder) -> Result<Vec<InStrand<Value>>> {
    let ordered = Ordered::all(server, &server.post_json(PATH, order)?, PATH)?.into_iter();
    Ok(ordered.map(|job| wait(server, job)).collect())
}

fn wait(server: &Server, job: Ordered) -> InStrand<Value> {
    let bar = count_bar("reconciling", "records", 0);
    let number = job.number();
    let waited = job.wait(server, |told| {
        if told["job"].as_u64() > Some(number) {
            let what = "another reconcile has begun since; see GET /v1/admin/reconcile";
            return Some(Err(CommandError::Failed(what.into())));
        }
        if ["done", "failed"]
            .iter()
            .any(|ended| told["state"] == *ended)
        {
            return Some(Ok(told.clone()));
        }
        let progress = &told["progress"];
        if let Some(total) = progress["total"].as_u64() {
            on(&bar)(progress["done"].as_u64().unwrap_or(0), total);
        }
        None
    });
    bar.finish_and_clear();
    waited
}
