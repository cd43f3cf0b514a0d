//! The read side: one view, base buckets rolled into the units of a zone.

mod answer;
mod csv;
pub(crate) mod format;
pub mod key;
pub mod query;
pub(crate) mod request;
mod respond;
mod rollup;
mod svg;
pub mod top;
mod value;
