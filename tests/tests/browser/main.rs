//! A person at the dashboard: the real binary in a real browser.
//!
//! These tests need Chromium and chromedriver (Debian's `chromium` and `chromium-driver`). Without them every test says
//! `skipped` and its name.

mod compare;
mod days;
mod driver;
mod find;
mod layout;
mod nodes;
mod people;
mod range;
mod server;
mod touch;
mod values;

use driver::Browser;
use jiff::Timestamp;
use serde_json::{Value, json};
use tallyring_tests::needs::skipped;
use tallyring_tests::server::{Answer, Server, wait_until};
use tempfile::TempDir;

/// A script that runs in the page and lists faults that axe does not look for.
const ACCESSIBLE: &str = include_str!("accessible.js");

/// A server with some counts, and a browser; none where there is no browser.
fn open(test: &str) -> Option<(TempDir, Server, Browser)> {
    let browser = Browser::start(test)?;
    let data = TempDir::new().expect("make a directory");
    let server = Server::start(data.path(), &[]);
    for _ in 0..3 {
        count(&server, "key.l=abc&key.u=jehiah&by.c=US&by.v=mobile");
    }
    count(&server, "key.l=a%20long%20key%2Fwith%20a%20slash&by.c=DE");
    let event = json!({"id": "e1", "type": "click", "entities": {"ad": "42"}, "by": {"country": "US"}, "user": "u1"});
    let answer = post(&server, "/v1/events", &event);
    assert_eq!(answer.status, 200, "{answer:?}");
    Some((data, server, browser))
}

fn count(server: &Server, query: &str) {
    let answer = server.get(&format!("/v1/incr?{query}"));
    assert_eq!(answer.status, 204, "{answer:?}");
}

fn post(server: &Server, path: &str, body: &Value) -> Answer {
    let headers = [("content-type", "application/json")];
    server.post_with(path, &headers, body.to_string().as_bytes())
}

impl Browser {
    /// Opens a page of the server and waits until it is whole.
    fn visit(&self, server: &Server, path: &str) {
        self.go(&format!("{}{path}", server.url()));
        self.wait_whole();
    }

    fn wait_whole(&self) {
        wait_until("the page is whole", || {
            let script = "return document.querySelector('main').getAttribute('aria-busy') === 'false' \
                && !document.querySelector('figure[aria-busy=true]') && document.querySelector('h1') !== null";
            self.run(script) == json!(true)
        });
    }

    fn wait_for(&self, what: &str, script: &str) {
        wait_until(what, || self.run(script) == json!(true));
    }

    /// The number of the tile with this heading.
    fn tile(&self, heading: &str) -> String {
        let script = format!(
            "return [...document.querySelectorAll('.tile')].find((tile) => \
             tile.querySelector('h2').textContent === {heading:?})?.querySelector('.number').textContent"
        );
        self.run(&script).as_str().unwrap_or_default().to_owned()
    }

    fn check_accessible(&self, what: &str) {
        let found = self.run(ACCESSIBLE);
        assert_eq!(found, json!([]), "{what}: {found:#}");
        match axe() {
            Some(axe) => {
                let found = self.run(&axe);
                assert_eq!(found, json!([]), "{what}, by axe: {found:#}");
            }
            None => skipped(what, "axe-core of npm is in no folder that NODE_PATH names"),
        }
    }

    fn check_console(&self) {
        let messages = self.console();
        assert!(messages.is_empty(), "{messages:#?}");
    }
}

/// A script that lists the violations that axe finds in the page; none where axe is not installed.
fn axe() -> Option<String> {
    let folders = std::env::var_os("NODE_PATH")?;
    let mut paths =
        std::env::split_paths(&folders).map(|folder| folder.join("axe-core/axe.min.js"));
    let axe = std::fs::read_to_string(paths.find(|path| path.is_file())?).expect("read axe");
    // A name that leads nowhere is no violation to axe, which asks a person to look at it. It looks at each state of a
    // page once, and once more at its colours in the dark theme: that takes a moment.
    Some(format!(
        "const dark = matchMedia('(prefers-color-scheme: dark)').matches; \
         const state = [dark, location.href, document.body.textContent.length].join(' '); \
         if (sessionStorage.getItem(state)) return []; sessionStorage.setItem(state, 'seen'); \
         if (!window.axe) {{ {axe} }} const only = dark ? ['color-contrast'] : undefined; \
         return axe.run({{iframes: false, preload: false, runOnly: only}}).then(({{violations, incomplete}}) => \
         [...violations, ...incomplete.filter(({{id}}) => id === 'aria-valid-attr-value')].flatMap(({{id, help, nodes}}) => \
         nodes.map(({{html}}) => `${{id}}: ${{help}}: ${{html.slice(0, 200)}}`)))"
    ))
}

#[test]
fn a_person_searches_a_key_switches_unit_and_zone_and_sees_an_increment_arrive() {
    let Some((_data, server, browser)) = open("a_person_searches_a_key") else {
        return;
    };
    browser.visit(&server, "/");
    browser.wait_for(
        "the overview counts",
        "return document.querySelector('.ranking a')?.textContent === 'abc'",
    );
    assert_eq!(browser.tile("Today so far"), "4");

    // By keyboard alone: the search is a slash away.
    browser.press("/");
    browser.press("abc\u{e007}");
    browser.wait_for(
        "the search found it",
        "return document.querySelector('h1')?.textContent === 'Search: abc' && document.querySelector('.ranking a')?.textContent === 'abc'",
    );
    browser.click(".ranking a");
    browser.wait_for(
        "the key's page",
        "return location.pathname === '/keys/l/abc'",
    );
    browser.wait_whole();
    assert_eq!(browser.text("h1"), "abc");
    let week = "return document.querySelector('section[aria-labelledby=week]').checkVisibility()";
    assert_eq!(browser.run(week), json!(true), "30 days have weeks");

    browser.click("nav[aria-label=Unit] a[data-value=hour]");
    browser.wait_for("hours", "return location.search.includes('unit=hour') && document.querySelector('figure desc')?.textContent.includes('48 hours')");
    browser.run(
        "const zone = document.getElementById('zone'); zone.value = 'Asia/Tokyo'; \
         zone.dispatchEvent(new Event('change'))",
    );
    browser.wait_for("the zone", "return location.search.includes('timezone=Asia%2FTokyo') && document.querySelector('figure desc')?.textContent.includes('Asia/Tokyo')");
    browser.wait_whole();
    assert_eq!(browser.run(week), json!(false), "48 hours have no week");

    assert_eq!(browser.tile("Today so far"), "3");
    count(&server, "key.l=abc&by.c=JP&n=4");
    wait_until("the increment arrives", || {
        browser.tile("Today so far") == "7"
    });
    browser.wait_for(
        "the chart follows",
        "return document.querySelector('figure desc')?.textContent.includes('total 7')",
    );

    // The address alone brings back what was seen, and the zone is remembered without it.
    let address = browser.run("return location.pathname + location.search");
    browser.visit(&server, address.as_str().expect("an address"));
    assert_eq!(
        browser
            .run("return document.querySelector('[aria-label=Unit] [aria-current]').dataset.value"),
        "hour"
    );
    browser.visit(&server, "/keys/l/a%20long%20key%2Fwith%20a%20slash");
    assert_eq!(
        browser.run("return document.getElementById('zone').value"),
        "Asia/Tokyo"
    );
    assert_eq!(browser.text("h1"), "a long key/with a slash");
    browser.check_console();
}

#[test]
fn every_page_is_accessible_in_both_themes_and_on_a_phone() {
    let Some((_data, server, browser)) = open("every_page_is_accessible") else {
        return;
    };
    for (width, theme) in [
        (1_280, "light"),
        (1_280, "dark"),
        (390, "light"),
        (390, "dark"),
    ] {
        browser.emulate(width, theme);
        for path in [
            "/",
            "/keys/l/abc",
            "/keys/ad_click/42?unit=minute",
            "/search?q=abc",
            "/keys/l/never?unit=year",
            "/keys/nothing/abc",
            "/search?q=nothing",
            "/namespaces",
            "/state",
            "/compare",
            "/compare?key=l/abc&key=u/jehiah",
            "/?namespace=d",
            "/days",
        ] {
            browser.visit(&server, path);
            browser.check_accessible(&format!("{path} at {width} pixels, {theme}"));
        }
    }
    // A theme that is chosen wins over the system's.
    browser.emulate(1_280, "dark");
    browser.visit(&server, "/");
    let ground =
        |browser: &Browser| browser.run("return getComputedStyle(document.body).backgroundColor");
    let dark = ground(&browser);
    browser.press("t");
    browser.wait_for(
        "the light theme",
        "return document.documentElement.dataset.theme === 'light'",
    );
    assert_ne!(ground(&browser), dark);
    browser.check_accessible("the light theme in a dark system");
    browser.visit(&server, "/keys/l/abc");
    assert_eq!(
        browser.run("return document.documentElement.dataset.theme"),
        "light"
    );
    browser.check_console();
}

#[test]
fn the_last_minutes_of_a_key_follow_its_events_and_fit_a_phone() {
    let Some((_data, server, browser)) = open("the_last_minutes_of_a_key") else {
        return;
    };
    let send = |kind: &str, id: String| {
        let event = json!({"id": id, "type": kind, "entities": {"ad": "42"}, "by": {"country": "DE"}, "user": id});
        let answer = post(&server, "/v1/events", &event);
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    (0..8).for_each(|number| send("impression", format!("i{number}")));
    // Its breakdowns are kept by hours of UTC, which begin in the middle of this zone's.
    browser.visit(
        &server,
        "/keys/ad_click/42?unit=minute&timezone=Asia/Kolkata",
    );
    let says = |text: &str| {
        let script = format!(
            "return [...document.querySelectorAll('figure desc')].some((desc) => desc.textContent.includes({text:?}))"
        );
        browser.run(&script) == json!(true)
    };
    assert_eq!(browser.tile("60 minutes"), "1");
    assert_eq!(browser.tile("CTR"), "12.5%");
    let lists = |row: &str| {
        let script = format!(
            "return [...document.querySelectorAll('.ranking li')].some((of) => of.textContent === {row:?})"
        );
        browser.run(&script) == json!(true)
    };
    assert!(says("60 minutes"), "the series");
    assert!(lists("United States1"), "the countries");
    assert!(says("12.5% in all: 1 of 8"), "the ratio");
    assert!(browser.text("main").contains("are kept by the hour"));
    send("click", "e2".to_owned());
    wait_until("the click arrives", || {
        browser.tile("60 minutes") == "2" && browser.tile("CTR") == "25%"
    });
    wait_until("the charts follow", || says("total 2") && lists("Germany1"));
    for width in [320, 360, 390] {
        browser.emulate(width, "light");
        let rows = "return new Set([...document.querySelectorAll('nav[aria-label=Unit] a')].map((link) => link.offsetTop)).size";
        assert_eq!(browser.run(rows), json!(1), "rows at {width} pixels");
        let wide = browser.run("return document.documentElement.scrollWidth");
        assert_eq!(wide, json!(width), "the page is as wide as the phone");
    }
    browser.wait_whole();
    browser.check_accessible("the last minutes");
    browser.check_console();
}

#[test]
fn a_page_without_counts_says_what_to_do_and_fills_by_itself() {
    let Some((_data, server, browser)) = open("a_page_without_counts") else {
        return;
    };
    let seen = |what: &str| {
        let script = format!("return document.querySelector({what:?})?.offsetParent != null");
        browser.run(&script) == json!(true)
    };
    browser.visit(&server, "/?namespace=d");
    assert!(browser.text(".hint").contains("/v1/incr?key.d=abc"));
    assert!(!seen("figure"), "charts of nothing");
    browser.visit(&server, "/keys/l/new%20one");
    assert!(browser.text(".hint").contains("/v1/incr?key.l=new+one'"));
    assert!(seen(".hint") && !seen("figure"));
    count(&server, "key.l=new+one&n=3");
    wait_until("the count arrives", || browser.tile("All time") == "3");
    assert!(!seen(".hint") && seen("figure"));
    // A refusal of the server stands instead of the page, with a way out.
    browser.visit(&server, "/keys/l/abc?units=99999");
    assert_eq!(browser.text("h1"), "This cannot be shown");
    browser.check_accessible("a page that was refused");
    assert!(browser.text(".hint").contains("10000 day buckets"));
    browser.click(".hint a");
    browser.wait_for(
        "the usual page",
        "return document.querySelector('h1')?.textContent === 'abc'",
    );
    browser.wait_whole();
    assert_eq!(browser.tile("All time"), "3");
    // Breakdowns are called what people call them.
    assert!(browser.text("main").contains("By country"));
    let others = browser.console().into_iter();
    let others: Vec<String> = others
        .filter(|message| !message.contains(" 422 "))
        .collect();
    assert_eq!(others, Vec::<String>::new());
}

#[test]
fn a_change_stands_once_on_a_page_and_only_where_counting_had_begun() {
    let Some((_data, server, browser)) = open("a_change_stands_once") else {
        return;
    };
    let now = Timestamp::now().as_second();
    let click = |key: &str, days: i64, n: u32| json!({"at": now - days * 86_400, "n": n, "keys": {"l": key}});
    let clicks = json!([
        click("old", 20, 1),
        click("old", 10, 4),
        click("old", 2, 6),
        click("young", 10, 4),
        click("young", 2, 2_764),
        json!({"at": now - 86_400, "n": 4, "keys": {"d": "new.example"}}),
        json!({"at": now, "n": 6, "keys": {"d": "new.example"}}),
    ]);
    let answer = post(&server, "/v1/increments", &clicks);
    assert_eq!(answer.status, 200, "{answer:?}");
    for (path, changes) in [
        ("/keys/l/old?units=7", json!(["+50.0%"])),
        ("/keys/l/young?units=7", json!([])),
        // Before these nothing can be compared.
        ("/keys/l/old?units=-1", json!([])),
        ("/?namespace=d", json!([])),
    ] {
        browser.visit(&server, path);
        let script =
            "return document.querySelector('main').textContent.match(/[+−][0-9.,]+ ?%/g) ?? []";
        assert_eq!(browser.run(script), changes, "{path}");
    }
}

#[test]
fn with_keys_a_person_signs_in_once_and_no_script_sees_the_key() {
    let Some((_data, server, browser)) = open("with_keys_a_person_signs_in") else {
        return;
    };
    let made = post(&server, "/v1/admin/keys", &json!({"scopes": ["read"]}));
    assert_eq!(made.status, 201, "{made:?}");
    let key = made.json()["key"].as_str().expect("a key").to_owned();
    browser.go(&format!("{}/keys/l/abc?unit=hour", server.url()));
    browser.wait_for("the form", "return location.pathname === '/login'");
    browser.check_accessible("the form");
    browser.press("tr_wrong\u{e007}");
    browser.wait_for(
        "the refusal",
        "return document.getElementById('why')?.textContent.includes('not known') === true",
    );
    browser.check_accessible("the form that refused");
    browser.press(&format!("{key}\u{e007}"));
    browser.wait_for(
        "the page that was asked for",
        "return location.pathname + location.search === '/keys/l/abc?unit=hour'",
    );
    browser.wait_whole();
    wait_until("the stream is open", || browser.tile("Today so far") == "3");
    assert_eq!(browser.run("return document.cookie"), "");
    browser.visit(&server, "/");
    let badge = "return document.querySelector('.badge').hidden";
    assert_eq!(
        browser.run(badge),
        json!(true),
        "the state is for operators"
    );
    browser.click(".foot a[href='/state']");
    browser.wait_for("the state", "return location.pathname === '/state'");
    browser.wait_whole();
    let state = browser.text("section[aria-labelledby=state]");
    assert!(state.contains("scope admin"), "{state}");
    let rules = "return document.querySelector('section[aria-labelledby=rules]').hidden";
    assert_eq!(browser.run(rules), json!(true), "rules are for operators");
    browser.check_accessible("the state for a reader");
    browser.click("#sign-out button");
    browser.wait_for("signed out", "return location.pathname === '/login'");
    browser.go(&format!("{}/", server.url()));
    browser.wait_for("the form again", "return location.pathname === '/login'");
    // Refused requests are all that the console may hold.
    let others = browser
        .console()
        .into_iter()
        .filter(|message| !message.contains(" 401 ") && !message.contains(" 403 "));
    assert_eq!(others.collect::<Vec<String>>(), Vec::<String>::new());
}
