//! Small questions about actions, which are answered without the router: to find the route and to pass boxed layers
//! would cost a fifth of the answer.

use axum::body::{Body, HttpBody};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Uri};

use super::{BYTES_AT_ONCE, check, query, reserve};
use crate::access::Caller;
use crate::problem::Result;
use crate::state::ApiState;
use crate::work::Begun;

/// A question that needs no router.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Direct {
    Query,
    Check,
    Reserve,
}

impl Direct {
    /// The question of a request; none where it is no small question.
    pub(crate) fn of(request: &Parts, body: &impl HttpBody) -> Option<Self> {
        let bytes = body.size_hint().exact();
        let is_small = bytes.is_some_and(|bytes| bytes <= BYTES_AT_ONCE as u64);
        if request.method != Method::POST || !is_small {
            return None;
        }
        let path = request.uri.path();
        let all = [Self::Query, Self::Check, Self::Reserve];
        all.into_iter().find(|direct| direct.path() == path)
    }

    /// The path of its route.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Query => query::PATH,
            Self::Check => check::PATH,
            Self::Reserve => reserve::PATH,
        }
    }

    /// Begins to answer, and ends that at once where memory can answer.
    pub(crate) async fn begin(
        self,
        state: &ApiState,
        caller: &Caller,
        head: (&Uri, &HeaderMap),
        body: Body,
    ) -> Result<Begun> {
        match self {
            Self::Query => query::begin(state, head, body).await,
            Self::Check => check::begin(state, head, body).await,
            Self::Reserve => reserve::begin(state, caller, head, body).await,
        }
    }
}
