//! A server of a benchmark's own: this binary as a child, its data in a directory that is removed.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{CommandError, Result, doing};

/// A running server. Dropping it ends it and removes its data.
pub struct BenchServer {
    child: Child,
    directory: PathBuf,
    /// Its base URL.
    pub url: String,
}

impl BenchServer {
    /// Starts one with the embedded configuration and no data.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start() -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tallyring-bench-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let binary = std::env::current_exe().map_err(doing("find this binary"))?;
        let mut child = Command::new(binary)
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(&directory)
            .env("RUST_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(doing("start a server"))?;
        let output = child.stdout.take();
        let mut server = Self {
            child,
            directory,
            url: String::new(),
        };
        let mut line = String::new();
        if let Some(output) = output {
            BufReader::new(output)
                .read_line(&mut line)
                .map_err(doing("read what the server says"))?;
        }
        match line.trim().strip_prefix("tallyring listening on ") {
            Some(url) => server.url = url.to_owned(),
            None => return Err(CommandError::Failed("the server did not start".into())),
        }
        Ok(server)
    }

    /// Bytes of memory it holds; none where the system does not say.
    pub fn resident_bytes(&self) -> Option<u64> {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(kib << 10)
    }
}

impl Drop for BenchServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
