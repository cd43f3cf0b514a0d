//! `tallyring cluster leave`: the node of a directory hands over to another one, and ends.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tallyring_archive::names;
use tallyring_realtime::Lock;

use super::nodes::{may_write, nodes_of, strands_of};
use crate::error::{CommandError, Result, doing};
use crate::http_client::Server;
use crate::out::say;

/// How often the lock is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// A node that ends writes its memory to the bucket first.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

/// Ends the node that holds a directory, and returns once it has ended. Fails when no node holds it, when that node
/// hears of no other one or of none that may write in its place, and when the process does not end or is started again.
pub(super) fn leave(data: &Path, json: bool) -> Result<()> {
    let shown = data.display();
    let server = Server::holding(data, "there is no node to end")?;
    let status = server.get("/v1/admin/status")?;
    let nodes = nodes_of(&server, &status)?;
    let own = &status["cluster"]["node"];
    if own.is_null() {
        return Err(CommandError::Unavailable(
            "the node does not hear itself yet, so it cannot say whether there are others; try again in some seconds"
                .to_owned(),
        ));
    }
    let others: Vec<&Value> = nodes.iter().filter(|node| node["node"] != *own).collect();
    let Some(pid) = holder(data)? else {
        return Err(CommandError::Failed(format!(
            "no server holds {shown} any more"
        )));
    };
    if others.is_empty() {
        return Err(CommandError::Failed(format!(
            "{shown} has the only node that is there, so nobody would take increments or answer reads: start another \
             node first, or end this one by a signal (`kill {pid}`)"
        )));
    }
    let is_able = nodes
        .iter()
        .any(|node| node["node"] == *own && may_write(node));
    if is_able && !others.iter().any(|node| may_write(node)) {
        return Err(CommandError::Failed(format!(
            "{shown} has the only node that may write, so nobody would take increments: start a node without \
             `writes = false` first, or end this one by a signal (`kill {pid}`)"
        )));
    }
    terminate(pid, data).map_err(doing(format!("end process {pid}")))?;
    let begun = Instant::now();
    while holder(data)? == Some(pid) {
        if begun.elapsed() > PATIENCE {
            return Err(CommandError::Unavailable(format!(
                "process {pid} has not ended within {} minutes; its log says what it does",
                PATIENCE.as_secs() / 60
            )));
        }
        thread::sleep(LOOK);
    }
    if let Some(again) = holder(data)? {
        return Err(CommandError::Failed(format!(
            "the node ended, and process {again} is one again: end the service that starts it (`systemctl stop …`)"
        )));
    }
    let mut told = strands_of(&status).into_iter().flatten();
    let wrote = told.any(|node| node["node"] == *own && node["writes"] == true);
    let left: Vec<&Value> = others.iter().map(|node| &node["node"]).collect();
    if json {
        return say!("{}", json!({ "node": own, "wrote": wrote, "left": left }));
    }
    let left: Vec<&str> = left.iter().filter_map(|node| node.as_str()).collect();
    let role = if wrote {
        ", which wrote the log, has handed over and"
    } else {
        ""
    };
    say!(
        "node {}{role} has ended after {:.1} s; there are {}",
        own.as_str().unwrap_or_default(),
        begun.elapsed().as_secs_f64(),
        left.join(", ")
    )
}

/// The process that holds a directory.
fn holder(data: &Path) -> Result<Option<u32>> {
    let holder = Lock::holder(data);
    let holder = holder.map_err(doing(format!("read the lock of {}", data.display())))?;
    Ok(holder.map(|holder| holder.pid))
}

/// Lets the process that holds a directory end in good order. The number is that of the process where it runs, so in a
/// container it may be that of another one here, which has not the lock open.
fn terminate(pid: u32, data: &Path) -> io::Result<()> {
    let of = |at: &Path| fs::metadata(at).map(|at| (at.dev(), at.ino()));
    let lock = of(&data.join(names::LOCK))?;
    let mut open = fs::read_dir(format!("/proc/{pid}/fd"))?.flatten();
    if !open.any(|file| of(&file.path()).is_ok_and(|file| file == lock)) {
        return Err(io::Error::other(
            "it does not have the lock of the directory open, so the node runs in a container: stop that",
        ));
    }
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("there is no such process"))?;
    Ok(kill_process(pid, Signal::TERM)?)
}
