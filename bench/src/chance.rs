//! Pseudo-random numbers (SplitMix64): one seed gives one sequence on every machine.

/// A sequence of pseudo-random numbers.
pub struct Chance(u64);

impl Chance {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number of the sequence.
    #[expect(
        clippy::should_implement_trait,
        reason = "the sequence has no end, so the caller needs no `Option`"
    )]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 up to, but not including, 1.
    pub fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a number below `end`. Panics when `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Returns a number below `end`; small numbers are far more frequent (about Zipf with exponent 1).
    pub fn skewed(&mut self, end: u64) -> u64 {
        ((end as f64).powf(self.part()) as u64 - 1).min(end - 1)
    }

    /// Chooses a value of `weighted` with a probability in proportion to its weight. Panics when `weighted` is empty.
    pub fn choose<'c, T>(&mut self, weighted: &'c [(T, f64)]) -> &'c T {
        let sum: f64 = weighted.iter().map(|(_, weight)| weight).sum();
        let mut rest = self.part() * sum;
        for (value, weight) in weighted {
            rest -= weight;
            if rest <= 0.0 {
                return value;
            }
        }
        &weighted.last().expect("BUG: a choice of nothing").0
    }

    /// Returns how many independent clicks come when `mean` are expected (Poisson distribution).
    pub fn count(&mut self, mean: f64) -> u64 {
        if mean > 30.0 {
            // The sum of twelve uniform numbers is close to a normal distribution.
            let normal = (0..12).map(|_| self.part()).sum::<f64>() - 6.0;
            return (mean + normal * mean.sqrt()).round().max(0.0) as u64;
        }
        let end = (-mean.max(0.0)).exp();
        let (mut count, mut product) = (0, self.part());
        while product > end {
            count += 1;
            product *= self.part();
        }
        count
    }

    /// Divides all of `count` among the values in proportion to their weights; the result omits values that get 0.
    pub fn divide<'c, T>(&mut self, count: u64, weighted: &'c [(T, f64)]) -> Vec<(&'c T, u64)> {
        let mut left = count;
        let mut weight_left: f64 = weighted.iter().map(|(_, weight)| weight).sum();
        let mut shares = Vec::with_capacity(weighted.len());
        for (index, (value, weight)) in weighted.iter().enumerate() {
            let share = if index + 1 == weighted.len() {
                left
            } else {
                self.count(left as f64 * weight / weight_left).min(left)
            };
            weight_left -= weight;
            left -= share;
            if share > 0 {
                shares.push((value, share));
            }
        }
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_division_loses_nothing_and_follows_the_weights() {
        let weighted = [("a", 3.0), ("b", 1.0), ("c", 0.01)];
        let mut chance = Chance::new(1);
        for count in [0, 1, 2, 10, 1_000_000] {
            let shares = chance.divide(count, &weighted);
            assert_eq!(shares.iter().map(|(_, share)| share).sum::<u64>(), count);
        }
        let shares = chance.divide(1_000_000, &weighted);
        assert!((700_000..790_000).contains(&shares[0].1), "{shares:?}");
    }

    #[test]
    fn counts_lie_around_their_mean() {
        let mut chance = Chance::new(2);
        for mean in [0.05, 1.0, 300.0] {
            let sum: u64 = (0..20_000).map(|_| chance.count(mean)).sum();
            let found = sum as f64 / 20_000.0;
            assert!((found / mean - 1.0).abs() < 0.1, "{mean}: {found}");
        }
    }
}
