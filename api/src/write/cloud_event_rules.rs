//! Rules for CloudEvents whose data is no event of ours: what becomes which field of the event.
//!
//! A rule is for one `type`. It fills targets (`entities.ad`, `by.country`, `user` …) from sources: an attribute or
//! extension (`subject`), a path in the data (`data.campaign.id`), or a constant (`=web`), as `tallyring send --map`
//! names them. `id` is never mapped: `source` and `id` of the CloudEvent are the event's.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};
use tallyring_records::input::{field, time};
use tallyring_records::{EventType, Schema};

use super::refused::declared;
use crate::problem::{Problem, Result};

/// All rules of a configuration.
#[derive(Debug, Clone, Default)]
pub struct CloudEventRules(Vec<Arc<CloudEventRule>>);

/// How CloudEvents of one type become events of one type.
#[derive(Debug)]
pub struct CloudEventRule {
    /// The `type` of the CloudEvents.
    pub kind: String,
    /// A declared event type.
    pub event: String,
    map: BTreeMap<Target, Source>,
}

/// A field of an event.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Entity(String),
    By(String),
    /// One of [`FIELDS`].
    Field(&'static str),
}

/// Where its text comes from.
#[derive(Debug)]
enum Source {
    /// An attribute or extension, or the data where that is a scalar.
    Attribute(String),
    /// A path in the data.
    Data(String),
    Constant(String),
}

const AT: &str = "at";
const N: &str = "n";
const FIELDS: [&str; 7] = [
    AT,
    N,
    "user",
    "view",
    "insertion",
    "reservation",
    "referrer",
];
const DATA: &str = "data";

impl CloudEventRules {
    /// Adds a rule: the type of CloudEvents, the event type, and the sources of its targets. The error is a sentence
    /// that names the setting, its value, and what to write instead.
    pub fn add(
        &mut self,
        kind: String,
        event: String,
        map: &BTreeMap<String, String>,
        schema: &Schema,
    ) -> Result<(), String> {
        if kind.is_empty() || self.of_type(&kind).is_some() {
            return Err(format!("type must be a text, once; got `{kind}`"));
        }
        let Some(known) = schema.event_type(&event) else {
            let names = names(schema.events.iter().map(|event| &*event.name));
            return Err(format!("event must be one of {names}; got `{event}`"));
        };
        let mut sources = BTreeMap::new();
        for (target, source) in map {
            let wrong = |why| format!("map.{target} = \"{source}\": {why}");
            let parsed = Target::parse(target).and_then(|of| Ok((of, Source::parse(source)?)));
            let (of, from) = parsed.map_err(wrong)?;
            from.check_constant(&of).map_err(wrong)?;
            sources.insert(of, from);
        }
        let rule = CloudEventRule {
            kind,
            event,
            map: sources,
        };
        rule.check(known, schema)?;
        self.0.push(Arc::new(rule));
        Ok(())
    }

    /// The rules in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = &CloudEventRule> {
        self.0.iter().map(|rule| &**rule)
    }

    /// The rule for a CloudEvent, if there is one.
    pub(super) fn of(&self, event: &Value) -> Option<&Arc<CloudEventRule>> {
        self.of_type(event.get("type")?.as_str()?)
    }

    pub(super) fn of_type(&self, kind: &str) -> Option<&Arc<CloudEventRule>> {
        self.0.iter().find(|rule| rule.kind == kind)
    }

    /// 400 for a type that has no rule and ends in no event type, where there are rules. The error names the types that
    /// there are rules for.
    pub(super) fn check_type(&self, kind: &str, event: &str, schema: &Schema) -> Result<()> {
        if self.0.is_empty() || schema.event_type(event).is_some() {
            return Ok(());
        }
        let detail = format!(
            "must have a rule in `[[cloudevents]]` or end in a declared event type; there are rules for {}, and \
             declared are {}",
            names(self.iter().map(|rule| &*rule.kind)),
            names(schema.events.iter().map(|event| &*event.name)),
        );
        Err(Problem::malformed("type", kind, detail))
    }
}

impl CloudEventRule {
    /// Its targets and their sources, as the configuration has them.
    pub fn map(&self) -> impl Iterator<Item = (String, String)> {
        let map = self.map.iter();
        map.map(|(target, source)| (target.to_string(), source.to_string()))
    }

    fn check(&self, event: &EventType, schema: &Schema) -> Result<(), String> {
        let entities = names(event.entities.iter().map(String::as_str));
        let mut counted = Vec::new();
        for target in self.map.keys() {
            let Target::Entity(entity) = target else {
                continue;
            };
            if !event.entities.contains(entity) {
                return Err(format!(
                    "map.{target} must be of an entity of {}, {entities}; got `{entity}`",
                    event.name
                ));
            }
            counted.extend(schema.namespace(&event.namespace_of(entity)));
        }
        if counted.is_empty() {
            return Err(format!(
                "map must have at least one entity of {}, {entities}, such as \"entities.{}\" = \"subject\"",
                event.name, event.entities[0]
            ));
        }
        for target in self.map.keys() {
            if let Target::By(subtotal) = target
                && !counted.iter().any(|of| of.has_dimension(subtotal))
            {
                let known = counted.iter().flat_map(|of| &of.subtotals);
                let mut known: Vec<&str> = known.map(String::as_str).collect();
                known.sort_unstable();
                known.dedup();
                return Err(format!(
                    "map.{target} must be of a subtotal of what is counted, {}; got `{subtotal}`",
                    names(known.into_iter())
                ));
            }
        }
        Ok(())
    }

    /// The namespaces that its events name.
    pub(super) fn namespaces(&self, schema: &Schema) -> Vec<String> {
        let event = schema.event_type(&self.event);
        let named = self.map.keys().filter_map(|target| match target {
            Target::Entity(entity) => Some(event?.namespace_of(entity)),
            Target::By(_) | Target::Field(_) => None,
        });
        declared(named, schema)
    }

    /// The attributes that it reads.
    pub(super) fn attributes(&self) -> impl Iterator<Item = &str> {
        self.map.values().filter_map(|source| match source {
            Source::Attribute(name) if name != DATA => Some(name.as_str()),
            _ => None,
        })
    }

    /// True when it reads anything of the data.
    pub(super) fn reads_data(&self) -> bool {
        self.map.values().any(|source| match source {
            Source::Data(_) => true,
            Source::Attribute(name) => name == DATA,
            Source::Constant(_) => false,
        })
    }

    /// The fields of the event that a CloudEvent carries, without its id. A source that is missing, null or empty
    /// leaves its field out, but not an entity, the time or the count. The error names the first source that is missing
    /// or cannot be used.
    pub(super) fn fields(&self, cloud_event: &Map<String, Value>) -> Result<Map<String, Value>> {
        let (mut entities, mut by, mut fields) = (Map::new(), Map::new(), Map::new());
        if let Some(time) = cloud_event.get("time") {
            fields.insert(AT.to_owned(), time.clone());
        }
        for (target, source) in &self.map {
            let Some(value) = self.value(target, source, cloud_event)? else {
                continue;
            };
            match target {
                Target::Entity(entity) => entities.insert(entity.clone(), value),
                Target::By(subtotal) => by.insert(subtotal.clone(), value),
                Target::Field(N) => {
                    let text = value.as_str().unwrap_or_default();
                    let n = field::count(text).ok_or_else(|| {
                        let detail = "must be a whole number from 1 to 9007199254740991";
                        self.wrong(source, text, detail, target)
                    })?;
                    fields.insert(N.to_owned(), n.into())
                }
                Target::Field(name) => fields.insert((*name).to_owned(), value),
            };
        }
        fields.insert("type".to_owned(), self.event.clone().into());
        fields.insert("entities".to_owned(), entities.into());
        fields.insert("by".to_owned(), by.into());
        Ok(fields)
    }

    /// The text of a source. An object or a list is a wrong value, and stays as it is where such a value is no reason
    /// to refuse the event: its reader decides that.
    fn value(
        &self,
        target: &Target,
        source: &Source,
        cloud_event: &Map<String, Value>,
    ) -> Result<Option<Value>> {
        let found = match source {
            Source::Constant(text) => return Ok(Some(text.clone().into())),
            Source::Attribute(name) => cloud_event.get(name),
            Source::Data(path) => {
                let data = cloud_event.get(DATA);
                data.and_then(|data| field::find(data, path, |value, name| value.get(name)))
            }
        };
        let found = found.unwrap_or(&Value::Null);
        match field::text(found) {
            Ok(None) if target.is_needed() => {
                Err(self.wrong(source, "", "is missing or empty", target))
            }
            Ok(text) => Ok(text.map(Value::from)),
            Err(_) if target.may_be_wrong() => Ok(Some(found.clone())),
            Err(why) => {
                let detail = format!("must be a text, a number or a boolean, and is {why}");
                Err(self.wrong(source, &found.to_string(), &detail, target))
            }
        }
    }

    fn wrong(&self, source: &Source, found: &str, what: &str, target: &Target) -> Problem {
        let detail = format!("{what}; the rule for `{}` makes {target} of it", self.kind);
        Problem::malformed(&source.to_string(), found, detail)
    }
}

impl Target {
    /// True where an event cannot be counted without it.
    fn is_needed(&self) -> bool {
        matches!(self, Self::Entity(_) | Self::Field(AT | N))
    }

    /// True where a wrong value costs no event unless the configuration is strict.
    fn may_be_wrong(&self) -> bool {
        matches!(self, Self::By(_) | Self::Field("insertion" | "referrer"))
    }

    fn parse(text: &str) -> Result<Self, String> {
        match text.split_once('.') {
            Some(("entities", entity)) if !entity.is_empty() => Ok(Self::Entity(entity.to_owned())),
            Some(("by", subtotal)) if !subtotal.is_empty() => Ok(Self::By(subtotal.to_owned())),
            None if text == "id" => Err(
                "the id is the CloudEvent's source and id together, and cannot be mapped; leave it out"
                    .to_owned(),
            ),
            _ => match FIELDS.into_iter().find(|field| *field == text) {
                Some(field) => Ok(Self::Field(field)),
                None => Err(format!(
                    "the target must be entities.<entity>, by.<subtotal>, {}; got `{text}`",
                    FIELDS.join(", ")
                )),
            },
        }
    }
}

impl Source {
    fn parse(text: &str) -> Result<Self, String> {
        // The names of attributes have lower-case letters and digits only.
        let is_attribute = |name: &str| {
            let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
            !name.is_empty() && name.bytes().all(is_letter)
        };
        match (text.strip_prefix('='), text.strip_prefix("data.")) {
            (Some(constant), _) if !constant.is_empty() => Ok(Self::Constant(constant.to_owned())),
            (None, Some(path)) if !path.split('.').any(str::is_empty) => {
                Ok(Self::Data(path.to_owned()))
            }
            (None, None) if is_attribute(text) => Ok(Self::Attribute(text.to_owned())),
            _ => Err(
                "the source must be an attribute such as subject, a path such as data.campaign.id, or =TEXT for a \
                 constant"
                    .to_owned(),
            ),
        }
    }

    /// Finds a constant with which no event could be counted.
    fn check_constant(&self, target: &Target) -> Result<(), String> {
        let Self::Constant(text) = self else {
            return Ok(());
        };
        match target {
            Target::Field(N) if field::count(text).is_none() => {
                Err("n must be a whole number from 1 to 9007199254740991".to_owned())
            }
            Target::Field(AT) if time::parse(text.as_bytes()).is_none() => {
                Err(format!("at {}", time::EXPECTED))
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entity(entity) => write!(f, "entities.{entity}"),
            Self::By(subtotal) => write!(f, "by.{subtotal}"),
            Self::Field(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attribute(name) => f.write_str(name),
            Self::Data(path) => write!(f, "{DATA}.{path}"),
            Self::Constant(text) => write!(f, "={text}"),
        }
    }
}

/// `a, b, c`; or that there is none.
fn names<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<&str> = names.collect();
    match names.is_empty() {
        true => "(none)".to_owned(),
        false => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tallyring_records::Namespace;

    use super::super::cloud_event::Wrapped;
    use super::super::items::Item;
    use super::*;

    #[test]
    fn a_wrong_event_names_the_namespaces_that_its_rule_counts_in() {
        let mut schema = Schema::default_clicks();
        let namespace = |name: &str| Namespace {
            name: name.into(),
            ..schema.namespaces[0].clone()
        };
        let of_ads = ["ad_click", "campaign_click"].map(namespace);
        schema.namespaces.extend(of_ads);
        schema.events = vec![EventType {
            name: "click".into(),
            entities: vec!["ad".into(), "campaign".into()],
            lateness_seconds: 300,
            actions: false,
        }];
        let mut rules = CloudEventRules::default();
        let map = [("entities.campaign", "subject"), ("user", "data.user")];
        let map = map.map(|(target, source)| (target.to_owned(), source.to_owned()));
        let added = rules.add("a.b".into(), "click".into(), &map.into(), &schema);
        assert_eq!(added, Ok(()));
        for (event, named) in [
            (json!({"type": "a.b", "data": 7}), vec!["campaign_click"]),
            (
                json!({"specversion": "1.0", "type": "x.click", "data": {"entities": {"ad": 1}}}),
                vec!["ad_click"],
            ),
        ] {
            let wrapped = Wrapped::new(event.clone(), &rules);
            assert_eq!(wrapped.namespaces(&schema), named, "{event}");
        }
    }
}
