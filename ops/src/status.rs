//! `tallyring status`: the state of ring, log and archive, once or repeatedly.

use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use clap::Args;
use indicatif::{HumanBytes, HumanCount};
use serde_json::Value;
use tallyring_records::how_many;

use crate::base_url;
use crate::cli::DATA_DEFAULT;
use crate::error::{CommandError, Result};
use crate::http_client::Server;
use crate::out;

/// Options of `status`.
#[derive(Args)]
#[command(
    after_help = "Ends with 1 while increments are refused.\n\nExample:\n  tallyring status --watch"
)]
pub(crate) struct StatusArgs {
    /// Show it again every few seconds, until Ctrl-C
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
        value_parser = clap::value_parser!(u16).range(1..=3_600))]
    pub watch: Option<u16>,
    /// Ask this server [default: the one that holds the data directory]
    #[arg(long, value_name = "URL", conflicts_with = "data", value_parser = base_url::parse)]
    pub to: Option<String>,
    /// Trust the certificates of this PEM file instead of those that the system trusts
    #[arg(long, value_name = "FILE", requires = "to")]
    pub cacert: Option<PathBuf>,
    /// Data directory
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    pub data: PathBuf,
}

/// Cells of the bar that shows the size of a store.
const BAR_CELLS: u64 = 20;

/// Asks for the status and prints it. Fails when no server answers, or it refuses increments.
pub(crate) fn run(args: &StatusArgs, json: bool) -> Result<()> {
    let server = server(args)?;
    let mut before: Option<u64> = None;
    loop {
        let status = server.get("/v1/admin/status")?;
        let position = sequence(&status);
        let came = before.zip(args.watch).map(|(before, seconds)| {
            let rate = position.saturating_sub(before) as f64 / f64::from(seconds);
            format!("{rate:.1} records a second")
        });
        let text = match json {
            true => format!("{status}\n"),
            false => table(&status, came.as_deref()),
        };
        print(&text, args.watch.is_some() && !json)?;
        let Some(seconds) = args.watch else {
            return match status["state"].as_str() {
                Some("refusing") => Err(CommandError::Failed(
                    "the server refuses increments; `reasons` above says why".into(),
                )),
                _ => Ok(()),
            };
        };
        before = Some(position);
        thread::sleep(Duration::from_secs(seconds.into()));
    }
}

fn server(args: &StatusArgs) -> Result<Server> {
    if let Some(url) = &args.to {
        return Server::at(url, args.cacert.as_deref());
    }
    let data = args.data.display();
    let advice = format!(
        "start one with `tallyring serve --data {data}`, or check the files with `tallyring verify --data {data}`"
    );
    Server::holding(&args.data, &advice)
}

/// Prints a screen; a terminal that watches shows it in place of the one before.
fn print(text: &str, over: bool) -> Result<()> {
    let clear = if over && io::stdout().is_terminal() {
        "\x1b[H\x1b[2J"
    } else {
        ""
    };
    out::print(format_args!("{clear}{text}"))
}

/// The number of the newest record: a position is `epoch:sequence`, one for each partition.
fn sequence(status: &Value) -> u64 {
    let position = status["oplog"]["position"].as_str();
    let sequence = position.and_then(|position| position.rsplit(':').next());
    sequence.map_or(0, |sequence| sequence.parse().unwrap_or(0))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn count(value: &Value) -> String {
    HumanCount(number(value)).to_string()
}

fn bytes(value: &Value) -> String {
    HumanBytes(number(value)).to_string()
}

/// How many of a thing there are.
fn things(value: &Value, thing: &str) -> String {
    how_many(number(value), thing)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}

fn line(out: &mut String, name: &str, rest: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{}", format!("{name:<9} {rest}").trim_end());
}

/// Days that left the log without being final.
fn not_final(out: &mut String, days: &Value) {
    if number(&days["days"]) == 0 {
        return;
    }
    let (first, last) = (text(&days["first"]), text(&days["last"]));
    let days = things(&days["days"], "day");
    let what = format!("{days} from {first} to {last} left the log without being final");
    line(out, "final", &what);
}

/// The manifest that a read-only server shows.
fn read_only(out: &mut String, shown: &Value) {
    if shown.is_null() {
        return;
    }
    let what = format!(
        "manifest {} of {}, all counted until {}",
        number(&shown["manifest"]),
        text(&shown["written_at"]),
        text(&shown["counted_until"])
    );
    line(out, "read-only", &what);
}

fn table(status: &Value, came: Option<&str>) -> String {
    let mut out = String::new();
    let state = format!("{}, {}", text(&status["state"]), text(&status["now"]));
    line(&mut out, "state", &state);
    for reason in status["reasons"].as_array().into_iter().flatten() {
        line(&mut out, "", text(reason));
    }
    read_only(&mut out, &status["read_only"]);
    not_final(&mut out, &status["closed_without_final"]);
    stores(&mut out, &status["ring"]);
    let oplog = &status["oplog"];
    let came = came.map_or(String::new(), |came| format!(", {came}"));
    let log = format!(
        "at {}, {}, {} to replay{came}",
        HumanCount(sequence(status)),
        bytes(&oplog["bytes"]),
        things(&oplog["unflushed_records"], "record")
    );
    line(&mut out, "log", &log);
    log_growth(&mut out, status);
    log_copies(&mut out, status);
    let archive = format!(
        "generation {}, {}, {} to merge",
        number(&status["generation"]),
        bytes(&status["archive"]["file_bytes"]),
        things(&status["archive"]["pending_runs"], "run")
    );
    line(&mut out, "archive", &archive);
    let list = |of: &str| status["archive"][of].as_array().into_iter().flatten();
    for fix in list("waiting_fixes") {
        let waits = format!("the fix {} waits to be merged", text(fix));
        line(&mut out, "", &waits);
    }
    for file in list("aside_files") {
        let aside = format!(
            "aside/{} is kept: no manifest names it; remove it if you do not need it",
            text(file)
        );
        line(&mut out, "", &aside);
    }
    line(&mut out, "rebuild", &last_rebuild(&status["last_rebuild"]));
    let backup = last_backup(&status["backup_path"], &status["last_backup"]);
    line(&mut out, "backup", &backup);
    let single = &status["archive"]["single_copy_bytes"];
    if number(single) > 0 {
        let there_is = format!("{} of the archive have one copy: this one", bytes(single));
        line(&mut out, "", &there_is);
    }
    let window = things(&status["ids"]["window_hours"], "hour");
    let in_memory = count(&status["ids"]["in_memory"]);
    let ids = format!("{in_memory} in memory, remembered {window}");
    line(&mut out, "ids", &ids);
    clients(&mut out, status);
    consumed(&mut out, &status["kafka_in"]);
    alerts(&mut out, &status["alerts"]);
    config(&mut out, &status["config"]);
    let memory = format!(
        "{} of deltas and ids, flushed at {}; {} there are",
        HumanBytes(unflushed_bytes(status)),
        bytes(&status["memory"]["deltas_bytes_max"]),
        bytes(&status["memory"]["memory_bytes"])
    );
    line(&mut out, "memory", &memory);
    let free = bytes(&status["disk"]["free_bytes"]);
    line(&mut out, "disk", &format!("{free} free"));
    let rules = &status["zone_rules"];
    let (version, source) = (text(&rules["version"]), text(&rules["source"]));
    line(&mut out, "zones", &format!("rules {version}, {source}"));
    out
}

/// The topics that the server consumes; what is wrong with one stands among the reasons.
fn consumed(out: &mut String, topics: &Value) {
    for (topic, standing) in topics.as_object().into_iter().flatten() {
        let partitions = standing["partitions"].as_array().into_iter().flatten();
        let partitions: Vec<String> = partitions
            .map(|of| {
                let (at, lag) = (count(&of["next"]), things(&of["lag"], "message"));
                format!("{} at {at}, {lag} behind", number(&of["partition"]))
            })
            .collect();
        let where_at = match partitions.is_empty() {
            true => "not consumed here now".to_owned(),
            false => format!("partition {}", partitions.join("; ")),
        };
        line(out, "kafka in", &format!("{topic}: {where_at}"));
        if let Some(skipped) = standing["last_skipped"].as_str() {
            line(
                out,
                "",
                &format!("skipped last: {}", skipped.escape_debug()),
            );
        }
    }
}

/// The alerts, those that are on by name, and receivers that have yet to take something; writes nothing without alerts.
fn alerts(out: &mut String, alerts: &Value) {
    if alerts.is_null() {
        return;
    }
    let list = |of: &str| alerts[of].as_array().into_iter().flatten();
    let on = list("alerts").filter(|alert| alert["on"] == true);
    let told = format!("{} of {} on", on.clone().count(), list("alerts").count());
    line(out, "alerts", &told);
    for alert in on {
        let (name, of, since) = (
            text(&alert["name"]),
            text(&alert["of"]),
            text(&alert["since"]),
        );
        line(out, "", &format!("{name}, of {of}, since {since}"));
    }
    for receiver in list("receivers").filter(|of| number(&of["waiting"]) > 0) {
        let (name, waiting) = (
            text(&receiver["name"]),
            things(&receiver["waiting"], "message"),
        );
        let failure = receiver["failure"].as_str().unwrap_or("not asked yet");
        line(
            out,
            "",
            &format!("receiver {name} has yet to take {waiting}: {failure}"),
        );
    }
}

/// The configuration file, and what of it is not in force; writes nothing without a file.
fn config(out: &mut String, config: &Value) {
    let Some(path) = config["path"].as_str() else {
        return;
    };
    let waiting = config["needs_restart"].as_array().into_iter().flatten();
    let waiting: Vec<&str> = waiting.map(text).collect();
    let waits = match waiting[..] {
        [] => String::new(),
        [one] => format!("; {one} needs a restart"),
        _ => format!("; {} need a restart", waiting.join(", ")),
    };
    line(
        out,
        "config",
        &format!("{path}, of {}{waits}", text(&config["taken_at"])),
    );
}

/// Whether evidence of clients is kept, and the file of countries where there is one.
fn clients(out: &mut String, status: &Value) {
    let evidence = &status["evidence"];
    let from = evidence["from"].as_array().into_iter().flatten();
    let kept = match evidence["keep_days"].as_u64() {
        Some(days) => format!(
            "kept in the log for {} at least, from the {}",
            how_many(days, "day"),
            from.map(text).collect::<Vec<_>>().join(" and the ")
        ),
        None => "not kept".to_owned(),
    };
    line(out, "evidence", &kept);
    rules(out, &status["rules"]);
    let geo = &status["enrich"]["geo"];
    if geo.is_null() {
        return;
    }
    let (kind, path) = (text(&geo["type"]), text(&geo["path"]));
    let file = format!("{kind} of {}, {path}", text(&geo["built_at"]));
    line(out, "countries", &file);
    if let Some(failure) = geo["failure"].as_str() {
        let kept = format!("the file before stays in force: {failure}");
        line(out, "", &kept);
    }
}

/// The outcome of the rules for events; writes nothing where there are none.
fn rules(out: &mut String, rules: &Value) {
    let list = |of: &str| rules[of].as_array().into_iter().flatten();
    let filters: Vec<String> = list("filters")
        .map(|filter| format!("{} {}", text(&filter["rule"]), count(&filter["filtered"])))
        .collect();
    if filters.is_empty() {
        return;
    }
    let judged = format!(
        "of {} events since the start filtered {}, undecided {}",
        count(&rules["events"]),
        filters.join(", "),
        count(&rules["undecided"])
    );
    line(out, "rules", &judged);
    for of in list("lists") {
        let short = text(&of["sha256"]).get(..12).unwrap_or_default();
        let there = format!(
            "list {}: {} entries, {short}",
            text(&of["name"]),
            count(&of["entries"])
        );
        line(out, "", &there);
    }
}

/// How the log grows, and when it has no more room; writes nothing while that is not known.
fn log_growth(out: &mut String, status: &Value) {
    let oplog = &status["oplog"];
    if oplog["bytes_a_day"].is_null() {
        return;
    }
    let in_days = |days: &Value| match days.as_u64() {
        Some(days) => format!("in {}", how_many(days, "day")),
        None => "in more than 400 days".to_owned(),
    };
    let mut growth = format!(
        "{} a day; it fills the disk {}",
        bytes(&oplog["bytes_a_day"]),
        in_days(&status["disk"]["full_in_days"])
    );
    if !oplog["max_bytes"].is_null() {
        let (max, days) = (
            bytes(&oplog["max_bytes"]),
            in_days(&oplog["max_full_in_days"]),
        );
        growth.push_str(&format!(", and its limit of {max} {days}"));
    }
    line(out, "", &growth);
}

/// The memory of all deltas and ids, bytes.
fn unflushed_bytes(status: &Value) -> u64 {
    let ring = &status["ring"];
    let stores = ["slots", "late"].into_iter();
    let stores = stores.filter_map(|name| ring[name].as_array()).flatten();
    let deltas: u64 = stores.map(|store| number(&store["memory_bytes"])).sum();
    deltas + number(&status["ids"]["memory_bytes"])
}

/// The width of the shortest column of store names.
const ID_CELLS: usize = 15;

/// The ring's stores and the late ones, each with a bar of its size.
fn stores(out: &mut String, ring: &Value) {
    let stores = |name: &str| ring[name].as_array().into_iter().flatten();
    let all: Vec<&Value> = stores("slots").chain(stores("late")).collect();
    let size = |store: &Value| number(&store["memory_bytes"]) + number(&store["run_bytes"]);
    let largest = all.iter().map(|store| size(store)).max().unwrap_or(0);
    let names = all.iter().map(|store| text(&store["id"]).len());
    let width = names.max().unwrap_or(0).max(ID_CELLS);
    for store in all {
        let cells = size(store)
            .saturating_mul(BAR_CELLS)
            .div_ceil(largest.max(1));
        let bar = "█".repeat(usize::try_from(cells).unwrap_or(0));
        let shown = format!(
            "{:<width$} {:>12} counters {:>8} {:>11}  {bar}",
            text(&store["id"]),
            count(&store["counters"]),
            things(&store["runs"], "run"),
            HumanBytes(size(store)).to_string()
        );
        line(out, text(&store["position"]), &shown);
    }
}

/// The second copies of the logs of all strands.
fn log_copies(out: &mut String, status: &Value) {
    let strands = status["strands"].as_array();
    let all = strands.map_or(std::slice::from_ref(status), Vec::as_slice);
    all.iter().for_each(|of| log_copy(out, &of["log_copy"]));
}

/// How far the second copy of the log is behind; writes nothing where no copy exists.
fn log_copy(out: &mut String, copy: &Value) {
    let Some(path) = copy["path"].as_str() else {
        return;
    };
    let behind = match (
        number(&copy["behind_records"]),
        number(&copy["behind_bytes"]),
    ) {
        (0, 0) => "up to date".to_owned(),
        (records, behind) => format!(
            "{}, {} and {:.1} s behind",
            how_many(records, "record"),
            HumanBytes(behind),
            copy["behind_seconds"].as_f64().unwrap_or(0.0)
        ),
    };
    line(out, "log copy", &format!("{behind}, in {path}"));
    if let Some(failure) = copy["failure"].as_str() {
        line(out, "", &format!("failing: {failure}"));
    }
}

fn last_rebuild(job: &Value) -> String {
    let text = |name: &str| job[name].as_str();
    let by = text("node").map_or(String::new(), |node| format!(" on node {node}"));
    let state = text("state").map(|state| format!("{state}{by}"));
    match (state, text("error")) {
        (None, _) => "none yet".into(),
        (Some(state), Some(error)) => match text("ended_at") {
            Some(ended) => format!("{state}, {ended}: {error}"),
            None => format!("{state}: {error}"),
        },
        (Some(state), None) => match text("ended_at") {
            Some(ended) => format!("{state}, {ended}"),
            None => {
                let started = text("started_at").unwrap_or("-");
                format!("{state} since {started}{}", progress(job))
            }
        },
    }
}

/// The progress of a job, where it is known: `, 42 % of 1.20 GiB`.
fn progress(job: &Value) -> String {
    let of = &job["progress"];
    let (done, total) = (number(&of["done_bytes"]), number(&of["total_bytes"]));
    let percent = (u128::from(done) * 100).checked_div(total.into());
    percent.map_or(String::new(), |percent| {
        format!(", {percent} % of {}", HumanBytes(total))
    })
}

fn last_backup(path: &Value, backup: &Value) -> String {
    let ended = text(&backup["ended_at"]);
    if backup["running"] == Value::Bool(true) {
        return format!("running{}", progress(backup));
    }
    match (path.as_str(), backup["error"].as_str()) {
        (None, _) => "not configured; `path` in [backup] of the configuration makes one".into(),
        (Some(_), None) if backup.is_null() => "the node that writes tells of it".into(),
        (Some(path), None) if backup["ended_at"].is_null() => {
            format!("none in {path} is known here yet")
        }
        (Some(_), Some(error)) => format!("failed, {ended}: {error}"),
        (Some(_), None) => {
            let generation = number(&backup["generation"]);
            format!("done, {ended}, generation {generation}")
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_is_a_line_for_each_thing() {
        let status = json!({
            "now": "2012-03-16T18:40:00Z", "state": "degraded", "reasons": ["the disk is small"], "generation": 3,
            "ring": {
                "slots": [
                    {"id": "day-2012-03-15", "position": "yesterday", "counters": 0, "runs": 2, "run_bytes": 1_048_576, "memory_bytes": 0},
                    {"id": "day-2012-03-16", "position": "today", "counters": 12_345, "runs": 0, "run_bytes": 0, "memory_bytes": 524_288},
                ],
                "late": [],
            },
            "oplog": {"position": "1:1000000", "bytes": 67_108_864, "unflushed_records": 7, "bytes_a_day": 1_048_576,
                "max_bytes": 268_435_456, "max_full_in_days": 192},
            "log_copy": {"path": "/mnt/log", "ack": "local", "behind_records": 7, "behind_bytes": 2_048,
                "behind_seconds": 1.25, "failure": "the disk is full"},
            "ids": {"window_hours": 25, "in_memory": 2, "memory_bytes": 524_288},
            "memory": {"memory_bytes": 268_435_456, "deltas_bytes_max": 33_554_432, "cache_bytes_max": 16_777_216},
            "archive": {"pending_runs": 1, "file_bytes": 2_048},
            "disk": {"free_bytes": 1_073_741_824, "full_in_days": null},
            "evidence": {"kept": true, "from": ["body", "request"], "keep_days": 7},
            "enrich": {"fill": [], "geo": {"path": "/etc/city.mmdb", "type": "GeoLite2-City",
                "built_at": "2012-03-13T00:00:00Z", "failure": "it cannot be read"}},
            "zone_rules": {"version": "2026f", "source": "built in"},
            "backup_path": "/mnt/copy",
            "last_rebuild": {"job": 4, "state": "done", "ended_at": "2012-03-16T00:05:01Z", "error": null,
                "node": null},
            "last_backup": {"running": false, "ended_at": "2012-03-16T00:05:02Z", "generation": null, "error": "the disk is full"},
        });
        let expected = "\
state     degraded, 2012-03-16T18:40:00Z
          the disk is small
yesterday day-2012-03-15             0 counters   2 runs    1.00 MiB  ████████████████████
today     day-2012-03-16        12,345 counters   0 runs  512.00 KiB  ██████████
log       at 1,000,000, 64.00 MiB, 7 records to replay, 3.5 records a second
          1.00 MiB a day; it fills the disk in more than 400 days, and its limit of 256.00 MiB in 192 days
log copy  7 records, 2.00 KiB and 1.2 s behind, in /mnt/log
          failing: the disk is full
archive   generation 3, 2.00 KiB, 1 run to merge
rebuild   done, 2012-03-16T00:05:01Z
backup    failed, 2012-03-16T00:05:02Z: the disk is full
ids       2 in memory, remembered 25 hours
evidence  kept in the log for 7 days at least, from the body and the request
countries GeoLite2-City of 2012-03-13T00:00:00Z, /etc/city.mmdb
          the file before stays in force: it cannot be read
memory    1.00 MiB of deltas and ids, flushed at 32.00 MiB; 256.00 MiB there are
disk      1.00 GiB free
zones     rules 2026f, built in
";
        assert_eq!(table(&status, Some("3.5 records a second")), expected);
    }

    #[test]
    fn the_last_backup_and_rebuild_say_how_far_they_came() {
        let (none, path) = (Value::Null, json!("/mnt/copy"));
        let progress = json!({"done_bytes": 1_100, "total_bytes": 2_048});
        for (path, job, shown) in [
            (
                &none,
                Value::Null,
                "not configured; `path` in [backup] of the configuration makes one",
            ),
            (&path, Value::Null, "the node that writes tells of it"),
            (
                &path,
                json!({"ended_at": null}),
                "none in /mnt/copy is known here yet",
            ),
            (
                &path,
                json!({"running": true, "ended_at": null, "progress": progress}),
                "running, 53 % of 2.00 KiB",
            ),
            (
                &path,
                json!({"running": false, "ended_at": "2012-03-16T00:05:02Z", "generation": 3, "error": null}),
                "done, 2012-03-16T00:05:02Z, generation 3",
            ),
        ] {
            assert_eq!(last_backup(path, &job), shown);
        }
        let running =
            json!({"state": "running", "started_at": "2012-03-16T00:05:01Z", "progress": progress});
        assert_eq!(
            last_rebuild(&running),
            "running since 2012-03-16T00:05:01Z, 53 % of 2.00 KiB"
        );
        let elsewhere = json!({"state": "done", "node": "c", "ended_at": "2012-03-16T00:05:01Z"});
        assert_eq!(
            last_rebuild(&elsewhere),
            "done on node c, 2012-03-16T00:05:01Z"
        );
    }
}
