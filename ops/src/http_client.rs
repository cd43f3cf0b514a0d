//! The HTTP client of all commands: plain or over TLS, with the API key of the command's user.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use tallyring_archive::names;
use tallyring_realtime::{Holder, Lock};
use ureq::http::Response;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::typestate::WithBody;
use ureq::{Agent, Body, RequestBuilder};

use crate::base_url::ServerArgs;
use crate::data_directory::{require_store, server_of};
use crate::error::{CommandError, Result, doing};
use crate::out::note;

const TIMEOUT: Duration = Duration::from_secs(60);

/// For operations such as the adoption of a large dataset; longer than the server's own limit.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// The longest answer that is read, bytes. Ten thousand values of the longest keys are a third of it.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// The variable that holds the API key.
pub(crate) const KEY_VARIABLE: &str = "TALLYRING_KEY";

/// A server, the certificates to trust and the key to send.
pub(crate) struct Server {
    agent: Agent,
    url: String,
    authorization: Option<String>,
}

impl Server {
    /// The server at the base URL `url`, asked with the key of `TALLYRING_KEY`. Fails as [`Server::with_key`] does.
    pub(crate) fn at(url: &str, cacert: Option<&Path>) -> Result<Self> {
        Self::with_key(url, environment_key().as_deref(), cacert)
    }

    /// The server at the base URL `url`, asked with `key`. Trusts the certificates of the PEM file `cacert`, by default
    /// those that the system trusts. Fails with a usage error when `cacert` cannot be read or holds no certificate.
    pub(crate) fn with_key(url: &str, key: Option<&str>, cacert: Option<&Path>) -> Result<Self> {
        let roots = cacert.map_or(Ok(RootCerts::PlatformVerifier), read_certificates)?;
        Ok(Self::new(url, key, roots))
    }

    /// The server of these options; `None` where no server holds the data directory. Fails as [`Server::at`] does.
    pub(crate) fn asked(args: &ServerArgs) -> Result<Option<Self>> {
        match &args.to {
            Some(url) => Self::at(url, args.cacert.as_deref()).map(Some),
            None => Ok(server_of(&args.data).map(|url| Self::of(&args.data, &url))),
        }
    }

    /// The server that holds the data directory `data`. Fails when no server does; `advice` is what to do then.
    pub(crate) fn holding(data: &Path, advice: &str) -> Result<Self> {
        require_store(data)?;
        let shown = data.display();
        let holder = Lock::holder(data).map_err(doing(format!("read the lock of {shown}")))?;
        let none = || CommandError::Failed(format!("no server holds {shown}; {advice}"));
        Self::of_holder(data, &holder.ok_or_else(none)?)
    }

    /// The server that this process is, which holds the data directory `data`. Fails when it does not listen yet, or is
    /// no server.
    pub(crate) fn of_holder(data: &Path, holder: &Holder) -> Result<Self> {
        let url = holder.url.as_ref().ok_or_else(|| {
            CommandError::Unavailable(format!(
                "process {} holds the data directory and answers no HTTP yet; try again",
                holder.pid
            ))
        })?;
        Ok(Self::of(data, url))
    }

    /// The server that holds the data directory `data`, asked with the key that it left there.
    pub(crate) fn of(data: &Path, url: &str) -> Self {
        let path = data.join(names::LOCAL_KEY);
        let key = std::fs::read_to_string(&path).or_else(|error| {
            let key = environment_key();
            if error.kind() == ErrorKind::PermissionDenied && key.is_none() {
                note!(
                    "warning: cannot read {}: {error}; run this as the user of the server, or set {KEY_VARIABLE}",
                    path.display()
                );
            }
            key.ok_or(error)
        });
        Self::new(url, key.ok().as_deref(), RootCerts::PlatformVerifier)
    }

    fn new(url: &str, key: Option<&str>, roots: RootCerts) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(TIMEOUT))
            .tls_config(TlsConfig::builder().root_certs(roots).build());
        Self {
            agent: config.build().new_agent(),
            url: url.trim_end_matches('/').to_owned(),
            authorization: key.map(|key| format!("Bearer {}", key.trim())),
        }
    }

    /// The base URL.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Content of the `Authorization` header.
    #[cfg(test)]
    pub(crate) fn authorization(&self) -> Option<&str> {
        self.authorization.as_deref()
    }

    /// GET as JSON. The error is that no answer came, or the server's own problem text.
    pub(crate) fn get(&self, path: &str) -> Result<Value> {
        let text = self.get_text(path)?;
        serde_json::from_str(&text).map_err(|_| {
            CommandError::Failed(format!(
                "{} is no Tallyring server: it answers no JSON",
                self.url
            ))
        })
    }

    /// GET as text. Fails as [`Server::get`] does.
    pub(crate) fn get_text(&self, path: &str) -> Result<String> {
        let request = self.agent.get(self.to(path));
        read(&self.url, self.signed(request).call())
    }

    /// POST without a body, as JSON. Fails as [`Server::get`] does.
    pub(crate) fn post(&self, path: &str) -> Result<Value> {
        let request = self.prepare_post(path).config();
        let request = request.timeout_global(Some(OPERATION_TIMEOUT)).build();
        self.read(request.send_empty())
    }

    /// POST of JSON, as JSON. Fails as [`Server::get`] does.
    pub(crate) fn post_json(&self, path: &str, body: &impl Serialize) -> Result<Value> {
        let request = self
            .prepare_post(path)
            .header("content-type", "application/json");
        self.read(request.send(serde_json::to_string(body)?))
    }

    /// DELETE, as JSON. Fails as [`Server::get`] does.
    pub(crate) fn delete(&self, path: &str) -> Result<Value> {
        let request = self.agent.delete(self.to(path));
        self.read(self.signed(request).call())
    }

    /// A POST with the key, to be completed by the caller.
    pub(crate) fn prepare_post(&self, path: &str) -> RequestBuilder<WithBody> {
        self.signed(self.agent.post(self.to(path)))
    }

    fn to(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    fn signed<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        match &self.authorization {
            Some(authorization) => request.header("authorization", authorization),
            None => request,
        }
    }

    fn read(&self, answer: Result<Response<Body>, ureq::Error>) -> Result<Value> {
        Ok(serde_json::from_str(&read(&self.url, answer)?).unwrap_or(Value::Null))
    }
}

fn environment_key() -> Option<String> {
    std::env::var(KEY_VARIABLE).ok()
}

fn read_certificates(path: &Path) -> Result<RootCerts> {
    let unusable = |why: &str| CommandError::Usage(format!("--cacert {}: {why}", path.display()));
    let pem = std::fs::read(path).map_err(|error| unusable(&error.to_string()))?;
    let certificates: Vec<Certificate<'static>> = parse_pem(&pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if certificates.is_empty() {
        return Err(unusable("there is no certificate in it; name a PEM file"));
    }
    Ok(RootCerts::from(certificates))
}

/// True when the connection could be made, but not the TLS session: the server's certificate is not trusted, or the
/// server speaks no TLS.
pub(crate) fn is_tls_failure(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::Tls(_) | ureq::Error::Rustls(_) => true,
        ureq::Error::Io(error) => error.kind() == ErrorKind::InvalidData,
        _ => false,
    }
}

/// Tells what to do about a failure that [`is_tls_failure`].
pub(crate) const TLS_ADVICE: &str =
    "--cacert FILE names the certificates to trust where the system does not trust the server's";

fn read(url: &str, answer: Result<Response<Body>, ureq::Error>) -> Result<String> {
    let mut answer = answer.map_err(|error| {
        if is_tls_failure(&error) {
            return CommandError::Failed(format!("no answer from {url}: {error}; {TLS_ADVICE}"));
        }
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
    if status == 405 {
        let problem = problem_text(status.as_u16(), &value);
        return Err(CommandError::Failed(format!(
            "{problem}; the server is of another build than this command, so use that of the server"
        )));
    }
    Err(refused(status.as_u16(), &value))
}

/// The error that a problem document tells of: wrong usage where the request was wrong in itself, unavailable where the
/// same request may be answered later.
pub(crate) fn refused(status: u16, problem: &Value) -> CommandError {
    let text = problem_text(status, problem);
    match status {
        400 => CommandError::Usage(text),
        // The value of an option; without a field it is the store that cannot do it.
        422 if problem["field"].is_string() => CommandError::Usage(text),
        408 | 502..=504 | 507 => CommandError::Unavailable(text),
        _ => CommandError::Failed(text),
    }
}

/// One line from a problem document, whose detail is a whole sentence.
fn problem_text(status: u16, problem: &Value) -> String {
    let detail = problem["detail"].as_str().unwrap_or("no detail was given");
    format!("{detail} ({status})")
}

/// A server that gives these answers, a status and a body each, to the next requests, in their order.
#[cfg(test)]
pub(crate) fn serve_answers(
    answers: impl IntoIterator<Item = (u16, String), IntoIter: Send + 'static>,
) -> Server {
    use std::io::{BufRead, BufReader, Write};

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answers = answers.into_iter();
    std::thread::spawn(move || {
        for (status, body) in answers {
            let (mut socket, _) = listener.accept().unwrap();
            let lines = BufReader::new(&socket).lines();
            let head = lines
                .map_while(Result::ok)
                .take_while(|line| !line.is_empty());
            assert!(head.count() > 0);
            let length = body.len();
            write!(
                socket,
                "HTTP/1.1 {status} told\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            )
            .unwrap();
        }
    });
    Server::new(&url, None, RootCerts::PlatformVerifier)
}
