//! The rebuild: closed delta stores become source runs, and source runs become a generation.
//!
//! A rebuild reads the files that a manifest names, and writes new files beside them. Nothing counts until the holder
//! of the lock publishes the returned [`Build`](tallyring_archive::Build). So a rebuild can run in a child process of
//! low priority or on another node, fail alone, and be repeated. This crate knows nothing of the content of the log, of
//! memory, or of HTTP.

pub mod backup;
mod closed;
mod erase;
mod export;
mod generation;
mod horizon;
pub mod load;
mod months;
pub mod orders;
mod plan;
mod progress;
mod recompress;
mod remake;
mod repair;
mod rows;
pub mod share;

pub use closed::first_open_year;
pub use generation::{BuildOptions, REWRITE_BYTES_MIN, build};
pub use months::{Months, months};
pub use progress::Progress;
pub use recompress::{recompress, recompressible};
pub use remake::remake;
pub use repair::{Healed, heal, heal_segment};
pub use rows::{CountRow, EachRow, count_rows};
