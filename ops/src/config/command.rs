//! `tallyring config default` and `config check`.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tallyring_api::Enrich;
use tallyring_realtime::Durability;
use tallyring_realtime::oplog::LogCopyAck;
use tallyring_records::{Form, Grain, ListKind, Schema, how_many};

use super::{Config, DEFAULT, HttpConfig};
use crate::cli::{ConfigArgs, ConfigCommand};
use crate::error::Result;
use crate::geo_watch;
use crate::lists;
use crate::out::{self, say};
use crate::serve::{load_tls, load_trust};

/// Prints or checks a configuration. Fails when the file cannot be used.
pub(crate) fn run(args: &ConfigArgs, json: bool) -> Result<()> {
    match &args.command {
        ConfigCommand::Default if json => say!("{}", as_json(&Config::load(None)?))?,
        ConfigCommand::Default => {
            out::print(format_args!("{}", default_here(&Config::load(None)?)))?
        }
        ConfigCommand::Check { file, data } => {
            let config = Config::load(Some(file))?;
            config.check_words(data.as_deref())?;
            load_tls(&config.http)?;
            load_trust(&config)?;
            config.check_kafka_files()?;
            config.check_receiver_files()?;
            let entries: Result<Vec<usize>> = config
                .lists
                .iter()
                .map(|list| Ok(lists::load(list, |_| false)?.1))
                .collect();
            let entries = entries?;
            let (enrich, _) = geo_watch::load(config.writes.enrich.clone(), config.geo.as_deref())?;
            if json {
                say!("{}", as_json(&config))?;
            } else {
                explain(&config, &enrich, &entries)?;
                explain_cluster(&config)?;
            }
        }
    }
    Ok(())
}

/// The embedded text with the limits that follow from this machine's memory.
fn default_here(config: &Config) -> String {
    let limits = [
        ("# deltas_mib = ", config.options.delta_bytes_max >> 20),
        ("# cache_mib = ", config.options.cache_bytes >> 20),
        ("# reads_mib = ", config.options.read_bytes_max as u64 >> 20),
    ];
    let line = |line: &str| {
        let derived = limits.iter().find(|(name, _)| line.starts_with(name));
        derived.map_or(format!("{line}\n"), |(name, mib)| format!("{name}{mib}\n"))
    };
    DEFAULT.lines().map(line).collect()
}

fn as_json(config: &Config) -> Value {
    let rules = config.writes.cloud_events.iter();
    let cloud_events: Value = rules
        .map(|rule| {
            let map: BTreeMap<String, String> = rule.map().collect();
            json!({"type": rule.kind, "event": rule.event, "map": map})
        })
        .collect();
    json!({
        "listen": config.listen,
        "statsd": config.statsd,
        "kafka_in": config.kafka_in.as_ref().map(|kafka| json!({
            "kafka": kafka.kafka.brokers(),
            "topics": kafka.topic.iter().map(|topic| topic.name.as_str()).collect::<Vec<_>>(),
        })),
        "backup": config.backup,
        "log_copy": config.log_copy.as_ref().map(|copy| json!({ "path": copy.path, "ack": copy.ack })),
        "strict": config.writes.strict,
        "evidence": config.writes.evidence,
        "enrich": {
            "geo": config.geo,
            "from_request": config.writes.enrich.reads_requests(),
            "trusted_proxies": config.http.proxies.networks().collect::<Vec<_>>(),
            "fill": config.writes.enrich.fills().collect::<BTreeMap<_, _>>(),
        },
        "shards": config.options.shards,
        "memory": {
            "memory_mib": config.options.memory_bytes >> 20,
            "deltas_mib": config.options.delta_bytes_max >> 20,
            "cache_mib": config.options.cache_bytes >> 20,
            "reads_mib": config.options.read_bytes_max >> 20,
        },
        "cloudevents": cloud_events,
        "actions": {
            "keep_days": config.actions.keep_days,
            "reservations": if config.options.logs_holds { "log" } else { "memory" },
            "caps": config.actions.json(),
        },
        "declared": config.schema,
    })
}

fn explain(config: &Config, enrich: &Enrich, entries: &[usize]) -> Result<()> {
    let options = &config.options;
    say!("The configuration can be used.")?;
    say!("  listens on {}", config.listen)?;
    if let Some(address) = config.statsd {
        say!("  takes StatsD counters on {address}")?;
    }
    if let Some(kafka) = &config.kafka_in {
        let topics: Vec<&str> = kafka
            .topic
            .iter()
            .map(|topic| topic.name.as_str())
            .collect();
        let (topics, brokers) = (topics.join(", "), kafka.kafka.brokers());
        say!("  consumes the topics {topics} of Kafka at {brokers}")?;
    }
    let shards = how_many(options.shards, "shard");
    let durable = match options.durability {
        Durability::Fsync => "what is synced to the disk".to_owned(),
        Durability::Interval(ms) => format!("what is written, synced every {ms} ms"),
    };
    say!("  {shards}, acknowledges {durable}")?;
    let bytes = [
        options.delta_bytes_max,
        options.cache_bytes,
        options.memory_bytes,
    ];
    let [deltas, cache, memory] = bytes.map(|bytes| bytes >> 20);
    say!(
        "  up to {deltas} MiB of deltas and {cache} MiB of cache in memory, of {memory} MiB that there are"
    )?;
    let ids = how_many(options.id_hours, "hour");
    let log = how_many(options.log_days(), "day");
    say!("  remembers ids for {ids}, keeps the log for {log}")?;
    let (level, keep) = (config.rebuild.level, config.rebuild.keep);
    let after = how_many(config.rebuild.minutes_after_midnight, "minute");
    let closed = config.rebuild.closed_level.max(level);
    say!(
        "  rebuilds {after} after midnight UTC, archive at zstd level {level}, closed years at {closed}"
    )?;
    let [minutes, hours] = [keep.minutes, keep.hours].map(|days| match days {
        Some(days) => format!("for {}", how_many(days, "day")),
        None => "for ever".to_owned(),
    });
    say!("  keeps minutes {minutes}, hours {hours}, and days for ever")?;
    let breakdowns = how_many(options.breakdown_hours, "hour");
    match options.breakdown_hours {
        0 => say!("  keeps no breakdowns by minute")?,
        _ => say!("  keeps breakdowns by minute for {breakdowns} before the present one")?,
    }
    if let Some(path) = &config.backup {
        say!("  backs up to {}", path.display())?;
    }
    if let Some(copy) = &config.log_copy {
        let ack = match copy.ack {
            LogCopyAck::Local => "acknowledges before the copy has it",
            LogCopyAck::Both => "acknowledges what both have",
        };
        say!("  copies the log to {}, {ack}", copy.path.display())?;
    }
    explain_writes(config)?;
    explain_enrich(enrich, config)?;
    explain_http(&config.http)?;
    explain_counted(&config.schema)?;
    explain_rules(config, entries)?;
    explain_actions(config)
}

fn explain_cluster(config: &Config) -> Result<()> {
    if let Some(out) = &config.kafka_out {
        say!(
            "  tells Kafka of settled buckets, in the topic {}",
            out.topic.as_str()
        )?;
    }
    let Some(cluster) = &config.cluster else {
        return Ok(());
    };
    say!(
        "  is the node {} of several, which reach it at {}",
        cluster.node.as_str(),
        cluster.address.as_str()
    )?;
    if let Some(max) = cluster.files.cache_max {
        let mib = u64::from(max) >> 20;
        say!("  reads its archive in parts, of which it keeps {mib} MiB, and has no copies of it")?;
    }
    if !cluster.writes {
        say!("  only follows, and never takes the log over")?;
    }
    if cluster.rebuilds {
        say!("  rebuilds for nodes that write")?;
    }
    Ok(())
}

fn explain_actions(config: &Config) -> Result<()> {
    let kept = config.schema.events.iter().filter(|event| event.actions);
    let kept: Vec<&str> = kept.map(|event| event.name.as_str()).collect();
    if kept.is_empty() {
        return Ok(());
    }
    let (kept, days) = (kept.join(", "), how_many(config.actions.keep_days, "day"));
    let holds = match config.options.logs_holds {
        true => "the log",
        false => "memory",
    };
    say!("  keeps what users did ({kept}) for {days}, and reservations in {holds}")?;
    for cap in config.actions.lines() {
        say!("  {cap}")?;
    }
    Ok(())
}

fn explain_writes(config: &Config) -> Result<()> {
    match config.writes.strict {
        true => say!("  refuses increments with wrong breakdown values")?,
        false => {
            say!("  counts increments with wrong breakdown values, and sets the values aside")?
        }
    }
    if config.writes.evidence {
        say!("  keeps the evidence of increments and events in the log")?;
    }
    for rule in config.writes.cloud_events.iter() {
        let (kind, event, map) = (&rule.kind, &rule.event, rule.map());
        let map = map.map(|(target, source)| format!("{target} = {source}"));
        let map = map.collect::<Vec<_>>().join(", ");
        say!("  counts CloudEvents of type {kind} as {event}: {map}")?;
    }
    Ok(())
}

fn explain_enrich(enrich: &Enrich, config: &Config) -> Result<()> {
    if let Some(file) = enrich.geo() {
        let (path, geo) = (file.path(), file.geo());
        let (kind, built) = (geo.kind(), day(geo.built_at()));
        say!("  takes countries from {path}, {kind} of {built}")?;
    }
    if enrich.reads_requests() {
        let proxies: Vec<String> = config.http.proxies.networks().collect();
        let proxies = match proxies.is_empty() {
            true => "no proxy".to_owned(),
            false => proxies.join(", "),
        };
        say!(
            "  takes the clients of single increments and events that do not tell them from their requests"
        )?;
        say!("  believes {proxies} when they tell the address of a client")?;
        let judges = config.schema.judges_evidence();
        if enrich.fills().next().is_none() && !config.writes.evidence && !judges {
            say!(
                "  from_request in [enrich] does nothing: no subtotal is filled, no rule judges by evidence, and none is kept"
            )?;
        }
    }
    let fills = enrich.fills();
    let fills: Vec<String> = fills
        .map(|(subtotal, source)| format!("{subtotal} from {source}"))
        .collect();
    match fills.is_empty() {
        true => Ok(()),
        false => say!("  fills subtotals that are left out: {}", fills.join(", ")),
    }
}

/// The UTC day of a time, Unix seconds.
fn day(seconds: i64) -> String {
    let time = jiff::Timestamp::from_second(seconds);
    time.map_or_else(
        |_| "an unknown day".to_owned(),
        |time| time.strftime("%Y-%m-%d").to_string(),
    )
}

fn explain_http(http: &HttpConfig) -> Result<()> {
    let over = match &http.tls {
        Some(files) => format!("TLS with {}", files.certificate.display()),
        None => "plain HTTP".into(),
    };
    let all = how_many(http.server.connections_max as u64, "connection");
    let of_one = http.server.connections_per_ip_max;
    let writes = how_many(http.access.writes as u64, "increment");
    let batches = how_many(http.access.batches as u64, "batch request");
    let reads = how_many(http.access.queries as u64, "read");
    say!("  {over}, up to {all}, {of_one} of one address; at once {writes}, {batches}, {reads}")
}

/// Says which events are not counted. `entries` are those of the lists.
fn explain_rules(config: &Config, entries: &[usize]) -> Result<()> {
    for (list, entries) in config.lists.iter().zip(entries) {
        let thing = match list.kind {
            ListKind::UserAgent => "pattern",
            ListKind::Ip => "network",
        };
        let path = list.path.display();
        let entries = how_many(*entries as u64, thing);
        say!("  list {}: {entries} of {path}", list.name)?;
    }
    for filter in &config.schema.filters {
        let events = match filter.events.is_empty() {
            true => "event".to_owned(),
            false => filter.events.join(" or "),
        };
        let catches = match &filter.form {
            Form::Values { field, values } => format!(
                "with one of {} of {field}",
                how_many(values.len() as u64, "value")
            ),
            Form::List { list } => format!("in the list {list}"),
            Form::Repeat {
                within_seconds,
                same,
            } => format!(
                "less than {} after a kept one with the same {}",
                how_many(*within_seconds, "second"),
                same.join(", ")
            ),
            Form::Rate {
                more_than,
                within_seconds,
                same,
                all,
            } => format!(
                "beyond {more_than} in {} with the same {}{}",
                how_many(*within_seconds, "second"),
                same.join(", "),
                if *all { ", and those before it" } else { "" }
            ),
            Form::Needs {
                needs,
                within_seconds,
                same,
            } => format!(
                "without a {needs} with the same {} in the {} before",
                same.join(", "),
                how_many(*within_seconds, "second")
            ),
        };
        let (name, class) = (&filter.name, filter.class.name());
        say!("  filter {name} ({class}): no {events} counts {catches}")?;
    }
    Ok(())
}

fn explain_counted(schema: &Schema) -> Result<()> {
    for namespace in &schema.namespaces {
        let titled = |name: &str, title: &str| match title {
            "" => name.to_owned(),
            title if title == name => name.to_owned(),
            title => format!("{name} ({title})"),
        };
        let subtotals = namespace.subtotals.iter();
        let subtotals: Vec<String> = subtotals
            .map(|name| titled(name, &schema.title_of(name)))
            .collect();
        let grain = match namespace.grain {
            Grain::Quarter => "quarter-hours",
            _ => "hours",
        };
        let further = match (namespace.minutes, namespace.uniques) {
            (true, true) => ", with minutes and distinct users",
            (true, false) => ", with minutes",
            (false, true) => ", with distinct users",
            (false, false) => "",
        };
        let name = titled(&namespace.name, &namespace.title);
        let subtotals = match subtotals.is_empty() {
            true => "nothing".to_owned(),
            false => subtotals.join(", "),
        };
        say!("  counts {name} by {grain}{further}, broken down by {subtotals}")?;
    }
    for event in &schema.events {
        let (kind, entities) = (&event.name, event.entities.join(", "));
        let expected = how_many(event.lateness_seconds, "second");
        say!("  events of type {kind} name {entities}, expected for {expected}")?;
    }
    for ratio in &schema.ratios {
        let (name, numerator, denominator) = (&ratio.name, &ratio.numerator, &ratio.denominator);
        say!("  ratio {name} = {numerator} / {denominator}")?;
    }
    Ok(())
}
