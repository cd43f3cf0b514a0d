//! The rules in force, ready to judge events: those that look at one event, and those with memory.

mod list;
mod memory;
mod set;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use thiserror::Error;

use crate::evidence::address;
use crate::filter::{Filter, Form};
use crate::increment::{Event, Increment};
use crate::pseudonym::is_pseudonym;
use crate::schema::Schema;

pub use list::{
    LIST_BYTES_MAX, List, ListError, ListKind, check_list, check_new_list, content_hash,
};
pub use memory::{Memory, MemoryRule, NameUser, Role};
pub use set::RuleSet;

use list::{Content, Search};

/// The filters of a schema with the contents of its lists. A clone shares the contents.
///
/// ```
/// use tallyring_records::{Filter, Increment, Rules, Schema};
///
/// let mut schema = Schema::default_clicks();
/// schema.filters.push(Filter::of_values("own", &[], "user", &["me"]));
/// let rules = Rules::compile(&schema, &|_| None)?;
/// let judged = rules.stateless(&Increment::new(1_331_923_247, 1, [("l", "abc")]));
/// assert_eq!(judged.caught, None, "increments are not filtered");
/// # Ok::<(), tallyring_records::RulesError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Rules {
    stateless: Vec<Stateless>,
    memory: Vec<MemoryRule>,
    lists: BTreeMap<String, Arc<Content>>,
}

/// The verdict of the rules that look at one event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Judged {
    /// The first rule that catches the event, by its index in `Schema::filters`.
    pub caught: Option<usize>,
    /// True when no rule catches the event, and some rule of its type lacked the evidence to judge it.
    pub undecided: bool,
}

/// A list cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RulesError {
    /// Its content is not there.
    #[error(
        "list `{list}`: its content, rules/{sha256} of the data directory, is missing or damaged: restore it from a \
         backup, or start the server with a configuration that names the file of the list"
    )]
    Missing {
        /// Name of the list.
        list: String,
        /// SHA-256 of the content, hexadecimal.
        sha256: String,
    },
    /// Its content is wrong.
    #[error("list `{list}`: {error}")]
    Wrong {
        /// Name of the list.
        list: String,
        /// The fault, with its line.
        error: ListError,
    },
}

/// A rule that looks at one event.
#[derive(Debug, Clone)]
struct Stateless {
    /// Index in `Schema::filters`.
    index: usize,
    events: Vec<String>,
    condition: Condition,
}

#[derive(Debug, Clone)]
enum Condition {
    Values(Field, BTreeSet<String>),
    /// None where the content is missing: the rule decides nothing.
    List(Option<Arc<Content>>),
}

/// A field of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Field {
    User,
    View,
    Insertion,
    Ip,
    By(String),
    /// Each type of event that has the entity, with the namespace in which that type counts it.
    Entity(Vec<(String, String)>),
}

/// The evidence of one event, each part read when it is first asked for.
struct Seen<'i> {
    increment: &'i Increment,
    ip: OnceCell<Option<IpAddr>>,
}

impl Rules {
    /// The rules of a schema. `content` returns the bytes of a list by their SHA-256; they are checked against it. An
    /// error names the list that cannot be used.
    pub fn compile(
        schema: &Schema,
        content: &dyn Fn(&str) -> Option<Vec<u8>>,
    ) -> Result<Self, RulesError> {
        let (rules, wrong) = Self::compile_usable(schema, content, &Self::default());
        match wrong.into_iter().next() {
            Some((_, error)) => Err(error),
            None => Ok(rules),
        }
    }

    /// As [`Rules::compile`], with every list that can be used; each of the others with its error. Rules of these
    /// decide nothing. Contents that `before` has are taken from it.
    pub fn compile_usable(
        schema: &Schema,
        content: &dyn Fn(&str) -> Option<Vec<u8>>,
        before: &Self,
    ) -> (Self, Vec<(String, RulesError)>) {
        let known: BTreeMap<&str, &Arc<Content>> = before
            .lists
            .values()
            .map(|content| (&*content.sha256, content))
            .collect();
        let mut wrong = Vec::new();
        let mut lists = BTreeMap::new();
        for list in &schema.lists {
            let kept = known.get(list.sha256.as_str());
            let kept = kept.filter(|content| content.kind == list.kind);
            let read = match kept {
                Some(content) => Ok(Arc::clone(content)),
                None => list.read(content).map(Arc::new),
            };
            match read {
                Ok(content) => drop(lists.insert(list.name.clone(), content)),
                Err(error) => wrong.push((list.name.clone(), error)),
            }
        }
        let mut rules = Self {
            lists,
            ..Self::default()
        };
        for (index, filter) in schema.filters.iter().enumerate() {
            rules.add(index, filter, schema);
        }
        (rules, wrong)
    }

    /// Judges an event by the rules that look at it alone. Increments that are no events are never caught.
    pub fn stateless(&self, increment: &Increment) -> Judged {
        let Some(event) = &increment.event else {
            return Judged::default();
        };
        let seen = Seen::new(increment);
        let mut undecided = false;
        for rule in &self.stateless {
            if !is_of(&rule.events, &event.kind) {
                continue;
            }
            match rule.condition.catches(event, &seen) {
                Some(true) => {
                    return Judged {
                        caught: Some(rule.index),
                        undecided: false,
                    };
                }
                Some(false) => {}
                None => undecided = true,
            }
        }
        Judged {
            caught: None,
            undecided,
        }
    }

    /// Whether a rule, by its index in `Schema::filters`, can judge the event: it lacks none of the evidence.
    pub fn decides(&self, index: usize, increment: &Increment) -> bool {
        let Some(event) = &increment.event else {
            return true;
        };
        let mut stateless = self.stateless.iter();
        if let Some(rule) = stateless.find(|rule| rule.index == index) {
            let is_decided = || {
                rule.condition
                    .catches(event, &Seen::new(increment))
                    .is_some()
            };
            return !is_of(&rule.events, &event.kind) || is_decided();
        }
        let mut memory = self.memory.iter();
        let rule = memory.find(|rule| rule.index() == index);
        rule.is_none_or(|rule| rule.role(increment).is_none() || rule.key(increment).is_some())
    }

    /// The rules with memory, in the order of `Schema::filters`.
    pub fn memory_rules(&self) -> impl Iterator<Item = &MemoryRule> {
        self.memory.iter()
    }

    /// True when there is no rule.
    pub fn is_empty(&self) -> bool {
        self.stateless.is_empty() && self.memory.is_empty()
    }

    /// How many patterns or networks a list holds; none where it cannot be used.
    pub fn entries(&self, list: &str) -> Option<usize> {
        self.lists.get(list).map(|content| content.entries)
    }

    fn add(&mut self, index: usize, filter: &Filter, schema: &Schema) {
        let condition = match &filter.form {
            Form::Values { field, values } => {
                Condition::Values(Field::of(field, schema), values.clone())
            }
            Form::List { list } => Condition::List(self.lists.get(list).cloned()),
            Form::Repeat { .. } | Form::Rate { .. } | Form::Needs { .. } => {
                self.memory.extend(MemoryRule::new(index, filter, schema));
                return;
            }
        };
        self.stateless.push(Stateless {
            index,
            events: filter.events.clone(),
            condition,
        });
    }
}

/// True when a rule of these types, or of all where there is none, judges events of this one.
fn is_of(events: &[String], kind: &str) -> bool {
    events.is_empty() || events.iter().any(|of| of == kind)
}

impl Condition {
    /// Whether the rule catches the event; none where the event lacks the evidence.
    fn catches(&self, event: &Event, seen: &Seen<'_>) -> Option<bool> {
        match self {
            // A field that is left out has none of the values.
            // Nobody can tell who has a pseudonym.
            Self::Values(Field::User, _) if seen.has_pseudonym() => None,
            Self::Values(field, values) => {
                let value = field.value(seen.increment, event);
                Some(value.is_some_and(|value| values.contains(value)))
            }
            Self::List(content) => match &content.as_deref()?.search {
                Search::Networks(list) => Some(list.contains(seen.ip()?)),
                Search::Patterns(list) => Some(list.is_match(seen.ua()?)),
            },
        }
    }
}

impl Field {
    fn of(text: &str, schema: &Schema) -> Self {
        match text {
            "user" => Self::User,
            "view" => Self::View,
            "insertion" => Self::Insertion,
            "ip" => Self::Ip,
            other => match other.strip_prefix("by.") {
                Some(dimension) => Self::By(dimension.into()),
                None => {
                    let entity = Filter::entity(other);
                    let types = schema.events.iter();
                    let types = types.filter(|kind| kind.entities.iter().any(|of| of == entity));
                    Self::Entity(
                        types
                            .map(|kind| (kind.name.clone(), kind.namespace_of(entity)))
                            .collect(),
                    )
                }
            },
        }
    }

    /// The text of the field, as it was sent; none where it is left out or empty.
    fn value<'i>(&self, increment: &'i Increment, event: &'i Event) -> Option<&'i str> {
        let value = match self {
            Self::User => increment.user.as_deref(),
            Self::View => event.view.as_deref(),
            Self::Insertion => increment.details.as_ref()?.insertion.as_deref(),
            Self::Ip => increment.details.as_ref()?.evidence.ip.as_deref(),
            Self::By(dimension) => increment.value(dimension),
            Self::Entity(types) => {
                let (_, namespace) = types.iter().find(|(kind, _)| *kind == event.kind)?;
                let mut keys = increment.keys.iter();
                let found = keys.find(|(name, _)| name == namespace);
                found.map(|(_, key)| key.as_str())
            }
        };
        value.filter(|value| !value.is_empty())
    }
}

impl<'i> Seen<'i> {
    fn new(increment: &'i Increment) -> Self {
        Self {
            increment,
            ip: OnceCell::new(),
        }
    }

    fn has_pseudonym(&self) -> bool {
        let user = self.increment.user.as_deref();
        user.is_some_and(is_pseudonym)
    }

    fn ip(&self) -> Option<IpAddr> {
        *self.ip.get_or_init(|| {
            let details = self.increment.details.as_ref()?;
            address(details.evidence.ip.as_deref()?)
        })
    }

    fn ua(&self) -> Option<&'i str> {
        let details = self.increment.details.as_ref()?;
        details.evidence.ua.as_deref()
    }
}

#[cfg(test)]
mod tests;
