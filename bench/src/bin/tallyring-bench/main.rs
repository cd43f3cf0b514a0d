//! `tallyring-bench`: how fast Tallyring is, against the limits of the machine and against other programs.
//!
//! Every server under test is a process of its own on a temporary directory, so that its memory and its end can be
//! measured too. Machines differ and are shared: each figure stands beside that of a plain handler or of the disk,
//! measured in turn with it, and the report keeps every run's figure.

mod actions;
mod batches;
mod cluster;
mod cold;
mod effort;
mod events;
mod growth;
mod history;
mod hot;
mod increments;
mod keys;
mod latency;
mod load;
mod memory;
mod nights;
mod overload;
mod peer;
mod readers;
mod reads;
mod rebuild;
mod reconcile;
mod report;
mod request;
mod restart;
mod server;
mod shards;
mod undisturbed;
mod wrk;

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};

use actions::ActionsArgs;
use actions::crowd::{self, CrowdArgs};
use cluster::ClusterArgs;
use effort::Effort;
use events::EventsArgs;
use growth::GrowthArgs;
use nights::NightsArgs;
use peer::PeerArgs;
use rebuild::RebuildArgs;
use reconcile::ReconcileArgs;

/// The server's allocator of small blocks, so that the plain handler differs from the server by its work alone.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures Tallyring against the limits of the machine and against other programs.
#[derive(Parser)]
#[command(after_help = "\
Examples:
  tallyring-bench increments                increments against a plain handler
  tallyring-bench reads --runs 3 --output json
  tallyring-bench memory --keys 10000000    bytes a live counter")]
struct Cli {
    /// How figures are printed
    #[arg(long, global = true, value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(flatten)]
    effort: Effort,
    #[command(subcommand)]
    which: Which,
}

/// Forms of output.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    Table,
    /// For programs
    Json,
}

/// The benchmarks.
#[derive(Subcommand)]
enum Which {
    /// Single durable increments over 64 connections
    Increments,
    /// Batches of 1,000 increments as NDJSON
    Batches,
    /// Latency of durable increments at half the rate that saturates
    Latency,
    /// Reads of one key's 30 days in a zone, a breakdown, and both while increments come
    Reads,
    /// Many readers of a large breakdown at once, and others beside them
    Readers,
    /// Reads of 100 keys at once against the same one by one
    Query,
    /// Blocks that the first read of a key takes
    Cold,
    /// Keys by a prefix and by a part, from files
    Keys {
        /// Short keys; one in ten of them has a long one beside it
        #[arg(long, default_value_t = 10_000_000)]
        keys: u64,
    },
    /// Batches and reads over 1 to 16 shards and 10,000 to 10 million keys
    Shards,
    /// Ten times as many clients as there are places, 10,000 idle connections, and the load afterwards
    Overload,
    /// Increments on one key against increments on many
    Hot,
    /// Resident memory a live counter
    Memory {
        /// Keys that are counted, each a total and two subtotals
        #[arg(long, default_value_t = 1_000_000)]
        keys: u64,
    },
    /// Time to ready after kill -9 with increments that are in the log only
    Restart {
        /// Increments in the log
        #[arg(long, default_value_t = 10_000_000)]
        increments: u64,
    },
    /// History in bulk to a published archive, against GNU sort and other programs
    Rebuild(RebuildArgs),
    /// Cost of bulk work and of reads over all keys by rows, links and years
    Growth(GrowthArgs),
    /// Bytes that the rebuilds of a month write, and reads while exports wait to be merged
    Nights(NightsArgs),
    /// Reads while history loads and rebuilds beside them
    Undisturbed {
        /// Rows that are loaded
        #[arg(long, default_value_t = 20_000_000)]
        rows: u64,
    },
    /// Events with distinct ids in batches, with dedup, minutes and uniques on
    Events(EventsArgs),
    /// Questions of what users did, from memory and from files, and what it costs to keep actions
    Actions(ActionsArgs),
    /// Memory of one process in which very many users did something today
    Crowd(CrowdArgs),
    /// The recount of a closed day against the replay of a start
    Reconcile(ReconcileArgs),
    /// Nodes over a log of Kafka and a bucket, beside a server of one machine
    Cluster(ClusterArgs),
    /// Requests of a file to any server, as bench/peers.py does for other programs
    Load(PeerArgs),
    #[command(hide = true)]
    PlainServer,
}

fn main() -> Result<()> {
    let Cli {
        output,
        effort,
        which,
    } = &Cli::parse();
    let report = match which {
        Which::Increments => increments::run(effort)?,
        Which::Batches => batches::run(effort)?,
        Which::Latency => latency::run(effort)?,
        Which::Reads => reads::run(effort)?,
        Which::Readers => readers::run(effort)?,
        Which::Query => reads::run_query(effort)?,
        Which::Cold => cold::run(effort)?,
        Which::Keys { keys } => keys::run(effort, *keys)?,
        Which::Shards => shards::run(effort)?,
        Which::Overload => overload::run(effort)?,
        Which::Hot => hot::run(effort)?,
        Which::Memory { keys } => memory::run(effort, *keys)?,
        Which::Restart { increments } => restart::run(effort, *increments)?,
        Which::Rebuild(rebuild) => rebuild::run(effort, rebuild)?,
        Which::Growth(growth) => growth::run(effort, growth)?,
        Which::Nights(nights) => nights::run(effort, nights)?,
        Which::Undisturbed { rows } => undisturbed::run(effort, *rows)?,
        Which::Events(events) => events::run(effort, events)?,
        Which::Actions(actions) => actions::run(effort, actions)?,
        Which::Crowd(crowd) => crowd::run(effort, crowd)?,
        Which::Reconcile(reconcile) => reconcile::run(effort, reconcile)?,
        Which::Cluster(cluster) => cluster::run(effort, cluster)?,
        Which::Load(peer) => peer::run(effort, peer)?,
        Which::PlainServer => return server::run_plain_server(),
    };
    report.print(*output)
}
