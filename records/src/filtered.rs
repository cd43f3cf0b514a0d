//! Counts of filtered events: what rules kept from being counted in a namespace `l` counts in `l~`, by rule.
//!
//! Each filtered event is followed in the log by an ordinary increment of these namespaces, so everything that counts,
//! merges and reads counts does so with them, too. No name that people declare has a `~`.

use std::sync::LazyLock;

use crate::increment::{Increment, Text};
use crate::schema::{Namespace, Schema};
use crate::time_code::Grain;

/// Ends the name of a namespace of filtered events.
pub const FILTERED_MARK: char = '~';

/// The subtotal, and the dimension, by which filtered events count: the rule that caught them.
pub const RULE: &str = "rule";

/// The namespace of what was filtered of a namespace: `l~` of `l`.
pub fn filtered_namespace(name: &str) -> String {
    format!("{name}{FILTERED_MARK}")
}

/// The namespace whose filtered events a name counts: `l` of `l~`; none for any other name.
pub fn filtered_of(name: &str) -> Option<&str> {
    name.strip_suffix(FILTERED_MARK)
}

impl Schema {
    /// How a namespace counts: a declared one as it says, and `l~` of a declared `l` by rule, without minutes and
    /// users.
    ///
    /// ```
    /// use tallyring_records::Schema;
    ///
    /// let schema = Schema::default_clicks();
    /// assert_eq!(schema.counted("l"), schema.namespace("l"));
    /// assert_eq!(schema.counted("l~").unwrap().subtotals, ["rule"]);
    /// assert_eq!(schema.counted("x~"), None);
    /// ```
    pub fn counted(&self, name: &str) -> Option<&Namespace> {
        self.namespace(name)
            .or_else(|| Some(of_filtered(self.namespace(filtered_of(name)?)?.grain)))
    }

    /// How many namespaces may have counts: the declared ones and, where there are rules, those of filtered events.
    pub fn counted_namespaces(&self) -> usize {
        match self.filters.is_empty() {
            true => self.namespaces.len(),
            false => 2 * self.namespaces.len(),
        }
    }
}

/// How namespaces of filtered events count; the name is for messages.
fn of_filtered(grain: Grain) -> &'static Namespace {
    static OF_GRAINS: LazyLock<Vec<Namespace>> = LazyLock::new(|| {
        let of_grain = |grain| Namespace {
            name: "a namespace of filtered events".to_owned(),
            title: "Filtered".to_owned(),
            grain,
            subtotals: vec![RULE.to_owned()],
            minutes: false,
            uniques: false,
        };
        Grain::ALL.map(of_grain).to_vec()
    });
    let mut known = OF_GRAINS.iter();
    known
        .find(|namespace| namespace.grain == grain)
        .expect("BUG: there is a namespace of each grain")
}

impl Increment {
    /// The increment that counts this one as filtered, on the same keys.
    pub fn filtered_by(&self, rule: &str) -> Self {
        let keys = self.keys.iter();
        let keys = keys.map(|(name, key)| (filtered_namespace(name), key.clone()));
        Self {
            by: vec![(RULE.into(), rule.into())],
            ..Self::new(self.at, self.n, keys)
        }
    }

    /// The rule, where this is what a filtered increment counts.
    pub fn filtering_rule(&self) -> Option<&Text> {
        let (name, _) = self.keys.first()?;
        let (dimension, rule) = self.by.first()?;
        (filtered_of(name).is_some() && dimension == RULE).then_some(rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filtered_increment_counts_its_keys_by_rule_and_nothing_else() {
        let click = Increment {
            by: vec![("c".into(), "US".into())],
            id: Some("e1".to_owned()),
            user: Some("jehiah".to_owned()),
            ..Increment::new(1_331_923_247, 7, [("l", "abc"), ("u", "jehiah")])
        };
        assert_eq!(click.filtering_rule(), None);
        let filtered = click.filtered_by("bots");
        let expected = Increment {
            by: vec![("rule".into(), "bots".into())],
            ..Increment::new(1_331_923_247, 7, [("l~", "abc"), ("u~", "jehiah")])
        };
        assert_eq!(filtered, expected);
        assert_eq!(filtered.filtering_rule().unwrap(), "bots");
    }
}
