//! Placeholder.

pub mod calendar;
