//! The read side: one view, base buckets rolled into the units of a zone.

pub mod by;
pub mod counts;
mod request;
mod rollup;
