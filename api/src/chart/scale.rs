//! The count axis: from zero to a round number, with round numbers between.

use super::number::human;

/// Steps from zero to the top of an axis, at most.
const STEPS_MAX: u128 = 5;

/// Counts from zero to a top, a few equal steps apart.
pub struct Scale {
    step: u128,
    steps: u128,
}

impl Scale {
    /// The scale with the smallest step of 1, 2 or 5 times a power of ten that reaches `max` in few
    /// steps. Counts are whole, so a step is at least 1. For 0 it has no step.
    pub fn reaching(max: u64) -> Self {
        let max = u128::from(max);
        let mut power: u128 = 1;
        loop {
            for factor in [1, 2, 5] {
                let step = factor * power;
                if max <= step * STEPS_MAX {
                    let steps = max.div_ceil(step);
                    return Self { step, steps };
                }
            }
            power *= 10;
        }
    }

    /// The largest count on the axis; 1 where there is none, so that the axis has a length.
    pub fn top(&self) -> f64 {
        // Counts are at most 2^53 − 1 and the top rounds them to one digit: exact as a float.
        (self.step * self.steps).max(1) as f64
    }

    /// Where the axis is labelled, in ascending order.
    pub fn ticks(&self) -> Vec<f64> {
        (0..=self.steps)
            .map(|index| (self.step * index) as f64)
            .collect()
    }

    /// The label of a tick.
    pub fn label(tick: f64) -> String {
        human(tick as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_few_round_and_different() {
        let powers = (0..54).map(|bits| 1_u64 << bits);
        for max in (0..3_000).chain(powers).chain([u64::MAX]) {
            let scale = Scale::reaching(max);
            assert!(scale.top() >= max as f64, "{max}");
            assert!(max < 5 || scale.top() < 1.7 * max as f64, "{max}");
            let mut labels: Vec<String> = scale.ticks().into_iter().map(Scale::label).collect();
            assert!((max == 0) == (labels.len() == 1) && labels.len() <= 6);
            labels.dedup();
            assert_eq!(labels.len(), scale.ticks().len(), "{max}: {labels:?}");
        }
    }
}
