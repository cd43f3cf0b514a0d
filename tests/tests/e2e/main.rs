//! The whole system as its users meet it: the real binary, real HTTP, real files, real clicks.
//!
//! Nothing here waits for a fixed time. Randomness is seeded, and every failure names its seed.

mod backup;
mod breakdowns;
mod calendar;
mod cat;
mod chance;
mod check;
mod clicks;
mod clock;
mod cloud_events;
mod commands;
mod damage;
mod datasets;
mod events;
mod expected;
mod filters;
mod full_disk;
mod golden;
mod http_bodies;
mod http_connections;
mod http_errors;
mod http_reads;
mod http_writes;
mod identity;
mod kills;
mod log_copy;
mod log_failure;
mod lost_manifest;
mod minutes;
mod mistakes;
mod opening;
mod outputs;
mod quarters;
mod real_events;
mod recompression;
mod recount;
mod small_memory;
mod statsd;
mod stop;
mod stored;
mod story;
mod terminal;
mod uniques;
mod words;
mod zones;
