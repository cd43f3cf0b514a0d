//! Real clicks, sent by the real command, counted exactly.

use serde_json::Value;
use tallyring_tests::server::{Server, tallyring, tallyring_ok};

use crate::check::check_all;
use crate::expected::{Expected, bitly_clicks, bitly_file};

/// When the clicks begin.
pub(crate) const CLOCK: &str = "2012-03-16T18:40:00Z";

/// The meaning of each field of a click.
pub(crate) const MAPPING: [&str; 14] = [
    "--map",
    "key.l=g",
    "--map",
    "key.u=l",
    "--map",
    "key.d=hh",
    "--map",
    "by.c=c",
    "--map",
    "by.r=r",
    "--map",
    "at=t",
    "--on-error",
    "skip",
];

/// Sends the file as a user would; what must have been counted. None when the file is not there.
pub(crate) fn send_bitly(server: &Server) -> Option<Expected> {
    let file = bitly_file()?;
    let path = file.to_str().expect("a path of text");
    let mut arguments = vec!["send", path, "--to", server.url(), "--output", "json"];
    arguments.extend(MAPPING);
    let summary: Value = serde_json::from_str(&tallyring_ok(&arguments)).expect("JSON");
    assert_eq!(summary["accepted"], 3_440, "{summary}");
    assert_eq!(summary["bad_lines"], 120, "{summary}");
    let mut expected = Expected::default();
    expected.add(&bitly_clicks(&file));
    Some(expected)
}

#[test]
fn every_count_of_the_real_clicks_equals_a_direct_count_of_the_file() {
    let data = tempfile::tempdir().expect("a directory");
    let server = Server::start(data.path(), &["--clock", CLOCK]);
    let Some(expected) = send_bitly(&server) else {
        return;
    };
    assert_eq!(expected.keys().len(), 737 + 275 + 21);
    check_all(&server, &expected);
}

#[test]
fn send_prints_what_it_sent_and_lists_every_bad_line() {
    let Some(file) = bitly_file() else { return };
    let data = tempfile::tempdir().expect("a directory");
    let server = Server::start(data.path(), &["--clock", CLOCK]);
    let path = file.to_str().expect("a path of text");
    let mut arguments = vec!["send", path, "--to", server.url()];
    arguments.extend(MAPPING);
    let sent = tallyring(&arguments);
    assert_eq!(sent.code, 0, "{sent:?}");
    let row = |name: &str| {
        let line = sent.stdout.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_whitespace().last().map(str::to_owned))
    };
    assert_eq!(row("accepted").as_deref(), Some("3,440"), "{sent:?}");
    assert_eq!(row("bad lines").as_deref(), Some("120"), "{sent:?}");
    let listed = sent.stderr.lines().filter(|line| line.contains(".jsonl"));
    assert!(listed.count() >= 1, "{sent:?}");
}
