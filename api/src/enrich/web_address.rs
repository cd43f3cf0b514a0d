//! The site and the parameters of an address of the web. An address that cannot be read tells nothing.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use tallyring_records::Text;

use crate::query_string::is_percent_encoded;

/// Longest name of a host, bytes.
const HOST_BYTES_MAX: usize = 253;

/// The host in lower case, without `www.`, a port and a user.
pub(super) fn site(address: &str) -> Option<Text> {
    let (scheme, rest) = address.trim().split_once("://")?;
    let is_scheme_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    if scheme.is_empty() || !scheme.bytes().all(is_scheme_byte) {
        return None;
    }
    // Browsers take a backslash for a slash.
    let authority = rest.split(['/', '\\', '?', '#']).next()?;
    let host = authority.rsplit('@').next()?;
    let host = match host.split_once(']') {
        // An address of IPv6 has colons of its own.
        Some((address, _)) => address.strip_prefix('[')?,
        None => host.split(':').next()?,
    };
    let is_host_char = |c: char| c.is_alphanumeric() || ['.', '-', '_', ':'].contains(&c);
    if host.len() > HOST_BYTES_MAX || !host.chars().all(is_host_char) {
        return None;
    }
    let host = host.to_lowercase();
    let host = host.strip_suffix('.').unwrap_or(&host);
    let site = host.strip_prefix("www.").unwrap_or(host);
    Some(site).filter(|site| !site.is_empty()).map(Text::from)
}

/// The address without its user, password, query and fragment, which are secrets now and then.
pub(super) fn page(address: &str) -> Option<Text> {
    site(address)?;
    let address = address.trim().split(['?', '#']).next()?;
    let (scheme, rest) = address.split_once("://")?;
    let (authority, path) = rest.split_at(rest.find(['/', '\\']).unwrap_or(rest.len()));
    let host = authority.rsplit('@').next()?;
    Some(format!("{scheme}://{host}{path}").into())
}

/// The first value of a parameter of the query, decoded.
pub(super) fn parameter(address: &str, name: &str) -> Option<Text> {
    let address = address.split('#').next()?;
    let (_, query) = address.split_once('?')?;
    let mut parameters = query.split('&').filter_map(|part| part.split_once('='));
    let (_, value) = parameters.find(|(found, _)| *found == name)?;
    let spaced = match value.contains('+') {
        true => Cow::Owned(value.replace('+', " ")),
        false => Cow::Borrowed(value),
    };
    if !is_percent_encoded(&spaced) {
        return None;
    }
    let decoded = percent_decode_str(&spaced).decode_utf8().ok()?;
    Some(Text::from(decoded.trim())).filter(|value| !value.is_empty())
}
