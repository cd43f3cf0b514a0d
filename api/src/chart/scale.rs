//! The axis of counts or shares: from zero to a round number, with round numbers between.

use super::measure::Measure;
use super::plot::Axis;

/// Steps from zero to the top of an axis, at most.
const STEPS_MAX: u128 = 5;

/// The axis with the smallest step of 1, 2 or 5 times a power of ten that reaches `max` in few steps.
/// Numbers are whole, so a step is at least 1. For 0 it is labelled at 0 only.
pub(super) fn reaching(max: u64, measure: Measure) -> Axis {
    let max = u128::from(max);
    let mut power: u128 = 1;
    let step = loop {
        let mut steps = [1, 2, 5].into_iter().map(|factor| factor * power);
        if let Some(step) = steps.find(|step| max <= step * STEPS_MAX) {
            break step;
        }
        power *= 10;
    };
    let steps = max.div_ceil(step);
    // Counts are at most 2^53 − 1 and ticks have one digit before their zeros: exact as floats.
    let tick = |index: u128| ((index * step) as f64, measure.tick((index * step) as u64));
    Axis {
        // Without a count the axis has a length all the same.
        end: (steps * step).max(1) as f64,
        ticks: (0..=steps).map(tick).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_few_round_and_different() {
        let powers = (0..54).map(|bits| 1_u64 << bits);
        let maxima = (0..3_000).chain(powers).chain([u64::MAX >> 1]);
        let measures = [Measure::Counts, Measure::Shares];
        for (max, measure) in maxima.flat_map(|max| measures.map(|measure| (max, measure))) {
            let Axis { end, ticks } = reaching(max, measure);
            assert!(end >= max as f64, "{max}");
            assert!(max < 5 || end < 1.7 * max as f64, "{max}");
            assert!((max == 0) == (ticks.len() == 1) && ticks.len() <= 6);
            let differ = ticks.windows(2).all(|pair| pair[0].1 != pair[1].1);
            assert!(differ, "{max}: {ticks:?}");
        }
    }
}
