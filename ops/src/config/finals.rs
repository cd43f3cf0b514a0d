//! `[final]`: when days become final, and for how long their books and older ids are kept.

use serde::Deserialize;

use super::within;

const AFTER_HOURS: u32 = 72;

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FinalSection {
    #[serde(default)]
    by_hand: bool,
    after_hours: Option<u32>,
    keep_days: Option<u32>,
    ids_days: Option<u32>,
    #[serde(default)]
    pub four_eyes: bool,
}

/// The section where it is left out.
impl Default for FinalSection {
    fn default() -> Self {
        Self {
            by_hand: true,
            after_hours: None,
            keep_days: None,
            ids_days: None,
            four_eyes: false,
        }
    }
}

impl FinalSection {
    /// The hours after which a day becomes final; none where days do so by hand alone. The log must still have all of
    /// the day then, whose first events may come on the day before; and breakdowns by minute must have gone.
    pub(super) fn after_hours(
        &self,
        log_days: u32,
        breakdown_hours: u32,
    ) -> Result<Option<u32>, String> {
        match (self.by_hand, self.after_hours) {
            (true, None) => return Ok(None),
            (true, Some(_)) => {
                return Err(
                    "final.after_hours does not go with final.by_hand: no day becomes final by itself then; leave one out"
                        .into(),
                );
            }
            (false, _) => {}
        }
        let hours = self.after_hours.unwrap_or(AFTER_HOURS);
        // The second night after a day closes it.
        let least = breakdown_hours.max(24) + 1;
        let most = log_days.saturating_sub(2) * 24;
        if most < least {
            return Err(format!(
                "[final] needs oplog.keep_days of at least {}, and it is {log_days}",
                least.div_ceil(24) + 2
            ));
        }
        if !(least..=most).contains(&hours) {
            return Err(format!(
                "final.after_hours = {hours} must be from {least} to {most}: two days less than oplog.keep_days = {log_days}"
            ));
        }
        Ok(Some(hours))
    }

    /// The days for which books of final days are kept. While the log has a day, another version of it may begin with
    /// them.
    pub(super) fn keep_days(&self, log_days: u32) -> Result<Option<u32>, String> {
        match self.keep_days {
            Some(days) if days <= log_days => Err(format!(
                "final.keep_days = {days} must be more than the {log_days} days for which the log is kept (oplog.keep_days \
                 or journal.keep_days), because another version of a day begins with the books of the one before; leave it \
                 out to keep them for ever"
            )),
            Some(days) => within("final.keep_days", days, 1, 36_500).map(Some),
            None => Ok(None),
        }
    }

    /// The days for which ids are known after their records left the log; 0 where they are not.
    pub(super) fn ids_days(&self, log_days: u32) -> Result<u32, String> {
        match self.ids_days {
            Some(days) if days <= log_days => Err(format!(
                "final.ids_days = {days} must be more than the {log_days} days for which the log is kept (oplog.keep_days or \
                 journal.keep_days), because the ids of its records are known anyway; leave it out to know no others"
            )),
            Some(days) => within("final.ids_days", days, 1, 36_500),
            None => Ok(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use tallyring_realtime::Options;

    use crate::config::Config;

    fn options(text: &str) -> crate::error::Result<Options> {
        Config::parse(text, "test").map(|config| config.options)
    }

    #[test]
    fn ids_are_known_for_longer_than_the_log() {
        let days = |text: &str| options(text).map(|options| options.ids_days);
        assert_eq!(days("[final]").unwrap(), 0);
        assert_eq!(days("[final]\nids_days = 8").unwrap(), 8);
        for text in ["ids_days = 7", "ids_days = 30\n[journal]\nkeep_days = 30"] {
            let error = days(&format!("[final]\n{text}")).unwrap_err();
            assert!(error.to_string().contains("final.ids_days"), "{error}");
        }
    }

    #[test]
    fn books_of_final_days_are_kept_for_longer_than_the_log() {
        let days = |text: &str| options(text).map(|options| options.final_days);
        assert_eq!(days("[final]").unwrap(), None);
        assert_eq!(days("[final]\nkeep_days = 8").unwrap(), Some(8));
        for text in ["keep_days = 7", "keep_days = 30\n[journal]\nkeep_days = 30"] {
            let error = days(&format!("[final]\n{text}")).unwrap_err();
            assert!(error.to_string().contains("final.keep_days"), "{error}");
        }
    }

    #[test]
    fn days_that_become_final_by_hand_may_have_everything_else() {
        let hours = |text: &str| options(text).map(|options| options.final_after_hours);
        assert_eq!(hours("").unwrap(), None);
        assert_eq!(hours("[final]").unwrap(), Some(72));
        let by_hand = "[oplog]\nkeep_days = 2\n[final]\nby_hand = true\n";
        assert_eq!(hours(by_hand).unwrap(), None);
        let all = format!("{by_hand}ids_days = 30\nkeep_days = 40\nfour_eyes = true");
        let config = Config::parse(&all, "test").unwrap();
        let options = config.options;
        assert_eq!((options.ids_days, options.final_days), (30, Some(40)));
        assert!(config.writes.four_eyes);
        let error = hours(&format!("{by_hand}after_hours = 25")).unwrap_err();
        assert!(error.to_string().contains("final.by_hand"), "{error}");
    }
}
