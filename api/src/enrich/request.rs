//! The client of a request: its address behind proxies that are trusted, and what its headers say.

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderName, header};
use ipnetwork::IpNetwork;
use tallyring_records::{Evidence, KEY_BYTES_MAX};

use super::address;

/// Networks of proxies whose header `X-Forwarded-For` is believed.
#[derive(Debug, Clone, Default)]
pub struct Proxies(Vec<IpNetwork>);

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

impl Proxies {
    /// Networks such as `10.0.0.0/8`, and single addresses. The error names the first text that is neither.
    pub fn new(networks: &[String]) -> Result<Self, String> {
        let networks = networks.iter().map(|text| {
            text.parse().map_err(|_| {
                format!(
                    "\"{}\" must be an address or a network, such as \"10.0.0.0/8\"",
                    text.escape_debug()
                )
            })
        });
        Ok(Self(networks.collect::<Result<_, String>>()?))
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
        let values = headers.get_all(FORWARDED_FOR).into_iter();
        // A value that is no text is no address.
        let hops = values.flat_map(|value| value.to_str().unwrap_or("?").split(','));
        let hops: Vec<&str> = hops.collect();
        let mut client = peer;
        let mut hops = hops.into_iter().rev();
        while self.trusts(client)
            && let Some(hop) = hops.next()
        {
            client = address(hop)?;
        }
        Some(client)
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn client(peer: &str, hops: &[&str]) -> Option<String> {
        let trusted = ["127.0.0.0/8", "::1", "10.0.0.0/8", "2001:db8:f::/48"];
        let proxies = Proxies::new(&trusted.map(str::to_owned)).expect("networks");
        let mut headers = HeaderMap::new();
        for hop in hops {
            headers.append(FORWARDED_FOR, HeaderValue::from_str(hop).expect("a value"));
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
        for text in ["10.0.0.0/33", "proxy.example", "", "10.0.0.0/8, ::1"] {
            let error = Proxies::new(&["::1".to_owned(), text.to_owned()]).err();
            let error = error.unwrap_or_default();
            let named = format!("\"{text}\" must be an address or a network");
            assert!(error.starts_with(&named), "{error}");
        }
    }
}
