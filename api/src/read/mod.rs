//! The read side: one view, base buckets rolled into the units of a zone.

mod answer;
mod asked;
pub(crate) mod base;
mod bucket_counts;
mod csv;
pub mod direct;
mod download;
pub mod event;
pub(crate) mod format;
pub mod key;
pub mod live;
pub mod namespaces;
pub mod query;
pub mod ratio;
pub(crate) mod request;
mod respond;
mod rollup;
mod second;
mod svg;
pub mod top;
pub mod uniques;
mod value;
pub mod whole;
