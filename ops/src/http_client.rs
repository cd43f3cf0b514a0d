//! A small client of our own API, for commands that ask a running server.

use std::time::Duration;

use serde_json::Value;
use ureq::Agent;

use crate::error::{CommandError, Result};

const TIMEOUT: Duration = Duration::from_secs(60);

/// GET as JSON.
///
/// # Errors
/// No answer, or the server's own problem text.
pub fn get(url: &str) -> Result<Value> {
    Ok(serde_json::from_str(&get_text(url)?).unwrap_or(Value::Null))
}

/// GET as text.
///
/// # Errors
/// As [`get`].
pub fn get_text(url: &str) -> Result<String> {
    let answer = agent().get(url).call();
    read(url, answer)
}

/// POST without a body, as JSON.
///
/// # Errors
/// As [`get`].
pub fn post(url: &str) -> Result<Value> {
    let answer = agent().post(url).send_empty();
    Ok(serde_json::from_str(&read(url, answer)?).unwrap_or(Value::Null))
}

fn agent() -> Agent {
    Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(TIMEOUT))
        .build()
        .new_agent()
}

fn read(
    url: &str,
    answer: std::result::Result<ureq::http::Response<ureq::Body>, ureq::Error>,
) -> Result<String> {
    let mut answer = answer.map_err(|error| {
        CommandError::Failed(format!(
            "no answer from {url}: {error}; is the server running?"
        ))
    })?;
    let status = answer.status();
    let text = answer.body_mut().read_to_string().map_err(|error| {
        CommandError::Failed(format!("the answer of {url} cannot be read: {error}"))
    })?;
    if status.is_success() {
        return Ok(text);
    }
    let value: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
    Err(CommandError::Failed(problem_text(status.as_u16(), &value)))
}

/// One line from a problem document.
pub fn problem_text(status: u16, problem: &Value) -> String {
    let detail = problem["detail"].as_str().unwrap_or("no detail was given");
    match (problem["field"].as_str(), problem["value"].as_str()) {
        (Some(field), Some(value)) => format!("{field} `{value}` {detail} ({status})"),
        (Some(field), None) => format!("{field} {detail} ({status})"),
        _ => format!("{detail} ({status})"),
    }
}
