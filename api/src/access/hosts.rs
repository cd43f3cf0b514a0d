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
        self.hold_if(host, |_| true)
    }

    /// True for what an `Origin` names behind its scheme, where it is a page of this machine or one of these names. Any
    /// other address may be that of a page elsewhere.
    pub(super) fn hold_origin(&self, origin: &str) -> bool {
        self.hold_if(origin, |address| address.is_loopback())
    }

    fn hold_if(&self, host: &str, is_own: impl FnOnce(IpAddr) -> bool) -> bool {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let address = name.trim_start_matches('[').trim_end_matches(']');
        name.eq_ignore_ascii_case("localhost")
            || address.parse().is_ok_and(is_own)
            || self.0.iter().any(|own| own.eq_ignore_ascii_case(name))
    }
}
