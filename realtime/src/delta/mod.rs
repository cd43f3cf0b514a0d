//! Delta stores: what the archive does not hold yet.
//!
//! A store is memory in front of the runs it has flushed. Invariant: for every increment the log gave to this store exactly
//! one of a layer, a frozen delta or a run counts it; runs hold everything before the store's `flushed` position.

mod count;
mod flush;
mod fold;
mod layers;
mod lookups;
mod memory;
mod section;
mod store;

pub use flush::{FlushTarget, write_runs};
pub use layers::{Folding, Layers, Step};
pub use memory::Delta;
pub use section::SectionKey;
pub use store::{DeltaStore, OpenRun};
