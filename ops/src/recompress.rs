//! `tallyring recompress`: writes the files of closed years smaller without a server, as a server does after its
//! nightly rebuild.

use std::path::Path;

use indicatif::HumanBytes;
use serde::Serialize;
use tallyring_archive::RunEntry;
use tallyring_realtime::Store;
use tallyring_rebuild::{Progress, recompress, recompressible};
use tallyring_records::how_many;

use crate::backup;
use crate::cli::DataArgs;
use crate::config::Config;
use crate::data_directory::{open, require_store, try_lock};
use crate::error::{CommandError, Result};
use crate::merge::leaving_nothing;
use crate::out::say;
use crate::progress::bytes_bar;
use crate::rebuilds::RECOMPRESSED_BYTES_MAX;

/// Writes the files of closed years again at their configured level and publishes each by itself, so an interrupted
/// command continues where it was. Fails when a server holds the directory, files are damaged (the others are written),
/// or the disk fails.
pub(crate) fn run(args: &DataArgs, as_json: bool) -> Result<()> {
    let config = Config::for_command(args.config.as_deref(), &args.data)?;
    require_store(&args.data)?;
    let lock = try_lock(&args.data)?.map_err(|_| {
        CommandError::Failed(
            "a server holds the data directory; a server recompresses closed years itself, after its nightly rebuild".into(),
        )
    })?;
    let store = open(&args.data, &config, &lock)?;
    let level = config.rebuild.closed_level;
    let before = store.manifest();
    let files = recompressible(&before, level);
    let mut pass = Pass {
        store: &store,
        level,
        backup: config.backup.as_deref().map(|target| (&*args.data, target)),
        written: Written::default(),
        not_backed_up: 0,
        failures: Vec::new(),
    };
    pass.over(&files)?;
    let written = pass.written;
    store.intake().seal()?;
    if !pass.failures.is_empty() {
        let failed = how_many(pass.failures.len() as u64, "file");
        return Err(CommandError::Failed(format!(
            "{failed} stayed as before: {}",
            pass.failures.join("; ")
        )));
    }
    if as_json {
        say!("{}", serde_json::to_string(&written)?)
    } else if files.is_empty() {
        say!("no file of a closed year was written at less than zstd level {level}")
    } else {
        say!(
            "{} of closed years: {} are {}",
            how_many(written.files, "file"),
            HumanBytes(written.bytes_before),
            HumanBytes(written.bytes)
        )
    }
}

/// The files that were written.
#[derive(Default, Serialize)]
struct Written {
    files: u64,
    bytes_before: u64,
    bytes: u64,
}

/// One pass over the files, with backups where they are configured.
struct Pass<'p> {
    store: &'p Store,
    level: i32,
    /// The data directory and its backup.
    backup: Option<(&'p Path, &'p Path)>,
    written: Written,
    not_backed_up: u64,
    failures: Vec<String>,
}

impl Pass<'_> {
    fn over(&mut self, files: &[&RunEntry]) -> Result<()> {
        let bar = bytes_bar("recompressing");
        bar.set_length(files.iter().map(|file| file.bytes).sum());
        let mut done = 0;
        for file in files {
            let progress = |bytes, _| bar.set_position(done + bytes);
            self.file(file, &progress)?;
            done += file.bytes;
            if self.not_backed_up >= RECOMPRESSED_BYTES_MAX {
                self.back_up()?;
            }
        }
        if self.not_backed_up > 0 {
            self.back_up()?;
        }
        bar.finish_and_clear();
        Ok(())
    }

    fn file(&mut self, file: &RunEntry, progress: Progress<'_>) -> Result<()> {
        let recompressed = leaving_nothing(self.store, |blobs| {
            Ok(recompress(blobs, file, self.level, progress)?)
        });
        match recompressed {
            Ok(made) => {
                self.store.ledger().replace(file, &made)?;
                self.written.files += 1;
                self.written.bytes_before += file.bytes;
                self.written.bytes += made.bytes;
                self.not_backed_up += file.bytes;
            }
            // A damaged file does not hinder the others.
            Err(error) => self.failures.push(error.to_string()),
        }
        Ok(())
    }

    fn back_up(&mut self) -> Result<()> {
        self.not_backed_up = 0;
        let Some((data, target)) = self.backup else {
            return Ok(());
        };
        let made = backup::make(data, target, &backup::todays_part, &|_, _| {});
        made.map(|_| ()).map_err(|error| {
            CommandError::Failed(format!("the recompressed files are not backed up: {error}"))
        })
    }
}
