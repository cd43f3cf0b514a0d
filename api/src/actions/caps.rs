//! Declared caps: how often a user may see something within a range, and floors, which ask whether it was often enough.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde_json::{Value, json};
use tallyring_records::{Schema, is_name};

use super::range::Range;
use crate::write::event::VIEW_BYTES_MAX;

/// Rules about actions that the configuration gives.
#[derive(Debug, Clone)]
pub struct ActionRules {
    /// How many days actions are kept at least.
    pub keep_days: u32,
    /// Caps by name.
    pub(super) caps: Vec<Cap>,
}

/// One `[caps.<name>]` of the configuration.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapSection {
    entity: String,
    action: String,
    within: String,
    limit: Option<u64>,
    floor: Option<u64>,
    #[serde(default)]
    view: Vec<String>,
}

/// A cap or a floor.
#[derive(Debug, Clone)]
pub(super) struct Cap {
    pub name: String,
    pub entity: String,
    pub action: String,
    pub within: Range,
    pub bound: Bound,
    /// Views that count; all where there are none.
    pub views: Vec<String>,
}

/// The number that a cap compares with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bound {
    /// So many are allowed.
    Limit(u64),
    /// So many are wanted.
    Floor(u64),
}

impl Default for ActionRules {
    /// Keeps actions for 32 days, and has no caps.
    fn default() -> Self {
        Self {
            keep_days: 32,
            caps: Vec::new(),
        }
    }
}

impl ActionRules {
    /// A line about each cap, for people.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.caps.iter().map(ToString::to_string)
    }

    /// The caps, for programs.
    pub fn json(&self) -> Value {
        let cap = |cap: &Cap| {
            let (limit, floor) = match cap.bound {
                Bound::Limit(limit) => (Some(limit), None),
                Bound::Floor(floor) => (None, Some(floor)),
            };
            json!({
                "name": cap.name, "entity": cap.entity, "action": cap.action, "within": *cap.within.name,
                "limit": limit, "floor": floor, "view": cap.views,
            })
        };
        self.caps.iter().map(cap).collect()
    }

    /// Checks the caps of a configuration.
    ///
    /// # Errors
    /// The first cap that counts what is not declared, or has a range that is not kept; as a sentence.
    pub fn new(
        keep_days: u32,
        caps: BTreeMap<String, CapSection>,
        schema: &Schema,
    ) -> Result<Self, String> {
        let caps = caps
            .into_iter()
            .map(|(name, section)| section.check(name, keep_days, schema));
        Ok(Self {
            keep_days,
            caps: caps.collect::<Result<_, _>>()?,
        })
    }
}

impl fmt::Display for Cap {
    /// Says what it allows, for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            entity,
            action,
            within,
            ..
        } = self;
        match self.bound {
            Bound::Limit(limit) => write!(f, "cap {name}: at most {limit}")?,
            Bound::Floor(floor) => write!(f, "floor {name}: at least {floor}")?,
        }
        write!(
            f,
            " × {action} of one {entity} within {} for each user",
            within.name
        )?;
        match &self.views[..] {
            [] => Ok(()),
            views => write!(f, ", on {}", views.join(", ").escape_debug()),
        }
    }
}

impl CapSection {
    fn check(self, name: String, keep_days: u32, schema: &Schema) -> Result<Cap, String> {
        let wrong = |field: &str, why: String| format!("caps.{name}.{field} {why}");
        if !is_name(&name) {
            return Err(format!(
                "caps.{name}: a name is 1 to 24 of a-z, 0-9 and _, and begins with a letter"
            ));
        }
        let kept = schema.events.iter().filter(|event| event.actions);
        let kind = kept
            .clone()
            .find(|event| event.name == self.action)
            .ok_or_else(|| {
                let kept: Vec<&str> = kept.clone().map(|event| event.name.as_str()).collect();
                let why = format!(
                    "= \"{}\" must be a type of event whose actions are kept: {}",
                    self.action,
                    kept.join(", ")
                );
                wrong("action", why)
            })?;
        if !kind.entities.contains(&self.entity) {
            let why = format!(
                "= \"{}\" must be an entity of {}: {}",
                self.entity,
                kind.name,
                kind.entities.join(", ")
            );
            return Err(wrong("entity", why));
        }
        let within = Range::parse("within", &self.within, keep_days)
            .map_err(|error| wrong("within", format!("= \"{}\" {}", self.within, error.detail)))?;
        let is_view = |view: &&String| (1..=VIEW_BYTES_MAX).contains(&view.len());
        if let Some(view) = self.view.iter().find(|view| !is_view(view)) {
            let why = format!(
                "has a view of {} bytes; a view of an event has 1 to {VIEW_BYTES_MAX}",
                view.len()
            );
            return Err(wrong("view", why));
        }
        let bound = match (self.limit, self.floor) {
            (Some(limit), None) => Bound::Limit(limit),
            (None, Some(floor)) => Bound::Floor(floor),
            _ => {
                return Err(wrong(
                    "limit",
                    "or `floor` must be given, and not both".to_owned(),
                ));
            }
        };
        Ok(Cap {
            name,
            entity: self.entity,
            action: self.action,
            within,
            bound,
            views: self.view,
        })
    }
}
