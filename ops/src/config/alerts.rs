//! `[alerts.NAME]` and `[receivers.NAME]`: counts that people are told of, and how they are told.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;
use tallyring_api::calendar::{Unit, Zone};
use tallyring_records::Schema;

use super::Config;
use super::receivers::{Receiver, ReceiverSection};
use super::reports::{self, Report, ReportSection};
use crate::alerts;
use crate::error::{CommandError, Result as CommandResult};

/// Counts that people are told of, and how.
#[derive(Debug, Clone, Default)]
pub(crate) struct AlertConfig {
    /// By name.
    pub alerts: BTreeMap<String, Alert>,
    /// By name.
    pub reports: BTreeMap<String, Report>,
    /// By name.
    pub receivers: BTreeMap<String, Receiver>,
}

/// A count that is watched.
#[derive(Debug, Clone)]
pub(crate) struct Alert {
    /// The counts that are judged.
    pub of: Of,
    /// When the alert is on.
    pub kind: Kind,
    /// How long a bucket is: an hour or a day.
    pub unit: Unit,
    /// Whose calendar says what the same hour of the same weekday is.
    pub zone: Zone,
    /// The least count of a spike, and the least that is expected where a drop or a silence is judged.
    pub least: u64,
    /// Names of the receivers.
    pub to: BTreeSet<String>,
}

/// A key, or all keys of a namespace together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Of {
    pub namespace: String,
    /// None for all keys.
    pub key: Option<String>,
}

/// When an alert is on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    /// A bucket counts more than so many times what is expected.
    Spike(f64),
    /// A bucket counts less than this share of what is expected.
    Drop(f64),
    /// Nothing counts for so many hours, and something is expected.
    Silence(u32),
    /// A bucket counts more.
    Above(u64),
    /// A bucket counts less.
    Below(u64),
}

/// `[alerts.NAME]`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AlertSection {
    of: String,
    kind: KindName,
    factor: Option<f64>,
    hours: Option<u32>,
    above: Option<u64>,
    below: Option<u64>,
    unit: Option<UnitName>,
    timezone: Option<String>,
    least: Option<u64>,
    to: BTreeSet<String>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum KindName {
    Spike,
    Drop,
    Silence,
    Threshold,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum UnitName {
    Hour,
    Day,
}

/// Alerts, and receivers, at most: all are looked at each minute.
const NAMES_MAX: usize = 1_000;
const NAME_CHARS_MAX: usize = 64;
const FACTOR_MAX: f64 = 1e6;
/// Hours of a week, which repeats.
const SILENCE_HOURS_MAX: u32 = 168;
/// Spikes and drops have so many at least unless the configuration says otherwise: fewer clicks come by chance.
const LEAST_DEFAULT: u64 = 10;

/// The checked sections. The text names the first setting that cannot be used, and what to write instead.
pub(super) fn check(
    alerts: BTreeMap<String, AlertSection>,
    reports: BTreeMap<String, ReportSection>,
    receivers: BTreeMap<String, ReceiverSection>,
    schema: &Schema,
) -> Result<AlertConfig, String> {
    for (section, count) in [
        ("alerts", alerts.len()),
        ("reports", reports.len()),
        ("receivers", receivers.len()),
    ] {
        if count > NAMES_MAX {
            return Err(format!(
                "[{section}] has {count} of them, more than {NAMES_MAX}; leave some out"
            ));
        }
    }
    let receivers = receivers.into_iter().map(|(name, section)| {
        let named = check_name("receivers", &name)?;
        Ok((name, section.check(&named)?))
    });
    let receivers = receivers.collect::<Result<BTreeMap<_, _>, String>>()?;
    let alerts = alerts.into_iter().map(|(name, section)| {
        let named = check_name("alerts", &name)?;
        check_receivers(&named, &section.to, &receivers)?;
        Ok((name, section.check(&named, schema)?))
    });
    Ok(AlertConfig {
        alerts: alerts.collect::<Result<_, String>>()?,
        reports: reports::check(reports, &receivers, schema)?,
        receivers,
    })
}

/// Names are parts of ids, which stand in headers.
pub(super) fn check_name(section: &str, name: &str) -> Result<String, String> {
    let is_of_one = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    match (1..=NAME_CHARS_MAX).contains(&name.len()) && name.bytes().all(is_of_one) {
        true => Ok(format!("{section}.{name}")),
        false => Err(format!(
            "{section}.\"{}\" must be called by 1 to {NAME_CHARS_MAX} letters, digits, `_` and `-`",
            name.escape_debug()
        )),
    }
}

pub(super) fn check_receivers(
    named: &str,
    to: &BTreeSet<String>,
    receivers: &BTreeMap<String, Receiver>,
) -> Result<(), String> {
    if to.is_empty() {
        return Err(format!(
            "{named}.to = [] must name a receiver, such as [\"ops\"] for [receivers.ops]"
        ));
    }
    match to.iter().find(|name| !receivers.contains_key(*name)) {
        Some(unknown) => Err(format!(
            "{named}.to has `{}`, which is no receiver; add [receivers.{0}], or leave it out",
            unknown.escape_debug()
        )),
        None => Ok(()),
    }
}

/// The zone of that name; UTC without one.
pub(super) fn zone_of(named: &str, name: Option<&str>) -> Result<Zone, String> {
    let Some(name) = name else {
        return Ok(Zone::utc());
    };
    Zone::named(name).map_err(|_| {
        format!(
            "{named}.timezone = \"{}\" must be an IANA name such as \"America/New_York\"",
            name.escape_debug()
        )
    })
}

impl AlertSection {
    fn check(self, named: &str, schema: &Schema) -> Result<Alert, String> {
        let kind = self.kind(named)?;
        let unit = match (kind, self.unit) {
            (Kind::Silence(_), Some(UnitName::Day)) => {
                return Err(format!(
                    "{named}.unit does not go with kind = \"silence\", which counts hours; leave it out"
                ));
            }
            (_, Some(UnitName::Day)) => Unit::Day,
            (_, Some(UnitName::Hour) | None) => Unit::Hour,
        };
        let zone = zone_of(named, self.timezone.as_deref())?;
        if matches!(kind, Kind::Above(_) | Kind::Below(_)) && self.least.is_some() {
            return Err(format!(
                "{named}.least does not go with kind = \"threshold\"; leave it out"
            ));
        }
        let usual = match kind {
            Kind::Spike(_) | Kind::Drop(_) => LEAST_DEFAULT,
            _ => 1,
        };
        let least = self.least.unwrap_or(usual);
        if least == 0 {
            return Err(format!("{named}.least = 0 must be 1 at least"));
        }
        Ok(Alert {
            of: Of::parse(&self.of, &format!("{named}.of"), schema)?,
            kind,
            unit,
            zone,
            least,
            to: self.to,
        })
    }

    /// The kind with its bound, and no other bound beside it.
    fn kind(&self, named: &str) -> Result<Kind, String> {
        let given = [
            ("factor", self.factor.is_some()),
            ("hours", self.hours.is_some()),
            ("above", self.above.is_some()),
            ("below", self.below.is_some()),
        ];
        let given = given.into_iter().filter(|(_, is_given)| *is_given);
        let given: Vec<&str> = given.map(|(name, _)| name).collect();
        let wants = |bound: &str| match &given[..] {
            [] => Err(format!("{named} lacks its bound; add {bound}")),
            given => Err(format!(
                "{named} has {}, and its kind takes one bound: {bound}",
                given.join(" and ")
            )),
        };
        let kind = match (self.kind, &given[..]) {
            (KindName::Spike, ["factor"]) => self.factor.map(Kind::Spike),
            (KindName::Drop, ["factor"]) => self.factor.map(Kind::Drop),
            (KindName::Silence, ["hours"]) => self.hours.map(Kind::Silence),
            (KindName::Threshold, ["above"]) => self.above.map(Kind::Above),
            (KindName::Threshold, ["below"]) => self.below.map(Kind::Below),
            (KindName::Spike, _) => return wants("factor = 3.0"),
            (KindName::Drop, _) => return wants("factor = 0.5"),
            (KindName::Silence, _) => return wants("hours = 3"),
            (KindName::Threshold, _) => return wants("above = 1000 or below = 10"),
        };
        let kind = kind.expect("BUG: a bound that was given");
        let must = match kind {
            Kind::Spike(factor) if !(factor > 1.0 && factor <= FACTOR_MAX) => {
                format!("factor = {factor} must be more than 1, and {FACTOR_MAX} at most")
            }
            Kind::Drop(factor) if !(factor > 0.0 && factor < 1.0) => format!(
                "factor = {factor} must be between 0 and 1: 0.5 is less than half of what is expected"
            ),
            Kind::Silence(hours) if !(1..=SILENCE_HOURS_MAX).contains(&hours) => {
                format!("hours = {hours} must be from 1 to {SILENCE_HOURS_MAX}")
            }
            Kind::Below(0) => "below = 0 must be 1 at least: no count is less than 0".to_owned(),
            _ => return Ok(kind),
        };
        Err(format!("{named}.{must}"))
    }
}

impl Alert {
    /// Its counts, kind and calendar, as text.
    pub(crate) fn meaning(&self) -> String {
        let (of, kind, unit) = (&self.of, self.kind, self.unit);
        format!("{of} {kind:?} {unit} {}", self.zone.name())
    }
}

impl Of {
    /// Reads `NAMESPACE` or `NAMESPACE/KEY`; messages call the setting `named`. The text says what to write instead.
    pub(super) fn parse(text: &str, named: &str, schema: &Schema) -> Result<Self, String> {
        let (namespace, key) = match text.split_once('/') {
            Some((namespace, key)) => (namespace, Some(key.to_owned())),
            None => (text, None),
        };
        if key.as_deref() == Some("") {
            return Err(format!(
                "{named} = \"{}\" lacks the key; write {0}KEY, or {} for all keys together",
                text.escape_debug(),
                namespace.escape_debug()
            ));
        }
        match schema.namespace(namespace) {
            Some(_) => Ok(Self {
                namespace: namespace.to_owned(),
                key,
            }),
            None => Err(format!(
                "{named} = \"{}\" is of `{}`, which is not declared; name a [[namespace]] or an entity of [events]",
                text.escape_debug(),
                namespace.escape_debug()
            )),
        }
    }
}

impl std::fmt::Display for Of {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.key {
            Some(key) => write!(f, "{}/{key}", self.namespace),
            None => f.write_str(&self.namespace),
        }
    }
}

impl Kind {
    /// Its name in the configuration.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Spike(_) => "spike",
            Self::Drop(_) => "drop",
            Self::Silence(_) => "silence",
            Self::Above(_) | Self::Below(_) => "threshold",
        }
    }
}

impl AlertConfig {
    /// With files beside one in `folder`: a relative path means the same wherever a command is run.
    pub(super) fn beside(&mut self, folder: &Path) {
        let files = self.receivers.values_mut().filter_map(Receiver::file_mut);
        files.for_each(|file| *file = folder.join(&*file));
    }
}

impl Config {
    /// Reads the files of all receivers. A usage error names the receiver and what to change, and nothing of the
    /// secret.
    pub(crate) fn check_receiver_files(&self) -> CommandResult<()> {
        for (name, receiver) in &self.alerts.receivers {
            let checked = alerts::check_files(receiver);
            checked.map_err(|error| CommandError::Usage(format!("receivers.{name}.{error}")))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECEIVER: &str = "[receivers.ops]\nurl = \"https://hooks.example/a\"\nsecret = \"s\"\n";

    fn parsed(alert: &str) -> Result<AlertConfig, String> {
        let text = format!("{RECEIVER}[alerts.a]\nof = \"l/abc\"\nto = [\"ops\"]\n{alert}");
        let config = Config::parse(&text, "test").map_err(|error| error.to_string());
        config.map(|config| config.alerts)
    }

    #[test]
    fn each_kind_has_its_bound() {
        for (text, kind) in [
            ("kind = \"spike\"\nfactor = 3.0", Kind::Spike(3.0)),
            ("kind = \"drop\"\nfactor = 0.5", Kind::Drop(0.5)),
            ("kind = \"silence\"\nhours = 3", Kind::Silence(3)),
            ("kind = \"threshold\"\nabove = 7", Kind::Above(7)),
            ("kind = \"threshold\"\nbelow = 7", Kind::Below(7)),
        ] {
            let alert = &parsed(text).unwrap().alerts["a"];
            assert_eq!(alert.kind, kind);
            assert_eq!(
                (alert.of.to_string().as_str(), alert.unit),
                ("l/abc", Unit::Hour)
            );
        }
        let none = Config::parse("", "test").unwrap().alerts;
        assert!(none.alerts.is_empty() && none.receivers.is_empty());
    }

    #[test]
    fn bad_values_are_named_with_the_fix() {
        let spike = "kind = \"spike\"\nfactor = 3.0\n";
        for (text, named) in [
            (
                "kind = \"spike\"",
                "alerts.a lacks its bound; add factor = 3.0",
            ),
            ("kind = \"spike\"\nhours = 3", "alerts.a has hours"),
            (
                "kind = \"spike\"\nfactor = 1.0",
                "alerts.a.factor = 1 must be more than 1",
            ),
            (
                "kind = \"spike\"\nfactor = 2e6",
                "alerts.a.factor = 2000000 must be more than 1, and 1000000 at most",
            ),
            (
                "kind = \"spike\"\nfactor = nan",
                "alerts.a.factor = NaN must be more than 1",
            ),
            ("kind = \"drop\"\nfactor = 2.0", "between 0 and 1"),
            ("kind = \"silence\"\nhours = 0", "from 1 to 168"),
            (
                "kind = \"silence\"\nhours = 2\nunit = \"day\"",
                "alerts.a.unit",
            ),
            (
                "kind = \"threshold\"\nabove = 1\nbelow = 1",
                "above and below",
            ),
            ("kind = \"threshold\"\nbelow = 0", "below = 0 must be 1"),
            (
                "kind = \"threshold\"\nabove = 1\nleast = 2",
                "alerts.a.least",
            ),
            ("kind = \"peak\"", "peak"),
            (&format!("{spike}unit = \"week\""), "week"),
            (&format!("{spike}least = 0"), "alerts.a.least"),
            (
                &format!("{spike}timezone = \"Mars\""),
                "alerts.a.timezone = \"Mars\"",
            ),
            (&format!("{spike}factors = 1"), "factors"),
            (
                &format!("{spike}[receivers.\"a b\"]\nurl = \"http://a\"\nsecret = \"s\""),
                "receivers.\"a b\"",
            ),
            (
                &format!("{spike}[receivers.b]\nurl = \"ftp://a\"\nsecret = \"s\""),
                "receivers.b.url",
            ),
            (
                &format!("{spike}[receivers.b]\nurl = \"http://a\\nb\"\nsecret = \"s\""),
                "receivers.b.url",
            ),
            (
                &format!("{spike}[receivers.b]\nurl = \"http://a\"\nsecret = \"\""),
                "receivers.b.secret",
            ),
        ] {
            let error = parsed(text).map(|_| ()).unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
    }

    #[test]
    fn counts_and_receivers_that_are_not_declared_are_named() {
        let spike = "kind = \"spike\"\nfactor = 3.0\n";
        for (of, to, named) in [
            ("l/", "ops", "lacks the key"),
            ("nothing/abc", "ops", "`nothing`"),
            ("l", "nobody", "`nobody`, which is no receiver"),
        ] {
            let text = format!("{RECEIVER}[alerts.a]\nof = \"{of}\"\nto = [\"{to}\"]\n{spike}");
            let error = Config::parse(&text, "test")
                .map(|_| ())
                .unwrap_err()
                .to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
