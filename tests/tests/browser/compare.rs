//! Keys side by side.

use serde_json::json;

use crate::{count, open, post};

#[test]
fn keys_are_added_to_a_comparison_and_taken_away_and_the_range_stays() {
    let Some((_data, server, browser)) = open("keys_are_added_to_a_comparison") else {
        return;
    };
    count(&server, "key.l=abd&n=9");
    browser.visit(&server, "/keys/l/abc?period=28d&timezone=UTC");
    let link = "[...document.querySelectorAll('main a')].find((link) => link.textContent === 'Compare with other keys…')";
    browser.run(&format!("{link}.click()"));
    browser.wait_for(
        "a box for another key",
        "return location.pathname === '/compare' && document.activeElement.placeholder === 'Add a key' \
         && document.querySelector('.hint h2').textContent === 'Add another key'",
    );
    browser.check_accessible("a comparison of one key");
    // One that is found while one types, and one that is typed whole.
    browser.press("ab");
    browser.wait_for(
        "what begins so",
        "return document.querySelectorAll('#others li').length === 2",
    );
    browser.press("\u{e015}\u{e015}\u{e007}");
    let rows = |what: &str, expected: &str| {
        let script = format!(
            "return [...document.querySelectorAll('tbody tr')].map((row) => [...row.cells] \
             .map((cell) => cell.textContent).join(' ').trim()).join(' / ') === {expected:?} \
             && location.search.includes('period=28d') && location.search.includes('timezone=UTC') \
             && document.activeElement.placeholder === 'Add a key' && document.activeElement.value === ''"
        );
        browser.wait_for(what, &script);
        browser.wait_whole();
    };
    rows("two keys", "l/abc 3 25% / l/abd 9 75%");
    // A namespace alone is no key.
    browser.press("l/\u{e007}");
    let is_valid = "return document.activeElement.validity.customError";
    assert_eq!(browser.run(is_valid), json!(true));
    browser.press("\u{e003}\u{e003}u/jehiah\u{e007}");
    rows("three keys", "l/abc 3 20% / l/abd 9 60% / u/jehiah 3 20%");
    let lines =
        "return ['c1', 'c2', 'c3'].every((line) => document.querySelector(`figure .${line}`))";
    assert_eq!(browser.run(lines), json!(true));
    browser.press("u/jehiah\u{e007}");
    rows("no key twice", "l/abc 3 20% / l/abd 9 60% / u/jehiah 3 20%");
    browser.click(".chips a");
    rows("without the first", "l/abd 9 75% / u/jehiah 3 25%");
    let csv = "return fetch([...document.querySelectorAll('.links a')][1].href).then((answer) => answer.text()) \
        .then((text) => [text.split('\\n')[0], text.trim().split('\\n').length])";
    assert_eq!(browser.run(csv), json!(["start,l/abd,u/jehiah", 29]));
    browser.click("tbody a");
    browser.wait_for(
        "a key's page",
        "return location.pathname === '/keys/l/abd' && location.search.includes('period=28d')",
    );
    browser.wait_whole();
    // Eight keys, with the hours before, have more buckets than the API answers at once.
    let click = json!([{"at": "2024-06-01T12:00:00Z", "n": 1, "keys": {"l": "a1"}}]);
    assert_eq!(post(&server, "/v1/increments", &click).status, 200);
    let keys: String = (1..=8).map(|n| format!("key=l/a{n}&")).collect();
    browser.visit(
        &server,
        &format!("/compare?{keys}unit=hour&from=2025-06-01&to=2026-03-01&timezone=UTC"),
    );
    let changes = "return document.querySelector('main section.card > .muted').textContent.includes('changes are')";
    assert_eq!(browser.run(changes), json!(true));
    browser.check_console();
}
