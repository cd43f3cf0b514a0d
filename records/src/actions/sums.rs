//! Sums of what one user did on one UTC day, from which other sums are taken away.

use std::collections::BTreeMap;

use super::{Action, HOUR_SECONDS};
use crate::counts::add_capped;

/// Counts of the actions of one user on one UTC day, by the value of their line.
///
/// ```
/// use tallyring_records::{Action, ActionSums};
///
/// let click = Action { second: 78_301, by_hour: false, what: b"click..ad=42", tag: None };
/// let (mut did, mut less) = (ActionSums::default(), ActionSums::default());
/// did.add(click, 3);
/// less.add(click, 2);
/// assert!(did.take_away(&less));
/// assert_eq!(did.iter().collect::<Vec<_>>(), [(&b"78301.click..ad=42"[..], 1)]);
/// less.add(Action { second: 5, ..click }, 1);
/// assert!(!did.take_away(&less), "nobody clicked then");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActionSums(BTreeMap<Vec<u8>, u64>);

impl ActionSums {
    /// Memory of an action, besides its value and that of its text, bytes.
    pub const BYTES_EACH: usize = 64;

    /// Adds actions that are equal. Returns true where there were none of them before.
    pub fn add(&mut self, action: Action<'_>, n: u64) -> bool {
        let before = self.0.len();
        let mut value = Vec::with_capacity(Action::LONGER_BY + action.what.len());
        action.as_told_apart().write_value(&mut value);
        add_capped(self.0.entry(value).or_insert(0), n);
        self.0.len() > before
    }

    /// All values with their counts, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], u64)> {
        self.0.iter().map(|(value, n)| (value.as_slice(), *n))
    }

    /// All actions with their counts.
    pub fn actions(&self) -> impl Iterator<Item = (Action<'_>, u64)> {
        let values = self.iter();
        values.filter_map(|(value, n)| Some((Action::parse(value)?, n)))
    }

    /// Takes actions away. An action that is not found by its second is taken from equal ones that are known by its
    /// hour alone: a busy user has both, and which of them an action is depends on what came before. Where that is not
    /// enough either, all that is left of the hour is known by the hour alone. Returns false where less was done in an
    /// hour than is taken away; some is taken away then.
    pub fn take_away(&mut self, less: &Self) -> bool {
        let mut by_hour: BTreeMap<Vec<u8>, u128> = BTreeMap::new();
        for (value, &n) in &less.0 {
            let left = match self.0.get_mut(value) {
                Some(sum) => {
                    let taken = n.min(*sum);
                    *sum -= taken;
                    n - taken
                }
                None => n,
            };
            if left > 0
                && let Some(action) = Action::parse(value)
            {
                let mut hour = Vec::with_capacity(value.len());
                action.of_its_hour().write_value(&mut hour);
                let sum = by_hour.entry(hour).or_insert(0);
                *sum += u128::from(left);
            }
        }
        let mut hours = by_hour.iter();
        let is_enough = hours.all(|(hour, &n)| self.take_from_hour(hour, n));
        self.0.retain(|_, n| *n > 0);
        is_enough
    }

    /// Takes `n` from what is known by the value `hour`, or else from all of the hour.
    fn take_from_hour(&mut self, hour: &[u8], n: u128) -> bool {
        let known = self.0.get(hour).copied().unwrap_or(0);
        let left = match u128::from(known).checked_sub(n) {
            Some(left) => left,
            None => {
                let all = self.values_of_hour(hour);
                let sums = all.iter().map(|value| u128::from(self.0[value]));
                let Some(left) = sums.sum::<u128>().checked_sub(n) else {
                    return false;
                };
                for value in &all {
                    self.0.remove(value);
                }
                left
            }
        };
        let left = u64::try_from(left).unwrap_or(u64::MAX);
        let mut sum = 0;
        add_capped(&mut sum, left);
        self.0.insert(hour.to_vec(), sum);
        true
    }

    /// Values of the same actions in an hour: values begin with the second, in digits.
    fn values_of_hour(&self, hour: &[u8]) -> Vec<Vec<u8>> {
        let Some(of) = Action::parse(hour) else {
            return Vec::new();
        };
        let second = |second: u32| format!("{second:05}").into_bytes();
        let all = self
            .0
            .range(second(of.second)..second(of.second + HOUR_SECONDS));
        let same = all
            .filter(|(value, _)| Action::parse(value).is_some_and(|action| action.what == of.what));
        same.map(|(value, _)| value.clone()).collect()
    }
}

impl Action<'_> {
    /// Bytes of a value besides the text of what was done, at most.
    const LONGER_BY: usize = 8 + Self::TAG_CHARS;

    /// The action, as one that is known by its hour alone.
    pub fn of_its_hour(&self) -> Self {
        Self {
            second: self.second - self.second % HOUR_SECONDS,
            by_hour: true,
            what: self.what,
            tag: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sums(values: &[(&str, u64)]) -> ActionSums {
        let mut sums = ActionSums::default();
        for (value, n) in values {
            let action = Action::parse(value.as_bytes()).expect("an action");
            sums.add(action, *n);
        }
        sums
    }

    fn check(did: &[(&str, u64)], less: &[(&str, u64)], left: &[(&str, u64)]) {
        let mut did = sums(did);
        assert!(did.take_away(&sums(less)), "{less:?}");
        assert_eq!(did, sums(left), "without {less:?}");
    }

    #[test]
    fn an_action_is_taken_from_its_equals_and_then_from_its_hour() {
        let [exact, later, by_hour] = ["00005.a..b=1", "00006.a..b=1", "00000~a..b=1"];
        check(&[(exact, 3), (later, 1)], &[(exact, 3)], &[(later, 1)]);
        check(&[(exact, 1), (by_hour, 4)], &[(exact, 3)], &[(by_hour, 2)]);
        check(&[(later, 1), (by_hour, 1)], &[(exact, 1)], &[(later, 1)]);
        // Which ones are left is not known, but how many.
        check(&[(exact, 2), (later, 3)], &[(by_hour, 4)], &[(by_hour, 1)]);
        check(&[(exact, 2), (later, 3)], &[(by_hour, 5)], &[]);
        let others = [("00007.a..b=2", 1), ("03600.a..b=1", 1)];
        let did = [others[0], others[1], (exact, 1)];
        check(&did, &[(by_hour, 1)], &others);
    }

    #[test]
    fn a_tag_of_an_earlier_build_is_found_by_the_bits_that_count() {
        let line = |tag| format!("78301.click..ad=42.#{}", crate::tag_text(tag));
        let [before, now] = [0x0123_4567_89ab_cdef, 0x0123_4567_89ab_0000].map(line);
        check(
            &[(before.as_str(), 2)],
            &[(now.as_str(), 1)],
            &[(now.as_str(), 1)],
        );
    }

    #[test]
    fn nothing_falls_below_zero() {
        for less in [
            "00005.a..b=2",
            "03605.a..b=1",
            "00005.a.v.b=1",
            "03600~a..b=1",
        ] {
            let mut did = sums(&[("00005.a..b=1", 1)]);
            assert!(!did.take_away(&sums(&[(less, 1)])), "{less}");
        }
        let mut did = sums(&[("00005.a..b=1", 1), ("00000~a..b=1", 1)]);
        assert!(!did.take_away(&sums(&[("00006.a..b=1", 3)])));
    }

    proptest! {
        /// Actions of two seconds, some of which are known by the hour alone on the one side or on the other.
        #[test]
        fn prop_the_sum_of_each_hour_is_exact_and_what_is_known_by_the_second_stays_so(
            done in proptest::collection::vec(
                (0..3_u32, 0..2_u32, 1..4_u64, any::<bool>(), any::<bool>(), any::<bool>()),
                0..12,
            ),
        ) {
            let (mut did, mut less, mut left) = <(ActionSums, ActionSums, ActionSums)>::default();
            let (mut is_exact, mut expected) = (true, [0, 0]);
            for (second, hour, n, is_taken, did_by_hour, less_by_hour) in done {
                let value = |by_hour: bool| {
                    let second = hour * HOUR_SECONDS + if by_hour { 0 } else { second };
                    Action { second, by_hour, what: b"a..b=1", tag: None }
                };
                did.add(value(did_by_hour), n);
                match is_taken {
                    true => {
                        less.add(value(less_by_hour), n);
                        is_exact &= did_by_hour == less_by_hour;
                    }
                    false => {
                        left.add(value(did_by_hour), n);
                        expected[hour as usize] += n;
                    }
                }
            }
            prop_assert!(did.take_away(&less));
            if is_exact {
                prop_assert_eq!(&did, &left);
            }
            let mut found = [0, 0];
            for (action, n) in did.actions() {
                found[(action.second / HOUR_SECONDS) as usize] += n;
            }
            prop_assert_eq!(found, expected);
        }
    }
}
