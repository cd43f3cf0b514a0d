//! The horizon of a merge, from which on finer detail is kept.

use std::sync::Arc;

use tallyring_records::{Day, is_breakdown_section, is_minutes_section};

use crate::run::{Run, RunEntry};
use crate::sign::Sign;

/// Times from which finer forms are kept. Coarser forms, which hold the sums, are always kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Horizon {
    /// Minutes of base buckets that began earlier are left out, Unix seconds.
    pub minutes_from: i64,
    /// Base buckets that began earlier are folded into UTC days, Unix seconds; at most `minutes_from`.
    pub hours_from: i64,
    /// Breakdowns by minute, and users, of minutes that began earlier are left out, Unix seconds.
    pub breakdowns_from: i64,
    /// Actions of users of days that began earlier are left out, Unix seconds.
    pub actions_from: i64,
}

impl Horizon {
    /// Keeps everything as it is.
    pub const ALL: Self = Self {
        minutes_from: i64::MIN,
        hours_from: i64::MIN,
        breakdowns_from: i64::MIN,
        actions_from: i64::MIN,
    };

    /// True when a run may hold detail from before it.
    pub fn loses(&self, run: &RunEntry) -> bool {
        self.loses_counts(run) || self.loses_actions(run)
    }

    /// True when a run may hold hours or minutes from before it.
    pub fn loses_counts(&self, run: &RunEntry) -> bool {
        let has = |is_fine: fn(&str) -> bool| run.meta.sums.keys().any(|section| is_fine(section));
        let first = run.meta.first;
        first < self.hours_from
            || first < self.minutes_from && has(is_minutes_section)
            || first < self.breakdowns_from && has(is_breakdown_section)
    }

    /// True when a run may hold actions of users from before it.
    pub fn loses_actions(&self, run: &RunEntry) -> bool {
        run.meta.first < self.actions_from && run.meta.has_actions()
    }

    /// The horizon of a merge of these inputs. A fix has no breakdowns by minute, and no users by minute: with its
    /// days, and before, these are left out, because they would tell of other minutes than the totals do.
    pub(super) fn with_fixes(self, inputs: &[Arc<Run>]) -> Self {
        let minus = inputs.iter().filter(|run| run.sign() == Sign::Minus);
        let days = minus.map(|run| Day::of(run.meta().last).next().start());
        Self {
            breakdowns_from: days.fold(self.breakdowns_from, i64::max),
            ..self
        }
    }
}
