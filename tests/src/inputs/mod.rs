//! Readers of bytes that come from a disk or a network: each takes any bytes, and panics only where something is wrong.
//!
//! `ops/fuzz/inputs.sh` drives the readers by a fuzzer from the seeds in `tests/fuzz/seeds`. `tests/tests/inputs.rs`
//! reads those seeds, and what a little harm makes of them, in every run of the tests; a reader must understand every
//! seed whose name does not begin with `bad-`.

pub mod bulk;
pub mod http;
pub mod line;
pub mod log_record;
pub mod manifest;
pub mod oplog;
pub mod run;
pub mod time_code;

/// A reader: succeeds where it understands the bytes, and says else why it refuses them.
pub type Reads = fn(&[u8]) -> Result<(), String>;

/// Every reader, by the name of its seeds.
pub const ALL: [(&str, Reads); 8] = [
    ("bulk", bulk::read),
    ("http", http::read),
    ("line", line::read),
    ("log_record", log_record::read),
    ("manifest", manifest::read),
    ("oplog", oplog::read),
    ("run", run::read),
    ("time_code", time_code::read),
];
