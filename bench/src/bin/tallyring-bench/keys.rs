//! `tallyring-bench keys`: keys by a prefix and by a part, among very many, from files.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use tallyring_bench::Chance;

use crate::effort::Effort;
use crate::load::{Load, histogram};
use crate::report::Report;
use crate::request;

const HOURS: u64 = 720;
/// Number of long keys: one for so many short ones.
const SHORT_FOR_ONE: u64 = 10;
const PREFIXES: u64 = 50;
const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
/// Digits of a short key.
const SHORT_DIGITS: usize = 7;

/// Measures pages of keys over a server that has just started, and again.
pub(crate) fn run(effort: &Effort, keys: u64) -> Result<Report> {
    let directory = effort.directory()?;
    load_keys(effort, directory.path(), keys)?;
    let searches = [
        ("page by a prefix of 3", "prefix={3}"),
        ("page by a prefix of 1", "prefix={1}"),
        ("20 heaviest with a prefix of 3", "prefix={3}&sort=count"),
        ("page by a part of 3", "contains={3}"),
    ];
    let mut report = Report::new("keys");
    for (what, parameters) in searches {
        let mut latency = [Vec::new(), Vec::new()];
        for _ in 0..effort.runs {
            let server = effort.serve(directory.path(), &[])?;
            for runs in &mut latency {
                let mut histogram = histogram()?;
                let request = |number| {
                    let key = short(number * (keys / PREFIXES));
                    let parameters = parameters.replace("{3}", &key[..3]);
                    let parameters = parameters.replace("{1}", &key[..1]);
                    request::get(&format!("/v1/l/keys?limit=20&{parameters}"))
                };
                let requests = (0..PREFIXES).map(request);
                Load::one_by_one(server.address, requests, |taken| {
                    histogram.saturating_record(taken.as_nanos() as u64);
                    Ok(())
                })?;
                runs.push(histogram);
            }
        }
        report.latency(&format!("{what}, the first time"), &latency[0]);
        report.latency(&format!("{what}, again"), &latency[1]);
    }
    Ok(report)
}

/// A short key of a number: numbers that follow each other have keys far apart.
fn short(number: u64) -> String {
    let mut rest = Chance::new(number).next();
    let digits = (0..SHORT_DIGITS).map(|_| {
        let digit = DIGITS[(rest % 36) as usize];
        rest /= 36;
        char::from(digit)
    });
    digits.collect()
}

/// Makes a dataset of keys, each counted once in the 30 days before today, and a generation with it.
fn load_keys(effort: &Effort, data: &Path, keys: u64) -> Result<()> {
    let today = jiff::Timestamp::now().as_second().div_euclid(86_400) * 86_400;
    let first = today - HOURS as i64 * 3_600;
    let path = data.with_extension("csv");
    let file = File::create(&path).context("cannot write the rows")?;
    let mut rows = BufWriter::with_capacity(1 << 20, file);
    writeln!(rows, "namespace,key,hour,count")?;
    let mut dice = Chance::new(5);
    for number in 0..keys {
        let hour = first + dice.below(HOURS) as i64 * 3_600;
        let count = 1 + dice.below(20);
        writeln!(rows, "l,{},{hour},{count}", short(number))?;
        if number % SHORT_FOR_ONE == 0 {
            let page = short(number);
            writeln!(rows, "l,https://site.example/{page},{hour},{count}")?;
        }
    }
    rows.flush()?;
    drop(rows);
    let loaded = effort.command(&["load", "bench", &path.to_string_lossy()], data);
    let _ = std::fs::remove_file(&path);
    loaded?;
    effort.command(&["rebuild"], data)
}
