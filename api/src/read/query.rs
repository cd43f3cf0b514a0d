//! `POST /v1/query`: many reads, all from one view.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use serde_json::Value;
use tallyring_realtime::Reading;
use tallyring_records::Schema;
use tallyring_records::input::json::{self, Json};

use super::answer::Answer;
use super::answering::answer_compared;
use super::format::Format;
use super::limits::ResponseLimits;
use super::period::{check_basis, take_generation};
use super::question::{Aspect, Question, Shape};
use super::reply::{Respond, respond_to_post};
use super::{csv, download};
use crate::access::{Caller, Length, off_thread};
use crate::body;
use crate::calendar::Selection;
use crate::problem::{Problem, Result};
use crate::query_string::QueryString;
use crate::state::ApiState;
use crate::work::reading;

const QUERIES_MAX: usize = 1_000;
/// Breakdowns in one request that are not thought to take long.
const BREAKDOWNS_SHORT: usize = 8;
/// Room for so many queries of the longest keys.
const BODY_BYTES_MAX: usize = 4 << 20;
/// How many times the memory of a body its queries take.
const PARSED_TIMES: usize = 6;
const KNOWN: &str = "namespace, key, by, summary, unit, units, from, to, timezone, hour_offset, as_of, basis, final, \
    compare, limit, rollup and where.<subtotal>";

/// Answers in the order of the queries.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "describes what `to_json` writes")]
pub(crate) struct Answers {
    answers: Vec<Answer>,
}

/// The queries.
#[derive(utoipa::ToSchema)]
#[schema(example = json!({"queries": [{"namespace": "l", "key": "abc", "unit": "day", "units": 7, "by": "c"}]}))]
#[expect(dead_code, reason = "describes a body, which is parsed by hand")]
pub(crate) struct Queries {
    /// 1 to 1,000
    queries: Vec<Query>,
}

/// One query: the parameters of a single read as fields. `by` asks for a breakdown, `summary` for the total only.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "describes a body, which is parsed by hand")]
pub(crate) struct Query {
    namespace: String,
    key: String,
    /// A subtotal to break the key down by
    by: Option<String>,
    /// True for the total without the buckets
    summary: Option<bool>,
    unit: Option<String>,
    units: Option<i64>,
    from: Option<String>,
    to: Option<String>,
    timezone: Option<String>,
    hour_offset: Option<f64>,
    /// Reads a kept generation as it was
    as_of: Option<u64>,
    /// `final` reads the books of final days
    basis: Option<String>,
    /// Reads this final version of each day
    r#final: Option<u32>,
    /// An earlier period, with which counts are compared: `before`, `weekdays` or `year`
    compare: Option<String>,
    /// Only what was counted with this value of the subtotal `c`; likewise where.r and every declared one
    #[schema(rename = "where.c")]
    only: Option<String>,
    limit: Option<u32>,
    rollup: Option<bool>,
}

/// Many reads at once
///
/// Answers in the order of the queries, all from one view, with an `ETag` that changes with what was counted. Also as
/// `/query.csv`, or by `Accept`: one table, whose rows begin with the number of their query, from 0.
#[utoipa::path(post, path = "/v1/query", tag = "read",
    params(("as_of" = Option<u64>, Query, description = "Reads a kept generation as it was, for every query that names none itself")),
    request_body = Queries,
    responses((status = 200, description = "The answers", body = Answers, example = json!({"answers": [{
        "namespace": "l", "key": "abc", "unit": "day", "timezone": "UTC",
        "from": "2012-03-16T00:00:00+00:00", "to": "2012-03-17T00:00:00+00:00", "aligned": true, "state": "live",
        "settled_until": "2012-03-16T18:30:00Z", "final_until": null, "generation": 3, "total": 5,
        "counts": [{"start": "2012-03-16T00:00:00+00:00", "count": 5}],
    }]}))),
)]
pub(crate) async fn query(
    State(state): State<ApiState>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response> {
    let format = match Format::of(uri.path(), &headers) {
        Format::Csv => Format::Csv,
        // Nothing is drawn of many answers.
        Format::Json | Format::Svg(_) => Format::Json,
    };
    let disposition = download::disposition(format, &uri);
    let mut parameters = QueryString::parse(uri.query())?;
    let as_of = take_generation(&mut parameters)?;
    parameters.finish("as_of and after")?;
    let bytes = body::read(&headers, body, BODY_BYTES_MAX).await?;
    let batch = Batch {
        schema: state.store().schema(),
        now: state.now(),
        as_of,
        format,
    };
    // The memory of the questions is charged again when they are answered.
    let parsing = Reading::new(state.store().read_budget());
    // To find where buckets begin takes long: no thread that serves connections does it.
    let questions = off_thread(move || batch.questions(&caller, &bytes, &parsing)).await?;
    reading(&state, length(&questions), move |reader| {
        let mut limits = ResponseLimits::new(reader.reading());
        let answers = answer_compared(reader, questions, &mut limits);
        let answers = answers.map_err(|(index, problem)| problem.at(index, None))?;
        let identity: Vec<_> = answers.iter().map(Respond::identity).collect();
        let text = match format {
            Format::Csv => csv::render_all(&answers).into_bytes(),
            Format::Json | Format::Svg(_) => to_json(&answers)?,
        };
        let form = (format, disposition);
        respond_to_post(reader, form, &identity, (text, limits.charge))
    })
    .await
}

/// Many breakdowns take long: each may have any number of values.
fn length(questions: &[Question]) -> Length {
    let breakdowns = questions
        .iter()
        .filter(|question| matches!(question.shape, Shape::By { .. }) || question.only.is_some());
    match breakdowns.count() > BREAKDOWNS_SHORT {
        true => Length::Long,
        false => Length::Short,
    }
}

fn to_json(answers: &[Answer]) -> Result<Vec<u8>> {
    // A text that grows is copied again and again, and large blocks of memory are cleared by the system first.
    let bytes: usize = answers.iter().map(Answer::json_bytes).sum();
    let mut text = Vec::with_capacity(bytes + 16);
    text.extend_from_slice(br#"{"answers":["#);
    for (index, answer) in answers.iter().enumerate() {
        if index > 0 {
            text.push(b',');
        }
        answer.write_json(&mut text)?;
    }
    text.extend_from_slice(b"]}");
    Ok(text)
}

/// The facts that all queries of a body have in common.
struct Batch {
    schema: Arc<Schema>,
    /// The clock's time, Unix seconds.
    now: i64,
    /// The kept generation for every query that names none itself.
    as_of: Option<u64>,
    format: Format,
}

impl Batch {
    /// Parses the queries of a body, up to the one with which they have too many buckets.
    fn questions(&self, caller: &Caller, bytes: &[u8], reading: &Reading) -> Result<Vec<Question>> {
        let _parsed = reading.charge_of(PARSED_TIMES * bytes.len())?;
        let queries = queries(bytes)?;
        caller.pay_for(queries.len());
        let mut questions = Vec::with_capacity(queries.len());
        let mut limits = ResponseLimits::new(reading);
        for (index, fields) in queries.into_iter().enumerate() {
            let question = self.question(fields).and_then(|question| {
                caller.check_namespace(&question.namespace)?;
                if let Selection::Bounded(buckets) = &question.period.selection {
                    limits.take_buckets(buckets.count(), &question.shape)?;
                }
                Ok(question)
            });
            questions.push(question.map_err(|problem| problem.at(index, None))?);
        }
        Ok(questions)
    }

    /// A query's fields are the parameters of the single reads.
    fn question(&self, query: Json<'_>) -> Result<Question> {
        let Json::Object(mut fields) = query else {
            let detail = "must be an object";
            return Err(Problem::malformed("query", &query.into_text(), detail));
        };
        let namespace = text(&mut fields, "namespace")?;
        let key = text(&mut fields, "key")?.into_owned();
        let view = view(&mut fields)?;
        let mut parameters =
            QueryString::of(fields.into_iter().filter_map(|(name, value)| match value {
                Json::Other(Value::Null) => None,
                Json::Text(text) => Some((name, text)),
                other => Some((name, other.into_text().into())),
            }));
        let mut question = Question::parse(
            (&self.schema, self.now),
            (&namespace, Some(key)),
            view,
            self.format,
            &mut parameters,
        )?;
        parameters.finish(KNOWN)?;
        if question.filtered.is_some() {
            let detail = "must be left out of a query: ask a further query about the namespace of filtered events, such as `l~`";
            return Err(Problem::malformed("filtered", "true", detail));
        }
        if let Some((comparison, _)) = question
            .before
            .as_ref()
            .filter(|_| self.format == Format::Csv)
        {
            let detail = "must be left out of a table of many queries: ask for JSON, or for counts.csv of each key";
            return Err(Problem::malformed("compare", comparison.as_str(), detail));
        }
        let period = &mut question.period;
        period.as_of = period.as_of.or(self.as_of);
        check_basis(period.basis, period.as_of)?;
        Ok(question)
    }
}

fn queries(bytes: &[u8]) -> Result<Vec<Json<'_>>> {
    let expected = "must be JSON such as {\"queries\":[{\"namespace\":\"l\",\"key\":\"abc\"}]}";
    let body = json::parse_borrowed(bytes)
        .map_err(|error| Problem::malformed("body", &error.to_string(), expected))?;
    let Json::Object(mut fields) = body else {
        return Err(Problem::malformed("body", "", expected));
    };
    let Some(Json::List(queries)) = fields.remove("queries") else {
        return Err(Problem::malformed("queries", "", expected));
    };
    if let Some((name, value)) = fields.into_iter().next() {
        let detail = "is not a field here; use queries, and in each of them the fields of a query";
        return Err(Problem::malformed(&name, &value.into_text(), detail));
    }
    let detail = match queries.len() {
        0 => {
            "must have at least one query, such as {\"namespace\":\"l\",\"key\":\"abc\"}".to_owned()
        }
        1..=QUERIES_MAX => return Ok(queries),
        many => {
            let detail = format!(
                "The list has {many} queries; at most {QUERIES_MAX} are answered at once, ask in parts."
            );
            return Err(Problem::too_large(detail));
        }
    };
    Err(Problem::malformed("queries", "0", detail))
}

/// Fields of a query, by name.
type Fields<'b> = BTreeMap<Cow<'b, str>, Json<'b>>;

/// `by` asks for a breakdown, `summary` for the total only; else every bucket is listed.
fn view(fields: &mut Fields<'_>) -> Result<Aspect> {
    let is_summary = match fields.remove("summary") {
        None | Some(Json::Other(Value::Null | Value::Bool(false))) => false,
        Some(Json::Other(Value::Bool(true))) => true,
        Some(other) => {
            let detail = "must be true or false";
            return Err(Problem::malformed("summary", &other.into_text(), detail));
        }
    };
    match fields.remove("by") {
        None | Some(Json::Other(Value::Null)) if is_summary => Ok(Aspect::Summary),
        None | Some(Json::Other(Value::Null)) => Ok(Aspect::Counts),
        Some(Json::Text(_)) if is_summary => {
            let detail = "excludes `by`; give one of them";
            Err(Problem::malformed("summary", "true", detail))
        }
        Some(Json::Text(subtotal)) => Ok(Aspect::By(subtotal.into_owned())),
        Some(other) => {
            let detail = "must be the name of a subtotal";
            Err(Problem::malformed("by", &other.into_text(), detail))
        }
    }
}

fn text<'b>(fields: &mut Fields<'b>, name: &str) -> Result<Cow<'b, str>> {
    match fields.remove(name) {
        Some(Json::Text(text)) => Ok(text),
        Some(other) => Err(Problem::malformed(
            name,
            &other.into_text(),
            "must be a text",
        )),
        None => Err(Problem::malformed(name, "", "is missing")),
    }
}
