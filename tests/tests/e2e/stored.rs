//! A data directory that holds a file of every kind, left behind by a server that was stopped.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tallyring_tests::server::Server;
use tempfile::TempDir;

/// One-MiB segments: small copies.
const CONFIG: &str = "[oplog]\nsegment_mib = 1\n";

/// The directory of the test, with the data directory inside.
pub(crate) struct Stored {
    _directory: TempDir,
    pub data: PathBuf,
    config: PathBuf,
}

impl Stored {
    /// An empty one.
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let (data, config) = (
            directory.path().join("data"),
            directory.path().join("c.toml"),
        );
        fs::write(&config, CONFIG).expect("write the configuration");
        Self {
            _directory: directory,
            data,
            config,
        }
    }

    /// The data directory as an argument.
    pub(crate) fn argument(&self) -> &str {
        text(&self.data)
    }

    /// A server on it.
    pub(crate) fn serve(&self, clock: &str) -> Server {
        Server::start(
            &self.data,
            &["--clock", clock, "--config", text(&self.config)],
        )
    }

    /// Names of the files in one of its directories, sorted.
    pub(crate) fn files(&self, directory: &str) -> Vec<String> {
        files(&self.data, directory)
    }

    /// 400 clicks on the 16th, not exported.
    pub(crate) fn with_one_day() -> Self {
        let stored = Self::new();
        let server = stored.serve("2012-03-16T12:00:00Z");
        post(&server, "2012-03-16T09:10:00Z", "a", 400);
        server.terminate();
        stored
    }

    /// A week of clicks: two generations, deltas, ids and late increments.
    ///
    /// ```text
    /// 16th  400 clicks with ids        -> exported, runs/ and archive/
    /// 17th  200 clicks, 50 for the 16th-> exported, merged with those of the 16th
    /// 18th  100 clicks, 10 for the 16th-> deltas/ and ids/
    /// ```
    pub(crate) fn with_a_file_of_every_kind() -> Self {
        let stored = Self::with_one_day();
        let server = stored.serve("2012-03-17T12:00:00Z");
        server.wait_for_status("the 16th is archived", |status| status["generation"] == 1);
        post(&server, "2012-03-17T10:00:00Z", "b", 200);
        post(&server, "2012-03-16T09:30:00Z", "c", 50);
        server.terminate();
        let server = stored.serve("2012-03-18T12:00:00Z");
        server.wait_for_status("the 17th is archived", |status| status["generation"] == 2);
        post(&server, "2012-03-18T10:00:00Z", "d", 100);
        post(&server, "2012-03-16T09:40:00Z", "e", 10);
        server.terminate();
        stored
    }
}

/// Posts clicks of one moment on 20 links; long keys among them.
fn post(server: &Server, at: &str, ids: &str, clicks: usize) {
    let items: Vec<Value> = (0..clicks)
        .map(|click| {
            let link = match click % 20 {
                0 => "a link with blanks, commas and more".to_owned(),
                number => format!("link{number}"),
            };
            let country = ["US", "JP", "NZ"][click % 3];
            let referrer = format!("http://example.org/{}", click % 7);
            json!({
                "at": at,
                "keys": {"l": link, "u": "somebody"},
                "by": {"c": country, "r": referrer},
                "id": format!("{ids}{click}"),
            })
        })
        .collect();
    let answer = server.post("/v1/increments", json!(items).to_string());
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.json()["accepted"], json!(clicks));
}

/// Names of the files in a directory of a data directory, sorted.
pub(crate) fn files(data: &Path, directory: &str) -> Vec<String> {
    let entries = fs::read_dir(data.join(directory)).expect("list a directory");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name())
        .map(|name| format!("{directory}/{}", name.to_str().expect("a name of text")))
        .collect();
    names.sort();
    names
}

/// A path as an argument.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}

/// Copies all that a directory has.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("make a directory");
    for entry in fs::read_dir(from).expect("list a directory") {
        let entry = entry.expect("an entry");
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        match from.is_dir() {
            true => copy(&from, &to),
            false => drop(fs::copy(&from, &to).expect("copy a file")),
        }
    }
}
