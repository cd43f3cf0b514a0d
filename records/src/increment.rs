//! An increment: a count, and every key and breakdown value that it counts on.

use compact_str::CompactString;

use crate::details::Details;
use crate::error::FieldError;
use crate::events::EventType;
use crate::names::is_same;
use crate::pseudonym::is_pseudonym;
use crate::schema::Schema;
use crate::time_code::{TIME_MAX, TIME_MIN};

/// A name, key or value. Up to 24 bytes, the usual length, need no allocation.
pub type Text = CompactString;

/// One increment as the log holds it: raw keys and values, nothing hashed or defaulted.
///
/// ```
/// use tallyring_records::{Increment, Schema};
///
/// let mut click = Increment::new(1_331_923_247, 1, [("l", "abc"), ("u", "jehiah")]);
/// click.by = vec![("c".into(), "US".into())];
/// assert_eq!(click.value("c"), Some("US"));
/// assert!(click.validate(&Schema::default_clicks()).is_ok());
///
/// let stranger = Increment::new(1_331_923_247, 1, [("nope", "abc")]);
/// assert!(stranger.validate(&Schema::default_clicks()).is_err());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Increment {
    /// The time of the click, Unix seconds.
    pub at: i64,
    /// The count, 1 to [`COUNT_MAX`].
    pub n: u64,
    /// `(namespace, raw key)`, at least one, each namespace at most once.
    pub keys: Vec<(Text, Text)>,
    /// `(dimension, raw value)`; an empty value is missing.
    pub by: Vec<(Text, Text)>,
    /// The id, which makes a retry harmless: one id counts once. 1 to [`ID_BYTES_MAX`] bytes.
    pub id: Option<String>,
    /// The user, for counts of distinct users. 1 to [`ID_BYTES_MAX`] bytes.
    pub user: Option<String>,
    /// Fields that only an event has.
    pub event: Option<Box<Event>>,
    /// The identity to which the id or the producer belongs; none where the store had no keys. The store sets this when
    /// it logs the increment.
    pub identity: Option<Text>,
    /// The number from a producer that numbers its increments instead of giving ids.
    pub origin: Option<Box<Origin>>,
    /// Fields that are logged and never counted.
    pub details: Option<Box<Details>>,
}

/// The number of an increment among all that its producer sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The name of the producer, 1 to [`ID_BYTES_MAX`] bytes.
    pub producer: String,
    /// Rises when the producer begins anew. The server refuses increments of an earlier epoch.
    pub epoch: u64,
    /// One more than the number of the producer's increment before.
    pub sequence: u64,
}

/// The fields of an increment that came as an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The declared type.
    pub kind: String,
    /// The page or screen of the event, such as `home`. Filters may name it.
    pub view: Option<String>,
    /// True when the event came after its time was settled. The store decides this when it logs the event.
    pub correction: bool,
}

/// Largest count of one increment and of one counter: 2^53−1, exact in JSON everywhere.
pub const COUNT_MAX: u64 = (1 << 53) - 1;
/// Longest raw key or value, bytes.
pub const KEY_BYTES_MAX: usize = 2_048;
/// Longest id or user, bytes.
pub const ID_BYTES_MAX: usize = 256;
/// Most keys or values in one increment.
pub const KEYS_MAX: usize = 32;
/// How far ahead of the clock an increment may lie, seconds.
pub const SKEW_SECONDS_MAX: i64 = 86_400;

impl Increment {
    /// An increment by `n` at a time (Unix seconds) on these keys, without breakdowns, id or user.
    pub fn new<N: Into<Text>, K: Into<Text>>(
        at: i64,
        n: u64,
        keys: impl IntoIterator<Item = (N, K)>,
    ) -> Self {
        let keys = keys.into_iter();
        Self {
            at,
            n,
            keys: keys.map(|(name, key)| (name.into(), key.into())).collect(),
            ..Self::default()
        }
    }

    /// Checks everything that does not depend on the clock. The error names the first wrong field, as a client names
    /// it.
    pub fn validate(&self, schema: &Schema) -> Result<(), FieldError> {
        if self.n == 0 || self.n > COUNT_MAX {
            return Err(FieldError::malformed(
                "n",
                &self.n.to_string(),
                format!("must be 1 to {COUNT_MAX}"),
            ));
        }
        self.validate_keys(schema)?;
        self.validate_by(schema)?;
        if self.id.is_some() && self.origin.is_some() {
            return Err(FieldError::missing(
                "producer",
                "comes with an id; give an id, or producer, epoch and sequence",
            ));
        }
        if self
            .origin
            .as_ref()
            .is_some_and(|origin| origin.sequence == u64::MAX)
        {
            return Err(FieldError::malformed(
                "sequence",
                &u64::MAX.to_string(),
                "is the largest number there is; begin a new epoch at 0",
            ));
        }
        let producer = self.origin.as_ref().map(|origin| &origin.producer);
        let named = [
            ("id", self.id.as_ref()),
            ("user", self.user.as_ref()),
            ("producer", producer),
        ];
        for (field, value) in named {
            if let Some(value) = value
                && (value.is_empty() || value.len() > ID_BYTES_MAX)
            {
                return Err(FieldError::malformed(
                    field,
                    value,
                    format!(
                        "is {} bytes; must be 1 to {ID_BYTES_MAX}, or left out",
                        value.len()
                    ),
                ));
            }
        }
        match &self.user {
            Some(user) if is_pseudonym(user) => Err(FieldError::malformed(
                "user",
                user,
                "is a pseudonym, which stands for a user in the log; give the name",
            )),
            _ => Ok(()),
        }
    }

    /// True when the schema has all that the increment names: [`Increment::validate`] accepts the increment, and the
    /// type of an event counts each of its entities.
    pub fn is_declared(&self, schema: &Schema) -> bool {
        let counts = |kind: &EventType, namespace: &str| {
            let entity = kind.entity_of(namespace);
            entity.is_some_and(|entity| kind.entities.iter().any(|known| known == entity))
        };
        let is_event = self.event.as_ref().is_none_or(|event| {
            let kind = schema.event_type(&event.kind);
            kind.is_some_and(|kind| self.keys.iter().all(|(name, _)| counts(kind, name)))
        });
        is_event && self.validate(schema).is_ok()
    }

    fn validate_keys(&self, schema: &Schema) -> Result<(), FieldError> {
        if self.keys.is_empty() {
            return Err(FieldError::missing(
                "keys",
                format!(
                    "must name at least one key; the namespaces are {}",
                    schema.names()
                ),
            ));
        }
        at_most("keys", self.keys.len())?;
        for (index, (name, key)) in self.keys.iter().enumerate() {
            let field = || format!("keys.{name}");
            if schema.namespace(name).is_none() {
                return Err(FieldError::malformed(
                    field(),
                    key,
                    format!("is not a declared namespace; use one of {}", schema.names()),
                ));
            }
            if self.keys[..index]
                .iter()
                .any(|(earlier, _)| is_same(earlier, name))
            {
                return Err(FieldError::malformed(
                    field(),
                    key,
                    "is given twice; name each namespace once",
                ));
            }
            if key.is_empty() {
                return Err(FieldError::malformed(
                    field(),
                    key,
                    "is empty; give the key or leave the namespace out",
                ));
            }
            check_length(field, key)?;
        }
        Ok(())
    }

    fn validate_by(&self, schema: &Schema) -> Result<(), FieldError> {
        at_most("by", self.by.len())?;
        for (index, (dimension, value)) in self.by.iter().enumerate() {
            let field = || format!("by.{dimension}");
            if !self.declares(schema, dimension) {
                return Err(FieldError::malformed(
                    field(),
                    value,
                    "is a subtotal of none of the namespaces that are named; declare the subtotal or leave it out",
                ));
            }
            if self.by[..index]
                .iter()
                .any(|(earlier, _)| is_same(earlier, dimension))
            {
                return Err(FieldError::malformed(
                    field(),
                    value,
                    "is given twice; give one value",
                ));
            }
            check_length(field, value)?;
        }
        Ok(())
    }

    /// The raw value of a dimension; `None` when it is missing or empty.
    pub fn value(&self, dimension: &str) -> Option<&str> {
        self.by
            .iter()
            .find(|(name, _)| is_same(name, dimension))
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }
}

/// Checks a time against the clock (both Unix seconds). Refuses a time before 2000, or more than [`SKEW_SECONDS_MAX`]
/// ahead of `now`.
pub fn check_time(at: i64, now: i64) -> Result<(), FieldError> {
    if at < TIME_MIN {
        return Err(FieldError::refused(
            "at",
            &at.to_string(),
            "lies before 2000-01-01; hours are counted from 2000 on",
        ));
    }
    let latest = now.saturating_add(SKEW_SECONDS_MAX);
    if at > latest || at >= TIME_MAX {
        return Err(FieldError::refused(
            "at",
            &at.to_string(),
            format!(
                "lies more than 24 hours ahead of the server's clock; times up to {latest} are accepted (Unix seconds)"
            ),
        ));
    }
    Ok(())
}

fn at_most(field: &str, found: usize) -> Result<(), FieldError> {
    if found > KEYS_MAX {
        return Err(FieldError::malformed(
            field,
            &found.to_string(),
            format!("has more than {KEYS_MAX} entries"),
        ));
    }
    Ok(())
}

fn check_length(field: impl Fn() -> String, value: &str) -> Result<(), FieldError> {
    if value.len() > KEY_BYTES_MAX {
        return Err(FieldError::malformed(
            field(),
            value,
            format!(
                "is {} bytes; at most {KEY_BYTES_MAX} are accepted",
                value.len()
            ),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn click(keys: &[(&str, &str)], by: &[(&str, &str)]) -> Increment {
        let by = by.iter().map(|&(name, value)| (name.into(), value.into()));
        Increment {
            by: by.collect(),
            ..Increment::new(1_331_923_247, 1, keys.iter().copied())
        }
    }

    fn refused_field(increment: &Increment) -> Option<String> {
        increment
            .validate(&Schema::default_clicks())
            .err()
            .map(|error| error.field)
    }

    #[test]
    fn a_good_click_passes_and_each_bad_field_is_named() {
        assert_eq!(
            refused_field(&click(
                &[("l", "abc"), ("u", "jehiah")],
                &[("c", "US"), ("v", "phone")]
            )),
            None
        );
        assert_eq!(refused_field(&click(&[], &[])), Some("keys".into()));
        assert_eq!(
            refused_field(&click(&[("x", "abc")], &[])),
            Some("keys.x".into())
        );
        assert_eq!(
            refused_field(&click(&[("l", "")], &[])),
            Some("keys.l".into())
        );
        assert_eq!(
            refused_field(&click(&[("l", "a"), ("l", "b")], &[])),
            Some("keys.l".into())
        );
        assert_eq!(
            refused_field(&click(&[("u", "a")], &[("v", "phone")])),
            Some("by.v".into())
        );
        assert_eq!(
            refused_field(&click(&[("l", &"x".repeat(2_049))], &[])),
            Some("keys.l".into())
        );
        let zero = Increment {
            n: 0,
            ..click(&[("l", "a")], &[])
        };
        assert_eq!(refused_field(&zero), Some("n".into()));
    }

    #[test]
    fn times_are_bounded_on_both_sides() {
        let now = 1_331_923_247;
        assert!(check_time(now + SKEW_SECONDS_MAX, now).is_ok());
        assert!(check_time(now + SKEW_SECONDS_MAX + 1, now).is_err());
        assert!(check_time(TIME_MIN, now).is_ok());
        assert!(check_time(TIME_MIN - 1, now).is_err());
        assert!(check_time(i64::MAX, i64::MAX).is_err());
    }
}
