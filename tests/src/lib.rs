//! What the tests of the whole system stand on: a disk that loses power, and the naive model.

pub mod model;
pub mod server;
pub mod sim_disk;
