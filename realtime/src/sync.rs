//! The locks, threads and channels of a store: those of libraries or, with the feature `shuttle`, those of a scheduler
//! that tries many orders of the threads (`tests/tests/schedules.rs`).

#[cfg(not(feature = "shuttle"))]
pub(crate) use self::libraries::*;
#[cfg(feature = "shuttle")]
pub(crate) use self::scheduled::*;

#[cfg(not(feature = "shuttle"))]
mod libraries {
    pub(crate) use std::sync::mpsc::{channel, sync_channel};
    pub(crate) use std::sync::{Mutex, MutexGuard};
    pub(crate) use std::thread::scope;

    pub(crate) use parking_lot::{RwLock, RwLockWriteGuard};

    /// Gives the lock to the threads that wait for it before its holder can take it again. A holder that takes the lock
    /// again at once would otherwise keep out a thread that has to wake up first.
    pub(crate) fn give_way<T>(held: RwLockWriteGuard<'_, T>) {
        RwLockWriteGuard::unlock_fair(held);
    }
}

#[cfg(feature = "shuttle")]
mod scheduled {
    use std::sync::PoisonError;

    use shuttle::sync::RwLockReadGuard;
    pub(crate) use shuttle::sync::mpsc::{channel, sync_channel};
    pub(crate) use shuttle::sync::{Mutex, MutexGuard, RwLockWriteGuard};
    pub(crate) use shuttle::thread::scope;

    pub(crate) struct RwLock<T>(shuttle::sync::RwLock<T>);

    impl<T> RwLock<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::RwLock::new(value))
        }

        pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0.read().unwrap_or_else(PoisonError::into_inner)
        }

        pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().unwrap_or_else(PoisonError::into_inner)
        }
    }

    pub(crate) fn give_way<T>(held: RwLockWriteGuard<'_, T>) {
        drop(held);
        shuttle::thread::yield_now();
    }
}
