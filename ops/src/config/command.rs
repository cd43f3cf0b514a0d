//! `tallyring config default` and `config check`.

use serde_json::{Value, json};
use tallyring_records::Schema;

use super::{Config, DEFAULT};
use crate::cli::{ConfigArgs, ConfigCommand};
use crate::error::Result;

/// Prints or checks a configuration.
///
/// # Errors
/// When the file cannot be used.
pub fn run(args: &ConfigArgs, json: bool) -> Result<()> {
    match &args.command {
        ConfigCommand::Default => print!("{DEFAULT}"),
        ConfigCommand::Check { file } => {
            let config = Config::load(Some(file))?;
            if json {
                println!("{}", as_json(&config));
            } else {
                explain(&config);
            }
        }
    }
    Ok(())
}

fn as_json(config: &Config) -> Value {
    json!({
        "listen": config.listen,
        "statsd": config.statsd,
        "backup": config.backup,
        "shards": config.options.shards,
        "declared": config.schema,
    })
}

fn explain(config: &Config) {
    let options = &config.options;
    println!("The configuration can be used.");
    println!("  listens on {}", config.listen);
    if let Some(address) = config.statsd {
        println!("  takes StatsD counters on {address}");
    }
    println!(
        "  {} shards, acknowledges by {:?}",
        options.shards, options.durability
    );
    println!(
        "  up to {} MiB of deltas and {} MiB of cache in memory",
        options.delta_bytes_max >> 20,
        options.cache_bytes >> 20
    );
    println!(
        "  remembers ids for {} hours, keeps the log for {} days",
        options.id_hours, options.oplog_days
    );
    println!(
        "  rebuilds {} minutes after midnight UTC, archive at zstd level {}",
        config.rebuild.minutes_after_midnight, config.rebuild.level
    );
    let keep = config.rebuild.keep;
    let days = |days: Option<u32>| {
        days.map_or_else(|| "for ever".into(), |days| format!("for {days} days"))
    };
    println!(
        "  keeps minutes {}, hours {}, and days for ever",
        days(keep.minutes),
        days(keep.hours)
    );
    if let Some(path) = &config.backup {
        println!("  backs up to {}", path.display());
    }
    let http = &config.http;
    println!(
        "  {}, up to {} connections, {} of one address; at once {} increments, {} batches, {} reads",
        match &http.tls {
            Some(files) => format!("TLS with {}", files.certificate.display()),
            None => "plain HTTP".into(),
        },
        http.server.connections_max,
        http.server.connections_per_ip_max,
        http.access.writes,
        http.access.batches,
        http.access.queries
    );
    explain_counted(&config.schema);
}

fn explain_counted(schema: &Schema) {
    for namespace in &schema.namespaces {
        println!(
            "  counts {} ({}) by {:?}, broken down by: {}",
            namespace.name,
            namespace.title,
            namespace.grain,
            if namespace.subtotals.is_empty() {
                "nothing".into()
            } else {
                namespace.subtotals.join(", ")
            }
        );
    }
    for event in &schema.events {
        println!(
            "  events of type {} name {}, expected for {} seconds",
            event.name,
            event.entities.join(", "),
            event.lateness_seconds
        );
    }
    for filter in &schema.filters {
        println!(
            "  filter {}: events with one of {} values of {} are not counted",
            filter.name,
            filter.values.len(),
            filter.field
        );
    }
    for ratio in &schema.ratios {
        println!(
            "  ratio {} = {} / {}",
            ratio.name, ratio.numerator, ratio.denominator
        );
    }
}
