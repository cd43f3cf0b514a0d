//! `[[namespace]]`, `[events.<type>]`, `[ratios.<name>]`, `[filters.<name>]` and `[titles]`: the schema of the store.
//!
//! A file that declares any of these sections replaces the defaults of all of them.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use tallyring_records::{
    EventType, Filter, Grain, LATENESS_SECONDS_DEFAULT, Namespace, Ratio, Schema,
};

/// `[events.<type>]`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventSection {
    entities: Vec<String>,
    #[serde(default)]
    subtotals: Vec<String>,
    #[serde(default = "yes")]
    minutes: bool,
    #[serde(default = "yes")]
    uniques: bool,
    #[serde(default = "lateness")]
    lateness_seconds: u32,
    actions: Option<bool>,
}

/// `[ratios.<name>]`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RatioSection {
    numerator: String,
    denominator: String,
}

/// `[filters.<name>]`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FilterSection {
    #[serde(default)]
    events: Vec<String>,
    field: String,
    values: BTreeSet<String>,
}

/// Types whose actions are kept unless the configuration says otherwise.
const ACTIONS_OF: [&str; 2] = ["click", "impression"];

fn yes() -> bool {
    true
}

fn lateness() -> u32 {
    LATENESS_SECONDS_DEFAULT
}

/// Returns the declared schema; each type of event adds a namespace for every entity. Fails when a name cannot be used;
/// the text names the first one.
pub(super) fn check(
    namespaces: Vec<Namespace>,
    events: BTreeMap<String, EventSection>,
    ratios: BTreeMap<String, RatioSection>,
    filters: BTreeMap<String, FilterSection>,
    titles: BTreeMap<String, String>,
) -> Result<Schema, String> {
    let mut schema = Schema {
        namespaces,
        titles,
        ..Schema::default()
    };
    for (name, section) in events {
        let event = EventType {
            actions: section.actions.unwrap_or(ACTIONS_OF.contains(&&*name)),
            name,
            entities: section.entities,
            lateness_seconds: section.lateness_seconds,
        };
        for entity in &event.entities {
            schema.namespaces.push(Namespace {
                name: event.namespace_of(entity),
                title: title(entity, &event.name),
                grain: Grain::Hour,
                subtotals: section.subtotals.clone(),
                minutes: section.minutes,
                uniques: section.uniques,
            });
        }
        schema.events.push(event);
    }
    for (name, section) in ratios {
        schema.ratios.push(Ratio {
            name,
            numerator: section.numerator,
            denominator: section.denominator,
        });
    }
    for (name, section) in filters {
        schema.filters.push(Filter {
            name,
            events: section.events,
            field: section.field,
            values: section.values,
        });
    }
    schema.validate().map_err(|error| error.to_string())?;
    Ok(schema)
}

/// `Ad group click`
fn title(entity: &str, event: &str) -> String {
    let words = format!("{entity} {event}").replace('_', " ");
    let mut letters = words.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize, Default)]
    #[serde(deny_unknown_fields, default)]
    struct Sections {
        namespace: Vec<Namespace>,
        events: BTreeMap<String, EventSection>,
        ratios: BTreeMap<String, RatioSection>,
        filters: BTreeMap<String, FilterSection>,
        titles: BTreeMap<String, String>,
    }

    fn schema(text: &str) -> Result<Schema, String> {
        let sections: Sections = toml::from_str(text).map_err(|error| error.to_string())?;
        let Sections {
            namespace,
            events,
            ratios,
            filters,
            titles,
        } = sections;
        check(namespace, events, ratios, filters, titles)
    }

    #[test]
    fn an_event_type_declares_a_namespace_for_every_entity() {
        let text = "[events.click]\nentities = [\"ad\", \"ad_group\"]\nsubtotals = [\"country\"]\nuniques = false\n\
            [events.impression]\nentities = [\"ad\"]\nlateness_seconds = 60\n\
            [ratios.ctr]\nnumerator = \"click\"\ndenominator = \"impression\"\n\
            [filters.bots]\nevents = [\"click\"]\nfield = \"by.country\"\nvalues = [\"-\", \"XX\"]\n\
            [titles]\ncountry = \"Land\"";
        let schema = schema(text).unwrap();
        assert_eq!(schema.names(), "ad_click, ad_group_click, ad_impression");
        let clicks = schema.namespace("ad_group_click").unwrap();
        assert_eq!(clicks.title, "Ad group click");
        assert_eq!(clicks.subtotals, ["country"]);
        assert_eq!((clicks.minutes, clicks.uniques), (true, false));
        let lateness: Vec<u32> = schema
            .events
            .iter()
            .map(|event| event.lateness_seconds)
            .collect();
        assert_eq!(lateness, [300, 60]);
        assert_eq!(schema.ratio("ctr").unwrap().numerator, "click");
        assert_eq!(schema.filters[0].name, "bots");
        assert_eq!(schema.title_of("country"), "Land");
    }

    #[test]
    fn what_cannot_be_declared_is_named() {
        for (text, named) in [
            ("[events.click]\nentities = []", "0 namespaces"),
            ("[events.click]\nentity = [\"ad\"]", "entity"),
            ("[events.Click]\nentities = [\"ad\"]", "ad_Click"),
            (
                "[events.a]\nentities = [\"b\"]\n[titles]\nc = \"country\"",
                "titles: `c`",
            ),
            (
                "[events.a]\nentities = [\"b\"]\n[filters.f]\nfield = \"users\"\nvalues = [\"x\"]",
                "users",
            ),
            (
                "[events.incr]\nentities = [\"a\"]\n[ratios.r]\nnumerator = \"x\"\ndenominator = \"incr\"",
                "`x`",
            ),
            (
                "[[namespace]]\nname = \"ad_click\"\n[events.click]\nentities = [\"ad\"]",
                "ad_click",
            ),
        ] {
            let error = schema(text).err().unwrap_or_default();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
