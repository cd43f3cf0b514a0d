//! Pictures that tell of their parts.

use serde_json::json;

use crate::driver::Browser;
use crate::{open, post};

/// Finds the lines that are told of a part of the first picture, and fires an event at a part of its width.
const TOLD: &str = "const figure = document.querySelector('figure'); \
    const told = () => [...figure.querySelectorAll('.tip p')].map((line) => line.textContent.trim()).join(' | '); \
    const fire = (kind, pointerType, part) => { const plot = figure.querySelector('svg .g').getBoundingClientRect(); \
        figure.dispatchEvent(new PointerEvent(kind, {bubbles: true, pointerType, clientX: plot.left + part * plot.width, \
            clientY: plot.top})); };";

/// Runs a script in the page and checks the lines that are told after it.
fn says(browser: &Browser, what: &str, script: &str, expected: &str) {
    let told = browser.run(&format!("{TOLD} {script} return told()"));
    assert_eq!(told, json!(expected), "{what}");
}

#[test]
fn a_picture_tells_of_its_buckets_to_a_mouse_a_finger_and_arrow_keys() {
    let Some((_data, server, browser)) = open("a_picture_tells_of_its_buckets") else {
        return;
    };
    let click = |at: &str, n: u32| json!({"at": at, "n": n, "keys": {"l": "old"}});
    let clicks = json!([
        click("2026-02-01T12:00:00Z", 1),
        click("2026-03-02T12:00:00Z", 4),
        click("2026-03-12T12:00:00Z", 6),
    ]);
    assert_eq!(post(&server, "/v1/increments", &clicks).status, 200);
    browser.visit(
        &server,
        "/keys/l/old?from=2026-03-11&to=2026-03-20&timezone=UTC",
    );
    let [first, second, last] = [
        "Wed, Mar 11, 2026 | 0 | the period before: 0",
        "Thu, Mar 12, 2026 | 6 | the period before: 4 +50.0%",
        "Fri, Mar 20, 2026 | 0 | the period before: 0",
    ];
    says(
        &browser,
        "a mouse",
        "fire('pointermove', 'mouse', 0.15);",
        second,
    );
    says(
        &browser,
        "it left",
        "fire('pointerleave', 'mouse', 0.15);",
        "",
    );
    says(
        &browser,
        "a finger",
        "fire('pointerdown', 'touch', 0.05); fire('pointerup', 'touch', 0.05); fire('pointerleave', 'touch', 0.05);",
        first,
    );
    says(
        &browser,
        "a finger elsewhere",
        "document.querySelector('h1').dispatchEvent(new PointerEvent('pointerdown', {bubbles: true}));",
        "",
    );
    browser.run("document.querySelector('figure').focus()");
    for (keys, expected) in [
        ("\u{e010}", last),
        ("\u{e011}", first),
        ("\u{e012}", first),
        ("\u{e014}", second),
    ] {
        browser.press(keys);
        says(&browser, "keys", "", expected);
    }
    // No tooltip of the browser stands beside these words, and they stay within the page.
    assert_eq!(
        browser.run("return document.querySelectorAll('figure g > title').length"),
        json!(0)
    );
    check_widths(&browser);
    browser.press("\u{e00c}");
    says(&browser, "escape", "", "");
    // A week has weekdays above each other.
    browser.run("document.querySelector('section[aria-labelledby=week] figure').focus()");
    browser.press("\u{e011}\u{e015}\u{e014}");
    let told = "return document.querySelector('section[aria-labelledby=week] .tip').textContent";
    assert_eq!(browser.run(told), json!("Tue 01:00: 0"));
    browser.check_console();
}

/// Words stay within the page, however wide it is, and a reader hears them once.
fn check_widths(browser: &Browser) {
    for width in [320, 1_600] {
        browser.press("\u{e010}");
        browser.run("window.line = document.querySelector('.tip p')");
        browser.emulate(width, "dark");
        browser.wait_whole();
        let is_kept = browser.run("return window.line === document.querySelector('.tip p')");
        assert_eq!(is_kept, json!(true), "a picture drawn again");
        browser.check_accessible(&format!("a told bucket at {width} pixels"));
    }
}

#[test]
fn a_picture_of_nothing_tells_of_its_buckets_and_of_no_hours() {
    let Some((_data, server, browser)) = open("a_picture_of_nothing") else {
        return;
    };
    let click = json!([{"at": "2026-03-12T12:00:00Z", "n": 6, "keys": {"l": "old"}}]);
    assert_eq!(post(&server, "/v1/increments", &click).status, 200);
    // Buckets of nothing have a height, and hours of nothing are not there to move to.
    browser.visit(
        &server,
        "/keys/l/old?from=2026-01-01&to=2026-01-10&timezone=UTC",
    );
    says(
        &browser,
        "a mouse over nothing",
        "fire('pointermove', 'mouse', 0.15);",
        "Fri, Jan 2, 2026 | 0 | the period before: 0",
    );
    // A reader hears a bucket once, however the pointer moves within it.
    let kept = "fire('pointermove', 'mouse', 0.12); const line = figure.querySelector('.tip p'); \
        fire('pointermove', 'mouse', 0.18); return line === figure.querySelector('.tip p')";
    let is_kept = browser.run(&format!("{TOLD} {kept}"));
    assert_eq!(is_kept, json!(true));
    assert_eq!(
        browser.run("return document.querySelector('.cursor').offsetHeight > 100"),
        json!(true)
    );
    let roles = "return [...document.querySelectorAll('figure')].map((figure) => \
        figure.getAttribute('role') === 'application' && figure.tabIndex === 0)";
    assert_eq!(browser.run(roles), json!([true, false]));
    browser.check_console();
}
