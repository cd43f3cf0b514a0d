//! `tallyring delete` and `tallyring undelete`: the counts of one key on some days go, or count again.
//!
//! A running server takes the order into its log. The days are then reconciled, one by one, and their counts change.

use std::path::Path;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tallyring_api::ReconcileOrder;
use tallyring_records::{Day, grouped, how_many};

use crate::cli::{DeleteArgs, UndeleteArgs};
use crate::error::{CommandError, Result};
use crate::escape::{visible, visible_json};
use crate::http_client::Server;
use crate::out::say;
use crate::reconcile;

const PATH: &str = "/v1/admin/deletes";
const ADVICE: &str = "start one with `tallyring serve`, which takes orders";

/// Shows what a delete takes away, and orders it where there is a reason. Fails where a day cannot be reconciled, where
/// the server refuses the order, and as a reconcile does.
pub(crate) fn delete(args: &DeleteArgs, json: bool) -> Result<()> {
    let server = Server::holding(&args.data.data, ADVICE)?;
    let (namespace, key) = split(&args.key)?;
    let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let preview = server.get(&format!(
        "{PATH}/preview?namespace={}&key={}&from={}&to={}",
        encode(namespace),
        encode(key),
        args.days.first(),
        args.days.last()
    ))?;
    let days = preview["days"].as_array().map_or(&[][..], Vec::as_slice);
    if args.reason.is_none() && json {
        return say!("{}", visible_json(&preview.to_string()));
    }
    if !json {
        tell(&preview, days)?;
    }
    let Some(reason) = &args.reason else {
        return say!("nothing was ordered: `--reason TEXT` orders it");
    };
    // Days that stay were told.
    let counted: Vec<Day> = days
        .iter()
        .filter(|day| day["refused"].is_null())
        .filter_map(|day| day["day"].as_str()?.parse().ok())
        .collect();
    let (Some(first), Some(last)) = (counted.first(), counted.last()) else {
        let (key, days) = (visible(&args.key), args.days);
        return Err(CommandError::Failed(format!(
            "nothing is counted of {key} on {days} that can be deleted"
        )));
    };
    // Days around them have nothing to delete, and may have left the log.
    let order = json!({
        "namespace": namespace, "key": key, "from": first, "to": last, "reason": reason,
    });
    let ordered = server.post_json(PATH, &order)?;
    told(&ordered, json)?;
    reconcile_all(&args.data.data, args.data.config.as_deref(), &counted, json)
}

/// Lets deleted counts count again. Fails as [`delete`] does.
pub(crate) fn undelete(args: &UndeleteArgs, json: bool) -> Result<()> {
    let server = Server::holding(&args.data.data, ADVICE)?;
    let (namespace, key) = split(&args.key)?;
    let known = server.get(PATH)?;
    let days: Vec<Day> = args.days.iter().collect();
    let days: Vec<Day> = days
        .into_iter()
        .filter(|day| is_deleted(&known, (namespace, key), *day))
        .collect();
    let (Some(first), Some(last)) = (days.first(), days.last()) else {
        let (key, days) = (visible(&args.key), args.days);
        return Err(CommandError::Failed(format!(
            "no counts of {key} on {days} were deleted: `tallyring audit` lists what was ordered"
        )));
    };
    let order = json!({
        "namespace": namespace, "key": key, "from": first, "to": last, "undo": true, "reason": args.reason,
    });
    let ordered = server.post_json(PATH, &order)?;
    told(&ordered, json)?;
    reconcile_all(&args.data.data, args.data.config.as_deref(), &days, json)
}

/// Whether the counts of a key on a day are deleted by one of the known orders, of which the newest one holds.
fn is_deleted(known: &Value, (namespace, key): (&str, &str), day: Day) -> bool {
    let orders = known["deletes"].as_array().map_or(&[][..], Vec::as_slice);
    let on = |order: &Value, name: &str| order[name].as_str()?.parse::<Day>().ok();
    let newest = orders.iter().rfind(|order| {
        let is_of_key = order["namespace"] == namespace && order["key"] == key;
        let from_to = on(order, "from").zip(on(order, "to"));
        is_of_key && from_to.is_some_and(|(from, to)| (from..=to).contains(&day))
    });
    newest.is_some_and(|order| order["undo"] == false)
}

/// The namespace and the key.
fn split(text: &str) -> Result<(&str, &str)> {
    let parts = text.split_once('/');
    let parts = parts.filter(|(namespace, key)| !namespace.is_empty() && !key.is_empty());
    parts.ok_or_else(|| {
        let detail = format!("`{text}` must be NAMESPACE/KEY, such as l/abc");
        CommandError::Usage(detail)
    })
}

fn tell(preview: &Value, days: &[Value]) -> Result<()> {
    for day in days {
        let n = grouped(day["n"].as_u64().unwrap_or(0));
        let name = day["day"].as_str().unwrap_or_default();
        match day["refused"].as_str() {
            None => say!("{name}  {n:>20}")?,
            Some(why) => say!("{name}  {n:>20}  stays: {}", visible(why))?,
        }
    }
    let loaded = preview["loaded"].as_array().into_iter().flatten();
    for dataset in loaded.filter_map(Value::as_str) {
        say!(
            "counts of the dataset {} are among these, and stay",
            visible(dataset)
        )?;
    }
    say!("{}", how_many(days.len() as u64, "day"))
}

fn told(ordered: &Value, json: bool) -> Result<()> {
    match json {
        true => say!("{}", visible_json(&ordered.to_string())),
        false => {
            let position = ordered["position"].as_str().unwrap_or_default();
            say!("ordered, at {} of the log", visible(position))
        }
    }
}

/// Reconciles each day by itself, and prints how it went. Days that fail do not stop the others.
fn reconcile_all(data: &Path, config: Option<&Path>, days: &[Day], json: bool) -> Result<()> {
    let mut failed = Ok(());
    for day in days {
        let order = ReconcileOrder::of(*day);
        let done = reconcile::carry_out(data, config, &order, (None, json));
        failed = failed.and(done.map(drop));
    }
    failed
}
