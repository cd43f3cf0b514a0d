//! Rules apart from the other declarations of a schema, as a what-if gives them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{List, RulesError};
use crate::error::FieldError;
use crate::filter::Filter;
use crate::schema::Schema;

/// Filters and lists. A list is named by the hash of its content.
///
/// ```
/// use tallyring_records::{Filter, RuleSet, Schema};
///
/// let mut rules = RuleSet::default();
/// rules.filters.push(Filter::of_values("own", &[], "user", &["me"]));
/// assert_eq!(Schema::default_clicks().with_rules(&rules)?.filters, rules.filters);
/// rules.filters.push(Filter::of_values("bots", &[], "by.colour", &["red"]));
/// let error = Schema::default_clicks().with_rules(&rules).unwrap_err();
/// assert_eq!(error.field, "rules.filters.bots");
/// # Ok::<(), tallyring_records::FieldError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RuleSet {
    /// In the order in which they judge; names are unique.
    pub filters: Vec<Filter>,
    /// Lists that the filters judge by; names are unique.
    pub lists: Vec<List>,
}

impl Schema {
    /// This schema with other rules. The error names the first filter or list that cannot be used, such as
    /// `rules.filters.bots`, and what to change.
    pub fn with_rules(&self, rules: &RuleSet) -> Result<Self, FieldError> {
        let schema = Self {
            filters: rules.filters.clone(),
            lists: rules.lists.clone(),
            ..self.clone()
        };
        schema.validate_lists().map_err(|error| {
            let names = rules.lists.iter().map(|list| &*list.name);
            let names: Vec<&str> = names.collect();
            FieldError::refused("rules.lists", &names.join(", "), error.to_string())
        })?;
        let mut names = BTreeSet::new();
        for filter in &schema.filters {
            let name = filter.name.escape_debug();
            let refused = |what: String| {
                let value = serde_json::to_string(filter).unwrap_or_default();
                let detail = format!("filter `{name}`: {what}");
                FieldError::refused(format!("rules.filters.{name}"), &value, detail)
            };
            if !names.insert(&filter.name) {
                return Err(refused("it is given twice; keep one".into()));
            }
            filter.validate(&schema).map_err(refused)?;
        }
        let checked = schema.validate_filters();
        checked.map_err(|error| {
            let filters = schema.filters.len().to_string();
            FieldError::refused("rules.filters", &filters, error.to_string())
        })?;
        Ok(schema)
    }
}

impl RulesError {
    /// This error as one about a list of a [`RuleSet`].
    pub fn of_set(self) -> FieldError {
        match self {
            Self::Missing { list, sha256 } => FieldError::refused(
                format!("rules.lists.{list}"),
                &sha256,
                format!(
                    "has a content that is missing or damaged: rules/{sha256} of the data directory; `tallyring reconcile \
                     DAY --rules FILE` puts the contents of the lists of FILE there"
                ),
            ),
            Self::Wrong { list, error } => {
                let field = format!("rules.lists.{list}");
                FieldError::refused(field, &list, format!("cannot be used: {error}"))
            }
        }
    }
}
