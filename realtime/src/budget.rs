//! The memory of reads: one budget in bytes for all running requests.
//!
//! Invariant: a request charges the memory that it holds before it allocates it, and gives it back after it frees it.
//! The error of a refused request says which limit was exceeded. A request whose client is gone ends at its next
//! charge.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::error::{Error, Result};
use crate::priority;

/// Memory that every request holds, for its head, its parameters and its answer.
const EACH_BYTES: usize = 16 << 10;

/// A request that holds no more than this is never refused: the number of concurrent requests is bounded elsewhere.
const SMALL_BYTES: usize = 64 << 10;

/// Charges grow in steps of this size, so that small charges cost nothing.
const STEP_BYTES: usize = 4 << 10;

/// Bytes that all reads of a store may hold together, and bytes that they hold.
#[derive(Debug)]
pub struct ReadBudget {
    limit: usize,
    held: AtomicUsize,
    most: AtomicUsize,
}

impl ReadBudget {
    /// Creates a budget of `limit` bytes, of which nothing is held.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            held: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
        })
    }

    /// Bytes that all requests may hold together.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes that all requests hold now.
    pub fn held(&self) -> usize {
        self.held.load(Relaxed)
    }

    /// Returns the most bytes that were held at one time since the previous call.
    pub fn take_most(&self) -> usize {
        self.most.swap(self.held(), Relaxed)
    }

    fn note_most(&self, held: usize) {
        // Most requests hold less than others did before, so the maximum is rarely written.
        if held > self.most.load(Relaxed) {
            self.most.fetch_max(held, Relaxed);
        }
    }
}

/// One running request and its part of the budget. Clones stand for the same request.
#[derive(Debug, Clone)]
pub struct Reading(Arc<Request>);

#[derive(Debug)]
struct Request {
    budget: Arc<ReadBudget>,
    own: AtomicUsize,
    is_abandoned: AtomicBool,
}

impl Reading {
    /// Begins a request.
    pub fn new(budget: &Arc<ReadBudget>) -> Self {
        budget.note_most(budget.held.fetch_add(EACH_BYTES, Relaxed) + EACH_BYTES);
        Self(Arc::new(Request {
            budget: Arc::clone(budget),
            own: AtomicUsize::new(EACH_BYTES),
            is_abandoned: AtomicBool::new(false),
        }))
    }

    /// Notes that the client is gone: the request ends at its next charge.
    pub fn abandon(&self) {
        self.0.is_abandoned.store(true, Relaxed);
    }

    /// Lets others run ([`priority::give_way`]), and checks that the client still waits: long work calls this function
    /// again and again. Fails with [`Error::Abandoned`] where the client is gone.
    pub fn check(&self) -> Result<()> {
        priority::give_way();
        match self.0.is_abandoned.load(Relaxed) {
            true => Err(Error::Abandoned),
            false => Ok(()),
        }
    }

    /// Begins an empty charge, for a part of the request's work.
    pub fn charge(&self) -> Charge {
        Charge {
            reading: self.clone(),
            bytes: 0,
            held: 0,
        }
    }

    /// Begins a charge of `bytes` bytes. Fails as [`Charge::grow_to`] does.
    pub fn charge_of(&self, bytes: usize) -> Result<Charge> {
        let mut charge = self.charge();
        charge.grow_to(bytes)?;
        Ok(charge)
    }
}

impl Request {
    fn grow(&self, bytes: usize) -> Result<()> {
        if self.is_abandoned.load(Relaxed) {
            return Err(Error::Abandoned);
        }
        // Charges of one request may grow on several threads at once.
        let own = self.own.fetch_add(bytes, Relaxed) + bytes;
        let held = self.budget.held.fetch_add(bytes, Relaxed) + bytes;
        let limit = self.budget.limit;
        let refused = match own > SMALL_BYTES {
            true if own > limit / 2 => Error::ReadTooLarge { limit: limit / 2 },
            true if held > limit => Error::ReadsTooLarge { limit },
            _ => {
                self.budget.note_most(held);
                return Ok(());
            }
        };
        self.own.fetch_sub(bytes, Relaxed);
        self.budget.held.fetch_sub(bytes, Relaxed);
        Err(refused)
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(*self.own.get_mut(), Relaxed);
    }
}

/// Bytes that a part of a request's work holds; given back when dropped.
#[derive(Debug)]
pub struct Charge {
    reading: Reading,
    bytes: usize,
    /// `bytes` in whole steps.
    held: usize,
}

impl Charge {
    /// Grows the charge to at least `bytes` bytes in all. Fails with [`Error::ReadTooLarge`] where this request alone
    /// would hold too much, [`Error::ReadsTooLarge`] where all requests together would, and [`Error::Abandoned`] where
    /// the client is gone. The charge then stays as it was.
    pub fn grow_to(&mut self, bytes: usize) -> Result<()> {
        if bytes > self.held {
            let held = bytes.next_multiple_of(STEP_BYTES);
            self.reading.0.grow(held - self.held)?;
            self.held = held;
        }
        self.bytes = self.bytes.max(bytes);
        Ok(())
    }

    /// Grows the charge by `bytes` bytes. Fails as [`Charge::grow_to`] does.
    pub fn grow(&mut self, bytes: usize) -> Result<()> {
        self.grow_to(self.bytes + bytes)
    }

    /// Gives back all but `bytes` bytes of the charge.
    pub fn shrink_to(&mut self, bytes: usize) {
        self.bytes = self.bytes.min(bytes);
        let surplus = self.held - self.bytes.next_multiple_of(STEP_BYTES);
        self.held -= surplus;
        self.give_back(surplus);
    }

    fn give_back(&self, bytes: usize) {
        let request = &self.reading.0;
        request.own.fetch_sub(bytes, Relaxed);
        request.budget.held.fetch_sub(bytes, Relaxed);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.give_back(self.held);
    }
}

/// Reserves room for `more` elements in a vector that `charge` pays for. While the vector grows, the charge holds its
/// old and its new room. After an error the vector stays as it was.
#[inline]
pub fn reserve<T>(vector: &mut Vec<T>, more: usize, charge: &mut Charge) -> Result<()> {
    match vector.len() + more <= vector.capacity() {
        true => Ok(()),
        false => grow(vector, more, charge),
    }
}

#[cold]
fn grow<T>(vector: &mut Vec<T>, more: usize, charge: &mut Charge) -> Result<()> {
    let (old, wanted) = (vector.capacity(), vector.len() + more);
    let new = wanted.max(old + old / 2).max(8);
    let other = charge.bytes.saturating_sub(old * size_of::<T>());
    charge.grow_to(other + (old + new) * size_of::<T>())?;
    vector.reserve_exact(new - vector.len());
    charge.shrink_to(other + new * size_of::<T>());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    const LIMIT: usize = 8 << 20;

    #[test]
    fn a_request_may_hold_half_of_the_budget_and_all_together_all_of_it() {
        let budget = ReadBudget::new(LIMIT);
        let requests: Vec<_> = (0..4).map(|_| Reading::new(&budget)).collect();
        let too_large = requests[0].charge_of(LIMIT / 2).unwrap_err();
        assert!(matches!(too_large, Error::ReadTooLarge { limit } if limit == LIMIT / 2));
        let third = |reading: &Reading| reading.charge_of(LIMIT / 3);
        let held = [third(&requests[0]).unwrap(), third(&requests[1]).unwrap()];
        let all = third(&requests[2]).unwrap_err();
        assert!(matches!(all, Error::ReadsTooLarge { limit } if limit == LIMIT));
        let small = requests[3].charge_of(SMALL_BYTES / 2).unwrap();
        drop((held, small));
        assert!(third(&requests[2]).is_ok());
        assert!(budget.take_most() > 2 * LIMIT / 3);
        drop(requests);
        assert_eq!((budget.held(), budget.take_most() > 0), (0, true));
        assert_eq!(budget.take_most(), 0);
    }

    #[test]
    fn a_small_read_is_not_refused_whatever_others_hold() {
        let budget = ReadBudget::new(LIMIT);
        let others: Vec<_> = (0..3).map(|_| Reading::new(&budget)).collect();
        let mut held = Vec::new();
        for other in &others {
            while let Ok(charge) = other.charge_of(STEP_BYTES) {
                held.push(charge);
            }
        }
        let small = Reading::new(&budget);
        assert!(small.charge_of(SMALL_BYTES - EACH_BYTES).is_ok());
        assert!(small.charge_of(SMALL_BYTES).is_err());
    }

    #[test]
    fn two_charges_of_one_request_at_once_never_hold_more_than_half_of_the_budget() {
        let budget = ReadBudget::new(LIMIT);
        let reading = Reading::new(&budget);
        for _ in 0..2_000 {
            let together = Barrier::new(2);
            let charge = || {
                together.wait();
                reading.charge_of(LIMIT * 3 / 8)
            };
            let charged = thread::scope(|scope| {
                [scope.spawn(charge), scope.spawn(charge)].map(|thread| thread.join().unwrap())
            });
            assert!(charged.iter().filter(|charged| charged.is_ok()).count() <= 1);
        }
        assert_eq!(budget.held(), EACH_BYTES);
    }

    #[test]
    fn abandoned_work_ends_at_its_next_charge() {
        let budget = ReadBudget::new(LIMIT);
        let reading = Reading::new(&budget);
        let mut charge = reading.charge_of(1).unwrap();
        reading.abandon();
        assert!(matches!(charge.grow(STEP_BYTES), Err(Error::Abandoned)));
        assert!(matches!(reading.check(), Err(Error::Abandoned)));
    }

    #[test]
    fn a_vector_that_grows_holds_its_old_and_its_new_room() {
        let budget = ReadBudget::new(LIMIT);
        let reading = Reading::new(&budget);
        let (mut charge, mut numbers) = (reading.charge(), Vec::new());
        for number in 0..100_000_u64 {
            reserve(&mut numbers, 1, &mut charge).unwrap();
            numbers.push(number);
            assert!(charge.bytes >= 8 * numbers.capacity());
        }
        assert_eq!(charge.bytes, 8 * numbers.capacity());
        assert!(budget.take_most() > 8 * numbers.capacity() * 3 / 2);
    }
}
