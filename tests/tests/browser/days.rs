//! Final numbers in the pages: the calendar, a day as a waterfall, the numbers of a key, and the rules.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tallyring_tests::server::{Server, wait_until};
use tempfile::TempDir;

use crate::driver::Browser;
use crate::post;

const BOTS: &str =
    "[filters.bots]\nevents = [\"click\"]\nfield = \"by.device\"\nvalues = [\"bot\"]\n";
const ENTER: &str = "\u{e007}";
const RIGHT: &str = "\u{e014}";
const DOWN: &str = "\u{e015}";
const WIDTHS: [(u32, &str); 6] = [
    (1_280, "light"),
    (1_280, "dark"),
    (768, "light"),
    (768, "dark"),
    (320, "light"),
    (320, "dark"),
];

fn start(directory: &Path, clock: &str, config: &str) -> Server {
    let file = directory.join("tallyring.toml");
    fs::write(&file, config).expect("write the configuration");
    let file = file.to_str().expect("a path of text");
    let clock = format!("{clock}@0");
    Server::start(
        &directory.join("data"),
        &["--clock", &clock, "--config", file],
    )
}

fn event(id: &str, device: &str) -> Value {
    json!({"id": id, "type": "click", "at": "2026-03-10T12:00:00Z", "entities": {"ad": "42"},
        "by": {"device": device}, "user": "ann"})
}

fn click(server: &Server, id: &str, device: &str) {
    let answer = post(server, "/v1/events", &event(id, device));
    assert_eq!(answer.json()["accepted"], 1, "{answer:?}");
}

/// Reconciles a day and returns how it went.
fn reconcile(server: &Server, day: &str) -> Value {
    let answer = post(server, "/v1/admin/reconcile", &json!({ "day": day }));
    assert_eq!(answer.status, 202, "{answer:?}");
    let newest = || server.client().get_json("/v1/admin/reconcile");
    wait_until("the reconcile ends", || newest()["state"] != "running");
    newest()
}

/// A server on 14 March, and a browser; none where there is no browser. Three clicks of 10 March had counted: one of
/// a bot, and one that came twice. Version 1 lacks two of them; version 2 has the bot's again, as its rule is gone.
/// Then one more came.
fn open(test: &str) -> Option<(TempDir, Server, Browser)> {
    let browser = Browser::start(test)?;
    let directory = TempDir::new().expect("make a directory");
    let of = directory.path();
    let server = start(of, "2026-03-10T12:00:01Z", "");
    click(&server, "e1", "phone");
    click(&server, "b1", "bot");
    server.terminate();
    let server = start(of, "2026-03-11T14:00:01Z", BOTS);
    click(&server, "e1", "phone");
    server.terminate();
    let server = start(of, "2026-03-13T13:00:01Z", BOTS);
    server.client().rebuild();
    assert_eq!(reconcile(&server, "2026-03-10")["published"], true);
    server.terminate();
    let server = start(of, "2026-03-14T14:00:01Z", "");
    assert_eq!(reconcile(&server, "2026-03-10")["published"], true);
    click(&server, "e2", "phone");
    Some((directory, server, browser))
}

impl Browser {
    /// The cells of the table in the section with this id of a heading.
    pub(crate) fn table(&self, id: &str) -> Value {
        self.run(&format!(
            "return [...document.querySelectorAll('section[aria-labelledby={id}] tbody tr')]\
             .map((row) => [...row.cells].map((cell) => cell.textContent).join(' '))"
        ))
    }

    /// Everything is as wide as the screen and accessible, at three widths and in both themes.
    fn check_everywhere(&self, server: &Server, path: &str) {
        for (width, theme) in WIDTHS {
            self.emulate(width, theme);
            self.visit(server, path);
            self.check_accessible(&format!("{path} at {width} pixels, {theme}"));
            let fits = "return document.documentElement.scrollWidth <= window.innerWidth";
            assert_eq!(self.run(fits), json!(true), "{path} at {width} pixels");
        }
        self.emulate(1_280, "light");
    }
}

#[test]
fn a_person_walks_by_keyboard_from_the_calendar_to_a_day_and_back() {
    let Some((_directory, server, browser)) = open("a_person_walks_by_keyboard") else {
        return;
    };
    browser.visit(&server, "/");
    browser.press("d");
    browser.wait_for(
        "the calendar",
        "return document.querySelector('h1')?.textContent === 'Days'",
    );
    let states = browser.run(
        "return [...document.querySelectorAll('a.day')].map((day) => `${day.dataset.day} ${day.dataset.state}`)",
    );
    let states = states.as_array().expect("a list");
    assert_eq!(
        (states.len(), &states[9], &states[13]),
        (
            14 + 28,
            &json!("2026-03-10 corrected"),
            &json!("2026-03-14 live")
        ),
        "the newest month is the first, and has no link to a day that is to come: {states:?}"
    );
    let words = "return document.querySelector('[data-day=\"2026-03-10\"] .hidden').textContent";
    assert_eq!(browser.run(words), ", Mar 10, 2026: corrected, version 2");
    browser.run("document.querySelector('[data-day=\"2026-03-02\"]').focus()");
    browser.press(&format!("{RIGHT}{DOWN}{ENTER}"));
    browser.wait_for("the day", "return location.pathname === '/days/2026-03-10'");
    browser.wait_whole();
    check_both_versions(&browser);
    browser.run("history.go(-2)");
    browser.wait_for(
        "the calendar, where it was left",
        "return document.activeElement?.dataset.day === '2026-03-10'",
    );
    browser.run("window.scrollTo(0, 0)");
    browser.click("nav[aria-label=Months] a[data-value=earlier]");
    browser.wait_for(
        "older months",
        "return document.querySelector('h2')?.textContent === 'January 2026'",
    );
    browser.check_console();
}

/// The page of the day shows its newest version, and then the first one.
fn check_both_versions(browser: &Browser) {
    assert_eq!(browser.text("h1").trim(), "Mar 10, 2026");
    assert_eq!(
        browser.table("steps"),
        json!(["all that came 3", "duplicates of the day −1", "final 2"])
    );
    assert_eq!(
        browser.table("changes"),
        json!([
            "counted before 1",
            "brought back: rule bots +1",
            "version 2 2"
        ])
    );
    assert!(browser.text("figure desc").contains("final: 2"));
    assert!(
        browser
            .text("section[aria-labelledby=missing]")
            .contains("counted since")
    );
    browser.click("nav[aria-label=Version] a[data-value='1']");
    browser.wait_for(
        "version 1",
        "return location.search.includes('version=1') && document.querySelector('figure desc')?.textContent.includes('rule bots: −1')",
    );
    browser.wait_whole();
    assert_eq!(
        browser.table("changes"),
        json!([
            "counted as it came 3",
            "duplicates of the day −1",
            "rule bots −1",
            "version 1 1"
        ])
    );
}

#[test]
fn the_calendar_and_its_days_are_accessible_at_every_width_and_say_what_is_wrong() {
    let Some((directory, server, browser)) = open("the_calendar_and_its_days") else {
        return;
    };
    for (path, said) in [
        ("/days/2026-03-09", "before"),
        ("/days", "Every day is final until 2026-03-11 00:00 UTC"),
        ("/days?month=2025-02", "February 2025"),
        ("/days/2026-03-10", "Every rule could judge all of it"),
        ("/days/2026-03-12", "tallyring reconcile 2026-03-12"),
        ("/days/2026-03-14", "Events of this day are expected"),
        ("/keys/ad_click/42?timezone=UTC", "Days are final until"),
    ] {
        browser.check_everywhere(&server, path);
        let text = browser.text("main");
        assert!(text.contains(said), "{path}: {text}");
    }
    browser.check_console();
    for (path, said) in [
        ("/days?month=2026-13", "`month` must be a month"),
        ("/days/yesterday", "must be a UTC day"),
        (
            "/days/2026-03-10?version=9",
            "`version` must be one of 1, 2",
        ),
        ("/days/2026-03-10?type=view", "`type` must be one of click"),
    ] {
        browser.visit(&server, path);
        assert_eq!(browser.text("h1"), "This cannot be shown", "{path}");
        assert!(browser.text("main").contains(said), "{path}");
    }
    let many: Vec<Value> = (0..1_000)
        .map(|number| event(&format!("m{number}"), "phone"))
        .collect();
    post(&server, "/v1/events", &Value::from(many));
    server.terminate();
    let all = BOTS.replace("\"bot\"", "\"phone\"");
    let server = start(directory.path(), "2026-03-14T14:00:01Z", &all);
    assert_eq!(reconcile(&server, "2026-03-10")["state"], "failed");
    for said in [
        "corrected, overdue",
        "more than 20 % are filtered only with",
    ] {
        browser.check_everywhere(&server, "/days/2026-03-10");
        let text = browser.text("main");
        assert!(text.contains(said), "{text}");
    }
    browser.visit(&server, "/days");
    let state = "return document.querySelector('[data-day=\"2026-03-10\"]').dataset.state";
    assert_eq!(browser.run(state), "overdue");
}

#[test]
fn a_key_shows_its_final_numbers_and_says_until_when_they_are() {
    let Some((_directory, server, browser)) = open("a_key_shows_its_final_numbers") else {
        return;
    };
    browser.visit(&server, "/keys/ad_click/42?timezone=UTC&units=7");
    assert_eq!(browser.tile("7 days"), "3");
    browser.click("nav[aria-label=Numbers] a[data-value=final]");
    browser.wait_for(
        "final numbers",
        "return location.search.includes('basis=final') && document.querySelector('main').textContent.includes('All of this range is final.')",
    );
    browser.wait_whole();
    assert_eq!(browser.tile("1 day"), "2");
    browser.check_accessible("final numbers");
    browser.click("nav[aria-label=Unit] a[data-value=hour]");
    browser.wait_for(
        "hours",
        "return location.search.includes('unit=hour') && location.search.includes('basis=final')",
    );
    browser.wait_whole();
    browser.check_console();
    for (query, said) in [
        (
            "from=2026-03-09&to=2026-03-10&unit=day",
            "days are final until 2026-03-11T00:00:00Z (`final_until`)",
        ),
        ("unit=month", "no month is wholly final"),
    ] {
        let path = format!("/keys/ad_click/42?timezone=UTC&basis=final&{query}");
        browser.visit(&server, &path);
        let text = browser.text("main");
        assert!(
            text.contains("Not wholly final") && text.contains(said),
            "{text}"
        );
        browser.check_accessible(&path);
    }
    browser.click("nav[aria-label=Numbers] a[data-value=counted]");
    browser.wait_for(
        "what is counted",
        "return !document.querySelector('main').textContent.includes('Not wholly final')",
    );
}

#[test]
fn operators_see_what_each_rule_caught_and_how_to_declare_one() {
    let Some(browser) = Browser::start("operators_see_what_each_rule_caught") else {
        return;
    };
    let directory = TempDir::new().expect("make a directory");
    let server = start(directory.path(), "2026-03-10T12:00:01Z", "");
    browser.visit(&server, "/state");
    let card = browser.text("section[aria-labelledby=rules]");
    assert!(
        card.contains("No rule judges events") && card.contains("filters.bots = {"),
        "{card}"
    );
    // The line is one of a configuration.
    let line = browser.text("section[aria-labelledby=rules] pre");
    browser.go("about:blank");
    server.terminate();
    let server = start(directory.path(), "2026-03-10T12:10:01Z", &line);
    click(&server, "e1", "phone");
    let bot = json!({"id": "b1", "type": "click", "at": "2026-03-10T12:00:00Z", "entities": {"ad": "42"},
        "by": {"device": "bot"}});
    assert_eq!(post(&server, "/v1/events", &bot).status, 200);
    browser.check_everywhere(&server, "/state");
    assert_eq!(browser.table("rules"), json!(["bots general 1 50%"]));
    assert!(
        browser
            .text("section[aria-labelledby=rules]")
            .contains("2 events were judged")
    );
    browser.check_console();
}
