//! Buckets that were asked for lately: dashboards ask for the same days of the same zone for every key.
//!
//! Invariant: what is found is what would be computed. The buckets that end with an instant are those of every other
//! instant in their last bucket. (Rules of a zone that change while the server runs take effect with the next bucket.)

use std::hash::{Hash, Hasher};
use std::sync::LazyLock;

use quick_cache::Equivalent;
use quick_cache::sync::Cache;

use super::{Buckets, Unit, Zone};

/// Ranges that are kept.
const RANGES_MAX: usize = 256;
/// Longer ranges are seldom asked for, and would take much memory, at 100 bytes a bucket.
pub(super) const BUCKETS_KEPT_MAX: usize = 400;

static RECENT: LazyLock<Cache<Key, Buckets>> = LazyLock::new(|| Cache::new(RANGES_MAX));

/// The `count` buckets of which the last one holds `last`, if they are kept.
pub(super) fn find(unit: Unit, zone: &Zone, count: usize, last: i64) -> Option<Buckets> {
    let key = KeyRef(unit, count, zone.name());
    let found = RECENT.get(&key)?;
    (found.index_of(last) == Some(count - 1)).then_some(found)
}

/// Keeps buckets for other reads, in place of kept ones that end with another bucket.
pub(super) fn keep(buckets: &Buckets) {
    if buckets.count() <= BUCKETS_KEPT_MAX {
        let key = Key(
            buckets.unit(),
            buckets.count(),
            buckets.zone().name().into(),
        );
        RECENT.insert(key, buckets.clone());
    }
}

#[derive(PartialEq, Eq, Hash)]
struct Key(Unit, usize, Box<str>);

/// A [`Key`] that borrows its zone, to look one up.
struct KeyRef<'a>(Unit, usize, &'a str);

impl Hash for KeyRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // As the key's fields, one by one.
        (self.0, self.1, self.2).hash(state);
    }
}

impl Equivalent<Key> for KeyRef<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        (self.0, self.1, self.2) == (key.0, key.1, &*key.2)
    }
}
