//! `tallyring query`: the read API on a terminal.

use std::sync::Arc;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::cli::{Output, QueryArgs};
use crate::data_directory::{open_read_only, server_of};
use crate::error::{CommandError, Result, doing};
use crate::http_client::{self, Server};

/// Everything but the unreserved characters of RFC 3986.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// Asks and prints.
///
/// # Errors
/// When the question is refused or nobody answers.
pub fn run(args: &QueryArgs, output: Output) -> Result<()> {
    let path = path(args, output)?;
    let server = match &args.to {
        Some(url) => Some(Server::at(url)),
        None => server_of(&args.data).map(|url| Server::of(&args.data, &url)),
    };
    let text = match server {
        Some(server) => server.get_text(&path)?,
        None => ask_files(args, &path)?,
    };
    match output {
        Output::Json => println!(
            "{}",
            serde_json::to_string_pretty(&serde_json::from_str::<Value>(&text)?)?
        ),
        Output::Csv | Output::Svg => print!("{text}"),
        Output::Table => table(&serde_json::from_str(&text)?),
    }
    Ok(())
}

fn path(args: &QueryArgs, output: Output) -> Result<String> {
    let (namespace, key) = args
        .key
        .split_once('/')
        .filter(|(namespace, key)| !namespace.is_empty() && !key.is_empty())
        .ok_or_else(|| {
            CommandError::Usage(format!(
                "`{}` must be NAMESPACE/KEY, such as l/abc",
                args.key
            ))
        })?;
    let encode = |text: &str| utf8_percent_encode(text, ENCODED).to_string();
    let view = match &args.by {
        Some(subtotal) => format!("by/{}", encode(subtotal)),
        None => "counts".to_owned(),
    };
    let mut query = vec![format!("unit={}", encode(&args.unit))];
    let units = args.units.map(|units| units.to_string());
    let limit = args.limit.map(|limit| limit.to_string());
    let hour_offset = args.hour_offset.map(|hours| hours.to_string());
    let parameters = [
        ("units", &units),
        ("from", &args.from),
        ("to", &args.until),
        ("timezone", &args.timezone),
        ("hour_offset", &hour_offset),
        ("limit", &limit),
    ];
    for (name, value) in parameters {
        if let Some(value) = value {
            query.push(format!("{name}={}", encode(value)));
        }
    }
    let suffix = match output {
        Output::Csv => ".csv",
        Output::Svg => ".svg",
        Output::Table | Output::Json => "",
    };
    Ok(format!(
        "/v1/{}/{}/{view}{suffix}?{}",
        encode(namespace),
        encode(key),
        query.join("&")
    ))
}

/// Answers from the files, by the same code as a server, without one.
fn ask_files(args: &QueryArgs, path: &str) -> Result<String> {
    use tallyring_api::{Access, AccessLimits, Admin, ApiState, App};
    let store = open_read_only(&args.data)?;
    let service = tallyring_realtime::Service::start(Arc::new(store)).map_err(doing("start"))?;
    let admin = Admin {
        rebuild: Box::new(|| 0),
        last_rebuild: Box::new(|| None),
    };
    let metrics = metrics_exporter_prometheus::PrometheusBuilder::new()
        .build_recorder()
        .handle();
    let state = ApiState {
        service: Arc::new(service),
        admin: Arc::new(admin),
        access: Arc::new(Access::open(AccessLimits::default())),
        metrics,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(doing("start the runtime"))?;
    let (status, body) = runtime
        .block_on(tallyring_api::ask(App::new(state), path))
        .map_err(doing("answer from the files"))?;
    let text = String::from_utf8_lossy(&body).into_owned();
    if status == 200 {
        return Ok(text);
    }
    let problem = serde_json::from_str(&text).unwrap_or(Value::Null);
    Err(CommandError::Failed(http_client::problem_text(
        status, &problem,
    )))
}

fn table(answer: &Value) {
    let text = |name: &str| answer[name].as_str().unwrap_or_default();
    println!(
        "{}/{} by {} in {}",
        shown(text("namespace")),
        shown(text("key")),
        text("unit"),
        text("timezone")
    );
    if let Some(counts) = answer["counts"].as_array() {
        let numbers: Vec<u64> = counts
            .iter()
            .map(|row| row["count"].as_u64().unwrap_or(0))
            .collect();
        println!("{}", sparkline(&numbers));
        for (row, count) in counts.iter().zip(&numbers) {
            println!(
                "{:<26}{count:>14}",
                row["start"].as_str().unwrap_or_default()
            );
        }
    }
    if let Some(values) = answer["values"].as_array() {
        let largest = values
            .iter()
            .filter_map(|row| row["count"].as_u64())
            .max()
            .unwrap_or(1)
            .max(1);
        for row in values {
            let count = row["count"].as_u64().unwrap_or(0);
            let bar = "█".repeat(usize::try_from(count.saturating_mul(20) / largest).unwrap_or(20));
            println!(
                "{count:>14}  {bar:<20}  {}",
                shown(row["value"].as_str().unwrap_or_default())
            );
        }
        println!("{:>14}  {:<20}  other", answer["other"], "");
    }
    println!("{:<26}{:>14}", "total", answer["total"].to_string());
    if answer["aligned"] == Value::Bool(false) {
        println!("note: hours do not fit this zone's boundaries; each counts where it starts");
    }
}

fn shown(text: &str) -> String {
    text.chars()
        .flat_map(|character| {
            let escaped: Vec<char> = if character.is_control() {
                character.escape_debug().collect()
            } else {
                vec![character]
            };
            escaped
        })
        .collect()
}

fn sparkline(numbers: &[u64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let largest = numbers.iter().copied().max().unwrap_or(0).max(1);
    let bar = |number: &u64| {
        BARS[usize::try_from(number.saturating_mul(7).div_ceil(largest))
            .unwrap_or(7)
            .min(7)]
    };
    numbers.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparkline_spans_its_numbers() {
        assert_eq!(sparkline(&[0, 1, 7]), "▁▂█");
        assert_eq!(sparkline(&[]), "");
    }
}
