//! The schema: namespaces with their subtotals and grain, and event types and ratios over them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::events::{EventType, Ratio};
use crate::filter::Filter;
use crate::names::{NAME_CHARS_MAX, dimensions, is_name, is_same};
use crate::rules::List;
use crate::time_code::Grain;

/// All declarations of an installation's configuration.
///
/// ```
/// use tallyring_records::Schema;
///
/// let schema: Schema =
///     serde_json::from_str(r#"{"namespaces": [{"name": "l", "title": "Link", "subtotals": ["c"]}]}"#)?;
/// assert!(schema.validate().is_ok());
/// assert_eq!(schema.namespace("l").unwrap().title_or_name(), "Link");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schema {
    /// In the order of the configuration; names are unique.
    pub namespaces: Vec<Namespace>,
    /// Event types, each counted in a declared namespace for every entity it names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventType>,
    /// Ratios of two event types.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ratios: Vec<Ratio>,
    /// Rules for events that are not counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<Filter>,
    /// Lists that rules judge by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lists: Vec<List>,
    /// Titles of the dimensions of subtotals, by name. A dimension without a title is shown by its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub titles: BTreeMap<String, String>,
    /// Settings that judge or fill what is sent, beside the declarations: the text of each, by name. Nothing obeys them
    /// here: a trail of changes is to have them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
}

/// One kind of thing that has totals, such as `l` for links.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Namespace {
    /// 1–24 of `[a-z][a-z0-9_]*`.
    pub name: String,
    /// The title that people see; empty for none.
    #[serde(default)]
    pub title: String,
    /// Width of its base buckets: hour (default) or quarter.
    #[serde(default = "hour")]
    pub grain: Grain,
    /// Breakdowns whose values sum to the total; `a*b` crosses two dimensions.
    #[serde(default)]
    pub subtotals: Vec<String>,
    /// Keeps each base bucket's minutes too.
    #[serde(default, skip_serializing_if = "is_false")]
    pub minutes: bool,
    /// Keeps a sketch of the users of each base bucket.
    #[serde(default, skip_serializing_if = "is_false")]
    pub uniques: bool,
}

/// True for false: serde leaves such a field out.
pub fn is_false(flag: &bool) -> bool {
    !flag
}

fn hour() -> Grain {
    Grain::Hour
}

/// Path segments of the API, present and to come. No new namespace may have such a name.
pub const RESERVED_NAMES: [&str; 17] = [
    "events",
    "ratios",
    "actions",
    "users",
    "query",
    "incr",
    "increments",
    "admin",
    "billing",
    "receipts",
    "namespaces",
    "live",
    "closed",
    "finals",
    "alerts",
    "shares",
    "tags",
];

const NAMESPACES_MAX: usize = 256;
const SUBTOTALS_MAX: usize = 16;
const TITLE_CHARS_MAX: usize = 40;

/// A declaration that cannot be used, with what to change.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct SchemaError(pub(crate) String);

impl Schema {
    /// Links, users and domains by country and referrer, and links also by device. The embedded
    /// configuration declares events of ads, too.
    pub fn default_clicks() -> Self {
        let namespace = |name: &str, title: &str, subtotals: &[&str]| Namespace {
            name: name.into(),
            title: title.into(),
            grain: Grain::Hour,
            subtotals: subtotals.iter().map(|&subtotal| subtotal.into()).collect(),
            minutes: false,
            uniques: false,
        };
        Self {
            titles: [("c", "country"), ("r", "referrer"), ("v", "device")]
                .map(|(name, title)| (name.into(), title.into()))
                .into(),
            namespaces: vec![
                namespace("l", "Link", &["c", "r", "v"]),
                namespace("u", "User", &["c", "r"]),
                namespace("d", "Domain", &["c", "r"]),
            ],
            ..Self::default()
        }
    }

    /// A hash of all that is declared.
    pub fn hash(&self) -> [u8; 32] {
        let text = serde_json::to_vec(self).expect("BUG: a schema is plain data");
        *blake3::hash(&text).as_bytes()
    }

    /// The namespace called `name`.
    pub fn namespace(&self, name: &str) -> Option<&Namespace> {
        self.namespaces
            .iter()
            .find(|namespace| is_same(&namespace.name, name))
    }

    /// Names of all namespaces, for messages.
    pub fn names(&self) -> String {
        let names: Vec<&str> = self
            .namespaces
            .iter()
            .map(|namespace| namespace.name.as_str())
            .collect();
        names.join(", ")
    }

    /// The title of a subtotal: `country`, or `country × device` for a crossed one.
    pub fn title_of(&self, subtotal: &str) -> String {
        let title = |name| self.titles.get(name).map_or(name, String::as_str);
        let titles: Vec<&str> = dimensions(subtotal).map(title).collect();
        titles.join(" × ")
    }

    /// Checks that no namespace is called as a word of the API, but for those that are in force already: a store that
    /// has one from before keeps it. The error names the first one that cannot be used.
    pub fn check_words(&self, in_force: Option<&Self>) -> Result<(), SchemaError> {
        let is_kept = |name: &str| in_force.is_some_and(|schema| schema.namespace(name).is_some());
        let mut names = self.namespaces.iter().map(|namespace| &*namespace.name);
        match names.find(|name| RESERVED_NAMES.contains(name) && !is_kept(name)) {
            Some(name) => Err(SchemaError(format!(
                "namespace: name must be no word of the API ({}); got `{name}`: choose another name",
                RESERVED_NAMES.join(", ")
            ))),
            None => Ok(()),
        }
    }

    /// Checks every declaration, but not whether a name is a word of the API ([`Schema::check_words`]). The error names
    /// the first one that cannot be used.
    pub fn validate(&self) -> Result<(), SchemaError> {
        if self.namespaces.is_empty() || self.namespaces.len() > NAMESPACES_MAX {
            return Err(SchemaError(format!(
                "{} namespaces are declared; declare 1 to {NAMESPACES_MAX}",
                self.namespaces.len()
            )));
        }
        for (index, namespace) in self.namespaces.iter().enumerate() {
            namespace.validate()?;
            if self.namespaces[..index]
                .iter()
                .any(|earlier| earlier.name == namespace.name)
            {
                return Err(SchemaError(format!(
                    "namespace `{}` is declared twice; keep one",
                    namespace.name
                )));
            }
        }
        self.validate_events()?;
        self.validate_lists()?;
        self.validate_filters()?;
        self.validate_titles()
    }

    fn validate_titles(&self) -> Result<(), SchemaError> {
        for (name, title) in &self.titles {
            if !self.namespaces.iter().any(|of| of.has_dimension(name)) {
                return Err(SchemaError(format!(
                    "titles: `{}` is a subtotal of no namespace; name one that is declared",
                    name.escape_debug()
                )));
            }
            let is_short = (1..=TITLE_CHARS_MAX).contains(&title.chars().count());
            if !is_short || title.trim() != title || title.chars().any(char::is_control) {
                return Err(SchemaError(format!(
                    "titles: {name} = \"{}\" must be 1 to {TITLE_CHARS_MAX} characters on one line, without spaces \
                     around them",
                    title.escape_debug()
                )));
            }
        }
        Ok(())
    }
}

impl Namespace {
    /// The title of the namespace, or its name when it has none.
    pub fn title_or_name(&self) -> &str {
        match self.title.as_str() {
            "" => &self.name,
            title => title,
        }
    }

    /// True when a subtotal uses the dimension, alone or crossed.
    pub fn has_dimension(&self, dimension: &str) -> bool {
        self.subtotals
            .iter()
            .any(|subtotal| dimensions(subtotal).any(|part| is_same(part, dimension)))
    }

    fn validate(&self) -> Result<(), SchemaError> {
        let name = &self.name;
        if !is_name(name) {
            return Err(SchemaError(format!(
                "namespace `{}` must be 1 to {NAME_CHARS_MAX} of a-z, 0-9 and _, starting with a letter",
                name.escape_debug()
            )));
        }
        if !matches!(self.grain, Grain::Hour | Grain::Quarter) {
            return Err(SchemaError(format!(
                "namespace `{name}`: grain must be \"hour\" or \"quarter\""
            )));
        }
        if self.subtotals.len() > SUBTOTALS_MAX {
            return Err(SchemaError(format!(
                "namespace `{name}` has more than {SUBTOTALS_MAX} subtotals"
            )));
        }
        for (index, subtotal) in self.subtotals.iter().enumerate() {
            if dimensions(subtotal).count() > 2 || !dimensions(subtotal).all(is_name) {
                return Err(SchemaError(format!(
                    "namespace `{name}`: subtotal `{}` must be a name, or two crossed as a*b",
                    subtotal.escape_debug()
                )));
            }
            if self.subtotals[..index].contains(subtotal) {
                return Err(SchemaError(format!(
                    "namespace `{name}`: subtotal `{subtotal}` is declared twice"
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(Schema::default_clicks().validate(), Ok(()));
    }

    #[test]
    fn subtotals_have_titles_for_people() {
        let mut schema = Schema::default_clicks();
        assert_eq!(schema.title_of("c"), "country");
        assert_eq!(schema.title_of("c*v"), "country × device");
        assert_eq!(schema.title_of("brand*c"), "brand × country");
        for (name, title) in [("x", "unknown"), ("c", ""), ("c", " a"), ("c", "a\nb")] {
            schema.titles = [(name.to_owned(), title.to_owned())].into();
            assert!(schema.validate().is_err(), "{name}: {title:?}");
        }
    }

    #[test]
    fn words_of_the_api_are_names_of_no_new_namespace() {
        let mut schema = Schema::default_clicks();
        assert_eq!(schema.check_words(None), Ok(()));
        let before = schema.clone();
        for word in RESERVED_NAMES {
            schema.namespaces[1].name = word.into();
            assert_eq!(schema.validate(), Ok(()), "{word}");
            for in_force in [None, Some(&before)] {
                let refused = schema.check_words(in_force).unwrap_err().to_string();
                assert!(refused.contains(&format!("got `{word}`")), "{refused}");
            }
            assert_eq!(schema.check_words(Some(&schema)), Ok(()), "{word}");
        }
    }

    #[test]
    fn names_that_would_break_paths_or_records_are_refused() {
        for name in [
            "",
            "L",
            "1a",
            "a b",
            "a.b",
            "a|b",
            "../x",
            "aaaaaaaaaaaaaaaaaaaaaaaaa",
        ] {
            let mut schema = Schema::default_clicks();
            schema.namespaces[0].name = name.into();
            assert!(schema.validate().is_err(), "{name}");
        }
        for subtotal in ["", "a*b*c", "a*", "C", "c.r"] {
            let mut schema = Schema::default_clicks();
            schema.namespaces[0].subtotals.push(subtotal.into());
            assert!(schema.validate().is_err(), "{subtotal}");
        }
    }
}
