//! `tallyring recompress`: what a server does to closed years after its nightly rebuild, by hand and without one.

use indicatif::HumanBytes;
use serde_json::json;
use tallyring_rebuild::{recompress, recompressible};
use tallyring_records::how_many;

use crate::cli::DataArgs;
use crate::config::Config;
use crate::data_directory::{open, require_store, try_lock};
use crate::error::{CommandError, Result};
use crate::out::say;
use crate::progress::bytes_bar;

/// Writes the files of closed years again at the level that is configured for them, each published by itself: ended
/// meanwhile, it goes on where it was.
///
/// # Errors
/// When a server holds the directory, a file is damaged, or the disk refuses.
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
    let mut done = 0;
    let mut after = 0;
    for file in &files {
        let progress = |bytes, _| bar.set_position(done + bytes);
        let made = recompress(
            &*store.world().disk,
            &store.manifest(),
            file,
            level,
            &progress,
        )?;
        store.replace_files(&made)?;
        after += made.get(&file.name).map_or(0, |made| made.bytes);
        done += file.bytes;
    }
    bar.finish_and_clear();
    store.seal()?;
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
