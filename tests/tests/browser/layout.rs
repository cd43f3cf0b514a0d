//! How the pages are laid out at several widths.

use serde_json::json;

use crate::open;

/// A script that lists the cards that stand alone in the last row of their place without filling it.
const ORPHANS: &str = "return [...document.querySelectorAll('.tiles, .pair, .trio, .ring')].flatMap((place) => { \
    const shown = [...place.children].filter((child) => child.checkVisibility()); \
    const last = shown.filter(({ offsetTop }) => offsetTop === shown.at(-1).offsetTop); \
    const fills = last[0]?.offsetWidth >= place.clientWidth * 0.95; \
    return last.length === 1 && !fills ? [`${place.className}: ${last[0].textContent}`] : []; })";

#[test]
fn no_card_stands_alone_in_its_row_at_any_width() {
    let Some((_data, server, browser)) = open("no_card_stands_alone") else {
        return;
    };
    for path in [
        "/",
        "/state",
        "/keys/l/abc",
        "/keys/u/jehiah",
        "/keys/ad_click/42",
        "/search?q=abc",
        "/compare?key=l/abc&key=u/jehiah",
    ] {
        browser.emulate(768, "light");
        browser.visit(&server, path);
        for width in [375, 768, 900, 1_024, 1_280, 1_600] {
            browser.emulate(width, "light");
            let orphans = browser.run(ORPHANS);
            assert_eq!(orphans, json!([]), "{path} at {width} pixels");
            let fits = "return document.documentElement.scrollWidth <= window.innerWidth";
            assert_eq!(browser.run(fits), json!(true), "{path} at {width} pixels");
        }
    }
}
