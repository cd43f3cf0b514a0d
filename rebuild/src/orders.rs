//! Orders: rebuilds that the node which writes a log has another node do.
//!
//! An order is an object of the store that the nodes share, with up to three beside it:
//!
//! | object | put by |
//! |---|---|
//! | `orders/<manifest>-<random>` | the node that writes: all that a rebuild is told |
//! | `….claim` | the node that does it, if absent: so one node at most |
//! | `….alive` | that node, every ten seconds, another one each time |
//! | `….done` | that node at its end: the build, or why there is none |
//!
//! The node that writes waits for a claim, and then for signs of life, by its own clock from one change that it sees to
//! the next; while the object store does not answer nobody is silent. Where none comes, or a node comes no further for
//! an hour with the orders that it has, it takes the order back, which is to remove all of it, and does the work
//! itself. So an order that is lost, late or done twice costs time and no count: nodes of one build make equal files of
//! equal runs, and an equal file is the same object. Nobody but the node that writes publishes, and [`prove`] reads
//! every byte before that. The lists of a build, such as which exports it holds, are believed, as those of a child
//! process are.
//!
//! An order is of one epoch of the log. After a take-over it is not claimed any more, and the node at work stops. One
//! node writes and rebuilds once at a time, so placing an order removes all that earlier ones left.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tallyring_archive::{
    Blobs, Build, Error, Manifest, Result, Run, RunEntry, names, verify_on_disk,
};
use tallyring_realtime::catalog::JobProgress;

use crate::generation::BuildOptions;

/// How long an order waits for a claim, milliseconds.
pub const CLAIM_MS: i64 = 10_000;
/// How often a node at work gives a sign of life, milliseconds.
pub const ALIVE_MS: i64 = 10_000;
/// How long a node at work may give none, milliseconds.
pub const SILENT_MS: i64 = 60_000;
/// How long a node may come no further with all orders that it has claimed, milliseconds. A disk that hangs stops a
/// build, and no sign of life.
pub const HUNG_MS: i64 = 3_600_000;

/// Length of a node's name, bytes.
const NODE_BYTES_MAX: usize = 200;

/// Orders that are read in one look for one to claim. More are not open at a time, unless nodes were lost.
const LOOKED_AT_MAX: usize = 16;

const CLAIM: &str = ".claim";
const ALIVE: &str = ".alive";
const DONE: &str = ".done";

/// A rebuild that is to be done.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Order {
    /// Version of the build of the node that writes. Another build may make other bytes.
    pub build: [u32; 3],
    /// The epoch in which that node writes.
    pub epoch: u32,
    /// Number of the manifest to build from.
    pub manifest: u64,
    /// Limits of the rebuild.
    pub options: BuildOptions,
}

/// The content of a claim.
#[derive(Serialize, Deserialize)]
struct Claim {
    node: String,
    /// Tells two claims of one node apart, so that one whose answer was lost knows its own.
    key: u64,
}

/// A sign of life.
#[derive(Serialize, Deserialize)]
struct Alive {
    /// Rises.
    sign: u64,
    /// None before the build begins.
    progress: Option<JobProgress>,
    /// Time of the node at which it last came further, milliseconds.
    advanced_ms: i64,
}

/// The end of the work.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Done {
    Built(Option<Box<Build>>),
    Failed(String),
}

/// The state of an order, as the node that placed it sees it.
#[derive(Debug)]
pub enum Standing {
    /// It waits for a claim, or a node is at work.
    Waits,
    /// A node has done it. There may have been nothing to do. The files are to be proven.
    Done(Option<Box<Build>>),
    /// No node does it, for this reason.
    Failed(String),
}

/// An order that this node has placed; dropping it takes the order back.
#[derive(Debug)]
pub struct Placed {
    blobs: Blobs,
    name: String,
    manifest: u64,
    node: Option<String>,
    progress: Option<JobProgress>,
    /// When the node last came further, by its own time, milliseconds.
    advance: i64,
    /// Elapsed time when this was seen, milliseconds.
    advanced_ms: i64,
    /// The last sign of life.
    alive: Vec<u8>,
    /// Elapsed time of the last change, milliseconds.
    changed_ms: i64,
}

impl Placed {
    /// Places an order at the elapsed time `now_ms`, milliseconds of a clock that is never set, in the place of all
    /// orders of epochs up to its own. Fails when the object store does.
    pub fn place(blobs: &Blobs, order: &Order, random: fn(&mut [u8]), now_ms: i64) -> Result<Self> {
        remove_dead(blobs, order.epoch)?;
        // An order that a failed try has made goes as well.
        let placed = Self {
            blobs: blobs.clone(),
            name: names::order(order.manifest, draw(random)),
            manifest: order.manifest,
            node: None,
            progress: None,
            advance: 0,
            advanced_ms: now_ms,
            alive: Vec::new(),
            changed_ms: now_ms,
        };
        blobs.put(&placed.name, &json(order))?;
        Ok(placed)
    }

    /// Looks at the order at the elapsed time `now_ms`. Where the object store does not answer it waits on: nobody
    /// could give a sign of life, and no build goes on.
    pub fn look(&mut self, now_ms: i64) -> Standing {
        self.standing(now_ms).unwrap_or_else(|_| {
            (self.changed_ms, self.advanced_ms) = (now_ms, now_ms);
            Standing::Waits
        })
    }

    fn standing(&mut self, now_ms: i64) -> Result<Standing> {
        if self.node.is_none()
            && let Some(claim) = self.read(CLAIM)?
        {
            let claim = serde_json::from_slice(&claim).ok();
            let node = claim.map(|claim: Claim| claim.node);
            let node = node.filter(|node| is_name(node));
            self.node = Some(node.unwrap_or_else(|| "?".into()));
            (self.changed_ms, self.advanced_ms) = (now_ms, now_ms);
        }
        if let Some(done) = self.read(DONE)? {
            return Ok(self.ended(&done));
        }
        let Some(node) = &self.node else {
            return Ok(match now_ms.saturating_sub(self.changed_ms) >= CLAIM_MS {
                true => Standing::Failed(format!("no node took it in {} s", CLAIM_MS / 1_000)),
                false => Standing::Waits,
            });
        };
        let alive = self.read(ALIVE)?.filter(|alive| *alive != self.alive);
        if let Some(alive) = alive {
            if let Ok(told) = serde_json::from_slice::<Alive>(&alive) {
                self.progress = told.progress;
                if std::mem::replace(&mut self.advance, told.advanced_ms) != told.advanced_ms {
                    self.advanced_ms = now_ms;
                }
            }
            (self.alive, self.changed_ms) = (alive, now_ms);
        }
        Ok(if now_ms.saturating_sub(self.changed_ms) >= SILENT_MS {
            let silent = SILENT_MS / 1_000;
            Standing::Failed(format!("node {node} gave no sign of life for {silent} s"))
        } else if now_ms.saturating_sub(self.advanced_ms) >= HUNG_MS {
            let hung = HUNG_MS / 60_000;
            Standing::Failed(format!("node {node} came no further for {hung} minutes"))
        } else {
            Standing::Waits
        })
    }

    /// The node that claimed the order; none before one did.
    pub fn node(&self) -> Option<&str> {
        self.node.as_deref()
    }

    /// The progress of the work, as that node told.
    pub fn progress(&self) -> Option<JobProgress> {
        self.progress
    }

    fn ended(&self, done: &[u8]) -> Standing {
        let node = self.node.as_deref().unwrap_or("?");
        match serde_json::from_slice(done) {
            Ok(Done::Built(build)) => match &build {
                Some(build) if build.base != self.manifest => Standing::Failed(format!(
                    "node {node} built from manifest {} and not from {}",
                    build.base, self.manifest
                )),
                _ => Standing::Done(build),
            },
            Ok(Done::Failed(why)) => Standing::Failed(format!("node {node} failed: {why}")),
            Err(error) => Standing::Failed(format!("node {node} ended with no build: {error}")),
        }
    }

    fn read(&self, what: &str) -> Result<Option<Vec<u8>>> {
        self.blobs.read_if_there(&format!("{}{what}", self.name))
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        // The next order removes what stays.
        let _ = remove(&self.blobs, &self.name);
    }
}

/// Removes orders of epochs up to this one, and what is beside an order that is gone. One that tells no epoch is none.
fn remove_dead(blobs: &Blobs, epoch: u32) -> Result<()> {
    #[derive(Deserialize)]
    struct OfEpoch {
        epoch: u32,
    }
    for file in blobs.list(names::ORDERS)? {
        let order = file.split_once('.').map_or(&*file, |(order, _)| order);
        let name = format!("{}/{order}", names::ORDERS);
        let content = blobs.read_if_there(&name)?;
        let told = content.and_then(|order| serde_json::from_slice(&order).ok());
        if told.is_none_or(|order: OfEpoch| order.epoch <= epoch) {
            remove(blobs, &name)?;
        }
    }
    Ok(())
}

/// Removes an order and all beside it. The order goes first: its absence ends the work, and without its claim another
/// node would begin.
fn remove(blobs: &Blobs, name: &str) -> Result<()> {
    let mut all = ["", CLAIM, ALIVE, DONE].into_iter();
    all.try_for_each(|what| blobs.remove(&format!("{name}{what}")))
}

/// True for what a node may be called, which is shown.
fn is_name(node: &str) -> bool {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=NODE_BYTES_MAX).contains(&node.len()) && node.bytes().all(is_of_name)
}

/// The files of another node's build that are to be proven: all but those that `manifest` names alike.
pub fn unproven<'b>(manifest: &Manifest, build: &'b Build) -> impl Iterator<Item = &'b RunEntry> {
    let known = manifest.files().map(|file| (&*file.name, file));
    let known: BTreeMap<&str, &RunEntry> = known.collect();
    build
        .files()
        .filter(move |file| known.get(&*file.name) != Some(file))
}

/// Reads every byte of a file that another node's build names, and fetches the copy that this node is to have. Fails
/// where it cannot be read, or is not the file that the build names: [`is_of_content`] tells.
pub fn prove(blobs: &Blobs, file: &RunEntry) -> Result<()> {
    if file.renamed(file.origin.clone()) != *file {
        let what = "its name is not that of its content";
        return Err(Error::malformed(&file.name, what));
    }
    // A copy is fetched as a whole, and has the hash of its name then.
    Run::open_named(blobs, file)?;
    match blobs.reads_in_parts(&file.name) {
        true => verify_on_disk(blobs, file, &mut || ()),
        false => Ok(()),
    }
}

/// True for an error that lies in the bytes of a file. Any other one may be gone when it is read again.
pub fn is_of_content(error: &Error) -> bool {
    !matches!(error, Error::Io { .. } | Error::NotCached)
}

/// An order that this node has claimed.
#[derive(Debug)]
pub struct Claimed {
    blobs: Blobs,
    name: String,
    order: Order,
    /// Signs of life so far.
    signs: u64,
}

impl Claimed {
    /// Claims the newest order of this epoch that no node has claimed, that was placed by a node of the same build, and
    /// whose name `may` takes; none where there is none. `node` is the name of this one. Fails when the object store
    /// does.
    pub fn claim(
        blobs: &Blobs,
        (node, build): (&str, [u32; 3]),
        epoch: u32,
        random: fn(&mut [u8]),
        mut may: impl FnMut(&str) -> bool,
    ) -> Result<Option<Self>> {
        let files = blobs.list(names::ORDERS)?;
        let is_claimed = |file: &str| files.binary_search(&format!("{file}{CLAIM}")).is_ok();
        let newest = files.iter().rev();
        let open = newest.filter(|file| names::is_order(file) && !is_claimed(file));
        for file in open.take(LOOKED_AT_MAX) {
            let name = format!("{}/{file}", names::ORDERS);
            // An order that is none is one of another build.
            let Some(order) = read_order(blobs, &name)? else {
                continue;
            };
            if (order.build, order.epoch) != (build, epoch) || !may(&name) {
                continue;
            }
            let claim = Claim {
                node: node.to_owned(),
                key: draw(random),
            };
            if blobs.put(&format!("{name}{CLAIM}"), &json(&claim))? {
                return Ok(Some(Self {
                    blobs: blobs.clone(),
                    name,
                    order,
                    signs: 0,
                }));
            }
        }
        Ok(None)
    }

    /// The work that is to be done.
    pub fn order(&self) -> Order {
        self.order
    }

    /// Gives a sign of life; false where the order was taken back, so that the work is of no use. This node last came
    /// further with any order at its time `advanced_ms`, milliseconds. Fails when the object store does.
    pub fn live(&mut self, progress: Option<JobProgress>, advanced_ms: i64) -> Result<bool> {
        if !self.is_there()? {
            return Ok(false);
        }
        self.signs += 1;
        let alive = Alive {
            sign: self.signs,
            progress,
            advanced_ms,
        };
        let name = format!("{}{ALIVE}", self.name);
        self.blobs.put_over(&name, &json(&alive))?;
        Ok(true)
    }

    /// Tells the node that placed the order how the work ended: with a build, with nothing to do, or with an error.
    /// Nothing is told where the order was taken back. Fails when the object store does; it may be tried again.
    pub fn end(&self, ended: &Result<Option<Build>, String>) -> Result<()> {
        if self.is_there()? {
            let done = match ended {
                Ok(build) => Done::Built(build.clone().map(Box::new)),
                Err(why) => Done::Failed(why.clone()),
            };
            self.blobs
                .put(&format!("{}{DONE}", self.name), &json(&done))?;
        }
        Ok(())
    }

    fn is_there(&self) -> Result<bool> {
        Ok(self.blobs.read_if_there(&self.name)?.is_some())
    }
}

fn read_order(blobs: &Blobs, name: &str) -> Result<Option<Order>> {
    let order = blobs.read_if_there(name)?;
    Ok(order.and_then(|order| serde_json::from_slice(&order).ok()))
}

fn json(content: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(content).expect("BUG: it is JSON")
}

fn draw(random: fn(&mut [u8])) -> u64 {
    let mut bytes = [0; 8];
    random(&mut bytes);
    u64::from_be_bytes(bytes)
}
