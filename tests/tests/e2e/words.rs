//! Namespaces whose names have become words of the API: none is new, and those of an old store stay.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use tallyring_archive::{Blobs, Manifest, OsDisk, names};
use tallyring_tests::server::{Server, tallyring, tallyring_ok};

use crate::stored::text;

const NOON: &str = "2012-03-16T12:00:00Z";

fn declared(namespace: &str) -> String {
    format!(
        "[[namespace]]\nname = \"l\"\n[[namespace]]\nname = \"{namespace}\"\nsubtotals = [\"c\"]\n"
    )
}

/// Gives a namespace of a store that counted nothing yet another name, as an older build would have taken it.
fn rename(data: &Path, from: &str, to: &str) {
    let blobs = Blobs::new(Arc::new(OsDisk::new(data).expect("open the directory")));
    let mut manifest = Manifest::load(&blobs)
        .expect("read it")
        .expect("a manifest");
    for entry in &mut manifest.intake.schemas {
        let namespaces = entry.schema.namespaces.iter_mut();
        for namespace in namespaces.filter(|namespace| namespace.name == from) {
            namespace.name = to.to_owned();
        }
    }
    fs::remove_file(data.join(names::manifest(manifest.number))).expect("remove the manifest");
    manifest.commit(&blobs).expect("write the manifest");
}

#[test]
fn a_word_of_the_api_names_no_new_namespace_and_one_of_an_old_store_stays() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    let (before, after) = (path("before.toml"), path("after.toml"));
    fs::write(&before, declared("people")).expect("written");
    fs::write(&after, declared("users")).expect("written");
    let (old, new) = (path("old"), path("new"));
    Server::start(&old, &["--clock", NOON, "--config", text(&before)]).terminate();
    let named = "name must be no word of the API";
    for arguments in [
        &["config", "check", text(&after)][..],
        &["config", "check", text(&after), "--data", text(&new)],
        &["config", "check", text(&after), "--data", text(&old)],
        &["serve", "--config", text(&after), "--data", text(&new)],
        &["serve", "--config", text(&after), "--data", text(&old)],
    ] {
        let refused = tallyring(arguments);
        assert_eq!(refused.code, 2, "{arguments:?}: {refused:?}");
        let is_named = refused.stderr.contains(named) && refused.stderr.contains("got `users`");
        assert!(is_named, "{arguments:?}: {refused:?}");
    }
    assert!(!new.exists(), "nothing was made");

    rename(&old, "people", "users");
    tallyring_ok(&["config", "check", text(&after), "--data", text(&old)]);
    let server = Server::start(&old, &["--clock", NOON, "--config", text(&after)]);
    let clicks = "/v1/incr?key.users=a&key.l=x&by.c=US";
    assert_eq!(server.get(clicks).status, 204);
    for (path, total) in [
        ("users/a/counts", 1),
        ("users/a/summary", 1),
        ("users/a/by/c", 1),
        ("users/counts", 1),
        ("users/top", 1),
        ("l/x/counts", 1),
        ("l/y/counts", 0),
    ] {
        let answer = server.get_json(&format!("/v1/namespaces/{path}?unit=hour"));
        assert_eq!(answer["total"], total, "{path}");
    }
    for (path, text) in [
        ("users/a/summary.csv", "total\n1\n"),
        ("users/top.csv", "key,count,kind\na,1,value\n"),
    ] {
        let answer = server.get(&format!("/v1/namespaces/{path}"));
        assert_eq!(answer.text, text, "{path}");
    }
    let unknown = server.get("/v1/namespaces/nobody/a/counts");
    assert_eq!(
        (unknown.status, &unknown.json()["field"]),
        (404, &"namespace".into())
    );
    let table = tallyring_ok(&["query", "users/a", "--units", "1", "--to", server.url()]);
    assert!(
        table.contains("total                                 1"),
        "{table}"
    );
    server.terminate();
    // Without a file the store keeps what it has.
    let server = Server::start(&old, &["--clock", NOON]);
    assert_eq!(server.get_json("/v1/namespaces/users/a/counts")["total"], 1);
}
