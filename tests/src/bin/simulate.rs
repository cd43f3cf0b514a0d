//! The simulation, as long as one likes: the real store, rebuild and rollback over a simulated disk and clock,
//! compared with a naive map at every read. A seed that fails is printed and replays alone.
//!
//! `cargo run --release -p tallyring-tests --bin simulate -- --seeds 1000 --ops 1000 [--first 1] [--threads 2]`
//!
//! With `--nodes 3`, three nodes share a store over one simulated topic and one simulated object store. With
//! `--strands 3` beside it, the store has three strands, each with a topic and an object store.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command tells how it went"
)]

use std::process::ExitCode;
use std::time::Instant;

use mimalloc::MiMalloc;
use tallyring_tests::model::{Stats, run_nodes, run_seeds};

/// A run allocates little else than small strings and maps.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Seeds between two lines of progress.
const TOLD_EVERY: u64 = 100;

struct Wanted {
    first: u64,
    seeds: u64,
    operations: u64,
    threads: usize,
    /// 1 for a store of one server.
    nodes: usize,
    /// 1 for a store that is not divided.
    strands: usize,
}

fn main() -> ExitCode {
    let wanted = match wanted(std::env::args().skip(1)) {
        Ok(wanted) => wanted,
        Err(problem) => {
            eprintln!(
                "{problem}; usage: simulate [--seeds N] [--ops M] [--first SEED] [--threads N] [--nodes N] [--strands N]"
            );
            return ExitCode::from(2);
        }
    };
    let (operations, began) = (wanted.operations, Instant::now());
    let (nodes, strands) = (wanted.nodes, wanted.strands);
    let seeds = wanted.first..wanted.first.saturating_add(wanted.seeds);
    let told = |seed, stats: &Stats| {
        if seed % TOLD_EVERY == 0 {
            let seconds = began.elapsed().as_secs();
            eprintln!(
                "seed {seed}, {} operations, {} restarts, {seconds} s",
                stats.operations(),
                stats.restarts
            );
        }
    };
    let result = match (nodes, strands) {
        (1, 1) => run_seeds(seeds, operations, wanted.threads, &told),
        of => run_nodes(seeds, (operations, of), wanted.threads, &told),
    };
    match result {
        Ok(stats) => {
            println!(
                "{} seeds agree with the model after {:.1} s",
                wanted.seeds,
                began.elapsed().as_secs_f64()
            );
            tell(&stats);
            ExitCode::SUCCESS
        }
        Err(problems) => {
            for problem in &problems {
                println!("{problem}\n");
            }
            println!(
                "{} seeds failed; replay one with --first SEED --seeds 1 --ops {operations} --nodes {nodes} --strands {strands}",
                problems.len()
            );
            ExitCode::FAILURE
        }
    }
}

/// Tells how much was done.
fn tell(stats: &Stats) {
    println!(
        "{} operations: {} steps, {} increments, {} reads compared; {} batches, {} restarts, {} generations ({} with exports that wait), {} rollbacks, {} recompressed, {} loads, {} final versions of {} judged days, {} voids, {:?} by rules with memory, {} faults set, {} calls refused, {} for want of room in the log, {} take-overs, {} batches without an answer",
        stats.operations(),
        stats.steps,
        stats.increments,
        stats.reads,
        stats.batches,
        stats.restarts,
        stats.generations,
        stats.waited,
        stats.rollbacks,
        stats.recompressed,
        stats.loads,
        stats.finals,
        stats.judged,
        stats.voids,
        stats.caught,
        stats.faults,
        stats.failures,
        stats.log_full,
        stats.take_overs,
        stats.unanswered
    );
    for (kind, count) in stats.faults() {
        println!("{kind:>18} {count}");
    }
}

fn wanted(mut arguments: impl Iterator<Item = String>) -> Result<Wanted, String> {
    let mut wanted = Wanted {
        first: 1,
        seeds: 100,
        operations: 150,
        threads: 2,
        nodes: 1,
        strands: 1,
    };
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or(format!("{name} needs a number"))?;
        let number: u64 = value
            .parse()
            .map_err(|_| format!("{name} {value}: not a number"))?;
        match name.as_str() {
            "--first" => wanted.first = number,
            "--seeds" => wanted.seeds = number,
            "--ops" => wanted.operations = number,
            "--nodes" => wanted.nodes = usize::try_from(number.clamp(1, 9)).unwrap_or(1),
            "--strands" => wanted.strands = usize::try_from(number.clamp(1, 9)).unwrap_or(1),
            "--threads" => wanted.threads = usize::try_from(number.clamp(1, 256)).unwrap_or(1),
            _ => return Err(format!("{name} is not known")),
        }
    }
    Ok(wanted)
}
