//! `[oplog]` and `[journal]`: how long the log is kept, and how large it may be.

use serde::Deserialize;
use tallyring_realtime::{Durability, Options};

use super::within;

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct OplogSection {
    pub durability: String,
    keep_days: u32,
    segment_mib: u64,
    max_bytes: Option<u64>,
}

impl OplogSection {
    /// The options with the sizes of a segment and of the whole log, and with the days for which the log is kept.
    pub(super) fn options(&self, derived: Options) -> Result<Options, String> {
        let segment_bytes = within("oplog.segment_mib", self.segment_mib, 1, 1_024)? << 20;
        let (bytes_max, least) = (self.max_bytes, LOG_SEGMENTS_MIN * segment_bytes);
        if let Some(max) = bytes_max.filter(|max| *max < least) {
            return Err(format!(
                "oplog.max_bytes = {max} must be at least {least}, {LOG_SEGMENTS_MIN} segments of oplog.segment_mib = {}; leave \
                 it out for no limit",
                self.segment_mib
            ));
        }
        Ok(Options {
            segment_bytes,
            oplog_bytes_max: bytes_max.unwrap_or(u64::MAX),
            oplog_days: within("oplog.keep_days", self.keep_days, 1, 36_500)?,
            ..derived
        })
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct JournalSection {
    keep_days: Option<u32>,
}

impl JournalSection {
    /// Days for which segments are kept once the log itself, which is kept for `log_days`, needs them no more; 0 for
    /// none.
    pub(super) fn days(&self, log_days: u32) -> Result<u32, String> {
        match self.keep_days {
            None => Ok(0),
            Some(days) if days <= log_days => Err(format!(
                "journal.keep_days = {days} must be more than the {log_days} days for which the log is kept \
                 (oplog.keep_days); leave it out for no journal"
            )),
            Some(days) => within("journal.keep_days", days, 1, 36_500),
        }
    }
}

/// Segments for which a limit of the log has room, at least: the newest, one that is made ahead, one for records that
/// the server appends by itself, and one that may go.
const LOG_SEGMENTS_MIN: u64 = 4;

pub(super) fn parse_durability(text: &str) -> Result<Durability, String> {
    if text == "fsync" {
        return Ok(Durability::Fsync);
    }
    text.strip_prefix("interval:")
        .and_then(|milliseconds| milliseconds.trim_end_matches("ms").parse().ok())
        .filter(|milliseconds| (1..=60_000).contains(milliseconds))
        .map(Durability::Interval)
        .ok_or_else(|| {
            format!(
                "oplog.durability = \"{text}\" must be \"fsync\" or \"interval:50\" (1 to 60000 ms)"
            )
        })
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn a_journal_begins_where_the_log_ends() {
        let days = |text: &str| {
            let config = Config::parse(text, "test").map_err(|error| error.to_string());
            config.map(|config| config.options.journal_days)
        };
        assert_eq!(days(""), Ok(0));
        assert_eq!(days("[journal]\nkeep_days = 8"), Ok(8));
        let error = days("[journal]\nkeep_days = 7").unwrap_err();
        assert!(error.contains("must be more than the 7 days"), "{error}");
    }
}
