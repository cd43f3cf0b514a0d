//! `tallyring-bench nights`: what the rebuilds of a month write, night by night, against the bytes of the new days, and
//! reads of a key before and after the month closes.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use tallyring_archive::{Blobs, Manifest, Origin};
use tallyring_bench::Chance;

use crate::effort::Effort;
use crate::load::Load;
use crate::report::{Report, median};
use crate::request::{self, COUNTRIES, INCREMENTS_A_BODY};
use crate::server::ServerProcess;

/// Options of `tallyring-bench nights`.
#[derive(Args)]
#[command(after_help = "\
Every day gets equally many increments over all its hours; then a server whose clock shows the next
day exports and merges it. The figures of bytes count files of `runs/` and `archive/` that are new
on the disk; a second name of a file is not new.

Example:
  tallyring-bench nights --increments 1000000 --links 200000")]
pub(crate) struct NightsArgs {
    /// Increments a day
    #[arg(long, default_value_t = 300_000, value_parser = clap::value_parser!(u64).range(1_000..=100_000_000))]
    increments: u64,
    /// Links that may be clicked
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(10..=100_000_000))]
    links: u64,
}

/// 2026-01-01, a month of 31 days.
pub(crate) const FIRST: i64 = 1_767_225_600;
pub(crate) const DAYS: i64 = 31;
pub(crate) const DAY: i64 = 86_400;
/// The longest rebuild of a day that has not failed.
const NIGHT_MAX: Duration = Duration::from_secs(600);
const LOOK: Duration = Duration::from_millis(50);

/// Lets a month pass.
///
/// # Errors
/// When a server fails, or a rebuild does not end.
pub(crate) fn run(effort: &Effort, args: &NightsArgs) -> Result<Report> {
    let mut report = Report::new("nights");
    let (mut written, mut to_new, mut of_last, mut of_close) =
        <(Vec<_>, Vec<_>, Vec<_>, Vec<_>)>::default();
    let (mut files, mut before, mut after, mut closed) =
        <(Vec<_>, Vec<_>, Vec<_>, Vec<_>)>::default();
    for _ in 0..effort.runs {
        let directory = effort.directory()?;
        let data = directory.path();
        let mut dice = Chance::new(9);
        let mut nights = Vec::new();
        let mut known = BTreeMap::new();
        let (mut exports, mut exported) = (BTreeSet::new(), 0);
        for day in 0..DAYS + 2 {
            let today = FIRST + day * DAY;
            if day > 0 {
                let server = serve(effort, data, today + 600)?;
                wait_for_rebuild(&server, data, today)?;
                nights.push(new_bytes(data, &mut known)? as f64 / 1e6);
                exported += new_exports(data, &mut exports)?;
                if day == DAYS {
                    files.push(waiting(data)? as f64);
                    before.push(read(&server)?);
                }
                if day == DAYS + 1 {
                    after.push(read(&server)?);
                }
            }
            if day <= DAYS {
                let server = serve(effort, data, today + DAY - 600)?;
                // The day after the month is there so that a night follows in which the month closes.
                let increments = if day < DAYS {
                    args.increments
                } else {
                    INCREMENTS_A_BODY
                };
                let body = |_| body(today, args.links, &mut dice);
                Load::each_once(server.address, increments.div_ceil(INCREMENTS_A_BODY), body)?;
            }
        }
        let month: f64 = nights.iter().sum();
        written.push(month / DAYS as f64);
        to_new.push(month / (exported as f64 / 1e6));
        closed.push(archive_bytes(data)? as f64 / 1e6);
        of_last.push(nights[DAYS as usize - 1]);
        of_close.push(nights[DAYS as usize]);
    }
    report.row("written a night, mean", "MB", &written);
    report.row("to the bytes of the exports", "×", &to_new);
    report.row("written in the last night of the month", "MB", &of_last);
    report.row("written when the month closes", "MB", &of_close);
    report.row("the closed month", "MB", &closed);
    report.row("exports that wait before that", "files", &files);
    report.row("30 days of a key before that", "µs", &before);
    report.row("30 days of a key afterwards", "µs", &after);
    Ok(report)
}

fn serve(effort: &Effort, data: &Path, instant: i64) -> Result<ServerProcess> {
    effort.serve(data, &["--clock", &format!("{instant}@1")])
}

/// Waits until no day before `today` (Unix seconds) has a delta store, and the rebuild that exported it is done: a
/// server that was killed in a rebuild waits before it tries again.
pub(crate) fn wait_for_rebuild(server: &ServerProcess, data: &Path, today: i64) -> Result<()> {
    let began = Instant::now();
    let blobs = Blobs::local(data)?;
    while began.elapsed() < NIGHT_MAX {
        let manifest = Manifest::load(&blobs)?.context("a manifest")?;
        let mut stores = manifest
            .intake
            .stores
            .iter()
            .filter_map(|store| store.id.day());
        if !stores.any(|day| day.start() < today - DAY)
            && is_exported(&manifest, today - DAY)
            && server.status()?["last_rebuild"]["state"] == "done"
        {
            return Ok(());
        }
        thread::sleep(LOOK);
    }
    bail!("no rebuild ended within {NIGHT_MAX:?}")
}

/// True when the day that begins at `instant` is a source run, or a part of one.
fn is_exported(manifest: &Manifest, instant: i64) -> bool {
    manifest
        .archive
        .runs
        .iter()
        .any(|run| run.meta.last >= instant)
}

/// Bytes of files of `runs/` and `archive/` that are not yet in `known`, which gets them.
fn new_bytes(data: &Path, known: &mut BTreeMap<u64, u64>) -> Result<u64> {
    let mut new = 0;
    for directory in ["runs", "archive"] {
        for entry in std::fs::read_dir(data.join(directory)).context("cannot list a directory")? {
            let file = entry
                .and_then(|entry| entry.metadata())
                .context("cannot look at a file")?;
            if known.insert(file.ino(), file.len()) != Some(file.len()) {
                new += file.len();
            }
        }
    }
    Ok(new)
}

/// Bytes of exports that are not yet in `known`, which gets their names.
fn new_exports(data: &Path, known: &mut BTreeSet<String>) -> Result<u64> {
    let manifest = Manifest::load(&Blobs::local(data)?)?.context("a manifest")?;
    let runs = manifest.archive.runs.iter();
    let exports = runs.filter(|run| matches!(run.origin, Origin::Export { .. }));
    let new = exports.filter(|run| known.insert(run.name.clone()));
    Ok(new.map(|run| run.bytes).sum())
}

fn archive_bytes(data: &Path) -> Result<u64> {
    let manifest = Manifest::load(&Blobs::local(data)?)?.context("a manifest")?;
    let active = manifest
        .archive
        .active_generation()
        .context("a generation")?;
    Ok(active.files.iter().map(|file| file.bytes).sum())
}

/// Exports that no generation holds.
pub(crate) fn waiting(data: &Path) -> Result<usize> {
    let manifest = Manifest::load(&Blobs::local(data)?)?.context("a manifest")?;
    let pending = manifest.archive.pending();
    Ok(pending
        .filter(|run| matches!(run.origin, Origin::Export { .. }))
        .count())
}

/// The median time of a read of 30 days of a key, µs, over a hundred keys that were not read before.
fn read(server: &ServerProcess) -> Result<f64> {
    let mut times = Vec::new();
    for key in 0..100 {
        let path = format!(
            "/v1/u/k{}/counts?unit=day&units=30&to=2026-02-01T00:00:00Z",
            7 * key + 1
        );
        let began = Instant::now();
        Load::each_once(server.address, 1, |_| request::get(&path))?;
        times.push(began.elapsed().as_secs_f64() * 1e6);
    }
    Ok(median(&times))
}

/// A body of increments at random times of the day that begins at `from`.
fn body(from: i64, links: u64, dice: &mut Chance) -> Vec<u8> {
    let mut body = String::new();
    for _ in 0..INCREMENTS_A_BODY {
        let (link, at) = (dice.skewed(links), from + dice.below(DAY as u64) as i64);
        let (country, site) = (COUNTRIES[dice.skewed(16) as usize], dice.skewed(500));
        body.push_str(&format!(
            "{{\"at\":{at},\"keys\":{{\"u\":\"k{link}\"}},\"by\":{{\"c\":\"{country}\",\"r\":\"http://site{site}.example/\"}}}}\n"
        ));
    }
    request::post("/v1/increments", "application/x-ndjson", &body)
}
