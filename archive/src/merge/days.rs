//! Folds old base buckets into UTC days on their way out of a merge.
//!
//! All lines of one total or subtotal within a day follow each other, and lines that were folded earlier come first. So
//! one open line is enough. Sums do not change, so the books balance; sketches of users are united.

use tallyring_records::line::{self, Kind};
use tallyring_records::{Grain, TimeCode, Users};

use super::values::Values;
use super::{add, total_payload, unreadable};
use crate::error::Result;
use crate::run::RunWriter;

/// Writes lines to a run, and folds the lines of old buckets into days.
pub(super) struct Days {
    /// Buckets that began earlier are folded, Unix seconds.
    before: i64,
    day: Option<OpenDay>,
    payload: Vec<u8>,
}

/// The line of a day to which later lines may still add.
struct OpenDay {
    key: Vec<u8>,
    content: DayContent,
}

enum DayContent {
    Values(Values),
    Users(Users),
}

impl Days {
    pub(super) fn new(before: i64) -> Self {
        Self {
            before,
            day: None,
            payload: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, out: &mut RunWriter, key: &[u8], payload: &[u8]) -> Result<()> {
        match line::kind_of(key) {
            Some(Kind::Total) => {
                self.flush(out)?;
                self.total(out, key, payload)
            }
            Some(Kind::Subtotal | Kind::Users) => {
                let (_, _, code) =
                    line::split_subtotal(key).ok_or_else(|| unreadable(key, payload))?;
                if code.start() < self.before {
                    return self.fold(out, (key, code), payload);
                }
                self.flush(out)?;
                out.push(key, payload)
            }
            _ => {
                self.flush(out)?;
                out.push(key, payload)
            }
        }
    }

    /// Writes what is kept back.
    pub(super) fn flush(&mut self, out: &mut RunWriter) -> Result<()> {
        let Some(day) = self.day.take() else {
            return Ok(());
        };
        match day.content {
            DayContent::Users(users) => out.push(&day.key, users.to_payload().as_bytes()),
            DayContent::Values(mut values) => {
                values.write(&day.key, &mut self.payload)?;
                out.push(&day.key, &self.payload)
            }
        }
    }

    fn total(&mut self, out: &mut RunWriter, key: &[u8], payload: &[u8]) -> Result<()> {
        let first = line::hours(payload).next().flatten();
        if first.is_none_or(|(code, _)| code.start() >= self.before) {
            return out.push(key, payload);
        }
        let mut buckets: Vec<(TimeCode, u64)> = Vec::new();
        for entry in line::hours(payload) {
            let (code, count) = entry.ok_or_else(|| unreadable(key, payload))?;
            let code = self.folded(code);
            match buckets.last_mut() {
                Some((last, sum)) if *last == code => add(sum, count, key)?,
                _ => buckets.push((code, count)),
            }
        }
        out.push(key, &total_payload(&buckets))
    }

    fn fold(
        &mut self,
        out: &mut RunWriter,
        (key, code): (&[u8], TimeCode),
        payload: &[u8],
    ) -> Result<()> {
        let prefix = key.iter().rposition(|&byte| byte == b'.');
        let prefix = prefix.ok_or_else(|| unreadable(key, payload))?;
        let mut day_key = key[..=prefix].to_vec();
        self.folded(code).write_to(&mut day_key);
        if self.day.as_ref().is_none_or(|day| day.key != day_key) {
            self.flush(out)?;
            let content = if line::kind_of(key) == Some(Kind::Users) {
                DayContent::Users(Users::default())
            } else {
                DayContent::Values(Values::default())
            };
            self.day = Some(OpenDay {
                key: day_key,
                content,
            });
        }
        let day = self.day.as_mut().expect("BUG: it was made above");
        match &mut day.content {
            DayContent::Users(users) => {
                let more = Users::from_payload(payload).ok_or_else(|| unreadable(key, payload))?;
                users.union(&more);
            }
            DayContent::Values(values) => values.add(key, payload)?,
        }
        Ok(())
    }

    fn folded(&self, code: TimeCode) -> TimeCode {
        if code.start() < self.before {
            TimeCode::containing(code.start(), Grain::Day)
        } else {
            code
        }
    }
}
