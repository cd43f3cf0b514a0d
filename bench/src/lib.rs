//! The made-up world of `tallyring demo`: its history as a bulk file, and its traffic as requests.
//!
//! The benchmarks are the program of this crate, `tallyring-bench`. The library knows the forms of bulk files and of
//! request bodies, and does not know stores, servers or how requests travel.

mod chance;
mod history;
mod sightings;
mod traffic;
mod world;

pub use chance::Chance;
pub use history::write_history;
pub use sightings::Sightings;
pub use traffic::Traffic;
pub use world::World;
