//! The calendar of the read side: which buckets a request asks for, and where each begins and ends.
//!
//! A request names a [`Unit`], a [`Zone`] and a range; [`Request::resolve`] answers with [`Buckets`],
//! or with [`AllTime`] when the range depends on what was counted. Everything here is arithmetic: it
//! knows no clock (`now` is an argument), no store and no HTTP. Instants are Unix seconds as `i64`.
//!
//! Invariants, for every zone and unit:
//!
//! * Buckets partition time: each ends where the next begins, starts strictly ascend, and no instant
//!   is outside all of them or inside two.
//! * A bucket depends on its unit and zone only, never on the range that was asked for. So
//!   [`Bucket::holding`] finds for a single instant the bucket that every [`Buckets`] would list.
//! * A **day** begins at the first instant that carries its date or a later one. Where clocks jump over
//!   midnight it begins at the jump (`01:00` in São Paulo until 2018). Where they go back across
//!   midnight the hour that reads yesterday's date again belongs to the new day. A date that a zone
//!   skipped has no bucket. **Weeks** (Sunday, or Monday for `mweek`), **months, quarters** and
//!   **years** begin where the day of their first date does, or the next day that exists.
//! * An **hour** begins at every instant whose local clock reads a full hour. Each of the two hours that
//!   read the same after clocks went back is a bucket, told apart by its offset. A shift by half
//!   an hour moves the full hour, so the bucket around it lasts 90 minutes (Lord Howe, both ways) or
//!   30 (Pyongyang 2018). The alternative, to cut at the shift too, would make buckets that begin
//!   at no full hour, with labels that nobody expects.
//! * A **minute** is a UTC minute: since 2000 every offset is a whole number of minutes.

mod edges;
mod range;
mod recent;
mod rules;
mod unit;
mod zone;

#[cfg(test)]
mod tests;

pub use range::{AllTime, Bucket, Buckets, Request, Selection};
pub use rules::ZoneRules;
pub use unit::Unit;
pub use zone::{Zone, rfc3339_utc};

/// Buckets in one answer, at most.
pub const BUCKETS_MAX: usize = 10_000;

/// Buckets in an answer when the request names neither `units` nor `from`.
pub const BUCKETS_DEFAULT: i64 = 7;
