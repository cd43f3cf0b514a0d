//! Draws from a seed, the clock that a test moves, and the outside world of a store that is the same in every run.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tallyring_archive::Disk;
use tallyring_realtime::{Clock, World};

use crate::sim_disk::random;

/// A seeded source of draws.
pub struct Chance(Box<dyn FnMut() -> u64 + Send>);

impl Chance {
    /// One seed gives the same draws every time.
    pub fn new(seed: u64) -> Self {
        Self(Box::new(random(seed)))
    }

    /// Any 64 bits.
    pub(super) fn bits(&mut self) -> u64 {
        (self.0)()
    }

    /// 0 to `end`, without `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.bits() % end
    }

    /// `from` to `to`, both included.
    pub fn between(&mut self, from: i64, to: i64) -> i64 {
        let width = u64::try_from(to - from + 1).expect("BUG: an empty range");
        from + i64::try_from(self.below(width)).expect("BUG: a range above 63 bits")
    }

    /// True in `percent` of all draws.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of them.
    pub fn pick<'a, T>(&mut self, among: &'a [T]) -> &'a T {
        let at = usize::try_from(self.below(among.len() as u64)).expect("BUG: a short list");
        &among[at]
    }
}

/// A clock that stands until it is set, or time passes.
#[derive(Debug)]
pub struct ManualClock {
    now_ms: AtomicI64,
    elapsed_ms: AtomicI64,
    jumps_are_meant: bool,
}

impl ManualClock {
    /// Stands at `now_ms`, Unix milliseconds.
    pub fn new(now_ms: i64, jumps_are_meant: bool) -> Self {
        Self {
            now_ms: AtomicI64::new(now_ms),
            elapsed_ms: AtomicI64::new(0),
            jumps_are_meant,
        }
    }

    /// Moves it, while no time passes.
    pub fn set(&self, now_ms: i64) {
        self.now_ms.store(now_ms, Ordering::SeqCst);
    }

    /// Lets time pass, which it shows.
    pub fn pass(&self, passed_ms: i64) {
        self.now_ms.fetch_add(passed_ms, Ordering::SeqCst);
        self.elapsed_ms.fetch_add(passed_ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::SeqCst)
    }

    fn elapsed_ms(&self) -> i64 {
        self.elapsed_ms.load(Ordering::SeqCst)
    }

    fn jumps_are_meant(&self) -> bool {
        self.jumps_are_meant
    }
}

/// The outside world of a store: this disk and clock, and no randomness.
pub fn world(disk: impl Disk + 'static, clock: Arc<dyn Clock>) -> World {
    World {
        disk: Arc::new(disk),
        objects: None,
        clock,
        random: fixed_bytes,
    }
}

/// The bytes of every store's identity, so that hashes are the same in every run.
pub fn fixed_bytes(out: &mut [u8]) {
    for (at, byte) in out.iter_mut().enumerate() {
        *byte = u8::try_from(at * 7 % 251).expect("BUG: below 251");
    }
}
