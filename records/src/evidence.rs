//! The address that evidence tells.

use std::net::{IpAddr, SocketAddr};

/// The address in a text, which proxies also write with a port; one of IPv4 in that of IPv6 is one of IPv4.
///
/// ```
/// use tallyring_records::address;
///
/// assert_eq!(address("[::ffff:203.0.113.9]:80"), address("203.0.113.9"));
/// assert_eq!(address("unknown"), None);
/// ```
pub fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let bare = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    let address: Option<IpAddr> = bare.unwrap_or(text).parse().ok();
    let with_port = || Some(text.parse::<SocketAddr>().ok()?.ip());
    Some(address.or_else(with_port)?.to_canonical())
}
