//! The configuration: `tallyring.toml`, or the embedded default.

mod alerts;
mod changes;
mod cloud_events;
mod cluster;
pub(crate) mod command;
mod counted;
mod enrich;
mod finals;
mod http;
mod kafka_in;
mod kafka_out;
mod log;
mod log_copy;
pub(crate) mod memory_fit;
mod receivers;
mod reports;
mod rules;
mod store;
mod text;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tallyring_api::{ActionRules, CapSection, WriteRules};
use tallyring_archive::KeepDays;
use tallyring_cluster::{ClusterSettings, KafkaInSettings};
use tallyring_realtime::{Options, memory};
use tallyring_rebuild::{BuildOptions, REWRITE_BYTES_MIN};
use tallyring_records::{Namespace, Schema};
use toml::Table;

use crate::error::{CommandError, Result};
use alerts::AlertSection;
pub(crate) use alerts::{Alert, AlertConfig, Kind, Of};
use cloud_events::CloudEventSection;
pub(crate) use counted::ListFile;
use counted::{EventSection, FilterSection, RatioSection};
use enrich::EnrichSection;
use finals::FinalSection;
pub(crate) use http::HttpConfig;
use http::{CorsSection, HttpSection, LimitsSection, TlsSection};
pub(crate) use kafka_out::KafkaOutConfig;
use log::{JournalSection, OplogSection, parse_durability};
pub(crate) use log_copy::LogCopyConfig;
use log_copy::LogCopySection;
use receivers::ReceiverSection;
pub(crate) use receivers::{Mail, Receiver};
pub(crate) use reports::Report;
use reports::ReportSection;
pub(crate) use rules::RulesFile;
use text::{in_short, merge, text_of};

/// The embedded configuration, commented.
pub(crate) const DEFAULT: &str = include_str!("default.toml");

/// A checked configuration.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// True with a file. Without one, an existing store keeps the declarations that it was last given.
    pub declares: bool,
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Limits of the store.
    pub options: Options,
    /// Rebuild settings.
    pub rebuild: RebuildConfig,
    /// Where a backup goes after every rebuild; `None` for no backup.
    pub backup: Option<PathBuf>,
    /// The second copy of the log; `None` for no copy.
    pub log_copy: Option<LogCopyConfig>,
    /// The engines that this server shares with others; `None` for a store of its own.
    pub cluster: Option<ClusterSettings>,
    /// Where settled buckets go; `None` for nowhere.
    pub kafka_out: Option<KafkaOutConfig>,
    /// Topics that the server consumes; `None` for none.
    pub kafka_in: Option<KafkaInSettings>,
    /// How HTTP is served.
    pub http: HttpConfig,
    /// How writes are read, without the file of countries.
    pub writes: WriteRules,
    /// The file of countries; `None` where no subtotal is filled from it.
    pub geo: Option<PathBuf>,
    /// Caps, and how long actions are kept.
    pub actions: ActionRules,
    /// The UDP address for StatsD counters; `None` for none.
    pub statsd: Option<SocketAddr>,
    /// The lists of `schema`, with the files that hold their contents.
    pub lists: Vec<ListFile>,
    /// Alerts, reports and receivers.
    pub alerts: AlertConfig,
    /// The namespaces, events, ratios, filters and titles. Its lists have no hash yet.
    pub schema: Schema,
    /// All settings, with the defaults of those that the file leaves out.
    settings: Table,
}

/// `[rebuild]`
#[derive(Debug, Clone, Copy)]
pub(crate) struct RebuildConfig {
    /// How many minutes after midnight UTC yesterday is exported.
    pub minutes_after_midnight: u32,
    /// zstd level of the archive.
    pub level: i32,
    /// zstd level with which files of closed years are written again.
    pub closed_level: i32,
    /// How long minutes and hours are kept.
    pub keep: KeepDays,
}

impl RebuildConfig {
    /// The options of a rebuild of a store with these options.
    pub(crate) fn build_options(&self, store: &Options) -> BuildOptions {
        BuildOptions {
            shards: store.shards,
            level: self.level,
            keep: self.keep,
            breakdown_hours: store.breakdown_hours,
            rewrite_bytes_min: REWRITE_BYTES_MIN,
        }
    }
}

impl Config {
    /// Reads a file, or takes the embedded default. A usage error names the setting and what to write instead.
    pub(crate) fn load(file: Option<&Path>) -> Result<Self> {
        let Some(path) = file else {
            let embedded = Self::parse(DEFAULT, "the embedded configuration")?;
            return Ok(Self {
                declares: false,
                ..embedded
            });
        };
        Ok(Self::parse(&text_of(path)?, &path.display().to_string())?.beside(path))
    }

    /// Reads the file of a running server. A usage error is that of [`Config::load`], or says that the file is empty,
    /// as a file is at first that is being written.
    pub(crate) fn load_again(path: &Path) -> Result<Self> {
        let text = text_of(path)?;
        if toml::from_str::<Table>(&text).is_ok_and(|table| table.is_empty()) {
            return Err(CommandError::Usage(format!(
                "{}: it says nothing; a start takes the defaults then, and a running server keeps what it has",
                path.display()
            )));
        }
        Ok(Self::parse(&text, &path.display().to_string())?.beside(path))
    }

    /// With files beside the one at `path`: a relative path means the same wherever a command is run.
    fn beside(mut self, path: &Path) -> Self {
        let files = self.lists.iter_mut().map(|list| &mut list.path);
        if let Some(folder) = path.parent() {
            let ca = self.cluster.iter_mut().filter_map(|of| of.ca.as_mut());
            for file in files.chain(&mut self.geo).chain(ca) {
                *file = folder.join(&*file);
            }
            self.kafkas().for_each(|kafka| kafka.beside(folder));
            self.alerts.beside(folder);
        }
        self
    }

    /// Reads the text of a configuration; messages call it `name`. Fails as [`Config::load`] does.
    pub(crate) fn parse(text: &str, name: &str) -> Result<Self> {
        let wrong = |what: String| CommandError::Usage(format!("{name}: {what}"));
        let unreadable = |error: toml::de::Error| wrong(in_short(error.to_string()));
        // Messages about what cannot be read show its place in the text, which a merged table has lost.
        toml::from_str::<File>(text).map_err(unreadable)?;
        let file = toml::from_str(text).map_err(unreadable)?;
        let defaults = toml::from_str(DEFAULT).map_err(unreadable)?;
        let settings = merge(defaults, file);
        let merged: File = settings.clone().try_into().map_err(unreadable)?;
        merged.check(settings).map_err(wrong)
    }
}

/// The sections of the file. The embedded defaults give every setting that is no `Option`.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct File {
    listen: Option<SocketAddr>,
    shards: u16,
    strict: bool,
    evidence: bool,
    oplog: OplogSection,
    journal: JournalSection,
    memory: MemorySection,
    ids: IdsSection,
    minutes: MinutesSection,
    hours: HoursSection,
    actions: ActionsSection,
    caps: BTreeMap<String, CapSection>,
    rebuild: RebuildSection,
    #[serde(rename = "final")]
    finals: FinalSection,
    backup: BackupSection,
    log_copy: LogCopySection,
    cluster: Option<ClusterSettings>,
    kafka_out: Option<KafkaOutConfig>,
    kafka_in: Option<KafkaInSettings>,
    http: HttpSection,
    limits: LimitsSection,
    tls: TlsSection,
    cors: CorsSection,
    statsd: StatsdSection,
    namespace: Vec<Namespace>,
    events: BTreeMap<String, EventSection>,
    ratios: BTreeMap<String, RatioSection>,
    lists: BTreeMap<String, ListFile>,
    filters: BTreeMap<String, FilterSection>,
    titles: BTreeMap<String, String>,
    enrich: EnrichSection,
    cloudevents: Vec<CloudEventSection>,
    alerts: BTreeMap<String, AlertSection>,
    receivers: BTreeMap<String, ReceiverSection>,
    reports: BTreeMap<String, ReportSection>,
}

/// Limits that are left out follow from the memory of the machine.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct MemorySection {
    deltas_mib: Option<u64>,
    cache_mib: Option<u64>,
    reads_mib: Option<u64>,
    replay_records: u64,
}

impl MemorySection {
    /// The bytes of delta stores; `derived` where none are given.
    fn delta_bytes(&self, derived: u64) -> Result<u64, String> {
        mib("memory.deltas_mib", self.deltas_mib, derived)
    }

    /// The bytes of all reads; `derived` where none are given.
    fn read_bytes(&self, derived: usize) -> Result<usize, String> {
        let bytes = mib("memory.reads_mib", self.reads_mib, derived as u64)?;
        usize::try_from(bytes)
            .map_err(|_| "memory.reads_mib is more than this machine can address".into())
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct IdsSection {
    window_hours: u32,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct HoursSection {
    keep_days: Option<u32>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct ActionsSection {
    keep_days: u32,
    reservations: String,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct MinutesSection {
    keep_days: u32,
    breakdowns_hours: u32,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct RebuildSection {
    minutes_after_midnight: u32,
    level: i32,
    closed_level: i32,
}

impl RebuildSection {
    fn check(&self, keep: KeepDays) -> Result<RebuildConfig, String> {
        let minutes = self.minutes_after_midnight;
        Ok(RebuildConfig {
            minutes_after_midnight: within("rebuild.minutes_after_midnight", minutes, 0, 1_439)?,
            level: within("rebuild.level", self.level, 1, 19)?,
            closed_level: within("rebuild.closed_level", self.closed_level, 1, 19)?,
            keep,
        })
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct StatsdSection {
    listen: Option<SocketAddr>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct BackupSection {
    path: Option<PathBuf>,
}

impl File {
    /// Checks the sections of these settings.
    fn check(self, settings: Table) -> Result<Config, String> {
        let lists = counted::list_files(self.lists)?;
        let mut schema = counted::check(
            self.namespace,
            self.events,
            self.ratios,
            &lists,
            self.filters,
            self.titles,
        )?;
        schema.settings = changes::told(&settings);
        let actions = within("actions.keep_days", self.actions.keep_days, 1, 36_500)?;
        let actions = ActionRules::new(actions, self.caps, &schema)?;
        let durability = parse_durability(&self.oplog.durability)?;
        let backup = check_backup(self.backup.path)?;
        let http = http::check(self.http, &self.limits, self.tls, self.cors)?;
        let (enrich, geo) = self.enrich.check(&schema, &http.proxies)?;
        let (memory, minutes) = (self.memory, self.minutes);
        let (breakdowns, replay) = (minutes.breakdowns_hours, memory.replay_records);
        let derived = (self.oplog).options(Options::for_memory(memory::available()))?;
        let journal_days = self.journal.days(derived.oplog_days)?;
        let log_days = derived.oplog_days.max(journal_days);
        let keep = keep_days(minutes.keep_days, self.hours.keep_days, actions.keep_days)?;
        let config = Config {
            declares: true,
            listen: self.listen.ok_or("listen is missing")?,
            options: Options {
                shards: within("shards", self.shards, 1, 99)?,
                durability,
                delta_bytes_max: memory.delta_bytes(derived.delta_bytes_max)?,
                replay_records_max: within("memory.replay_records", replay, 1_000, 1 << 40)?,
                cache_bytes: mib("memory.cache_mib", memory.cache_mib, derived.cache_bytes)?,
                read_bytes_max: memory.read_bytes(derived.read_bytes_max)?,
                id_hours: within("ids.window_hours", self.ids.window_hours, 24, 24 * 366)?,
                breakdown_hours: within("minutes.breakdowns_hours", breakdowns, 0, 24)?,
                journal_days,
                final_days: self.finals.keep_days(log_days)?,
                ids_days: self.finals.ids_days(log_days)?,
                final_after_hours: self.finals.after_hours(derived.oplog_days, breakdowns)?,
                logs_holds: parse_reservations(&self.actions.reservations)?,
                ..derived
            },
            rebuild: self.rebuild.check(keep)?,
            log_copy: self.log_copy.check(backup.as_deref(), durability)?,
            cluster: None,
            kafka_out: (self.kafka_out.map(|out| out.check(&schema, durability))).transpose()?,
            kafka_in: kafka_in::check(self.kafka_in)?,
            backup,
            http,
            writes: WriteRules {
                strict: self.strict,
                evidence: self.evidence,
                four_eyes: self.finals.four_eyes,
                enrich,
                cloud_events: cloud_events::check(self.cloudevents, &schema)?,
            },
            geo,
            actions,
            statsd: check_statsd(self.statsd.listen)?,
            lists,
            alerts: alerts::check(self.alerts, self.reports, self.receivers, &schema)?,
            schema,
            settings,
        };
        config.with_cluster(self.cluster)
    }
}

/// Mebibytes as bytes; `derived` where none are given.
fn mib(name: &str, mib: Option<u64>, derived: u64) -> Result<u64, String> {
    mib.map_or(Ok(derived), |mib| Ok(within(name, mib, 1, 1 << 20)? << 20))
}

fn within<T: PartialOrd + std::fmt::Display>(
    name: &str,
    value: T,
    least: T,
    most: T,
) -> Result<T, String> {
    if value < least || value > most {
        return Err(format!("{name} = {value} must be from {least} to {most}"));
    }
    Ok(value)
}

fn keep_days(minutes: u32, hours: Option<u32>, actions: u32) -> Result<KeepDays, String> {
    let minutes = within("minutes.keep_days", minutes, 1, 36_500)?;
    let within_bounds = |days| within("hours.keep_days", days, 31, 36_500);
    let hours = hours.map(within_bounds).transpose()?;
    if let Some(hours) = hours.filter(|hours| *hours < minutes) {
        return Err(format!(
            "hours.keep_days = {hours} must be at least minutes.keep_days = {minutes}: minutes go with their hours"
        ));
    }
    Ok(KeepDays {
        minutes: Some(minutes),
        hours,
        actions: Some(actions),
    })
}

fn check_backup(path: Option<PathBuf>) -> Result<Option<PathBuf>, String> {
    match path {
        Some(path) if path.as_os_str().is_empty() => {
            Err("backup.path = \"\" must name a directory; leave it out for no backup".into())
        }
        other => Ok(other),
    }
}

/// UDP carries no keys, so every program that reaches the address can count.
fn check_statsd(listen: Option<SocketAddr>) -> Result<Option<SocketAddr>, String> {
    match listen {
        Some(address) if !address.ip().is_loopback() => Err(format!(
            "statsd.listen = \"{address}\" must be a loopback address, such as \"127.0.0.1:8125\": UDP has no keys"
        )),
        other => Ok(other),
    }
}

/// True where reservations are to be in the log.
fn parse_reservations(text: &str) -> Result<bool, String> {
    match text {
        "memory" => Ok(false),
        "log" => Ok(true),
        _ => Err(format!(
            "actions.reservations = \"{text}\" must be \"memory\" or \"log\""
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_configuration_is_the_default_of_the_code() {
        let config = Config::parse(DEFAULT, "default").unwrap();
        let options = Options::for_memory(memory::available());
        assert_eq!(format!("{:?}", config.options), format!("{options:?}"));
        let links = Schema::default_clicks().namespaces;
        assert_eq!(config.schema.namespaces[..links.len()], links);
        assert_eq!(config.schema.titles, Schema::default_clicks().titles);
        let names = config.schema.names();
        for event in ["click", "impression"] {
            for entity in ["ad", "ad_group", "campaign", "advertiser"] {
                assert!(names.contains(&format!("{entity}_{event}")), "{names}");
            }
        }
        assert!(config.schema.ratio("ctr").is_some());
        assert_eq!(config.http.server, tallyring_api::ServerLimits::default());
        assert_eq!(config.http.access, tallyring_api::AccessLimits::default());
    }

    #[test]
    fn what_is_left_out_has_its_default_and_what_is_wrong_is_named() {
        let config = Config::parse("shards = 7", "test").unwrap();
        assert_eq!((config.options.shards, config.rebuild.level), (7, 6));
        assert_eq!(config.schema.title_of("c"), "country");
        let own =
            Config::parse("[[namespace]]\nname = \"x\"\nsubtotals = [\"c\"]", "test").unwrap();
        assert_eq!(
            own.schema.title_of("c"),
            "c",
            "titles go with what is counted"
        );
        for (text, named) in [
            ("shard = 7", "shard"),
            ("shards = 0", "shards"),
            ("[ids]\nwindow_hours = 1", "ids.window_hours"),
            ("[minutes]\nkeep_days = 0", "minutes.keep_days"),
            (
                "[minutes]\nbreakdowns_hours = 25",
                "minutes.breakdowns_hours",
            ),
            ("[hours]\nkeep_days = 7", "hours.keep_days"),
            ("[actions]\nreservations = \"disk\"", "actions.reservations"),
            (
                "[hours]\nkeep_days = 40\n[minutes]\nkeep_days = 41",
                "minutes go with their hours",
            ),
            ("[final]\nafter_hours = 24", "from 25 to 120"),
            (
                "[final]\n[oplog]\nkeep_days = 2",
                "oplog.keep_days of at least 4",
            ),
            ("[final]\n[oplog]\nkeep_days = 4", "from 25 to 48"),
            ("[backup]\npath = \"\"", "backup.path"),
            ("[log_copy]\npath = \"\"", "log_copy.path"),
            ("[log_copy]\npath = \"a\"\nack = \"all\"", "log_copy.ack"),
            ("[log_copy]\nack = \"both\"", "log_copy.path"),
            (
                "[log_copy]\npath = \"a\"\n[backup]\npath = \"a\"",
                "log_copy.path",
            ),
            (
                "[log_copy]\npath = \"a\"\nack = \"both\"\n[oplog]\ndurability = \"interval:50\"",
                "oplog.durability",
            ),
            ("[oplog]\ndurability = \"none\"", "oplog.durability"),
            ("[oplog]\nmax_bytes = 1000000", "oplog.max_bytes"),
            ("listen = \"everywhere\"", "listen"),
            ("[limits]\nqueries = 0", "limits.queries"),
            ("[limits]\nconections = 1", "conections"),
            ("[tls]\ncertificate = \"a.pem\"", "tls.key"),
            ("[tls]\nkey = \"a.pem\"", "tls.certificate"),
            ("[http]\nhosts = [\"https://a.example\"]", "http.hosts"),
            ("[http]\nhosts = [\"a.example:80\"]", "http.hosts"),
            (
                "[http]\ntrusted_proxies = [\"10.0.0.0/33\"]",
                "http.trusted_proxies",
            ),
            ("[cors]\norigins = [\"*\"]", "cors.origins"),
            (
                "[cors]\norigins = [\"https://a.example/x\"]",
                "cors.origins",
            ),
        ] {
            let error = Config::parse(text, "test")
                .err()
                .map(|error| error.to_string())
                .unwrap_or_default();
            assert!(error.contains(named), "{text}: {error}");
        }
    }

    #[test]
    fn a_word_of_the_api_is_refused_where_no_store_has_it() {
        let config = Config::parse("[[namespace]]\nname = \"query\"", "test").unwrap();
        let empty = tempfile::tempdir().unwrap();
        for data in [None, Some(empty.path())] {
            let error = config.check_words(data).unwrap_err().to_string();
            assert!(error.contains("got `query`"), "{error}");
        }
    }
}
