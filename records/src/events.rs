//! Event types and ratios: in which namespaces an event counts, and which counts a ratio divides.
//!
//! One event names entities (an ad, its campaign …). Type `T` of entity `E` counts in the namespace
//! `E_T`, which is declared like any other. An event is an increment by one on every key that it names.

use serde::{Deserialize, Serialize};

use crate::actions::{begin_what, push_entity};
use crate::increment::Increment;
use crate::long_key::LongKeys;
use crate::names::{NAME_CHARS_MAX, is_name};
use crate::schema::{Schema, SchemaError, is_false};

/// One kind of event, such as `click`.
///
/// ```
/// use tallyring_records::EventType;
///
/// let click = EventType {
///     name: "click".to_owned(),
///     entities: vec!["ad".to_owned()],
///     lateness_seconds: 300,
///     actions: false,
/// };
/// assert_eq!(click.namespace_of("ad"), "ad_click");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventType {
    /// 1–24 of `[a-z][a-z0-9_]*`.
    pub name: String,
    /// Entities that an event of this type may name, such as `ad`.
    pub entities: Vec<String>,
    /// How long an event may come after newer ones, seconds; an event that comes later is a correction.
    pub lateness_seconds: u32,
    /// True when the actions of each user are kept, for questions of what a user did.
    #[serde(default, skip_serializing_if = "is_false")]
    pub actions: bool,
}

/// A ratio of two event types, such as clicks by impressions, for every entity that both types have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ratio {
    /// 1–24 of `[a-z][a-z0-9_]*`.
    pub name: String,
    /// Event type that is divided.
    pub numerator: String,
    /// Event type that divides.
    pub denominator: String,
}

/// Lateness of event types that declare none, seconds.
pub const LATENESS_SECONDS_DEFAULT: u32 = 300;
const LATENESS_SECONDS_MAX: u32 = 86_400;
const ENTITIES_MAX: usize = 16;

impl EventType {
    /// The namespace that counts this type of `entity`: `ad_click`.
    pub fn namespace_of(&self, entity: &str) -> String {
        format!("{entity}_{}", self.name)
    }

    /// The entity that a namespace counts for this type; none for a namespace of another type.
    pub fn entity_of<'n>(&self, namespace: &'n str) -> Option<&'n str> {
        namespace
            .strip_suffix(self.name.as_str())?
            .strip_suffix('_')
    }

    /// Appends what an event of this type did, as [`What`](crate::What) reads it: its entities by name, with their keys
    /// in the stored form.
    pub fn write_action(&self, keys: &LongKeys, event: &Increment, out: &mut Vec<u8>) {
        let view = event.event.as_ref().and_then(|event| event.view.as_deref());
        let view = view.map(|view| keys.stored(view));
        begin_what(out, &self.name, view.as_deref());
        // An event has few entities, and which comes next is found faster than a list of them is made.
        let mut last = "";
        loop {
            let named = event.keys.iter().filter_map(|(namespace, key)| {
                let entity = self.entity_of(namespace).filter(|entity| *entity > last);
                entity.map(|entity| (entity, key))
            });
            let Some((entity, key)) = named.min() else {
                return;
            };
            push_entity(out, entity, &keys.stored(key));
            last = entity;
        }
    }
}

impl Schema {
    /// The event type called `name`.
    pub fn event_type(&self, name: &str) -> Option<&EventType> {
        self.events.iter().find(|event| event.name == name)
    }

    /// The event type that counts in this namespace.
    pub fn event_type_of(&self, namespace: &str) -> Option<&EventType> {
        self.events.iter().find(|event| {
            let entity = event.entity_of(namespace);
            entity.is_some_and(|entity| event.entities.iter().any(|known| known == entity))
        })
    }

    /// True when the actions of some type are kept.
    pub fn keeps_actions(&self) -> bool {
        self.events.iter().any(|event| event.actions)
    }

    /// The ratio called `name`.
    pub fn ratio(&self, name: &str) -> Option<&Ratio> {
        self.ratios.iter().find(|ratio| ratio.name == name)
    }

    pub(crate) fn validate_events(&self) -> Result<(), SchemaError> {
        for (index, event) in self.events.iter().enumerate() {
            event.validate(self)?;
            if self.events[..index]
                .iter()
                .any(|earlier| earlier.name == event.name)
            {
                return Err(wrong(format!(
                    "event type `{}` is declared twice",
                    event.name
                )));
            }
        }
        for (index, ratio) in self.ratios.iter().enumerate() {
            ratio.validate(self)?;
            if self.ratios[..index]
                .iter()
                .any(|earlier| earlier.name == ratio.name)
            {
                return Err(wrong(format!("ratio `{}` is declared twice", ratio.name)));
            }
        }
        Ok(())
    }
}

impl EventType {
    fn validate(&self, schema: &Schema) -> Result<(), SchemaError> {
        check_name("event type", &self.name)?;
        if self.entities.is_empty() || self.entities.len() > ENTITIES_MAX {
            return Err(wrong(format!(
                "event type `{}` has {} entities; declare 1 to {ENTITIES_MAX}",
                self.name,
                self.entities.len()
            )));
        }
        if self.lateness_seconds > LATENESS_SECONDS_MAX {
            return Err(wrong(format!(
                "event type `{}`: lateness_seconds = {} must be at most {LATENESS_SECONDS_MAX}",
                self.name, self.lateness_seconds
            )));
        }
        for (index, entity) in self.entities.iter().enumerate() {
            check_name("entity", entity)?;
            if self.entities[..index].contains(entity) {
                return Err(wrong(format!(
                    "event type `{}`: entity `{entity}` is declared twice",
                    self.name
                )));
            }
            let namespace = self.namespace_of(entity);
            if schema.namespace(&namespace).is_none() {
                return Err(wrong(format!(
                    "event type `{}`: entity `{entity}` counts in the namespace `{namespace}`, which is not declared",
                    self.name
                )));
            }
        }
        Ok(())
    }
}

impl Ratio {
    fn validate(&self, schema: &Schema) -> Result<(), SchemaError> {
        check_name("ratio", &self.name)?;
        for (field, event) in [
            ("numerator", &self.numerator),
            ("denominator", &self.denominator),
        ] {
            if schema.event_type(event).is_none() {
                return Err(wrong(format!(
                    "ratio `{}`: {field} `{}` is not a declared event type",
                    self.name,
                    event.escape_debug()
                )));
            }
        }
        Ok(())
    }
}

fn check_name(what: &str, name: &str) -> Result<(), SchemaError> {
    if is_name(name) {
        return Ok(());
    }
    Err(wrong(format!(
        "{what} `{}` must be 1 to {NAME_CHARS_MAX} of a-z, 0-9 and _, starting with a letter",
        name.escape_debug()
    )))
}

fn wrong(what: String) -> SchemaError {
    SchemaError(what)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::schema::Namespace;
    use crate::time_code::Grain;

    fn ads() -> Schema {
        let namespaces = ["ad_click", "ad_group_click", "ad_impression"];
        Schema {
            namespaces: namespaces
                .iter()
                .map(|&name| Namespace {
                    name: name.into(),
                    title: String::new(),
                    grain: Grain::Hour,
                    subtotals: Vec::new(),
                    minutes: true,
                    uniques: true,
                })
                .collect(),
            events: [("click", &["ad", "ad_group"][..]), ("impression", &["ad"])]
                .iter()
                .map(|&(name, entities)| EventType {
                    name: name.into(),
                    entities: entities.iter().map(|&entity| entity.into()).collect(),
                    lateness_seconds: LATENESS_SECONDS_DEFAULT,
                    actions: false,
                })
                .collect(),
            ratios: vec![Ratio {
                name: "ctr".into(),
                numerator: "click".into(),
                denominator: "impression".into(),
            }],
            filters: Vec::new(),
            lists: Vec::new(),
            titles: BTreeMap::new(),
            settings: BTreeMap::new(),
        }
    }

    #[test]
    fn a_namespace_knows_its_event_type() {
        let schema = ads();
        assert_eq!(schema.validate(), Ok(()));
        let of = |namespace: &str| schema.event_type_of(namespace).map(|event| &*event.name);
        assert_eq!(of("ad_click"), Some("click"));
        assert_eq!(of("ad_group_click"), Some("click"));
        assert_eq!(of("ad_impression"), Some("impression"));
        for other in ["l", "click", "_click", "campaign_click", "adclick"] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn an_unusable_declaration_is_refused_with_its_name() {
        type Change = fn(&mut Schema);
        let changes: [(Change, &str); 7] = [
            (|schema| schema.events[0].name = "Click".into(), "Click"),
            (|schema| schema.events[0].entities.clear(), "0 entities"),
            (
                |schema| schema.events[0].entities.push("campaign".into()),
                "campaign_click",
            ),
            (
                |schema| schema.events[0].entities.push("ad".into()),
                "twice",
            ),
            (
                |schema| schema.events[0].lateness_seconds = 86_401,
                "lateness_seconds",
            ),
            (
                |schema| schema.ratios[0].denominator = "view".into(),
                "view",
            ),
            (
                |schema| schema.ratios.push(schema.ratios[0].clone()),
                "twice",
            ),
        ];
        for (change, named) in changes {
            let mut schema = ads();
            change(&mut schema);
            let error = schema.validate().err().map(|error| error.to_string());
            assert!(
                error.clone().unwrap_or_default().contains(named),
                "{named}: {error:?}"
            );
        }
    }

    #[test]
    fn a_declaration_without_events_is_written_as_before_there_were_any() {
        let text = serde_json::to_string(&Schema::default_clicks()).unwrap();
        assert!(
            !text.contains("events") && !text.contains("minutes"),
            "{text}"
        );
    }
}
