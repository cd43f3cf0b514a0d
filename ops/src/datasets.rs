//! `tallyring datasets` and `tallyring drop`: bulk datasets, through the server that holds the directory or
//! without one.

use jiff::Timestamp;
use serde_json::json;
use tallyring_api::describe_datasets;
use tallyring_archive::{DatasetEntry, Manifest};
use tallyring_records::{VOID_REASON_BYTES_MAX, is_void_reason};

use crate::cli::{DataArgs, DropArgs};
use crate::config::Config;
use crate::data_directory::{blobs, manifest, open, require_store, try_lock};
use crate::error::{CommandError, Result};
use crate::http_client::Server;
use crate::keys::actor;
use crate::out::say;
use crate::strands;

/// Lists all datasets.
pub(crate) fn list(args: &DataArgs, json: bool) -> Result<()> {
    require_store(&args.data)?;
    let manifest = manifest(&blobs(&strands::of_datasets(&args.data)?)?)?;
    let described = describe_datasets(&manifest);
    if json {
        return say!("{described}");
    }
    let lost = described["lost"].as_array().into_iter().flatten();
    if manifest.archive.datasets.is_empty() && lost.clone().next().is_none() {
        say!("there are no datasets; `tallyring load` makes one")?;
        return Ok(());
    }
    say!(
        "{:<24} {:<22} {:>14} {:>14}  STATE",
        "DATASET",
        "LOADED",
        "ROWS",
        "BYTES"
    )?;
    for dataset in &manifest.archive.datasets {
        let bytes: u64 = dataset.runs.iter().map(|run| run.bytes).sum();
        say!(
            "{:<24} {:<22} {:>14} {bytes:>14}  {}",
            dataset.name,
            time(dataset.adopted_at_ms),
            dataset.rows,
            state(&manifest, dataset)
        )?;
    }
    for lost in &manifest.archive.lost_datasets {
        let (name, at, rows) = (&lost.name, time(lost.at_ms), lost.rows);
        say!("{name:<24} {at:<22} {rows:>14} {:>14}  lost, final", "-")?;
    }
    for reason in lost.filter_map(|lost| lost["reason"].as_str()) {
        say!("{reason}")?;
    }
    Ok(())
}

/// Drops a dataset, or gives up a lost one. Fails when no dataset has the name, when one to drop is part of final
/// numbers, and when one to give up is not lost.
pub(crate) fn drop(args: &DropArgs, json: bool) -> Result<()> {
    let data = &args.data.data;
    require_store(data)?;
    strands::of_datasets(data)?;
    if args.gone.as_ref().is_some_and(|of| !is_void_reason(of)) {
        return Err(CommandError::Usage(format!(
            "--gone must be the reason: 1 to {VOID_REASON_BYTES_MAX} bytes of text without control characters"
        )));
    }
    match try_lock(data)? {
        Ok(lock) => {
            let config = Config::for_command(args.data.config.as_deref(), data)?;
            let store = open(data, &config, &lock)?;
            let ledger = store.ledger();
            match &args.gone {
                None => ledger.drop_dataset(&args.dataset)?,
                Some(reason) => {
                    ledger.give_up_dataset(&args.dataset, reason, actor(data, &store)?)?;
                }
            }
            store.intake().seal()?;
        }
        Err(holder) => {
            let escaped = |text| {
                percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC)
            };
            let name = escaped(&args.dataset);
            let gone = args.gone.as_deref().map(escaped);
            let gone = gone.map_or_else(String::new, |reason| format!("?gone={reason}"));
            Server::of_holder(data, &holder)?
                .delete(&format!("/v1/admin/datasets/{name}{gone}"))?;
        }
    }
    if json {
        return say!("{}", json!({ "dropped": args.dataset }));
    }
    let name = &args.dataset;
    match args.gone {
        None => {
            say!("{name} stops counting with the next rebuild (`tallyring rebuild` does it now)")
        }
        Some(_) => say!(
            "{name} is given up: with the next rebuild nothing of it counts, and its days are final without it (`tallyring \
             rebuild` does it now)"
        ),
    }
}

/// Says whether the active generation counts the dataset, whether the next one will, and whether it is final.
fn state(manifest: &Manifest, dataset: &DatasetEntry) -> String {
    let state = dataset.state(manifest.archive.active_generation());
    match dataset.is_final {
        true => format!("{state}, final"),
        false => state.to_owned(),
    }
}

fn time(ms: i64) -> String {
    Timestamp::from_millisecond(ms).map_or_else(
        |_| ms.to_string(),
        |time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    )
}
