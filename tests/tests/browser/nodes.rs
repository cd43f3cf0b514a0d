//! The nodes of a cluster on the page of the state. The server of the test is alone, so the page is told of nodes in
//! its place.

use serde_json::json;

use crate::open;

/// Lets the status that the page reads from now on say that the server is a node.
const FAKED: &str = r#"
    const real = window.fetch;
    window.node = (node, writes, lag_records) => ({
        node, address: `http://${node}.example:7117`, version: "0.1.0", writes, epoch: writes ? 3 : null,
        position: lag_records === null ? null : `3:${4711 - lag_records}`, lag_records, heard_seconds: 0.44 });
    window.nodes = [node("a", true, 0), node("b", false, 1), { ...node("c", false, null), may_write: false, rebuilds: true }];
    window.fetch = async (address, options) => {
        const answer = await real(address, options);
        if (!String(address).includes("/admin/status")) return answer;
        const status = await answer.json();
        const cluster = { writes: true, nodes: window.nodes, strands: window.strands };
        return new Response(JSON.stringify({ ...status, cluster }));
    };
"#;

const TEXT: &str = "return document.querySelector('section[aria-labelledby=nodes]').innerText";
const IS_SEEN: &str =
    "return document.querySelector('section[aria-labelledby=nodes]').checkVisibility()";

/// Whether the card has this text.
fn says(text: &str) -> String {
    format!(
        "return document.querySelector('section[aria-labelledby=nodes]').innerText.includes('{text}')"
    )
}

#[test]
fn an_operator_sees_the_nodes_of_a_cluster_and_nothing_of_them_on_a_single_server() {
    let Some((_data, server, browser)) = open("an_operator_sees_the_nodes") else {
        return;
    };
    browser.visit(&server, "/state");
    assert_eq!(browser.run(IS_SEEN), json!(false), "it is alone");
    browser.run(FAKED);
    browser.wait_for("the nodes", IS_SEEN);
    let rows = browser.table("nodes");
    let expected = [
        "a http://a.example:7117 0.1.0 writes in epoch 3 3:4711 0 records 0.4 s ago",
        "b http://b.example:7117 0.1.0 follows 3:4710 1 record 0.4 s ago",
        "c http://c.example:7117 0.1.0 only follows, rebuilds – – 0.4 s ago",
    ];
    assert_eq!(rows, json!(expected));
    let text = browser.run(TEXT).to_string();
    assert!(text.contains("3 nodes are heard. a writes"), "{text}");
    for (width, theme) in [(1_280, "light"), (1_280, "dark"), (320, "light")] {
        browser.emulate(width, theme);
        browser.check_accessible(&format!("nodes at {width} pixels, {theme}"));
        let fits = "return document.documentElement.scrollWidth <= window.innerWidth";
        assert_eq!(browser.run(fits), json!(true), "at {width} pixels");
    }
    browser.run("window.nodes.shift()");
    browser.wait_for("no node writes", &says("No node is heard that writes."));
    browser.run(
        "window.nodes = [node('a', true, 0), node('b', false, 1)];
        window.strands = [{ nodes: window.nodes }, { nodes: [node('a', false, 2), node('c', true, 0)] }]",
    );
    browser.wait_for(
        "the strands",
        &says("3 nodes are heard. Each strand has one that writes it"),
    );
    let rows = browser.table("nodes");
    let expected = [
        "0 a http://a.example:7117 0.1.0 writes in epoch 3 3:4711 0 records 0.4 s ago",
        "0 b http://b.example:7117 0.1.0 follows 3:4710 1 record 0.4 s ago",
        "1 a http://a.example:7117 0.1.0 follows 3:4709 2 records 0.4 s ago",
        "1 c http://c.example:7117 0.1.0 writes in epoch 3 3:4711 0 records 0.4 s ago",
    ];
    assert_eq!(rows, json!(expected));
    browser.check_accessible("nodes of strands");
    browser.run("window.strands[1].nodes.pop()");
    browser.wait_for(
        "no node writes a strand",
        &says("No node is heard that writes strand 1."),
    );
    browser.check_console();
}
