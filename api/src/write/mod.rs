//! The write side: increments and events become durable, then are answered.

mod batch;
mod client;
pub(crate) mod cloud_event;
pub(crate) mod cloud_event_rules;
pub(crate) mod consume;
pub(crate) mod event;
mod event_details;
pub(crate) mod events;
pub(crate) mod incr;
mod increment;
pub(crate) mod increments;
mod items;
mod plain;
mod refused;
pub(crate) mod rules;
pub(crate) mod statsd;
