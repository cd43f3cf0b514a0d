//! A disk takes its time: the batches that wait are bounded, further ones are refused at once, reads go on, and
//! accepted batches count once the disk is done. Batches also count while the next segment is prepared.

use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use tallyring_archive::{Content, Disk, DiskFile, names};
use tallyring_realtime::{Accepted, Batch, Options, Read, Refusal, Service, Store};
use tallyring_records::{Increment, TIME_MAX, TIME_MIN};
use tallyring_tests::model::{ManualClock, schema, world};
use tallyring_tests::sim_disk::SimDisk;
use tokio::task::JoinSet;

/// 2012-03-16T22:00Z.
const NOW_MS: i64 = 1_331_935_200_000;
const CLICKS: usize = 40_000;
/// The queue and the group that is being committed may hold so much together.
const WAITING_MAX: usize = 16_384;

/// A test fails that waits longer.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Holds up each thread that syncs a file while it is shut.
#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
    /// The only file that is held up, if it is created while the gate is shut: a segment is the spare of before. None
    /// for all files.
    only: Option<&'static str>,
}

#[derive(Default)]
struct State {
    is_shut: bool,
    /// Threads that are held up.
    waiting: usize,
}

impl Gate {
    fn set(&self, is_shut: bool) {
        self.state.lock().expect("no panic").is_shut = is_shut;
        self.changed.notify_all();
    }

    fn holds(&self, name: &str) -> bool {
        let is_shut = self.state.lock().expect("no panic").is_shut;
        self.only.is_none_or(|only| only == name && is_shut)
    }

    fn pass(&self) {
        let mut state = self.state.lock().expect("no panic");
        state.waiting += 1;
        self.changed.notify_all();
        let passed = self.changed.wait_while(state, |state| state.is_shut);
        passed.expect("no panic").waiting -= 1;
    }

    /// Waits until a thread is held up.
    fn wait_for_one(&self) {
        let state = self.state.lock().expect("no panic");
        let waited = self.changed.wait_while(state, |state| state.waiting == 0);
        drop(waited.expect("no panic"));
    }
}

struct SlowDisk(SimDisk, Arc<Gate>);

struct SlowFile(Box<dyn DiskFile>, Arc<Gate>);

impl fmt::Debug for SlowDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SlowDisk")
    }
}

impl SlowDisk {
    fn slow(&self, name: &str, file: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        match self.1.holds(name) {
            true => Box::new(SlowFile(file, Arc::clone(&self.1))),
            false => file,
        }
    }
}

impl Disk for SlowDisk {
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.0.create(name).map(|file| self.slow(name, file))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.0.open(name).map(|file| self.slow(name, file))
    }

    fn content(&self, name: &str) -> io::Result<Content> {
        self.0.content(name)
    }

    fn link(&self, from: &str, to: &str) -> io::Result<bool> {
        self.0.link(from, to)
    }

    fn replace(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.replace(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        self.0.list(directory)
    }

    fn create_directory(&self, directory: &str) -> io::Result<()> {
        self.0.create_directory(directory)
    }

    fn sync_directory(&self, directory: &str) -> io::Result<()> {
        self.0.sync_directory(directory)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.0.free_bytes()
    }
}

impl DiskFile for SlowFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.1.pass();
        self.0.sync()
    }
}

fn click() -> Batch {
    Batch {
        increments: vec![Increment::new(NOW_MS / 1_000, 1, [("l", "a")])],
        ..Batch::default()
    }
}

fn counted(store: &Store) -> u64 {
    let read = Read {
        namespace: "l".into(),
        key: "a".into(),
        subtotal: None,
        from: TIME_MIN,
        to: TIME_MAX,
        rolled: None,
    };
    let series = store.view().read(&read, None).expect("an answer");
    series.totals.sum()
}

fn open(gate: &Arc<Gate>) -> Store {
    let world = world(
        SlowDisk(SimDisk::default(), Arc::clone(gate)),
        Arc::new(ManualClock::new(NOW_MS, true)),
    );
    let options = Options {
        segment_bytes: 1 << 20,
        ..Options::default()
    };
    let (store, _) = Store::open(world, options, schema(0).clone()).expect("it opens");
    store
}

#[test]
fn batches_count_while_the_next_segment_is_prepared() {
    let gate = Arc::new(Gate {
        only: Some(names::SPARE_SEGMENT),
        ..Gate::default()
    });
    let store = open(&gate);
    // The first batch needs a segment itself.
    store.intake().commit(vec![click()])[0]
        .as_ref()
        .expect("it counts");
    gate.set(true);
    thread::scope(|scope| {
        let preparing = scope.spawn(|| store.intake().prepare_segment());
        gate.wait_for_one();
        let (counted, answers) = mpsc::channel();
        let intake = store.intake();
        scope.spawn(move || counted.send(intake.commit(vec![click()])));
        let answered = answers.recv_timeout(WAIT_MAX);
        gate.set(false);
        let accepted = &answered.expect("an answer before the segment is there")[0];
        assert_eq!(accepted.as_ref().expect("it counts").accepted, 1);
        preparing.join().expect("no panic").expect("a segment");
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_disk_is_slow_little_waits_the_rest_is_refused_and_reads_go_on() {
    let gate = Arc::new(Gate::default());
    let service = Arc::new(Service::start(Arc::new(open(&gate))).expect("its threads start"));
    gate.set(true);
    let mut asked: JoinSet<Result<Accepted, Refusal>> = JoinSet::new();
    for _ in 0..CLICKS {
        let service = Arc::clone(&service);
        asked.spawn(async move { service.submit(click()).await });
    }
    for _ in WAITING_MAX..CLICKS {
        let refused = asked.join_next().await.expect("an answer");
        let refused = refused.expect("no panic");
        assert!(matches!(refused, Err(Refusal::Busy)), "{refused:?}");
    }
    assert_eq!(counted(service.store()), 0, "nothing is durable yet");
    gate.set(false);
    let mut accepted = 0;
    while let Some(answer) = asked.join_next().await {
        match answer.expect("no panic") {
            Ok(one) => accepted += one.accepted,
            Err(Refusal::Busy) => {}
            Err(other) => panic!("{other}"),
        }
    }
    assert!(accepted > 0, "what waited is taken");
    assert_eq!(counted(service.store()), accepted);
}
