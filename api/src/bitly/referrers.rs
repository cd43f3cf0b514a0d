//! Referrers by domain, and domains by network.

use tallyring_records::add_capped;

use super::facets::DIRECT;

/// Referrers that have something in common: a domain or a network.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// The domain or network.
    pub name: String,
    /// Clicks of all its referrers.
    pub clicks: u64,
    /// Its referrers in the order they came.
    pub referrers: Vec<(String, u64)>,
}

/// Groups referrers by `name_of`; the group with most clicks first, ties by name.
pub(super) fn grouped(referrers: Vec<(String, u64)>, name_of: fn(&str) -> String) -> Vec<Group> {
    let mut places = std::collections::HashMap::new();
    let mut groups: Vec<Group> = Vec::new();
    for (referrer, clicks) in referrers {
        let name = name_of(&referrer);
        let place = *places.entry(name.clone()).or_insert_with(|| {
            groups.push(Group {
                name,
                clicks: 0,
                referrers: Vec::new(),
            });
            groups.len() - 1
        });
        add_capped(&mut groups[place].clicks, clicks);
        groups[place].referrers.push((referrer, clicks));
    }
    groups.sort_by(|a, b| b.clicks.cmp(&a.clicks).then_with(|| a.name.cmp(&b.name)));
    groups
}

/// The host of a referrer in lower case, without user and port; `direct` for itself, and the whole
/// text where there is no host.
pub(super) fn domain_of(referrer: &str) -> String {
    let rest = referrer
        .split_once("://")
        .map_or(referrer, |(_, rest)| rest)
        .trim_start_matches('/');
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    let host = match host.find(']') {
        Some(end) if host.starts_with('[') => &host[..=end],
        _ => host.split(':').next().unwrap_or_default(),
    };
    let host = host.trim_end_matches('.');
    if host.is_empty() {
        referrer.to_owned()
    } else {
        host.to_lowercase()
    }
}

/// `direct`, `twitter`, `facebook` or `other`.
pub(super) fn network_of(referrer: &str) -> String {
    const NETWORKS: [(&str, &[&str]); 2] = [
        ("twitter", &["twitter.com", "t.co", "x.com"]),
        ("facebook", &["facebook.com", "fb.com", "fb.me"]),
    ];
    if referrer == DIRECT {
        return DIRECT.to_owned();
    }
    let domain = domain_of(referrer);
    let is_of = |site: &&str| {
        let before = domain.strip_suffix(*site);
        before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
    };
    let network = NETWORKS.iter().find(|(_, sites)| sites.iter().any(is_of));
    network.map_or("other", |(name, _)| name).to_owned()
}

/// The address of a group's domain, with the scheme of its largest referrer; none for `direct` and
/// whatever is no address.
pub(super) fn address_of(domain: &Group) -> Option<String> {
    let (largest, _) = domain.referrers.first()?;
    let (scheme, _) = largest.split_once("://")?;
    Some(format!("{scheme}://{}/", domain.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_domain_is_the_host() {
        for (referrer, domain) in [
            ("direct", "direct"),
            ("http://T.co/abc?x=1", "t.co"),
            (
                "https://user:pw@www.example.com:8080/a@b",
                "www.example.com",
            ),
            ("http://[2001:db8::1]:80/", "[2001:db8::1]"),
            ("//cdn.example.com./x", "cdn.example.com"),
            ("android-app://com.example.app/", "com.example.app"),
            ("example.com/path", "example.com"),
            ("https://example.com?q", "example.com"),
            ("http://", "http://"),
            ("Émail", "émail"),
        ] {
            assert_eq!(domain_of(referrer), domain, "{referrer}");
        }
    }

    #[test]
    fn networks_own_their_sites_and_below() {
        for (referrer, network) in [
            ("direct", "direct"),
            ("http://t.co/x", "twitter"),
            ("https://mobile.twitter.com/", "twitter"),
            ("https://l.facebook.com/l.php", "facebook"),
            ("https://netflix.com/", "other"),
            ("https://stackoverflow.com/", "other"),
        ] {
            assert_eq!(network_of(referrer), network, "{referrer}");
        }
    }

    #[test]
    fn groups_are_listed_by_clicks_and_keep_their_order() {
        let referrers = [
            ("https://b.example/1", 3),
            ("http://a.example/", 2),
            ("http://a.example/2", 2),
            ("http://b.example/", 1),
            ("direct", 1),
        ];
        let referrers = referrers.map(|(referrer, clicks)| (referrer.to_owned(), clicks));
        let groups = grouped(referrers.to_vec(), domain_of);
        let shown: Vec<(&str, u64, usize)> = groups
            .iter()
            .map(|group| (group.name.as_str(), group.clicks, group.referrers.len()))
            .collect();
        assert_eq!(
            shown,
            [("a.example", 4, 2), ("b.example", 4, 2), ("direct", 1, 1)]
        );
        assert_eq!(
            address_of(&groups[1]).as_deref(),
            Some("https://b.example/")
        );
        assert_eq!(address_of(&groups[2]), None);
    }
}
