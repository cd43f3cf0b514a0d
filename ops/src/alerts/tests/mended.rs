//! Alerts that must not come, and alerts that must not be lost.

use super::*;

const DAY: i64 = 86_400;

fn drop_of_half() -> String {
    section("drop", "kind = \"drop\"\nfactor = 0.5")
}

fn few() -> String {
    section("few", "kind = \"threshold\"\nbelow = 5")
}

#[test]
fn a_clock_that_was_ahead_silences_nobody_once_it_is_back() {
    let mut site = Site::with(&few(), 4);
    site.hours(&[USUAL]);
    // Somebody means it, so hours without counts are judged there.
    site.clock.ahead.store(30 * DAY, Ordering::Relaxed);
    site.round_at(START + HOUR + 500);
    assert_eq!(site.events(), ["few 672 begun"]);
    site.clock.ahead.store(0, Ordering::Relaxed);
    site.clock.now.store(START + HOUR, Ordering::Relaxed);
    site.hours(&[0, USUAL]);
    assert_eq!(
        site.events(),
        ["few 672 begun", "few 1 begun", "few 2 ended"]
    );
}

#[test]
fn nothing_is_judged_while_the_clock_is_doubted() {
    let mut site = Site::with(&few(), 4);
    site.hours(&[USUAL]);
    site.clock.is_real.store(true, Ordering::Relaxed);
    site.clock.ahead.store(30 * DAY, Ordering::Relaxed);
    site.store.intake().tick().unwrap();
    assert!(site.store.status().clock_jumped);
    site.round_at(START + 2 * HOUR);
    assert_eq!(site.events(), [""; 0]);
}

#[test]
fn an_hour_of_a_half_hour_zone_is_judged_once_its_counts_are_whole() {
    let kind = "kind = \"drop\"\nfactor = 0.7\ntimezone = \"Asia/Kolkata\"";
    let mut site = Site::with(&section("drop", kind), 4);
    for half in 0..12 {
        let now = START + half * HOUR / 2;
        site.round_at(now + 400);
        site.clock.now.store(now + 1_700, Ordering::Relaxed);
        site.count(now + 1_700, USUAL / 2);
    }
    assert_eq!(site.events(), [""; 0]);
    // The hour from 21:30 to 22:30 counts what came from 22 to 23.
    let until = site.duty.alerts.told().unwrap().alerts[0].judged_until;
    assert_eq!(until, Some(START + 9 * HOUR / 2));
}

#[test]
fn missed_hours_wait_for_what_was_held_back() {
    let mut site = Site::with(&few(), 1);
    site.clock.is_real.store(true, Ordering::Relaxed);
    let began = START + HOUR + 400;
    site.round_at(began);
    site.round_at(began + 599);
    assert_eq!(site.events(), [""; 0]);
    site.round_at(began + 700);
    assert_eq!(site.events(), ["few 0 begun"]);
}

#[test]
fn an_alert_that_was_away_or_means_something_else_begins_anew() {
    let mut site = Site::with(&drop_of_half(), 4);
    site.hours(&[0]);
    site.duty.alerts.replace(AlertConfig::default());
    site.hours(&[0]);
    site.reload(&drop_of_half());
    site.hours(&[0, 0]);
    assert_eq!(site.events(), ["drop 0 begun", "drop 1 begun"]);
    site.reload(&section("drop", "kind = \"drop\"\nfactor = 0.4"));
    site.hours(&[0, USUAL]);
    assert_eq!(site.events()[2..], ["drop 3 begun", "drop 5 ended"]);
}

#[test]
fn a_receiver_that_comes_back_hears_of_things_in_their_order() {
    let mut site = Site::with(&all_kinds(), 4);
    site.taker.status.store(503, Ordering::Relaxed);
    site.hours(&[130, USUAL, USUAL]);
    site.taker.status.store(200, Ordering::Relaxed);
    site.hours(&[USUAL]);
    assert_eq!(
        site.events(),
        [
            "many 0 begun",
            "spike 0 begun",
            "many 1 ended",
            "spike 1 ended"
        ]
    );
}

#[test]
fn nothing_is_judged_and_nothing_lost_while_too_much_waits() {
    let mut site = Site::with(&few(), 1);
    site.taker.status.store(503, Ordering::Relaxed);
    site.hours(&[0]);
    site.duty.state.as_mut().unwrap().waiting[0].bytes = 8 << 20;
    site.hours(&[USUAL]);
    let told = site.duty.alerts.told().unwrap();
    let note = told.alerts[0].note.as_deref().unwrap_or_default();
    assert!(note.contains("once receivers have taken"), "{note}");
    site.taker.status.store(200, Ordering::Relaxed);
    site.hours(&[0]);
    let events = ["few 0 begun", "few 1 ended", "few 2 begun"];
    assert_eq!(site.events(), events);
}

#[test]
fn nothing_is_missed_before_something_was_counted() {
    let mut site = Site::with(&few(), 0);
    site.hours(&[0, 0, 3, 3]);
    assert_eq!(site.events(), ["few 3 begun"]);
}

#[test]
fn a_server_that_stops_judges_no_further() {
    let mut site = Site::with(&few(), 1);
    site.clock.now.store(START + HOUR + 400, Ordering::Relaxed);
    site.duty.round(&|| true);
    let state = site.duty.state.as_ref().unwrap();
    assert!(state.alerts.is_empty() && state.waiting.is_empty());
}
