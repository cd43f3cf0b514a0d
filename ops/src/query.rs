//! `tallyring query`: the read API on a terminal.

mod table;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tallyring_records::RESERVED_NAMES;

use crate::cli::{Output, QueryArgs};
use crate::data_directory::open_to_answer;
use crate::error::{CommandError, Result};
use crate::http_client::Server;
use crate::in_process::InProcess;
use crate::out::{self, say};
use table::table;

/// The command's options in the place of parameters of the API.
const OPTIONS: [(&str, &str); 10] = [
    ("`unit` ", "`--unit` "),
    ("`units` ", "`--units` "),
    ("`from` ", "`--from` "),
    ("`to` ", "`--until` "),
    ("`timezone` ", "`--timezone` "),
    ("`hour_offset` ", "`--hour-offset` "),
    ("`limit` ", "`--limit` "),
    ("`prefix` ", "`--prefix` "),
    ("`sort` ", "`--sort` "),
    ("`page` ", "`--page` "),
];

/// Every character but the unreserved ones of RFC 3986.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// Sends the query and prints its answer. Fails when the query is refused or no server answers.
pub(crate) fn run(args: &QueryArgs, output: Output) -> Result<()> {
    let path = path(args, output)?;
    let answer = match Server::asked(&args.server)? {
        Some(server) => server.get_text(&path),
        // Without a server the files answer, by the code of a server.
        None => InProcess::over(open_to_answer(&args.server.data)?)?.get(&path),
    };
    let text = answer.map_err(|error| error.by_option(&OPTIONS))?;
    match output {
        Output::Json => say!(
            "{}",
            serde_json::to_string_pretty(&serde_json::from_str::<Value>(&text)?)?
        ),
        Output::Csv | Output::Svg => out::print(format_args!("{text}")),
        Output::Table => {
            let table = table(&serde_json::from_str(&text)?);
            out::print(format_args!("{table}"))
        }
    }
}

fn path(args: &QueryArgs, output: Output) -> Result<String> {
    let encode = |text: &str| utf8_percent_encode(text, ENCODED).to_string();
    // A path of the API begins with such a word.
    let long = |namespace: &str| match RESERVED_NAMES.contains(&namespace) {
        true => format!("namespaces/{namespace}"),
        false => encode(namespace),
    };
    let (of, view) = match args.key.split_once('/') {
        Some((namespace, key)) if !namespace.is_empty() && !key.is_empty() => {
            let view = match &args.by {
                _ if args.top => return Err(wrong(&args.key, "NAMESPACE alone with --top")),
                _ if lists_keys(args) => {
                    let must = "NAMESPACE alone with --prefix, --contains, --sort or --page";
                    return Err(wrong(&args.key, must));
                }
                Some(subtotal) => format!("by/{}", encode(subtotal)),
                None if args.uniques => "uniques".to_owned(),
                None => "counts".to_owned(),
            };
            (format!("{}/{}", long(namespace), encode(key)), view)
        }
        None if !args.key.is_empty() && args.by.is_none() && !args.uniques => {
            let view = match lists_keys(args) {
                true => "keys",
                false if args.top => "top",
                false => "counts",
            };
            (long(&args.key), view.to_owned())
        }
        _ => return Err(wrong(&args.key, "NAMESPACE/KEY, such as l/abc")),
    };
    let mut query = Vec::new();
    let unit = args.unit.clone();
    let unit = unit.or_else(|| (!lists_keys(args)).then(|| "day".to_owned()));
    let units = args.units.map(|units| units.to_string());
    let limit = args.limit.map(|limit| limit.to_string());
    let hour_offset = args.hour_offset.map(|hours| hours.to_string());
    let parameters = [
        ("unit", &unit),
        ("units", &units),
        ("from", &args.from),
        ("to", &args.until),
        ("timezone", &args.timezone),
        ("hour_offset", &hour_offset),
        ("limit", &limit),
        ("prefix", &args.prefix),
        ("contains", &args.contains),
        ("sort", &args.sort),
        ("page", &args.page),
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
    Ok(format!("/v1/{of}/{view}{suffix}?{}", query.join("&")))
}

fn lists_keys(args: &QueryArgs) -> bool {
    let of_keys = [&args.prefix, &args.contains, &args.sort, &args.page];
    of_keys.iter().any(|of| of.is_some())
}

fn wrong(key: &str, must: &str) -> CommandError {
    CommandError::Usage(format!("`{key}` must be {must}"))
}
