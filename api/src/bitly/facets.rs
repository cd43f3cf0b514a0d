//! Breakdowns: values of a subtotal, largest first.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use tallyring_realtime::{Series, View};
use tallyring_records::{MISSING, add_capped};

use super::series::total;
use crate::problem::Result;

/// The dimension that a count is broken down by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Facet {
    /// Two-letter codes; `-` where none is known.
    Countries,
    /// Addresses of pages; what has none came directly.
    Referrers,
    /// Kinds of device; `-` where none is known.
    Devices,
    /// Links of a user; `-` for clicks on none.
    Links,
}

/// The name of clicks without a referrer.
pub(super) const DIRECT: &str = "direct";

impl Facet {
    /// The subtotal it is counted in.
    pub(super) fn subtotal(self) -> &'static str {
        match self {
            Self::Countries => "c",
            Self::Referrers => "r",
            Self::Devices => "v",
            Self::Links => "l",
        }
    }

    /// The name of a stored value at bitly.
    fn name(self, stored: &str) -> &str {
        if self == Self::Referrers && stored == MISSING {
            DIRECT
        } else {
            stored
        }
    }
}

/// The `limit` values with most clicks, most first, ties by value. Only values that may be listed are expanded.
pub(super) fn ranked(
    reader: &View<'_>,
    series: &Series,
    facet: Facet,
    limit: usize,
) -> Result<Vec<(String, u64)>> {
    let mut clicks: BTreeMap<&str, u64> = BTreeMap::new();
    for (stored, &count) in series.values.iter().zip(&series.sums) {
        if count > 0 {
            add_capped(clicks.entry(facet.name(stored)).or_insert(0), count);
        }
    }
    if clicks.is_empty() && total(series) > 0 {
        // Not broken down at all: every value is missing.
        clicks.insert(facet.name(MISSING), total(series));
    }
    let mut ranked: Vec<(&str, u64)> = clicks.into_iter().collect();
    ranked.sort_by_key(|&(_, count)| Reverse(count));
    if let Some(&(_, least)) = limit.checked_sub(1).and_then(|last| ranked.get(last)) {
        // Stored values may stand for longer texts, so what ties with the last is listed by text.
        ranked.truncate(ranked.partition_point(|&(_, count)| count >= least));
    }
    let mut listed = Vec::with_capacity(ranked.len());
    for (stored, count) in ranked {
        listed.push((reader.expand(series, stored)?.concat(), count));
    }
    listed.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    listed.truncate(limit);
    Ok(listed)
}
