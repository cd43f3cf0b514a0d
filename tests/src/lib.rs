//! The ground that the tests of the whole system stand on: a disk that loses power, an object store that loses answers,
//! the naive model, readers of any bytes.

pub mod answers;
#[cfg(feature = "api")]
pub mod api;
pub mod conformity;
#[cfg(feature = "api")]
pub mod inputs;
pub mod model;
pub mod needs;
pub mod server;
pub mod sim_disk;
pub mod sim_objects;
pub mod sim_source;
pub mod sim_topic;
