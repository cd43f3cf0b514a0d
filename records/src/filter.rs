//! Filters: named rules for events that the log keeps and the counts leave out.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::events::EventType;
use crate::increment::{Event, Increment};
use crate::names::is_name;
use crate::schema::{Schema, SchemaError};

/// A rule: an event with one of `values` in `field` is not counted.
///
/// ```
/// use tallyring_records::Filter;
///
/// let filter: Filter = serde_json::from_str(
///     r#"{"name": "bots", "events": ["click"], "field": "by.device", "values": ["bot", "crawler"]}"#,
/// )?;
/// assert!(filter.values.contains("bot"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    /// 1–24 of `[a-z][a-z0-9_]*`; the verdict on an event names its rule.
    pub name: String,
    /// Declared event types of the rule; all types when there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<String>,
    /// `user`, `view`, `by.<subtotal>` or `entities.<entity>`.
    pub field: String,
    /// Values that the field must not hold, 1 to 10,000.
    pub values: BTreeSet<String>,
}

const FILTERS_MAX: usize = 64;
const VALUES_MAX: usize = 10_000;

impl Filter {
    fn catches(&self, kind: &EventType, event: &Event, increment: &Increment) -> bool {
        if !self.events.is_empty() && !self.events.contains(&event.kind) {
            return false;
        }
        let value = match self.field.split_once('.') {
            None if self.field == "user" => increment.user.as_deref(),
            None => event.view.as_deref(),
            Some(("by", dimension)) => increment.value(dimension),
            Some((_, entity)) => {
                let namespace = kind.namespace_of(entity);
                let mut keys = increment.keys.iter();
                keys.find(|(name, _)| *name == namespace)
                    .map(|(_, key)| key.as_str())
            }
        };
        value.is_some_and(|value| self.values.contains(value))
    }

    fn validate(&self, schema: &Schema) -> Result<(), SchemaError> {
        let wrong = |what: String| Err(SchemaError(format!("filter `{}`: {what}", self.name)));
        if !is_name(&self.name) {
            return wrong(
                "its name must be 1 to 24 of a-z, 0-9 and _, starting with a letter".into(),
            );
        }
        let unknown = |event: &&String| schema.event_type(event).is_none();
        if let Some(event) = self.events.iter().find(unknown) {
            return wrong(format!("`{event}` is not a declared event type"));
        }
        let known = match self.field.split_once('.') {
            None => ["user", "view"].contains(&self.field.as_str()),
            Some(("by", dimension)) => {
                let mut namespaces = schema.namespaces.iter();
                namespaces.any(|namespace| namespace.has_dimension(dimension))
            }
            Some(("entities", entity)) => {
                let mut events = schema.events.iter();
                events.any(|event| event.entities.iter().any(|known| known == entity))
            }
            Some(_) => false,
        };
        if !known {
            return wrong(format!(
                "field = `{}` must be user, view, by.<a declared subtotal> or entities.<a declared entity>",
                self.field.escape_debug()
            ));
        }
        if !(1..=VALUES_MAX).contains(&self.values.len()) {
            let values = self.values.len();
            return wrong(format!("it has {values} values; give 1 to {VALUES_MAX}"));
        }
        Ok(())
    }
}

impl Schema {
    /// The first rule that keeps an event from being counted.
    pub fn filter_of(&self, increment: &Increment) -> Option<&Filter> {
        if self.filters.is_empty() {
            return None;
        }
        let event = increment.event.as_ref()?;
        let kind = self.event_type(&event.kind)?;
        let mut filters = self.filters.iter();
        filters.find(|filter| filter.catches(kind, event, increment))
    }

    pub(crate) fn validate_filters(&self) -> Result<(), SchemaError> {
        if self.filters.len() > FILTERS_MAX {
            let filters = self.filters.len();
            let text = format!("{filters} filters are declared; declare at most {FILTERS_MAX}");
            return Err(SchemaError(text));
        }
        self.filters
            .iter()
            .try_for_each(|filter| filter.validate(self))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::schema::Namespace;
    use crate::time_code::Grain;

    fn schema(filters: &[(&str, &[&str], &str, &[&str])]) -> Schema {
        let namespace = |name: &str| Namespace {
            name: name.into(),
            title: String::new(),
            grain: Grain::Hour,
            subtotals: vec!["device*country".into()],
            minutes: true,
            uniques: true,
        };
        let event = |name: &str| EventType {
            name: name.into(),
            entities: vec!["ad".into()],
            lateness_seconds: 300,
            actions: false,
        };
        let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        Schema {
            titles: BTreeMap::new(),
            namespaces: ["ad_click", "ad_view"].map(namespace).into(),
            events: ["click", "view"].map(event).into(),
            ratios: Vec::new(),
            filters: filters
                .iter()
                .map(|&(name, events, field, values)| Filter {
                    name: name.into(),
                    events: texts(events),
                    field: field.into(),
                    values: texts(values).into_iter().collect(),
                })
                .collect(),
        }
    }

    fn event(kind: &str, ad: &str, device: &str, user: &str) -> Increment {
        let event = Event {
            kind: kind.into(),
            view: Some("home".into()),
            correction: false,
        };
        Increment {
            by: vec![("device".into(), device.into())],
            user: Some(user.into()),
            event: Some(event.into()),
            ..Increment::new(1_331_923_247, 1, [(format!("ad_{kind}"), ad)])
        }
    }

    #[test]
    fn the_first_rule_that_fits_has_its_name_told() {
        let schema = schema(&[
            ("bots", &["click"], "by.device", &["bot", "crawler"]),
            ("own", &[], "user", &["me"]),
            ("test_ad", &[], "entities.ad", &["test"]),
            ("hidden", &["view"], "view", &["home"]),
        ]);
        assert_eq!(schema.validate(), Ok(()));
        let rule = |increment: &Increment| schema.filter_of(increment).map(|rule| &*rule.name);
        assert_eq!(rule(&event("click", "a", "bot", "me")), Some("bots"));
        assert_eq!(rule(&event("click", "a", "mobile", "me")), Some("own"));
        assert_eq!(
            rule(&event("click", "test", "mobile", "u")),
            Some("test_ad")
        );
        assert_eq!(rule(&event("view", "a", "bot", "u")), Some("hidden"));
        assert_eq!(rule(&event("click", "a", "mobile", "u")), None);
        let plain = Increment {
            event: None,
            ..event("click", "a", "bot", "me")
        };
        assert_eq!(rule(&plain), None, "increments are not filtered");
    }

    #[test]
    fn a_rule_that_cannot_be_used_is_named() {
        for (filter, named) in [
            (("Bots", &[][..], "user", &["x"][..]), "Bots"),
            (("bots", &["save"][..], "user", &["x"][..]), "save"),
            (("bots", &[][..], "device", &["x"][..]), "device"),
            (("bots", &[][..], "by.browser", &["x"][..]), "by.browser"),
            (
                ("bots", &[][..], "entities.pin", &["x"][..]),
                "entities.pin",
            ),
            (("bots", &[][..], "user", &[][..]), "0 values"),
        ] {
            let error = schema(&[filter]).validate().err().map(|error| error.0);
            assert!(
                error.clone().unwrap_or_default().contains(named),
                "{named}: {error:?}"
            );
        }
    }
}
