//! `[http]`, `[limits]`, `[tls]` and `[cors]`: how HTTP is served.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use tallyring_api::{AccessLimits, Proxies, ServerLimits};

use super::within;

/// How HTTP is served.
#[derive(Debug, Clone)]
pub(crate) struct HttpConfig {
    /// The limits of connections.
    pub server: ServerLimits,
    /// The limits of requests.
    pub access: AccessLimits,
    /// The certificate and its key; without them the server speaks plain HTTP.
    pub tls: Option<TlsFiles>,
    /// The origins whose pages may read.
    pub origins: Vec<String>,
    /// The names of the server, besides its addresses and `localhost`.
    pub hosts: Vec<String>,
    /// The proxies that tell the addresses of clients.
    pub proxies: Proxies,
}

/// The files of `[tls]`, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    /// The certificate with its chain.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
}

/// `[http]`
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct HttpSection {
    hosts: Vec<String>,
    trusted_proxies: Vec<String>,
}

/// `[limits]`
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LimitsSection {
    connections: usize,
    connections_per_ip: usize,
    header_seconds: u64,
    idle_seconds: u64,
    write_seconds: u64,
    request_seconds: u64,
    writes: usize,
    batches: usize,
    queries: usize,
    admin: usize,
    streams: usize,
}

/// `[tls]`
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TlsSection {
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

/// `[cors]`
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct CorsSection {
    origins: Vec<String>,
}

/// The largest number of places of one class.
const PLACES_MAX: usize = 1 << 20;
const SECONDS_MAX: u64 = 3_600;

impl LimitsSection {
    fn check(&self) -> Result<(ServerLimits, AccessLimits), String> {
        let places = |name: &str, value| within(&format!("limits.{name}"), value, 1, PLACES_MAX);
        let seconds = |name: &str, value| {
            within(&format!("limits.{name}"), value, 1, SECONDS_MAX).map(Duration::from_secs)
        };
        let server = ServerLimits {
            connections_max: places("connections", self.connections)?,
            connections_per_ip_max: places("connections_per_ip", self.connections_per_ip)?,
            header_timeout: seconds("header_seconds", self.header_seconds)?,
            idle_timeout: seconds("idle_seconds", self.idle_seconds)?,
            write_timeout: seconds("write_seconds", self.write_seconds)?,
            ..ServerLimits::default()
        };
        let access = AccessLimits {
            writes: places("writes", self.writes)?,
            batches: places("batches", self.batches)?,
            queries: places("queries", self.queries)?,
            admin: places("admin", self.admin)?,
            streams: places("streams", self.streams)?,
            request_timeout: seconds("request_seconds", self.request_seconds)?,
            ..AccessLimits::default()
        };
        Ok((server, access))
    }
}

impl HttpSection {
    fn check(self) -> Result<Vec<String>, String> {
        let is_name = |name: &str| {
            let is_of_one =
                |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
            !name.is_empty() && name.bytes().all(is_of_one)
        };
        match self.hosts.iter().find(|name| !is_name(name)) {
            Some(wrong) => Err(format!(
                "http.hosts: \"{}\" must be a name such as \"stats.example\", without a scheme, a port or a path",
                wrong.escape_debug()
            )),
            None => Ok(self.hosts),
        }
    }
}

impl TlsSection {
    fn check(self) -> Result<Option<TlsFiles>, String> {
        match (self.certificate, self.key) {
            (Some(certificate), Some(key)) => Ok(Some(TlsFiles { certificate, key })),
            (None, None) => Ok(None),
            (Some(_), None) => Err("tls.key is missing; tls.certificate needs it".into()),
            (None, Some(_)) => Err("tls.certificate is missing; tls.key needs it".into()),
        }
    }
}

impl CorsSection {
    fn check(self) -> Result<Vec<String>, String> {
        match self.origins.iter().find(|origin| !is_origin(origin)) {
            Some(wrong) => Err(format!(
                "cors.origins: \"{}\" must be a scheme and a host, such as \"https://stats.example\", without a path; \
                 `*` is not taken",
                wrong.escape_debug()
            )),
            None => Ok(self.origins),
        }
    }
}

fn is_origin(text: &str) -> bool {
    let host = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"));
    host.is_some_and(|host| {
        !host.is_empty()
            && host.bytes().all(|byte| {
                byte.is_ascii_lowercase()
                    || byte.is_ascii_digit()
                    || matches!(byte, b'.' | b'-' | b':' | b'[' | b']')
            })
    })
}

/// Checks the four sections. Fails when a setting cannot be used; the text names the first one and what to write
/// instead.
pub(super) fn check(
    http: HttpSection,
    limits: &LimitsSection,
    tls: TlsSection,
    cors: CorsSection,
) -> Result<HttpConfig, String> {
    let (server, access) = limits.check()?;
    let proxies = Proxies::new(&http.trusted_proxies);
    Ok(HttpConfig {
        proxies: proxies.map_err(|wrong| format!("http.trusted_proxies: {wrong}"))?,
        server,
        access,
        tls: tls.check()?,
        origins: cors.check()?,
        hosts: http.check()?,
    })
}
