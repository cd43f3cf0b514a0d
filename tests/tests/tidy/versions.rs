//! The version of all crates rises with the formats of what they write: nodes of a cluster tell each other's build by
//! it.

use super::{check, read};

/// The newest formats that builds of a version write, as a line of `Cargo.toml` says.
struct Written {
    version: [u32; 3],
    manifest: u32,
    record: u32,
}

impl Written {
    /// Reads a line such as `# 0.2.0: manifest 39, record 39`; none in any other one.
    fn of_line(line: &str) -> Option<Self> {
        let (version, rest) = line.strip_prefix("# ")?.split_once(": manifest ")?;
        let (manifest, record) = rest.split_once(", record ")?;
        Some(Self {
            version: parts(version)?,
            manifest: manifest.parse().ok()?,
            record: record.parse().ok()?,
        })
    }
}

fn parts(version: &str) -> Option<[u32; 3]> {
    let parts: Option<Vec<u32>> = version.split('.').map(|part| part.parse().ok()).collect();
    parts?.try_into().ok()
}

/// The highest number behind the text `before` at the begin of a line and before the text `after`; 0 where there is
/// none.
fn highest<'t>(lines: impl Iterator<Item = &'t str>, before: &str, after: &str) -> u32 {
    let numbers = lines.filter_map(|line| {
        let (number, _) = line.strip_prefix(before)?.split_once(after)?;
        number.parse().ok()
    });
    numbers.max().unwrap_or(0)
}

/// Complaints about the version and the lines above it in the text of `Cargo.toml`, by the sources of manifests and of
/// records.
fn complaints(cargo: &str, manifests: &str, records: &str) -> Vec<String> {
    let lines: Vec<Written> = cargo.lines().filter_map(Written::of_line).collect();
    let version = cargo.lines().find_map(|line| {
        let version = line.strip_prefix("version = \"")?.strip_suffix('"')?;
        parts(version)
    });
    let newest = highest(manifests.lines(), "    (", ", |manifest|");
    let manifest = newest.max(highest(manifests.lines(), "const FORMAT: u32 = ", ";"));
    let kinds = records
        .lines()
        .filter(|line| line.starts_with("const KIND_"));
    let kinds = kinds.filter_map(|line| line.split_once(": u8 = "));
    let record = highest(kinds.map(|(_, number)| number), "", ";");
    let mut complaints = Vec::new();
    if !lines.is_sorted_by(|one, next| one.version < next.version) {
        complaints
            .push("Cargo.toml: each line of a version has a higher one than that before".into());
    }
    match lines.last() {
        Some(last) if (last.manifest, last.record) == (manifest, record) => {
            if Some(last.version) > version {
                complaints.push("Cargo.toml: the version is below that of its last line".into());
            }
        }
        _ => complaints.push(format!(
            "Cargo.toml: the last line of a version is not of manifests of format {manifest} and records of kind \
             {record}, the newest: raise the version, and add a line for it"
        )),
    }
    complaints
}

#[test]
fn a_new_format_comes_with_a_new_version() {
    let manifests = read("archive/src/manifest/format.rs");
    let records = read("records/src/log.rs");
    check(complaints(&read("Cargo.toml"), &manifests, &records));
}

#[test]
fn a_format_without_a_version_is_found() {
    let manifests = "const FORMAT: u32 = 3;\n    (7, |manifest| {\n    (5, |manifest| x),\n";
    let records = "const KIND_A: u8 = 4;\nconst KIND_B: u8 = 9;\nconst OTHER: u8 = 99;\n";
    let first = "# 0.1.0: manifest 6, record 9\n";
    let fine = format!("{first}# 0.2.0: manifest 7, record 9\nversion = \"0.2.1\"\n");
    assert_eq!(complaints(&fine, manifests, records), [""; 0]);
    for (manifests, records) in [
        ("    (8, |manifest| {\n", records),
        ("const FORMAT: u32 = 8;\n", records),
        (manifests, "const KIND_A: u8 = 10;\n"),
        ("", records),
        (manifests, ""),
    ] {
        let found = complaints(&fine, manifests, records);
        assert_eq!(found.len(), 1, "{found:?}");
    }
    for wrong in [
        "version = \"0.2.0\"\n".to_owned(),
        format!("{first}version = \"0.1.0\"\n"),
        "# 0.2.0: manifest 7, record 9\nversion = \"0.1.9\"\n".to_owned(),
        format!("{first}# 0.1.0: manifest 7, record 9\nversion = \"0.1.0\"\n"),
    ] {
        let found = complaints(&wrong, manifests, records);
        assert_eq!(found.len(), 1, "{wrong}: {found:?}");
    }
}
