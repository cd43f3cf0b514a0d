//! `[reports.NAME]`: counts of a week or a month that people get once it is over.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use tallyring_api::calendar::{Unit, Zone};
use tallyring_records::Schema;

use super::alerts::{Of, check_name, check_receivers, zone_of};
use super::receivers::Receiver;

/// Counts that people get.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    /// The counts.
    pub of: Of,
    /// How long a period is: a week from Monday, or a month.
    pub every: Unit,
    /// Whose calendar it follows.
    pub zone: Zone,
    /// Names of the receivers.
    pub to: BTreeSet<String>,
}

/// `[reports.NAME]`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReportSection {
    of: String,
    every: Every,
    timezone: Option<String>,
    to: BTreeSet<String>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Every {
    Week,
    Month,
}

/// The checked sections. The text names the first setting that cannot be used, and what to write instead.
pub(super) fn check(
    reports: BTreeMap<String, ReportSection>,
    receivers: &BTreeMap<String, Receiver>,
    schema: &Schema,
) -> Result<BTreeMap<String, Report>, String> {
    let reports = reports.into_iter().map(|(name, section)| {
        let named = check_name("reports", &name)?;
        check_receivers(&named, &section.to, receivers)?;
        let report = Report {
            of: Of::parse(&section.of, &format!("{named}.of"), schema)?,
            every: match section.every {
                Every::Week => Unit::Mweek,
                Every::Month => Unit::Month,
            },
            zone: zone_of(&named, section.timezone.as_deref())?,
            to: section.to,
        };
        Ok((name, report))
    });
    reports.collect()
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    #[test]
    fn bad_values_are_named_with_the_fix() {
        let receiver = "[receivers.ops]\nurl = \"http://a\"\nsecret = \"s\"\n";
        for (report, named) in [
            ("of = \"l\"\nevery = \"week\"\nto = [\"ops\"]", ""),
            (
                "of = \"l/abc\"\nevery = \"month\"\ntimezone = \"Asia/Tokyo\"\nto = [\"ops\"]",
                "",
            ),
            ("of = \"l\"\nevery = \"day\"\nto = [\"ops\"]", "`day`"),
            (
                "of = \"x\"\nevery = \"week\"\nto = [\"ops\"]",
                "reports.r.of",
            ),
            ("of = \"l\"\nevery = \"week\"\nto = []", "reports.r.to"),
            (
                "of = \"l\"\nevery = \"week\"\nto = [\"ops\"]\ntimezone = \"Mars\"",
                "reports.r.timezone",
            ),
        ] {
            let text = format!("{receiver}[reports.r]\n{report}");
            let error = Config::parse(&text, "test")
                .err()
                .map(|error| error.to_string());
            let error = error.unwrap_or_default();
            assert_eq!(error.is_empty(), named.is_empty(), "{error}");
            assert!(error.contains(named), "{error}");
        }
    }
}
