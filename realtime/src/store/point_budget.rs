//! How much of breakdowns all reads together hold at a time: what one asks for is bounded by nothing else, as a key may
//! have any number of values in every hour.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{Error, Result};

/// Counts of values, 24 bytes each.
pub const POINTS_MAX: usize = 40_000_000;

/// What all reads hold.
#[derive(Debug, Default)]
pub(super) struct PointBudget(Arc<AtomicUsize>);

/// What one series holds, given back with it.
#[derive(Debug, Default)]
pub(super) struct Reserved {
    all: Arc<AtomicUsize>,
    own: usize,
}

impl PointBudget {
    /// For one series: nothing of it is held yet.
    pub fn reserve(&self) -> Reserved {
        Reserved {
            all: Arc::clone(&self.0),
            own: 0,
        }
    }
}

impl Reserved {
    /// Holds up to this many more, as far as there is room: how many.
    ///
    /// # Errors
    /// When there is none.
    pub fn grow(&mut self, points: usize) -> Result<usize> {
        let held = self.all.fetch_add(points, Ordering::Relaxed);
        let granted = POINTS_MAX.saturating_sub(held).min(points);
        self.all.fetch_sub(points - granted, Ordering::Relaxed);
        self.own += granted;
        match granted {
            0 => Err(Error::TooManyValues {
                alone: self.own > POINTS_MAX / 2,
            }),
            granted => Ok(granted),
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.all.fetch_sub(self.own, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_gives_back_another_may_hold() {
        let budget = PointBudget::default();
        let (mut one, mut other) = (budget.reserve(), budget.reserve());
        assert_eq!(one.grow(POINTS_MAX - 1).unwrap(), POINTS_MAX - 1);
        assert_eq!(other.grow(7).unwrap(), 1, "what is left");
        for (reserved, alone) in [(&mut other, false), (&mut one, true)] {
            let refused = reserved.grow(7).unwrap_err();
            assert!(matches!(refused, Error::TooManyValues { alone: is } if is == alone));
        }
        drop(one);
        assert_eq!(other.grow(7).unwrap(), 7);
    }
}
