//! The causes of differences by the keys of a namespace: whose counts change, and by how much.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use tallyring_records::{FieldError, Increment, Schema};

use crate::error::{Error, Result};

/// Keys that are named of each event type and cause, at most.
const NAMED_MAX: usize = 100;
/// Keys that are named while days are added, so that a key may be small on each day and large on all.
const ADDED_MAX: usize = 10 * NAMED_MAX;
/// Sums of keys that are held while a day is read, and the bytes of their keys: about 40 MiB.
const SUMS_MAX: usize = 100_000;
const KEY_BYTES_MAX: usize = 16 << 20;

/// Differences by event type, cause and key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CausesByKey {
    /// The declared namespace, or the entity of event types.
    pub namespace: String,
    /// The sums of each event type and cause.
    pub types: BTreeMap<String, BTreeMap<String, KeySums>>,
    /// True where there were more keys than memory holds: later ones are in `others`, whatever their sum.
    pub is_limited: bool,
}

/// Signed sums of `n` of one event type and cause. All of them together are the sum of the cause.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeySums {
    /// The keys with the largest sums, largest first; at most 100.
    pub keys: Vec<(String, i128)>,
    /// All other keys.
    pub others: i128,
    /// Events that name no key of the namespace.
    pub without: i128,
}

impl CausesByKey {
    /// Adds those of another day. A key that is not named on a day is in `others` with that day. Fails when a sum
    /// overflows.
    pub fn add(&mut self, day: Self) -> Result<()> {
        self.namespace = day.namespace;
        self.is_limited |= day.is_limited;
        for (kind, causes) in day.types {
            let known = self.types.entry(kind).or_default();
            for (cause, sums) in causes {
                known.entry(cause).or_default().add(sums)?;
            }
        }
        Ok(())
    }

    /// Names no more keys than an answer has.
    pub fn shorten(&mut self) {
        for sums in self.types.values_mut().flat_map(BTreeMap::values_mut) {
            sums.keep(NAMED_MAX);
        }
    }
}

impl KeySums {
    fn add(&mut self, day: Self) -> Result<()> {
        let mut keys: HashMap<String, i128> = std::mem::take(&mut self.keys).into_iter().collect();
        for (key, n) in day.keys {
            add(keys.entry(key).or_insert(0), n)?;
        }
        self.keys = keys.into_iter().collect();
        add(&mut self.others, day.others)?;
        add(&mut self.without, day.without)?;
        self.keep(ADDED_MAX);
        Ok(())
    }

    /// Names the keys with the largest sums alone, in order.
    fn keep(&mut self, keys: usize) {
        self.keys.sort_by(|(a, of_a), (b, of_b)| {
            (Reverse(of_a.unsigned_abs()), a).cmp(&(Reverse(of_b.unsigned_abs()), b))
        });
        let rest = self.keys.split_off(keys.min(self.keys.len()));
        // Each of them was within the sum of the cause, which does not overflow.
        let rest = rest.iter().map(|(_, n)| n).sum::<i128>();
        self.others = self.others.saturating_add(rest);
    }
}

fn add(sum: &mut i128, n: i128) -> Result<()> {
    let overflow = || Error::Reconcile("the sum of a key overflows".into());
    *sum = sum.checked_add(n).ok_or_else(overflow)?;
    Ok(())
}

/// The namespaces that `by` means: itself, or those in which event types count an entity. The error names those that
/// are declared.
pub(super) fn namespaces_of(schema: &Schema, by: &str) -> Result<Vec<String>, FieldError> {
    if schema.namespace(by).is_some() {
        return Ok(vec![by.to_owned()]);
    }
    let types = schema.events.iter();
    let types = types.filter(|kind| kind.entities.iter().any(|entity| entity == by));
    let namespaces: Vec<String> = types.map(|kind| kind.namespace_of(by)).collect();
    if namespaces.is_empty() {
        let names = schema.names();
        let detail = format!(
            "must be a declared namespace, or an entity of an event type; declared namespaces are {names}"
        );
        return Err(FieldError::refused("by", by, detail));
    }
    Ok(namespaces)
}

/// Sums the differences of a day by key.
pub(super) struct ByKey {
    by: String,
    namespaces: Vec<String>,
    /// By event type and cause.
    sums: BTreeMap<String, BTreeMap<String, Sums>>,
    /// How many sums there are, and the bytes of their keys.
    held: (usize, usize),
    is_limited: bool,
}

#[derive(Default)]
struct Sums {
    keys: HashMap<Box<str>, i128>,
    others: i128,
    without: i128,
}

impl ByKey {
    /// Fails when `by` is neither a namespace nor an entity.
    pub(super) fn new(schema: &Schema, by: &str) -> Result<Self> {
        Ok(Self {
            by: by.to_owned(),
            namespaces: namespaces_of(schema, by).map_err(Error::Field)?,
            sums: BTreeMap::new(),
            held: (0, 0),
            is_limited: false,
        })
    }

    /// Adds a difference of an event type, with its sign. Fails when a sum overflows.
    pub(super) fn add(
        &mut self,
        (kind, cause): (&str, &str),
        increment: &Increment,
        n: i128,
    ) -> Result<()> {
        let causes = match self.sums.get_mut(kind) {
            Some(causes) => causes,
            None => self.sums.entry(kind.to_owned()).or_default(),
        };
        let sums = match causes.get_mut(cause) {
            Some(sums) => sums,
            None => causes.entry(cause.to_owned()).or_default(),
        };
        let mut keys = increment.keys.iter();
        let is_asked = |name: &str| self.namespaces.iter().any(|asked| asked == name);
        let Some((_, key)) = keys.find(|(name, _)| is_asked(name)) else {
            return add(&mut sums.without, n);
        };
        if let Some(sum) = sums.keys.get_mut(key.as_str()) {
            return add(sum, n);
        }
        let (held, bytes) = self.held;
        if held == SUMS_MAX || bytes + key.len() > KEY_BYTES_MAX {
            self.is_limited = true;
            return add(&mut sums.others, n);
        }
        self.held = (held + 1, bytes + key.len());
        sums.keys.insert(key.as_str().into(), n);
        Ok(())
    }

    /// The keys with the largest sums.
    pub(super) fn finish(self) -> CausesByKey {
        let named = |sums: Sums| {
            let keys = sums.keys.into_iter();
            KeySums {
                keys: keys.map(|(key, n)| (key.into_string(), n)).collect(),
                others: sums.others,
                without: sums.without,
            }
        };
        let of_type = |causes: BTreeMap<String, Sums>| {
            let causes = causes.into_iter();
            causes.map(|(cause, sums)| (cause, named(sums))).collect()
        };
        let types = self.sums.into_iter();
        let mut found = CausesByKey {
            namespace: self.by,
            types: types
                .map(|(kind, causes)| (kind, of_type(causes)))
                .collect(),
            is_limited: self.is_limited,
        };
        found.shorten();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(keys: impl Iterator<Item = (String, u64)>) -> CausesByKey {
        let mut by_key = ByKey::new(&Schema::default_clicks(), "u").expect("declared");
        for (key, n) in keys {
            let increment = Increment::new(0, n, [("l", "a".to_owned()), ("u", key)]);
            let n = -i128::from(n);
            by_key
                .add(("click", "voided"), &increment, n)
                .expect("counted");
        }
        let without = Increment::new(0, 7, [("l", "a")]);
        by_key
            .add(("click", "voided"), &without, -7)
            .expect("counted");
        by_key.finish()
    }

    #[test]
    fn the_largest_keys_are_named_and_the_rest_are_others() {
        let found = counted((1..=150).map(|n| (format!("u{n}"), n)));
        let sums = &found.types["click"]["voided"];
        assert_eq!(sums.keys.len(), NAMED_MAX);
        assert_eq!(sums.keys[0], ("u150".to_owned(), -150));
        assert_eq!(sums.keys[99], ("u51".to_owned(), -51));
        assert_eq!((sums.others, sums.without), (-(1..=50).sum::<i128>(), -7));
        assert!(!found.is_limited);
    }

    #[test]
    fn keys_beyond_the_bound_are_others_and_the_answer_says_so() {
        let found = counted((0..=SUMS_MAX).map(|n| (format!("u{n}"), 1)));
        let sums = &found.types["click"]["voided"];
        let named: i128 = sums.keys.iter().map(|(_, n)| n).sum();
        assert_eq!(named + sums.others, -(SUMS_MAX as i128 + 1));
        assert!(found.is_limited);
        let long = "k".repeat(1 << 20);
        let found = counted((0..20).map(|n| (format!("{long}{n}"), 1)));
        assert!(found.is_limited, "their bytes are bounded, too");
    }

    #[test]
    fn days_are_added_key_by_key() {
        let mut all = CausesByKey::default();
        for day in 0..3 {
            let keys = (0..90).map(|n| (format!("u{}", n + day), 1 + n));
            all.add(counted(keys)).expect("added");
        }
        all.shorten();
        let sums = &all.types["click"]["voided"];
        assert_eq!(sums.keys[0], ("u89".to_owned(), -(90 + 89 + 88)));
        let named: i128 = sums.keys.iter().map(|(_, n)| n).sum();
        assert_eq!(
            (named + sums.others, sums.without),
            (-3 * (1..=90).sum::<i128>(), -21)
        );
    }

    #[test]
    fn an_undeclared_name_is_refused_and_an_entity_means_all_of_its_namespaces() {
        let schema = Schema::default_clicks();
        let error = namespaces_of(&schema, "campaign").unwrap_err().to_string();
        assert!(
            error.contains("by `campaign`") && error.contains("l, u, d"),
            "{error}"
        );
    }
}
