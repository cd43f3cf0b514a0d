//! Prose reads at full speed: how sentences begin, how long lines are, and what the pages name.

use std::path::Path;

use super::{Source, check, read, root, rust_sources, tracked};

/// Beginnings of sentences that hide their subject.
const HIDDEN_SUBJECTS: [&str; 9] = [
    "Who",
    "Whoever",
    "What",
    "Whatever",
    "Those of",
    "Those that",
    "The same",
    "That of",
    "Of",
];

const COLUMNS_MAX: usize = 120;

/// Characters that may stand before the first word of a sentence.
const OPENING: [char; 6] = ['*', '-', '"', '(', '`', ' '];

/// One line of a source, as a reader sees it.
enum Line<'s> {
    /// Sentences, which may go on from the line before and into the line after.
    Prose(&'s str),
    /// A row of a table: sentences within cells, and no way to break the line.
    Row(&'s str),
    /// Code, a heading or a picture.
    Other,
}

/// The prose of a Markdown page, or of the comments of a Rust file, line by line.
fn prose(source: &Source) -> Vec<Line<'_>> {
    let is_page = source.path.ends_with(".md");
    let mut is_fenced = false;
    let lines = source.text.lines().map(|line| {
        let text = if is_page { Some(line) } else { comment(line) };
        let text = text.unwrap_or_default().trim();
        if text.starts_with("```") {
            is_fenced = !is_fenced;
        }
        match text {
            _ if is_fenced => Line::Other,
            "" | "```" => Line::Other,
            _ if text.starts_with('#') || text.starts_with("![") => Line::Other,
            _ if text.starts_with('|') => Line::Row(text),
            _ => Line::Prose(text),
        }
    });
    lines.collect()
}

/// The text of a line that is a comment as a whole.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.strip_prefix(['/', '!']).unwrap_or(text))
}

fn hidden_subjects(source: &Source) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut is_open = false;
    for (number, line) in (1..).zip(prose(source)) {
        let (texts, goes_on): (Vec<&str>, bool) = match line {
            Line::Prose(text) => (vec![text], is_open && !is_item(text)),
            Line::Row(text) => (text.split('|').collect(), false),
            Line::Other => (Vec::new(), false),
        };
        for (index, sentence) in texts.iter().flat_map(|text| sentences(text)).enumerate() {
            let start = sentence.trim_start_matches(|c: char| OPENING.contains(&c));
            let is_hidden = |beginning: &&&str| {
                let rest = start.strip_prefix(**beginning);
                rest.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
            };
            if (index > 0 || !goes_on)
                && let Some(beginning) = HIDDEN_SUBJECTS.iter().find(is_hidden)
            {
                complaints.push(format!(
                    "{}:{number}: a sentence begins with `{}`; name its subject",
                    source.path, beginning
                ));
            }
        }
        is_open = matches!(line, Line::Prose(text) if !ends_sentence(text));
    }
    complaints
}

/// True for a line that begins an item of a list.
fn is_item(text: &str) -> bool {
    let number = text.trim_start_matches(|c: char| c.is_ascii_digit());
    text.starts_with("* ") || text.starts_with("- ") || number.starts_with(". ") && number != text
}

/// The parts of a text that begin where a sentence may begin; the first part may go on from the line before.
fn sentences(text: &str) -> Vec<&str> {
    let mut starts = vec![0];
    for (at, _) in text.match_indices(' ') {
        if ends_sentence(&text[..at]) {
            starts.push(at + 1);
        }
    }
    starts.push(text.len());
    starts
        .windows(2)
        .map(|ends| &text[ends[0]..ends[1]])
        .collect()
}

fn ends_sentence(text: &str) -> bool {
    text.trim_end_matches(['*', '"', ')', '`'])
        .ends_with(['.', '!', '?'])
}

fn long_lines(source: &Source) -> Vec<String> {
    let lines = source.text.lines().zip(prose(source));
    let long = (1..).zip(lines).filter_map(|(number, (line, kind))| {
        let columns = line.chars().count();
        let breaks = matches!(kind, Line::Prose(text) if text.contains(' '));
        (columns > COLUMNS_MAX && breaks).then(|| {
            format!(
                "{}:{number}: {columns} columns of prose, at most {COLUMNS_MAX}; break the line",
                source.path
            )
        })
    });
    long.collect()
}

fn pages() -> Vec<Source> {
    let paths = tracked().into_iter().filter(|path| path.ends_with(".md"));
    let pages = paths.map(|path| Source {
        text: read(&path),
        path,
    });
    pages.collect()
}

#[test]
fn sentences_name_their_subjects_and_lines_fit_a_screen() {
    let sources: Vec<Source> = rust_sources().into_iter().chain(pages()).collect();
    let complaints = |source| [hidden_subjects(source), long_lines(source)].concat();
    check(sources.iter().flat_map(complaints));
}

#[test]
fn the_readme_is_read_in_five_minutes() {
    let words = read("README.md").split_whitespace().count();
    assert!(
        (800..=1_000).contains(&words),
        "README.md:1: {words} words, 800 to 1,000 wanted; details go to docs/"
    );
}

/// Links of a page to files that are not there.
fn broken_links(page: &Source, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let folder = Path::new(&page.path).parent().unwrap_or(Path::new(""));
    let mut complaints = Vec::new();
    for (number, line) in (1..).zip(page.text.lines()) {
        let targets = line
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.contains(':')) {
            let file = target.split('#').next().unwrap_or(target);
            if !exists(&folder.join(file)) {
                let path = &page.path;
                complaints.push(format!(
                    "{path}:{number}: the link to {target} leads nowhere"
                ));
            }
        }
    }
    complaints
}

/// Tests that a page names, in four words or more, and that no source has.
fn unknown_tests(page: &Source, is_test: impl Fn(&str) -> bool) -> Vec<String> {
    let mut complaints = Vec::new();
    for (number, line) in (1..).zip(page.text.lines()) {
        let words =
            line.split(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'));
        for name in words.filter(|word| word.matches('_').count() >= 3 && !is_test(word)) {
            complaints.push(format!(
                "{}:{number}: there is no test `{name}`; name the test that took its place",
                page.path
            ));
        }
    }
    complaints
}

#[test]
fn pages_name_only_files_and_tests_that_exist() {
    let pages = pages();
    check(
        pages
            .iter()
            .flat_map(|page| broken_links(page, |file| root().join(file).exists())),
    );
    let sources = rust_sources();
    let is_test = |name: &str| {
        let head = format!("fn {name}(");
        sources.iter().any(|source| source.text.contains(&head))
    };
    let faults = pages.iter().filter(|page| page.path == "docs/faults.md");
    check(faults.flat_map(|page| unknown_tests(page, is_test)));
}

#[cfg(test)]
mod each_check_finds_what_it_looks_for {
    use super::super::source;
    use super::*;

    #[test]
    fn sentences_without_a_named_subject_are_found() {
        for text in [
            "What is counted.",
            "A text. Who reads it?",
            "A text.\nOf a batch the first.",
            "A text:\n* **Those of others.**",
            "1. Whoever waits.",
            "| a | The same again. |",
            "\"That of another.\"",
        ] {
            assert_eq!(hidden_subjects(&source("a.md", text)).len(), 1, "{text}");
        }
        for text in [
            "# What is promised",
            "A text says\nWhat it says",
            "```\nWhat x = 1\n```",
            "It says what is. Whose it is, nobody knows.",
        ] {
            assert!(hidden_subjects(&source("a.md", text)).is_empty(), "{text}");
        }
        let code = "//! What lives here.\n/// # Errors\n/// Of two, one.\nlet x = \"What is it\"; // Who\n    // The same.\n";
        assert_eq!(hidden_subjects(&source("a.rs", code)).len(), 3);
    }

    #[test]
    fn long_lines_of_prose_are_found() {
        let long = "word ".repeat(25);
        for (path, text, count) in [
            ("a.md", long.clone(), 1),
            ("a.md", format!("| {long} |"), 0),
            ("a.md", format!("```\n{long}\n```"), 0),
            ("a.md", format!("![{long}](a.png)"), 0),
            ("a.md", "x".repeat(COLUMNS_MAX + 1), 0),
            ("a.rs", format!("/// {long}"), 1),
            ("a.rs", format!("let x = \"{long}\";"), 0),
        ] {
            assert_eq!(long_lines(&source(path, &text)).len(), count, "{text}");
        }
    }

    #[test]
    fn names_of_files_and_tests_that_are_gone_are_found() {
        let page = source(
            "docs/a.md",
            "[a](b.md#c), [d](gone.md), [e](https://f.example/)",
        );
        let broken = broken_links(&page, |file| file == Path::new("docs/b.md"));
        assert_eq!(broken.len(), 1, "{broken:?}");
        let page = source(
            "docs/a.md",
            "| `e2e`: a_test_that_is_here, a_test_that_is_gone; full_disk |",
        );
        let unknown = unknown_tests(&page, |name| name == "a_test_that_is_here");
        assert_eq!(unknown.len(), 1, "{unknown:?}");
    }
}
