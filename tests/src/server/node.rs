//! A server of a test as the only node of a cluster, where TALLYRING_KAFKA and TALLYRING_S3 name engines. TALLYRING
//! names a binary for them then.
//!
//! Each data directory has a store of its own: a topic and a prefix that nothing had before.

use std::env;
use std::fs;
use std::path::Path;

use crate::needs::say;

/// Part of the message of a node that has taken the log over.
pub(super) const WRITES: &str = "this node writes the log";

/// Begins what a configuration of a test says of engines.
const SECTION: &str = "\n# As a node\n";

/// True where servers are nodes of clusters. Says then that a test, or the rest of it, is left out, and why.
pub fn not_on_a_node(why: &str) -> bool {
    let is_node = engines().is_some();
    if is_node {
        let thread = std::thread::current();
        let test = thread.name().unwrap_or("a test");
        say(&format!("not on a node: {test}: {why}"));
    }
    is_node
}

/// The arguments by which a server of this directory is a node; none where no engines are named. Its store is made at
/// the first call. The configuration that they name gets a section more.
///
/// # Panics
/// When the store cannot be made.
pub(super) fn arguments(data: &Path, arguments: &[&str]) -> Option<Vec<String>> {
    let (kafka, s3) = engines()?;
    let mut arguments: Vec<String> = arguments.iter().copied().map(String::from).collect();
    let named = arguments.iter().position(|argument| argument == "--config");
    let config = match named {
        Some(at) => arguments[at + 1].clone(),
        None => {
            fs::create_dir_all(data).expect("make the data directory");
            let config = text(&data.join("node.toml")).to_owned();
            arguments.extend(["--config".to_owned(), config.clone()]);
            config
        }
    };
    let settings = fs::read_to_string(&config).unwrap_or_default();
    let settings = settings.split(SECTION).next().unwrap_or_default();
    // Directories of tests have names that no other one had.
    let name: String = text(data)
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .collect();
    let brokers = kafka.replace(',', "\", \"");
    let section = format!(
        "[cluster]\nnode = \"a\"\naddress = \"http://127.0.0.1:1\"\nlog.kafka = [\"{brokers}\"]\n\
         log.topic = \"{name}\"\nfiles.s3 = \"{s3}/{name}\"\n"
    );
    fs::write(&config, [settings, SECTION, &section].concat()).expect("write the configuration");
    if !data.join("NODE").exists() {
        super::tallyring_ok(&["cluster", "init", "--config", &config]);
    }
    Some(arguments)
}

fn engines() -> Option<(String, String)> {
    let [kafka, s3] = ["TALLYRING_KAFKA", "TALLYRING_S3"].map(|name| env::var(name).ok());
    kafka.zip(s3)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}
