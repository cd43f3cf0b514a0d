//! The request of a read: the one extractor of all handlers of reads.

use axum::extract::FromRequestParts;
use axum::http::Uri;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::download;
use super::format::Format;
use super::question::{Aspect, Question};
use super::reply::Reply;
use crate::access::Caller;
use crate::etag::IfNoneMatch;
use crate::problem::{Problem, Result};
use crate::query_string::QueryString;
use crate::segments::Segments;
use crate::state::ApiState;

/// Parameters of every read of a range, for messages.
pub(super) const RANGE_PARAMETERS: &str = "unit, units, from, to, timezone, hour_offset, as_of, after, basis and final; pictures also take width and theme";

/// A request for counts, with the captured segments of its path.
pub(crate) struct ReadRequest<P> {
    pub state: ApiState,
    pub caller: Caller,
    pub path: P,
    pub uri: Uri,
    /// The form that the suffix or `Accept` asks for.
    pub format: Format,
    /// The clock's time, Unix seconds.
    pub now: i64,
    cached: IfNoneMatch,
}

impl<P: DeserializeOwned + Send> FromRequestParts<ApiState> for ReadRequest<P> {
    type Rejection = Problem;

    async fn from_request_parts(request: &mut Parts, state: &ApiState) -> Result<Self> {
        let Segments(path) = Segments::from_request_parts(request, state).await?;
        let caller = request.extensions.get::<Caller>().cloned();
        Ok(Self::new(state, caller.unwrap_or_default(), path, request))
    }
}

impl<P> ReadRequest<P> {
    /// The request with this head.
    pub(crate) fn new(state: &ApiState, caller: Caller, path: P, request: &Parts) -> Self {
        Self {
            now: state.now(),
            state: state.clone(),
            caller,
            path,
            format: Format::of(request.uri.path(), &request.headers),
            cached: IfNoneMatch::of(&request.headers),
            uri: request.uri.clone(),
        }
    }

    /// Takes the captured segments out.
    pub(crate) fn take_path(&mut self) -> P
    where
        P: Default,
    {
        std::mem::take(&mut self.path)
    }

    /// The parameters, without those of a picture, and the form of the answer. Fails with 400 and 422 that name the
    /// parameter.
    pub(crate) fn query(&self) -> Result<(QueryString<'_>, Format)> {
        let mut query = QueryString::parse(self.uri.query())?;
        let becomes_final = self.state.admin.final_after_hours.is_some();
        let format = self.format.drawn(&mut query, becomes_final)?;
        Ok((query, format))
    }

    /// Parses all parameters into the question about a namespace, and about a key of it where there is one. Fails as
    /// [`Question::parse`] does, and with 400 for a parameter that the view does not have.
    pub(crate) fn question(
        &self,
        of: (&str, Option<String>),
        view: Aspect,
        (mut query, format): (QueryString<'_>, Format),
    ) -> Result<(Question, Reply)> {
        let parameters = match view {
            Aspect::Counts => {
                "unit, units, from, to, timezone, hour_offset, as_of, after, basis, final, compare, filtered (not in pictures) and, for \
                 one key, where.<subtotal>; pictures also take width and theme"
            }
            Aspect::By(_) => {
                "unit, units, from, to, timezone, hour_offset, as_of, after, basis, final, limit, rollup and where.<subtotal>; \
                 pictures also take width and theme"
            }
            Aspect::Values(_) => {
                "subtotal, unit, units, from, to, timezone, hour_offset, as_of, after, basis, final and limit; pictures also take \
                 width and theme"
            }
            Aspect::Top => {
                "unit, units, from, to, timezone, hour_offset, as_of, after, basis, final and limit; pictures also take width and \
                 theme"
            }
            Aspect::Keys => {
                "prefix or contains, sort, page, limit, unit, units, from, to, timezone, hour_offset, as_of and after"
            }
            Aspect::Rising => {
                "prefix or contains, sort, compare, limit, unit, units, from, to, timezone, hour_offset, as_of and after"
            }
            Aspect::Summary => {
                "unit, units, from, to, timezone, hour_offset, as_of, after, basis, final, filtered (not in pictures) and \
                 where.<subtotal>; pictures also take width and theme"
            }
            Aspect::Users => RANGE_PARAMETERS,
        };
        let schema = self.state.store().schema();
        let question = Question::parse((&schema, self.now), of, view, format, &mut query)?;
        query.finish(parameters)?;
        Ok((question, self.reply(format)))
    }

    /// How the answer goes out in this form.
    pub(crate) fn reply(&self, format: Format) -> Reply {
        Reply {
            format,
            cached: self.cached.clone(),
            with_key: self.caller.has_key(),
            disposition: download::disposition(format, &self.uri),
        }
    }
}
