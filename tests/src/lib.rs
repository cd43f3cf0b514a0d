//! The ground that the tests of the whole system stand on: a disk that loses power, the naive model, readers of any
//! bytes.

pub mod inputs;
pub mod model;
pub mod needs;
pub mod server;
pub mod sim_disk;
