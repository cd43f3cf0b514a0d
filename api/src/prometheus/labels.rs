//! Labels, their values, series, and the server itself: all that may be asked besides counts.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use serde::Serialize;
use tallyring_realtime::View;
use tallyring_records::{Namespace, TIME_MAX, TIME_MIN};

use super::answer::Answer;
use super::expression::{METRIC, Measure, Selector};
use super::keys::KeyPlan;
use super::matcher::Matcher;
use super::parameters::{Form, take_time};
use super::parser::{MATCHERS_MAX, parse_selector};
use super::select::{Labels, Notes, OWN_LABELS, Reads, SERIES_MAX, Series, Wanted};
use super::steps::Steps;
use super::told;
use crate::access::{Caller, Length, off_thread};
use crate::problem::{Problem, Result};
use crate::query_string::QueryString;
use crate::segments::Segments;
use crate::state::ApiState;
use crate::work::reading;

/// The version of Prometheus' API by which clients know what they may ask: label values take selectors since.
const API_VERSION: &str = "2.24.0";

/// Labels of the counts of a namespace.
struct Asked {
    /// The matchers of each selector; one without any where none is given.
    selectors: Vec<Vec<Matcher>>,
    /// Unix seconds.
    range: Range<i64>,
    limit: usize,
}

/// The build, as far as clients ask
#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct Build {
    /// The version of Prometheus' API
    version: &'static str,
    application: String,
}

/// A metric
#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct Metadata {
    #[serde(rename = "type")]
    kind: &'static str,
    help: &'static str,
    unit: &'static str,
}

/// Labels
///
/// The labels of the series that the key may read: those of every series, and the dimensions of namespaces.
#[utoipa::path(get, path = "/api/v1/labels", operation_id = "prometheus_labels", tag = "prometheus",
    params(("match[]" = Option<String>, Query, description = "A selector; may be given several times")),
    responses((status = 200, description = "The labels", body = Answer<Vec<String>>, example = json!({
        "status": "success", "data": ["__name__", "c", "key", "namespace", "r", "v"],
    }))),
)]
pub(crate) async fn label_names(
    State(state): State<ApiState>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let request = (&state, caller, &uri, &headers);
    told(
        answer(request, body, Length::Short, |reads, asked| {
            let mut labels = BTreeSet::new();
            for matchers in asked.selectors {
                for name in reads.visible(&matchers) {
                    labels.extend(["__name__", "key", "namespace"].map(str::to_owned));
                    labels.extend(dimensions(namespace(reads.view, &name)));
                }
            }
            Ok(labels)
        })
        .await,
    )
}

/// Values of a label
///
/// Namespaces, and of namespaces keys: those that a selector searches (`key=~"ab.*"`), or the heaviest of the range.
/// Where there are more than `limit`, a warning says so.
#[utoipa::path(get, path = "/api/v1/label/{name}/values", operation_id = "prometheus_label_values", tag = "prometheus",
    params(
        ("name" = String, Path, description = "A label", example = "key"),
        ("match[]" = Option<String>, Query, description = "A selector; may be given several times", example = "tallyring_count{namespace=\"l\"}"),
        ("start" = Option<String>, Query, description = "Unix seconds or RFC 3339; the beginning unless given"),
        ("end" = Option<String>, Query, description = "Unix seconds or RFC 3339; now unless given"),
        ("limit" = Option<u32>, Query, description = "How many, 1,000 at most and unless given"),
    ),
    responses((status = 200, description = "The values", body = Answer<Vec<String>>, example = json!({
        "status": "success", "data": ["abc", "abd"],
    }))),
)]
pub(crate) async fn label_values(
    State(state): State<ApiState>,
    caller: Caller,
    label: Result<Segments<String>>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let request = (&state, caller, &uri, &headers);
    let label = match label {
        Ok(Segments(label)) => label,
        Err(problem) => return told(Err(problem)),
    };
    let length = match label.as_str() {
        "__name__" | "namespace" => Length::Short,
        _ => Length::Long,
    };
    let values = answer(request, body, length, move |reads, asked| {
        let mut values = BTreeSet::new();
        for matchers in &asked.selectors {
            if values.len() > asked.limit {
                break;
            }
            let namespaces = reads.visible(matchers);
            match label.as_str() {
                "__name__" if !namespaces.is_empty() => {
                    values.insert(METRIC.to_owned());
                }
                "namespace" => values.extend(namespaces),
                "key" => {
                    for name in namespaces {
                        if values.len() > asked.limit {
                            break;
                        }
                        values.extend(asked.keys(reads, &name, matchers)?);
                    }
                }
                label => values.extend(asked.values(reads, matchers, label)?),
            }
        }
        Ok(asked.cut(reads, values))
    });
    told(values.await)
}

/// Series
///
/// The namespaces and keys that selectors find, as `/api/v1/label/key/values` does.
#[utoipa::path(get, path = "/api/v1/series", operation_id = "prometheus_series", tag = "prometheus",
    params(
        ("match[]" = String, Query, description = "A selector; may be given several times", example = "tallyring_count{namespace=\"l\"}"),
        ("start" = Option<String>, Query, description = "Unix seconds or RFC 3339; the beginning unless given"),
        ("end" = Option<String>, Query, description = "Unix seconds or RFC 3339; now unless given"),
        ("limit" = Option<u32>, Query, description = "How many, 1,000 at most and unless given"),
    ),
    responses((status = 200, description = "The labels of each", body = Answer<Vec<BTreeMap<String, String>>>, example = json!({
        "status": "success", "data": [{"__name__": "tallyring_count", "key": "abc", "namespace": "l"}],
    }))),
)]
pub(crate) async fn series(
    State(state): State<ApiState>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let request = (&state, caller, &uri, &headers);
    let found = answer(request, body, Length::Long, |reads, asked| {
        let mut series: BTreeSet<Labels> = BTreeSet::new();
        for matchers in &asked.selectors {
            for name in reads.visible(matchers) {
                if series.len() > asked.limit {
                    break;
                }
                for key in asked.keys(reads, &name, matchers)? {
                    let labels = [("__name__", METRIC), ("namespace", &name), ("key", &key)];
                    let labels = labels.map(|(label, value)| (label.to_owned(), value.to_owned()));
                    series.insert(labels.into());
                }
            }
        }
        Ok(asked.cut(reads, series))
    });
    told(found.await)
}

/// The metric
#[utoipa::path(get, path = "/api/v1/metadata", operation_id = "prometheus_metadata", tag = "prometheus",
    responses((status = 200, description = "The metric", body = Answer<BTreeMap<String, Vec<Metadata>>>, example = json!({
        "status": "success", "data": {"tallyring_count": [
            {"type": "counter", "help": "Counts of keys, exact.", "unit": ""},
        ]},
    }))),
)]
pub(crate) async fn metadata(State(state): State<ApiState>) -> Response {
    let metadata = Metadata {
        kind: "counter",
        help: "Counts of keys, exact.",
        unit: "",
    };
    told(plain(&state, BTreeMap::from([(METRIC, [metadata])])))
}

/// The build
#[utoipa::path(get, path = "/api/v1/status/buildinfo", operation_id = "prometheus_build", tag = "prometheus",
    responses((status = 200, description = "The build", body = Answer<Build>, example = json!({
        "status": "success", "data": {"version": "2.24.0", "application": "Tallyring 0.1.0"},
    }))),
)]
pub(crate) async fn build(State(state): State<ApiState>) -> Response {
    let application = concat!("Tallyring ", env!("CARGO_PKG_VERSION")).to_owned();
    let build = Build {
        version: API_VERSION,
        application,
    };
    told(plain(&state, build))
}

/// An answer that reads no count.
fn plain(state: &ApiState, data: impl Serialize) -> Result<Response> {
    let reading = tallyring_realtime::Reading::new(state.store().read_budget());
    Answer::new(data, Notes::default()).respond(reading.charge())
}

/// Answers with what `list` lists.
async fn answer<T: Serialize>(
    (state, caller, uri, headers): (&ApiState, Caller, &Uri, &HeaderMap),
    body: Body,
    length: Length,
    list: impl FnOnce(&mut Reads<'_>, Asked) -> Result<T> + Send + 'static,
) -> Result<Response> {
    let form = Form::read(uri, headers, body).await?;
    let now = state.now();
    let asked = off_thread(move || Asked::take(form.parameters()?, now)).await?;
    reading(state, length, move |view| {
        let steps = Steps::one(asked.range.end * 1_000, None, now);
        let mut reads = Reads::new(view, &caller, &steps);
        let data = list(&mut reads, asked);
        caller.pay_for(reads.reads);
        Answer::new(data?, reads.notes).respond(reads.charge)
    })
    .await
}

impl Asked {
    fn take(mut parameters: QueryString<'_>, now: i64) -> Result<Self> {
        let mut instant = |name, edge: i64| {
            let given = take_time(&mut parameters, name)?;
            let seconds = given.map_or(edge, |given| given.div_euclid(1_000));
            Ok::<_, Problem>(seconds.clamp(TIME_MIN, TIME_MAX))
        };
        // The hour that runs is counted as far as it has come.
        let (start, end) = (instant("start", TIME_MIN)?, instant("end", now)?);
        let range = start - start.rem_euclid(3_600)..end + 3_600 - end.rem_euclid(3_600);
        let limit: usize = parameters
            .take_as("limit", "a whole number")?
            .unwrap_or(SERIES_MAX);
        let selectors = parameters.take_prefixed("match[]");
        let selectors = selectors.iter();
        // Each regular expression takes memory, whichever selector has it.
        let mut matchers = 0;
        let parse = |(_, text): &(_, tallyring_records::Text)| {
            let parsed = parse_selector("match[]", text)?;
            matchers += parsed.len().max(1);
            if matchers > MATCHERS_MAX {
                let detail = format!("must have at most {MATCHERS_MAX} conditions together");
                return Err(Problem::malformed("match[]", "", detail));
            }
            Ok(parsed)
        };
        let mut selectors: Vec<_> = selectors.map(parse).collect::<Result<_>>()?;
        if selectors.is_empty() {
            selectors.push(Vec::new());
        }
        // A metric that is not there has nothing to list.
        let is_here = |of: &Matcher| of.label != "__name__" || of.lets(METRIC);
        selectors.retain(|matchers| matchers.iter().all(is_here));
        Ok(Self {
            selectors,
            range,
            // Prometheus takes 0 for no limit.
            limit: if limit == 0 {
                SERIES_MAX
            } else {
                limit.min(SERIES_MAX)
            },
        })
    }

    /// Keys of a namespace that matchers let through.
    fn keys(&self, reads: &mut Reads<'_>, name: &str, matchers: &[Matcher]) -> Result<Vec<String>> {
        let text = match KeyPlan::of(matchers, true)? {
            KeyPlan::Named(keys) => return Ok(keys),
            KeyPlan::Listed(text) => text,
            KeyPlan::Together => return Ok(Vec::new()),
        };
        if self.range.is_empty() {
            return Ok(Vec::new());
        }
        let of = (namespace(reads.view, name), &text);
        let found = reads.keys(of, self.range.clone(), matchers, self.limit)?;
        if !found.is_complete {
            let warning = format!("there are more keys of {name} than are listed");
            reads.notes.warnings.insert(warning);
        }
        Ok(found.keys)
    }

    /// Values of a dimension that count in the range.
    fn values(
        &self,
        reads: &mut Reads<'_>,
        matchers: &[Matcher],
        label: &str,
    ) -> Result<Vec<String>> {
        if !reads.dimensions().contains(label) || self.range.is_empty() {
            return Ok(Vec::new());
        }
        let selector = Selector {
            matchers: matchers.to_vec(),
            measure: Measure::Increase(self.range.end - self.range.start),
            offset: 0,
        };
        // With the namespaces, so that the heaviest values of each are enough; one more tells that some are cut.
        let by = [label.to_owned(), "namespace".to_owned()];
        let wanted = Wanted {
            by: Some(&by),
            top: Some(self.limit + 1),
        };
        let series = reads.select(&selector, wanted)?.into_iter();
        let counts = |series: &Series| series.values.iter().flatten().any(|value| *value > 0.0);
        let counted = series.filter(counts);
        Ok(counted
            .filter_map(|mut series| series.labels.remove(label))
            .collect())
    }

    /// The first ones, as many as are asked for.
    fn cut<T: Ord>(&self, reads: &mut Reads<'_>, mut all: BTreeSet<T>) -> BTreeSet<T> {
        if all.len() > self.limit {
            let warning = "results truncated due to limit";
            reads.notes.warnings.insert(warning.to_owned());
        }
        while all.len() > self.limit {
            all.pop_last();
        }
        all
    }
}

/// A namespace that is visible.
fn namespace<'v>(view: &'v View<'_>, name: &str) -> &'v Namespace {
    let namespace = view.schema().namespace(name);
    namespace.expect("BUG: it is visible")
}

/// The dimensions of a namespace.
fn dimensions(namespace: &Namespace) -> impl Iterator<Item = String> {
    let subtotals = namespace.subtotals.iter();
    let dimensions = subtotals.flat_map(|subtotal| tallyring_records::dimensions(subtotal));
    let dimensions = dimensions.filter(|name| !OWN_LABELS.contains(name));
    dimensions.map(str::to_owned)
}
