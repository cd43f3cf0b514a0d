//! The earlier period with which an answer compares.

use std::sync::Arc;

use jiff::Span;
use serde::Serialize;
use tallyring_realtime::{Read, View};
use tallyring_records::{FieldError, TIME_MIN};

use super::period::span;
use super::question::Question;
use crate::calendar::{Bucket, Buckets, Selection, Unit};
use crate::problem::{Problem, Result};
use crate::query_string::QueryString;

const HOUR_S: i64 = 3_600;
const DAY_S: i64 = 24 * HOUR_S;
const WEEKS_OF_A_YEAR: i64 = 52;

/// With what a period is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Comparison {
    /// The period right before it
    Before,
    /// The newest one before it that has the same weekdays
    Weekdays,
    /// A year before, by date; of weeks, 52 weeks before
    Year,
}

impl Comparison {
    /// Takes `compare`, where there is one. Fails with 400 for another word.
    pub(super) fn take(query: &mut QueryString) -> Result<Option<Self>> {
        let Some(word) = query.take("compare")?.filter(|word| !word.is_empty()) else {
            return Ok(None);
        };
        let mut all = [Self::Before, Self::Weekdays, Self::Year].into_iter();
        let found = all.find(|comparison| comparison.as_str() == word);
        let wrong =
            || Problem::malformed("compare", &word, "must be `before`, `weekdays` or `year`");
        found.ok_or_else(wrong).map(Some)
    }

    /// The word of a request.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::Weekdays => "weekdays",
            Self::Year => "year",
        }
    }

    /// An instant of the last bucket of the period with which `buckets` are compared, which has as many. Fails with 422
    /// for the weekdays of buckets that are longer than a day.
    pub(super) fn last_instant(self, buckets: &Buckets) -> Result<i64> {
        let unit = buckets.unit();
        let span = match self {
            Self::Before => return Ok(buckets.start() - 1),
            Self::Weekdays if !matches!(unit, Unit::Minute | Unit::Hour | Unit::Day) => {
                let detail = format!(
                    "needs buckets of a day or less: a {unit} has all weekdays; ask for `before`"
                );
                return Err(FieldError::refused("compare", self.as_str(), detail).into());
            }
            Self::Weekdays => Span::new().weeks(weeks_of(buckets)),
            Self::Year if matches!(unit, Unit::Week | Unit::Mweek) => {
                Span::new().weeks(WEEKS_OF_A_YEAR)
            }
            Self::Year => Span::new().years(1),
        };
        // Far from the edges, where clocks may have changed.
        let last = buckets.iter().next_back();
        let last = last.expect("BUG: there is a bucket");
        let within = last.start + (last.end - last.start) / 2;
        Ok(buckets.zone().earlier(within, span))
    }

    /// Its name in the legend of a picture.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Before => "the period before",
            Self::Weekdays => "the same weekdays before",
            Self::Year => "a year before",
        }
    }
}

/// The weeks that buckets reach into, from their first day on.
fn weeks_of(buckets: &Buckets) -> i64 {
    let date_of = |instant| Bucket::holding(Unit::Day, buckets.zone(), instant).start;
    let days = (date_of(buckets.end() - 1) - date_of(buckets.start()) + DAY_S / 2) / DAY_S + 1;
    (days + 6) / 7
}

/// Column of tables: the count of each bucket of the period that the rows are compared with.
pub(super) const BEFORE_COLUMN: &str = "before";

/// The period that an answer is compared with, which has as many buckets.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub(super) struct Before {
    /// Which one it is
    pub kind: Comparison,
    /// Start of its first bucket
    #[schema(value_type = String)]
    pub from: Arc<str>,
    /// End of its last one
    #[schema(value_type = String)]
    pub to: Arc<str>,
    /// False where counting only began within it: a change against it would say nothing
    pub covered: bool,
    /// The count of each bucket, oldest first
    pub counts: Vec<u64>,
}

impl Before {
    /// The cell of a bucket in a table; empty where the period is not covered.
    pub(super) fn cell(&self, index: usize) -> String {
        let count = self.counts.get(index).filter(|_| self.covered);
        count.map_or(String::new(), u64::to_string)
    }
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
        return Ok(!found.totals.is_empty());
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
