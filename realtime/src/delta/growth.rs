//! How much memory a batch may take once it is counted, known before it is logged.

use tallyring_records::{Increment, Namespace, Schema, Text};

/// A bucket or a counter, its share of a table, and the text that it is the first to have: twice, as a full table
/// doubles.
const BUCKET_BYTES: usize = 2 * (37 + 40);
const COUNTER_BYTES: usize = 2 * (29 + 28);
/// A minute of a total or of a value.
const MINUTE_BYTES: usize = 2 * 16;
/// An action: a list, a chunk and what was done are new with it.
const ACTION_BYTES: usize = 2 * (36 + 6 + 64 + 40);
/// A sketch of one user.
const USERS_BYTES: usize = 512;

/// Bytes by which memory grows with a key of an increment, at most about: as if the key, its base bucket and all of its
/// values were new. Long texts come on top.
#[derive(Debug)]
pub(crate) struct Growth {
    of_namespaces: Vec<(String, usize)>,
    /// The largest of them.
    most: usize,
}

impl Growth {
    pub(crate) fn new(schema: &Schema) -> Self {
        let namespaces = schema.namespaces.iter();
        let of_namespaces: Vec<(String, usize)> = namespaces
            .map(|namespace| (namespace.name.clone(), of_namespace(namespace)))
            .collect();
        Self {
            most: of_namespaces.iter().map(|of| of.1).max().unwrap_or(0),
            of_namespaces,
        }
    }

    /// A bound for `keys` keys of any namespaces, bytes.
    pub(crate) fn of_any(&self, keys: usize) -> usize {
        keys.saturating_mul(self.most)
    }

    /// A bound for all keys of an increment, bytes.
    pub(crate) fn of(&self, increment: &Increment) -> usize {
        let of_key = |name: &Text| {
            let mut namespaces = self.of_namespaces.iter();
            namespaces
                .find(|(known, _)| known == name.as_str())
                .map_or(0, |of| of.1)
        };
        let is_action = increment.user.is_some() && increment.event.is_some();
        let actions = ACTION_BYTES * usize::from(is_action);
        actions
            + increment
                .keys
                .iter()
                .map(|(name, _)| of_key(name))
                .sum::<usize>()
    }
}

fn of_namespace(namespace: &Namespace) -> usize {
    let subtotals = namespace.subtotals.len();
    let users = USERS_BYTES * usize::from(namespace.uniques);
    let hour = BUCKET_BYTES + subtotals * (BUCKET_BYTES + COUNTER_BYTES) + users;
    match namespace.minutes {
        true => hour + (1 + subtotals) * MINUTE_BYTES + users,
        false => hour,
    }
}

#[cfg(test)]
mod tests {
    use tallyring_records::LongKeys;

    use super::*;
    use crate::delta::{Delta, Form};

    #[test]
    fn new_keys_take_no_more_memory_than_is_said_and_a_quarter_of_it_at_least() {
        let mut schema = Schema::default_clicks();
        check(&schema);
        for namespace in &mut schema.namespaces {
            namespace.minutes = true;
            namespace.uniques = true;
        }
        check(&schema);
        for namespace in &mut schema.namespaces {
            namespace.subtotals = (0..16).map(|n| format!("s{n}")).collect();
        }
        check(&schema);
    }

    /// Counts increments in which every text is new.
    fn check(schema: &Schema) {
        let namespace = (schema.namespaces.iter()).max_by_key(|namespace| of_namespace(namespace));
        let namespace = namespace.expect("a namespace");
        let increments: Vec<Increment> = (0..20_000)
            .map(|number| Increment {
                by: (namespace.subtotals.iter())
                    .map(|subtotal| {
                        (
                            subtotal.as_str().into(),
                            format!("{subtotal}{number}").into(),
                        )
                    })
                    .collect(),
                user: Some(format!("user {number}")),
                ..Increment::new(
                    1_331_920_800,
                    1,
                    [(namespace.name.as_str(), format!("k{number}"))],
                )
            })
            .collect();
        let mut delta = Delta::new(Form {
            shards: 4,
            breakdowns: true,
        });
        let increments: Vec<&Increment> = increments.iter().collect();
        delta.add(&LongKeys::new([7; 32]), schema, &increments);
        let growth = Growth::new(schema);
        let said: usize = increments
            .iter()
            .map(|increment| growth.of(increment))
            .sum();
        assert!(said <= growth.of_any(increments.len()));
        let taken = delta.bytes();
        assert!(taken <= said && said <= 4 * taken, "{taken} of {said}");
    }
}
