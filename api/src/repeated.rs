//! Keys of which many events had counted although they repeat others.

use serde::Serialize;
use tallyring_archive::{FinalEntry, RepeatedKeys};
use tallyring_records::{capped, how_many, line};

/// Keys of which more than 0.1 % of at least 1,000 events had counted twice.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Repeated {
    /// How many there are, of all namespaces
    pub keys: u64,
    /// Those with the most repeated events, most first; 10 at most
    pub most: Vec<OfKey>,
}

/// A key of which many events had counted twice.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct OfKey {
    pub namespace: String,
    pub key: String,
    /// Sum of `n` of the repeated events
    pub n: u64,
    /// Sum of `n` that had counted, with these
    pub before: u64,
}

impl Repeated {
    pub(crate) fn of(keys: &RepeatedKeys) -> Self {
        let most = keys.most.iter().map(|of| OfKey {
            namespace: of.namespace.clone(),
            key: of.key.clone(),
            n: capped(of.n),
            before: capped(of.before),
        });
        Self {
            keys: keys.keys,
            most: most.collect(),
        }
    }
}

/// The sums of an event type may hide a sender that repeats what it sends for one key. `versions` tell of it now.
pub(crate) fn fault<'v>(versions: impl Iterator<Item = &'v FinalEntry>) -> Option<String> {
    let told = versions.filter_map(|version| {
        let repeated = version.repeated.as_ref()?;
        Some((version.day, repeated.keys, repeated.most.first()?))
    });
    let (day, keys, most) = told.max_by_key(|(_, _, most)| most.n)?;
    Some(format!(
        "of {day}, {} of {} of the key `{}` of {} had counted twice, more than 0.1 % ({} in all): a sender repeats its \
         events for longer than `ids.window_hours`; see `/v1/finals/{day}`",
        most.n,
        most.before,
        line::shown(most.key.as_bytes()),
        most.namespace,
        how_many(keys, "key")
    ))
}
