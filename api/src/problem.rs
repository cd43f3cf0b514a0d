//! Errors as `application/problem+json` (RFC 9457). The detail of each is a sentence that can be read alone and says
//! what to change.

use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tallyring_realtime::{Error, ItemFault, Refusal, WrongItem};
use tallyring_records::{Fault, FieldError, short_detail, short_field};

use crate::request_id;

/// A result with an error answer, unless it names another error.
pub(crate) type Result<T, E = Problem> = std::result::Result<T, E>;

/// One error answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem(Box<Document>);

/// An error document (RFC 9457).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = Problem)]
pub(crate) struct Document {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    status: u16,
    /// The mistake, and how to mend it: the predicate alone where there is a field. An answer has the whole sentence.
    detail: String,
    /// The field it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
}

impl Problem {
    /// An error without a field.
    pub fn new(status: StatusCode, title: &'static str, detail: impl Into<String>) -> Self {
        Self(Box::new(Document {
            kind: "about:blank",
            title,
            status: status.as_u16(),
            detail: short_detail(detail),
            ..Document::default()
        }))
    }

    /// 503; `detail` says why.
    pub fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "Not available", detail)
    }

    /// 413; `detail` says what is too large, and how much the server takes.
    pub fn too_large(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "Too large", detail)
    }

    /// 400 with the field it is about.
    pub fn malformed(field: &str, value: &str, detail: impl Into<String>) -> Self {
        FieldError::malformed(field, value, detail).into()
    }

    /// 404 for a name that is not declared.
    pub fn unknown(field: &str, value: &str, detail: impl Into<String>) -> Self {
        let error = FieldError::malformed(field, value, detail);
        Self::new(StatusCode::NOT_FOUND, "Not found", error.detail).about(error.field, error.value)
    }

    /// This problem, of the item at an index (and at a line of NDJSON).
    pub fn at(mut self, index: usize, line: Option<usize>) -> Self {
        self.0.index = Some(index);
        self.0.line = line;
        self
    }

    /// This problem where there is one item only.
    pub(crate) fn of_one(mut self) -> Self {
        self.0.index = None;
        self
    }

    /// This problem of one part of a batch, other parts of which may count.
    pub(crate) fn after_others(mut self) -> Self {
        self.0.detail = short_detail(format!(
            "{}; this is about one part of the batch, and other parts may count: send all of it again with the same ids, \
             and with another Idempotency-Key where it differs",
            self.0.detail
        ));
        self
    }

    /// This problem of a field that the client calls `field`.
    pub(crate) fn named(mut self, field: String) -> Self {
        self.0.field = Some(short_field(field));
        self
    }

    pub(crate) fn status(&self) -> u16 {
        self.0.status
    }

    pub(crate) fn field(&self) -> Option<&str> {
        self.0.field.as_deref()
    }

    pub(crate) fn detail(&self) -> &str {
        &self.0.detail
    }

    /// The detail as a sentence.
    pub(crate) fn sentence(&self) -> String {
        sentence(self.field(), self.0.value.as_deref(), self.detail())
    }

    /// The document as JSON.
    pub(crate) fn json(&self) -> String {
        let document = Document {
            detail: self.sentence(),
            ..(*self.0).clone()
        };
        serde_json::to_string(&document).unwrap_or_default()
    }

    pub(crate) fn about(mut self, field: impl Into<String>, value: Option<String>) -> Self {
        self.0.field = Some(short_field(field));
        self.0.value = value;
        self
    }
}

/// First words of details that say something of their field.
const PREDICATES: [&str; 13] = [
    "asks", "cannot", "comes", "excludes", "has", "is", "keeps", "lies", "must", "needs",
    "reaches", "says", "was",
];

/// A detail as a sentence that can be read alone: with its field where it is a predicate, and with the value where the
/// detail says what the field must be.
pub(crate) fn sentence(field: Option<&str>, value: Option<&str>, detail: &str) -> String {
    let first = detail.split([' ', ',']).next().unwrap_or_default();
    let mut sentence = match field {
        Some(field) if PREDICATES.contains(&first) => format!("`{field}` {detail}"),
        _ if first.bytes().all(|byte| byte.is_ascii_lowercase()) => {
            detail[..first.len().min(1)].to_ascii_uppercase() + &detail[first.len().min(1)..]
        }
        _ => detail.to_owned(),
    };
    if let (Some(field), Some(value)) = (field, value.filter(|value| !value.is_empty()))
        && first == "must"
    {
        // The value of these is what their reader says.
        match field {
            "body" | "item" => sentence.push_str(&format!("; found: {value}")),
            _ => sentence.push_str(&format!("; got `{value}`")),
        }
    }
    if !sentence.ends_with('.') {
        sentence.push('.');
    }
    sentence
}

impl From<FieldError> for Problem {
    fn from(error: FieldError) -> Self {
        let (status, title) = match error.fault {
            Fault::Malformed => (StatusCode::BAD_REQUEST, "Malformed request"),
            Fault::Refused => (StatusCode::UNPROCESSABLE_ENTITY, "Not accepted"),
        };
        Self::new(status, title, error.detail).about(error.field, error.value)
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        Self::from(&refusal)
    }
}

impl From<&Refusal> for Problem {
    fn from(refusal: &Refusal) -> Self {
        if let Refusal::Items(wrong) = refusal
            && let Some(first) = wrong.first()
        {
            return first.into();
        }
        let detail = refusal.to_string();
        match refusal {
            Refusal::KeyReused => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Not accepted", detail)
                    .about("idempotency-key", None)
            }
            Refusal::TooLarge { .. } | Refusal::TooLargeForLog { .. } => Self::too_large(detail),
            Refusal::DiskFull => Self::new(StatusCode::INSUFFICIENT_STORAGE, "Disk full", detail),
            Refusal::Items(_)
            | Refusal::LogFull { .. }
            | Refusal::Unavailable(_)
            | Refusal::Redeclared
            | Refusal::Consumed
            | Refusal::Busy => Self::unavailable(detail),
        }
    }
}

impl From<&WrongItem> for Problem {
    fn from(item: &WrongItem) -> Self {
        let detail = item.to_string();
        let problem = match &item.fault {
            ItemFault::Overflow { field, .. } => {
                Self::new(StatusCode::CONFLICT, "Counter overflow", detail).about(field, None)
            }
            ItemFault::Sequence(wrong) => {
                let error = FieldError::malformed(wrong.field, &wrong.value, detail);
                Self::new(StatusCode::CONFLICT, "Out of order", error.detail)
                    .about(error.field, error.value)
            }
        };
        problem.at(item.index, None)
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match error {
            Error::Field(error) => error.into(),
            Error::NoGeneration { number, ref kept } => {
                let detail = match kept.is_empty() {
                    true => "must be a kept generation; none is kept yet".to_owned(),
                    false => format!("must be one of the kept generations {kept}"),
                };
                Self::unknown("as_of", &number.to_string(), detail)
            }
            Error::ManyGenerations { number } => {
                FieldError::refused("as_of", &number.to_string(), error.to_string()).into()
            }
            error => {
                let (status, title) = match &error {
                    Error::DatasetTaken(_) | Error::DatasetFinal(_) | Error::NotLost { .. } => {
                        (StatusCode::CONFLICT, "Taken")
                    }
                    Error::NoDataset { .. } | Error::NoLoad(_) => {
                        (StatusCode::NOT_FOUND, "Not found")
                    }
                    Error::ReadTooLarge { .. } => {
                        (StatusCode::UNPROCESSABLE_ENTITY, "Too much at once")
                    }
                    Error::ReadsTooLarge { .. } | Error::Abandoned => {
                        (StatusCode::SERVICE_UNAVAILABLE, "Too much at once")
                    }
                    Error::Load(_)
                    | Error::Fix(_)
                    | Error::Final(_)
                    | Error::NotFinal { .. }
                    | Error::Loaded { .. }
                    | Error::SumsOnly { .. }
                    | Error::ManyFinalDays { .. }
                    | Error::Erasures { .. }
                    | Error::Voids { .. }
                    | Error::Deletes { .. }
                    | Error::NotClosed { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "Not accepted"),
                    Error::Reconcile(_) => (StatusCode::CONFLICT, "Not possible"),
                    full if full.is_disk_full() => (StatusCode::INSUFFICIENT_STORAGE, "Disk full"),
                    other => {
                        // A read from memory has no span yet.
                        request_id::span().in_scope(|| {
                            tracing::error!(error = %other, "a request could not be answered");
                        });
                        (StatusCode::SERVICE_UNAVAILABLE, "Not available")
                    }
                };
                Self::new(status, title, error.to_string())
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (
            status,
            [(header::CONTENT_TYPE, "application/problem+json")],
            self.json(),
        )
            .into_response();
        if matches!(
            status,
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS
        ) {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// 404 for this path.
pub(crate) fn no_route(path: &str) -> Problem {
    Problem::unknown(
        "path",
        path,
        "is no route; reads are /v1/{namespace}/{key}/counts, …/summary, …/badge, …/by/{subtotal}, …/uniques, /v1/{namespace}/counts, …/top and …/keys, \
         all of them also below /v1/namespaces/{namespace}/, /v1/ratios/{ratio}/{entity}/{key}, /v1/events/{id} and /v1/query, \
         of persons /v1/actions/query, …/check, …/reserve and …/frequency, and /v1/users/lookup and …/erase, bitly's /v3/… and /v4/…, Prometheus' /api/v1/…, writes /v1/incr, \
         /v1/increments and /v1/events, operations /v1/admin/…, /healthz, /readyz and /metrics; /docs shows them all",
    )
}

/// 405 for a route of the router with another method; the router adds which it allows.
pub(crate) async fn unrouted_method(request: Request) -> Response {
    no_method(request.method())
}

/// 405 for this method.
pub(crate) fn no_method(method: &Method) -> Response {
    let detail = format!(
        "{method} is not accepted here; reads are GET, /v1/increments, /v1/events, /v1/query, /v1/actions/… and \
         /v1/users/… are POST, and a reservation is released by DELETE"
    );
    let status = StatusCode::METHOD_NOT_ALLOWED;
    Problem::new(status, "Method not allowed", detail).into_response()
}

/// 500 for a panic, which is a bug of ours.
pub(crate) fn panicked() -> Response {
    tracing::error!("a handler panicked");
    Problem::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "Internal error",
        "This is a bug of the server; the log of the server has its place.",
    )
    .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detail_is_a_sentence_that_can_be_read_alone() {
        for (field, value, detail, told) in [
            (
                Some("unit"),
                Some("x"),
                "must be `day`",
                "`unit` must be `day`; got `x`.",
            ),
            (
                Some("key"),
                Some(""),
                "must have 1 byte",
                "`key` must have 1 byte.",
            ),
            (
                Some("body"),
                Some("EOF"),
                "must be JSON",
                "`body` must be JSON; found: EOF.",
            ),
            (
                Some("n"),
                Some("1"),
                "is given twice",
                "`n` is given twice.",
            ),
            (
                Some("keys"),
                None,
                "name at least one key",
                "Name at least one key.",
            ),
            (None, None, "the disk is full", "The disk is full."),
            (None, None, "`br` is unknown", "`br` is unknown."),
            (None, None, "runs/a.run: is gone", "runs/a.run: is gone."),
            (None, None, "It is whole.", "It is whole."),
            (None, None, "", "."),
        ] {
            assert_eq!(sentence(field, value, detail), told);
        }
    }
}
