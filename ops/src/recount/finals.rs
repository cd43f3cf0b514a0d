//! A recount makes final versions again whose files or manifests are lost.

use std::path::Path;

use tallyring_realtime::{Reconcile, Store, check_again};
use tallyring_records::LoggedFinal;

use crate::audit::sums_text;
use crate::config::Config;
use crate::error::Result;
use crate::incoming::Incoming;
use crate::out::note;
use crate::progress::{count_bar, on};

/// Makes all awaited versions again, in the order in which they were judged; returns how many. A version that the log
/// does not give is told with what its record says. Where the log does not reach back to its day, it is given up;
/// otherwise the server tries again. Fails when the disk does.
pub(super) fn make_again(store: &Store, data: &Path, config: &Config) -> Result<u64> {
    let mut awaited = store.manifest().archive.awaited.clone();
    awaited.sort_by_key(|logged| (logged.upto, logged.day, logged.version));
    let mut made = 0;
    for logged in &awaited {
        if let Err(error) = check_again(&store.world().blobs(), &store.manifest(), logged) {
            tell(logged, &error.to_string());
            store.ledger().give_up_final(logged)?;
            continue;
        }
        match make_one_again(store, data, config, logged) {
            Ok(()) => made += 1,
            Err(error) => tell(logged, &error.to_string()),
        }
    }
    Ok(made)
}

fn make_one_again(store: &Store, data: &Path, config: &Config, logged: &LoggedFinal) -> Result<()> {
    store.ledger().flush()?;
    let incoming = Incoming::begin(data)?;
    let reconcile = Reconcile {
        day: logged.day,
        load: incoming.load(),
        rules: None,
        by: None,
        shards: config.options.shards,
        level: config.rebuild.build_options(&config.options).level,
        memory_bytes: config.options.delta_bytes_max,
    };
    let bar = count_bar("making a final day again", "records", 0);
    let again = reconcile.again(&store.world().blobs(), &store.manifest(), logged, &on(&bar));
    bar.finish_and_clear();
    Ok(store.ledger().publish_again(&again?.into_final())?)
}

fn tell(logged: &LoggedFinal, error: &str) {
    note!(
        "warning: {error}; the log still says of version {} of {}: {}",
        logged.version,
        logged.day,
        sums_text(&logged.types)
    );
}
