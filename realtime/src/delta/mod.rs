//! Delta stores: the counters that the archive does not hold yet.
//!
//! A delta store is memory in front of the runs that it has flushed. Invariant: for every increment that the log gave
//! to a delta store, exactly one layer, frozen delta or run counts it. The runs hold everything before the offset
//! `flushed`.

mod actions;
mod count;
mod erased;
mod flush;
mod fold;
mod growth;
mod layers;
mod lookups;
mod memory;
mod minutes;
mod pages;
mod read;
mod section;
mod store;
mod user_days;

pub(crate) use flush::{FlushTarget, write_runs};
pub(crate) use growth::Growth;
pub(crate) use layers::{Folding, Layers, Step};
pub(crate) use memory::{Delta, Form};
pub(crate) use section::SectionKey;
pub(crate) use store::{DeltaStore, OpenRun};
pub(crate) use user_days::UserDay;
