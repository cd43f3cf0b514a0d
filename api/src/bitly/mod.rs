//! The read API of bitly, versions 3 and 4, so that its clients work with only the host changed.
//!
//! A link's hash is the key in namespace `l`, a login or a v4 group the key in `u`, a tracking domain
//! the key in `d`; countries, referrers and devices are the subtotals `c`, `r` and `v`. What the
//! configuration does not declare is not found. What was never counted answers zeros, because
//! nothing here knows which links exist.
//!
//! Not answered, because counts alone cannot say it: who shortened or shared a link, and which links
//! a user has. There v3 says `TEMPORARILY_UNAVAILABLE`, v4 404; an empty list would be untrue.
//!
//! The smallest unit counted is the hour or the quarter of one: with `unit=minute` a base bucket
//! counts in the minute it begins with, as everywhere in this API.

mod csv;
mod deprecated;
mod envelope;
mod facets;
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
pub fn routes() -> Router<ApiState> {
    v3::routes().merge(v4::routes())
}
