//! The names of this server.

use std::net::IpAddr;

/// Names of this server.
#[derive(Debug, Default)]
pub(super) struct Hosts(Vec<String>);

impl Hosts {
    /// An address or `localhost` is its name always; these are besides, without a port.
    pub(super) fn new(names: &[String]) -> Self {
        Self(names.to_vec())
    }

    /// True for what a `Host` names, with a port or without. No page elsewhere can take such a name (DNS rebinding).
    pub(super) fn hold(&self, host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let address = name.trim_start_matches('[').trim_end_matches(']');
        name.eq_ignore_ascii_case("localhost")
            || address.parse::<IpAddr>().is_ok()
            || self.0.iter().any(|own| own.eq_ignore_ascii_case(name))
    }
}
