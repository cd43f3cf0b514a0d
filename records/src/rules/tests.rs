//! Verdicts of rules, each against a naive model.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::details::{Details, Evidence};
use crate::filter::tests::{filter, schema};

fn event(kind: &str, ad: &str, device: &str, user: &str) -> Increment {
    let event = Event {
        kind: kind.into(),
        view: Some("home".into()),
        correction: false,
    };
    Increment {
        by: vec![("device".into(), device.into())],
        user: Some(user.into()),
        event: Some(event.into()),
        ..Increment::new(1_331_923_247, 1, [(format!("ad_{kind}"), ad)])
    }
}

fn click(ip: Option<&str>, ua: Option<&str>) -> Increment {
    let evidence = Evidence {
        ip: ip.map(str::to_owned),
        ua: ua.map(str::to_owned),
        referrer: None,
    };
    let details = Details {
        evidence,
        ..Details::default()
    };
    Increment {
        details: details.boxed(),
        ..event("click", "a", "mobile", "u")
    }
}

/// A schema with these lists, and a rule of the same name for each.
fn listed(lists: &[(&str, ListKind, &str)]) -> (Schema, BTreeMap<String, Vec<u8>>) {
    let mut schema = schema(&[]);
    let mut contents = BTreeMap::new();
    for (name, kind, content) in lists {
        let sha256 = content_hash(content.as_bytes());
        contents.insert(sha256.clone(), content.as_bytes().to_vec());
        schema.lists.push(List {
            name: (*name).into(),
            kind: *kind,
            sha256,
        });
        let rule = format!(r#"{{"name":"{name}","list":"{name}"}}"#);
        schema.filters.push(filter(&rule).expect("a rule"));
    }
    assert_eq!(schema.validate(), Ok(()));
    (schema, contents)
}

fn compiled(lists: &[(&str, ListKind, &str)]) -> Result<Rules, RulesError> {
    let (schema, contents) = listed(lists);
    Rules::compile(&schema, &|sha256| contents.get(sha256).cloned())
}

fn no_lists(schema: &Schema) -> Rules {
    assert_eq!(schema.validate(), Ok(()));
    Rules::compile(schema, &|_| None).expect("rules without lists")
}

#[test]
fn the_first_rule_that_fits_is_told() {
    let schema = schema(&[
        Filter::of_values("bots", &["click"], "by.device", &["bot", "crawler"]),
        Filter::of_values("own", &[], "user", &["me"]),
        Filter::of_values("test_ad", &[], "entities.ad", &["test"]),
        Filter::of_values("hidden", &["view"], "view", &["home"]),
    ]);
    let rules = no_lists(&schema);
    let rule = |increment: &Increment| {
        let judged = rules.stateless(increment);
        assert!(!judged.undecided, "rules over fields decide always");
        judged.caught.map(|index| &*schema.filters[index].name)
    };
    assert_eq!(rule(&event("click", "a", "bot", "me")), Some("bots"));
    assert_eq!(rule(&event("click", "a", "mobile", "me")), Some("own"));
    assert_eq!(
        rule(&event("click", "test", "mobile", "u")),
        Some("test_ad")
    );
    assert_eq!(rule(&event("view", "a", "bot", "u")), Some("hidden"));
    assert_eq!(rule(&event("click", "a", "mobile", "u")), None);
    let plain = Increment {
        event: None,
        ..event("click", "a", "bot", "me")
    };
    assert_eq!(rule(&plain), None, "increments are not filtered");
}

#[test]
fn lists_catch_by_evidence_and_do_not_decide_without_it() {
    let crawlers = "\u{feff}# crawlers\r\n\r\n(?i)bot\\b\r\n  ^curl/  \r\n";
    let networks =
        "10.0.0.0/8 # private\n192.0.2.7\n2001:db8::/32\n::ffff:198.51.100.0/120\n10.1.0.0/16\n";
    let rules = compiled(&[
        ("crawlers", ListKind::UserAgent, crawlers),
        ("networks", ListKind::Ip, networks),
    ])
    .expect("usable lists");
    assert_eq!(
        (rules.entries("crawlers"), rules.entries("networks")),
        (Some(2), Some(5))
    );
    for (ip, ua, caught, undecided) in [
        (Some("192.0.2.1"), Some("Mozilla/5.0"), None, false),
        (None, Some("GoogleBot 2"), Some(0), false),
        (None, Some("curl/8"), Some(0), false),
        (None, Some("a curl/8"), None, true),
        (Some("10.1.2.3"), None, Some(1), false),
        (Some("10.255.255.255:80"), Some("x"), Some(1), false),
        (Some("11.0.0.0"), Some("x"), None, false),
        (Some("9.255.255.255"), Some("x"), None, false),
        (Some("192.0.2.7"), Some("x"), Some(1), false),
        (Some("::ffff:192.0.2.7"), Some("x"), Some(1), false),
        (Some("198.51.100.9"), Some("x"), Some(1), false),
        (Some("[2001:db8::1]:80"), Some("x"), Some(1), false),
        (Some("2001:db9::"), Some("x"), None, false),
        (Some("unknown"), Some("x"), None, true),
        (Some("unknown"), Some("bot"), Some(0), false),
        (None, None, None, true),
    ] {
        let judged = rules.stateless(&click(ip, ua));
        assert_eq!(judged, Judged { caught, undecided }, "{ip:?} {ua:?}");
    }
}

#[test]
fn a_list_that_cannot_be_used_is_named_with_its_line() {
    let long = format!("a\n{}", "x".repeat(5_000));
    let many = "1.2.3.4\n".repeat(2_000_001);
    let full = "1.2.3.4\n".repeat(2_000_000);
    for (kind, content, named) in [
        (ListKind::Ip, "", "the list is empty"),
        (ListKind::UserAgent, "# only\n\n", "the list is empty"),
        (
            ListKind::UserAgent,
            "a\n(b",
            "line 2: the regular expression",
        ),
        (
            ListKind::UserAgent,
            "a|",
            "line 1: the pattern matches every",
        ),
        (
            ListKind::UserAgent,
            "a{100000}{1000}",
            "line 1: the regular",
        ),
        (ListKind::UserAgent, &long, "line 2: it has 5000 bytes"),
        (
            ListKind::Ip,
            "10.0.0.0/33",
            "line 1: `10.0.0.0/33` is no network",
        ),
        (
            ListKind::Ip,
            "\n10.0.0.1/8",
            "line 2: `10.0.0.1/8` has bits behind its prefix; write 10.0.0.0/8 or 10.0.0.1",
        ),
        (
            ListKind::Ip,
            &many,
            "line 2000001: the list has more than 2,000,000",
        ),
    ] {
        let error = compiled(&[("l", kind, content)]).expect_err(named);
        let error = error.to_string();
        assert!(error.starts_with("list `l`: "), "{error}");
        assert!(error.contains(named), "{named}: {error}");
    }
    assert_eq!(check_list(ListKind::Ip, full.as_bytes()), Ok(2_000_000));
    let wrong = check_list(ListKind::Ip, b"1.2.3.4\n\xff").expect_err("no UTF-8");
    assert_eq!(wrong.line, Some(2));
}

#[test]
fn networks_that_hold_every_address_are_wrong_in_a_new_list_alone() {
    for (content, family) in [
        ("0.0.0.0/1\n10.0.0.0/8\n128.0.0.0/1", "IPv4"),
        ("10.0.0.0/8\n::/0", "IPv6"),
    ] {
        let wrong = check_new_list(ListKind::Ip, content.as_bytes()).expect_err(family);
        let says = format!("the networks together hold every address of {family};");
        assert!(wrong.what.starts_with(&says), "{wrong}");
        compiled(&[("l", ListKind::Ip, content)]).expect(family);
    }
    let most = b"0.0.0.0/1\n::/1";
    assert_eq!(check_new_list(ListKind::Ip, most), Ok(2));
    assert_eq!(check_new_list(ListKind::UserAgent, b"bot"), Ok(1));
}

#[test]
fn content_that_is_gone_or_another_is_refused_and_its_rules_decide_nothing() {
    let (schema, _) = listed(&[
        ("l", ListKind::Ip, "10.0.0.0/8"),
        ("m", ListKind::Ip, "1.2.3.4"),
    ]);
    for content in [None, Some(b"11.0.0.0/8".to_vec())] {
        let error = Rules::compile(&schema, &|_| content.clone()).expect_err("missing");
        assert!(matches!(error, RulesError::Missing { .. }), "{error}");
    }
    let one = |sha256: &str| (sha256 == schema.lists[1].sha256).then(|| b"1.2.3.4".to_vec());
    let (rules, wrong) = Rules::compile_usable(&schema, &one, &Rules::default());
    assert_eq!((wrong.len(), &*wrong[0].0), (1, "l"));
    let judged = |ip| rules.stateless(&click(Some(ip), None));
    assert_eq!(judged("1.2.3.4").caught, Some(1));
    assert!(judged("10.1.2.3").undecided);
    // Content that is known need not be read again.
    let (again, wrong) = Rules::compile_usable(&schema, &|_| None, &rules);
    assert_eq!((again.entries("m"), wrong.len()), (Some(1), 1));
}

#[test]
fn events_belong_together_by_type_and_fields() {
    let repeat = r#"{"name":"a","within":"30s","same":["user","ad","ip"]}"#;
    let needs = r#"{"name":"b","events":["click"],"needs":"view","within":"30s","same":["ad"]}"#;
    let schema = schema(&[filter(repeat).expect("a"), filter(needs).expect("b")]);
    let rules = no_lists(&schema);
    let [repeat, needs] = &rules.memory_rules().collect::<Vec<_>>()[..] else {
        panic!("two rules");
    };
    let with_ip = click(Some("192.0.2.1"), None);
    let (plain, view) = (event("click", "a", "x", "u"), event("view", "a", "x", "u"));
    assert_eq!(repeat.key(&plain), None, "no address");
    let same = click(Some("[::ffff:192.0.2.1]:80"), None);
    assert_eq!(repeat.key(&with_ip), repeat.key(&same));
    let other = click(Some("192.0.2.2"), None);
    assert_ne!(repeat.key(&with_ip), repeat.key(&other));
    assert_eq!(needs.key(&plain), needs.key(&view));
    assert_eq!(needs.role(&plain), Some(Role::Judged));
    assert_eq!(needs.role(&view), Some(Role::Needed));
    assert_ne!(needs.key(&plain), needs.key(&event("click", "b", "x", "u")));
    let mut none = plain;
    none.event = None;
    assert_eq!((needs.role(&none), needs.key(&none)), (None, None));
}

/// The events of one key: seconds, and whether each is the needed one. In the order of time.
fn events() -> impl Strategy<Value = Vec<(i64, bool)>> {
    let events = prop::collection::vec((0..60_i64, any::<bool>()), 0..40);
    events.prop_map(|mut events| {
        events.sort_by_key(|(at, _)| *at);
        events
    })
}

fn run(rule: &str, events: &[(i64, bool)]) -> Vec<bool> {
    let schema = schema(&[filter(rule).expect("a rule")]);
    let rules = no_lists(&schema);
    let rule = rules.memory_rules().next().expect("a rule with memory");
    let mut memory = rule.begin();
    let role = |is_needed| match is_needed {
        true => Role::Needed,
        false => Role::Judged,
    };
    let caught = events
        .iter()
        .map(|(at, is_needed)| memory.next(*at, role(*is_needed)));
    caught.collect()
}

proptest! {
    #[test]
    fn prop_a_repeat_is_near_a_kept_one(events in events(), within in 1..20_i64) {
        let rule = format!(r#"{{"name":"a","within":"{within}s","same":["ad"]}}"#);
        let events: Vec<_> = events.iter().map(|(at, _)| (*at, false)).collect();
        let mut kept: Vec<i64> = Vec::new();
        let naive: Vec<bool> = events.iter().map(|(at, _)| {
            let caught = kept.iter().any(|before| at - before < within);
            if !caught {
                kept.push(*at);
            }
            caught
        }).collect();
        prop_assert_eq!(run(&rule, &events), naive);
    }

    #[test]
    fn prop_the_excess_is_what_too_many_came_before(
        events in events(), within in 1..20_i64, most in 1..6_usize
    ) {
        let rule = format!(r#"{{"name":"a","more_than":{most},"within":"{within}s","same":["ad"]}}"#);
        let events: Vec<_> = events.iter().map(|(at, _)| (*at, false)).collect();
        let naive: Vec<bool> = (0..events.len()).map(|index| {
            let (at, _) = events[index];
            let of_window = events[..=index].iter().filter(|(before, _)| at - before < within);
            of_window.count() > most
        }).collect();
        prop_assert_eq!(run(&rule, &events), naive);
    }

    #[test]
    fn prop_what_is_needed_came_before_in_time(events in events(), within in 1..20_i64) {
        let rule = format!(
            r#"{{"name":"a","events":["click"],"needs":"view","within":"{within}s","same":["ad"]}}"#
        );
        let naive: Vec<bool> = (0..events.len()).map(|index| {
            let (at, is_needed) = events[index];
            let mut before = events[..index].iter();
            !is_needed && !before.any(|(of, needed)| *needed && at - of < within)
        }).collect();
        prop_assert_eq!(run(&rule, &events), naive);
    }

    #[test]
    fn prop_networks_hold_what_one_of_them_holds(
        networks in prop::collection::vec((any::<u8>(), 24..=32_u8), 1..12), last in any::<u8>()
    ) {
        let texts: Vec<String> = networks.iter().map(|(last, prefix)| {
            let masked = u32::from(*last) & (u32::MAX.checked_shl(32 - u32::from(*prefix)).unwrap_or(0));
            format!("192.0.2.{masked}/{prefix}")
        }).collect();
        let rules = compiled(&[("l", ListKind::Ip, &texts.join("\n"))]).expect("networks");
        let address: IpAddr = format!("192.0.2.{last}").parse().expect("an address");
        let naive = texts.iter().any(|text| {
            let network: ipnetwork::IpNetwork = text.parse().expect("a network");
            network.contains(address)
        });
        let judged = rules.stateless(&click(Some(&address.to_string()), None));
        prop_assert_eq!(judged.caught.is_some(), naive);
    }
}
