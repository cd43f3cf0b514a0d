//! The write side: increments and events become durable, then are answered.

mod batch;
pub(crate) mod cloud_event;
mod event;
mod event_details;
pub mod events;
pub mod incr;
mod increment;
pub mod increments;
mod items;
mod plain;
mod refused;
pub mod rules;
pub mod statsd;
