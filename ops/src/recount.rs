//! `tallyring recount`: makes stores, runs, generation and manifest again from the log, as far back as the log reaches.

mod finals;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use tallyring_archive::{
    Blobs, DatasetEntry, Manifest, RunEntry, clear_at_start, manifest, names, verify_bytes,
};
use tallyring_realtime::oplog::{Segment, segments};
use tallyring_realtime::{Recount, Store, VirtualClock};
use tallyring_records::{Day, StoreId, how_many};

use crate::cli::RecountArgs;
use crate::config::Config;
use crate::data_directory::{lock, require_store, world};
use crate::error::{CommandError, Result, doing};
use crate::merge::merge;
use crate::out::{note, say};
use crate::progress::{bytes_bar, on};

/// Counts the log again. Fails when a server runs, the log or a file that the log cannot replace is damaged or gone, or
/// the disk fails.
pub(crate) fn run(args: &RecountArgs, json: bool) -> Result<()> {
    let data = &args.data.data;
    require_store(data)?;
    let _lock = lock(data)?;
    let config = Config::for_recount(args.data.config.as_deref(), data)?;
    let recounted = recount(data, &config, args.from)?;
    if json {
        return say!(
            "{}",
            json!({
                "from_first_record": recounted.is_whole, "stores": recounted.stores.len(),
                "records": recounted.records, "generation": recounted.generation,
                "finals_made_again": recounted.finals,
            })
        );
    }
    say!("{recounted}")
}

/// The result of a recount.
pub(crate) struct Recounted {
    is_whole: bool,
    stores: Vec<StoreId>,
    records: u64,
    generation: u64,
    /// Final versions that were made again.
    finals: u64,
}

impl fmt::Display for Recounted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stores = how_many(self.stores.len() as u64, "store");
        let records = how_many(self.records, "record");
        write!(f, "{stores} counted again from {records} of the log")?;
        if !self.is_whole {
            f.write_str(" (source runs have what is older)")?;
        }
        if self.finals > 0 {
            let finals = how_many(self.finals, "final version");
            write!(f, ", {finals} made again")?;
        }
        write!(f, ", generation {} is published", self.generation)
    }
}

/// Makes all derived files again from the log. The caller holds the lock of the directory. Fails as [`run`] does.
pub(crate) fn recount(data: &Path, config: &Config, from: Option<Day>) -> Result<Recounted> {
    // The clock stands where the log ends, so the result does not depend on when the command runs.
    let standing = |ms| Arc::new(VirtualClock::new(ms, 0.0));
    let blobs = world(data, standing(0))?.blobs();
    let options = config.options;
    let plan = Recount::plan(&blobs, from, &config.schema, options.shards)?;
    check_files(&blobs, &plan.manifest)?;
    clear_way(&blobs, data, plan.manifest.number)?;
    match manifest::numbers(&blobs).unwrap_or_default().last() {
        Some(&newest) if Manifest::load_number(&blobs, newest).is_ok() => {}
        Some(&newest) => note!(
            "warning: {} is damaged: what it alone says, such as a dataset that was dropped, is forgotten; see `tallyring \
             datasets`",
            names::manifest(newest)
        ),
        None => note!(
            "warning: no manifest is left: where the log does not say what was declared at its beginning, {} does, and \
             datasets, if there were any, must be loaded again",
            if config.declares {
                "the configuration"
            } else {
                "the embedded configuration"
            }
        ),
    }
    warn_of_lost_datasets(&plan);
    if segments(blobs.disk())?.iter().any(Segment::lacks_erased) {
        note!(
            "warning: the log lacks users who were erased: estimates of distinct users of before no longer count them, and \
             all counts stay"
        );
    }
    blobs.prepare()?;
    // From here on the store can be opened at any moment: the log has everything that is not made yet.
    plan.manifest.commit(&blobs)?;
    remove_unreadable(&blobs)?;
    // A damaged file would pass for a new one of the same name.
    let aside = clear_at_start(&blobs, &plan.manifest, false)?.aside.len();
    if aside > 0 {
        let files = how_many(aside as u64, "file");
        note!(
            "{files} that no longer count went to {}/: remove them once all is good",
            names::ASIDE
        );
    }
    let (store, recovery) = Store::open_as_it_is(
        world(data, standing(plan.ended_ms))?,
        options,
        &config.schema,
    )?;
    store.ledger().flush()?;
    let finals = finals::make_again(&store, data, config)?;
    let options = config.rebuild.build_options(&options);
    let bar = bytes_bar("merging");
    let merged = merge(&store, &store.manifest(), options, &on(&bar));
    bar.finish_and_clear();
    merged?;
    store.intake().seal()?;
    Ok(Recounted {
        is_whole: plan.is_whole,
        stores: plan.stores,
        records: recovery.replayed,
        generation: store.manifest().archive.active,
        finals,
    })
}

/// The log knows of final datasets, and has no counts of them.
fn warn_of_lost_datasets(plan: &Recount) {
    for lost in &plan.manifest.archive.lost_datasets {
        note!(
            "warning: the dataset {} ({}) is part of final numbers, and no manifest names it: its days are not final until \
             exactly these rows are loaded again with --final",
            lost.name,
            how_many(lost.rows, "row")
        );
    }
    for dataset in &plan.left_out {
        note!("warning: {dataset}");
    }
}

/// Files that the log cannot replace must be whole before derived files are given up.
fn check_files(blobs: &Blobs, manifest: &Manifest) -> Result<()> {
    let damaged = |entry: &&RunEntry| verify_bytes(blobs, entry).is_err();
    let damaged: Vec<&str> = manifest
        .files()
        .map(|entry| (&*entry.name, entry))
        .collect::<BTreeMap<_, _>>()
        .into_values()
        .filter(damaged)
        .map(|entry| &*entry.name)
        .collect();
    let Some(first) = damaged.first() else {
        return Ok(());
    };
    Err(CommandError::Failed(format!(
        "{first} is damaged or gone{}, and the log does not reach back to what it holds; nothing was changed: heal it with \
         `tallyring verify --repair --backup DIR`{}, or restore a backup",
        match damaged.len() {
            1 => String::new(),
            more => format!(" (and {} more)", more - 1),
        },
        load_again(manifest, &damaged)
    )))
}

/// The way to heal a final dataset of which one of these files is, where there is one: the log knows its counts.
fn load_again(manifest: &Manifest, damaged: &[&str]) -> String {
    let has_lost = |dataset: &&DatasetEntry| {
        let mut runs = dataset.runs.iter();
        dataset.is_final && runs.any(|run| damaged.contains(&&*run.name))
    };
    let mut datasets = manifest.archive.datasets.iter();
    datasets.find(has_lost).map_or_else(String::new, |dataset| {
        let name = &dataset.name;
        format!(
            ", load exactly its rows again with `tallyring load {name} FILE… --final`, give it up with `tallyring drop \
             {name} --gone REASON`"
        )
    })
}

/// Puts aside all else under the name of a sorted file: it would be in the way of the new files.
fn clear_way(blobs: &Blobs, data: &Path, manifest: u64) -> Result<()> {
    for directory in names::SORTED_FILE_DIRECTORIES {
        let path = data.join(directory);
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(doing(format!("list {}", path.display()))(error)),
        };
        for entry in entries {
            let entry = entry.map_err(doing(format!("list {}", path.display())))?;
            let file = entry.file_name();
            let file = file.to_string_lossy();
            if !file.ends_with(names::SORTED_FILE_SUFFIX)
                || entry.file_type().is_ok_and(|kind| kind.is_file())
                || blobs.clear_way(manifest, &format!("{directory}/{file}"))?
            {
                continue;
            }
            return Err(CommandError::Failed(format!(
                "{} is no file, and takes the name of one; nothing was counted: move it away, and run this command again",
                entry.path().display()
            )));
        }
    }
    Ok(())
}

/// Older manifests only inform people; an unreadable one informs nobody.
fn remove_unreadable(blobs: &Blobs) -> Result<()> {
    for number in manifest::numbers(blobs)? {
        if Manifest::load_number(blobs, number).is_err() {
            blobs.remove(&names::manifest(number))?;
        }
    }
    Ok(())
}
