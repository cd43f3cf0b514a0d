//! `tallyring-bench rebuild`: from unsorted history to a published archive, in turn with programs that sort and group
//! the same file.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use tallyring_archive::{Blobs, Manifest, Run, RunEntry};

use crate::effort::Effort;
use crate::history::{self, History};
use crate::report::{Report, median};
use crate::server::memory_bytes;

/// Options of `tallyring-bench rebuild`.
#[derive(Args)]
#[command(after_help = "\
`bench/bulk.sh` runs it with all peers that can be installed. {file} in a peer's command is the CSV file, {out} what it \
is to write.

Examples:
  tallyring-bench rebuild --runs 3
  tallyring-bench rebuild --rows 5000000,20000000 --runs 1    how time grows")]
pub(crate) struct RebuildArgs {
    /// Rows of history; several numbers are measured one after the other
    #[arg(long, value_delimiter = ',', default_values_t = [20_000_000], value_parser = clap::value_parser!(u64).range(1_000..=1_000_000_000))]
    rows: Vec<u64>,
    /// Give each click a country and a referrer: three rows a click
    #[arg(long)]
    breakdowns: bool,
    /// Memory of the load
    #[arg(long, default_value = "512MiB")]
    memory: String,
    /// Another program to measure in turn, NAME=COMMAND for the shell
    #[arg(long, value_name = "NAME=COMMAND", value_parser = parse_peer)]
    peer: Vec<(String, String)>,
}

fn parse_peer(text: &str) -> std::result::Result<(String, String), String> {
    let (name, command) = text
        .split_once('=')
        .ok_or("write NAME=COMMAND, such as 'DuckDB=python3 peer.py {file} {out}'")?;
    Ok((name.to_owned(), command.to_owned()))
}

/// Measures load and rebuild, GNU sort and the peers, in turn. Fails when a program fails.
pub(crate) fn run(effort: &Effort, args: &RebuildArgs) -> Result<Report> {
    let directory = effort.directory()?;
    let mut report = Report::new("rebuild");
    let mut growth = Vec::new();
    for &rows in &args.rows {
        let stand = Stand::new(directory.path())?;
        let bytes = History::of_2012(rows, args.breakdowns).write(&stand.file)?;
        let what = format!("{} M rows, {} MB", rows as f64 / 1e6, bytes / 1_000_000);
        let seconds = measure(effort, args, &stand, &what, &mut report)?;
        growth.push((rows as f64, seconds));
    }
    if let ([first, .., last], true) = (growth.as_slice(), growth.len() > 1) {
        let exponent = (last.1 / first.1).ln() / (last.0 / first.0).ln();
        report.row("time grows with rows to the power of", "", &[exponent]);
    }
    Ok(report)
}

/// Files of a measurement.
pub(crate) struct Stand {
    /// The history.
    pub file: PathBuf,
    /// The data directory.
    pub data: PathBuf,
    /// The file that a peer writes.
    out: PathBuf,
    /// The configuration, which declares the history's breakdowns.
    pub config: PathBuf,
}

/// Returns the median of Tallyring's seconds.
fn measure(
    effort: &Effort,
    args: &RebuildArgs,
    stand: &Stand,
    what: &str,
    report: &mut Report,
) -> Result<f64> {
    let mut others = vec![(
        "GNU sort".to_owned(),
        "LC_ALL=C sort --parallel=2 -S 2G {file} -o {out}".to_owned(),
    )];
    others.extend(args.peer.iter().cloned());
    let mut own = Figures::default();
    let mut theirs: Vec<Figures> = others.iter().map(|_| Figures::default()).collect();
    let mut sizes = Sizes::default();
    let mut harder = Figures::default();
    for _ in 0..effort.runs {
        own.add(&stand.load(effort, &args.memory)?);
        sizes = stand.sizes()?;
        harder.add(&watch(&mut effort.prepare(&["recompress"], &stand.data)?)?);
        harder.bytes = stand.sizes()?.archive;
        remove(&stand.data)?;
        for ((_, command), figures) in others.iter().zip(&mut theirs) {
            figures.add(&stand.other(command)?);
            figures.bytes = size(&stand.out)?;
            remove(&stand.out)?;
        }
    }
    report.row(format!("{what}: load and rebuild"), "s", &own.seconds);
    report.row("  peak memory", "MiB", &own.peak_mib);
    report.row("  archive", "MB", &[sizes.archive as f64 / 1e6]);
    let part = sizes.archive as f64 / sizes.plain as f64;
    report.row("  archive to its plain lines", "×", &[part]);
    let a_cell = sizes.archive as f64 / sizes.cells as f64;
    report.row(
        format!("  a cell, of {:.1} M", sizes.cells as f64 / 1e6),
        "bytes",
        &[a_cell],
    );
    report.row("  recompressed, apart", "s", &harder.seconds);
    report.row("  archive then", "MB", &[harder.bytes as f64 / 1e6]);
    for ((name, _), figures) in others.iter().zip(&theirs) {
        report.row(format!("{what}: {name}"), "s", &figures.seconds);
        report.row("  peak memory", "MiB", &figures.peak_mib);
        report.row("  output", "MB", &[figures.bytes as f64 / 1e6]);
        report.ratio("  its time to ours", &figures.seconds, &own.seconds);
    }
    Ok(median(&own.seconds))
}

#[derive(Default)]
struct Figures {
    seconds: Vec<f64>,
    peak_mib: Vec<f64>,
    bytes: u64,
}

impl Figures {
    fn add(&mut self, ended: &Ended) {
        self.seconds.push(ended.took.as_secs_f64());
        self.peak_mib.push((ended.peak_bytes >> 20) as f64);
    }
}

/// Sizes of a generation.
#[derive(Default)]
pub(crate) struct Sizes {
    /// Bytes of the files.
    pub archive: u64,
    /// Plain bytes of their lines.
    plain: u64,
    /// Counts: of a total's hour, or of a value in an hour.
    pub cells: u64,
}

impl Stand {
    /// Names the files in a directory, and writes the configuration.
    pub(crate) fn new(directory: &Path) -> Result<Self> {
        let config = directory.join("tallyring.toml");
        std::fs::write(&config, history::CONFIG).context("cannot write a configuration")?;
        Ok(Self {
            file: directory.join("history.csv"),
            data: directory.join("data"),
            out: directory.join("out"),
            config,
        })
    }

    /// Loads the file and rebuilds.
    pub(crate) fn load(&self, effort: &Effort, memory: &str) -> Result<Ended> {
        let mut load = effort.prepare(&["load", "history", "--memory", memory], &self.data)?;
        let loaded = watch(load.arg(&self.file).arg("--config").arg(&self.config))?;
        let mut rebuild = effort.prepare(&["rebuild"], &self.data)?;
        let rebuilt = watch(rebuild.arg("--config").arg(&self.config))?;
        Ok(Ended {
            took: loaded.took + rebuilt.took,
            peak_bytes: loaded.peak_bytes.max(rebuilt.peak_bytes),
        })
    }

    fn other(&self, command: &str) -> Result<Ended> {
        let command = command
            .replace("{file}", &self.file.to_string_lossy())
            .replace("{out}", &self.out.to_string_lossy());
        // The shell is replaced by the program, so that the memory of the program is watched.
        watch(Command::new("sh").args(["-c", &format!("exec env {command}")]))
    }

    /// Sizes of the newest generation.
    pub(crate) fn sizes(&self) -> Result<Sizes> {
        let blobs = Blobs::local(&self.data)?;
        let manifest = Manifest::load(&blobs)?;
        let generation = manifest
            .as_ref()
            .and_then(|manifest| manifest.archive.generations.last());
        let files = generation.map_or(&[][..], |generation| &generation.files);
        Ok(Sizes {
            archive: files.iter().map(|file| file.bytes).sum(),
            plain: files.iter().map(|file| file.meta.plain_bytes).sum(),
            cells: files
                .iter()
                .map(|file| cells(&blobs, file))
                .sum::<Result<u64>>()?,
        })
    }
}

/// The counts in a file.
fn cells(blobs: &Blobs, file: &RunEntry) -> Result<u64> {
    let mut cursor = Run::open_named(blobs, file)?.cursor();
    let mut cells = 0;
    while cursor.advance()? {
        let (key, payload) = cursor.line()?.context("a line")?;
        // A line of counts has a space between two of them, and the text behind a hash is no count.
        if !key.starts_with(b"~") {
            cells += 1 + payload.iter().filter(|&&byte| byte == b' ').count() as u64;
        }
    }
    Ok(cells)
}

/// Time and memory of a program.
pub(crate) struct Ended {
    pub took: Duration,
    pub peak_bytes: u64,
}

const POLL: Duration = Duration::from_millis(5);

/// Runs a program to its end and watches its memory.
pub(crate) fn watch(command: &mut Command) -> Result<Ended> {
    let began = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {command:?}"))?;
    let mut peak_bytes = 0;
    let status = loop {
        peak_bytes = peak_bytes.max(memory_bytes(child.id(), "VmHWM:"));
        if let Some(status) = child.try_wait().context("cannot wait for a program")? {
            break status;
        }
        std::thread::sleep(POLL);
    };
    let took = began.elapsed();
    if status.success() {
        return Ok(Ended { took, peak_bytes });
    }
    let mut said = String::new();
    if let Some(mut messages) = child.stderr.take() {
        let _ = std::io::Read::read_to_string(&mut messages, &mut said);
    }
    bail!("{command:?} failed: {said}")
}

fn size(path: &Path) -> Result<u64> {
    let found =
        std::fs::metadata(path).with_context(|| format!("cannot find {}", path.display()))?;
    Ok(found.len())
}

fn remove(path: &Path) -> Result<()> {
    let removed = if path.is_dir() {
        std::fs::remove_dir_all(path)
    } else {
        std::fs::remove_file(path)
    };
    removed.with_context(|| format!("cannot remove {}", path.display()))
}
