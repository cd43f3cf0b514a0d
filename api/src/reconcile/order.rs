//! The order to reconcile days, and its bounds.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tallyring_records::{Day, FieldError, ORDER_DAYS_MAX, RuleSet};

/// UTC days that follow each other, 1 to 400. Written `2012-03-16`, or `2012-03-01..2012-03-16` with both of them.
///
/// ```
/// use tallyring_api::Days;
///
/// let days: Days = "2012-02-28..2012-03-01".parse()?;
/// assert_eq!(days.iter().map(|day| day.to_string()).collect::<Vec<_>>(), [
///     "2012-02-28", "2012-02-29", "2012-03-01"
/// ]);
/// assert!("2012-03-02..2012-03-01".parse::<Days>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Days {
    first: Day,
    last: Day,
}

/// The order to reconcile days.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(into = "ReconcileBody")]
pub struct ReconcileOrder {
    /// The days.
    pub days: Days,
    /// Only tell what would change.
    pub dry_run: bool,
    /// Publish even what rules newly filter in excess of the guard.
    pub force: bool,
    /// The namespace or entity by whose keys the causes are told.
    pub by: Option<String>,
    /// Other rules than those in force, for a dry run.
    pub rules: Option<RuleSet>,
    /// The key that orders it, as in [`LoggedFinal`](tallyring_records::LoggedFinal). No body has it.
    pub actor: Option<String>,
}

/// The order to reconcile days, as it is sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = Reconcile, example = json!({ "day": "2012-03-16", "dry_run": true }))]
pub(crate) struct ReconcileBody {
    /// The UTC day, which is over and was closed by a rebuild
    #[schema(value_type = Option<String>, format = Date)]
    #[serde(skip_serializing_if = "Option::is_none")]
    day: Option<Day>,
    /// In place of `day`: the first of the days, which are reconciled in order, each by itself
    #[schema(value_type = Option<String>, format = Date)]
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<Day>,
    /// With `from`: the last of the days; at most 400
    #[schema(value_type = Option<String>, format = Date)]
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<Day>,
    /// Only tell what would change
    dry_run: bool,
    /// Publish although rules newly filter more than 20 % of an event type
    force: bool,
    /// Tell the causes by the keys of this namespace, or of this entity of event types, too
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    /// Judge by these `filters` and `lists` in the place of those in force; only with `dry_run`. A list has a `name`,
    /// `match` and the `sha256` of its content, which lies in the directory `rules/` of the server
    #[schema(value_type = Option<Object>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    rules: Option<RuleSet>,
}

impl Days {
    /// One day.
    pub fn one(day: Day) -> Self {
        Self {
            first: day,
            last: day,
        }
    }

    /// The days from `first` to `last`, both included. The error says how `last` is wrong.
    pub fn between(first: Day, last: Day) -> Result<Self, String> {
        let Some(more) = last.number().checked_sub(first.number()) else {
            return Err(format!("must be {first} or later"));
        };
        if more >= ORDER_DAYS_MAX {
            let days = u64::from(more) + 1;
            return Err(format!(
                "reaches {days} days from {first} on, and one order has at most {ORDER_DAYS_MAX}; order in parts"
            ));
        }
        Ok(Self { first, last })
    }

    /// How many there are.
    pub fn count(self) -> u32 {
        self.last.number() - self.first.number() + 1
    }

    /// The days in order.
    pub fn iter(self) -> impl Iterator<Item = Day> {
        self.first.through(self.last)
    }

    /// The first day.
    pub fn first(self) -> Day {
        self.first
    }

    /// The day, where there is one only.
    pub fn single(self) -> Option<Day> {
        (self.first == self.last).then_some(self.first)
    }

    /// The last day.
    pub fn last(self) -> Day {
        self.last
    }
}

impl FromStr for Days {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((first, last)) = text.split_once("..") else {
            return text.parse().map(Self::one);
        };
        let (first, last) = (first.parse()?, last.parse()?);
        Self::between(first, last).map_err(|what| format!("the last day, {last}, {what}"))
    }
}

impl fmt::Display for Days {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.single() {
            Some(day) => write!(f, "{day}"),
            None => write!(f, "{}..{}", self.first, self.last),
        }
    }
}

impl ReconcileOrder {
    /// The order to make a day final.
    pub fn of(day: Day) -> Self {
        Self {
            days: Days::one(day),
            dry_run: false,
            force: false,
            by: None,
            rules: None,
            actor: None,
        }
    }

    /// True where it asks for what another one does, whoever orders it.
    pub fn is_like(&self, other: &Self) -> bool {
        ReconcileBody::from(self.clone()) == ReconcileBody::from(other.clone())
    }

    /// True where nothing is published, whatever is found.
    pub fn only_tells(&self) -> bool {
        self.dry_run || self.rules.is_some()
    }
}

impl From<ReconcileOrder> for ReconcileBody {
    fn from(order: ReconcileOrder) -> Self {
        let (first, last) = (order.days.first(), order.days.last());
        let range = order.days.single().is_none();
        Self {
            day: order.days.single(),
            from: range.then_some(first),
            to: range.then_some(last),
            dry_run: order.dry_run,
            force: order.force,
            by: order.by,
            rules: order.rules,
        }
    }
}

impl ReconcileBody {
    /// The order of `actor`. The error names the field that does not go with the others.
    pub(crate) fn check(self, actor: &str) -> Result<ReconcileOrder, FieldError> {
        let text = |day: Option<Day>| day.map_or(String::new(), |day| day.to_string());
        let refused = |field: &str, value: &str, what: &str| {
            Err(FieldError::refused(field, value, what.to_owned()))
        };
        let days = match (self.day, self.from, self.to) {
            (Some(day), None, None) => Days::one(day),
            (None, Some(first), Some(last)) => Days::between(first, last)
                .map_err(|what| FieldError::refused("to", &last.to_string(), what))?,
            (Some(day), _, _) => {
                let what = "excludes `from` and `to`: give the day, or the first and the last one";
                return refused("day", &day.to_string(), what);
            }
            (None, None, None) => {
                let what =
                    "is missing: give the day, or `from` and `to` with the first and the last one";
                return refused("day", "", what);
            }
            (None, first, last) => {
                let what = "needs the other end: give `from` and `to`, both included";
                let (field, given) = match first {
                    Some(_) => ("from", first),
                    None => ("to", last),
                };
                return refused(field, &text(given), what);
            }
        };
        if self.rules.is_some() && !self.dry_run {
            let what = "must be true with `rules`, which only tell what would change: to apply them, put them into the \
                        configuration, reload it, and reconcile without `rules`";
            return refused("dry_run", "false", what);
        }
        Ok(ReconcileOrder {
            days,
            dry_run: self.dry_run,
            force: self.force,
            by: self.by,
            rules: self.rules,
            actor: Some(actor.to_owned()),
        })
    }
}
