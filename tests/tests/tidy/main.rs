//! The source keeps its shape: who may depend on whom, sizes, module docs, and nothing left over.
//!
//! Every complaint says `file:line` and what to do. The checks are plain functions over text, and
//! a module at the end of each file proves that each still finds what it looks for. Words that are looked for
//! are put together with `concat!`, so that this file passes too.

mod prose;
mod versions;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Each crate's folder and the folders it may use (DESIGN §2); dependencies point one way.
const MAY_USE: [(&str, &[&str]); 9] = [
    ("records", &[]),
    ("archive", &["records"]),
    ("realtime", &["records", "archive"]),
    ("cluster", &["records", "archive", "realtime"]),
    ("rebuild", &["records", "archive", "realtime"]),
    ("api", &["records", "archive", "realtime"]),
    ("bench", &["archive", "realtime"]),
    (
        "ops",
        &[
            "records", "archive", "realtime", "cluster", "rebuild", "api", "bench",
        ],
    ),
    (
        "tests",
        &[
            "records", "archive", "realtime", "cluster", "rebuild", "api", "bench", "ops",
        ],
    ),
];

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;

/// Directories that only this machine has.
const MACHINE_PATHS: [&str; 2] = [concat!("/wo", "rk/"), concat!("/ro", "ot/")];

const REGISTRY_HOSTS: [&str; 7] = [
    concat!("crates", ".io"),
    concat!("pypi", ".org"),
    concat!("pythonhosted", ".org"),
    concat!("npmjs", ".org"),
    concat!("npmjs", ".com"),
    concat!("rubygems", ".org"),
    concat!("proxy.golang", ".org"),
];

const UNFINISHED_MACROS: [&str; 3] = [
    concat!("dbg", "!("),
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
];

const UNFINISHED_WORDS: [&str; 3] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];

/// A file of the project: its path from the root, with `/`, and its text.
struct Source {
    path: String,
    text: String,
}

fn source(path: &str, text: &str) -> Source {
    Source {
        path: path.into(),
        text: text.into(),
    }
}

fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("BUG: tests/ has a parent").to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}:1: {error}"))
}

/// Every file below `directory` that is no build product.
fn walk(directory: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(directory).expect("a readable directory");
    for entry in entries {
        let path = entry.expect("a readable entry").path();
        let name = path.file_name().and_then(|name| name.to_str());
        if path.is_dir() && !matches!(name, Some("target" | ".git")) {
            walk(&path, found);
        } else if path.is_file() {
            found.push(path);
        }
    }
}

/// Paths of all tracked files; of all files where there is no git.
fn tracked() -> Vec<String> {
    let listed = Command::new("git")
        .args(["ls-files", "-z"])
        .current_dir(root())
        .output();
    if let Ok(listed) = listed
        && listed.status.success()
        && !listed.stdout.is_empty()
    {
        let names = String::from_utf8_lossy(&listed.stdout);
        return names
            .split_terminator('\0')
            .map(|name| name.to_owned())
            .filter(|name| root().join(name).is_file())
            .collect();
    }
    let mut found = Vec::new();
    walk(&root(), &mut found);
    found.iter().map(|path| relative(path)).collect()
}

fn relative(path: &Path) -> String {
    let path = path.strip_prefix(root()).expect("BUG: below the root");
    path.to_string_lossy().replace('\\', "/")
}

/// All Rust files of the crates, tracked or not yet.
fn rust_sources() -> Vec<Source> {
    let mut found = Vec::new();
    for (folder, _) in MAY_USE {
        walk(&root().join(folder), &mut found);
    }
    let mut sources: Vec<Source> = found
        .iter()
        .map(|path| relative(path))
        .filter(|path| path.ends_with(".rs"))
        .map(|path| Source {
            text: read(&path),
            path,
        })
        .collect();
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(sources.len() > 20, "{}: too few files", root().display());
    sources
}

/// Fails with all complaints, one a line.
fn check(complaints: impl IntoIterator<Item = String>) {
    let complaints: Vec<String> = complaints.into_iter().collect();
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines())
}

// (a) Dependencies point one way.

/// The folder of one of our crates, if `line` of a manifest names it.
fn our_folder(line: &str) -> Option<&str> {
    let name = line.split([' ', '.', '=']).next()?.trim_matches('"');
    match name.strip_prefix("tallyring") {
        Some("") => Some("ops"),
        Some(rest) => rest.strip_prefix('-'),
        None => None,
    }
}

fn wrong_dependencies(path: &str, manifest: &str, may_use: &[&str]) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut is_dependencies = false;
    for (number, line) in numbered(manifest) {
        let mut named = line;
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            let is_dev = section.contains("dev-dependencies");
            is_dependencies = section.ends_with("dependencies") && !is_dev;
            match section.split_once("dependencies.") {
                Some((_, name)) if !is_dev => named = name,
                _ => continue,
            }
        } else if !is_dependencies {
            continue;
        }
        if let Some(folder) = our_folder(named)
            && !may_use.contains(&folder)
        {
            complaints.push(format!(
                "{path}:{number}: this crate may not use {folder}/ (it may use: {}); move the code to \
                 where both can see it",
                may_use.join(", ")
            ));
        }
    }
    complaints
}

#[test]
fn dependencies_point_one_way() {
    let members = read("Cargo.toml");
    let members = members.split("members = [").nth(1).expect("members");
    let members = members.split(']').next().expect("members");
    for member in members.split(',') {
        let folder = member.trim().trim_matches('"');
        let known = MAY_USE.iter().any(|(known, _)| *known == folder);
        assert!(
            known,
            "Cargo.toml:1: {folder} has no row in MAY_USE: add it"
        );
    }
    check(MAY_USE.iter().flat_map(|(folder, may_use)| {
        let path = format!("{folder}/Cargo.toml");
        wrong_dependencies(&path, &read(&path), may_use)
    }));
}

// (b) Every file says what it is.

fn missing_doc(source: &Source) -> Option<String> {
    (!source.text.starts_with("//! ")).then(|| {
        format!(
            "{}:1: begin the file with a `//!` line that says what lives here",
            source.path
        )
    })
}

#[test]
fn every_file_begins_with_its_doc() {
    check(rust_sources().iter().filter_map(missing_doc));
}

// (c) Files are one noun, functions fit a screen.

/// Lines before the inline test module.
fn lines_without_tests(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let tests = lines.windows(2).position(|pair| {
        pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{')
    });
    tests.unwrap_or(lines.len())
}

fn long_file(source: &Source) -> Option<String> {
    let lines = lines_without_tests(&source.text);
    // A test module may stand in a file of its own.
    let is_test_module = source.path.contains("/src/") && source.path.ends_with("/tests.rs");
    (lines > FILE_LINES_MAX && !is_test_module).then(|| {
        format!(
            "{}:{lines}: {lines} lines, at most {FILE_LINES_MAX} without tests; divide the file",
            source.path
        )
    })
}

fn is_function_start(line: &str) -> bool {
    let mut words = line.split_whitespace();
    words.any(|word| word == "fn")
        && line
            .split_whitespace()
            .take_while(|word| *word != "fn")
            .all(|word| {
                word.starts_with("pub")
                    || matches!(word, "const" | "async" | "unsafe" | "extern" | "\"C\"")
                    || word.ends_with(')')
            })
}

/// Counts by the closing brace that rustfmt puts under the beginning.
fn long_functions(source: &Source) -> Vec<String> {
    let lines: Vec<&str> = source.text.lines().collect();
    let mut complaints = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        if !is_function_start(line) {
            continue;
        }
        let rest = &lines[start..];
        let head = rest.iter().position(|line| line.ends_with(['{', '}', ';']));
        let Some(head) = head.filter(|&head| rest[head].ends_with('{')) else {
            continue;
        };
        let indent = &line[..line.len() - line.trim_start().len()];
        let end = format!("{indent}}}");
        let length = rest[head..].iter().position(|line| *line == end);
        let length = head + 1 + length.unwrap_or(0);
        if length > FUNCTION_LINES_MAX {
            complaints.push(format!(
                "{}:{}: a function of {length} lines, at most {FUNCTION_LINES_MAX}; divide it",
                source.path,
                start + 1
            ));
        }
    }
    complaints
}

#[test]
fn files_are_one_noun_and_functions_fit_a_screen() {
    let sources = rust_sources();
    check(sources.iter().filter_map(long_file));
    check(sources.iter().flat_map(long_functions));
}

// (d) Nothing is left over.

/// A `//` line that is code.
fn is_commented_out(line: &str) -> bool {
    let Some(rest) = line.trim().strip_prefix("// ") else {
        return false;
    };
    let starts = [
        "let ", "fn ", "pub ", "use ", "impl ", "struct ", "enum ", "for ", "if ", "while ",
        "match ", "return ", "self.", "assert", "#[", "}",
    ];
    let is_statement =
        starts.iter().any(|start| rest.starts_with(start)) && rest.ends_with([';', '{', '}', ']']);
    is_statement
        || rest.starts_with("let ") && rest.contains(" = ")
        || rest.starts_with("fn ") && rest.contains('(')
}

fn has_word(line: &str, word: &str) -> bool {
    line.split(|character: char| !character.is_ascii_alphanumeric())
        .any(|found| found == word)
}

/// True where an `allow` that begins in line `at` gives no reason.
fn lacks_reason(lines: &[&str], at: usize) -> bool {
    let begins = concat!("#[al", "low(");
    let begins_file = concat!("#![al", "low(");
    let line = lines[at].trim_start();
    if !line.starts_with(begins) && !line.starts_with(begins_file) {
        return false;
    }
    let end = lines[at..]
        .iter()
        .position(|line| line.trim_end().ends_with(")]"));
    let attribute = &lines[at..=at + end.unwrap_or(0)];
    let is_explained = at > 0 && lines[at - 1].trim_start().starts_with("// ");
    !is_explained && !attribute.iter().any(|line| line.contains("reason = "))
}

fn leftovers(source: &Source) -> Vec<String> {
    let lines: Vec<&str> = source.text.lines().collect();
    let may_print = ["ops/", "tests/"]
        .iter()
        .any(|path| source.path.starts_with(path))
        || source.path.contains("/benches/");
    let mut complaints = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let mut say = |what: &str| complaints.push(format!("{}:{}: {what}", source.path, at + 1));
        for name in UNFINISHED_MACROS {
            if line.contains(name) {
                say(&format!("remove {name}…)"));
            }
        }
        if line.contains(concat!("print", "ln!(")) && !may_print {
            say("a library does not print: return it, or use tracing");
        }
        if is_commented_out(line) {
            say("remove the commented-out code; git remembers it");
        }
        if lacks_reason(&lines, at) {
            say("give the reason: `reason = \"…\"` or a comment on the line before");
        }
        if line.trim_start().starts_with(concat!("#[ign", "ore")) {
            say("a test that does not run is no test: fix it or remove it");
        }
    }
    complaints
}

fn unfinished(source: &Source) -> Vec<String> {
    let mut complaints = Vec::new();
    for (number, line) in numbered(&source.text) {
        for word in UNFINISHED_WORDS {
            if has_word(line, word) {
                let path = &source.path;
                complaints.push(format!(
                    "{path}:{number}: {word}: do it, or file it elsewhere"
                ));
            }
        }
    }
    complaints
}

#[test]
fn nothing_is_left_over() {
    let sources = rust_sources();
    check(sources.iter().flat_map(leftovers));
    check(sources.iter().flat_map(unfinished));
}

// (e) Nothing of this machine.

fn of_this_machine(source: &Source) -> Vec<String> {
    let mut complaints = Vec::new();
    for (number, line) in numbered(&source.text) {
        let mut say = |what: String| complaints.push(format!("{}:{number}: {what}", source.path));
        for path in MACHINE_PATHS {
            let begins = |at: usize| {
                let before = line[..at].chars().next_back();
                before.is_none_or(|before| !before.is_alphanumeric() && !"._-~}".contains(before))
            };
            if line.match_indices(path).any(|(at, _)| begins(at)) {
                say(format!(
                    "{path} exists on one machine only: name a relative path"
                ));
            }
        }
        for host in REGISTRY_HOSTS {
            if line.contains(host) {
                say(format!(
                    "do not name {host}: the registry is the builder's choice"
                ));
            }
        }
    }
    complaints
}

#[test]
fn no_tracked_text_names_this_machine_or_a_registry() {
    let tracked = tracked();
    assert!(tracked.iter().any(|path| path == "Cargo.toml"));
    let texts = tracked.iter().filter(|path| !path.ends_with("Cargo.lock"));
    check(texts.flat_map(|path| {
        let bytes = fs::read(root().join(path)).unwrap_or_else(|e| panic!("{path}:1: {e}"));
        let text = String::from_utf8(bytes)
            .ok()
            .filter(|text| !text.contains('\0'));
        text.map_or(Vec::new(), |text| {
            of_this_machine(&Source {
                path: path.clone(),
                text,
            })
        })
    }));
}

// (f) The map is true.

/// Folders that `ARCHITECTURE.md` leaves out, and files it names in backticks that are not there.
fn untrue_map(map: &str, folders: &[&str], files: &[String]) -> Vec<String> {
    let mut complaints = Vec::new();
    for folder in folders {
        if !map.contains(&format!("`{folder}/`")) {
            complaints.push(format!("ARCHITECTURE.md:1: say what lives in `{folder}/`"));
        }
    }
    for (number, line) in numbered(map) {
        for name in line
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|name| name.ends_with(".rs"))
        {
            let behind = format!("/{name}");
            if !files
                .iter()
                .any(|file| file == name || file.ends_with(&behind))
            {
                complaints.push(format!(
                    "ARCHITECTURE.md:{number}: there is no `{name}`; name the file that took its place"
                ));
            }
        }
    }
    complaints
}

#[test]
fn the_map_names_every_crate_and_only_files_that_exist() {
    let files: Vec<String> = rust_sources()
        .into_iter()
        .map(|source| source.path)
        .collect();
    let folders = MAY_USE.map(|(folder, _)| folder);
    check(untrue_map(&read("ARCHITECTURE.md"), &folders, &files));
}

#[cfg(test)]
mod each_check_finds_what_it_looks_for {
    use super::*;

    #[test]
    fn an_edge_that_the_design_forbids_is_found() {
        for manifest in [
            "[dependencies]\nserde = \"1\"\ntallyring-api.workspace = true\n",
            "[dependencies]\ntallyring-api = { path = \"../api\" }\n",
            "[dependencies.tallyring-api]\npath = \"../api\"\n",
            "[target.'cfg(unix)'.dependencies]\ntallyring-api.workspace = true\n",
            "[build-dependencies]\ntallyring = { path = \"../ops\" }\n",
        ] {
            assert_eq!(
                wrong_dependencies("x", manifest, &["records"]).len(),
                1,
                "{manifest}"
            );
        }
        let fine = "[dependencies]\ntallyring-api.workspace = true\n[dev-dependencies]\ntallyring-ops = \"1\"\n";
        assert!(wrong_dependencies("x", fine, &["api"]).is_empty());
    }

    #[test]
    fn files_and_functions_that_are_too_long_are_found() {
        let long = "x;\n".repeat(FILE_LINES_MAX + 1);
        assert!(long_file(&source("api/src/a.rs", &long)).is_some());
        let tests = format!("x;\n#[cfg(test)]\nmod tests {{\n{long}}}\n");
        assert!(long_file(&source("api/src/a.rs", &tests)).is_none());
        let early = format!("#[cfg(test)]\nmod tests;\n{long}");
        assert!(long_file(&source("api/src/a.rs", &early)).is_some());
        for head in [
            "    fn a() {",
            "    pub(crate) async fn a(\n        b: u8,\n    ) -> u8 {",
        ] {
            for (lines, is_long) in [(FUNCTION_LINES_MAX - 4, false), (FUNCTION_LINES_MAX, true)] {
                let text = format!("{head}\n{}    }}\n", "        x;\n".repeat(lines));
                let found = long_functions(&source("a.rs", &text));
                assert_eq!(!found.is_empty(), is_long, "{text}");
            }
        }
        assert!(missing_doc(&source("a.rs", "use x;")).is_some());
    }

    #[test]
    fn leftovers_are_found() {
        for line in [
            concat!("    dbg", "!(x);"),
            concat!("    todo", "!()"),
            concat!("    print", "ln!(\"x\");"),
            concat!("    eprint", "ln!(\"x\");"),
            concat!("    /", "/ let x = 5;"),
            concat!("    /", "/ if x {"),
            concat!("#[al", "low(dead_code)]"),
            concat!("#[ign", "ore = \"slow\"]"),
        ] {
            assert_eq!(leftovers(&source("api/src/a.rs", line)).len(), 1, "{line}");
        }
        for text in [
            "// let us say why.",
            "// if it is there already, it is the same",
            concat!("// Why.\n#[al", "low(dead_code)]"),
            concat!("#![al", "low(\n    dead_code,\n    reason = \"why\"\n)]"),
        ] {
            assert!(
                leftovers(&source("api/src/a.rs", text)).is_empty(),
                "{text}"
            );
        }
        let words = format!(
            "// {}: x\n// {}\n",
            UNFINISHED_WORDS[0], UNFINISHED_WORDS[1]
        );
        assert_eq!(unfinished(&source("a.rs", &words)).len(), 2);
    }

    #[test]
    fn machines_registries_and_false_maps_are_found() {
        let text = format!(
            "see {}x\nhttps://{}/\n",
            MACHINE_PATHS[0], REGISTRY_HOSTS[0]
        );
        assert_eq!(of_this_machine(&source("a.md", &text)).len(), 2);
        let fine = format!("src{0}x {{base}}{0}x", MACHINE_PATHS[0]);
        assert!(of_this_machine(&source("a.md", &fine)).is_empty());
        let files = ["api/src/lib.rs".to_owned()];
        let map = "`api/` has `lib.rs` and `api/src/lib.rs`, not `old.rs`";
        assert_eq!(untrue_map(map, &["api", "ops"], &files).len(), 2);
    }
}
