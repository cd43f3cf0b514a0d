//! Keys that are found while somebody types, on the page of the search, and namespaces side by side.

use jiff::Timestamp;
use serde_json::json;

use crate::{count, open, post};

const WIDTHS: [u32; 3] = [320, 768, 1_600];
const THEMES: [&str; 2] = ["light", "dark"];

#[test]
fn keys_come_up_while_one_types_and_the_keyboard_chooses_one() {
    let Some((_data, server, browser)) = open("keys_come_up_while_one_types") else {
        return;
    };
    for key in ["abd", "xyz", "abc%3Cb%3E"] {
        count(&server, &format!("key.l={key}"));
    }
    browser.visit(&server, "/");
    let listed =
        "return [...document.querySelectorAll('#found .key')].map((key) => key.textContent)";
    let lists = |keys: &str| {
        let script =
            format!("{listed}.join() === {keys:?} && !document.getElementById('found').hidden");
        browser.wait_for(&format!("the list has {keys}"), &script);
    };
    browser.press("/");
    browser.press("ab");
    lists("abc,abc<b>,abd");
    browser.check_accessible("the list of found keys");
    let expanded = "return document.getElementById('q').getAttribute('aria-expanded')";
    assert_eq!(browser.run(expanded), json!("true"));
    // The last one is above the first.
    browser.press("\u{e013}");
    browser.wait_for(
        "one is chosen",
        "return document.querySelector('#found [aria-selected=true] .key')?.textContent === 'abd' \
         && document.getElementById('q').getAttribute('aria-activedescendant') === 'found-2'",
    );
    browser.press("\u{e015}\u{e007}");
    browser.wait_for("its page", "return location.pathname === '/keys/l/abc'");
    browser.wait_whole();
    assert_eq!(browser.run(expanded), json!("false"));
    // Escape closes the list, and what is typed stays.
    browser.run("document.getElementById('q').value = ''; document.getElementById('q').focus()");
    browser.press("xy");
    lists("xyz");
    browser.press("\u{e00c}");
    browser.wait_for(
        "the list is closed",
        "return document.getElementById('found').hidden && document.getElementById('q').value === 'xy'",
    );
    browser.press("z");
    lists("xyz");
    browser.click("#found li");
    browser.wait_for("its page", "return location.pathname === '/keys/l/xyz'");
    browser.check_console();
}

#[test]
fn the_search_finds_a_part_of_a_key_and_every_namespace_has_a_row() {
    let Some((_data, server, browser)) = open("the_search_finds_a_part") else {
        return;
    };
    let declared = server.get("/v1/namespaces").json();
    let declared = declared["namespaces"].as_array().map_or(0, Vec::len);
    for width in WIDTHS {
        for theme in THEMES {
            browser.emulate(width, theme);
            let what = |page: &str| format!("{page} at {width} pixels, {theme}");
            browser.visit(&server, "/search?q=WITH%20a%20slash");
            browser.wait_for(
                &what("the long key"),
                "return [...document.querySelectorAll('.found a')].map((link) => link.textContent).join() \
                 === 'a long key/with a slash' && !document.querySelector('[role=status]').textContent",
            );
            browser.check_accessible(&what("search"));
            browser.visit(&server, "/namespaces");
            browser.wait_for(
                &what("a row for each namespace"),
                &format!(
                    "return document.querySelectorAll('.spaces li').length === {declared} \
                     && document.querySelector('.spaces .count').textContent === '4'"
                ),
            );
            browser.check_accessible(&what("namespaces"));
            browser.visit(&server, "/?sort=rising");
            browser.check_accessible(&what("rising keys"));
            browser.run("document.getElementById('q').focus()");
            browser.press("a");
            browser.wait_for(
                &what("the list"),
                "return document.querySelectorAll('#found li').length > 1",
            );
            browser.check_accessible(&what("the list"));
        }
    }
    browser.check_console();
}

#[test]
fn the_overview_lists_rising_keys_and_as_many_as_are_wanted() {
    let Some((_data, server, browser)) = open("the_overview_lists_rising_keys") else {
        return;
    };
    for number in 0..15 {
        count(&server, &format!("key.l=key{number}&n={}", 20 + number));
    }
    browser.visit(&server, "/?namespace=l");
    let links = |many: usize| {
        browser.wait_for(
            &format!("{many} keys"),
            &format!("return document.querySelectorAll('.ranking li a').length === {many}"),
        );
    };
    links(10);
    browser.click("nav[aria-label=Order] a[data-value=rising]");
    browser.wait_for(
        "what they rose by",
        "return document.querySelector('.ranking .count')?.textContent === '+34'",
    );
    browser.run("[...document.querySelectorAll('main a')].find((link) => link.textContent === 'Show more').click()");
    links(17);
    assert_eq!(
        browser.run(
            "return location.search.includes('top=40') && location.search.includes('sort=rising')"
        ),
        json!(true)
    );
    browser.check_console();
}

#[test]
fn top_keys_have_their_series_and_their_change_beside_them() {
    let Some((_data, server, browser)) = open("top_keys_have_their_series") else {
        return;
    };
    let now = Timestamp::now().as_second();
    let click = |days: i64, n: u32| json!({"at": now - days * 86_400, "n": n, "keys": {"d": "old.example"}});
    let clicks = json!([click(20, 1), click(10, 4), click(2, 6)]);
    assert_eq!(post(&server, "/v1/increments", &clicks).status, 200);
    count(&server, "key.d=new.example");
    browser.visit(&server, "/?namespace=d");
    browser.wait_for(
        "both keys",
        "return [...document.querySelectorAll('.trends li')].map((row) => \
         [...row.querySelectorAll(':scope > :not(.fill)')].map((of) => of.getAttribute('aria-label') ?? of.textContent).join('|')).join(' / ') \
         === 'old.example|Counts of old.example by the day; at most 6 in one|+50.0% |6 / \
         new.example|Counts of new.example by the day; at most 1 in one||1'",
    );
    browser.check_console();
}
