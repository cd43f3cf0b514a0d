//! Reads of one key that are answered without the router: to find their route, and to pass boxed layers and handlers,
//! would cost half as much as the read. They pass the same steps as every other request (see [`App`](crate::App)).

use axum::http::request::Parts;
use axum::http::{Method, header};
use tallyring_records::RESERVED_NAMES;

use super::key;
use super::question::Aspect;
use super::request::ReadRequest;
use crate::access::Caller;
use crate::problem::Result;
use crate::state::ApiState;
use crate::work::Begun;

/// A read of one key, as its path says it.
pub(crate) struct Direct {
    /// The pattern of its route.
    pub pattern: &'static str,
    view: Aspect,
    namespace: String,
    key: String,
}

impl Direct {
    /// The read that this request asks for; none leaves it to the router.
    pub(crate) fn of(request: &Parts) -> Option<Self> {
        let path = request.uri.path();
        let mut segments = path.strip_prefix("/v1/")?.split('/');
        let (namespace, key) = (segments.next()?, segments.next()?);
        let (pattern, view) = match segments.next()? {
            "counts" => ("/v1/{namespace}/{key}/counts", Aspect::Counts),
            "summary" => ("/v1/{namespace}/{key}/summary", Aspect::Summary),
            _ => return None,
        };
        let is_plain = request.method == Method::GET
            && segments.next().is_none()
            && !path.contains('%')
            && !namespace.is_empty()
            && !key.is_empty()
            && !RESERVED_NAMES.contains(&namespace)
            // Pages of other origins are answered as they are allowed to.
            && !request.headers.contains_key(header::ORIGIN)
            // It may have to wait, or have a share.
            && !request.uri.query().is_some_and(|query| query.contains("after=") || query.contains("share="));
        is_plain.then(|| Self {
            pattern,
            view,
            namespace: namespace.to_owned(),
            key: key.to_owned(),
        })
    }

    /// Begins it.
    pub(crate) fn begin(self, state: &ApiState, caller: Caller, request: &Parts) -> Result<Begun> {
        let request = ReadRequest::new(state, caller, (), request);
        key::begin(request, (self.namespace, self.key), self.view)
    }
}
