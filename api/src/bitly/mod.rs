//! The read API of bitly, versions 3 and 4, so that its clients work with only the host changed.
//!
//! A link's hash is the key in namespace `l`, a login or a v4 group the key in `u`, a tracking domain the key in `d`;
//! countries, referrers and devices are the subtotals `c`, `r` and `v`. A namespace that the configuration does not
//! declare is not found. A key that was never counted answers zeros, because nothing here knows which links exist.
//!
//! Things that happen at bitly and never here have no counts: nothing was shortened or shared through
//! this server, nothing but clicks is an engagement, every link was made by one user. Cities and the
//! management of links are not served: version 3 says `UNKNOWN`, version 4 404.
//!
//! Which base buckets are read is the same rule as everywhere (`read/base.rs`): where minutes are kept days of
//! half-hour zones are exact, elsewhere hours count where they start, and these answers have no field that says so.
//! Hours answer for minutes that are not kept, and say so.

mod answer;
mod csv;
mod deprecated;
mod facets;
mod links;
mod referrers;
mod series;
mod source;
mod v3;
mod v4;

#[cfg(test)]
mod tests;

use axum::Router;

use crate::state::ApiState;

/// All routes of both versions.
pub(crate) fn routes() -> Router<ApiState> {
    v3::routes(deprecated::routes()).merge(v4::routes())
}
