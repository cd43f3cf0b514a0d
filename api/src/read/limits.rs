//! How much one response lists.

use tallyring_realtime::{Charge, Reading};
use tallyring_records::FieldError;

use super::question::Shape;
use crate::problem::Result;

/// Buckets in one response, at most, however many queries it answers.
const BUCKETS_TOTAL_MAX: usize = 100_000;
/// This number of buckets that are not listed take as much work and memory as one that is listed.
const UNLISTED_AS_ONE: usize = 10;
/// Values of breakdowns in one response, at most, of all its buckets and queries.
const VALUES_TOTAL_MAX: usize = 100_000;

/// How much one response lists so far for all its queries, and the memory that takes.
pub(crate) struct ResponseLimits {
    buckets: usize,
    values: usize,
    /// The memory of the response, to be given back with it.
    pub charge: Charge,
}

/// Memory of a bucket that is listed, in the answer and in any text of it; and of one that is not.
const LISTED_BYTES: usize = 224;
const UNLISTED_BYTES: usize = 24;
/// Memory of a value that is listed, besides its text; and how often the text stands in the answer and in any text of
/// it.
const VALUE_BYTES: usize = 256;
const VALUE_TEXTS: usize = 5;

impl ResponseLimits {
    /// Nothing so far, for this request.
    pub(crate) fn new(reading: &Reading) -> Self {
        Self {
            buckets: 0,
            values: 0,
            charge: reading.charge(),
        }
    }

    /// Takes the buckets of one more query; where none of them is listed, ten count as one. Fails with 422 when a
    /// response lists no more.
    pub(crate) fn take_buckets(&mut self, buckets: usize, shape: &Shape) -> Result<()> {
        self.buckets += match shape.lists_buckets() {
            true => buckets,
            false => buckets.div_ceil(UNLISTED_AS_ONE),
        };
        if self.buckets <= BUCKETS_TOTAL_MAX {
            let bytes = match shape.lists_buckets() {
                true => LISTED_BYTES,
                false => UNLISTED_BYTES,
            };
            return Ok(self.charge.grow(buckets * bytes)?);
        }
        let detail = format!(
            "must have at most {BUCKETS_TOTAL_MAX} buckets together, of which {UNLISTED_AS_ONE} count as one where none \
             is listed; ask in parts"
        );
        Err(FieldError::refused("queries", &self.buckets.to_string(), detail).into())
    }

    /// Takes the values of one more ranking. Fails with 422 when a response lists no more.
    pub(crate) fn take_values<'v>(
        &mut self,
        values: impl ExactSizeIterator<Item = &'v str>,
    ) -> Result<()> {
        self.values += values.len();
        if self.values <= VALUES_TOTAL_MAX {
            let bytes = |value: &str| VALUE_BYTES + VALUE_TEXTS * value.len();
            return Ok(self.charge.grow(values.map(bytes).sum())?);
        }
        let detail = format!(
            "must be smaller: all rankings together list at most {VALUES_TOTAL_MAX} values; or ask in parts"
        );
        Err(FieldError::refused("limit", &self.values.to_string(), detail).into())
    }
}

#[cfg(test)]
mod tests {
    use tallyring_realtime::ReadBudget;

    use super::*;

    fn limits() -> ResponseLimits {
        ResponseLimits::new(&Reading::new(&ReadBudget::new(1 << 30)))
    }

    #[test]
    fn buckets_that_are_not_listed_take_a_tenth_of_the_limit() {
        let by = |rolled| Shape::By {
            subtotal: "c".into(),
            rolled,
        };
        for (shape, queries) in [
            (Shape::Counts, 10),
            (by(false), 10),
            (Shape::Summary, 100),
            (by(true), 100),
        ] {
            let mut limits = limits();
            for _ in 0..queries {
                limits.take_buckets(10_000, &shape).unwrap();
            }
            assert!(limits.take_buckets(1, &shape).is_err(), "{shape:?}");
        }
    }
}
