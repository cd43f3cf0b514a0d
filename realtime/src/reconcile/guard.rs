//! A wrong pattern must not empty a day: a rule that newly filters much of it needs somebody who insists.

use std::collections::BTreeMap;

use tallyring_archive::FinalSums;
use tallyring_records::grouped;

use super::verdict::rule_of;

/// Share of an event type above which rules newly filter too much, percent.
const PERCENT_MAX: u128 = 20;
/// Events of a type below which any share is taken.
const EVENTS_MIN: u128 = 1_000;

/// Why a result with these sums is published only where somebody insists: its rules newly filter more than a fifth of
/// an event type that has at least 1,000 events. None where nothing is against it.
pub fn too_much_filtered(types: &BTreeMap<String, FinalSums>) -> Option<String> {
    types.iter().find_map(|(kind, sums)| {
        let causes = sums.causes.iter();
        let rules = causes.filter_map(|(cause, n)| Some((rule_of(cause)?, n.unsigned_abs())));
        let rules: Vec<(&str, u128)> = rules.collect();
        let filtered = rules.iter().map(|(_, n)| n).sum::<u128>();
        let is_much = sums.before >= EVENTS_MIN
            && filtered.saturating_mul(100) > sums.before.saturating_mul(PERCENT_MAX);
        let (rule, n) = rules.iter().max_by_key(|(_, n)| *n)?;
        // In tenths of a percent.
        let share = filtered.saturating_mul(1_000) / sums.before.max(1);
        is_much.then(|| {
            format!(
                "rules would newly filter {} of {} `{kind}`, {}.{} % ({} of them by `{rule}`), and more than \
                 {PERCENT_MAX} % are filtered only with `--force` (in the API `\"force\": true`)",
                grouped(filtered),
                grouped(sums.before),
                share / 10,
                share % 10,
                grouped(*n)
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(before: u128, causes: &[(&str, i128)]) -> Option<String> {
        let causes = causes.iter().map(|&(cause, n)| (cause.to_owned(), n));
        let sums = FinalSums {
            before,
            causes: causes.collect(),
            ..FinalSums::default()
        };
        too_much_filtered(&BTreeMap::from([("click".to_owned(), sums)]))
    }

    #[test]
    fn more_than_a_fifth_of_a_thousand_events_is_too_much() {
        for (before, causes) in [
            (999, &[("filtered_by:bots", -999)][..]),
            (1_000, &[("filtered_by:bots", -200)]),
            (1_000, &[("duplicate_beyond_window", -1_000)]),
            (1_000, &[("restored:bots", 1_000), ("voided", -900)]),
            (0, &[]),
        ] {
            assert_eq!(of(before, causes), None, "{before} {causes:?}");
        }
        let causes = [("filtered_by:bots", -101), ("filtered_by:own", -1_000)];
        let told = of(5_500, &causes).expect("too much");
        for part in [
            "1,101 of 5,500 `click`, 20.0 %",
            "(1,000 of them by `own`)",
            "--force",
        ] {
            assert!(told.contains(part), "{told}");
        }
        assert!(of(1_000, &[("filtered_by:a", -101), ("filtered_by:b", -100)]).is_some());
    }
}
