//! Answers in the form of Prometheus' API.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Serialize, Serializer};
use tallyring_realtime::Charge;

use super::evaluate::Value;
use super::select::{Labels, Notes, Series};
use crate::problem::{Problem, Result};
use crate::read::reply::held;
use crate::read::text::json;

/// An answer.
#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct Answer<T> {
    status: &'static str,
    data: T,
    /// Parts that the answer lacks
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>)]
    warnings: BTreeSet<String>,
    /// Parts that are coarser than was asked
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>)]
    infos: BTreeSet<String>,
}

/// A refusal, in the form of Prometheus' API
#[derive(Serialize, utoipa::ToSchema)]
#[schema(example = json!({
    "status": "error", "errorType": "bad_data",
    "error": "`query` cannot be read at character 8: expected there is `)`.",
}))]
pub(crate) struct PrometheusError {
    status: &'static str,
    #[serde(rename = "errorType")]
    kind: &'static str,
    error: String,
}

/// The values of a query.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Evaluated {
    /// `matrix`, `vector` or `scalar`
    result_type: &'static str,
    #[schema(value_type = Vec<serde_json::Value>)]
    result: Evaluation,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Evaluation {
    Matrix(Vec<Points>),
    Vector(Vec<Point>),
    Scalar(Sample),
}

#[derive(Serialize)]
struct Points {
    metric: Labels,
    values: Vec<Sample>,
}

#[derive(Serialize)]
struct Point {
    metric: Labels,
    value: Sample,
}

/// An instant in Unix milliseconds, and a value.
struct Sample(i64, f64);

impl<T: Serialize> Answer<T> {
    pub(super) fn new(data: T, notes: Notes) -> Self {
        Self {
            status: "success",
            data,
            warnings: notes.warnings,
            infos: notes.infos,
        }
    }

    /// The response, which holds its memory until it is sent.
    pub(super) fn respond(&self, charge: Charge) -> Result<Response> {
        Ok(in_json(StatusCode::OK, held(json(self)?, charge)))
    }
}

impl Evaluated {
    /// A series of points for each series.
    pub(super) fn matrix(value: Value, instants: &[i64]) -> Self {
        let series = match value {
            Value::Series(series) => series,
            Value::Scalar(number) => vec![Series {
                labels: Labels::new(),
                values: vec![Some(number); instants.len()],
            }],
        };
        let points = |Series { labels, values }: Series| {
            let values = instants.iter().zip(values);
            let values = values.filter_map(|(instant, value)| Some(Sample(*instant, value?)));
            Points {
                metric: labels,
                values: values.collect(),
            }
        };
        let points = series.into_iter().map(points);
        Self {
            result_type: "matrix",
            result: Evaluation::Matrix(points.filter(|of| !of.values.is_empty()).collect()),
        }
    }

    /// The values at one instant.
    pub(super) fn vector(value: Value, instant: i64) -> Self {
        let series = match value {
            Value::Series(series) => series,
            Value::Scalar(number) => {
                return Self {
                    result_type: "scalar",
                    result: Evaluation::Scalar(Sample(instant, number)),
                };
            }
        };
        let point = |Series { labels, values }: Series| {
            let value = values.first().copied().flatten()?;
            Some(Point {
                metric: labels,
                value: Sample(instant, value),
            })
        };
        Self {
            result_type: "vector",
            result: Evaluation::Vector(series.into_iter().filter_map(point).collect()),
        }
    }
}

impl Serialize for Sample {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(instant, value) = *self;
        let text = match value {
            f64::INFINITY => "+Inf".to_owned(),
            f64::NEG_INFINITY => "-Inf".to_owned(),
            // Prometheus writes very large and very small numbers with an exponent, and others with all digits.
            value if value != 0.0 && !(1e-6..1e21).contains(&value.abs()) => format!("{value:e}"),
            value => value.to_string(),
        };
        match instant % 1_000 {
            0 => (instant / 1_000, text).serialize(serializer),
            _ => (instant as f64 / 1_000.0, text).serialize(serializer),
        }
    }
}

impl PrometheusError {
    /// The response that says a problem in the words of Prometheus' API, with the status of the problem.
    pub(crate) fn response(problem: &Problem) -> Response {
        let status = problem.status();
        let kind = match status {
            401 => "unauthorized",
            403 => "forbidden",
            404 => "not_found",
            408 => "timeout",
            413 | 422 => "execution",
            429 | 503 => "unavailable",
            500..=599 => "internal",
            _ => "bad_data",
        };
        let error = Self {
            status: "error",
            kind,
            error: problem.sentence(),
        };
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let text = serde_json::to_vec(&error).unwrap_or_default();
        let mut response = in_json(status, Body::from(text));
        // A problem says this besides its text.
        let told = problem.clone().into_response();
        if let Some(seconds) = told.headers().get(header::RETRY_AFTER) {
            let headers = response.headers_mut();
            headers.insert(header::RETRY_AFTER, seconds.clone());
        }
        response
    }
}

fn in_json(status: StatusCode, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static("application/json");
    headers.insert(header::CONTENT_TYPE, kind);
    let nosniff = HeaderValue::from_static("nosniff");
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    let cache = HeaderValue::from_static("no-cache");
    headers.insert(header::CACHE_CONTROL, cache);
    response
}
