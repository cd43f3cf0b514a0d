//! Parameters of requests: those of the address, and of a form in the body.

use axum::body::Body;
use axum::http::{HeaderMap, Uri};

use super::expression::Expression;
use super::lexer::duration;
use super::steps::{Times, check_instant};
use crate::body;
use crate::calendar::Zone;
use crate::problem::{Problem, Result};
use crate::query_string::QueryString;
use crate::time;

const BODY_BYTES_MAX: usize = 64 << 10;

/// The parameters of a request, encoded.
pub(super) struct Form(String);

impl Form {
    /// Reads them from the address, and from the body where there is one. Fails as [`body::read`] does, and with 400
    /// for a body that is no text.
    pub(super) async fn read(uri: &Uri, headers: &HeaderMap, body: Body) -> Result<Self> {
        let body = body::read(headers, body, BODY_BYTES_MAX).await?;
        let expected = "must be a form: application/x-www-form-urlencoded";
        let form = std::str::from_utf8(&body);
        let form = form.map_err(|_| Problem::malformed("body", "", expected))?;
        Ok(Self(format!("{}&{form}", uri.query().unwrap_or_default())))
    }

    /// The parameters. Others that nobody takes are passed over, as Prometheus does: clients send some of their own.
    pub(super) fn parameters(&self) -> Result<QueryString<'_>> {
        QueryString::parse(Some(&self.0))
    }
}

/// Takes a text that must be given. Fails with 400.
pub(super) fn take_needed(parameters: &mut QueryString<'_>, name: &str) -> Result<String> {
    let given = parameters.take(name)?.filter(|text| !text.is_empty());
    let missing = || Problem::malformed(name, "", "is missing");
    given.map(String::from).ok_or_else(missing)
}

/// Takes the instant `time`, or that of the clock (Unix seconds); Unix milliseconds.
pub(super) fn take_instant(parameters: &mut QueryString<'_>, now: i64) -> Result<i64> {
    let instant = take_time(parameters, "time")?.unwrap_or(now * 1_000);
    check_instant("time", instant)?;
    Ok(instant)
}

/// Takes `start`, `end` and `step`. Fails with 400 that names the parameter.
pub(super) fn take_times(parameters: &mut QueryString<'_>) -> Result<Times> {
    let mut needed = |name| {
        let instant = take_time(parameters, name)?;
        let instant = instant.ok_or_else(|| Problem::malformed(name, "", "is missing"))?;
        check_instant(name, instant)?;
        Ok::<_, Problem>(instant)
    };
    let (start, end) = (needed("start")?, needed("end")?);
    if end < start {
        let detail = "must not lie before `start`";
        return Err(Problem::malformed("end", "", detail));
    }
    let text = take_needed(parameters, "step")?;
    let step = milliseconds(&text).or(duration(&text).map(|seconds| seconds * 1_000));
    let expected = "must be seconds above 0, or a length of time such as 5m or 1d";
    let step = step.filter(|step| *step > 0);
    let step = step.ok_or_else(|| Problem::malformed("step", &text, expected))?;
    Ok(Times { start, end, step })
}

/// Takes an instant, Unix milliseconds. Fails with 400 where it is no time.
pub(super) fn take_time(parameters: &mut QueryString<'_>, name: &str) -> Result<Option<i64>> {
    let Some(text) = parameters.take(name)?.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let seconds = || time::parse_in_query(&text).map(|seconds| seconds.saturating_mul(1_000));
    let expected = "must be Unix seconds, or RFC 3339 such as 2012-03-16T18:40:47Z";
    let instant = milliseconds(&text).or_else(seconds);
    instant
        .map(Some)
        .ok_or_else(|| Problem::malformed(name, &text, expected))
}

/// Takes the zone whose days are counted: that of the parameter `timezone`, or of matchers of an expression. Fails with
/// 400 for a zone that is not known, and for two of them.
pub(super) fn take_zone(
    parameters: &mut QueryString<'_>,
    expression: Option<&Expression>,
) -> Result<Option<Zone>> {
    // Grafana's data source gives one that it is configured with in the address and in the form.
    let given = parameters.take_each("timezone").into_iter();
    let given = given.filter(|name| !name.is_empty());
    let mut names: Vec<String> = given.map(String::from).collect();
    let selectors = expression.map(Expression::selectors).unwrap_or_default();
    let mut matched = Vec::new();
    for matcher in selectors.iter().flat_map(|selector| &selector.matchers) {
        if matcher.label == "timezone" {
            let detail = "must be one zone, such as timezone=\"Europe/Berlin\"";
            let name = matcher.equal().filter(|name| !name.is_empty());
            let name =
                name.ok_or_else(|| Problem::malformed("timezone", &matcher.value, detail))?;
            matched.push(name.to_owned());
        }
    }
    // A selector that names a zone has it, whatever the address says.
    if !matched.is_empty() {
        names = matched;
    }
    names.dedup();
    match names.as_slice() {
        [] => Ok(None),
        [name] => Ok(Some(Zone::named(name)?)),
        [_, other, ..] => {
            let detail =
                "must be the same in all selectors: the points of one query are days of one zone";
            Err(Problem::malformed("timezone", other, detail))
        }
    }
}

/// Decimal seconds in milliseconds, of the years 0 to 9999 as instants.
fn milliseconds(text: &str) -> Option<i64> {
    let is_decimal = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let seconds: f64 = is_decimal.then(|| text.parse().ok())??;
    (seconds < 300e9).then_some((seconds * 1_000.0).round() as i64)
}
