//! A client of the HTTP API, as a program elsewhere would be one.

use std::fmt::Debug;
use std::thread;
use std::time::Instant;

use serde_json::Value;
use ureq::Agent;
use ureq::http::Response;

use super::{DEADLINE, POLL};

/// An answer of the server.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Names in lower case, with their values.
    pub headers: Vec<(String, String)>,
    /// The body, as text.
    pub text: String,
}

impl Answer {
    /// The value of a header, its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(header, _)| header == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// When it is none.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text)
            .unwrap_or_else(|error| panic!("{error} in the body of {self:?}"))
    }
}

/// Speaks to one server over connections that are kept; cheap to clone for other threads.
#[derive(Clone)]
pub struct Client {
    agent: Agent,
    url: String,
}

impl Client {
    /// A client of the server at `url`.
    pub fn new(url: &str) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(DEADLINE));
        Self {
            agent: config.build().new_agent(),
            url: url.to_owned(),
        }
    }

    /// The server's base URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// GET, whatever its status.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn try_get(&self, path: &str) -> Result<Answer, String> {
        self.read(self.agent.get(self.at(path)).call())
    }

    /// POST with headers, whatever its status.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn try_post(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Answer, String> {
        let request = self.agent.post(self.at(path));
        let request = headers.iter().fold(request, |request, (name, value)| {
            request.header(*name, *value)
        });
        self.read(request.send(body))
    }

    /// GET, whatever its status.
    ///
    /// # Panics
    /// When there is no answer.
    pub fn get(&self, path: &str) -> Answer {
        must(path, self.try_get(path))
    }

    /// GET with an API key, whatever its status.
    ///
    /// # Panics
    /// When there is no answer.
    pub fn get_as(&self, key: &str, path: &str) -> Answer {
        let request = self.agent.get(self.at(path));
        let request = request.header("authorization", format!("Bearer {key}"));
        must(path, self.read(request.call()))
    }

    /// POST with headers, whatever its status.
    ///
    /// # Panics
    /// When there is no answer.
    pub fn post_with(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        must(path, self.try_post(path, headers, body))
    }

    /// POST, whatever its status.
    ///
    /// # Panics
    /// When there is no answer.
    pub fn post(&self, path: &str, body: impl AsRef<[u8]>) -> Answer {
        self.post_with(path, &[], body.as_ref())
    }

    /// DELETE, whatever its status.
    ///
    /// # Panics
    /// When there is no answer.
    pub fn delete(&self, path: &str) -> Answer {
        must(path, self.read(self.agent.delete(self.at(path)).call()))
    }

    /// GET that must succeed, as JSON.
    ///
    /// # Panics
    /// When it does not.
    pub fn get_json(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.json()
    }

    /// The status that an operator sees.
    ///
    /// # Panics
    /// When there is no answer.
    pub fn status(&self) -> Value {
        self.get_json("/v1/admin/status")
    }

    /// Asks for the status until it is as it should be; that status.
    ///
    /// # Panics
    /// After a minute, with the last one.
    pub fn wait_for_status(&self, what: &str, mut condition: impl FnMut(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let status = self.status();
            if condition(&status) {
                return status;
            }
            let waited = began.elapsed();
            assert!(
                waited < DEADLINE,
                "waited too long until {what}: {status:#}"
            );
            thread::sleep(POLL);
        }
    }

    /// Starts a rebuild (or joins the one that runs) and waits for its end; the generation.
    ///
    /// # Panics
    /// When it fails.
    pub fn rebuild(&self) -> u64 {
        let answer = self.post("/v1/admin/rebuild", "");
        assert_eq!(answer.status, 202, "{answer:?}");
        let job = answer.json()["job"].clone();
        let status = self.wait_for_status("the rebuild ends", |status| {
            status["last_rebuild"]["job"] == job && status["last_rebuild"]["state"] != "running"
        });
        let ended = &status["last_rebuild"];
        assert_eq!(ended["state"], "done", "{ended:#}");
        ended["generation"].as_u64().expect("a generation")
    }

    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    fn read(&self, answer: Result<Response<ureq::Body>, ureq::Error>) -> Result<Answer, String> {
        let mut answer = answer.map_err(|error| error.to_string())?;
        let headers = answer.headers().iter();
        let headers = headers
            .map(|(name, value)| (name.as_str().to_owned(), format_header(value.as_bytes())))
            .collect();
        let text = answer.body_mut().read_to_string();
        Ok(Answer {
            status: answer.status().as_u16(),
            headers,
            text: text.map_err(|error| error.to_string())?,
        })
    }
}

fn format_header(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

fn must<T, E: Debug>(path: &str, answer: Result<T, E>) -> T {
    answer.unwrap_or_else(|error| panic!("no answer to {path}: {error:?}"))
}
