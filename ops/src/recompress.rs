//! `tallyring recompress`: what a server does to closed years after its nightly rebuild, by hand and without one.

use indicatif::HumanBytes;
use serde_json::json;
use tallyring_rebuild::{recompress, recompressible};
use tallyring_records::how_many;

use crate::backup;
use crate::cli::DataArgs;
use crate::config::Config;
use crate::data_directory::{open, require_store, try_lock};
use crate::error::{CommandError, Result};
use crate::out::say;
use crate::progress::bytes_bar;
use crate::rebuilds::RECOMPRESSED_BYTES_MAX;

/// Writes the files of closed years again at the level that is configured for them, each published by itself: ended
/// meanwhile, it goes on where it was.
///
/// # Errors
/// When a server holds the directory, files are damaged (the others are written), or the disk refuses.
pub fn run(args: &DataArgs, as_json: bool) -> Result<()> {
    let config = Config::for_command(args.config.as_deref(), &args.data)?;
    require_store(&args.data)?;
    let lock = try_lock(&args.data)?.map_err(|_| {
        CommandError::Failed(
            "a server holds the data directory; it recompresses closed years itself, after its nightly rebuild".into(),
        )
    })?;
    let (store, _lock) = open(&args.data, &config, lock)?;
    let level = config.rebuild.closed_level;
    let before = store.manifest();
    let files = recompressible(&before, level);
    let all: u64 = files.iter().map(|file| file.bytes).sum();
    let bar = bytes_bar("recompressing");
    bar.set_length(all);
    let back_up = || {
        let Some(target) = &config.backup else {
            return Ok(());
        };
        let made = backup::make(&args.data, target, &backup::todays_part, &|_, _| {});
        made.map(|_| ()).map_err(|error| {
            CommandError::Failed(format!("what is written is not backed up: {error}"))
        })
    };
    let (mut done, mut after, mut not_backed_up) = (0, 0, 0);
    let mut failures = Vec::new();
    for file in &files {
        let progress = |bytes, _| bar.set_position(done + bytes);
        let made = recompress(&*store.world().disk, file, level, &progress);
        match made.map_err(CommandError::from) {
            Ok(made) => {
                store.replace(file, &made)?;
                after += made.bytes;
                not_backed_up += file.bytes;
            }
            // The others are none the worse for it.
            Err(error) => {
                failures.push(error.to_string());
                after += file.bytes;
            }
        }
        done += file.bytes;
        if not_backed_up >= RECOMPRESSED_BYTES_MAX {
            back_up()?;
            not_backed_up = 0;
        }
    }
    store.seal()?;
    if not_backed_up > 0 {
        back_up()?;
    }
    bar.finish_and_clear();
    if !failures.is_empty() {
        let failed = how_many(failures.len() as u64, "file");
        return Err(CommandError::Failed(format!(
            "{failed} stayed as before: {}",
            failures.join("; ")
        )));
    }
    if as_json {
        say!(
            "{}",
            json!({ "files": files.len(), "bytes_before": all, "bytes": after })
        )
    } else if files.is_empty() {
        say!("no file of a closed year was written at less than zstd level {level}")
    } else {
        say!(
            "{} of closed years: {} are {}",
            how_many(files.len() as u64, "file"),
            HumanBytes(all),
            HumanBytes(after)
        )
    }
}
