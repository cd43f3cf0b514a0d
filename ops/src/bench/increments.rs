//! `bench increments`: single durable increments, and their latency at half the rate that saturates.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use super::Effort;
use super::child::ServerProcess;
use super::load::{Load, Outcome, histogram};
use super::report::{Report, median};
use super::request;
use crate::error::{Result, doing};

const CONNECTIONS: usize = 64;
const KEYS: u64 = 200_000;
const SYNCS: u64 = 1_000;

/// Measures empty handler, `/healthz` and increments in turn.
pub fn run(effort: &Effort) -> Result<Report> {
    let directory = effort.directory()?;
    let empty = ServerProcess::empty()?;
    let server = ServerProcess::serve(directory.path(), &[])?;
    let (nothing, health) = ([request::get("/")], [request::get("/healthz")]);
    let increments = request::increments(KEYS);
    let ask = |server: &ServerProcess, requests: &[Vec<u8>], rate| -> Result<Outcome> {
        let load = Load {
            address: server.address,
            connections: CONNECTIONS,
            requests,
            rate,
            duration: effort.duration(),
        };
        load.run()
    };
    let mut figures: [Vec<f64>; 4] = Default::default();
    for _ in 0..effort.runs {
        let bare = ask(&empty, &nothing, None)?;
        let counted = ask(&server, &increments, None)?;
        let healthy = ask(&server, &health, None)?;
        let p99 = counted.milliseconds(99.0);
        for (figures, figure) in
            figures
                .iter_mut()
                .zip([bare.per_second, healthy.per_second, counted.per_second, p99])
        {
            figures.push(figure);
        }
    }
    let [bare, healthy, counted, p99] = figures;
    let mut report = Report::new("increments");
    report.row("empty handler", "req/s", &bare);
    report.row("/healthz, all layers", "req/s", &healthy);
    report.row("increments", "req/s", &counted);
    report.ratio("increments to the empty handler", &counted, &bare);
    report.ratio("increments to /healthz", &counted, &healthy);
    report.row("p99, saturated", "ms", &p99);
    let half = median(&counted) / 2.0;
    let (mut syncs, mut paced, mut middle) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..effort.runs {
        syncs.push(sync_milliseconds(directory.path())?);
        let outcome = ask(&server, &increments, Some(half))?;
        paced.push(outcome.milliseconds(99.0));
        middle.push(outcome.milliseconds(50.0));
    }
    report.row("fdatasync of 4 KiB, p99", "ms", &syncs);
    report.row(format!("p50 at {half:.0}/s"), "ms", &middle);
    report.row(format!("p99 at {half:.0}/s"), "ms", &paced);
    let limits: Vec<f64> = syncs.iter().map(|sync| 3.0 * sync + 1.0).collect();
    report.ratio("p99 to 3 fdatasync + 1 ms", &paced, &limits);
    Ok(report)
}

/// The 99th percentile of writing 4 KiB into a file that has them, durably.
fn sync_milliseconds(directory: &Path) -> Result<f64> {
    let path = directory.join("fdatasync");
    let file = File::create(&path).map_err(doing("make a file"))?;
    let block = [7_u8; 4 << 10];
    let write = |at: u64| file.write_all_at(&block, at * block.len() as u64);
    (0..SYNCS)
        .try_for_each(write)
        .and_then(|()| file.sync_all())
        .map_err(doing("write a file"))?;
    let mut histogram = histogram()?;
    for at in 0..SYNCS {
        let began = Instant::now();
        write(at)
            .and_then(|()| file.sync_data())
            .map_err(doing("write a file"))?;
        histogram.saturating_record(began.elapsed().as_nanos() as u64);
    }
    std::fs::remove_file(&path).map_err(doing("remove a file"))?;
    Ok(histogram.value_at_percentile(99.0) as f64 / 1e6)
}
