//! The real binary as a process of a test: built once, started on a free port, spoken to over HTTP,
//! killed without warning or asked to stop.
//!
//! It knows the command line and HTTP, nothing of the crates behind them. Every process is ended by
//! its own id, and what it wrote is part of every failure's message.

mod client;
mod node;

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};
use serde_json::Value;
use tempfile::NamedTempFile;

pub use client::{Answer, Client};
pub use node::not_on_a_node;

/// How long anything may take before a test gives up; far more than it takes on a busy machine.
/// Work that waits until nothing else needs the processors takes minutes while many tests run.
const DEADLINE: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(5);
/// A failure shows so many bytes of a server's messages.
const LOG_BYTES_MAX: usize = 8 << 10;

/// The root of the workspace.
pub fn workspace() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("tests/ is in the workspace").into()
}

/// The `tallyring` binary: where tests run against nodes (TALLYRING_KAFKA), the one that TALLYRING names, else that of
/// this workspace, built once per test process as the tests were.
///
/// # Panics
/// When it cannot be built.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    let named = || env::var_os("TALLYRING").filter(|_| env::var_os("TALLYRING_KAFKA").is_some());
    BINARY.get_or_init(|| named().map_or_else(build, PathBuf::from))
}

/// Runs the program of the benchmarks, which lies beside [`binary`], to its end.
///
/// # Panics
/// When it cannot be started or prints what is no text.
pub fn tallyring_bench(arguments: &[&str]) -> Finished {
    let mut command = Command::new(binary().with_file_name("tallyring-bench"));
    prepare(&mut command, arguments);
    finish(command)
}

fn build() -> PathBuf {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(workspace()).args([
        "build",
        "--locked",
        // With the features of `cargo test --workspace`, which has built all that it needs.
        "--workspace",
        "--bin=tallyring",
        "--bin=tallyring-bench",
        // A test program beside it, the smallest: without one cargo leaves out the features that tests ask for.
        "--test=tidy",
        "--message-format=json-render-diagnostics",
    ]);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    // Variables that cargo sets for a test make build scripts run again that look at them, as ring's does,
    // and all that needs them built twice.
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&name);
        }
    }
    let output = cargo.output().expect("run cargo");
    assert!(
        output.status.success(),
        "cargo cannot build tallyring:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == "tallyring")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .expect("cargo names the executable")
}

/// Asks until `condition` holds, for a third of the time at most: the rest is for what is waited for.
///
/// # Panics
/// After five minutes, naming `what` was waited for.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    loop {
        let asked = Instant::now();
        if condition() {
            return;
        }
        assert!(began.elapsed() < DEADLINE, "waited too long until {what}");
        thread::sleep(POLL.max(2 * asked.elapsed()));
    }
}

/// How a command ended.
#[derive(Debug)]
pub struct Finished {
    /// Its exit code; −1 when a signal ended it.
    pub code: i32,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// Runs `tallyring` with these arguments to its end.
///
/// # Panics
/// When it cannot be started or prints what is no text.
pub fn tallyring(arguments: &[&str]) -> Finished {
    finish(command(arguments))
}

/// As [`tallyring`], in a shell that ran `setting` before.
///
/// # Panics
/// When it cannot be started or prints what is no text.
pub fn tallyring_after(setting: &str, arguments: &[&str]) -> Finished {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{setting} && exec \"$0\" \"$@\"")]);
    shell.arg(binary());
    prepare(&mut shell, arguments);
    finish(shell)
}

fn finish(mut command: Command) -> Finished {
    let output = command.output().expect("run the program");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Finished {
        code: output.status.code().unwrap_or(-1),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

/// As [`tallyring`], for a command that must succeed; returns its standard output.
///
/// # Panics
/// When it fails.
pub fn tallyring_ok(arguments: &[&str]) -> String {
    let finished = tallyring(arguments);
    assert_eq!(finished.code, 0, "{arguments:?}: {finished:?}");
    finished.stdout
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    prepare(&mut command, arguments);
    command
}

fn prepare(command: &mut Command, arguments: &[&str]) {
    command.args(arguments).stdin(Stdio::null());
    command.env("NO_COLOR", "1");
}

/// A process that is ended whatever becomes of the test.
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running server. Dropping it kills it; after a panic its messages are shown.
pub struct Server {
    child: Child,
    client: Client,
    messages: NamedTempFile,
}

impl Server {
    /// Starts `tallyring serve --data DATA` with further arguments, and waits until it listens, at a free port unless
    /// the arguments say `--listen`.
    ///
    /// # Panics
    /// When it does not, with what it wrote.
    pub fn start(data: &Path, arguments: &[&str]) -> Self {
        Self::start_as("serve", data, arguments)
    }

    /// As [`Server::start`], with another command that serves.
    ///
    /// # Panics
    /// As [`Server::start`].
    pub fn start_as(name: &str, data: &Path, arguments: &[&str]) -> Self {
        Self::run(Command::new(binary()), name, data, arguments)
    }

    /// As [`Server::start`], with a variable of the environment.
    ///
    /// # Panics
    /// As [`Server::start`].
    pub fn start_with(variable: (&str, &Path), data: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(binary());
        command.env(variable.0, variable.1);
        Self::run(command, "serve", data, arguments)
    }

    /// As [`Server::start`], and a file that is too large is an error to it and does not end it: for
    /// [`Server::limit_files`].
    ///
    /// # Panics
    /// As [`Server::start`].
    pub fn start_for_limits(data: &Path, arguments: &[&str]) -> Self {
        // A signal that the shell ignores stays ignored in the program that takes its place.
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]);
        shell.arg(binary());
        Self::run(shell, "serve", data, arguments)
    }

    /// As [`Server::start`], in a control group from its beginning.
    ///
    /// # Panics
    /// As [`Server::start`].
    pub fn start_in_group(group: &Path, data: &Path, arguments: &[&str]) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo $$ >\"$GROUP\" && exec \"$0\" \"$@\""]);
        shell.arg(binary()).env("GROUP", group.join("cgroup.procs"));
        Self::run(shell, "serve", data, arguments)
    }

    /// As [`Server::start`], with `tallyring serve --read-only PLACE`.
    ///
    /// # Panics
    /// As [`Server::start`].
    pub fn read_only(place: &str, arguments: &[&str]) -> Self {
        let command = Command::new(binary());
        Self::run_at(command, &["serve", "--read-only", place], arguments)
    }

    fn run(command: Command, name: &str, data: &Path, arguments: &[&str]) -> Self {
        let place = [name, "--data", data.to_str().expect("a path of text")];
        let node = (name == "serve").then(|| node::arguments(data, arguments));
        let Some(node) = node.flatten() else {
            return Self::run_at(command, &place, arguments);
        };
        let arguments: Vec<&str> = node.iter().map(|argument| &**argument).collect();
        let server = Self::run_at(command, &place, &arguments);
        wait_until("the node writes", || {
            server.messages().contains(node::WRITES)
        });
        server
    }

    fn run_at(mut command: Command, place: &[&str], arguments: &[&str]) -> Self {
        let [output, messages] =
            std::array::from_fn(|_| NamedTempFile::new().expect("make a file for what it writes"));
        prepare(&mut command, place);
        if !arguments.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        command.args(arguments);
        command.stdout(output.reopen().expect("open its output"));
        command.stderr(messages.reopen().expect("open its messages"));
        let child = command.spawn().expect("start tallyring");
        let mut server = Self {
            child,
            client: Client::new(""),
            messages,
        };
        wait_until("the server listens", || {
            let text = contents(&output);
            let mut lines = text.split_inclusive('\n');
            let url = lines.find_map(|line| {
                let address = line.strip_prefix("tallyring listening on ")?;
                address.strip_suffix('\n')
            });
            if let Some(url) = url {
                server.client = Client::new(url);
                return true;
            }
            let ended = server.child.try_wait().expect("ask for its end");
            assert!(ended.is_none(), "the server ended: {ended:?}, {text}");
            false
        });
        server
    }

    /// A client of it.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The server's standard error so far.
    pub fn messages(&self) -> String {
        contents(&self.messages)
    }

    /// Ends it with SIGKILL: nothing is flushed, no destructor runs.
    ///
    /// # Panics
    /// When it cannot be killed.
    pub fn kill9(mut self) {
        self.child.kill().expect("kill the server");
        self.child.wait().expect("wait for its end");
    }

    /// Asks it to stop with SIGTERM and waits until it has.
    ///
    /// # Panics
    /// When it does not stop, or not with success.
    pub fn terminate(mut self) {
        self.signal(Signal::TERM);
        let status = self.wait();
        assert!(status.success(), "SIGTERM ended it with {status}");
    }

    /// Sends it a signal and returns at once.
    ///
    /// # Panics
    /// When it cannot be sent.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.process(), signal).expect("send a signal");
    }

    /// From now on it can write no byte of any file at this offset or behind it.
    ///
    /// # Panics
    /// When the limit cannot be set.
    pub fn limit_files(&self, bytes: u64) {
        let limit = Rlimit {
            current: Some(bytes),
            // It inherited this one.
            maximum: getrlimit(Resource::Fsize).maximum,
        };
        prlimit(Some(self.process()), Resource::Fsize, limit).expect("limit its files");
    }

    fn process(&self) -> Pid {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        pid.expect("a process id")
    }

    /// Waits until it has ended.
    ///
    /// # Panics
    /// After a minute.
    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the server ends", || {
            status = self.child.try_wait().expect("ask for its end");
            status.is_some()
        });
        status.expect("it ended")
    }
}

impl std::ops::Deref for Server {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // After `kill9` and `wait` it has been waited for, and this does nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            let text = self.messages();
            let from = text.len().saturating_sub(LOG_BYTES_MAX);
            let from = text.ceil_char_boundary(from);
            show(&format!("the server said:\n{}", &text[from..]));
        }
    }
}

#[allow(
    clippy::print_stderr,
    reason = "the test harness shows it with the failure"
)]
fn show(text: &str) {
    eprintln!("{text}");
}

fn contents(file: &NamedTempFile) -> String {
    let bytes = std::fs::read(file.path()).expect("read what it wrote");
    String::from_utf8_lossy(&bytes).into_owned()
}
