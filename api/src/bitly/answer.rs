//! How each version says what went well and what did not.
//!
//! Version 3 answers with status 200 always and puts the real one into the body: a client library
//! of that time takes any other for a broken connection. Version 4 uses statuses.

use axum::Json;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tallyring_records::COUNT_MAX;

use crate::envelope::{self, FRESH};
use crate::problem::Problem;

/// Version 4 writes what `Accept` asks for.
const BY_ACCEPT: [(HeaderName, &str); 1] = [(header::VARY, "accept, accept-encoding")];

/// Says of version 3's `format=txt` what `overflow` says of an answer with fields.
const OVERFLOW: HeaderName = HeaderName::from_static("tallyring-overflow");

/// Says of text and CSV what `note` says of an answer with fields.
const NOTE: HeaderName = HeaderName::from_static("tallyring-note");

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// A parameter that must be given.
    Missing(&'static str),
    /// A parameter whose value cannot be used.
    Invalid(String),
    /// The configuration does not count this.
    NotFound,
    /// More is asked for than one answer is made of, however often.
    TooMuch,
    /// No such endpoint.
    Unknown,
    /// Not known here, or not readable now.
    Unavailable,
}

/// A body that is not an error.
#[derive(Debug)]
pub(super) enum Body {
    /// Version 3's `data`, or all of version 4's answer.
    Json(Value),
    /// Version 3's `format=txt`: a number, and the note of its window.
    Text(u64, Option<&'static str>),
    /// Version 4's `text/csv`, and the note of its window.
    Csv(String, Option<&'static str>),
}

impl Fault {
    /// A parameter whose value cannot be used.
    pub(super) fn invalid(parameter: &str) -> Self {
        Self::Invalid(parameter.to_owned())
    }

    /// Why the store did not answer: what it refuses is refused again, so it is not to be tried again.
    pub(super) fn of_read(problem: &Problem) -> Self {
        match problem.status() {
            400..500 => Self::TooMuch,
            _ => Self::Unavailable,
        }
    }

    fn message(&self) -> String {
        match self {
            Self::Missing(parameter) => format!("MISSING_ARG_{}", parameter.to_uppercase()),
            Self::Invalid(parameter) => format!("INVALID_ARG_{}", parameter.to_uppercase()),
            Self::NotFound => "NOT_FOUND".to_owned(),
            Self::TooMuch => "TOO_MANY_VALUES".to_owned(),
            Self::Unknown => "UNKNOWN".to_owned(),
            Self::Unavailable => "TEMPORARILY_UNAVAILABLE".to_owned(),
        }
    }
}

impl From<Problem> for Fault {
    /// A parameter that the shared parsing refused.
    fn from(problem: Problem) -> Self {
        Self::invalid(problem.field().unwrap_or("query"))
    }
}

/// Version 3: status 200, and the envelope, as XML when the query says so.
pub(super) fn v3(query: Option<&str>, answer: Result<Body, Fault>) -> Response {
    let (status, text, data) = match answer {
        Ok(Body::Text(number, note)) => {
            let mut response = (FRESH, noted(note), format!("{number}\n")).into_response();
            if number == COUNT_MAX {
                let one = HeaderValue::from_static("1");
                response.headers_mut().insert(OVERFLOW, one);
            }
            return response;
        }
        Ok(Body::Csv(text, note)) => return (FRESH, noted(note), text).into_response(),
        Ok(Body::Json(data)) => (200, "OK".to_owned(), marked(data)),
        Err(fault) => {
            let status = match fault {
                Fault::Missing(_) | Fault::Invalid(_) | Fault::TooMuch => 500,
                Fault::NotFound | Fault::Unknown => 404,
                Fault::Unavailable => 503,
            };
            (status, fault.message(), Value::Null)
        }
    };
    envelope::wrapped(query, status, &text, data)
}

/// Version 4: the status says it, the body which field of which `resource`.
pub(super) fn v4(resource: &str, answer: Result<Body, Fault>) -> Response {
    let fault = match answer {
        Ok(Body::Json(body)) => {
            return (FRESH, BY_ACCEPT, Json(marked(body))).into_response();
        }
        Ok(Body::Text(number, note)) => {
            return (FRESH, noted(note), format!("{number}\n")).into_response();
        }
        Ok(Body::Csv(text, note)) => {
            let kind = [(header::CONTENT_TYPE, "text/csv; charset=utf-8")];
            return (FRESH, BY_ACCEPT, kind, noted(note), text).into_response();
        }
        // One word serves both here.
        Err(Fault::Unknown) => Fault::NotFound,
        Err(fault) => fault,
    };
    let mut body = json!({"message": fault.message(), "resource": resource});
    let (status, description) = match &fault {
        Fault::Missing(_) | Fault::Invalid(_) => {
            (StatusCode::BAD_REQUEST, "The value provided is invalid.")
        }
        Fault::TooMuch => (
            StatusCode::BAD_REQUEST,
            "There are too many values to be read at once; ask for fewer units.",
        ),
        Fault::NotFound | Fault::Unknown => (
            StatusCode::NOT_FOUND,
            "What you are looking for cannot be found.",
        ),
        Fault::Unavailable => (
            StatusCode::SERVICE_UNAVAILABLE,
            "The counts cannot be read at the moment; try again.",
        ),
    };
    body["description"] = description.into();
    match fault {
        Fault::Missing(field) => body["errors"] = errors(field, "missing"),
        Fault::Invalid(field) => body["errors"] = errors(&field, "invalid"),
        Fault::TooMuch => body["errors"] = errors("units", "invalid"),
        Fault::NotFound | Fault::Unknown | Fault::Unavailable => {}
    }
    let mut response = (status, Json(body)).into_response();
    if status == StatusCode::SERVICE_UNAVAILABLE {
        let second = header::HeaderValue::from_static("1");
        response.headers_mut().insert(header::RETRY_AFTER, second);
    }
    response
}

fn noted(note: Option<&'static str>) -> HeaderMap {
    let note = note.map(|note| (NOTE, HeaderValue::from_static(note)));
    note.into_iter().collect()
}

fn errors(field: &str, code: &str) -> Value {
    json!([{"field": field, "error_code": code}])
}

/// An answer that says `"overflow": true` where one of its numbers reached 2^53−1, up to which is counted: it may be
/// more. No other number of an answer is as large.
fn marked(mut answer: Value) -> Value {
    if reaches_most(&answer)
        && let Some(fields) = answer.as_object_mut()
    {
        fields.insert("overflow".to_owned(), true.into());
    }
    answer
}

fn reaches_most(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_u64() == Some(COUNT_MAX),
        Value::Array(values) => values.iter().any(reaches_most),
        Value::Object(fields) => fields.values().any(reaches_most),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_for_good_is_not_to_be_tried_again() {
        for (status, fault, answered) in [
            (StatusCode::UNPROCESSABLE_ENTITY, Fault::TooMuch, 400_u16),
            (StatusCode::SERVICE_UNAVAILABLE, Fault::Unavailable, 503),
        ] {
            let found = Fault::of_read(&Problem::new(status, "", ""));
            assert_eq!(found, fault);
            let answer = v4("bitlinks", Err(found));
            assert_eq!(answer.status(), answered);
            let waits = answer.headers().contains_key(header::RETRY_AFTER);
            assert_eq!(waits, answered == 503);
        }
    }
}
