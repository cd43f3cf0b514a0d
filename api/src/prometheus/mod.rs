//! Prometheus' HTTP API over the counts, for clients such as Grafana's data source.
//!
//! It answers for one metric, `tallyring_count`, in a part of PromQL. A query reads one view. Counts are exact: a range
//! takes the base buckets that start within it, and nothing is extrapolated.

mod answer;
mod counts;
mod evaluate;
mod expression;
mod keys;
pub(crate) mod labels;
mod lexer;
mod matcher;
mod parameters;
mod parser;
mod scope;
mod select;
mod steps;

pub(crate) use answer::PrometheusError;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use axum::routing::get;

use answer::{Answer, Evaluated};
use expression::Expression;
use parameters::{Form, take_instant, take_needed, take_times, take_zone};
use select::Reads;
use steps::Steps;

use crate::Routes;
use crate::access::{Caller, Length, off_thread};
use crate::calendar::Zone;
use crate::problem::Result;
use crate::query_string::QueryString;
use crate::state::ApiState;
use crate::work::reading;

/// All routes of Prometheus' API begin with this.
pub(crate) const PREFIX: &str = "/api/v1/";

/// The routes.
pub(crate) fn routes() -> Routes {
    let routes = [
        ("query", get(query).post(query)),
        ("query_range", get(query_range).post(query_range)),
        ("labels", get(labels::label_names).post(labels::label_names)),
        ("series", get(labels::series).post(labels::series)),
        ("label/{name}/values", get(labels::label_values)),
        ("metadata", get(labels::metadata)),
        ("status/buildinfo", get(labels::build)),
    ];
    routes
        .map(|(path, answer)| (format!("{PREFIX}{path}"), answer))
        .into()
}

/// Evaluate at one instant
///
/// An expression of the metric `tallyring_count{namespace, key}` and the dimensions of its namespaces as labels, in
/// a part of PromQL: `increase`, `rate`, `sum by`, `topk`, `offset`, numbers, `+ - * /` and comparisons. `increase`
/// counts exactly what lies in the base buckets that start in its range.
#[utoipa::path(get, path = "/api/v1/query", operation_id = "prometheus_query", tag = "prometheus",
    params(
        ("query" = String, Query, description = "The expression", example = "topk(3, increase(tallyring_count{namespace=\"l\"}[1d]))"),
        ("time" = Option<String>, Query, description = "Unix seconds or RFC 3339; now unless given"),
        ("timezone" = Option<String>, Query, description = "The zone whose days ranges and steps of whole days are"),
    ),
    responses((status = 200, description = "The values", body = Answer<Evaluated>, example = json!({
        "status": "success", "data": {"resultType": "vector", "result": [
            {"metric": {"key": "abc", "namespace": "l"}, "value": [1_331_923_200, "5"]},
        ]},
    }))),
)]
pub(crate) async fn query(
    State(state): State<ApiState>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let answer = async {
        let form = Form::read(&uri, &headers, body).await?;
        let (asked, instant) = Asked::read(form, state.now(), take_instant).await?;
        let at = move |asked: &mut Asked| Ok(Steps::one(instant, asked.zone.take(), asked.now));
        asked
            .answer(&state, caller, at, |value, steps| {
                Evaluated::vector(value, steps.instants[0])
            })
            .await
    };
    told(answer.await)
}

/// Evaluate at many instants
///
/// As `/api/v1/query`, at each step from `start` to `end`. With a `timezone`, steps of whole days are days of the zone,
/// and each point stands at their midnight.
#[utoipa::path(get, path = "/api/v1/query_range", operation_id = "prometheus_query_range", tag = "prometheus",
    params(
        ("query" = String, Query, description = "The expression", example = "sum(increase(tallyring_count{namespace=\"l\"}[1h]))"),
        ("start" = String, Query, description = "Unix seconds or RFC 3339", example = "1360281600"),
        ("end" = String, Query, description = "Unix seconds or RFC 3339", example = "1360350000"),
        ("step" = String, Query, description = "Seconds, or a length of time such as 1h; 11,001 points at most", example = "1h"),
        ("timezone" = Option<String>, Query, description = "The zone whose days ranges and steps of whole days are"),
    ),
    responses((status = 200, description = "The values", body = Answer<Evaluated>, example = json!({
        "status": "success", "data": {"resultType": "matrix", "result": [
            {"metric": {}, "values": [[1_331_920_800, "3"], [1_331_924_400, "5"]]},
        ]},
    }))),
)]
pub(crate) async fn query_range(
    State(state): State<ApiState>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let answer = async {
        let form = Form::read(&uri, &headers, body).await?;
        let (asked, times) = Asked::read(form, state.now(), |of, _| take_times(of)).await?;
        let at = move |asked: &mut Asked| Steps::range(times, asked.zone.take(), asked.now);
        asked
            .answer(&state, caller, at, |value, steps| {
                Evaluated::matrix(value, &steps.instants)
            })
            .await
    };
    told(answer.await)
}

/// The response, or the refusal in the form of Prometheus' API.
fn told(answer: Result<Response>) -> Response {
    answer.unwrap_or_else(|problem| PrometheusError::response(&problem))
}

/// An expression to evaluate.
struct Asked {
    expression: Expression,
    zone: Option<Zone>,
    /// The clock's time, Unix seconds.
    now: i64,
}

impl Asked {
    /// Takes an expression and its times out of a request. To make its regular expressions takes long: no thread that
    /// serves connections does it.
    async fn read<T: Send + 'static>(
        form: Form,
        now: i64,
        times: impl FnOnce(&mut QueryString<'_>, i64) -> Result<T> + Send + 'static,
    ) -> Result<(Self, T)> {
        off_thread(move || {
            let mut parameters = form.parameters()?;
            let text = take_needed(&mut parameters, "query")?;
            let expression = parser::parse("query", &text)?;
            let asked = Self {
                zone: take_zone(&mut parameters, Some(&expression))?,
                expression,
                now,
            };
            Ok((asked, times(&mut parameters, now)?))
        })
        .await
    }

    /// How long it may take: keys that are named are read by themselves.
    fn length(&self) -> Length {
        let selectors = self.expression.selectors();
        match selectors.iter().all(|selector| selector.names_few_keys()) {
            true => Length::Short,
            false => Length::Long,
        }
    }

    /// Evaluates it at some instants, and answers with the form of its value.
    async fn answer(
        mut self,
        state: &ApiState,
        caller: Caller,
        at: impl FnOnce(&mut Self) -> Result<Steps> + Send + 'static,
        form: impl FnOnce(evaluate::Value, &Steps) -> Evaluated + Send + 'static,
    ) -> Result<Response> {
        reading(state, self.length(), move |view| {
            let steps = at(&mut self)?;
            let mut reads = Reads::new(view, &caller, &steps);
            let value = reads.evaluate(&self.expression);
            caller.pay_for(reads.reads);
            let value = value?;
            select::check_series(&value)?;
            let answer = Answer::new(form(value, &steps), reads.notes);
            answer.respond(reads.charge)
        })
        .await
    }
}
