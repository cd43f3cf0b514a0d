//! Closed days are judged again from the log, compared with a naive map of everything that was sent.

mod actions;
mod again;
mod deletes;
mod evidence;
mod ids;
mod minutes;
mod not_final;
mod sent;
mod users;
mod world;

use std::collections::BTreeMap;

use tallyring_archive::{RepeatedKey, RepeatedKeys};
use tallyring_realtime::{Error, Logged, Reconciled, VoidOrder};
use tallyring_records::{COUNT_MAX, Day, Filter, List, ListKind, Record, RuleSet};

use sent::{DAY, DAYS, HOURS, Sent, bots, rule};
use world::World;

const SEEDS: u64 = 40;

/// A click and a click of a bot; 26 hours later a rule is declared, and the click is sent again.
#[test]
fn a_click_that_counted_twice_and_a_bot_leave_the_final_number() {
    let mut world = World::new(1);
    world.send(vec![
        Sent::click("e1", "a", "phone"),
        Sent::click("b1", "a", "bot"),
    ]);
    world.pass(26 * HOURS);
    world.restart_with(vec![bots()]);
    world.send(vec![Sent::click("e1", "a", "phone")]);
    world.at_days(3);
    assert_eq!(
        world.served(),
        BTreeMap::from([
            (("a".into(), DAY, "bot".into()), 1),
            (("a".into(), DAY, "phone".into()), 2)
        ])
    );
    let reconciled = world.reconcile();
    let click = &reconciled.types["click"];
    assert_eq!((click.before, click.after, click.gross), (3, 1, 3));
    let causes = [("duplicate_beyond_window", -1), ("filtered_by:bots", -1)];
    let causes: BTreeMap<String, i128> = causes.map(|(cause, n)| (cause.to_owned(), n)).into();
    assert_eq!(click.causes, causes);
    world.check("final");
}

/// Two of 1,000 clicks of a key that counted twice are too many, and one is not.
#[test]
fn keys_of_which_many_events_had_counted_twice_are_named() {
    let mut world = World::new(1);
    let long = "http://a.example/long";
    let sums = [
        ("a", 996, 2),
        ("b", 998, 1),
        ("c", 981, 9),
        (long, 4_900, 50),
    ];
    let twice = || {
        let clicks = sums.iter();
        let clicks = clicks.map(|(ad, _, n)| Sent::click(&format!("of {ad}"), ad, "bot").times(*n));
        clicks.collect::<Vec<Sent>>()
    };
    let once = sums.iter();
    let once = once.map(|(ad, n, _)| Sent::click(&format!("more of {ad}"), ad, "phone").times(*n));
    world.send(once.chain(twice()).collect());
    world.pass(26 * HOURS);
    world.restart_with(vec![rule("none", "by.device", "none")]);
    world.send(twice());
    world.at_days(3);
    let named = |key: &str, n: u128, before: u128| RepeatedKey {
        namespace: "ad_click".into(),
        key: key.into(),
        n,
        before,
    };
    let expected = RepeatedKeys {
        keys: 2,
        most: vec![named(long, 50, 5_000), named("a", 2, 1_000)],
    };
    let reconciled = world.reconcile();
    let causes = BTreeMap::from([("duplicate_beyond_window".to_owned(), -62)]);
    assert_eq!(reconciled.types["click"].causes, causes);
    assert_eq!(reconciled.repeated, expected);
    again::check(&world, "repeated");
    // Keys that count twice no more are not told.
    world.restart_with(vec![bots()]);
    assert_eq!(world.reconcile().repeated, RepeatedKeys::default());
    again::check(&world, "not repeated");
}

/// A void takes the first of the records with its id, whatever the rules say of it. The others are duplicates as
/// before.
#[test]
fn a_voided_click_leaves_the_final_number_and_its_duplicates_stay_duplicates() {
    let mut world = World::new(1);
    world.send(vec![
        Sent::click("e1", "a", "phone"),
        Sent::click("e2", "a", "phone"),
        Sent::click("b1", "a", "bot"),
    ]);
    world.pass(26 * HOURS);
    world.restart_with(vec![bots()]);
    world.send(vec![Sent::click("e1", "a", "phone")]);
    for id in ["e1", "b1"] {
        let voided = world.void(id);
        assert_eq!(
            (voided.now.len(), voided.before.len()),
            (1, 0),
            "{id}: one void for its day"
        );
        let again = world.void(id);
        assert_eq!((again.now.len(), &again.before), (0, &voided.now), "{id}");
    }
    world.at_days(3);
    let served: u64 = world.served().values().sum();
    assert_eq!(served, 4, "a void alone changes no count");
    let reconciled = world.reconcile();
    let click = &reconciled.types["click"];
    let causes = [("duplicate_beyond_window", -1), ("voided", -2)];
    let causes: BTreeMap<String, i128> = causes.map(|(cause, n)| (cause.to_owned(), n)).into();
    assert_eq!((click.before, click.after, &click.causes), (4, 1, &causes));
    world.check("final");
    world.restart_with(Vec::new());
    assert!(!world.judge().is_new, "no rule brings a voided click back");
    world.void("e2");
    let second = world.reconcile();
    assert_eq!(
        second.types["click"].causes,
        BTreeMap::from([("voided".to_owned(), -1)])
    );
    world.check("voided after it was final");
}

/// The rule has the name of before and other values, and no version was judged by the old ones.
#[test]
fn a_rule_that_changed_restores_what_only_its_values_of_before_caught() {
    let mut world = World::new(1);
    world.restart_with(vec![rule("devices", "by.device", "phone")]);
    world.send(vec![
        Sent::click("e1", "a", "phone"),
        Sent::click("b1", "a", "bot"),
    ]);
    world.restart_with(vec![rule("devices", "by.device", "bot")]);
    world.at_days(3);
    let click = &world.reconcile().types["click"];
    let causes = [("filtered_by:devices", -1), ("restored:devices", 1)];
    let causes: BTreeMap<String, i128> = causes.map(|(cause, n)| (cause.to_owned(), n)).into();
    assert_eq!((click.before, click.after, &click.causes), (1, 1, &causes));
    let phone = (("a".into(), DAY, "phone".into()), 1);
    assert_eq!(world.served(), BTreeMap::from([phone]));
}

/// Rule by rule, what a version filters is what was filtered before and what its causes say.
#[test]
fn an_event_that_another_rule_catches_now_is_told_by_causes_that_sum_to_nothing() {
    let mut world = World::new(1);
    world.restart_with(vec![rule("old", "by.device", "bot")]);
    world.send(vec![
        Sent::click("b1", "a", "bot"),
        Sent::click("p1", "a", "phone"),
    ]);
    world.restart_with(vec![bots()]);
    world.at_days(3);
    let moved = |from: &str, to: &str| {
        BTreeMap::from([(format!("moved:{from}"), 1), (format!("moved:{to}"), -1)])
    };
    let first = world.reconcile();
    let click = &first.types["click"];
    assert_eq!((click.before, click.after), (1, 1));
    assert_eq!(click.causes, moved("old", "bots"));
    world.check("another rule has it");
    world.void("b1");
    let second = world.reconcile();
    assert_eq!(second.types["click"].causes, moved("bots", "voided"));
    world.check("it is voided");
    assert!(!world.judge().is_new);
}

/// A record that asks for a void does nothing until another key confirms it.
#[test]
fn a_void_that_no_other_key_confirmed_takes_nothing_away() {
    let mut world = World::new(1);
    world.send(vec![Sent::click("e1", "a", "phone")]);
    let order = |actor| VoidOrder {
        identity: None,
        id: "e1",
        reason: "it was a test",
        actor,
        four_eyes: true,
    };
    let ask = |world: &World, actor| world.store().intake().void(order(actor)).expect("asked");
    assert!(matches!(
        ask(&world, "a").now[..],
        [Logged {
            record: Record::VoidAsked(_),
            ..
        }]
    ));
    world.restart_with(Vec::new());
    world.at_days(3);
    assert_eq!(world.reconcile().types["click"].after, 1);
    let again = ask(&world, "a");
    assert_eq!(
        (again.now.len(), again.waiting.len(), again.before.len()),
        (0, 1, 0)
    );
    assert!(matches!(
        ask(&world, "b").now[..],
        [Logged {
            record: Record::Void(_),
            ..
        }]
    ));
    assert_eq!(ask(&world, "a").before.len(), 1);
    let second = world.reconcile();
    assert_eq!(
        second.types["click"].causes,
        BTreeMap::from([("voided".to_owned(), -1)])
    );
}

#[test]
fn sums_of_a_day_may_be_larger_than_any_counter() {
    let mut world = World::new(1);
    let ads = 0..2_100;
    let clicks = ads.map(|ad| Sent::click(&format!("e{ad}"), &format!("ad{ad}"), "phone"));
    world.send(clicks.map(|click| click.times(COUNT_MAX)).collect());
    world.at_days(3);
    let reconciled = world.reconcile();
    let click = &reconciled.types["click"];
    let sum = 2_100 * u128::from(COUNT_MAX);
    assert_eq!((click.gross, click.after), (sum, sum));
    assert_eq!(click.shown().after, COUNT_MAX);
}

#[test]
fn a_day_before_the_log_began_has_no_final_number() {
    let mut world = World::new(1);
    world.send(vec![Sent::click("e1", "a", "phone").at(DAY - 3 * DAYS)]);
    world.at_days(3);
    let of = |days: i64| world.try_judge_of(Day::of(DAY - days * DAYS));
    let refused = of(4).expect_err("refused").to_string();
    assert!(
        refused.contains("the log begins on 2012-03-16"),
        "{refused}"
    );
    assert_eq!(of(3).expect("an event came late").types["click"].after, 1);
}

#[test]
fn a_day_whose_log_is_gone_is_refused_with_the_day_on_which_the_log_begins() {
    let mut world = World::new(1);
    world.send(vec![Sent::click("e1", "a", "phone")]);
    world.fill_segments();
    world.at_days(5);
    world.fill_segments();
    world.at_days(11);
    let removed = world.store().ledger().expire_log().expect("expired");
    assert!(removed > 0, "segments of the first day");
    let refused = world.try_judge().expect_err("refused").to_string();
    let says = "and no longer reaches back to the first event of 2012-03-16; a longer `oplog.keep_days` keeps it";
    assert!(
        refused.contains("the log begins on 2012-03-") && refused.contains(says),
        "{refused}"
    );
    let served: u64 = world.served().values().sum();
    assert!(served >= 1, "the day counts as before");
}

/// The index of days of a packed segment counts voids, so a segment that has nothing else of the day is read.
#[test]
fn a_void_is_found_in_a_packed_segment_without_an_event_of_its_day() {
    let mut world = World::new(1);
    world.send(vec![Sent::click("e1", "a", "phone")]);
    world.pass(26 * HOURS);
    world.fill_segments();
    assert_eq!(world.void("e1").now.len(), 1);
    world.fill_segments();
    world.at_days(3);
    assert!(world.pack() > 5, "segments that are packed");
    let reconciled = world.reconcile();
    assert_eq!(
        reconciled.types["click"].causes,
        BTreeMap::from([("voided".to_owned(), -1)])
    );
    world.check("final");
}

#[test]
fn final_books_equal_a_map_of_everything_that_was_sent() {
    let (mut fixed, mut restored) = (0, 0);
    for seed in 1..=SEEDS {
        let mut world = World::new(seed);
        for _ in 0..world.chance.between(3, 12) {
            world.step();
        }
        world.at_days(world.days().max(2) + 1);
        let reconciled = world.reconcile();
        world.check_books(&reconciled, &format!("seed {seed}"));
        fixed += u32::from(!reconciled.minus.is_empty());
        restored += u32::from(!reconciled.plus.is_empty());
        world.check(&format!("seed {seed}"));
        if world.chance.percent(50) {
            world.rebuild();
            world.check(&format!("seed {seed}, merged"));
        }
        let again = world.judge();
        assert!(
            !again.is_new,
            "seed {seed}: nothing is left to be corrected"
        );
        for version in 2..4 {
            world.change();
            let judged = world.reconcile();
            let when = format!("seed {seed}, version {version}");
            world.check(&when);
            world.check_books(&judged, &when);
            fixed += u32::from(!judged.minus.is_empty());
            restored += u32::from(!judged.plus.is_empty());
            if world.chance.percent(50) {
                world.rebuild();
                world.check(&format!("{when}, merged"));
            }
        }
        again::check(&world, &format!("seed {seed}"));
    }
    assert!(
        fixed > 20 && restored > 10,
        "{fixed} with less, {restored} with more"
    );
}

#[test]
fn a_what_if_says_what_a_reconcile_says_once_the_rules_are_declared() {
    let mut changed = 0;
    for seed in 1..=SEEDS {
        let mut world = World::new(seed);
        for _ in 0..world.chance.between(3, 12) {
            world.step();
        }
        world.at_days(world.days().max(2) + 1);
        for round in 0..3 {
            let rules = world.draw_other_rules();
            let served = world.served();
            let asked = world.judge_by(Some(&rules));
            assert!(asked.is_what_if);
            assert_eq!(world.served(), served, "it only tells");
            world.restart_with(rules.filters);
            let declared = world.judge();
            let told = |of: &Reconciled| {
                let sums = (of.types.clone(), of.by.clone());
                (sums, of.version, of.is_new, of.rules.clone())
            };
            assert_eq!(told(&asked), told(&declared), "seed {seed}, {round}");
            let mut sums = asked.types.values();
            changed += u32::from(sums.any(|sums| !sums.causes.is_empty()));
            if world.chance.percent(70) {
                world.reconcile();
            }
            world.change();
        }
    }
    assert!(changed > 60, "{changed} with differences");
}

/// Three hours came before anybody thought of the rule. The rule is tried, declared, applied, and taken back.
#[test]
fn an_hour_without_a_rule_is_cleaned_up_and_restored() {
    let mut world = World::new(1);
    let sent = ["bot", "phone", "bot"].iter().enumerate();
    let clicks = sent.map(|(n, device)| Sent::click(&format!("e{n}"), "a", device));
    world.send(clicks.collect());
    world.at_days(3);
    let first = world.reconcile();
    assert_eq!(first.types["click"].after, 3);
    let rules = RuleSet {
        filters: vec![bots()],
        ..RuleSet::default()
    };
    let asked = world.judge_by(Some(&rules));
    let causes = BTreeMap::from([("filtered_by:bots".to_owned(), -2)]);
    assert_eq!((asked.version, &asked.types["click"].causes), (2, &causes));
    let sums = &asked.by.expect("asked for").types["click"]["filtered_by:bots"];
    assert_eq!(sums.keys, [("a".to_owned(), -2)]);
    world.restart_with(rules.filters);
    assert_eq!(world.reconcile().types["click"].causes, causes);
    world.check("applied");
    world.restart_with(Vec::new());
    let third = world.reconcile();
    let causes = BTreeMap::from([("restored:bots".to_owned(), 2)]);
    assert_eq!((third.version, &third.types["click"].causes), (3, &causes));
    world.check_books(&third, "undone");
    world.check("undone");
}

/// A rule that changes under its name judges anew what its former self had caught.
#[test]
fn an_event_that_a_former_rule_of_the_name_caught_comes_back() {
    let mut world = World::new(1);
    world.restart_with(vec![bots()]);
    world.send(vec![Sent::click("e1", "a", "bot")]);
    world.at_days(3);
    world.restart_with(vec![Filter::of_values(
        "bots",
        &[],
        "by.device",
        &["other"],
    )]);
    let causes = BTreeMap::from([("restored:bots".to_owned(), 1)]);
    assert_eq!(world.judge().types["click"].causes, causes);
}

#[test]
fn other_rules_that_cannot_be_used_are_refused_and_named() {
    let mut world = World::new(1);
    world.send(vec![Sent::click("e1", "a", "phone")]);
    world.at_days(3);
    let list = List {
        name: "crawlers".into(),
        kind: ListKind::UserAgent,
        sha256: "0".repeat(64),
    };
    let filter = |field: &str| Filter::of_values("wrong", &[], field, &["x"]);
    let set = |filters: Vec<Filter>, lists: Vec<List>| RuleSet { filters, lists };
    for (rules, by, field, said) in [
        (
            set(vec![filter("by.colour")], vec![]),
            None,
            "rules.filters.wrong",
            "by.colour",
        ),
        (
            set(vec![bots(), bots()], vec![]),
            None,
            "rules.filters.bots",
            "given twice",
        ),
        (
            set(vec![], vec![list.clone(), list.clone()]),
            None,
            "rules.lists",
            "declared twice",
        ),
        (
            set(vec![], vec![list]),
            None,
            "rules.lists.crawlers",
            "rules/0000",
        ),
        (set(vec![], vec![]), Some("campaign"), "by", "ad_click"),
    ] {
        let judged = world.try_judge_by(Day::of(DAY), Some(&rules), by);
        match judged.expect_err("refused") {
            Error::Field(error) => {
                assert_eq!(error.field, field, "{error}");
                assert!(error.detail.contains(said), "{error}");
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn a_day_that_is_not_over_or_has_left_the_log_is_refused() {
    let mut world = World::new(1);
    world.send(vec![Sent::click("e1", "a", "phone")]);
    let error = world.try_judge().expect_err("refused").to_string();
    assert!(error.contains("2012-03-16 is not closed"), "{error}");
    world.at_days(1);
    let error = world
        .try_judge()
        .expect_err("no rebuild closed it")
        .to_string();
    assert!(error.contains("is not closed"), "{error}");
}

/// Checks that the sums of keys are the sums of the causes.
pub(crate) fn check_keys(reconciled: &Reconciled, kind: &str, causes: &BTreeMap<String, i128>) {
    let by_key = reconciled.by.as_ref().expect("asked for");
    let sums = by_key.types.get(kind).into_iter().flatten();
    let sums = sums.map(|(cause, sums)| {
        let keys: i128 = sums.keys.iter().map(|(_, n)| n).sum();
        (cause.clone(), keys + sums.others + sums.without)
    });
    assert_eq!(&sums.collect::<BTreeMap<_, _>>(), causes, "{kind}");
}
