//! Delta stores: what the archive does not hold yet.
//!
//! A store is a memory delta in front of the runs it has flushed. Invariant: for every increment the
//! log gave to this store exactly one of the active delta, what is arriving in it, a frozen delta or a
//! run counts it; runs hold everything before the store's `flushed` position.

mod count;
mod flush;
mod fold;
mod lookups;
mod memory;
mod section;
mod store;

pub use flush::{FlushTarget, write_runs};
pub use fold::Fold;
pub use memory::Delta;
pub use store::{DeltaStore, OpenRun};
