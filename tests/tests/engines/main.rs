//! Real engines do what the simulated ones do. The environment names them; a test without its engine says that it is
//! skipped.
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

mod kafka;
mod kafka_in;
mod out;
mod s3;
mod secure;
