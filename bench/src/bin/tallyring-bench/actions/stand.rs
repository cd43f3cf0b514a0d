//! A server with a configuration of its own, on a directory of its own.

use std::path::Path;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::effort::Effort;
use crate::server::ServerProcess;

/// A server and its directory, which outlives the server.
pub(crate) struct Stand {
    /// The server.
    pub server: ServerProcess,
    directory: TempDir,
}

impl Stand {
    /// Starts a server on a new directory. Its clock shows `clock` (Unix seconds), or the time of the machine. Fails
    /// when it does not start.
    pub(crate) fn new(effort: &Effort, config: &str, clock: Option<i64>) -> Result<Self> {
        let directory = effort.directory()?;
        let server = serve(effort, directory.path(), config, clock)?;
        Ok(Self { server, directory })
    }

    /// Kills the server and starts it with another configuration. Fails when it does not start.
    pub(crate) fn restart(
        &mut self,
        effort: &Effort,
        config: &str,
        clock: Option<i64>,
    ) -> Result<()> {
        // The lock of the directory must be free first.
        std::mem::replace(
            &mut self.server,
            ServerProcess::elsewhere(([127, 0, 0, 1], 1).into()),
        )
        .kill();
        self.server = serve(effort, self.data(), config, clock)?;
        Ok(())
    }

    /// The data directory.
    pub(crate) fn data(&self) -> &Path {
        self.directory.path()
    }
}

fn serve(effort: &Effort, data: &Path, config: &str, clock: Option<i64>) -> Result<ServerProcess> {
    let file = data.join("bench.toml");
    std::fs::write(&file, config).context("cannot write a configuration")?;
    let file = file.to_string_lossy();
    match clock {
        Some(instant) => {
            let clock = format!("{instant}@1");
            effort.serve(data, &["--config", &file, "--clock", &clock])
        }
        None => effort.serve(data, &["--config", &file]),
    }
}
