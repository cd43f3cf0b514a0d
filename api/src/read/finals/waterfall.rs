//! The steps from all that came of an event type on a final day to all that counts in one of its versions.

use std::collections::BTreeMap;

use serde::Serialize;
use tallyring_archive::{FinalEntry, FinalSums};
use tallyring_records::COUNT_MAX;

use crate::chart;

/// One step: a sum, or a difference between two.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(super) struct Step {
    /// `gross`, a cause, `filtered_live` for what rules filtered as it came, or `net`
    step: String,
    /// The name by which people know it
    title: String,
    /// A sum of `n`; signed for all but the first and the last step
    n: i64,
}

/// Sums of what rules took out and gave back, apart by when they did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(super) struct ByRules {
    /// Filtered as it came, as 0 or less
    pub live: i64,
    /// Filtered by reconciles, as 0 or less
    pub filtered: i64,
    /// Given back by reconciles
    pub restored: i64,
}

impl ByRules {
    /// The difference that the last of these versions made, which are all of a day up to it, for one event type; `live`
    /// is about what came since the version before. An event that moved from rule to rule was neither filtered nor
    /// given back.
    pub(super) fn of(versions: &[FinalEntry], kind: &str) -> Self {
        let Some((newest, before)) = versions.split_last() else {
            return Self::default();
        };
        let (mut filtered, mut restored, mut moved) = (0_i128, 0_i128, 0_i128);
        let causes = newest.types.get(kind).map(|sums| &sums.causes);
        for (cause, n) in causes.into_iter().flatten() {
            if !undone(cause).starts_with(FILTERED_BY) {
                continue;
            }
            let sum = if cause.starts_with(MOVED) {
                &mut moved
            } else if *n < 0 {
                &mut filtered
            } else {
                &mut restored
            };
            *sum = sum.saturating_add(*n);
        }
        Self {
            live: filtered_live(versions, kind).saturating_sub(filtered_live(before, kind)),
            filtered: shown(filtered.saturating_add(moved.min(0))),
            restored: shown(restored.saturating_add(moved.max(0))),
        }
    }

    /// The sums over all versions of a day, for one event type.
    pub(super) fn of_day(versions: &[FinalEntry], kind: &str) -> Self {
        let each = (1..=versions.len()).map(|end| Self::of(&versions[..end], kind));
        each.fold(Self::default(), |sum, of| Self {
            live: sum.live.saturating_add(of.live),
            filtered: sum.filtered.saturating_add(of.filtered),
            restored: sum.restored.saturating_add(of.restored),
        })
    }

    /// Parts of the line below the title of a picture, each behind a dot. `before` is the version before.
    pub(super) fn told(self, before: Option<u32>) -> String {
        let part = |n: i64, what: &str| match n {
            0 => String::new(),
            n => format!(" · {} {what}", chart::exact(n.unsigned_abs())),
        };
        let parts = [
            part(self.live, "filtered as it came"),
            part(self.filtered, "filtered by the reconcile"),
            part(self.restored, "given back by the reconcile"),
        ]
        .concat();
        match (before, parts.strip_prefix(" · ")) {
            (Some(before), Some(parts)) => format!(" · since version {before}: {parts}"),
            _ => parts,
        }
    }
}

/// The sum that rules filtered as it came, up to the last of these versions, as 0 or less.
fn filtered_live(versions: &[FinalEntry], kind: &str) -> i64 {
    let steps = steps(versions, kind);
    let live = steps.iter().find(|step| step.step == LIVE);
    live.map_or(0, |live| live.n)
}

const LIVE: &str = "filtered_live";
const SAME_DAY: &str = "duplicate_beyond_window";
const OTHER_DAY: &str = "duplicate_other_day";
const VOIDED: &str = "voided";
const RESTORED: &str = "restored:";
const FILTERED_BY: &str = "filtered_by:";
const MOVED: &str = "moved:";

/// True for the verdict that an event moves to, or from, where no rule has it.
pub(super) fn is_no_rule(verdict: &str) -> bool {
    [SAME_DAY, OTHER_DAY, VOIDED].contains(&verdict)
}

impl Step {
    fn new(step: &str, title: String, n: i128) -> Self {
        Self {
            step: step.to_owned(),
            title,
            n: shown(n),
        }
    }

    /// Its title and its number, for a picture.
    pub(super) fn shown(&self) -> (String, i64) {
        (self.title.clone(), self.n)
    }
}

/// A sum as answers have it: between −(2^53−1) and 2^53−1.
fn shown(n: i128) -> i64 {
    let magnitude = u64::try_from(n.unsigned_abs()).unwrap_or(COUNT_MAX);
    // 2^53−1 is a number of both kinds.
    let magnitude = magnitude.min(COUNT_MAX) as i64;
    if n < 0 { -magnitude } else { magnitude }
}

/// The steps to the last one of these versions, which are all of a day up to it, for one event type: `gross`, then what
/// differs, then `net`. Each version judged again what the one before had counted, so causes sum over them. The rest
/// between `gross` and the live count is what rules filtered as it came.
pub(super) fn steps(versions: &[FinalEntry], kind: &str) -> Vec<Step> {
    let none = FinalSums::default();
    let newest = versions.last().and_then(|last| last.types.get(kind));
    let newest = newest.unwrap_or(&none);
    let mut causes: BTreeMap<String, i128> = BTreeMap::new();
    let sums = versions
        .iter()
        .filter_map(|version| version.types.get(kind));
    for (cause, n) in sums.flat_map(|sums| &sums.causes) {
        let sum = causes.entry(undone(cause)).or_insert(0);
        *sum = sum.saturating_add(*n);
    }
    let [gross, net] = [newest.gross, newest.after].map(|n| i128::try_from(n).unwrap_or(i128::MAX));
    let explained = causes
        .values()
        .fold(0_i128, |sum, n| sum.saturating_add(*n));
    let filtered_live = net.saturating_sub(explained).saturating_sub(gross);
    let mut take = |cause: &str| causes.remove(cause).unwrap_or(0);
    let (same_day, other_day, voided) = (take(SAME_DAY), take(OTHER_DAY), take(VOIDED));
    let mut differences = vec![
        Step::new(SAME_DAY, "duplicates of the day".into(), same_day),
        Step::new(OTHER_DAY, "duplicates of other days".into(), other_day),
        Step::new(LIVE, "filtered as it came".into(), filtered_live),
    ];
    differences.extend(causes.into_iter().map(|(cause, n)| {
        let rule = cause.strip_prefix(FILTERED_BY).unwrap_or(&cause);
        match n > 0 {
            true => Step::new(&format!("{RESTORED}{rule}"), format!("left rule {rule}"), n),
            false => Step::new(&cause, format!("rule {rule}"), n),
        }
    }));
    differences.push(Step::new(VOIDED, "voided by hand".into(), voided));
    differences.retain(|step| step.n != 0);
    let mut steps = vec![Step::new("gross", "all that came".into(), gross)];
    steps.append(&mut differences);
    steps.push(Step::new("net", "final".into(), net));
    steps
}

/// The cause that a cause undoes or adds to, or itself: `restored:bots` is the end of a `filtered_by:bots`, and so is a
/// `moved:bots` that is positive.
fn undone(cause: &str) -> String {
    let of = cause.strip_prefix(RESTORED);
    match of.or_else(|| cause.strip_prefix(MOVED)) {
        Some(verdict @ (SAME_DAY | OTHER_DAY | VOIDED)) => verdict.to_owned(),
        Some(rule) => format!("{FILTERED_BY}{rule}"),
        None => cause.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tallyring_records::Day;

    use super::*;

    fn version(version: u32, sums: FinalSums) -> FinalEntry {
        FinalEntry {
            day: Day::from_number(4_000),
            version,
            at_ms: 0,
            upto: 0,
            rules: String::new(),
            books: Vec::new(),
            verdicts: None,
            types: [("click".to_owned(), sums)].into(),
            filtered: None,
            repeated: None,
            touched: false,
            sums_only: false,
            forced: false,
            actor: None,
            proof: None,
        }
    }

    fn sums(gross: u128, before: u128, causes: &[(&str, i128)]) -> FinalSums {
        let all: i128 = causes.iter().map(|of| of.1).sum();
        FinalSums {
            before,
            causes: causes
                .iter()
                .map(|(cause, n)| ((*cause).to_owned(), *n))
                .collect(),
            after: before.checked_add_signed(all).unwrap(),
            gross,
            undecided: 0,
        }
    }

    fn told(versions: &[FinalEntry]) -> Vec<(String, i64)> {
        let steps = steps(versions, "click");
        steps.into_iter().map(|step| (step.step, step.n)).collect()
    }

    fn by_rules(versions: &[FinalEntry]) -> ByRules {
        ByRules::of(versions, "click")
    }

    fn of_day(versions: &[FinalEntry]) -> ByRules {
        ByRules::of_day(versions, "click")
    }

    #[test]
    fn what_a_rule_filtered_and_what_it_gave_back_are_told_apart() {
        let both = [("filtered_by:bots", -5), ("restored:bots", 5)];
        let mut versions = vec![version(1, sums(20, 10, &both))];
        assert_eq!(
            by_rules(&versions).told(None),
            " · 10 filtered as it came · 5 filtered by the reconcile · 5 given back by the reconcile"
        );
        // The next version tells its own difference alone, and of what it does not change nothing.
        versions.push(version(2, sums(20, 10, &[("filtered_by:bots", -1)])));
        let told = by_rules(&versions).told(Some(1));
        assert_eq!(told, " · since version 1: 1 filtered by the reconcile");
        versions.push(version(3, sums(20, 9, &[])));
        assert_eq!(by_rules(&versions).told(Some(2)), "");
    }

    #[test]
    fn causes_of_all_versions_lead_from_what_came_to_what_counts() {
        // Ten came, and a rule filtered two of them at once.
        let first = [("duplicate_beyond_window", -1), ("filtered_by:bots", -3)];
        let second = [("restored:bots", 1), ("restored:old", 2), ("voided", -1)];
        let mut versions = vec![version(1, sums(10, 8, &first))];
        let named = |steps: &[(&str, i64)]| -> Vec<(String, i64)> {
            steps
                .iter()
                .map(|(step, n)| ((*step).to_owned(), *n))
                .collect()
        };
        let expected = [
            ("gross", 10),
            ("duplicate_beyond_window", -1),
            ("filtered_live", -2),
            ("filtered_by:bots", -3),
            ("net", 4),
        ];
        assert_eq!(told(&versions), named(&expected));
        let apart = |live, filtered, restored| ByRules {
            live,
            filtered,
            restored,
        };
        assert_eq!(by_rules(&versions), apart(-2, -3, 0));
        assert_eq!(of_day(&versions), apart(-2, -3, 0), "stated once");
        // One more came since, and counts.
        versions.push(version(3, sums(11, 5, &second)));
        let expected = [
            ("gross", 11),
            ("duplicate_beyond_window", -1),
            ("filtered_live", -2),
            ("filtered_by:bots", -2),
            ("restored:old", 2),
            ("voided", -1),
            ("net", 7),
        ];
        assert_eq!(told(&versions), named(&expected));
        assert_eq!(by_rules(&versions), apart(0, 0, 3));
        assert_eq!(of_day(&versions), apart(-2, -3, 3));
        assert_eq!(steps(&versions, "impression").len(), 2, "nothing came");
    }

    #[test]
    fn an_event_that_moves_from_rule_to_rule_is_told_by_the_rule_that_has_it() {
        // Ten came, and rule `a` filtered two at once. Now `b` has one of them, and then it is a duplicate.
        let moved = [("moved:a", 1), ("moved:b", -1)];
        let again = [("moved:b", 1), ("moved:duplicate_other_day", -1)];
        let versions = [
            version(1, sums(10, 8, &moved)),
            version(2, sums(10, 8, &again)),
        ];
        let expected = |steps: &[(&str, i64)]| -> Vec<(String, i64)> {
            let steps = steps.iter();
            steps.map(|(step, n)| ((*step).to_owned(), *n)).collect()
        };
        assert_eq!(
            told(&versions[..1]),
            expected(&[
                ("gross", 10),
                ("filtered_live", -2),
                ("restored:a", 1),
                ("filtered_by:b", -1),
                ("net", 8),
            ])
        );
        let moved = by_rules(&versions[..1]);
        assert_eq!((moved.filtered, moved.restored), (0, 0));
        assert_eq!(
            told(&versions),
            expected(&[
                ("gross", 10),
                ("duplicate_other_day", -1),
                ("filtered_live", -2),
                ("restored:a", 1),
                ("net", 8),
            ])
        );
        let (left, of_day) = (by_rules(&versions), of_day(&versions));
        assert_eq!((left.live, left.filtered, left.restored), (0, 0, 1));
        assert_eq!((of_day.live, of_day.filtered, of_day.restored), (-2, 0, 1));
    }

    proptest! {
        #[test]
        fn prop_steps_sum_to_what_counts(
            gross in 0_u128..1_000_000,
            causes in prop::collection::vec((0_usize..6, -900_i128..900), 0..12),
        ) {
            let names = ["duplicate_other_day", "filtered_by:a", "restored:a", "filtered_by:b", "voided", "restored:c"];
            let mut before = 1_000_000_u128;
            let versions: Vec<FinalEntry> = (1..).zip(causes).map(|(number, (name, n))| {
                let sums = sums(gross + 2_000_000, before, &[(names[name], n)]);
                before = sums.after;
                version(number, sums)
            }).collect();
            let rules = of_day(&versions);
            let of_rules = |step: &&(String, i64)| step.0 == LIVE || step.0.contains(':');
            let steps = told(&versions);
            let sum: i64 = steps.iter().filter(of_rules).map(|of| of.1).sum();
            prop_assert_eq!(rules.live + rules.filtered + rules.restored, sum);
            let (net, rest) = steps.split_last().unwrap();
            prop_assert_eq!(rest.iter().map(|of| of.1).sum::<i64>(), net.1);
        }
    }
}
