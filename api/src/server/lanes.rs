//! The threads that speak HTTP: one a processor, each with a runtime of its own.
//!
//! A connection stays on its thread, so nothing is handed from one processor to another to read a request, count it and
//! answer: a single connection of HTTP/2 is answered by one processor, however much it asks. Work that takes long or
//! waits for a disk is done elsewhere (`access::place`): here all other requests of the lane would wait for it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use tallyring_realtime::priority;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;

/// Threads that block, of all lanes together, about.
const BLOCKING_MAX: usize = 512;

/// All of them. Dropped, they end, and with them what they still do.
pub(super) struct Lanes(Vec<Lane>);

struct Lane {
    runtime: Handle,
    connections: Arc<AtomicUsize>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A connection in the number of its lane's; taken out when dropped.
struct LaneConnection(Arc<AtomicUsize>);

impl Lanes {
    /// As many as there are processors. Fails when a thread or its runtime cannot be started.
    pub(super) fn start() -> io::Result<Self> {
        let lanes = priority::processors();
        (0..lanes)
            .map(|lane| Lane::start(lane, lanes))
            .collect::<io::Result<_>>()
            .map(Self)
    }

    /// Serves a connection on the lane that has fewest.
    pub(super) fn spawn(&self, connection: impl Future<Output = ()> + Send + 'static) {
        let fewest = self
            .0
            .iter()
            .min_by_key(|lane| (lane.has_ended(), lane.connections.load(Ordering::Relaxed)));
        let lane = fewest.expect("BUG: there is at least one lane");
        lane.connections.fetch_add(1, Ordering::Relaxed);
        let counted = LaneConnection(Arc::clone(&lane.connections));
        lane.runtime.spawn(async move {
            connection.await;
            drop(counted);
        });
    }
}

impl Drop for LaneConnection {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Lane {
    /// True only after its runtime has panicked: what it is given then ends at once.
    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn start(lane: usize, lanes: usize) -> io::Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            // Threads that block, which this one starts, so many in all as one runtime would have.
            .on_thread_start(priority::run_behind)
            .max_blocking_threads(BLOCKING_MAX.div_ceil(lanes))
            .build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new()
            .name(format!("http {lane}"))
            .spawn(move || {
                priority::run_soon();
                priority::run_on_its_own(lane, lanes);
                run(runtime, stopped);
            })?;
        Ok(Self {
            runtime: handle,
            connections: Arc::default(),
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

fn run(runtime: Runtime, stopped: oneshot::Receiver<()>) {
    let _ = runtime.block_on(stopped);
    // Work on files cannot be interrupted, and nobody waits for it any more: it ends by itself, or with the process.
    runtime.shutdown_background();
}

impl Drop for Lanes {
    fn drop(&mut self) {
        for lane in &mut self.0 {
            drop(lane.stop.take());
        }
        for lane in &mut self.0 {
            if lane
                .thread
                .take()
                .is_some_and(|thread| thread.join().is_err())
            {
                tracing::error!("a thread that serves connections panicked");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future;
    use std::sync::mpsc;

    use tokio::task::spawn_blocking;

    use super::*;

    #[test]
    fn a_connection_goes_where_fewest_are_also_after_some_have_ended_badly() {
        let lanes = Lanes::start().unwrap();
        let (told, seen) = mpsc::channel();
        let place_one_on_each = || {
            let mut at: Vec<String> = Vec::new();
            for _ in 0..lanes.0.len() {
                let told = told.clone();
                lanes.spawn(async move {
                    let lane = thread::current().name().unwrap().to_owned();
                    told.send(lane).unwrap();
                    future::pending().await
                });
                at.push(seen.recv().unwrap());
            }
            at.sort();
            at.dedup();
            assert_eq!(at.len(), lanes.0.len());
        };
        place_one_on_each();
        for _ in 0..lanes.0.len() {
            lanes.spawn(async { panic!("as asked for") });
        }
        let connections = |lane: &Lane| lane.connections.load(Ordering::Relaxed);
        while lanes.0.iter().any(|lane| connections(lane) > 1) {
            thread::yield_now();
        }
        place_one_on_each();
        drop(lanes);
        drop(told);
        assert!(seen.recv().is_err(), "what they still did has ended");
    }

    #[test]
    fn what_blocks_runs_on_any_processor() {
        let lanes = Lanes::start().unwrap();
        let (told, seen) = mpsc::channel();
        let allowed = || rustix::thread::sched_getaffinity(None).unwrap();
        lanes.spawn(async move {
            told.send(spawn_blocking(allowed).await.unwrap()).unwrap();
        });
        assert_eq!(seen.recv().unwrap(), allowed());
    }
}
