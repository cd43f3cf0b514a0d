//! Reach and frequency of an ad, and what operators see of a person.

use std::fs;

use jiff::Timestamp;
use serde_json::{Value, json};
use tallyring_tests::server::{Server, wait_until};
use tempfile::TempDir;

use crate::driver::Browser;
use crate::post;

const CAPS: &str = "\
[caps.ad_day]
entity = \"ad\"
action = \"impression\"
limit = 2
within = \"24h\"
";

/// A server with a cap and some impressions, and a browser; none where there is no browser.
fn open(test: &str) -> Option<(TempDir, Server, Browser)> {
    let browser = Browser::start(test)?;
    let directory = TempDir::new().expect("make a directory");
    let config = directory.path().join("tallyring.toml");
    fs::write(&config, CAPS).expect("write the configuration");
    let config = config.to_str().expect("a path of text");
    let server = Server::start(&directory.path().join("data"), &["--config", config]);
    let at = Timestamp::now().as_second() - 60;
    let seen = |number: u32, user: &str, ad: &str| {
        json!({"id": format!("e{number}"), "type": "impression", "at": at, "user": user, "view": "home",
            "entities": {"ad": ad, "campaign": "7"}})
    };
    let mut events = vec![seen(1, "bob", "42"), seen(2, "ann", "43")];
    events.extend((3..6).map(|number| seen(number, "ann", "42")));
    events.extend((6..126).map(|number| seen(number, "eve", &format!("ad {number}"))));
    let answer = post(&server, "/v1/events", &Value::from(events));
    assert_eq!(answer.status, 200, "{answer:?}");
    Some((directory, server, browser))
}

impl Browser {
    /// The texts of the cells of a table with this heading above it, row by row.
    fn rows(&self, heading: &str) -> Value {
        self.run(&format!(
            "return [...document.querySelectorAll('section[aria-labelledby={heading}] tbody tr')]\
             .map((row) => [...row.cells].map((cell) => cell.textContent))"
        ))
    }

    /// Makes a key with this scope, the first one, and signs in with it on the way to a page.
    fn sign_in(&self, server: &Server, scope: &str, path: &str) {
        let made = post(server, "/v1/admin/keys", &json!({ "scopes": [scope] }));
        assert_eq!(made.status, 201, "{made:?}");
        let key = made.json()["key"].as_str().expect("a key").to_owned();
        self.go(&format!("{}{path}", server.url()));
        self.wait_for("the form", "return location.pathname === '/login'");
        self.press(&format!("{key}\u{e007}"));
        let is_there = format!("return location.pathname === {path:?}");
        self.wait_for("the page", &is_there);
        self.wait_whole();
    }

    /// Refused requests are all that the console may hold.
    fn check_console_but_signing_in(&self) {
        let others = self.console().into_iter();
        let others =
            others.filter(|message| !message.contains(" 401 ") && !message.contains(" 403 "));
        assert_eq!(others.collect::<Vec<String>>(), Vec::<String>::new());
    }

    fn look_up(&self, user: &str) {
        self.run("const user = document.getElementById('person'); user.value = ''; user.focus()");
        self.press(&format!("{user}\u{e007}"));
    }
}

#[test]
fn a_person_sees_how_many_people_an_ad_reached_and_how_often() {
    let Some((_directory, server, browser)) = open("a_person_sees_how_many_people") else {
        return;
    };
    browser.visit(&server, "/keys/ad_impression/42");
    browser.click("a[href^='/reach/']");
    browser.wait_for(
        "the page",
        "return location.pathname === '/reach/ad_impression/42'",
    );
    browser.wait_whole();
    let shown = || {
        let tiles = ["Reach", "Average frequency", "Impressions"];
        tiles.map(|heading| browser.tile(heading))
    };
    wait_until("the numbers", || shown() == ["2", "2.00", "4"]);
    let bars = "return [...document.querySelectorAll('.ranking li')].map((row) => row.textContent)";
    let expected = json!(["once50%1", "twice0%0", "3 times50%1"]);
    assert_eq!(browser.run(bars), expected);
    browser.click("nav[aria-label=Range] a[data-value='24h']");
    browser.wait_for("the range", "return location.search.includes('range=24h')");
    browser.wait_whole();
    wait_until("the numbers", || shown() == ["2", "2.00", "4"]);
    for (path, text) in [
        ("/reach/ad_impression/42?range=30d", "once"),
        ("/reach/ad_impression/none", "Nobody was reached"),
        ("/reach/l/abc", "counts no event whose actions are kept"),
        ("/people", "in no history"),
    ] {
        for (width, theme) in [(1_280, "dark"), (390, "light"), (320, "dark")] {
            browser.emulate(width, theme);
            browser.visit(&server, path);
            assert!(browser.text("main").contains(text), "{path}");
            browser.check_accessible(&format!("{path} at {width} pixels, {theme}"));
            let wide = browser.run("return document.documentElement.scrollWidth");
            assert_eq!(wide, json!(width), "{path} is as wide as the screen");
        }
    }
    browser.check_console();
}

#[test]
fn a_reader_is_told_which_key_it_takes_and_no_page_leads_there() {
    let Some((_directory, server, browser)) = open("a_reader_is_told_which_key_it_takes") else {
        return;
    };
    browser.sign_in(&server, "read", "/people");
    assert!(browser.text("main").contains("scope admin"));
    let is_hidden = browser.run("return document.getElementById('people').hidden");
    assert_eq!(is_hidden, json!(true));
    browser.visit(&server, "/keys/ad_impression/42");
    let link = browser.run("return document.querySelector(\"a[href^='/reach/']\")");
    assert_eq!(link, json!(null));
    browser.visit(&server, "/reach/ad_impression/42");
    assert!(browser.text("main").contains("scope actions"));
    browser.check_console_but_signing_in();
}

#[test]
fn an_operator_looks_a_person_up_and_no_address_tells_whom() {
    let Some((_directory, server, browser)) = open("an_operator_looks_a_person_up") else {
        return;
    };
    browser.sign_in(&server, "admin", "/");
    browser.click("#people");
    browser.wait_for(
        "the page",
        "return document.getElementById('person') !== null",
    );
    let pages = browser.run("return history.length");
    let length = || browser.rows("did").as_array().map_or(0, Vec::len);
    browser.look_up("ann");
    wait_until("ann's actions", || length() == 2);
    let did = browser.rows("did");
    for (index, cell) in ["impression", "home", "ad 43, campaign 7", "1"]
        .iter()
        .enumerate()
    {
        assert_eq!(did[0][index + 1], *cell, "{did}");
    }
    assert_eq!(did[1][4], "3", "{did}");
    let caps = browser.rows("caps");
    assert_eq!(
        (&caps[0][0], &caps[0][1]),
        (&json!("ad_day (24h)"), &json!("ad 42"))
    );
    let blocked = caps[0][2].as_str().expect("a text");
    assert!(
        blocked.starts_with("blocked until ") && blocked.ends_with(": 3 of 2"),
        "{blocked}"
    );
    assert_eq!(caps[1][2], "allowed");
    browser.check_accessible("a person");
    browser.look_up("eve");
    wait_until("eve's actions", || length() == 100);
    browser.click("section[aria-labelledby=did] button");
    wait_until("all of them", || length() == 120);
    browser.look_up("nobody");
    wait_until("nothing", || {
        let text = browser.text("main");
        text.contains("Nothing is kept of this user.")
    });
    let address = browser.run("return location.pathname + location.search + location.hash");
    assert_eq!(address, "/people");
    assert_eq!(browser.run("return history.length"), pages);
    assert_eq!(browser.run("return document.title"), "A person · Tallyring");
    browser.check_console_but_signing_in();
}
