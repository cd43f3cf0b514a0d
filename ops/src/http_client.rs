//! A small client of our own API, for commands that ask a running server.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use tallyring_archive::names;
use tallyring_realtime::Holder;
use ureq::Agent;

use crate::error::{CommandError, Result};
use crate::out::note;

const TIMEOUT: Duration = Duration::from_secs(60);

/// Of operations, such as the adoption of a large dataset: longer than the server gives them.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// Longest answer that is taken. Ten thousand values of the longest keys are a third of it.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// The variable that holds the API key.
pub const KEY_VARIABLE: &str = "TALLYRING_KEY";

/// A server, and the key to ask it with.
pub struct Server {
    url: String,
    authorization: Option<String>,
}

impl Server {
    /// The server at this base URL, asked with the key of `TALLYRING_KEY`.
    pub fn at(url: &str) -> Self {
        Self::with_key(url, std::env::var(KEY_VARIABLE).ok())
    }

    /// The server that holds this data directory, asked with the key it left there.
    pub fn of(data: &Path, url: &str) -> Self {
        let path = data.join(names::LOCAL_KEY);
        match std::fs::read_to_string(&path) {
            Ok(key) => Self::with_key(url, Some(key)),
            Err(error) => {
                if error.kind() == ErrorKind::PermissionDenied
                    && std::env::var(KEY_VARIABLE).is_err()
                {
                    note!(
                        "warning: cannot read {}: {error}; run this as the user of the server, or set {KEY_VARIABLE}",
                        path.display()
                    );
                }
                Self::at(url)
            }
        }
    }

    fn with_key(url: &str, key: Option<String>) -> Self {
        Self {
            url: url.trim_end_matches('/').to_owned(),
            authorization: key.map(|key| format!("Bearer {}", key.trim())),
        }
    }

    /// GET as JSON.
    ///
    /// # Errors
    /// No answer, or the server's own problem text.
    pub fn get(&self, path: &str) -> Result<Value> {
        let text = self.get_text(path)?;
        serde_json::from_str(&text).map_err(|_| {
            CommandError::Failed(format!(
                "{} is no Tallyring server: it answers no JSON",
                self.url
            ))
        })
    }

    /// GET as text.
    ///
    /// # Errors
    /// As [`Server::get`].
    pub fn get_text(&self, path: &str) -> Result<String> {
        let request = agent(TIMEOUT).get(self.to(path));
        read(&self.url, self.signed(request).call())
    }

    /// POST without a body, as JSON.
    ///
    /// # Errors
    /// As [`Server::get`].
    pub fn post(&self, path: &str) -> Result<Value> {
        let request = agent(OPERATION_TIMEOUT).post(self.to(path));
        self.read(self.signed(request).send_empty())
    }

    /// POST of JSON, as JSON.
    ///
    /// # Errors
    /// As [`Server::get`].
    pub fn post_json(&self, path: &str, body: &impl Serialize) -> Result<Value> {
        let request = self.signed(agent(TIMEOUT).post(self.to(path)));
        let request = request.header("content-type", "application/json");
        self.read(request.send(serde_json::to_string(body)?))
    }

    /// DELETE, as JSON.
    ///
    /// # Errors
    /// As [`Server::get`].
    pub fn delete(&self, path: &str) -> Result<Value> {
        let request = agent(TIMEOUT).delete(self.to(path));
        self.read(self.signed(request).call())
    }

    fn to(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    fn signed<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        match &self.authorization {
            Some(authorization) => request.header("authorization", authorization),
            None => request,
        }
    }

    fn read(
        &self,
        answer: std::result::Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<Value> {
        Ok(serde_json::from_str(&read(&self.url, answer)?).unwrap_or(Value::Null))
    }
}

/// Where the holder of a data directory answers.
///
/// # Errors
/// When it does not listen yet, or is no server.
pub fn holder_url(holder: &Holder) -> Result<String> {
    holder.url.clone().ok_or_else(|| {
        CommandError::Unavailable(format!(
            "process {} holds the data directory and answers no HTTP yet; try again",
            holder.pid
        ))
    })
}

fn agent(timeout: Duration) -> Agent {
    Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(timeout))
        .build()
        .new_agent()
}

fn read(
    url: &str,
    answer: std::result::Result<ureq::http::Response<ureq::Body>, ureq::Error>,
) -> Result<String> {
    let mut answer = answer.map_err(|error| {
        let what = format!("no answer from {url}: {error}; is the server running?");
        match error {
            ureq::Error::Io(_)
            | ureq::Error::Timeout(_)
            | ureq::Error::HostNotFound
            | ureq::Error::ConnectionFailed => CommandError::Unavailable(what),
            _ => CommandError::Failed(what),
        }
    })?;
    let status = answer.status();
    let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX);
    let text = body.lossy_utf8(true).read_to_string().map_err(|error| {
        CommandError::Unavailable(format!("the answer of {url} cannot be read: {error}"))
    })?;
    if status.is_success() {
        return Ok(text);
    }
    let value: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
    if status == 401 {
        let mut problem = problem_text(status.as_u16(), &value);
        problem.push_str(&format!("; a command takes its key from {KEY_VARIABLE}"));
        return Err(CommandError::Failed(problem));
    }
    Err(refused(status.as_u16(), &value))
}

/// The error that a problem document tells of: wrong usage where the request was wrong in itself, unavailable where the
/// same request may be answered later.
pub fn refused(status: u16, problem: &Value) -> CommandError {
    let text = problem_text(status, problem);
    match status {
        400 => CommandError::Usage(text),
        // The value of an option; without a field it is the store that cannot do it.
        422 if problem["field"].is_string() => CommandError::Usage(text),
        408 | 502..=504 | 507 => CommandError::Unavailable(text),
        _ => CommandError::Failed(text),
    }
}

/// One line from a problem document.
fn problem_text(status: u16, problem: &Value) -> String {
    let detail = problem["detail"].as_str().unwrap_or("no detail was given");
    match (problem["field"].as_str(), problem["value"].as_str()) {
        (Some(field), Some(value)) => format!("{field} `{value}` {detail} ({status})"),
        (Some(field), None) => format!("{field} {detail} ({status})"),
        _ => format!("{detail} ({status})"),
    }
}
