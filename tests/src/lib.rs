//! What the tests of the whole system stand on: a disk that loses power.

pub mod sim_disk;
