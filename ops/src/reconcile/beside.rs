//! The rules of a what-if beside those in force, and the way to bring them into force.

use serde_json::Value;
use tallyring_api::Days;
use tallyring_records::{RuleSet, Schema};

use crate::audit::differences;

/// The difference between the rules of a what-if and those in force.
pub(super) struct Beside {
    /// The names that differ, for people and for programs; none where nothing does.
    pub differs: Option<(String, Value)>,
    /// The way to bring them into force; none where they are.
    pub apply: Option<String>,
}

impl Beside {
    /// Compares the rules of a what-if for these days with those of the schema in force. `put` says how the content of
    /// a list comes into force, where the what-if is about that.
    pub(super) fn new(
        in_force: &Schema,
        rules: &RuleSet,
        (days, put): (Days, Option<&str>),
    ) -> Self {
        let now = Schema {
            filters: rules.filters.clone(),
            lists: rules.lists.clone(),
            ..in_force.clone()
        };
        if now == *in_force {
            return Self {
                differs: None,
                apply: None,
            };
        }
        let apply = match put {
            None => format!(
                "put them into the configuration, run `tallyring reload`, and then `tallyring reconcile {days}`"
            ),
            Some(put) if counts_on_file_alone(in_force, &now) => put.to_owned(),
            Some(put) => {
                format!(
                    "run `tallyring reload` first, which takes the rules of the configuration, then {put}"
                )
            }
        };
        Self {
            differs: Some(differences(in_force, &now)),
            apply: Some(apply),
        }
    }
}

/// True where the two differ in contents of lists alone, which a server takes when their files change.
fn counts_on_file_alone(in_force: &Schema, now: &Schema) -> bool {
    let declared = |schema: &Schema| {
        let lists = schema.lists.iter();
        let lists: Vec<_> = lists.map(|list| (list.name.clone(), list.kind)).collect();
        lists
    };
    in_force.filters == now.filters && declared(in_force) == declared(now)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tallyring_records::{Filter, List, ListKind};

    use super::*;

    fn list(name: &str, digit: &str) -> List {
        List {
            name: name.to_owned(),
            kind: ListKind::Ip,
            sha256: digit.repeat(64),
        }
    }

    fn rules(filters: &[(&str, &str)], lists: &[(&str, &str)]) -> RuleSet {
        let filters = filters.iter();
        let lists = lists.iter();
        RuleSet {
            filters: filters
                .map(|(name, value)| Filter::of_values(name, &[], "user", &[*value]))
                .collect(),
            lists: lists.map(|(name, digit)| list(name, digit)).collect(),
        }
    }

    #[test]
    fn rules_that_differ_from_those_in_force_are_named() {
        let days = Days::one("2012-03-16".parse().expect("a day"));
        let before = rules(&[("bots", "b"), ("own", "me")], &[("nets", "a")]);
        let mut in_force = Schema::default_clicks();
        in_force.filters.clone_from(&before.filters);
        in_force.lists.clone_from(&before.lists);
        let beside = |rules: &RuleSet, put| Beside::new(&in_force, rules, (days, put));
        let same = beside(&before, Some("put it"));
        assert!(same.differs.is_none() && same.apply.is_none());

        let other = rules(&[("bots", "c"), ("odd", "o")], &[("nets", "b")]);
        let told = beside(&other, None);
        let (text, says) = told.differs.expect("they differ");
        assert_eq!(text, "lists ~nets, rules +odd -own ~bots");
        assert_eq!(
            says["rules"],
            json!({"added": ["odd"], "removed": ["own"], "changed": ["bots"]})
        );
        let apply = told.apply.expect("a way");
        assert!(apply.contains("tallyring reconcile 2012-03-16"), "{apply}");
        let apply = beside(&other, Some("put it")).apply.expect("a way");
        assert!(apply.starts_with("run `tallyring reload` first") && apply.ends_with("put it"));

        let content = rules(&[("bots", "b"), ("own", "me")], &[("nets", "b")]);
        let told = beside(&content, Some("put it"));
        assert_eq!(told.apply.as_deref(), Some("put it"));
        assert_eq!(
            told.differs.map(|(text, _)| text).as_deref(),
            Some("lists ~nets")
        );
    }
}
