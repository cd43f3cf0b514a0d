//! Things that a test needs beyond the toolchain: a program, a right, or a file of real data.
//!
//! A test that cannot run says so by name. `.ci/run` installs the programs and sets `TALLYRING_REQUIRE`, with which
//! such a test fails.

use std::path::PathBuf;

use crate::server::workspace;

/// Says that a test is skipped, and why: `skipped: <test>: <why>`.
///
/// # Panics
/// Where `TALLYRING_REQUIRE` is set.
pub fn skipped(test: &str, why: &str) {
    let is_required = std::env::var_os("TALLYRING_REQUIRE").is_some();
    assert!(
        !is_required,
        "{test} cannot run, and TALLYRING_REQUIRE is set: {why}"
    );
    say(&format!("skipped: {test}: {why}"));
}

/// The path of a file of real data, which stands beside the checkout; none where it is not there, which the test's
/// output says.
///
/// # Panics
/// Where `TALLYRING_REQUIRE` is set and the folder lacks this file. A checkout without the whole folder is no failure:
/// no package has the data, so the gate cannot install it.
pub fn data_file(name: &str) -> Option<PathBuf> {
    let folder = workspace().join("../shared/data");
    let path = folder.join(name);
    if path.exists() {
        return Some(path);
    }
    let why = format!("../shared/data/{name} is not there");
    match folder.exists() {
        true => skipped("a test of real data", &why),
        false => say(&format!("skipped: a test of real data: {why}")),
    }
    None
}

#[allow(
    clippy::print_stderr,
    reason = "the test harness shows it with `--nocapture`; a skipped test must say so"
)]
pub(crate) fn say(text: &str) {
    eprintln!("{text}");
}
