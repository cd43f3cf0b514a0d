//! Readers of input formats, shared by request bodies, `tallyring send` and `tallyring load`.
//!
//! A format is a module of functions over the bytes of whole records: they say where records end, read the fields of
//! one record, and report an error with the record that it belongs to. A reader does no I/O, knows no limits of its
//! callers and does not know what a field means, so a binary format is one more module.

pub mod csv;
pub mod field;
pub mod json;
mod lines;
mod number;
pub mod time;

pub use lines::{Line, lines};
pub use number::whole_number;
