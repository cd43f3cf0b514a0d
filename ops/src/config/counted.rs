//! The schema of the store: `[[namespace]]`, `[events.<type>]`, `[ratios.<name>]`, `[lists.<name>]`,
//! `[filters.<name>]` and `[titles]`.
//!
//! A file that declares any of namespaces, events and ratios replaces the defaults of all of them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use tallyring_records::{
    Class, EventType, Filter, FilterFields, Grain, LATENESS_SECONDS_DEFAULT, List, ListKind,
    Namespace, Ratio, RuleSet, Schema,
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
    class: Class,
    #[serde(default)]
    events: Vec<String>,
    #[serde(flatten)]
    fields: FilterFields,
}

/// `[lists.<name>]`: a list and its file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListFile {
    /// The name of the list.
    #[serde(skip)]
    pub name: String,
    /// The file.
    #[serde(rename = "file")]
    pub path: PathBuf,
    /// The thing that a line holds.
    #[serde(rename = "match")]
    pub kind: ListKind,
}

/// Stands for the hash of a file that was not read yet.
const UNREAD: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Types whose actions are kept unless the configuration says otherwise.
const ACTIONS_OF: [&str; 2] = ["click", "impression"];

fn yes() -> bool {
    true
}

fn lateness() -> u32 {
    LATENESS_SECONDS_DEFAULT
}

/// The lists with their names. Fails when a file is not named.
pub(super) fn list_files(lists: BTreeMap<String, ListFile>) -> Result<Vec<ListFile>, String> {
    let files = lists
        .into_iter()
        .map(|(name, list)| match list.path.as_os_str().is_empty() {
            true => Err(format!(
                "lists.{}.file = \"\" must be the path of a file, or leave the list out",
                name.escape_debug()
            )),
            false => Ok(ListFile { name, ..list }),
        });
    files.collect()
}

/// Returns the declared schema; each type of event adds a namespace for every entity. The hashes of lists are filled
/// in when their files are read. Fails when a name cannot be used;
/// the text names the first one.
pub(super) fn check(
    namespaces: Vec<Namespace>,
    events: BTreeMap<String, EventSection>,
    ratios: BTreeMap<String, RatioSection>,
    lists: &[ListFile],
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
    let rules = rules(lists, filters)?;
    (schema.filters, schema.lists) = (rules.filters, rules.lists);
    schema.validate().map_err(|error| error.to_string())?;
    Ok(schema)
}

/// The rules; the hashes of lists are filled in when their files are read. Fails when the fields of a filter do not go
/// together; the text names the first one.
pub(super) fn rules(
    lists: &[ListFile],
    filters: BTreeMap<String, FilterSection>,
) -> Result<RuleSet, String> {
    let filters = filters.into_iter().map(|(name, section)| {
        let form = section.fields.form();
        let form = form.map_err(|what| format!("filter `{}`: {what}", name.escape_debug()))?;
        Ok(Filter {
            name,
            class: section.class,
            events: section.events,
            form,
        })
    });
    let lists = lists.iter().map(|list| List {
        name: list.name.clone(),
        kind: list.kind,
        sha256: UNREAD.into(),
    });
    Ok(RuleSet {
        filters: filters.collect::<Result<_, String>>()?,
        lists: lists.collect(),
    })
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
        lists: BTreeMap<String, ListFile>,
        filters: BTreeMap<String, FilterSection>,
        titles: BTreeMap<String, String>,
    }

    fn schema(text: &str) -> Result<Schema, String> {
        let sections: Sections = toml::from_str(text).map_err(|error| error.to_string())?;
        let Sections {
            namespace,
            events,
            ratios,
            lists,
            filters,
            titles,
        } = sections;
        let lists = list_files(lists)?;
        check(namespace, events, ratios, &lists, filters, titles)
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
                "[events.a]\nentities = [\"b\"]\n[filters.f]\nlist = \"l\"",
                "declare it as [lists.l]",
            ),
            (
                "[events.a]\nentities = [\"b\"]\n[lists.l]\nfile = \"\"\nmatch = \"ip\"",
                "lists.l.file = \"\" must be",
            ),
            (
                "[events.a]\nentities = [\"b\"]\n[lists.l]\nfile = \"f\"\nmatch = \"host\"",
                "unknown variant `host`",
            ),
            (
                "[events.a]\nentities = [\"b\"]\n[filters.f]\nwithin = \"soon\"\nsame = [\"b\"]",
                "filter `f`: within = \"soon\" must be",
            ),
            (
                "[events.a]\nentities = [\"b\"]\n[filters.f]\nclass = \"bad\"\nlist = \"l\"",
                "unknown variant `bad`",
            ),
            (
                "[events.a]\nentities = [\"b\"]\n[filters.f]\ncolour = \"red\"\nlist = \"l\"",
                "colour",
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
