//! A server that stops and comes back, and addresses that it does not have, as a browser sees them.

use serde_json::json;
use tallyring_tests::server::{Server, wait_until};

use crate::{count, open};

#[test]
fn a_page_whose_server_is_gone_says_so_and_goes_on_once_it_is_back() {
    let Some((data, mut server, browser)) = open("a_page_whose_server_is_gone") else {
        return;
    };
    let url = server.url().to_owned();
    let listen = url.strip_prefix("http://").expect("an address");
    let banner = "const banner = document.getElementById('gone'); \
        return banner.checkVisibility() && banner.getBoundingClientRect().top <= 0 \
        && banner.textContent.startsWith('The server does not answer.')";
    let is_seen = "return document.getElementById('gone').checkVisibility()";
    // A page with a stream, one without, and one whose counts came before.
    for path in ["/", "/search?q=abc", "/keys/l/abc"] {
        browser.visit(&server, path);
        assert_eq!(browser.run(is_seen), json!(false), "{path}");
        let heading = browser.text("h1");
        server.terminate();
        browser.wait_for("the banner", banner);
        assert_eq!(browser.text("h1"), heading, "what was shown stays");
        browser.check_accessible(&format!("{path} without a server"));
        server = Server::start(data.path(), &["--listen", listen]);
        wait_until("the banner is gone", || {
            browser.run(is_seen) == json!(false)
        });
        browser.wait_whole();
        assert_eq!(browser.text("h1"), heading);
    }
    // The page goes on by itself.
    count(&server, "key.l=abc&n=4");
    wait_until("the count arrives", || browser.tile("Today so far") == "7");
    assert_eq!(browser.text("#live"), "live");
}

#[test]
fn a_wrong_address_gets_a_page_that_leads_home() {
    let Some((_data, server, browser)) = open("a_wrong_address") else {
        return;
    };
    for theme in ["light", "dark"] {
        browser.emulate(768, theme);
        browser.go(&format!("{}/no/such%20page", server.url()));
        assert_eq!(browser.text("h1"), "Nothing is here");
        assert_eq!(browser.text("main p code"), "/no/such%20page");
        browser.check_accessible("a wrong address");
    }
    browser.emulate(375, "light");
    browser.go(&format!("{}/{}", server.url(), "long".repeat(100)));
    let fits = "return document.documentElement.scrollWidth <= window.innerWidth";
    assert_eq!(browser.run(fits), json!(true), "a long address wraps");
    browser.click(".facts a[href='/']");
    browser.wait_for("home", "return location.pathname === '/'");
    browser.wait_whole();
    let others = browser.console().into_iter();
    let others: Vec<String> = others
        .filter(|message| !message.contains(" 404 "))
        .collect();
    assert_eq!(others, Vec::<String>::new());
}
