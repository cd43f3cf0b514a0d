//! The write side: increments become durable, then are answered.

pub mod incr;
pub mod increments;
mod item;
