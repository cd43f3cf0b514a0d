//! The period before, with which an answer compares.

use serde::Serialize;
use tallyring_realtime::{Read, View};
use tallyring_records::TIME_MIN;

use super::period::span;
use super::question::Question;
use crate::calendar::{Selection, Unit};
use crate::problem::Result;

const HOUR_S: i64 = 3_600;

/// The period before, with as many buckets.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub(super) struct Before {
    /// False where counting only began within it: a change against it would say nothing
    pub covered: bool,
    /// The count of each bucket, oldest first
    pub counts: Vec<u64>,
}

/// Whether something was counted as early as the period of a question begins: for a key at any time until then, for a
/// namespace, of which every key is read, within as long a time before. Fails as the read of the question does.
pub(super) fn is_covered(reader: &View<'_>, of: &Question) -> Result<bool> {
    let (start, end) = span(&of.period.selection);
    let is_by_minute = matches!(&of.period.selection, Selection::Bounded(buckets) if buckets.unit() == Unit::Minute);
    // An hour that holds a minute may hold later ones only.
    let until = if is_by_minute { start - HOUR_S } else { start } + 1;
    let Some(key) = &of.key else {
        let from = (start - (end - start)).max(TIME_MIN);
        let range = from..until.max(from);
        let found = reader.totals(&of.namespace, range, false, of.period.as_of)?;
        return Ok(!found.is_empty());
    };
    let read = Read {
        namespace: of.namespace.clone(),
        key: key.clone(),
        subtotal: None,
        from: TIME_MIN,
        to: until.max(TIME_MIN),
        rolled: None,
    };
    let found = reader.read(&read, of.period.as_of)?;
    Ok(!found.totals.is_empty())
}
