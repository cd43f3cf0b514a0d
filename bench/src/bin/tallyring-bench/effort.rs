//! How much is measured, where, and of which program: the options of every benchmark.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use tallyring_realtime::memory;
use tempfile::TempDir;

use crate::load::{Load, Outcome};
use crate::server::ServerProcess;

/// More records than any benchmark counts.
const RECORDS_MAX: u64 = 1_000_000_000;

/// Options of every benchmark.
#[derive(Args)]
pub(crate) struct Effort {
    /// Runs of each measurement; the median is shown first
    #[arg(long, global = true, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,
    /// Seconds of each run
    #[arg(long, global = true, default_value_t = 3.0)]
    seconds: f64,
    /// Where data goes, on the disk that is to be measured [default: the system's temporary directory]
    #[arg(long, global = true, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The program that is measured [default: `tallyring` beside this one]
    #[arg(long, global = true, value_name = "FILE")]
    tallyring: Option<PathBuf>,
}

impl Effort {
    /// How long each run takes.
    pub(crate) fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.seconds.max(0.1))
    }

    /// Sends requests to a server that must answer all of them. Fails as [`Load::run`] does.
    pub(crate) fn ask(
        &self,
        server: &ServerProcess,
        connections: usize,
        requests: &[Vec<u8>],
        rate: Option<f64>,
    ) -> Result<Outcome> {
        self.load(server, connections, requests, rate).run()
    }

    /// The requests of [`ask`](Self::ask), which are not sent yet.
    pub(crate) fn load<'l>(
        &self,
        server: &'l ServerProcess,
        connections: usize,
        requests: &'l [Vec<u8>],
        rate: Option<f64>,
    ) -> Load<'l> {
        Load {
            server,
            connections,
            requests,
            rate,
            duration: self.duration(),
            may_refuse: false,
        }
    }

    /// Makes a directory that is removed when dropped. Fails when it cannot be made.
    pub(crate) fn directory(&self) -> Result<TempDir> {
        let mut builder = tempfile::Builder::new();
        let builder = builder.prefix("tallyring-bench-");
        match &self.dir {
            Some(dir) => builder.tempdir_in(dir),
            None => builder.tempdir(),
        }
        .context("cannot make a temporary directory")
    }

    /// Prepares a command of `tallyring` on a data directory. Fails when there is no such program.
    pub(crate) fn prepare(&self, arguments: &[&str], data: &Path) -> Result<Command> {
        let mut command = self.program()?;
        command.args(arguments).arg("--data").arg(data);
        Ok(command)
    }

    /// Prepares `tallyring` without arguments. Fails when there is no such program.
    pub(crate) fn program(&self) -> Result<Command> {
        let program = match &self.tallyring {
            Some(program) => program.clone(),
            None => std::env::current_exe()
                .context("cannot find this program")?
                .with_file_name("tallyring"),
        };
        if !program.exists() {
            bail!(
                "there is no {}; build it with `cargo build --release --locked`, or name another one with --tallyring",
                program.display()
            );
        }
        Ok(Command::new(program))
    }

    /// Runs a command of `tallyring` on a data directory to its end. Fails when it fails, with what it wrote to its
    /// standard error.
    pub(crate) fn command(&self, arguments: &[&str], data: &Path) -> Result<()> {
        let mut command = self.prepare(arguments, data)?;
        let output = command.stdin(Stdio::null()).output();
        let output = output.context("cannot run a command")?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }

    /// Starts `tallyring serve` on a data directory, with `further` arguments. Fails when it does not start.
    pub(crate) fn serve(&self, data: &Path, further: &[&str]) -> Result<ServerProcess> {
        let mut command = self.prepare(&["serve", "--listen", "127.0.0.1:0"], data)?;
        ServerProcess::start(command.args(further))
    }

    /// Starts `tallyring serve` with so much memory that it flushes nothing. Fails as [`Effort::serve`] does.
    pub(crate) fn serve_unflushed(&self, data: &Path) -> Result<ServerProcess> {
        let config = data.join("bench.toml");
        std::fs::write(&config, unflushed()).context("cannot write a configuration")?;
        self.serve(data, &["--config", &config.to_string_lossy()])
    }
}

/// The part of a configuration with which nothing is flushed.
pub(crate) fn unflushed() -> String {
    // All the memory there is but one MiB: a limit equal to the memory would be refused.
    let deltas_mib = (memory::available() >> 20).saturating_sub(1).max(1);
    format!("[memory]\ndeltas_mib = {deltas_mib}\nreplay_records = {RECORDS_MAX}\n")
}
