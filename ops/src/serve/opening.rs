//! Opens the store that a server serves: of one strand, of several, or as one of several nodes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use tallyring_api::calendar::ZoneRules;
use tallyring_archive::names;
use tallyring_realtime::{Clock, Lock, Service, Store};

use crate::config::{Config, LogCopyConfig};
use crate::data_directory::{check_one_store, lock, open_store, refuse_node, tell_settings, world};
use crate::error::{CommandError, Result, doing};
use crate::incoming;
use crate::log_copy::{self, open_log_copy};
use crate::process::warn_of_few_open_files;
use crate::schedule::Held;
use crate::strands::{self, Division};

/// Opens the store, all strands of it, and starts its threads.
pub(super) fn open_service(
    data: &Path,
    clock: Arc<dyn Clock>,
    config: &Config,
) -> Result<Vec<Held>> {
    let rules = ZoneRules::chosen();
    tracing::info!(version = rules.version(), source = %rules.source(), "time zone rules");
    #[cfg(feature = "cluster")]
    if let Some(settings) = &config.cluster {
        return crate::cluster::join(data, &clock, config, settings);
    }
    refuse_node(data)?;
    let start = |store: Store| {
        let service = Service::start(Arc::new(store)).map_err(doing("start the store's threads"));
        service.map(Arc::new)
    };
    match strands::of(data)? {
        None => {
            let copy = config.log_copy.as_ref();
            copy.map_or(Ok(()), |copy| log_copy::check_division(&copy.path, None))?;
            Ok(vec![Held {
                service: start(open(data, &clock, (config, copy))?)?,
                data: data.to_owned(),
                lock: None,
            }])
        }
        Some(Division {
            strand: Some(strand),
            ..
        }) => Err(CommandError::Usage(format!(
            "{} has strand {strand} of a store; name the directory of the whole store, which is the one above",
            data.display()
        ))),
        Some(division) => {
            let opened = open_strands(data, (&clock, config), division)?.into_iter();
            let held = opened.enumerate().map(|(strand, (store, data, lock))| {
                let span = strands::span(strand, division.strands);
                Ok(Held {
                    service: span.in_scope(|| start(store))?,
                    data,
                    lock: Some(lock),
                })
            });
            held.collect()
        }
    }
}

/// Opens all strands of a store, each with the lock of its directory.
fn open_strands(
    data: &Path,
    (clock, config): (&Arc<dyn Clock>, &Config),
    division: Division,
) -> Result<Vec<(Store, PathBuf, Lock)>> {
    let mut config = config.clone();
    config.options = config.options.of_strand(division.strands);
    let log_copy = config.log_copy.take();
    let directories = strands::directories(data)?.into_iter().enumerate();
    let opened = directories.map(|(strand, data)| {
        let _span = strands::span(strand, division.strands).entered();
        // A strand that is lost never begins again as an empty one.
        if strands::of(&data)? != Some(division.at(strand)) || !data.join(names::IDENTITY).exists()
        {
            return Err(CommandError::Failed(format!(
                "{} does not have strand {strand} of the store: restore it from a backup",
                data.display()
            )));
        }
        let lock = lock(&data)?;
        incoming::sweep(&data);
        let copy = log_copy.as_ref();
        let copy = copy.map(|copy| log_copy::of_strand(copy, (division, strand)));
        let copy = copy.transpose()?;
        let store = open(&data, clock, (&config, copy.as_ref()))?;
        Ok((store, data, lock))
    });
    let opened = opened.collect::<Result<Vec<_>>>()?;
    check_one_store(
        &data.display().to_string(),
        opened.iter().map(|(store, ..)| store),
    )?;
    Ok(opened)
}

/// Opens a store with one strand, or a strand, with the second copy of its log if there is to be one.
fn open(
    data: &Path,
    clock: &Arc<dyn Clock>,
    (config, copy): (&Config, Option<&LogCopyConfig>),
) -> Result<Store> {
    let began = Instant::now();
    let world = world(data, Arc::clone(clock))?;
    // The copy is opened before the log: a copy that is ahead of the log is an error that changes nothing.
    let copy = copy.map(|copy| open_log_copy(copy, &world)).transpose()?;
    let (mut store, recovery) = open_store(world, config)?;
    if !config.declares {
        tell_settings(&store);
    }
    let runs = store.manifest().file_names().len();
    warn_of_few_open_files(config.http.server.connections_max, runs);
    if let Some(copy) = copy {
        store = store.with_log_copy(copy);
    }
    if recovery.torn_bytes > 0 {
        tracing::warn!(
            bytes = recovery.torn_bytes,
            "cut a write that a crash had torn; it was never acknowledged"
        );
    }
    for file in &recovery.cleared.missing {
        tracing::error!(
            file,
            "this file is gone, which the manifest names and the next rebuild needs: run `tallyring verify --repair`; until \
             it is back, starts remove nothing"
        );
    }
    for file in &recovery.cleared.aside {
        tracing::warn!(
            file,
            "no manifest names this file, and a lost manifest may have named it: the file was put aside, where nothing reads or removes it"
        );
    }
    tracing::info!(
        replayed = recovery.replayed,
        leftovers = recovery.cleared.removed,
        seconds = began.elapsed().as_secs_f64(),
        "opened {}",
        data.display()
    );
    Ok(store)
}
