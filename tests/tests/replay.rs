//! A replay has the limits of memory that service has: full memory is flushed, a failing flush loses nothing, and a log
//! that memory cannot hold is refused with a way out.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::ErrorKind;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tallyring_archive::{OsDisk, verify_run};
use tallyring_realtime::{Batch, Error, Options, Store, SystemClock};
use tallyring_records::{Increment, Origin, Schema, TIME_MAX, TIME_MIN};
use tallyring_tests::model::{ManualClock, world};
use tallyring_tests::sim_disk::{SimDisk, random};

/// 2012-03-16T20:00:00Z.
const START: i64 = 1_331_928_000;
const HOUR_MS: i64 = 3_600_000;
const MIB: u64 = 1 << 20;

/// Counts what is allocated.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;
static LIVE: AtomicI64 = AtomicI64::new(0);
static PEAK: AtomicI64 = AtomicI64::new(0);
/// Tests that look at what is allocated take turns with all others.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn note(bytes: i64) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

// SAFETY: every call goes to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as i64);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        note(-(layout.size() as i64));
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Memory taken since then, and the most of it.
struct Taken(i64);

impl Taken {
    fn begin() -> Self {
        let live = LIVE.load(Ordering::Relaxed);
        PEAK.store(live, Ordering::Relaxed);
        Self(live)
    }

    fn now(&self) -> u64 {
        u64::try_from(LIVE.load(Ordering::Relaxed) - self.0).unwrap_or(0)
    }

    fn peak(&self) -> u64 {
        u64::try_from(PEAK.load(Ordering::Relaxed) - self.0).unwrap_or(0)
    }
}

/// Options under which the store never flushes by itself.
fn unbounded() -> Options {
    Options {
        delta_bytes_max: 1 << 40,
        ..Options::default()
    }
}

/// A click with keys, a referrer and an id of its own.
fn click(number: u64) -> Increment {
    Increment {
        by: vec![
            ("c".into(), "US".into()),
            (
                "r".into(),
                format!("https://referrer-{number}.example/").into(),
            ),
        ],
        id: Some(format!("id-{number}")),
        ..Increment::new(
            START,
            1,
            [
                ("l", format!("link-{number}")),
                ("u", format!("user-{number}")),
            ],
        )
    }
}

/// Commits clicks; how many of them were known.
fn commit(store: &Store, numbers: std::ops::Range<u64>) -> u64 {
    let mut known = 0;
    let each = if numbers.end > 1_000 { 1_000 } else { 10 };
    for first in numbers.clone().step_by(each) {
        let last = numbers.end.min(first + each as u64);
        let batch = Batch {
            increments: (first..last).map(click).collect(),
            ..Batch::default()
        };
        known += store
            .intake()
            .commit(vec![batch])
            .remove(0)
            .expect("taken")
            .duplicates;
    }
    store.live().fold();
    known
}

/// Sums of all keys of the two namespaces.
fn totals(store: &Store) -> [u64; 2] {
    ["l", "u"].map(|name| {
        let counted = store.view().totals(name, TIME_MIN..TIME_MAX, false, None);
        counted.expect("an answer").totals.sum()
    })
}

#[test]
fn a_replay_takes_no_more_memory_than_service_and_leaves_less_to_the_next_start() {
    const CLICKS: u64 = 60_000;
    const LIMIT: u64 = 4 * MIB;
    let _alone = alone();
    let directory = tempfile::tempdir().expect("a directory");
    let open = |options| {
        let disk = OsDisk::new(directory.path()).expect("a directory");
        let world = world(disk, Arc::new(SystemClock));
        Store::open(world, options, Schema::default_clicks()).expect("open")
    };
    let (store, _) = open(unbounded());
    let taken = Taken::begin();
    commit(&store, 0..CLICKS);
    let status = store.status();
    let deltas = status.stores.iter().map(|store| store.memory_bytes);
    let counted = deltas.sum::<u64>() + status.ids_bytes as u64;
    assert!(counted > 8 * LIMIT, "{counted} bytes");
    // Besides them there is what is read by the second, and what the log has on its way.
    let (live, tolerance) = (taken.now(), 4 * MIB);
    assert!(
        counted.abs_diff(live) < live / 10 + tolerance,
        "{counted} bytes are counted, {live} are allocated"
    );
    drop(store);
    let taken = Taken::begin();
    let options = Options {
        delta_bytes_max: LIMIT,
        cache_bytes: MIB,
        ..Options::default()
    };
    let (store, recovery) = open(options);
    assert_eq!(recovery.replayed, CLICKS);
    // Tables that double, and what is written of them.
    assert!(
        taken.peak() < 4 * LIMIT + 8 * MIB,
        "{} bytes at the most",
        taken.peak()
    );
    let status = store.status();
    assert!(status.unflushed < CLICKS / 4, "{}", status.unflushed);
    assert_eq!(totals(&store), [CLICKS; 2]);
    let unflushed = status.unflushed;
    drop(store);
    let (store, recovery) = open(options);
    assert_eq!(
        recovery.replayed, unflushed,
        "what was flushed is not read again"
    );
    assert_eq!(totals(&store), [CLICKS; 2]);
    assert_eq!(commit(&store, 0..CLICKS), CLICKS, "all ids are known");
}

/// Clicks in the log alone, with a declaration between them.
fn logged(clock: &Arc<ManualClock>) -> SimDisk {
    let disk = SimDisk::default();
    let open = |schema| {
        let world = world(disk.clone(), Arc::clone(clock) as _);
        Store::open(world, sim(1 << 40), schema).expect("open").0
    };
    let store = open(Schema::default_clicks());
    commit(&store, 0..120);
    drop(store);
    let mut more = Schema::default_clicks();
    more.namespaces[0].subtotals.push("x".into());
    let store = open(more);
    commit(&store, 120..240);
    disk
}

fn sim(delta_bytes_max: u64) -> Options {
    Options {
        shards: 2,
        delta_bytes_max,
        segment_bytes: 16_384,
        ..Options::default()
    }
}

fn reopen(disk: &SimDisk, clock: &Arc<ManualClock>, options: Options) -> Result<Store, Error> {
    let world = world(disk.clone(), Arc::clone(clock) as _);
    Ok(Store::open_as_it_is(world, options, &Schema::default_clicks())?.0)
}

#[test]
fn no_call_of_a_replay_that_flushes_can_fail_so_that_a_count_is_lost_or_doubled() {
    const CLICKS: u64 = 240;
    let _alone = alone();
    let clock = Arc::new(ManualClock::new(START * 1_000, true));
    let disk = logged(&clock);
    let small = sim(1 << 12);
    let check = |disk: &SimDisk| {
        let store = reopen(disk, &clock, small).expect("the next start works");
        assert_eq!(totals(&store), [CLICKS; 2]);
        assert_eq!(commit(&store, 0..CLICKS), CLICKS, "all ids are known");
        store.ledger().flush().expect("a sound disk");
        for entry in store.manifest().files() {
            verify_run(&disk.blobs(), entry).expect("a sound file");
        }
    };
    // Each start finds the log as a power loss leaves it.
    let found = |seed| disk.crash(&mut random(seed));
    let sound = found(0);
    let store = reopen(&sound, &clock, small).expect("open");
    assert!(
        store.manifest().number > 5,
        "it was flushed again and again"
    );
    let calls = sound.calls();
    drop(store);
    check(&sound.kill());
    let mut refused = 0;
    for call in 1..=calls {
        for fault in [Some(ErrorKind::Other), Some(ErrorKind::StorageFull), None] {
            let disk = found(call);
            match fault {
                Some(kind) => disk.fail_nth_call(call, kind),
                None => disk.stop_at_nth_call(call),
            }
            match reopen(&disk, &clock, small) {
                Ok(store) => assert_eq!(totals(&store), [CLICKS; 2], "{call} {fault:?}"),
                Err(_) => refused += 1,
            }
            let next = match call % 2 == 0 {
                true => disk.crash(&mut random(call)),
                false => disk.kill(),
            };
            check(&next);
        }
    }
    assert!(refused > 0, "the faults bite");
}

#[test]
fn a_replay_that_cannot_be_flushed_is_held_until_half_of_memory_and_then_refused() {
    const CLICKS: u64 = 240;
    let _alone = alone();
    let clock = Arc::new(ManualClock::new(START * 1_000, true));
    let disk = logged(&clock);
    let files = disk.files();
    disk.set_free_bytes(0);
    let store = reopen(&disk, &clock, sim(1 << 12)).expect("what is there can be read");
    assert_eq!(totals(&store), [CLICKS; 2]);
    drop(store);
    let little = Options {
        memory_bytes: 1 << 14,
        ..sim(1 << 12)
    };
    let full = reopen(&disk, &clock, little).err().expect("refused");
    assert!(full.is_disk_full(), "{full}");
    let only_read = Store::open_read_only(world(disk.clone(), Arc::clone(&clock) as _), little);
    let refused = only_read.err().expect("refused").to_string();
    assert!(refused.contains("tallyring serve"), "{refused}");
    assert_eq!(
        disk.files(),
        files,
        "a start that is refused changes nothing"
    );
    disk.set_free_bytes(1 << 30);
    let store = reopen(&disk, &clock, little).expect("there is space");
    assert_eq!(totals(&store), [CLICKS; 2]);
}

/// Options under which producers are remembered for a day.
fn for_a_day(delta_bytes_max: u64) -> Options {
    Options {
        oplog_days: 1,
        id_hours: 24,
        ..sim(delta_bytes_max)
    }
}

/// True when a producer's increment with this number counts.
fn counts_number(store: &Store, sequence: u64) -> bool {
    let origin = Origin {
        producer: "p".into(),
        epoch: 0,
        sequence,
    };
    let increment = Increment {
        origin: Some(Box::new(origin)),
        ..Increment::new(START, 1, [("l", "numbered")])
    };
    let batch = Batch {
        increments: vec![increment],
        ..Batch::default()
    };
    let outcome = store.intake().commit(vec![batch]).remove(0);
    outcome.expect("in order").accepted == 1
}

#[test]
fn a_replay_that_flushes_knows_a_producer_by_the_last_of_its_numbers() {
    let _alone = alone();
    let clock = Arc::new(ManualClock::new(START * 1_000, true));
    let disk = SimDisk::default();
    let store = reopen(&disk, &clock, for_a_day(1 << 40)).expect("open");
    assert!(counts_number(&store, 0));
    clock.pass(20 * HOUR_MS);
    commit(&store, 0..120);
    assert!(counts_number(&store, 1));
    let before = store.manifest().number;
    drop(store);
    // The first number came more than a day ago, and the last one did not.
    clock.pass(10 * HOUR_MS);
    let store = reopen(&disk.kill(), &clock, for_a_day(1 << 12)).expect("open");
    assert!(store.manifest().number > before, "it was flushed");
    assert!(!counts_number(&store, 0));
    assert!(!counts_number(&store, 1));
    assert!(counts_number(&store, 2));
}

#[test]
fn a_producer_that_begins_anew_once_it_is_forgotten_goes_on_after_a_flush_that_failed() {
    let _alone = alone();
    let clock = Arc::new(ManualClock::new(START * 1_000, true));
    let disk = SimDisk::default();
    let store = reopen(&disk, &clock, for_a_day(1 << 40)).expect("open");
    assert!(counts_number(&store, 5));
    store.ledger().flush().expect("a sound disk");
    clock.pass(48 * HOUR_MS);
    store.intake().tick().expect("a sound disk");
    disk.set_free_bytes(0);
    store.ledger().flush().expect_err("the disk is full");
    disk.set_free_bytes(1 << 30);
    for sequence in 0..2 {
        assert!(counts_number(&store, sequence));
    }
    drop(store);
    // The manifest still has the number from before.
    let store = reopen(&disk.kill(), &clock, for_a_day(1 << 40)).expect("open");
    for sequence in 0..2 {
        assert!(!counts_number(&store, sequence));
    }
    assert!(counts_number(&store, 2));
}
