//! Pictures that tell of their parts.

use serde_json::json;

use crate::{open, post};

/// Finds the lines that are told of a part of the first picture, and fires an event at a part of its width.
const TOLD: &str = "const figure = document.querySelector('figure'); \
    const told = () => [...figure.querySelectorAll('.tip p')].map((line) => line.textContent.trim()).join(' | '); \
    const fire = (kind, pointerType, part) => { const plot = figure.querySelector('svg .g').getBoundingClientRect(); \
        figure.dispatchEvent(new PointerEvent(kind, {bubbles: true, pointerType, clientX: plot.left + part * plot.width, \
            clientY: plot.top})); };";

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
    let says = |what: &str, script: &str, expected: &str| {
        let told = browser.run(&format!("{TOLD} {script} return told()"));
        assert_eq!(told, json!(expected), "{what}");
    };
    let [first, second, last] = [
        "Wed, Mar 11, 2026 | 0 | the period before: 0",
        "Thu, Mar 12, 2026 | 6 | the period before: 4 +50.0%",
        "Fri, Mar 20, 2026 | 0 | the period before: 0",
    ];
    says("a mouse", "fire('pointermove', 'mouse', 0.15);", second);
    // A reader hears a bucket once, however the pointer moves within it.
    let kept = "fire('pointermove', 'mouse', 0.12); const line = figure.querySelector('.tip p'); \
        fire('pointermove', 'mouse', 0.18); return line === figure.querySelector('.tip p')";
    let is_kept = browser.run(&format!("{TOLD} {kept}"));
    assert_eq!(is_kept, json!(true));
    says("it left", "fire('pointerleave', 'mouse', 0.15);", "");
    says(
        "a finger",
        "fire('pointerdown', 'touch', 0.05); fire('pointerup', 'touch', 0.05); fire('pointerleave', 'touch', 0.05);",
        first,
    );
    says(
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
        says("keys", "", expected);
    }
    // No tooltip of the browser stands beside these words, and they stay within the page.
    assert_eq!(
        browser.run("return document.querySelectorAll('figure g > title').length"),
        json!(0)
    );
    for width in [320, 1_600] {
        browser.press("\u{e010}");
        browser.run("window.line = document.querySelector('.tip p')");
        browser.emulate(width, "dark");
        browser.wait_whole();
        let is_kept = browser.run("return window.line === document.querySelector('.tip p')");
        assert_eq!(is_kept, json!(true), "a picture drawn again");
        browser.check_accessible(&format!("a told bucket at {width} pixels"));
    }
    browser.press("\u{e00c}");
    says("escape", "", "");
    browser.check_console();
}
