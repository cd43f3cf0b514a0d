//! The servers under test: processes of their own, on a free port of the loopback address.

use std::io::{BufRead, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;

/// A server settles once it looks alike so often in a row, or after the longest wait.
const SAME: u32 = 4;
const LOOK: Duration = Duration::from_millis(250);
const SETTLE_MAX: Duration = Duration::from_secs(60);
/// A change of resident memory that is none, bytes.
const RESIDENT_BYTES: u64 = 1 << 20;

/// A server. Dropping it kills the process, if this program started one.
pub(crate) struct ServerProcess {
    child: Option<Child>,
    /// Where it listens.
    pub address: SocketAddr,
}

impl ServerProcess {
    /// Starts a server whose handler does nothing, as axum serves it. Fails when it does not start.
    pub(crate) fn plain() -> Result<Self> {
        let this = std::env::current_exe().context("cannot find this program")?;
        Self::start(Command::new(this).arg("plain-server"))
    }

    /// A server that runs already; its memory and processor time read as 0.
    pub(crate) fn elsewhere(address: SocketAddr) -> Self {
        Self {
            child: None,
            address,
        }
    }

    /// Starts a program that prints its address when it listens. Fails when it does not start, or ends before it prints
    /// an address.
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start a server")?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output)
                .read_line(&mut line)
                .context("cannot read a server's address")?;
        }
        let address = line.trim().rsplit("http://").next().unwrap_or_default();
        let Ok(address) = address.parse() else {
            let _ = child.kill();
            let _ = child.wait();
            bail!("a server did not start: {line}");
        };
        Ok(Self {
            child: Some(child),
            address,
        })
    }

    /// The present resident memory, bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let child = self.child.as_ref();
        child.map_or(0, |child| memory_bytes(child.id(), "VmRSS:"))
    }

    /// The largest resident memory so far, bytes.
    pub(crate) fn peak_bytes(&self) -> u64 {
        let child = self.child.as_ref();
        child.map_or(0, |child| memory_bytes(child.id(), "VmHWM:"))
    }

    /// The processor time of all threads so far, seconds.
    pub(crate) fn processor_seconds(&self) -> f64 {
        let child = self.child.as_ref();
        child.map_or(0.0, |child| processor_seconds(child.id()))
    }

    /// A figure of the server's metrics, by its name with its labels. Fails when they lack it.
    pub(crate) fn metric(&self, name: &str) -> Result<f64> {
        let found = self.find_metric(name)?;
        found.with_context(|| format!("the metrics lack {name}"))
    }

    /// As [`ServerProcess::metric`]; none where the metrics lack it, as those do that nothing counted yet.
    pub(crate) fn find_metric(&self, name: &str) -> Result<Option<f64>> {
        let mut answer = ureq::get(format!("http://{}/metrics", self.address)).call()?;
        let metrics = answer.body_mut().read_to_string()?;
        let found = metrics
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(found.and_then(|number| number.trim().parse().ok()))
    }

    /// The status that operators see. Fails when the server does not answer.
    pub(crate) fn status(&self) -> Result<serde_json::Value> {
        let url = format!("http://{}/v1/admin/status", self.address);
        let text = ureq::get(url).call()?.body_mut().read_to_string()?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Waits until the server has done with what it took: its counts and its memory change no more.
    pub(crate) fn settle(&self) -> Result<()> {
        let began = Instant::now();
        let mut same = 0;
        let mut before = (0.0, 0);
        while same < SAME && began.elapsed() < SETTLE_MAX {
            thread::sleep(LOOK);
            let now = (self.metric("tallyring_delta_bytes")?, self.resident_bytes());
            let is_same = now.0 == before.0 && now.1.abs_diff(before.1) <= RESIDENT_BYTES;
            same = if is_same { same + 1 } else { 0 };
            before = now;
        }
        Ok(())
    }

    /// The processes that it started and that still run.
    pub(crate) fn children(&self) -> Vec<u32> {
        let Some(child) = &self.child else {
            return Vec::new();
        };
        let tasks = std::fs::read_dir(format!("/proc/{}/task", child.id()));
        let of_task =
            |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children"));
        let children = tasks.into_iter().flatten().flatten().flat_map(of_task);
        let children: Vec<String> = children.collect();
        let numbers = children
            .iter()
            .flat_map(|children| children.split_whitespace());
        numbers.filter_map(|number| number.parse().ok()).collect()
    }

    /// Ends the process with SIGKILL.
    pub(crate) fn kill(self) {}
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Returns a figure of a process's memory by the name that the system gives it, bytes; 0 when the process has ended.
pub(crate) fn memory_bytes(process: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let kib = status.lines().find_map(|line| {
        let kib = line.strip_prefix(name)?.trim().strip_suffix(" kB")?;
        kib.parse::<u64>().ok()
    });
    kib.unwrap_or(0) << 10
}

/// The processor time of a process so far, seconds; 0 when it has ended.
pub(crate) fn processor_seconds(process: u32) -> f64 {
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name may hold any character. Behind it stand the state, ten more fields, then user and system time.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let times = fields.split_whitespace().skip(11).take(2);
    let ticks: f64 = times.filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
    ticks / TICKS_PER_SECOND
}

/// Serves a handler that does nothing until killed. No code of Tallyring takes part: this is the fastest that a server
/// of the same libraries can be. Fails when no port is free.
pub(crate) fn run_plain_server() -> Result<()> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.context("cannot listen")?;
        let address = listener.local_addr().context("cannot read the address")?;
        writeln!(
            std::io::stdout(),
            "plain handler listening on http://{address}"
        )?;
        let nothing = get(async || StatusCode::NO_CONTENT);
        let nothing = nothing.post(async |_: Bytes| StatusCode::NO_CONTENT);
        let router = Router::new()
            .fallback(nothing)
            .layer(DefaultBodyLimit::disable());
        let served = axum::serve(listener, router).await;
        served.context("cannot serve")
    })
}
