//! Laws that all implementors of one interface hold: each suite is run over every one of them.

pub mod blobs;
pub mod logs;
