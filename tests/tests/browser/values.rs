//! Values that a page is about alone, and the page of all values of a breakdown.

use jiff::Timestamp;
use serde_json::json;

use crate::driver::Browser;
use crate::{count, open, post};

const WIDTHS: [u32; 3] = [320, 768, 1_600];
const THEMES: [&str; 2] = ["light", "dark"];
/// Finds what a ranking under a heading says.
const RANKING: &str = "const ranking = (heading) => [...[...document.querySelectorAll('section')] \
    .find((of) => of.querySelector('h2')?.textContent === heading)?.querySelectorAll('.ranking li') ?? []] \
    .map((row) => [...row.children].map((part) => part.textContent).filter(Boolean).join(' ') || row.textContent).join(' ');";
/// Finds what a table says.
const ROWS: &str = "const rows = () => [...document.querySelectorAll('tbody tr')] \
    .map((row) => [...row.cells].map((cell) => cell.textContent).join('|')).join(' / ');";

#[test]
fn a_row_of_a_ranking_filters_the_page_and_a_chip_takes_the_filter_away() {
    let Some((_data, server, browser)) = open("a_row_of_a_ranking") else {
        return;
    };
    for (id, device) in [("d1", "phone"), ("d2", "phone"), ("d3", "desktop")] {
        let event = json!({"id": id, "type": "click", "entities": {"ad": "42"}, "by": {"country": "DE", "device": device}});
        assert_eq!(post(&server, "/v1/events", &event).status, 200);
    }
    let says = |what: &str, heading: &str, rows: &str| {
        let script = format!("{RANKING} return ranking({heading:?}) === {rows:?}");
        browser.wait_for(what, &script);
    };
    browser.visit(&server, "/keys/ad_click/42");
    says("countries", "By country", "Germany 3 United States 1");
    says("devices", "By device", "phone 2 unknown 1 desktop 1");
    browser.click("a[title=DE]");
    browser.wait_for(
        "Germany alone",
        "return document.querySelector('.chips')?.textContent.startsWith('country: Germany') === true",
    );
    browser.wait_whole();
    says("its devices", "By device", "phone 2 desktop 1");
    assert_eq!(browser.tile("30 days"), "3");
    assert_eq!(browser.tile("All time"), "3");
    assert_eq!(browser.tile("Distinct users"), "", "users have no country");
    assert!(browser.text("figure").contains("country DE"));
    // A crossed value has two.
    browser.click("a[title='DE*phone']");
    browser.wait_for(
        "two filters",
        "return document.querySelectorAll('.chips a').length === 2",
    );
    browser.wait_whole();
    assert_eq!(browser.tile("30 days"), "2");
    // The unit is switched without losing them.
    browser.press("u");
    browser.wait_for(
        "weeks",
        "return location.search.includes('unit=mweek') && document.querySelectorAll('.chips a').length === 2",
    );
    browser.wait_whole();
    // The bar may lie over them.
    browser.run("scrollTo(0, 0)");
    browser.click(".chips a");
    browser.wait_for(
        "phones alone",
        "return document.querySelector('.chips')?.textContent.startsWith('device: phone') === true",
    );
    browser.wait_whole();
    browser.run("scrollTo(0, 0)");
    browser.click(".chips a");
    browser.wait_for(
        "all of them",
        "return document.querySelector('h1') && !document.querySelector('.chips')",
    );
    browser.wait_whole();
    browser.check_console();
    // Where nothing keeps both, the page says what to declare.
    browser.visit(&server, "/keys/l/abc?where.c=US");
    says(
        "devices",
        "By device",
        "No subtotal of l keeps c and v together; declare one: subtotals = [\"c\", \"r\", \"v\", \"c*v\"].",
    );
    says("countries", "By country", "United States 3");
    browser.check_accessible("a page that says what to declare");
}

#[test]
fn all_values_of_a_breakdown_are_searched_and_sorted_in_a_table() {
    let Some((_data, server, browser)) = open("all_values_of_a_breakdown") else {
        return;
    };
    let now = Timestamp::now().as_second();
    let click = |days: i64, from: &str, n: u32| json!({"at": now - days * 86_400, "n": n, "keys": {"l": "old"}, "by": {"r": from}});
    let clicks = json!([
        click(20, "t.co", 1),
        click(10, "t.co", 4),
        click(10, "example.com/<b>", 5),
        click(2, "t.co", 6),
        click(2, "example.com/<b>", 1),
        click(2, "news.example", 3),
    ]);
    assert_eq!(post(&server, "/v1/increments", &clicks).status, 200);
    let says = |what: &str, rows: &str| {
        let script = format!("{ROWS} return rows() === {rows:?}");
        browser.wait_for(what, &script);
    };
    let values = [
        "example.com/<b>|1|10%|−4 −80.0% ",
        "news.example|3|30%|+3 ",
        "t.co|6|60%|+2 +50.0% ",
    ];
    let [example, news, short] = values;
    browser.visit(&server, "/keys/l/old?units=7");
    browser.run("[...document.querySelectorAll('main a')].filter((link) => link.textContent === 'Show all')[1].click()");
    browser.wait_for(
        "the table",
        "return location.pathname === '/keys/l/old/by/r' && location.search.includes('units=7')",
    );
    browser.wait_whole();
    says("the largest first", &[short, news, example].join(" / "));
    let sort = |column: usize| browser.click(&format!("th:nth-child({column}) button"));
    sort(1);
    says("by name", &[example, news, short].join(" / "));
    assert_eq!(
        browser.run("return document.querySelector('th').getAttribute('aria-sort')"),
        json!("ascending")
    );
    sort(4);
    says("by change", &[news, short, example].join(" / "));
    browser.click("main input[type=search]");
    browser.press("EXAMPLE");
    says("what has the text", &[news, example].join(" / "));
    // The address has it all.
    let address = browser.run("return location.pathname + location.search");
    let address = address.as_str().expect("an address");
    assert!(
        address.contains("q=EXAMPLE") && address.contains("sort=change"),
        "{address}"
    );
    browser.visit(&server, address);
    says("as before", &[news, example].join(" / "));
    assert!(
        browser
            .text("[role=status]")
            .contains("2 values; changes of settled counts, against the period before")
    );
    browser.click("tbody a");
    browser.wait_for(
        "the page of the key",
        "return location.pathname === '/keys/l/old' && location.search.includes('where.r=news.example')",
    );
    browser.wait_whole();
    assert_eq!(browser.tile("7 days"), "3");
    // Nothing keeps referrers together with countries or devices.
    check_console(&browser);
}

#[test]
fn referrers_of_one_site_are_one_row_which_opens() {
    let Some((_data, server, browser)) = open("referrers_of_one_site") else {
        return;
    };
    let says = |what: &str, rows: &str| {
        let script = format!("{ROWS} return rows() === {rows:?}");
        browser.wait_for(what, &script);
    };
    for (from, n) in [
        ("https://www.t.co/a", 2),
        ("t.co/b", 1),
        ("news.example", 4),
    ] {
        count(&server, &format!("key.l=young&by.r={from}&n={n}"));
    }
    browser.visit(&server, "/keys/l/young/by/r");
    says("sites", "news.example|4|57.1%| / t.co (2)|3|42.9%|");
    browser.click("tbody button");
    says(
        "the values of a site",
        "news.example|4|57.1%| / t.co (2)|3|42.9%| / https://www.t.co/a|2|28.6%| / t.co/b|1|14.3%|",
    );
    browser.check_accessible("an open site");
    // The address has what is seen: the search, the order and the open site.
    browser.click("thead th:nth-child(1) button");
    browser.click("input[aria-label='Search a value']");
    browser.press("t.co");
    let found = "t.co (2)|3|42.9%| / https://www.t.co/a|2|28.6%| / t.co/b|1|14.3%|";
    says("a search", found);
    let here = browser.run("return location.pathname + location.search");
    browser.visit(&server, here.as_str().expect("an address"));
    says("the same address", found);
    browser.click("nav[aria-label=List] a[data-value=none]");
    browser.wait_for(
        "the values that are searched",
        "return location.search.includes('fold=none') && location.search.includes('sort=value') \
         && document.querySelectorAll('tbody tr').length === 2",
    );
    browser.check_console();
}

#[test]
fn filtered_pages_and_tables_of_values_are_accessible_at_every_width() {
    let Some((_data, server, browser)) = open("filtered_pages_and_tables") else {
        return;
    };
    count(&server, "key.l=abc&by.r=example.com/%3Cb%3E");
    for width in WIDTHS {
        for theme in THEMES {
            browser.emulate(width, theme);
            for path in [
                "/keys/l/abc/by/r?units=7",
                "/keys/l/abc?where.r=example.com/%3Cb%3E",
                "/keys/ad_click/42/by/country*device",
                "/keys/ad_click/42?where.country=US",
                "/?namespace=l",
            ] {
                browser.visit(&server, path);
                browser.check_accessible(&format!("{path} at {width} pixels, {theme}"));
            }
        }
    }
    check_console(&browser);
}

/// Checks that nothing but refused breakdowns stands in the console.
fn check_console(browser: &Browser) {
    let messages = browser.console().into_iter();
    let others = messages.filter(|message| !message.contains(" 422 "));
    assert_eq!(Vec::from_iter(others), Vec::<String>::new());
}
