//! API keys of nodes: each node has those of the log.

use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use serde_json::Value;
use tallyring_api::{Access, AccessLimits};
use tallyring_realtime::catalog::Catalog;
use tallyring_realtime::{Follower, Part};
use tallyring_records::KeyEntry;
use tallyring_tests::sim_topic::SimTopic;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::forward::Site;
use super::stand::{Stand, follow, key, take_over};

#[test]
fn a_node_that_comes_later_has_the_keys_of_before() {
    let mut stand = Stand::new();
    let writer = stand.writer(1);
    let (_, mut follower) = stand.follower(2);
    let revoked = KeyEntry {
        revoked_ms: Some(7),
        ..key("b")
    };
    for change in [key("a"), key("b"), revoked.clone()] {
        writer.intake().put_key(change).expect("in the log");
    }
    let all = vec![key("a"), revoked];
    follow(&mut follower);
    assert_eq!(follower.store().intake().keys(), all);
    // From the log alone, and from a manifest.
    for node in [3, 4] {
        let (_, later) = stand.follower(node);
        assert_eq!(later.store().intake().keys(), all);
        writer.ledger().flush().expect("flushed");
        assert_eq!(writer.manifest().intake.keys, all);
    }
    // A node that follows takes no change.
    let refused = follower.store().intake().put_key(key("c"));
    assert!(refused.is_err());
    assert_eq!(follower.store().intake().keys(), all);
}

#[test]
fn keys_that_only_one_node_has_are_logged_once_it_writes() {
    let mut stand = Stand::new();
    let writer = stand.writer(1);
    let (_, mut follower) = stand.follower(2);
    writer.intake().put_key(key("a")).expect("in the log");
    // Its catalog is that of an older build, which knew of a revocation, too.
    let revoked = KeyEntry {
        revoked_ms: Some(7),
        ..key("a")
    };
    let of_catalog = [revoked.clone(), key("b")];
    let adopted = follower.store().intake().adopt_keys(&of_catalog);
    adopted.expect("in force");
    follow(&mut follower);
    assert_eq!(follower.store().intake().keys(), of_catalog);
    assert_eq!(writer.intake().keys(), [key("a")]);
    let taken = take_over(follower, stand.owner());
    let mut before = Follower::step_down(writer).expect("it wrote");
    follow(&mut before);
    assert_eq!(before.store().intake().keys(), of_catalog);
    // Nothing is logged twice.
    let end = taken.live().applied();
    taken.intake().adopt_keys(&of_catalog).expect("known");
    assert_eq!(taken.live().applied(), end);
}

fn unlike(out: &mut [u8]) {
    use std::io::Read;
    let source = std::fs::File::open("/dev/urandom");
    let read = source.and_then(|mut source| source.read_exact(out));
    read.expect("random bytes");
}

/// Sends a request with a key to a node: status and body of the answer.
fn ask(site: &Site, runtime: &Runtime, key: &str, line: (&str, &str), body: &str) -> (u16, Value) {
    let (method, path) = line;
    let mut request = Request::builder()
        .method(method)
        .uri(format!("http://localhost{path}"))
        .header("content-type", "application/json");
    if !key.is_empty() {
        request = request.header("authorization", format!("Bearer {key}"));
    }
    let request = request.body(Body::from(body.to_owned()));
    let (response, body) = site.send(runtime, request.expect("a request"));
    let body = serde_json::from_str(&body).unwrap_or_default();
    (response.status().as_u16(), body)
}

#[test]
fn a_key_that_any_node_made_opens_all_of_them_until_any_node_revokes_it() {
    let stand = Stand::new();
    let nodes = SimTopic::default();
    let runtime = Runtime::new().expect("a runtime");
    let directories = [(); 3].map(|()| TempDir::new().expect("a directory"));
    let sites = [1, 2, 3].map(|node| {
        let catalog = Catalog::open(&directories[node - 1].path().join("catalog"));
        let catalog = Arc::new(catalog.expect("a catalog"));
        let access = Access::load(catalog, AccessLimits::default(), unlike);
        let access = Arc::new(access.expect("no keys"));
        Site::start_with(&stand, (node, &nodes), &runtime, access)
    });
    let make = |site: &Site, by: &str| {
        let made = stand.pass_until(|| {
            let scopes = r#"{"scopes": ["admin", "read"]}"#;
            let (status, body) = ask(site, &runtime, by, ("POST", "/v1/admin/keys"), scopes);
            (status == 201).then_some(body)
        });
        let part = |name: &str| made[name].as_str().expect(name).to_owned();
        (part("id"), part("key"))
    };
    let read = |site: &Site, key: &str| ask(site, &runtime, key, ("GET", "/v1/l/a/counts"), "").0;
    let follows = |site: &&Site| matches!(site.service.store().part(), Part::Follows { .. });
    let writes = stand.pass_until(|| sites.iter().position(|site| !follows(&site)));
    let others = [(writes + 1) % 3, (writes + 2) % 3];
    // The first key closes all nodes.
    let (_, operator) = make(&sites[others[0]], "");
    assert_eq!(read(&sites[others[0]], ""), 401);
    stand.pass_until(|| sites.iter().all(|site| read(site, "") == 401).then_some(()));
    for by in others {
        let (id, key) = make(&sites[by], &operator);
        assert_eq!(read(&sites[by], &key), 200, "in force where it was made");
        stand.pass_until(|| {
            sites
                .iter()
                .all(|site| read(site, &key) == 200)
                .then_some(())
        });
        let path = format!("/v1/admin/keys/{id}");
        let (status, body) = ask(&sites[by], &runtime, &operator, ("DELETE", &path), "");
        assert_eq!(status, 200, "{body}");
        assert_eq!(read(&sites[by], &key), 401, "refused where it was revoked");
        stand.pass_until(|| {
            sites
                .iter()
                .all(|site| read(site, &key) == 401)
                .then_some(())
        });
    }
    let (_, listed) = ask(
        &sites[writes],
        &runtime,
        &operator,
        ("GET", "/v1/admin/keys"),
        "",
    );
    for site in &sites {
        let (_, other) = ask(site, &runtime, &operator, ("GET", "/v1/admin/keys"), "");
        assert_eq!(other, listed);
    }
    assert_eq!(listed["keys"].as_array().map(Vec::len), Some(3), "{listed}");
}
