//! The totals of a run, as a table or as one JSON object.

use std::io::{self, Write};
use std::time::Duration;

use indicatif::HumanCount;
use serde::Serialize;

use super::progress::rate_per_second;

/// The counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Totals {
    /// Events of answered batches: `accepted + duplicates + rejected`.
    pub sent: u64,
    /// Events that the server counted, late ones included.
    pub accepted: u64,
    /// Events whose id the server knew.
    pub duplicates: u64,
    /// Accepted events for days that the ring has left.
    pub late: u64,
    /// Events that the server refused one by one.
    pub rejected: u64,
    /// Lines that were not sent because they are bad.
    pub bad_lines: u64,
    /// Lines that were not sent because a `--where` excludes them, or because a request in an access log has no key.
    pub skipped: u64,
    /// Answered batches.
    pub batches: u64,
    /// Attempts that were repeated.
    pub retries: u64,
}

#[derive(Serialize)]
struct JsonSummary<'a> {
    #[serde(flatten)]
    totals: &'a Totals,
    elapsed_seconds: f64,
    events_per_second: f64,
}

impl Totals {
    /// Writes one JSON object on a line, or the table.
    pub(super) fn write(
        &self,
        out: &mut dyn Write,
        elapsed: Duration,
        json: bool,
    ) -> io::Result<()> {
        if json {
            return self.write_json(out, elapsed);
        }
        let mut rows: Vec<(&str, String)> = [
            ("sent", self.sent),
            ("accepted", self.accepted),
            ("duplicates", self.duplicates),
            ("late", self.late),
            ("rejected", self.rejected),
            ("bad lines", self.bad_lines),
            ("skipped", self.skipped),
            ("retries", self.retries),
        ]
        .map(|(name, count)| (name, HumanCount(count).to_string()))
        .into();
        rows.push(("elapsed", format!("{:.1} s", elapsed.as_secs_f64())));
        let rate = rate_per_second(self.sent, elapsed);
        rows.push(("rate", format!("{}/s", HumanCount(rate as u64))));
        let width = rows.iter().map(|(_, value)| value.len()).max().unwrap_or(0);
        for (name, value) in rows {
            writeln!(out, "{name:<10}  {value:>width$}")?;
        }
        Ok(())
    }

    fn write_json(&self, out: &mut dyn Write, elapsed: Duration) -> io::Result<()> {
        let summary = JsonSummary {
            totals: self,
            elapsed_seconds: elapsed.as_secs_f64(),
            events_per_second: rate_per_second(self.sent, elapsed),
        };
        serde_json::to_writer(&mut *out, &summary)?;
        writeln!(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOTALS: Totals = Totals {
        sent: 3440,
        accepted: 3438,
        duplicates: 2,
        late: 0,
        rejected: 0,
        bad_lines: 120,
        skipped: 7,
        batches: 4,
        retries: 1,
    };

    fn written(json: bool) -> String {
        let mut out = Vec::new();
        TOTALS
            .write(&mut out, Duration::from_millis(500), json)
            .expect("write");
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn the_table_lines_up() {
        let expected = "\
sent          3,440
accepted      3,438
duplicates        2
late              0
rejected          0
bad lines       120
skipped           7
retries           1
elapsed       0.5 s
rate        6,880/s
";
        assert_eq!(written(false), expected);
    }

    #[test]
    fn json_is_one_object() {
        let expected = concat!(
            r#"{"sent":3440,"accepted":3438,"duplicates":2,"late":0,"rejected":0,"bad_lines":120,"#,
            r#""skipped":7,"batches":4,"retries":1,"elapsed_seconds":0.5,"events_per_second":6880.0}"#,
            "\n"
        );
        assert_eq!(written(true), expected);
    }
}
