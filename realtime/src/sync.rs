//! The locks of a store: those of the standard library or, with the feature `shuttle`, those of a scheduler that
//! tries many orders of the threads that take them (`tests/tests/schedules.rs`).

#[cfg(not(feature = "shuttle"))]
pub use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(feature = "shuttle"))]
pub use std::thread::yield_now;

#[cfg(feature = "shuttle")]
pub use shuttle::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(feature = "shuttle")]
pub use shuttle::thread::yield_now;
