//! Answers on their way out: form, validator, and how long a cache may keep them.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use bytes::Bytes;
use serde::Serialize;
use tallyring_realtime::{Charge, View};

use super::format::Format;
use super::limits::ResponseLimits;
use super::text::{json, unwritable};
use crate::access::Length;
use crate::chart::Picture;
use crate::etag::{self, IfNoneMatch};
use crate::problem::{Problem, Result};
use crate::state::ApiState;
use crate::work::reading;

/// An answer whose range lies wholly in the archive changes only by a late count, which changes its
/// tag: a cache may keep it this long and then ask again.
const ARCHIVED: &str = "public, max-age=300";
/// An archived answer behind a key: only the client's own cache may keep it.
const ARCHIVED_PRIVATE: &str = "private, max-age=300";
/// Everything else is asked for again each time.
const LIVE: &str = "no-cache";
/// A live answer behind a key. A share is a key in an address, so that a proxy could keep the answer otherwise.
const LIVE_PRIVATE: &str = "private, no-cache";

/// A read's answer, which can go out in several forms.
pub(crate) trait Respond: Serialize + Sized {
    /// First instant behind its range, Unix seconds; unless an answer says so, it may change at any time.
    fn ends(&self) -> i64 {
        i64::MAX
    }

    /// The input of the answer's validator: the question and the counts. When the counts settle, and in
    /// which generation they are, is no part of it: equal counts are equal answers.
    fn identity(&self) -> impl Serialize;

    /// The answer as JSON.
    fn json(&self) -> Result<Vec<u8>> {
        json(self)
    }

    /// Its rows as CSV.
    fn rows(&self) -> String;

    /// Its picture; none for rankings by bucket and for lists.
    fn picture(&self, _: Picture) -> Option<String> {
        None
    }

    /// Its text in this form, which is UTF-8. Fails when it has no such form.
    fn render(&self, format: Format) -> Result<Vec<u8>> {
        match format {
            Format::Json => self.json(),
            Format::Csv => Ok(self.rows().into_bytes()),
            Format::Svg(look) => self.picture(look).map(String::into_bytes).ok_or_else(|| {
                let detail = "must be csv or json for rankings by bucket, or give `rollup=true`";
                Problem::unknown("format", "svg", detail)
            }),
        }
    }
}

/// How the answer to a read goes out.
pub(crate) struct Reply {
    pub format: Format,
    /// The answers that the client has already.
    pub cached: IfNoneMatch,
    /// The client had to show an API key.
    pub with_key: bool,
    /// The `Content-Disposition` of an answer that is kept as a file.
    pub disposition: Option<HeaderValue>,
}

impl Reply {
    /// Reads and answers off the threads that serve connections. Fails as `read` does, and with 503 where no turn comes
    /// soon.
    pub(crate) async fn answer<A: Respond>(
        self,
        state: &ApiState,
        length: Length,
        read: impl FnOnce(&View<'_>, &mut ResponseLimits) -> Result<A> + Send + 'static,
    ) -> Result<Response> {
        reading(state, length, move |reader| {
            let mut limits = ResponseLimits::new(reader.reading());
            let answer = read(reader, &mut limits)?;
            self.respond(reader, &answer, limits.charge)
        })
        .await
    }

    /// The response to a read; 304 when the client has it already. `charge` holds the memory of the text until it is
    /// sent. Fails when the answer has no such form.
    pub(crate) fn respond(
        &self,
        view: &View<'_>,
        answer: &impl Respond,
        charge: Charge,
    ) -> Result<Response> {
        view.reading().check()?;
        let identity = (self.format.identity(), answer.identity());
        let tag = tag(view, &identity)?;
        let cache = match (view.is_archived(answer.ends()), self.with_key) {
            (true, false) => ARCHIVED,
            (true, true) => ARCHIVED_PRIVATE,
            (false, false) => LIVE,
            (false, true) => LIVE_PRIVATE,
        };
        let response = if self.cached.matches(&tag) {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            view.reading().check()?;
            let body = held(answer.render(self.format)?, charge);
            in_form(self.format, self.disposition.clone(), body)
        };
        Ok(with_validator(response, tag, cache))
    }
}

/// The response to a request that no cache may answer for, with what tells a client whether it changed.
pub(super) fn respond_to_post(
    view: &View<'_>,
    (format, disposition): (Format, Option<HeaderValue>),
    identity: &impl Serialize,
    (body, charge): (Vec<u8>, Charge),
) -> Result<Response> {
    let tag = tag(view, &(format.identity(), identity))?;
    let response = in_form(format, disposition, held(body, charge));
    Ok(with_validator(response, tag, LIVE))
}

fn tag(view: &View<'_>, identity: &impl Serialize) -> Result<HeaderValue> {
    let identity = view.answer_identity(identity).map_err(unwritable)?;
    Ok(etag::numbered(identity))
}

fn with_validator(mut response: Response, tag: HeaderValue, cache: &'static str) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    headers.insert(
        header::VARY,
        HeaderValue::from_static("accept, accept-encoding, authorization, cookie, origin"),
    );
    headers.insert(header::ETAG, tag);
    response
}

/// A body under the media type of its form, and the name of what is kept as a file.
pub(crate) fn in_form(format: Format, disposition: Option<HeaderValue>, body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static(format.media_type());
    headers.insert(header::CONTENT_TYPE, kind);
    let nosniff = HeaderValue::from_static("nosniff");
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    if let Some(disposition) = disposition {
        headers.insert(header::CONTENT_DISPOSITION, disposition);
    }
    response
}

/// A text on its way to a client, and the memory that it holds until it is sent.
struct Held {
    text: Vec<u8>,
    _charge: Charge,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

/// A body that holds its memory.
pub(crate) fn held(text: Vec<u8>, mut charge: Charge) -> Body {
    charge.shrink_to(text.capacity());
    Body::from(Bytes::from_owner(Held {
        text,
        _charge: charge,
    }))
}
