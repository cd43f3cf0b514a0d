//! The range that the address of a page names.

use jiff::{SignedDuration, Span, Timestamp};
use serde_json::json;

use crate::driver::Browser;
use crate::open;

/// The day so many days ago, in UTC.
fn day(ago: i64) -> String {
    let at = Timestamp::now() - SignedDuration::from_hours(24 * ago);
    at.to_string()[..10].to_owned()
}

fn address(browser: &Browser) -> String {
    let address = browser.run("return location.pathname + location.search");
    address.as_str().expect("an address").to_owned()
}

const PERIODS: [&str; 12] = [
    "today",
    "yesterday",
    "7d",
    "28d",
    "90d",
    "week",
    "lastweek",
    "month",
    "lastmonth",
    "quarter",
    "year",
    "all",
];

/// The first and the last day that a period shows now; none where it depends on more than the calendar.
fn days(period: &str, zone: &str) -> Option<(String, String)> {
    let today = Timestamp::now().in_tz(zone).expect("a zone").date();
    let monday = today - Span::new().days(i64::from(today.weekday().to_monday_zero_offset()));
    let month = today.first_of_month();
    let ago = |days: i64| today - Span::new().days(days);
    let (first, last) = match period {
        "today" => (today, today),
        "yesterday" => (ago(1), ago(1)),
        "7d" => (ago(6), today),
        "28d" => (ago(27), today),
        "90d" => (ago(89), today),
        "week" => (monday, today),
        "lastweek" => (monday - Span::new().days(7), monday - Span::new().days(1)),
        "month" => (month, today),
        "quarter" => (
            month - Span::new().months((i64::from(today.month()) - 1) % 3),
            today,
        ),
        "year" => (today.first_of_year(), today),
        "lastmonth" => (month - Span::new().months(1), month - Span::new().days(1)),
        // Counts decide where all time begins.
        _ => return None,
    };
    Some((first.to_string(), last.to_string()))
}

fn says(browser: &Browser, text: &str) {
    let script = format!(
        "return [...document.querySelectorAll('figure desc')].some((desc) => desc.textContent.includes({text:?}))"
    );
    browser.wait_for(text, &script);
}

#[test]
fn the_address_keeps_the_range_over_units_zones_reloads_and_going_back() {
    let Some((_data, server, browser)) = open("the_address_keeps_the_range") else {
        return;
    };
    let (first, last) = (day(9), day(0));
    browser.visit(&server, "/keys/l/abc?timezone=UTC");
    // A reader chooses days.
    let choose = format!(
        "const form = document.querySelector('form.range'); form.elements.from.value = '{first}'; \
         form.elements.to.value = '{last}'; form.requestSubmit()"
    );
    browser.run(&choose);
    says(&browser, "10 days");
    assert_eq!(browser.tile("10 days"), "3");
    let chosen = address(&browser);
    let named = format!("from={first}&to={last}");
    assert!(chosen.contains(&named), "{chosen}");
    browser.click("nav[aria-label=Unit] a[data-value=hour]");
    says(&browser, "240 hours");
    assert!(address(&browser).contains(&named));
    browser.run("history.back()");
    says(&browser, "10 days");
    assert_eq!(address(&browser), chosen);
    browser.run("history.forward()");
    says(&browser, "240 hours");
    browser.run("location.reload()");
    says(&browser, "240 hours");
    browser.wait_whole();
    let shown = "return document.querySelector('form.range').elements.from.value";
    assert_eq!(browser.run(shown), json!(first));
    // Days are those of the page's zone, and the last one is a part of the range.
    browser.visit(
        &server,
        &format!("/keys/l/abc?unit=hour&from={first}&to={first}&timezone=Asia/Kolkata"),
    );
    says(&browser, "24 hours");
    says(&browser, "00:00 – ");
    // Times as the API takes them.
    browser.visit(
        &server,
        &format!("/keys/l/abc?unit=hour&from={first}T10:00:00Z&to={first}T12:00:00Z&timezone=UTC"),
    );
    says(&browser, "3 hours");
    // A period ends the range.
    browser.run("document.querySelector('.picker').open = true");
    browser.click("nav[aria-label=Period] a[data-value=today]");
    browser.wait_for("the period", "return !location.search.includes('from')");
    // The overview ranks the same days, and its keys open with them.
    browser.visit(&server, &format!("/?namespace=l&timezone=UTC&{named}"));
    says(&browser, "10 days");
    browser.click(".ranking a");
    browser.wait_for("the key", "return location.pathname === '/keys/l/abc'");
    browser.wait_whole();
    assert_eq!(browser.tile("10 days"), "3");
    browser.check_console();
}

#[test]
fn a_wrong_value_in_the_address_is_named_and_changes_nothing() {
    let Some((_data, server, browser)) = open("a_wrong_value_in_the_address") else {
        return;
    };
    browser.visit(&server, "/?namespace=u&timezone=Europe/Berlin");
    let zone = "return document.getElementById('zone').value";
    let own = browser.run("return Intl.DateTimeFormat().resolvedOptions().timeZone");
    for (path, told) in [
        ("/keys/l/abc?unit=fortnight", ["`unit`", "fortnight"]),
        ("/keys/l/abc?units=many", ["`units`", "many"]),
        ("/keys/l/abc?from=yesterday", ["`from`", "yesterday"]),
        ("/keys/l/abc?from=2026-02-30", ["`from`", "2026-02-30"]),
        ("/keys/l/abc?to=0", ["`to`", "2000-01-01"]),
        (
            "/keys/l/abc?from=2026-03-02&to=2026-03-01",
            ["`from`", "`to`"],
        ),
        ("/keys/l/abc?unit=minute", ["unit=hour", "minutes"]),
        (
            "/keys/l/abc?timezone=Mars/Base",
            ["`timezone`", "Mars/Base"],
        ),
        ("/?timezone=Mars/Base", ["`timezone`", "Mars/Base"]),
        ("/?namespace=nothing", ["`namespace`", "nothing"]),
        ("/?period=99", ["`period`", "99"]),
        ("/keys/l/abc?period=all&to=2026-03-01", ["`period`", "`to`"]),
        ("/?to=never", ["`to`", "never"]),
    ] {
        browser.visit(&server, path);
        assert_eq!(browser.text("h1"), "This cannot be shown", "{path}");
        let text = browser.text("main");
        for part in told {
            assert!(text.contains(part), "{path}: {text}");
        }
        assert_eq!(address(&browser), path);
        assert_eq!(browser.run(zone), own, "{path}");
    }
    // The namespace that the reader chose before is still chosen.
    browser.visit(&server, "/");
    let namespace = "return document.querySelector('[aria-label=Namespace] [aria-current], [aria-label=Namespace] :checked').dataset.value";
    assert_eq!(browser.run(namespace), json!("u"));
    // A last day before the first one is not sent.
    browser.visit(&server, "/keys/l/abc");
    browser.run(
        "const form = document.querySelector('form.range'); form.elements.from.value = '2026-03-02'; \
         form.elements.to.value = '2026-03-01'; form.dispatchEvent(new Event('input')); form.requestSubmit()",
    );
    let why = "return document.querySelector('form.range').elements.to.validationMessage";
    assert_eq!(
        browser.run(why),
        json!("The last day lies before the first.")
    );
    assert_eq!(address(&browser), "/keys/l/abc");
}

#[test]
fn a_period_shows_its_days_in_the_zone_of_the_page_and_goes_along_to_other_pages() {
    let Some((_data, server, browser)) = open("a_period_shows_its_days") else {
        return;
    };
    for zone in ["America/New_York", "Asia/Kolkata"] {
        for period in PERIODS {
            let path = format!("/keys/l/abc?period={period}&timezone={zone}");
            browser.visit(&server, &path);
            let shown = browser.run(
                "return document.querySelector('.picker summary span:last-child').textContent",
            );
            let chosen =
                browser.run("return document.querySelector('.picker [aria-current]').textContent");
            assert_eq!(shown, chosen, "{period}");
            let form = |name| {
                let shown =
                    format!("return document.querySelector('form.range').elements.{name}.value");
                browser.run(&shown).as_str().expect("a day").to_owned()
            };
            if let Some((first, last)) = days(period, zone) {
                assert_eq!(
                    (form("from"), form("to")),
                    (first, last),
                    "{period} in {zone}"
                );
            }
        }
    }
    // Units, pages and the keyboard keep it.
    browser.visit(&server, "/?namespace=l&period=90d&timezone=Asia/Kolkata");
    let keeps = |page: &str| {
        let script = format!(
            "return location.pathname === {page:?} && location.search.includes('period=90d') && \
             location.search.includes('Kolkata')"
        );
        browser.wait_for(page, &script);
        browser.wait_whole();
    };
    browser.click(".ranking a");
    keeps("/keys/l/abc");
    browser.click("nav[aria-label=Unit] a[data-value=mweek]");
    browser.wait_for("weeks", "return location.search.includes('unit=mweek')");
    keeps("/keys/l/abc");
    browser.run(
        "document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'd', bubbles: true}))",
    );
    keeps("/days");
    browser.click("nav[aria-label=Months] a");
    browser.wait_for("another month", "return location.search.includes('month=')");
    keeps("/days");
    browser.run("document.querySelector('#q').value = 'abc'; document.querySelector('.search').requestSubmit()");
    keeps("/search");
    browser.click(".found a");
    keeps("/keys/l/abc");
    browser.click(".crumbs a");
    keeps("/");
    browser.check_console();
}

#[test]
fn links_of_the_header_are_of_the_range_that_is_shown() {
    let Some((_data, server, browser)) = open("links_of_the_header") else {
        return;
    };
    browser.visit(&server, "/keys/l/abc?period=7d&timezone=UTC");
    for period in ["7d", "28d"] {
        browser.press("g");
        let shown = format!(
            "return location.pathname === '/' && location.search.includes('period={period}')"
        );
        browser.wait_for(period, &shown);
        browser.run("history.back()");
        browser.wait_for("the key", "return location.pathname === '/keys/l/abc'");
        browser.wait_whole();
        browser.run("document.querySelector('.picker').open = true");
        browser.click("nav[aria-label=Period] a[data-value='28d']");
        browser.wait_for("28 days", "return location.search.includes('period=28d')");
        browser.wait_whole();
    }
    browser.check_console();
}

#[test]
fn a_key_opens_the_periods_and_escape_closes_them() {
    let Some((_data, server, browser)) = open("a_key_opens_the_periods") else {
        return;
    };
    browser.visit(&server, "/keys/l/abc");
    browser.press("r");
    browser.wait_for(
        "the periods",
        "return document.querySelector('.picker').open",
    );
    browser.check_accessible("the periods");
    browser.press("\u{e00c}");
    browser.wait_for(
        "no periods",
        "return !document.querySelector('.picker').open",
    );
    // So does a click elsewhere.
    browser.press("r");
    browser.wait_for(
        "the periods",
        "return document.querySelector('.picker').open",
    );
    browser.click("h1");
    browser.wait_for(
        "no periods",
        "return !document.querySelector('.picker').open",
    );
    browser.check_console();
}

#[test]
fn a_part_of_the_series_is_zoomed_into_by_dragging_and_escape_goes_back() {
    let Some((_data, server, browser)) = open("a_part_of_the_series_is_zoomed_into") else {
        return;
    };
    let path = format!("/keys/l/abc?from={}&to={}&timezone=UTC", day(9), day(0));
    for theme in ["light", "dark"] {
        browser.visit(&server, &path);
        browser.run(&format!(
            "document.documentElement.dataset.theme = {theme:?}"
        ));
        // From within the third of ten days to within the fifth.
        let drag = "const figure = document.querySelector('figure.zooms'); \
             const plot = figure.querySelector('svg .g').getBoundingClientRect(); \
             figure.setPointerCapture = () => {}; \
             const fire = (kind, part) => figure.dispatchEvent(new PointerEvent(kind, \
                 {bubbles: true, clientX: plot.left + part * plot.width, clientY: plot.top, pointerId: 1, isPrimary: true})); \
             fire('pointerdown', LOW); fire('pointermove', HIGH); \
             const shown = document.querySelector('.band') !== null; fire('pointerup', HIGH); return shown";
        let drag = |low: f64, high: f64| {
            let script = drag
                .replace("LOW", &low.to_string())
                .replace("HIGH", &high.to_string());
            assert_eq!(browser.run(&script), json!(true));
        };
        drag(0.25, 0.45);
        says(&browser, "3 days");
        let shown = browser.run("return document.querySelector('form.range').elements.from.value");
        assert_eq!(shown, json!(day(7)));
        // A single day is shown by the hour.
        drag(0.1, 0.2);
        says(&browser, "24 hours");
        for before in ["3 days", "10 days"] {
            browser.run("document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape', bubbles: true}))");
            says(&browser, before);
        }
        // A range that was not zoomed into stays.
        browser.run("document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape', bubbles: true}))");
        assert_eq!(address(&browser), path);
        // A click is no drag.
        browser.click("figure.zooms");
        assert_eq!(address(&browser), path);
    }
    browser.check_console();
}
