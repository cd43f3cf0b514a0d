//! Changes of a configuration file: settings that a running server takes at once, and those that need a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use tallyring_records::Schema;
use toml::{Table, Value};

use super::{Config, DEFAULT, File};
use crate::error::{CommandError, Result};

/// Sections and settings that a running server takes at once.
const AT_ONCE: [&str; 13] = [
    "strict",
    "caps",
    "namespace",
    "events",
    "ratios",
    "lists",
    "filters",
    "titles",
    "enrich",
    "cloudevents",
    "alerts",
    "receivers",
    "reports",
];

/// Settings among these that are no declarations and decide what counts. A trail of changes has them, too.
const TOLD: [&str; 4] = ["strict", "caps", "enrich", "cloudevents"];

/// The text of each setting that a trail of changes has beside the declarations and that is not the usual one, by names
/// such as `caps.daily`.
pub(super) fn told(settings: &Table) -> BTreeMap<String, String> {
    let all: Table = toml::from_str(DEFAULT).expect("BUG: the embedded configuration is TOML");
    let mut told = BTreeMap::new();
    for name in TOLD {
        let usual = parts(all.get(name));
        for (part, value) in parts(settings.get(name)) {
            let is_empty = value.as_table().is_some_and(Table::is_empty);
            if is_empty || usual.get(part) == Some(&value) {
                continue;
            }
            let name = match part {
                "" => name.to_owned(),
                part => format!("{name}.{part}"),
            };
            told.insert(name, value.to_string());
        }
    }
    told
}

impl Config {
    /// This configuration with all settings of `newer`, the file at `path`, that need no restart. A usage error names a
    /// setting that goes with `newer` and not with what is kept.
    pub(crate) fn with_newer(&self, newer: &Self, path: &Path) -> Result<Self> {
        let mut settings = self.settings.clone();
        for name in AT_ONCE {
            match newer.settings.get(name) {
                Some(value) => drop(settings.insert(name.to_owned(), value.clone())),
                None => drop(settings.remove(name)),
            }
        }
        let wrong = |what: String| {
            CommandError::Usage(format!(
                "{}: {what}; other settings of the file need a restart first",
                path.display()
            ))
        };
        let file: File = settings
            .clone()
            .try_into()
            .map_err(|error| wrong(error.to_string()))?;
        Ok(file.check(settings).map_err(wrong)?.beside(path))
    }

    /// Names of the settings that a running server takes at once and in which the two differ, such as `filters.bots`.
    pub(crate) fn changed_at_once(&self, newer: &Self) -> Vec<String> {
        differences(&self.settings, &newer.settings, |name| {
            AT_ONCE.contains(&name)
        })
    }

    /// Names of the settings that need a restart and in which the two differ, such as `memory.deltas_mib`.
    pub(crate) fn needing_restart(&self, newer: &Self) -> Vec<String> {
        differences(&self.settings, &newer.settings, |name| {
            !AT_ONCE.contains(&name)
        })
    }

    /// Checks that no namespace has a word of the API as its name that the schema in force does not have. A usage error
    /// names the namespace.
    pub(crate) fn check_words_beside(&self, in_force: &Schema) -> Result<()> {
        let checked = self.schema.check_words(Some(in_force));
        checked.map_err(|error| CommandError::Usage(format!("the configuration: {error}")))
    }
}

fn differences(before: &Table, after: &Table, is_asked: impl Fn(&str) -> bool) -> Vec<String> {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let mut found = Vec::new();
    for name in names.into_iter().filter(|name| is_asked(name)) {
        let (before, after) = (before.get(name), after.get(name));
        if before == after {
            continue;
        }
        let (before, after) = (parts(before), parts(after));
        let parts: BTreeSet<&&str> = before.keys().chain(after.keys()).collect();
        let differ = parts
            .into_iter()
            .filter(|part| !part.is_empty() && before.get(**part) != after.get(**part));
        let differ: Vec<String> = differ.map(|part| format!("{name}.{part}")).collect();
        match differ.is_empty() {
            true => found.push(name.clone()),
            false => found.extend(differ),
        }
    }
    found
}

/// The parts of a section by name: settings of a table, or tables of a list by what they are called. A single setting
/// is one part without a name.
fn parts(value: Option<&Value>) -> BTreeMap<&str, &Value> {
    match value {
        None => BTreeMap::new(),
        Some(Value::Table(table)) => {
            let settings = table.iter();
            settings.map(|(name, of)| (name.as_str(), of)).collect()
        }
        Some(Value::Array(tables)) if tables.iter().all(|table| name_of(table).is_some()) => {
            let named = tables.iter();
            named
                .filter_map(|table| Some((name_of(table)?, table)))
                .collect()
        }
        Some(other) => BTreeMap::from([("", other)]),
    }
}

/// The name by which a table of a list is told.
fn name_of(table: &Value) -> Option<&str> {
    table.get("name").or(table.get("type"))?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "[[namespace]]\nname = \"l\"\nsubtotals = [\"c\"]\n[filters.bots]\nfield = \"user\"\n\
        values = [\"x\"]\n[memory]\ncache_mib = 9\n";

    fn config(text: &str) -> Config {
        Config::parse(text, "test").expect("usable")
    }

    #[test]
    fn settings_beside_the_declarations_are_told_where_they_are_not_the_usual_ones() {
        assert!(config(DEFAULT).schema.settings.is_empty());
        assert!(config(BEFORE).schema.settings.is_empty());
        let other = config(&format!(
            "strict = true\n{BEFORE}[enrich]\nfrom_request = true\n[enrich.fill]\nc = \"device\"\n"
        ));
        let settings = other.schema.settings.iter();
        let settings: Vec<String> = settings
            .map(|(name, text)| format!("{name}: {text}"))
            .collect();
        assert_eq!(
            settings,
            [
                "enrich.fill: { c = \"device\" }",
                "enrich.from_request: true",
                "strict: true"
            ]
        );
    }

    #[test]
    fn what_changes_at_once_and_what_needs_a_restart_is_named() {
        let before = config(BEFORE);
        for (from, to, changed, needs_restart) in [
            ("", "", "", ""),
            ("\"x\"]", "\"x\", \"y\"]", "filters.bots", ""),
            ("bots]", "robots]", "filters.bots,filters.robots", ""),
            (
                "[\"c\"]",
                "[\"c\"]\n[[namespace]]\nname = \"u\"",
                "namespace.u",
                "",
            ),
            ("[\"c\"]", "[\"c\", \"r\"]", "namespace.l", ""),
            ("= 9", "= 10", "", "memory.cache_mib"),
            (
                "[[namespace]]",
                "strict = true\nlisten = \"127.0.0.1:1\"\n[[namespace]]",
                "strict",
                "listen",
            ),
        ] {
            let newer = config(&BEFORE.replace(from, to));
            let path = Path::new("tallyring.toml");
            let taken = before.with_newer(&newer, path).expect("usable");
            let found = [
                before.changed_at_once(&taken),
                before.needing_restart(&newer),
            ];
            assert_eq!(found.map(|names| names.join(",")), [changed, needs_restart]);
            assert_eq!(before.needing_restart(&taken), [""; 0], "{to}");
            assert_eq!(newer.changed_at_once(&taken), [""; 0], "{to}");
            assert_eq!(taken.schema, newer.schema);
            assert_eq!(taken.options.cache_bytes, 9 << 20, "{to}");
        }
    }

    #[test]
    fn a_setting_that_goes_only_with_one_that_needs_a_restart_is_refused() {
        let events = "[events.click]\nentities = [\"ad\"]\n";
        let before = config(events);
        let newer = config(&format!(
            "{events}[actions]\nkeep_days = 90\n[caps.c]\naction = \"click\"\nentity = \"ad\"\nwithin = \"60d\"\nlimit = 1"
        ));
        let refused = before.with_newer(&newer, Path::new("t.toml"));
        let refused = refused.err().map(|error| error.to_string());
        let refused = refused.unwrap_or_default();
        assert!(
            refused.starts_with("t.toml: caps.c.within")
                && refused.ends_with("need a restart first"),
            "{refused}"
        );
    }
}
