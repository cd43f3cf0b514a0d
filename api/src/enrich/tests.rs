//! Values by source, from facts of every kind.

mod files;
pub(crate) mod mmdb;

use super::*;

/// Namespaces whose subtotals are called as the sources.
fn schema() -> Schema {
    let mut schema = Schema::default_clicks();
    schema.titles.clear();
    schema.namespaces[0].subtotals = SOURCES.map(|(name, _)| name.to_owned()).into();
    schema
}

fn enrich() -> Enrich {
    let fill = SOURCES.map(|(name, _)| (name.to_owned(), name.to_owned()));
    let enrich = Enrich::new(&fill.into(), &schema()).expect("usable");
    let geo = Geo::open(mmdb::small("GeoLite2-City"), true).expect("usable");
    enrich.with_geo(Arc::new(GeoFile::new("test.mmdb".into(), geo)))
}

/// The values of an increment on `l` that names `by`, as `name=value` in the order of the names.
fn filled(by: &[(&str, &str)], facts: Facts<'_>) -> Vec<String> {
    let mut increment = Increment::new(1_331_923_247, 1, [("l", "abc")]);
    let by = by.iter();
    increment.by = by
        .map(|&(name, value)| (name.into(), value.into()))
        .collect();
    enrich().fill(&mut increment, &Details::default(), &schema(), facts);
    assert_eq!(increment.validate(&schema()), Ok(()));
    let by = increment.by.iter();
    let mut by: Vec<String> = by.map(|(name, value)| format!("{name}={value}")).collect();
    by.sort();
    by
}

fn of_ip(ip: &str) -> Vec<String> {
    let facts = Facts {
        ip: Some(ip),
        ..Facts::default()
    };
    filled(&[], facts)
}

fn of_url(url: &str) -> Vec<String> {
    let facts = Facts {
        url: Some(url),
        ..Facts::default()
    };
    filled(&[], facts)
}

#[test]
fn an_address_tells_its_country_and_region_however_it_is_written() {
    let california = ["country=US", "region=US-CA"];
    for ip in [
        "203.0.113.9",
        " 203.0.113.9 ",
        "203.0.113.9:4711",
        "::ffff:203.0.113.9",
        "[::ffff:203.0.113.9]:4711",
        "2001:db8:1::7",
        "[2001:db8:1::7]",
        "[2001:db8:1::7]:443",
    ] {
        assert_eq!(of_ip(ip), california, "{ip}");
    }
    assert_eq!(of_ip("198.51.100.1"), ["country=DE"], "no region is known");
    for ip in [
        "8.8.8.8",
        "2001:db9::1",
        "unknown",
        "_hidden",
        "-",
        "203.0.113",
        "203.0.113.9, 198.51.100.1",
        "203.0.113.9:port",
        "[203.0.113.9",
        "fe80::1%eth0",
        // The file has records of these, too.
        "10.1.2.3",
        "192.168.0.1",
        "127.0.0.1",
        "::1",
        "::ffff:10.1.2.3",
    ] {
        assert_eq!(of_ip(ip), [""; 0], "{ip}");
    }
}

#[test]
fn a_referrer_tells_its_site() {
    for (referrer, site) in [
        ("https://www.News.example/a?b#c", Some("news.example")),
        ("http://news.example:8080/", Some("news.example")),
        ("https://user:secret@news.example/", Some("news.example")),
        ("https://a@b@news.example", Some("news.example")),
        ("https://evil.example\\@news.example/", Some("evil.example")),
        ("HTTPS://NEWS.EXAMPLE.", Some("news.example")),
        ("android-app://com.example.mail/", Some("com.example.mail")),
        ("https://[2001:DB8::1]:8443/", Some("2001:db8::1")),
        ("https://b\u{fc}cher.example/", Some("b\u{fc}cher.example")),
        ("https://www.", Some("www")),
        ("https://", None),
        ("https:///path", None),
        ("//news.example/", None),
        ("news.example", None),
        ("://news.example/", None),
        ("javascript:alert(1)//://x", None),
        ("https://news%2eexample/", None),
        ("https://news example/", None),
        ("https://[::1/", None),
        ("https://]/", None),
    ] {
        let facts = Facts {
            referrer: Some(referrer),
            ..Facts::default()
        };
        let site = site.map(|site| format!("site={site}"));
        let found = filled(&[], facts);
        let found = found.iter().filter(|of| of.starts_with("site="));
        let found: Vec<&String> = found.collect();
        assert_eq!(found, Vec::from_iter(&site), "{referrer}");
    }
    let long = format!("https://{}.example/", "a".repeat(250));
    assert_eq!(web_address::site(&long), None);
}

#[test]
fn a_referrer_counts_without_its_secrets() {
    for (referrer, counted) in [
        (
            "https://www.News.example/a/b",
            "https://www.News.example/a/b",
        ),
        (
            " https://news.example/?mail=a@b#c ",
            "https://news.example/",
        ),
        (
            "https://user:secret@news.example:8443/reset?token=secret#secret",
            "https://news.example:8443/reset",
        ),
        ("https://secret@secret@news.example", "https://news.example"),
        ("https://news.example?secret/@", "https://news.example"),
        ("https://news.example#secret", "https://news.example"),
        (
            "https://user:secret@[2001:db8::1]:8443/a@b",
            "https://[2001:db8::1]:8443/a@b",
        ),
        (
            "https://secret@news.example\\a@b",
            "https://news.example\\a@b",
        ),
    ] {
        let facts = Facts {
            referrer: Some(referrer),
            ..Facts::default()
        };
        let wanted = format!("referrer={counted}");
        assert!(filled(&[], facts).contains(&wanted), "{referrer}");
    }
    for referrer in [
        "-",
        "news.example?secret",
        "mailto:secret@news.example",
        "https:/secret@x",
    ] {
        let facts = Facts {
            referrer: Some(referrer),
            ..Facts::default()
        };
        assert_eq!(filled(&[], facts), [""; 0], "{referrer}");
    }
}

#[test]
fn the_address_of_a_page_tells_its_campaign() {
    let all = "https://shop.example/?utm_source=News+letter&utm_medium=e%2Dmail&x=1&utm_campaign=caf%C3%A9\
               &utm_term=%20shoes%20&utm_content=a%26b#utm_source=no";
    assert_eq!(
        of_url(all),
        [
            "utm_campaign=caf\u{e9}",
            "utm_content=a&b",
            "utm_medium=e-mail",
            "utm_source=News letter",
            "utm_term=shoes"
        ]
    );
    assert_eq!(
        of_url("/?utm_source=a&utm_source=b"),
        ["utm_source=a"],
        "the first one"
    );
    let long = format!("/?utm_source={}", "x".repeat(KEY_BYTES_MAX + 1));
    for url in [
        "https://shop.example/",
        "?",
        "/?utm_source",
        "/?utm_source=",
        "/?utm_source=+",
        "/?UTM_SOURCE=a",
        "/#?utm_source=a",
        "/?utm_source=%",
        "/?utm_source=%zz",
        "/?utm_source=%ff",
        "/?utm_source=a%00b",
        "/?utm_source=a%0d%0ab",
        &long,
    ] {
        assert_eq!(of_url(url), [""; 0], "{url}");
    }
}

#[test]
fn a_subtotal_that_the_sender_named_stays_as_it_was_sent() {
    let facts = Facts {
        ip: Some("203.0.113.9"),
        ua: Some("curl/8.5.0"),
        ..Facts::default()
    };
    let by = [("country", "AT"), ("region", ""), ("device", "-")];
    assert_eq!(filled(&by, facts), ["country=AT", "device=-", "region="]);
    // A wrong value was named, too; it is not in the increment any more.
    let mut details = Details::default();
    details.set_aside(tallyring_records::FieldError::malformed(
        "by.country",
        "7",
        "must be a text",
    ));
    let mut increment = Increment::new(1_331_923_247, 1, [("l", "abc")]);
    enrich().fill(&mut increment, &details, &schema(), facts);
    assert_eq!(increment.value("country"), None);
    assert_eq!(increment.value("region"), Some("US-CA"));
}

#[test]
fn only_declared_subtotals_are_filled_and_no_more_than_an_increment_may_have() {
    let facts = Facts {
        ip: Some("203.0.113.9"),
        ..Facts::default()
    };
    let mut increment = Increment::new(1_331_923_247, 1, [("u", "jehiah")]);
    enrich().fill(&mut increment, &Details::default(), &schema(), facts);
    assert_eq!(increment.by, []);
    let mut increment = Increment::new(1_331_923_247, 1, [("l", "abc")]);
    let full = (0..KEYS_MAX - 1).map(|number| (format!("x{number}").into(), "v".into()));
    increment.by = full.collect();
    enrich().fill(&mut increment, &Details::default(), &schema(), facts);
    assert_eq!(increment.by.len(), KEYS_MAX);
}

#[test]
fn a_fill_that_cannot_be_is_named() {
    for (subtotal, source, named) in [
        (
            "country",
            "land",
            "enrich.fill.country = \"land\" must be one of country, region, device",
        ),
        (
            "colour",
            "device",
            "declared are browser, c, country, device,",
        ),
        (
            "region*device",
            "country",
            "declared are browser, c, country, device,",
        ),
    ] {
        let fill = BTreeMap::from([(subtotal.to_owned(), source.to_owned())]);
        let error = Enrich::new(&fill, &schema()).err().unwrap_or_default();
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn a_user_agent_tells_device_browser_and_system() {
    for line in include_str!("tests/user_agents.txt").lines() {
        let Some((wanted, ua)) = line.split_once('\t') else {
            continue;
        };
        let agent = Agent::parse(ua).expect("an agent");
        let found = [
            agent.device,
            agent.browser.unwrap_or("-"),
            agent.system.unwrap_or("-"),
        ];
        assert_eq!(found.join(", "), wanted, "{ua}");
    }
    for ua in ["", " ", "-"] {
        assert_eq!(Agent::parse(ua), None);
    }
    // A word behind the bytes that are looked at, and a letter that lies across their end.
    let long = format!("{}\u{e9}Firefox/1", "x".repeat(1_023));
    let other = Agent {
        device: "other",
        browser: None,
        system: None,
    };
    assert_eq!(Agent::parse(&long), Some(other));
}
