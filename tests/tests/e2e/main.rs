//! The whole system as its users meet it: the real binary, real HTTP, real files, real clicks.
//!
//! Nothing here waits for a fixed time. Randomness is seeded, and every failure names its seed.

// Over HTTP alone: `.ci/nightly engines` runs these against nodes of clusters, too.
mod breakdowns;
mod clicks;
mod cloud_events;
mod enrich;
mod events;
mod filters;
mod final_examples;
mod http_bodies;
mod http_connections;
mod http_errors;
mod http_reads;
mod http_writes;
mod identity;
mod minutes;
mod people;
mod positions;
mod quarters;
mod real_events;
mod reservations;
mod seen_before;
mod statsd;
mod story;
mod uniques;
mod zones;

// Files, commands, kills and clocks of one machine.
mod alerts;
mod backup;
mod broken_datasets;
mod calendar;
mod cat;
mod chance;
mod check;
mod clock;
mod commands;
mod damage;
mod datasets;
mod deletes;
mod divided;
mod erase;
mod expected;
mod export;
mod final_actions;
mod final_datasets;
mod final_faults;
mod final_ids;
mod final_numbers;
mod final_real;
mod finals_again;
mod full_disk;
mod golden;
mod history_of_days;
mod kills;
mod log_copy;
mod log_failure;
mod lost_manifest;
mod mistakes;
mod opening;
mod outputs;
mod read_only;
mod recompression;
mod recount;
mod reloads;
mod rules;
mod small_memory;
mod stop;
mod stored;
mod terminal;
mod voids;
mod what_ifs;
mod words;
