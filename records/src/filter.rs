//! Filters: named rules for events that the log keeps and the counts leave out. [`crate::Rules`] judges by them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize, Serializer};

use crate::names::is_name;
use crate::schema::{Schema, SchemaError, is_false};
use crate::words::length_seconds;

/// A rule: an event that it catches is not counted.
///
/// ```
/// use tallyring_records::{Filter, Form};
///
/// let filter: Filter = serde_json::from_str(
///     r#"{"name": "bots", "events": ["click"], "field": "by.device", "values": ["bot", "crawler"]}"#,
/// )?;
/// assert!(matches!(filter.form, Form::Values { values, .. } if values.contains("bot")));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Named")]
pub struct Filter {
    /// 1–24 of `[a-z][a-z0-9_]*`; the verdict on an event names its rule.
    pub name: String,
    /// The class of invalid traffic that the rule finds.
    #[serde(skip_serializing_if = "Class::is_general")]
    pub class: Class,
    /// Declared event types of the rule; all types when there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<String>,
    /// The condition under which the rule catches an event.
    #[serde(flatten)]
    pub form: Form,
}

/// Classes of invalid traffic, in the words of the Media Rating Council.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Found by routine checks of single events, such as lists.
    #[default]
    General,
    /// Found by analysis.
    Sophisticated,
}

/// The condition of a rule. In JSON it has the fields that [`FilterFields`] reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Form {
    /// The event has one of these values in a field.
    Values {
        /// `user`, `view`, `by.<subtotal>` or `entities.<entity>`.
        field: String,
        /// Values that the field must not hold, 1 to 10,000.
        values: BTreeSet<String>,
    },
    /// The evidence of the event is in a list.
    List {
        /// The name of a declared list.
        list: String,
    },
    /// The event repeats a kept one of its type with the same values, less than `within_seconds` after it.
    Repeat {
        /// 1 to 86,400.
        #[serde(rename = "within", serialize_with = "in_seconds")]
        within_seconds: u32,
        /// Fields by which events belong together, 1 to 8.
        same: Vec<String>,
    },
    /// More than `more_than` events of the type with the same values came in the `within_seconds` that end with the
    /// event, itself included.
    Rate {
        /// 1 to 1,000.
        more_than: u32,
        /// 1 to 86,400.
        #[serde(rename = "within", serialize_with = "in_seconds")]
        within_seconds: u32,
        /// Fields by which events belong together, 1 to 8.
        same: Vec<String>,
        /// True to catch the events before it in that time, too.
        #[serde(skip_serializing_if = "is_false")]
        all: bool,
    },
    /// No event of the type `needs` with the same values came in the `within_seconds` before the event.
    Needs {
        /// A declared event type.
        needs: String,
        /// 1 to 86,400.
        #[serde(rename = "within", serialize_with = "in_seconds")]
        within_seconds: u32,
        /// Fields by which events belong together, 1 to 8.
        same: Vec<String>,
    },
}

/// The fields of a rule as a configuration and the log write them, whatever its form; none where one is left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct FilterFields {
    field: Option<String>,
    values: Option<BTreeSet<String>>,
    list: Option<String>,
    more_than: Option<u32>,
    needs: Option<String>,
    /// Such as `30s`.
    within: Option<String>,
    same: Option<Vec<String>>,
    all: Option<bool>,
}

/// Rules of a schema, at most.
pub const FILTERS_MAX: usize = 64;
/// Words that tell of events in reports beside the names of rules; more begin with `duplicate_`.
const WORDS: [&str; 5] = [
    "counted",
    "voided",
    "filtered",
    "filtered_live",
    "duplicate",
];
const VALUES_MAX: usize = 10_000;
const SAME_MAX: usize = 8;
const MORE_THAN_MAX: u32 = 1_000;
/// Longest reach of a rule, seconds: a day is judged with the events of one day before it.
const WITHIN_SECONDS_MAX: u32 = 86_400;

/// A rule in JSON: flat, and without what it leaves out.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    name: String,
    #[serde(default)]
    class: Class,
    #[serde(default)]
    events: Vec<String>,
    #[serde(flatten)]
    fields: FilterFields,
}

impl TryFrom<Named> for Filter {
    type Error = String;

    fn try_from(named: Named) -> Result<Self, String> {
        let form = named.fields.form();
        Ok(Self {
            form: form.map_err(|what| format!("filter `{}`: {what}", named.name.escape_debug()))?,
            name: named.name,
            class: named.class,
            events: named.events,
        })
    }
}

impl Class {
    /// All classes.
    pub const ALL: [Self; 2] = [Self::General, Self::Sophisticated];

    /// The word of the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::General => "general",
            Self::Sophisticated => "sophisticated",
        }
    }

    fn is_general(&self) -> bool {
        *self == Self::General
    }
}

impl FilterFields {
    /// The form that has these fields. The error names a field that is missing or one too many.
    pub fn form(self) -> Result<Form, String> {
        let given = self.given();
        let only = |wanted: &[&str]| match given.iter().find(|name| !wanted.contains(name)) {
            Some(name) => Err(format!(
                "`{name}` does not go with `{}`; leave one of them out",
                wanted[0]
            )),
            None => Ok(()),
        };
        if let Some(list) = self.list {
            only(&["list"])?;
            return Ok(Form::List { list });
        }
        if let Some(field) = self.field {
            only(&["field", "values"])?;
            let values = self.values.ok_or("`field` needs `values`")?;
            return Ok(Form::Values { field, values });
        }
        let Some(within) = self.within else {
            return Err("it needs `field` and `values`, `list`, or `within` and `same`".into());
        };
        let within_seconds = seconds(&within).ok_or_else(|| {
            format!(
                "within = \"{}\" must be 1 second to 24 hours, such as \"30s\", \"10m\" or \"1h\"",
                within.escape_debug()
            )
        })?;
        let same = self.same.ok_or("`within` needs `same`")?;
        match (self.more_than, self.needs) {
            (Some(more_than), _) => {
                only(&["more_than", "within", "same", "all"])?;
                Ok(Form::Rate {
                    more_than,
                    within_seconds,
                    same,
                    all: self.all.unwrap_or(false),
                })
            }
            (None, Some(needs)) => {
                only(&["needs", "within", "same"])?;
                Ok(Form::Needs {
                    needs,
                    within_seconds,
                    same,
                })
            }
            (None, None) => {
                only(&["within", "same"])?;
                Ok(Form::Repeat {
                    within_seconds,
                    same,
                })
            }
        }
    }

    /// The names of the fields that are not left out.
    fn given(&self) -> Vec<&'static str> {
        let fields = [
            ("field", self.field.is_some()),
            ("values", self.values.is_some()),
            ("list", self.list.is_some()),
            ("more_than", self.more_than.is_some()),
            ("needs", self.needs.is_some()),
            ("within", self.within.is_some()),
            ("same", self.same.is_some()),
            ("all", self.all.is_some()),
        ];
        let given = fields.into_iter().filter(|(_, is_given)| *is_given);
        given.map(|(name, _)| name).collect()
    }
}

fn in_seconds<S: Serializer>(seconds: &u32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{seconds}s"))
}

/// The seconds of a text such as `30s`, `10m` or `1h`, within bounds.
fn seconds(text: &str) -> Option<u32> {
    let seconds = length_seconds(text, &[('s', 1), ('m', 60), ('h', 3_600)])?;
    let seconds = u32::try_from(seconds).ok()?;
    (seconds <= WITHIN_SECONDS_MAX).then_some(seconds)
}

impl Filter {
    /// True where a rule of another declaration has the same name and catches the same events, as far as their lists
    /// agree.
    pub fn judges_as(&self, other: &Self) -> bool {
        self.name == other.name && self.events == other.events && self.form == other.form
    }

    /// A rule that catches events of these types (all, where there is none) with one of `values` in `field`.
    pub fn of_values(name: &str, events: &[&str], field: &str, values: &[&str]) -> Self {
        let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        Self {
            name: name.into(),
            class: Class::General,
            events: texts(events),
            form: Form::Values {
                field: field.into(),
                values: values.iter().map(|&value| value.to_owned()).collect(),
            },
        }
    }

    /// The fields by which a rule with memory tells which events belong together; none of another rule.
    pub(crate) fn same(&self) -> &[String] {
        match &self.form {
            Form::Values { .. } | Form::List { .. } => &[],
            Form::Repeat { same, .. } | Form::Rate { same, .. } | Form::Needs { same, .. } => same,
        }
    }

    /// The name of an entity that a field of `same` means: `ad`, or `entities.ad`.
    pub(crate) fn entity(field: &str) -> &str {
        field.strip_prefix("entities.").unwrap_or(field)
    }

    pub(crate) fn validate(&self, schema: &Schema) -> Result<(), String> {
        if !is_name(&self.name) {
            return Err(
                "its name must be 1 to 24 of a-z, 0-9 and _, starting with a letter".into(),
            );
        }
        if WORDS.contains(&&*self.name) || self.name.starts_with("duplicate_") {
            return Err(format!(
                "its name is the word of another verdict, and counts of both could not be told apart: name it otherwise \
                 than {} and `duplicate_…`",
                WORDS.map(|word| format!("`{word}`")).join(", ")
            ));
        }
        let unknown = |event: &&String| schema.event_type(event).is_none();
        if let Some(event) = self.events.iter().find(unknown) {
            return Err(format!("`{event}` is not a declared event type"));
        }
        match &self.form {
            Form::Values { field, values } => check_values(field, values, schema),
            Form::List { list } => match schema.lists.iter().any(|known| known.name == *list) {
                true => Ok(()),
                false => Err(format!(
                    "list = \"{}\" is not declared; declare it as [lists.{}]",
                    list.escape_debug(),
                    list.escape_debug()
                )),
            },
            Form::Repeat { same, .. } => self.check_same(same, None, schema),
            Form::Rate {
                same, more_than, ..
            } => {
                if !(1..=MORE_THAN_MAX).contains(more_than) {
                    return Err(format!(
                        "more_than = {more_than} must be 1 to {MORE_THAN_MAX}"
                    ));
                }
                self.check_same(same, None, schema)
            }
            Form::Needs { needs, same, .. } => {
                if schema.event_type(needs).is_none() {
                    return Err(format!(
                        "needs = \"{}\" is not a declared event type",
                        needs.escape_debug()
                    ));
                }
                if self.events.is_empty() || self.events.contains(needs) {
                    return Err(format!(
                        "`events` must name the types that need a `{needs}` before them, and not `{needs}` itself"
                    ));
                }
                self.check_same(same, Some(needs), schema)
            }
        }
    }

    /// Checks that every type of event of the rule can have these fields.
    fn check_same(
        &self,
        same: &[String],
        needs: Option<&String>,
        schema: &Schema,
    ) -> Result<(), String> {
        if !(1..=SAME_MAX).contains(&same.len()) {
            let fields = same.len();
            return Err(format!(
                "`same` names {fields} fields; name 1 to {SAME_MAX}"
            ));
        }
        let is_of_rule = |name: &String| {
            self.events.is_empty() || self.events.contains(name) || needs == Some(name)
        };
        let types = schema.events.iter().filter(|kind| is_of_rule(&kind.name));
        let types: Vec<_> = types.collect();
        for field in same {
            let is_known = match field.as_str() {
                "user" | "view" | "insertion" | "ip" => true,
                other => match other.strip_prefix("by.") {
                    Some(dimension) => schema.has_dimension(dimension),
                    None => types.iter().all(|kind| {
                        let mut entities = kind.entities.iter();
                        entities.any(|entity| entity == Self::entity(other))
                    }),
                },
            };
            if !is_known {
                return Err(format!(
                    "same = `{}` must be user, view, insertion, ip, by.<a declared subtotal>, or an entity of each of \
                     its event types",
                    field.escape_debug()
                ));
            }
        }
        Ok(())
    }
}

fn check_values(field: &str, values: &BTreeSet<String>, schema: &Schema) -> Result<(), String> {
    let known = match field.split_once('.') {
        None => ["user", "view"].contains(&field),
        Some(("by", dimension)) => schema.has_dimension(dimension),
        Some(("entities", entity)) => {
            let mut events = schema.events.iter();
            events.any(|event| event.entities.iter().any(|known| known == entity))
        }
        Some(_) => false,
    };
    if !known {
        return Err(format!(
            "field = `{}` must be user, view, by.<a declared subtotal> or entities.<a declared entity>",
            field.escape_debug()
        ));
    }
    if !(1..=VALUES_MAX).contains(&values.len()) {
        let values = values.len();
        return Err(format!("it has {values} values; give 1 to {VALUES_MAX}"));
    }
    Ok(())
}

impl Schema {
    /// True when a rule judges by evidence, which the door then hands on.
    pub fn judges_evidence(&self) -> bool {
        let by_ip = |filter: &Filter| filter.same().iter().any(|field| field == "ip");
        let mut filters = self.filters.iter();
        filters.any(|filter| matches!(filter.form, Form::List { .. }) || by_ip(filter))
    }

    fn has_dimension(&self, dimension: &str) -> bool {
        let mut namespaces = self.namespaces.iter();
        namespaces.any(|namespace| namespace.has_dimension(dimension))
    }

    pub(crate) fn validate_filters(&self) -> Result<(), SchemaError> {
        if self.filters.len() > FILTERS_MAX {
            let filters = self.filters.len();
            let text = format!("{filters} filters are declared; declare at most {FILTERS_MAX}");
            return Err(SchemaError(text));
        }
        self.filters.iter().try_for_each(|filter| {
            let checked = filter.validate(self);
            checked.map_err(|what| {
                SchemaError(format!("filter `{}`: {what}", filter.name.escape_debug()))
            })
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
