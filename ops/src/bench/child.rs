//! The servers under test: processes of this very binary, on a free port of the loopback address.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::DefaultBodyLimit;
use axum::http::{Request, StatusCode};
use axum::routing::any;
use tallyring_api::{Server, ServerLimits};
use tallyring_realtime::memory;
use tokio::net::TcpListener;
use tower::ServiceExt;

use crate::error::{CommandError, Result, doing};
use crate::out::say;

/// More than any of them counts.
const RECORDS_MAX: u64 = 1_000_000_000;

/// A server process; killed when dropped, if it was started here.
pub struct ServerProcess {
    child: Option<Child>,
    /// Where it listens.
    pub address: SocketAddr,
}

impl ServerProcess {
    /// `tallyring serve` on a data directory.
    ///
    /// # Errors
    /// When it does not start.
    pub fn serve(data: &Path, further: &[&str]) -> Result<Self> {
        let mut command = this_binary()?;
        command.arg("serve").arg("--data").arg(data);
        command.args(["--listen", "127.0.0.1:0"]).args(further);
        Self::start(command)
    }

    /// The same with a budget of memory so large that nothing is flushed.
    ///
    /// # Errors
    /// As [`ServerProcess::serve`].
    pub fn serve_unflushed(data: &Path) -> Result<Self> {
        let config = data.join("bench.toml");
        // Nearly all that there is.
        let deltas_mib = (memory::available() >> 20).saturating_sub(1).max(1);
        let text = format!("[memory]\ndeltas_mib = {deltas_mib}\nreplay_records = {RECORDS_MAX}\n");
        std::fs::write(&config, text).map_err(doing("write a configuration"))?;
        Self::serve(data, &["--config", &config.to_string_lossy()])
    }

    /// A server whose handler does nothing.
    ///
    /// # Errors
    /// When it does not start.
    pub fn empty() -> Result<Self> {
        let mut command = this_binary()?;
        command.args(["bench", "empty-server"]);
        Self::start(command)
    }

    /// A server that runs already: what its process takes is not known.
    pub fn elsewhere(address: SocketAddr) -> Self {
        Self {
            child: None,
            address,
        }
    }

    fn start(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(doing("start a server"))?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output)
                .read_line(&mut line)
                .map_err(doing("read a server's address"))?;
        }
        let address = line.trim().rsplit("http://").next().unwrap_or_default();
        match address.parse() {
            Ok(address) => Ok(Self {
                child: Some(child),
                address,
            }),
            Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(CommandError::Failed(format!(
                    "a server did not start: {line}"
                )))
            }
        }
    }

    /// Resident memory in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let child = self.child.as_ref();
        child.map_or(0, |child| memory_bytes(child.id(), "VmRSS:"))
    }

    /// The most memory it ever had resident, in bytes.
    pub fn peak_bytes(&self) -> u64 {
        let child = self.child.as_ref();
        child.map_or(0, |child| memory_bytes(child.id(), "VmHWM:"))
    }

    /// Processor time of all its threads so far, in seconds.
    pub fn processor_seconds(&self) -> f64 {
        const TICKS_PER_SECOND: f64 = 100.0;
        let Some(child) = &self.child else {
            return 0.0;
        };
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id()));
        let stat = stat.unwrap_or_default();
        // Behind the name, which may hold anything: state and ten more, then user and system time.
        let fields = stat.rsplit(')').next().unwrap_or_default();
        let times = fields.split_whitespace().skip(11).take(2);
        let ticks: f64 = times.filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
        ticks / TICKS_PER_SECOND
    }

    /// Ends it without warning.
    pub fn kill(self) {}
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A figure of a process's memory, as the system names it; 0 when it has ended.
pub fn memory_bytes(process: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let kib = status.lines().find_map(|line| {
        let kib = line.strip_prefix(name)?.trim().strip_suffix(" kB")?;
        kib.parse::<u64>().ok()
    });
    kib.unwrap_or(0) << 10
}

/// Runs a command of this binary to its end.
///
/// # Errors
/// When it fails.
pub fn command(arguments: &[&str], data: &Path) -> Result<Duration> {
    let began = Instant::now();
    let mut command = this_binary()?;
    command.args(arguments).arg("--data").arg(data);
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(doing("run a command"))?;
    if !output.status.success() {
        return Err(CommandError::Failed(
            String::from_utf8_lossy(&output.stderr).into_owned(),
        ));
    }
    Ok(began.elapsed())
}

fn this_binary() -> Result<Command> {
    let path = std::env::current_exe().map_err(doing("find this binary"))?;
    Ok(Command::new(path))
}

/// Serves a handler that does nothing behind the accept loop of the API, and none of its layers, until killed.
///
/// # Errors
/// When no port is free.
pub fn run_empty_server() -> Result<()> {
    let runtime = tokio::runtime::Runtime::new().map_err(doing("start the runtime"))?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.map_err(doing("listen"))?;
        let address = listener.local_addr().map_err(doing("read the address"))?;
        say!("empty handler listening on http://{address}")?;
        let nothing = any(async |_: Bytes| StatusCode::NO_CONTENT);
        let router = Router::new()
            .fallback(nothing)
            .layer(DefaultBodyLimit::disable());
        let answer = move |request: Request<_>, _| {
            let answering = router.clone().oneshot(request.map(Body::new));
            async move { answering.await.unwrap_or_else(|never| match never {}) }
        };
        let server = Server::new(answer, ServerLimits::default());
        let served = server.run(vec![(listener, None)], std::future::pending());
        served.await.map_err(doing("start the threads of a server"))
    })
}
