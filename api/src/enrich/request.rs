//! The client of a request: its address behind proxies that are trusted, and what its headers say.

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderName, header};
use ipnetwork::IpNetwork;
use tallyring_records::{Evidence, KEY_BYTES_MAX};

use tallyring_records::address;

/// Networks of proxies whose header `X-Forwarded-For` is believed.
#[derive(Debug, Clone, Default)]
pub struct Proxies(Vec<IpNetwork>);

/// Bits before an address of IPv4 in one of IPv6.
const MAPPED_BITS: u8 = 96;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

impl Proxies {
    /// Networks such as `10.0.0.0/8`, and single addresses. The error names the first text that is neither.
    pub fn new(networks: &[String]) -> Result<Self, String> {
        let networks = networks.iter().map(|text| {
            let network = text.parse().ok().and_then(canonical);
            network.ok_or_else(|| {
                format!(
                    "\"{}\" must be an address or a network, such as \"10.0.0.0/8\"",
                    text.escape_debug()
                )
            })
        });
        Ok(Self(networks.collect::<Result<_, String>>()?))
    }

    /// The networks, such as `10.0.0.0/8`.
    pub fn networks(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(IpNetwork::to_string)
    }

    /// The client of a request, as its headers tell of it. Its address is the last one in `X-Forwarded-For` that is no
    /// trusted proxy, as each proxy notes the address that it was asked by; nobody else's header is believed.
    pub(super) fn evidence(&self, headers: &HeaderMap, peer: IpAddr) -> Evidence {
        let text = |name| {
            let text = headers.get(name)?.to_str().ok()?;
            (1..=KEY_BYTES_MAX)
                .contains(&text.len())
                .then(|| text.to_owned())
        };
        Evidence {
            ip: self
                .client(headers, peer.to_canonical())
                .map(|address| address.to_string()),
            ua: text(header::USER_AGENT),
            referrer: text(header::REFERER),
        }
    }

    /// None where a trusted proxy was asked by an address that it does not tell.
    fn client(&self, headers: &HeaderMap, peer: IpAddr) -> Option<IpAddr> {
        // A proxy adds to what its client sent, whatever that was: only the hops that are reached are read.
        let values = headers.get_all(FORWARDED_FOR).iter().rev();
        let mut hops = values.flat_map(|value| value.as_bytes().rsplit(|&byte| byte == b','));
        let mut client = peer;
        while self.trusts(client)
            && let Some(hop) = hops.next()
        {
            client = address(str::from_utf8(hop).ok()?)?;
        }
        Some(client)
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }
}

/// A network of IPv4 in IPv6 as one of IPv4, because clients are told so; none for one that ends within the prefix of
/// all such, and would hold no client.
fn canonical(network: IpNetwork) -> Option<IpNetwork> {
    let IpNetwork::V6(v6) = network else {
        return Some(network);
    };
    match v6.ip().to_ipv4_mapped() {
        Some(v4) => IpNetwork::new(v4.into(), v6.prefix().checked_sub(MAPPED_BITS)?).ok(),
        None => Some(network),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn client(peer: &str, hops: &[impl AsRef<[u8]>]) -> Option<String> {
        let trusted = [
            "127.0.0.0/8",
            "::1",
            "::ffff:10.0.0.0/104",
            "2001:db8:f::/48",
        ];
        let proxies = Proxies::new(&trusted.map(str::to_owned)).expect("networks");
        let mut headers = HeaderMap::new();
        for hop in hops {
            headers.append(
                FORWARDED_FOR,
                HeaderValue::from_bytes(hop.as_ref()).expect("a value"),
            );
        }
        proxies
            .evidence(&headers, peer.parse().expect("an address"))
            .ip
    }

    #[test]
    fn the_client_is_the_last_address_that_is_no_trusted_proxy() {
        for (peer, hops, wanted) in [
            ("203.0.113.9", &[][..], Some("203.0.113.9")),
            ("203.0.113.9", &["198.51.100.1"], Some("203.0.113.9")),
            ("::ffff:203.0.113.9", &[], Some("203.0.113.9")),
            ("10.0.0.1", &["198.51.100.1"], Some("198.51.100.1")),
            ("::ffff:10.0.0.1", &["198.51.100.1"], Some("198.51.100.1")),
            (
                "10.0.0.1",
                &["192.0.2.66, 198.51.100.1"],
                Some("198.51.100.1"),
            ),
            (
                "10.0.0.1",
                &["192.0.2.66", "198.51.100.1,10.0.0.2"],
                Some("198.51.100.1"),
            ),
            (
                "10.0.0.1",
                &["198.51.100.1, 192.0.2.66, 10.0.0.2"],
                Some("192.0.2.66"),
            ),
            (
                "2001:db8:f::1",
                &["[2001:db8:1::7]:443"],
                Some("2001:db8:1::7"),
            ),
            ("10.0.0.1", &["198.51.100.1:4711"], Some("198.51.100.1")),
            ("10.0.0.1", &["10.0.0.3, 10.0.0.2"], Some("10.0.0.3")),
            ("127.0.0.1", &[], Some("127.0.0.1")),
            ("10.0.0.1", &["198.51.100.1, unknown"], None),
            ("10.0.0.1", &["198.51.100.1,"], None),
            ("10.0.0.1", &[""], None),
            ("10.0.0.1", &["198.51.100.1, <script>"], None),
        ] {
            assert_eq!(client(peer, hops).as_deref(), wanted, "{peer} {hops:?}");
        }
    }

    #[test]
    fn a_client_cannot_hide_behind_what_is_no_text() {
        for (hops, wanted) in [
            (&[&b"\xff, 198.51.100.1"[..]][..], Some("198.51.100.1")),
            (
                &[b"\xff", b"192.0.2.66, 198.51.100.1, 10.0.0.2"],
                Some("198.51.100.1"),
            ),
            (&[b"198.51.100.1, \xff"], None),
            (&[b"198.51.100.1", b"\xff"], None),
        ] {
            assert_eq!(client("10.0.0.1", hops).as_deref(), wanted, "{hops:?}");
        }
    }

    #[test]
    fn a_network_of_ipv4_in_ipv6_is_one_of_ipv4() {
        let trusted = ["::ffff:10.0.0.0/104", "::ffff:192.0.2.1", "::1"];
        let proxies = Proxies::new(&trusted.map(str::to_owned)).expect("networks");
        let networks: Vec<String> = proxies.networks().collect();
        assert_eq!(networks, ["10.0.0.0/8", "192.0.2.1/32", "::1/128"]);
    }

    #[test]
    fn a_long_or_unreadable_header_is_left_out() {
        let evidence = |name, value: &[u8]| {
            let mut headers = HeaderMap::new();
            let value = HeaderValue::from_bytes(value).expect("a value");
            headers.insert(name, value);
            let found = Proxies::default().evidence(&headers, IpAddr::from([203, 0, 113, 9]));
            (found.ua, found.referrer)
        };
        let agent = |value: &[u8]| evidence(header::USER_AGENT, value).0;
        assert_eq!(agent(b"curl/8.5.0").as_deref(), Some("curl/8.5.0"));
        assert_eq!(agent(b""), None);
        assert_eq!(agent(b"\xff"), None);
        assert_eq!(agent(&[b'x'; KEY_BYTES_MAX + 1]), None);
        let page = evidence(header::REFERER, b"https://a.example/").1;
        assert_eq!(page.as_deref(), Some("https://a.example/"));
    }

    #[test]
    fn a_text_that_is_no_network_is_named() {
        for text in [
            "10.0.0.0/33",
            "proxy.example",
            "",
            "10.0.0.0/8, ::1",
            "::ffff:10.0.0.0/8",
        ] {
            let error = Proxies::new(&["::1".to_owned(), text.to_owned()]).err();
            let error = error.unwrap_or_default();
            let named = format!("\"{text}\" must be an address or a network");
            assert!(error.starts_with(&named), "{error}");
        }
    }
}
