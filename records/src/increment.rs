//! An increment: one click, or several of the same kind, on every key it touches.

use compact_str::CompactString;

use crate::error::FieldError;
use crate::names::is_same;
use crate::schema::Schema;
use crate::time_code::{TIME_MAX, TIME_MIN};

/// A name, key or value: up to 24 bytes, which most have, take no memory of their own.
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Increment {
    /// When it happened, Unix seconds.
    pub at: i64,
    /// How many, 1 to [`COUNT_MAX`].
    pub n: u64,
    /// `(namespace, raw key)`, at least one, each namespace at most once.
    pub keys: Vec<(Text, Text)>,
    /// `(dimension, raw value)`; an empty value is missing.
    pub by: Vec<(Text, Text)>,
    /// Makes a retry harmless: one id is counted once.
    pub id: Option<String>,
    /// Who did it, for unique users.
    pub user: Option<String>,
    /// What it says besides when it came as an event.
    pub event: Option<Box<Event>>,
    /// Its number, from a producer that counts what it sends instead of giving ids.
    pub origin: Option<Box<Origin>>,
}

/// The place of an increment in what its producer sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Who sends, 1 to [`ID_BYTES_MAX`] bytes.
    pub producer: String,
    /// Rises when the producer begins anew; what comes of an earlier epoch is refused.
    pub epoch: u64,
    /// One more than that of the increment before.
    pub sequence: u64,
}

/// What an increment that came as an event says besides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its declared type.
    pub kind: String,
    /// Where it was seen, such as `home`; kept for counts by user and view.
    pub view: Option<String>,
    /// It came after its time was settled: the store says so when it logs it.
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
    /// So many at a time on these keys, and nothing else is said of them.
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
            by: Vec::new(),
            id: None,
            user: None,
            event: None,
            origin: None,
        }
    }

    /// Checks everything that does not depend on the clock.
    ///
    /// # Errors
    /// The first field that is wrong, as a client names it.
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
                "has no number behind it; begin a new epoch at 0",
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
        Ok(())
    }

    fn validate_keys(&self, schema: &Schema) -> Result<(), FieldError> {
        if self.keys.is_empty() {
            return Err(FieldError::missing(
                "keys",
                format!("name at least one key; namespaces are {}", schema.names()),
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
            let declared = self
                .keys
                .iter()
                .filter_map(|(name, _)| schema.namespace(name))
                .any(|namespace| namespace.has_dimension(dimension));
            if !declared {
                return Err(FieldError::malformed(
                    field(),
                    value,
                    "is declared by none of the namespaces named; declare the subtotal or leave it out",
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

    /// The raw value of a dimension, `None` when missing or empty.
    pub fn value(&self, dimension: &str) -> Option<&str> {
        self.by
            .iter()
            .find(|(name, _)| is_same(name, dimension))
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }
}

/// Checks a time against the clock (both Unix seconds).
///
/// # Errors
/// Before 2000, or more than [`SKEW_SECONDS_MAX`] ahead of `now`.
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
