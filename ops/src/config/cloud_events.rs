//! `[[cloudevents]]`: how CloudEvents become events whose data is no event of ours.

use std::collections::BTreeMap;

use serde::Deserialize;
use tallyring_api::CloudEventRules;
use tallyring_records::Schema;
use toml::{Table, Value};

/// One `[[cloudevents]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CloudEventSection {
    #[serde(rename = "type")]
    kind: String,
    event: String,
    #[serde(default)]
    map: Table,
}

/// Returns the rules, in the order of the file. Fails when a rule cannot be used; the text names it and its setting.
pub(super) fn check(
    sections: Vec<CloudEventSection>,
    schema: &Schema,
) -> Result<CloudEventRules, String> {
    let mut rules = CloudEventRules::default();
    for (number, section) in (1..).zip(sections) {
        let named = |why| format!("cloudevents {number} (type = \"{}\"): {why}", section.kind);
        let map = flat(section.map).map_err(named)?;
        let added = rules.add(section.kind.clone(), section.event, &map, schema);
        added.map_err(named)?;
    }
    Ok(rules)
}

/// `"entities.ad" = "subject"` is one name; without quotes TOML makes a table of it, which means the same.
fn flat(map: Table) -> Result<BTreeMap<String, String>, String> {
    let mut flat = BTreeMap::new();
    for (name, value) in map {
        let within = match value {
            Value::Table(within) => within.into_iter().collect(),
            other => vec![(String::new(), other)],
        };
        for (end, source) in within {
            let target = match end.is_empty() {
                true => name.clone(),
                false => format!("{name}.{end}"),
            };
            let Value::String(source) = source else {
                return Err(format!(
                    "map.{target} must be a text, such as \"subject\" or \"data.quantity\"; got {source}"
                ));
            };
            if flat.insert(target.clone(), source).is_some() {
                return Err(format!("map.{target} is given twice; keep one"));
            }
        }
    }
    Ok(flat)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, DEFAULT};

    #[derive(Deserialize)]
    struct Sections {
        cloudevents: Vec<CloudEventSection>,
    }

    fn rules(text: &str) -> Result<CloudEventRules, String> {
        let schema = Config::parse(DEFAULT, "the default")
            .expect("usable")
            .schema;
        let sections: Sections = toml::from_str(text).map_err(|error| error.to_string())?;
        check(sections.cloudevents, &schema)
    }

    const RULE: &str =
        "[[cloudevents]]\ntype = \"com.example.clicked\"\nevent = \"click\"\n[cloudevents.map]\n";

    #[test]
    fn names_with_and_without_quotes_mean_the_same() {
        for map in [
            "\"entities.ad\" = \"subject\"\n\"by.country\" = \"data.geo.country\"\nn = \"=2\"",
            "entities.ad = \"subject\"\nby.country = \"data.geo.country\"\nn = \"=2\"",
        ] {
            let rules = rules(&format!("{RULE}{map}")).expect("usable");
            let rule = rules.iter().next().expect("one");
            let map: Vec<String> = rule
                .map()
                .map(|(to, from)| format!("{to} = {from}"))
                .collect();
            assert_eq!(
                map,
                [
                    "entities.ad = subject",
                    "by.country = data.geo.country",
                    "n = =2"
                ]
            );
        }
    }

    #[test]
    fn what_no_event_could_be_counted_with_is_named() {
        for (map, named) in [
            ("", "map must have at least one entity of click, ad,"),
            ("user = \"subject\"", "at least one entity"),
            ("\"entities.pin\" = \"subject\"", "got `pin`"),
            ("\"by.colour\" = \"data.c\"", "at least one entity"),
            (
                "\"entities.ad\" = \"subject\"\n\"by.colour\" = \"data.c\"",
                "got `colour`",
            ),
            (
                "\"entities.ad\" = \"subject\"\nid = \"data.id\"",
                "source and id together",
            ),
            (
                "\"entities.ad\" = \"subject\"\ncolour = \"data.c\"",
                "got `colour`",
            ),
            (
                "\"entities.ad\" = \"Subject\"",
                "an attribute such as subject",
            ),
            ("\"entities.ad\" = \"data..x\"", "a path such as"),
            ("\"entities.ad\" = \"=\"", "=TEXT for a constant"),
            (
                "\"entities.ad\" = \"subject\"\nn = \"=0\"",
                "n must be a whole number",
            ),
            ("\"entities.ad\" = \"subject\"\nat = \"=soon\"", "RFC 3339"),
            (
                "\"entities.ad\" = \"subject\"\nn = 3",
                "map.n must be a text",
            ),
            (
                "\"entities.ad\" = \"subject\"\nentities.ad = \"type\"",
                "given twice",
            ),
        ] {
            let error = rules(&format!("{RULE}{map}")).err().unwrap_or_default();
            let is_named = error.contains(named) && error.contains("com.example.clicked");
            assert!(is_named, "{map}: {error}");
        }
        let of = |kind: &str, event: &str| {
            format!(
                "[[cloudevents]]\ntype = \"{kind}\"\nevent = \"{event}\"\nmap = {{ entities.ad = \"subject\" }}\n"
            )
        };
        for (text, named) in [
            (
                of("a", "klick"),
                "event must be one of click, impression; got `klick`",
            ),
            (of("", "click"), "type must be a text"),
            (
                [of("a", "click"), of("a", "click")].concat(),
                "once; got `a`",
            ),
        ] {
            let error = rules(&text).err().unwrap_or_default();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
