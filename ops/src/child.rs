//! A child process that works for a server: the lines that it prints, and how the server reads them.
//!
//! The child prints JSON lines: its progress from time to time, every file that it made, and its result as the last
//! line. It tells its progress again while it reads, uploads or fetches a large file: each such line says that the work
//! goes on. A failed child writes the reason to its standard error. The child reads its work as the first line of its
//! standard input, and ends when its parent ends or lets it go, because that closes.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tallyring_realtime::catalog::JobProgress;

use crate::error::{CommandError, Result, doing};
use crate::out::say;
use crate::worker::Work;

/// The least time between two lines of progress.
const TOLD_EVERY: Duration = Duration::from_millis(100);

/// A line of a child.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Line<T> {
    /// The progress so far. It may be told again: then the work came further by less than it counts.
    Progress(JobProgress),
    /// A file that was made.
    Made(String),
    /// The result.
    Done(T),
}

/// Holds a child until it is let go.
#[derive(Default)]
pub(crate) struct Leash(Mutex<Held>);

#[derive(Default)]
struct Held {
    /// The standard input of the child, which ends when that closes.
    input: Option<ChildStdin>,
    is_let_go: bool,
}

impl Leash {
    /// Ends the child, or lets it end as soon as it begins.
    pub(crate) fn let_go(&self) {
        let mut held = self.0.lock();
        held.is_let_go = true;
        drop(held.input.take());
    }

    /// True once the child was let go.
    pub(crate) fn is_let_go(&self) -> bool {
        self.0.lock().is_let_go
    }

    fn hold(&self, input: ChildStdin) {
        let mut held = self.0.lock();
        if !held.is_let_go {
            held.input = Some(input);
        }
    }
}

/// Lets a child work on a data directory, and returns its result. `heard` receives its progress, and `made` the names
/// of the files that it made, also when it fails or is killed. Fails when the child cannot be started or fails, with
/// the text of its standard error.
pub(crate) fn follow<T: DeserializeOwned + Send>(
    data: &Path,
    work: &Work,
    heard: &(dyn Fn(JobProgress) + Sync),
    made: &mut Vec<String>,
) -> Result<T> {
    follow_on(&Leash::default(), data, work, heard, made)
}

/// As [`follow`], until the child is let go: it has failed then.
pub(crate) fn follow_on<T: DeserializeOwned + Send>(
    leash: &Leash,
    data: &Path,
    work: &Work,
    heard: &(dyn Fn(JobProgress) + Sync),
    made: &mut Vec<String>,
) -> Result<T> {
    // This program, even when its file was replaced.
    let mut command = Command::new("/proc/self/exe");
    command.args(["worker", "--data"]).arg(data);
    let work = serde_json::to_string(work)?;
    tend(&mut command, &work, leash, heard, made)
}

fn tend<T: DeserializeOwned + Send>(
    command: &mut Command,
    work: &str,
    leash: &Leash,
    heard: &(dyn Fn(JobProgress) + Sync),
    made: &mut Vec<String>,
) -> Result<T> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(doing("start a worker"))?;
    let mut input = child.stdin.take().expect("BUG: it is piped");
    // A child that does not read has ended, and its end is told below.
    let _ = writeln!(input, "{work}");
    leash.hold(input);
    let lines = child.stdout.take().expect("BUG: it is piped");
    // Both streams are read, so that the child never waits for a full pipe.
    let (done, output) = thread::scope(|scope| {
        let lines = scope.spawn(|| read(lines, heard, made));
        let output = child.wait_with_output();
        (lines.join(), output)
    });
    let output = output.map_err(doing("wait for a worker"))?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        let message = match message.trim() {
            // A child that the system killed writes no reason.
            "" => output.status.to_string(),
            message => message.to_owned(),
        };
        return Err(CommandError::Failed(format!(
            "the worker failed: {message}"
        )));
    }
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn read<T: DeserializeOwned>(
    lines: impl Read,
    heard: &dyn Fn(JobProgress),
    made: &mut Vec<String>,
) -> Result<T> {
    let mut did = None;
    for line in BufReader::new(lines).lines() {
        match serde_json::from_str(&line.map_err(doing("read what a worker says"))?)? {
            Line::Progress(progress) => heard(progress),
            Line::Made(name) => made.push(name),
            Line::Done(done) => did = Some(done),
        }
    }
    did.ok_or_else(|| CommandError::Failed("the worker ended without saying what it did".into()))
}

/// Prints the lines of a child.
#[derive(Default)]
pub(crate) struct Teller(Mutex<Told>);

#[derive(Default)]
struct Told {
    progress: JobProgress,
    at: Option<Instant>,
}

impl Teller {
    /// Prints the progress, unless a line was printed a moment ago.
    pub(crate) fn progress(&self, done: u64, total: u64) {
        self.0.lock().advance(|_| JobProgress { done, total });
    }

    /// Prints that the work goes on though the progress stays, unless a line was printed a moment ago.
    pub(crate) fn goes_on(&self) {
        self.0.lock().advance(|progress| progress);
    }

    /// Prints the name of a file that was made.
    pub(crate) fn made(&self, name: &str) {
        // As for progress.
        let _ = tell(&Line::Made::<()>(name.to_owned()));
    }

    /// Prints the result: the last line. Fails when standard output is closed.
    pub(crate) fn done(&self, did: impl Serialize) -> Result<()> {
        tell(&Line::Done(did))
    }
}

impl Told {
    fn advance(&mut self, to: impl FnOnce(JobProgress) -> JobProgress) {
        self.progress = to(self.progress);
        if self.at.is_none_or(|at| at.elapsed() >= TOLD_EVERY) {
            self.at = Some(Instant::now());
            // A failure means that the parent has ended, and that ends this process too.
            let _ = tell(&Line::Progress::<()>(self.progress));
        }
    }
}

fn tell(line: &Line<impl Serialize>) -> Result<()> {
    say!("{}", serde_json::to_string(line)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn followed(script: &str) -> (Result<u64>, Vec<(u64, u64)>, Vec<String>) {
        let (heard, mut made) = (Mutex::new(Vec::new()), Vec::new());
        let mut command = Command::new("sh");
        let hear = |progress: JobProgress| {
            heard.lock().push((progress.done, progress.total));
        };
        let leash = Leash::default();
        let result = tend(command.args(["-c", script]), "{}", &leash, &hear, &mut made);
        (result, heard.into_inner(), made)
    }

    /// A child that reads its standard input to the end, as a worker does beside its work.
    #[test]
    fn a_child_that_is_let_go_ends_and_what_it_made_is_known() {
        let script = r#"read work; echo '{"progress":{"done":1,"total":4}}'; echo '{"made":"runs/a"}'
            read more; exit 1"#;
        for before in [false, true] {
            let (leash, mut made) = (Leash::default(), Vec::new());
            if before {
                leash.let_go();
            }
            let mut command = Command::new("sh");
            let hear = |_: JobProgress| leash.let_go();
            let command = command.args(["-c", script]);
            let result: Result<u64> = tend(command, "{}", &leash, &hear, &mut made);
            assert!(result.is_err() && leash.is_let_go());
            assert_eq!(made, ["runs/a"]);
        }
    }

    #[test]
    fn what_a_child_does_is_told_while_it_does_it() {
        let script = r#"echo '{"progress":{"done":1,"total":4}}'; echo '{"progress":{"done":4,"total":4}}'
            echo '{"done":7}'"#;
        let (result, heard, made) = followed(script);
        assert_eq!(result.unwrap(), 7);
        assert_eq!(heard, [(1, 4), (4, 4)]);
        assert!(made.is_empty());
    }

    #[test]
    fn the_files_that_a_killed_child_made_are_known() {
        let script = r#"echo '{"made":"runs/a"}'; echo '{"made":"archive/b"}'; kill -9 $$"#;
        let (result, _, made) = followed(script);
        assert!(result.is_err());
        assert_eq!(made, ["runs/a", "archive/b"]);
    }

    #[test]
    fn a_child_that_fails_says_why() {
        for (script, why) in [
            (
                r#"echo '{"progress":{"done":1,"total":4}}'; echo 'no space' >&2; exit 1"#,
                "the worker failed: no space",
            ),
            ("true", "without saying what it did"),
            ("echo nonsense; exit 3", "the worker failed: exit status: 3"),
            ("kill -9 $$", "the worker failed: signal: 9 (SIGKILL)"),
        ] {
            let error = followed(script).0.unwrap_err().to_string();
            assert!(error.contains(why), "{script}: {error}");
        }
    }
}
