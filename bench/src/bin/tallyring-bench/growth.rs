//! `tallyring-bench growth`: how the cost of bulk work and of reads over all keys grows with rows, links and years.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use tallyring_archive::{Blobs, Manifest};

use crate::cold::BLOCKS;
use crate::effort::Effort;
use crate::history::{self, History};
use crate::load::Load;
use crate::rebuild::{Stand, watch};
use crate::report::Report;
use crate::request;
use crate::server::ServerProcess;

/// Options of `tallyring-bench growth`.
#[derive(Args)]
#[command(after_help = "\
Every history ends with the last hour of yesterday. A history is written, loaded, rebuilt, verified and served for each \
number of each option in turn; the other options have their first number then.

Examples:
  tallyring-bench growth --rows 5000000,20000000,100000000 --breakdowns
  tallyring-bench growth --links 10000,1000000,10000000
  tallyring-bench growth --rows 500000000 --links 12000000 --runs 1    10 million keys in 100 million hours
  tallyring-bench growth --years 1,3,10")]
pub(crate) struct GrowthArgs {
    /// Rows of history
    #[arg(long, value_delimiter = ',', default_values_t = [20_000_000], value_parser = clap::value_parser!(u64).range(1_000..=1_000_000_000))]
    rows: Vec<u64>,
    /// Links that may be clicked
    #[arg(long, value_delimiter = ',', default_values_t = [3_000_000], value_parser = clap::value_parser!(u64).range(10..=1_000_000_000))]
    links: Vec<u64>,
    /// Years of history
    #[arg(long, value_delimiter = ',', default_values_t = [1], value_parser = clap::value_parser!(u64).range(1..=20))]
    years: Vec<u64>,
    /// Give each click a country and a referrer: three rows a click
    #[arg(long)]
    breakdowns: bool,
}

const DAY: u64 = 86_400;
const HOURS_A_YEAR: u64 = 365 * 24;

/// A question is asked again so often, or for so long but at least some times.
const AGAIN: usize = 100;
const AGAIN_MIN: usize = 20;
const AGAIN_LONGEST: Duration = Duration::from_secs(5);

/// So many of the reads are rankings.
const RANKINGS: usize = 2;

/// Reads of all keys: a name, and the path with its parameters but for the end of the range.
const READS: [(&str, &str); 4] = [
    ("top 100 of 7 days", "top?limit=100&unit=day&units=7"),
    ("top 100 of a year", "top?limit=100&unit=day&units=365"),
    ("all keys by hour, 7 days", "counts?unit=hour&units=168"),
    ("all keys by day, a year", "counts?unit=day&units=365"),
];

/// Reads of all keys by the values of a subtotal, where there are breakdowns.
const BREAKDOWNS: [(&str, &str); 4] = [
    ("by country, 7 days", "by?subtotal=c&unit=day&units=7"),
    ("by country, a year", "by?subtotal=c&unit=day&units=365"),
    ("by referrer, 30 days", "by?subtotal=r&unit=day&units=30"),
    ("by referrer, a year", "by?subtotal=r&unit=day&units=365"),
];

/// Measures each shape of history once for each run. Fails when a program or the server fails.
pub(crate) fn run(effort: &Effort, args: &GrowthArgs) -> Result<Report> {
    let today = jiff::Timestamp::now().as_second().div_euclid(DAY as i64) * DAY as i64;
    let shape = |rows: u64, links: u64, years: u64| {
        let hours = years * HOURS_A_YEAR;
        let history = History {
            rows,
            breakdowns: args.breakdowns,
            links: links as f64,
            from: today - hours as i64 * 3_600,
            hours,
        };
        let what = format!("{} M rows, {links} links, {years} y", rows as f64 / 1e6);
        (what, history)
    };
    let (rows, links, years) = (args.rows[0], args.links[0], args.years[0]);
    let mut shapes = vec![shape(rows, links, years)];
    shapes.extend(args.rows[1..].iter().map(|rows| shape(*rows, links, years)));
    shapes.extend(
        args.links[1..]
            .iter()
            .map(|links| shape(rows, *links, years)),
    );
    shapes.extend(
        args.years[1..]
            .iter()
            .map(|years| shape(rows, links, *years)),
    );
    let mut report = Report::new("growth");
    for (what, history) in shapes {
        let directory = effort.directory()?;
        let stand = Stand::new(directory.path())?;
        history.write(&stand.file)?;
        let mut figures = Figures::default();
        for _ in 0..effort.runs {
            figures.measure(effort, &stand, (today, args.breakdowns))?;
            std::fs::remove_dir_all(&stand.data).context("cannot remove a data directory")?;
        }
        figures.report(&what, &mut report);
    }
    Ok(report)
}

#[derive(Default)]
struct Figures {
    /// Name, unit and figure of every run.
    rows: Vec<(String, &'static str, Vec<f64>)>,
}

impl Figures {
    fn add(&mut self, what: &str, unit: &'static str, figure: f64) {
        match self.rows.iter_mut().find(|(known, ..)| known == what) {
            Some((_, _, runs)) => runs.push(figure),
            None => self.rows.push((what.to_owned(), unit, vec![figure])),
        }
    }

    fn measure(
        &mut self,
        effort: &Effort,
        stand: &Stand,
        (today, breakdowns): (i64, bool),
    ) -> Result<()> {
        let loaded = stand.load(effort, "512MiB")?;
        self.add("load and rebuild", "s", loaded.took.as_secs_f64());
        self.add("peak memory", "MiB", (loaded.peak_bytes >> 20) as f64);
        let sizes = stand.sizes()?;
        self.add("archive", "MB", sizes.archive as f64 / 1e6);
        self.add("cells", "M", sizes.cells as f64 / 1e6);
        let a_cell = sizes.archive as f64 / sizes.cells as f64;
        self.add("a cell", "bytes", a_cell);
        self.add("manifest", "kB", manifest_bytes(&stand.data)? as f64 / 1e3);
        let verified = watch(&mut effort.prepare(&["verify"], &stand.data)?)?;
        self.add("verify", "s", verified.took.as_secs_f64());
        let began = Instant::now();
        let config = stand.config.to_string_lossy();
        let server = effort.serve(&stand.data, &["--config", &config])?;
        Load::each_once(server.address, 1, |_| request::get("/readyz"))?;
        self.add("start", "ms", milliseconds(began));
        let by = BREAKDOWNS.iter().filter(|_| breakdowns);
        for (what, read) in READS.iter().chain(by) {
            let path = format!("/v1/l/{read}&to={}", stamp(today)?);
            self.read(&server, what, &path)?;
        }
        // A count of today, so that memory takes part, too.
        for (what, read) in READS.iter().take(RANKINGS) {
            let path = format!("/v1/l/{read}&to={}", stamp(today + DAY as i64)?);
            let click = request::get("/v1/incr?key.l=clicked");
            let mut after = || {
                Load::each_once(server.address, 1, |_| click.clone())?;
                asked(&server, &path)
            };
            self.repeat(&format!("{what} and today, after a click"), &mut after)?;
        }
        let path = format!(
            "/v1/l/{}/counts?unit=day&units=30&to={}",
            history::name(5_000),
            stamp(today)?
        );
        self.add("30 days of a key, first", "ms", asked(&server, &path)?);
        self.add(
            "resident then",
            "MiB",
            (server.resident_bytes() >> 20) as f64,
        );
        Ok(())
    }

    /// Asks one question for the first time and again.
    fn read(&mut self, server: &ServerProcess, what: &str, path: &str) -> Result<()> {
        let before = server.metric(BLOCKS)?;
        self.add(&format!("{what}, first"), "ms", asked(server, path)?);
        let decoded = server.metric(BLOCKS)? - before;
        self.add(&format!("{what}, first, decoded"), "blocks", decoded);
        self.repeat(&format!("{what}, again"), &mut || asked(server, path))
    }

    /// Takes the milliseconds of one request again and again.
    fn repeat(&mut self, what: &str, ask: &mut dyn FnMut() -> Result<f64>) -> Result<()> {
        let began = Instant::now();
        let mut taken = Vec::new();
        while taken.len() < AGAIN && (taken.len() < AGAIN_MIN || began.elapsed() < AGAIN_LONGEST) {
            taken.push(ask()?);
        }
        taken.sort_unstable_by(f64::total_cmp);
        self.add(what, "ms", crate::report::median(&taken));
        let p95 = taken[(taken.len() * 95).div_ceil(100) - 1];
        self.add(&format!("{what}, p95"), "ms", p95);
        Ok(())
    }

    fn report(&self, what: &str, report: &mut Report) {
        for (row, (name, unit, runs)) in self.rows.iter().enumerate() {
            match row {
                0 => report.row(format!("{what}: {name}"), unit, runs),
                _ => report.row(format!("  {name}"), unit, runs),
            }
        }
    }
}

/// Milliseconds of one request on a new connection.
fn asked(server: &ServerProcess, path: &str) -> Result<f64> {
    let began = Instant::now();
    Load::each_once(server.address, 1, |_| request::get(path))?;
    Ok(milliseconds(began))
}

fn milliseconds(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e3
}

fn stamp(instant: i64) -> Result<String> {
    let stamp = jiff::Timestamp::from_second(instant).context("an instant")?;
    Ok(stamp.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

fn manifest_bytes(data: &Path) -> Result<u64> {
    let manifest = Manifest::load(&Blobs::local(data)?)?.context("a manifest")?;
    let name = tallyring_archive::names::manifest(manifest.number);
    Ok(std::fs::metadata(data.join(name))
        .context("a manifest's file")?
        .len())
}
