//! `tallyring load`: sorts bulk history beside the server, which adopts it in one step.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tallyring_archive::{Blobs, Manifest, Staged};
use tallyring_realtime::{
    Clock, Error, SystemClock, broken_final, check_dataset_name, check_final_load, long_keys_of,
    memory, priority,
};
use tallyring_rebuild::load::{
    BadRow, LoadError, LoadOptions, Loaded, MEMORY_DEFAULT, MEMORY_MIN, Preset, Step, load,
};
use tallyring_records::{LongKeys, SKEW_SECONDS_MAX, Schema, how_many, how_many_were};

use crate::allocator::return_large_blocks;
use crate::cli::{LoadArgs, OnError};
use crate::config::Config;
use crate::data_directory::{blobs, is_of_node, is_store, manifest, open, server_of, try_lock};
use crate::error::{CommandError, Result, doing};
use crate::http_client::Server;
use crate::incoming::Incoming;
use crate::out::{note, say};
use crate::preview::{self, Month};
use crate::strands;

/// How long a sorted load waits for a process that can adopt it.
const ADOPTION_WAITS: Duration = Duration::from_secs(5 * 60);
const ADOPTION_TRIED_EVERY: Duration = Duration::from_secs(2);
/// How long a load waits after a server has gone: a server that restarts must find its directory free.
const SERVER_COMES_BACK: Duration = Duration::from_secs(10);

/// Sorts the files and has the runs adopted. Fails when a row is bad, or counts do not balance. After an error nothing
/// has changed.
pub(crate) fn run(args: &LoadArgs, json: bool) -> Result<()> {
    let named = check_dataset_name(&args.dataset);
    named.map_err(|error| CommandError::Usage(error.to_string()))?;
    let data = args.data.data.as_path();
    if args.dry_run && !is_store(data)? {
        return Err(CommandError::Failed(format!(
            "{} is no data directory, and a dry run makes none; name one with --data",
            data.display()
        )));
    }
    let strand = &strands::of_datasets(data)?;
    let config = Config::for_command(args.data.config.as_deref(), data)?;
    if !args.dry_run {
        make_ready(data, &config)?;
        if let Some(elsewhere) = writes_elsewhere(data)? {
            return Err(CommandError::Failed(elsewhere));
        }
    }
    let has_server = server_of(data).is_some();
    if has_server {
        priority::run_last();
    }
    let blobs = blobs(strand)?;
    let manifest = manifest(&blobs)?;
    if let Some(taken) = manifest.archive.dataset(&args.dataset) {
        let name = args.dataset.clone();
        match manifest.archive.has_in_finals(taken) {
            true if args.is_final && broken_final(&blobs, &manifest, &name).is_some() => {}
            true => return Err(Error::DatasetFinal(name).into()),
            false if !args.replace => return Err(Error::DatasetTaken(name).into()),
            false => {}
        }
    }
    let incoming = Incoming::begin(strand)?;
    let schema = match manifest.intake.schemas.last() {
        // A dry run declares nothing, and shows the effect that a load with this configuration would have.
        Some(entry) if has_server || !args.dry_run || !config.declares => &entry.schema,
        _ => &config.schema,
    };
    let (loaded, rejected) = sort(args, &config, (&manifest, schema), &blobs, incoming.load())?;
    for file in &loaded.empty {
        note!("{file} is empty and adds no rows");
    }
    if loaded.runs.is_empty() {
        return Err(CommandError::Failed(
            "there are no rows to load; nothing changed".into(),
        ));
    }
    if args.is_final {
        check_final_load(&blobs, &manifest, &args.dataset, &loaded.runs)?;
    }
    if args.dry_run {
        let replaced = manifest.archive.dataset(&args.dataset);
        let months = preview::preview(data, &manifest, &loaded.runs, replaced)?;
        return report_dry_run(&months, loaded.rows, rejected, json);
    }
    let staged = Staged {
        load: incoming.load().to_owned(),
        store_id: manifest.store_id.clone(),
        rows: loaded.rows,
        is_final: args.is_final,
        runs: loaded.runs.clone(),
    };
    staged.write(&blobs)?;
    adopt(args, &config, incoming.load())?;
    report(args, &loaded, rejected, json)
}

/// A quarter of `available` bytes, at most 512 MiB: a server beside may use half of them.
fn memory_default(available: u64) -> u64 {
    (available / 4).clamp(MEMORY_MIN, MEMORY_DEFAULT)
}

/// Reads a size such as `512MiB`. The error is a sentence for the user.
pub(crate) fn parse_memory(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|last: char| !last.is_ascii_digit());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "kib" | "k" => 10,
        "mib" | "m" => 20,
        "gib" | "g" => 30,
        "tib" | "t" => 40,
        _ => return Err("write a size such as 512MiB or 2GiB".into()),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| "write a size such as 512MiB or 2GiB".to_owned())?;
    let bytes = number
        .checked_mul(1 << shift)
        .ok_or("it is more than 64 bits hold")?;
    if bytes < MEMORY_MIN {
        return Err(format!("at least {}MiB are needed", MEMORY_MIN >> 20));
    }
    Ok(bytes)
}

/// The latest hour that is taken, as for increments: one ahead of the clock comes from a wrong zone or unit.
fn latest_hour(manifest: &Manifest) -> i64 {
    let clock = SystemClock.now_ms().div_euclid(1_000);
    // The ring may be ahead of a clock that is wrong, and a store that was not opened for days has an older today.
    clock.max(manifest.intake.today.start()) + SKEW_SECONDS_MAX
}

/// Opens the store when no other process holds it: that makes a store in a new directory and declares the schema of the
/// configuration, by which rows are read.
fn make_ready(data: &Path, config: &Config) -> Result<()> {
    let is_new = !is_store(data)?;
    if !is_new && is_declared(data, config)? {
        return Ok(());
    }
    if let Ok(lock) = try_lock(data)? {
        let store = open(data, config, &lock)?;
        store.intake().seal()?;
        if is_new {
            note!(
                "{} was no data directory: a new one is made",
                data.display()
            );
        }
    }
    Ok(())
}

/// True when the manifest has every declaration of the configuration, or the configuration declares nothing.
fn is_declared(data: &Path, config: &Config) -> Result<bool> {
    if !config.declares {
        return Ok(true);
    }
    let manifest = Manifest::load(&blobs(&strands::of_datasets(data)?)?)?;
    let named = manifest
        .as_ref()
        .and_then(|manifest| manifest.intake.schemas.last());
    Ok(named.is_some_and(|named| named.schema == config.schema))
}

fn sort(
    args: &LoadArgs,
    config: &Config,
    (manifest, schema): (&Manifest, &Schema),
    blobs: &Blobs,
    load_id: &str,
) -> Result<(Loaded, u64)> {
    let keys: LongKeys = long_keys_of(blobs)?;
    // Runs with the shards of the generation become its files as they are.
    let newest = manifest
        .archive
        .generations
        .last()
        .and_then(|newest| newest.files.first());
    let named = args.from.zip(args.namespace.as_deref());
    let preset = named
        .map(|(program, namespace)| Preset::new(program, schema, namespace, args.key.as_deref()));
    let preset = preset.transpose().map_err(CommandError::Usage)?;
    let options = LoadOptions {
        id: load_id,
        schema,
        keys: &keys,
        today: manifest.intake.today,
        latest: latest_hour(manifest),
        shards: newest.map_or(config.options.shards, |file| file.meta.shards),
        level: config.rebuild.level,
        memory: args
            .memory
            .unwrap_or_else(|| memory_default(memory::available())),
        fill: args.fill,
        preset: preset.as_ref(),
    };
    let rejects = Rejects::create(args)?;
    return_large_blocks();
    let bar = bar(&args.files);
    let progress = |step| match step {
        Step::Read { bytes, rows } => {
            bar.set_position(bytes);
            bar.set_message(how_many(rows, "row"));
        }
        Step::Write { done, all } => {
            bar.set_message(format!("writing {done} of {}", how_many(all as u64, "run")))
        }
    };
    let loaded = load(
        blobs,
        &args.files,
        options,
        &|row| rejects.take(row),
        &progress,
    );
    bar.finish_and_clear();
    let rejected = rejects.finish()?;
    Ok((loaded?, rejected))
}

/// Has the load adopted, and waits while no process can do that: a server that is just starting must not cost hours of
/// sorting.
fn adopt(args: &LoadArgs, config: &Config, load_id: &str) -> Result<()> {
    let mut waits_since: Option<Instant> = None;
    let mut told = String::new();
    let mut had_server: Option<Instant> = None;
    loop {
        if server_of(&args.data.data).is_some() {
            had_server = Some(Instant::now());
        }
        let is_away = had_server.is_some_and(|seen| seen.elapsed() < SERVER_COMES_BACK);
        let what = match adopt_now(args, config, load_id, is_away) {
            // An earlier try succeeded, and only its answer was lost.
            Err(_) if waits_since.is_some() && is_adopted(args, load_id) => return Ok(()),
            Err(CommandError::Unavailable(what)) => what,
            done => return done,
        };
        let since = *waits_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= ADOPTION_WAITS {
            return Err(CommandError::Unavailable(what));
        }
        if told != what {
            note!(
                "the rows are sorted, and wait to be adopted, {} minutes at most: {what}",
                ADOPTION_WAITS.as_secs() / 60
            );
            told = what;
        }
        thread::sleep(ADOPTION_TRIED_EVERY);
    }
}

/// Asks the server that holds the directory, or adopts the load itself; `is_away` says that the server has gone for a
/// moment only.
fn adopt_now(args: &LoadArgs, config: &Config, load_id: &str, is_away: bool) -> Result<()> {
    let data = args.data.data.as_path();
    if is_away && server_of(data).is_none() {
        return Err(CommandError::Unavailable(
            "the server that held the data directory has gone".into(),
        ));
    }
    if let Some(elsewhere) = writes_elsewhere(data)? {
        return Err(CommandError::Unavailable(elsewhere));
    }
    match try_lock(data)? {
        Ok(lock) => {
            let store = open(data, config, &lock)?;
            let adopted = store.ledger().adopt(&args.dataset, load_id, args.replace);
            adopted.map_err(|error| match error.is_disk_full() {
                true => CommandError::Unavailable(error.to_string()),
                false => error.into(),
            })?;
            // The load is adopted; the next process that opens the log seals it.
            if let Err(error) = store.intake().seal() {
                note!("warning: the log could not be sealed: {error}");
            }
        }
        Err(holder) => {
            let name = percent_encoding::utf8_percent_encode(
                &args.dataset,
                percent_encoding::NON_ALPHANUMERIC,
            );
            let path = format!(
                "/v1/admin/datasets/{name}?load={load_id}&replace={}",
                args.replace
            );
            adopt_through(&Server::of_holder(data, &holder)?, &path)?;
        }
    }
    Ok(())
}

/// Has a server adopt the load. Where another node took the log over since it was asked for, that one does not know the
/// files, and the load waits as it does before it asks.
fn adopt_through(server: &Server, path: &str) -> Result<()> {
    server.post(path).map(drop).map_err(|refused| {
        let status = server.get("/v1/admin/status").ok();
        let elsewhere = status.and_then(|status| elsewhere(&status["cluster"]));
        elsewhere.map_or(refused, CommandError::Unavailable)
    })
}

/// The sentence that names the node which adopts loads, where the server that holds the directory is another one:
/// sorted files lie in the directory of that node.
fn writes_elsewhere(data: &Path) -> Result<Option<String>> {
    let Some(url) = server_of(data).filter(|_| is_of_node(data)) else {
        return Ok(None);
    };
    let status = Server::of(data, &url).get("/v1/admin/status")?;
    Ok(elsewhere(&status["cluster"]))
}

/// As [`writes_elsewhere`], from what a node tells of all nodes.
fn elsewhere(cluster: &Value) -> Option<String> {
    let strands = cluster["strands"].as_array();
    let (told, log) = match strands.and_then(|strands| strands.first()) {
        None => (cluster, "the log"),
        Some(first) => (first, "the log of strand 0, which has all datasets"),
    };
    if told["writes"] != json!(false) {
        return None;
    }
    let mut nodes = told["nodes"].as_array().into_iter().flatten();
    let writer = nodes.find(|node| node["writes"] == json!(true));
    let writer = writer.and_then(|node| node["node"].as_str().zip(node["address"].as_str()));
    Some(match writer {
        Some((node, address)) => format!(
            "the node {node} at {address} writes {log}: load on its machine, into its directory"
        ),
        None => format!("no node writes {log} now; another one does so within seconds"),
    })
}

/// True when the manifest names the load.
fn is_adopted(args: &LoadArgs, load_id: &str) -> bool {
    let strand = strands::of_datasets(&args.data.data);
    let manifest = strand.and_then(|strand| manifest(&blobs(&strand)?));
    manifest.is_ok_and(|manifest| {
        manifest
            .archive
            .datasets
            .iter()
            .any(|of| of.load == load_id)
    })
}

/// The skipped rows.
struct Rejects {
    on_error: OnError,
    file: Option<Mutex<csv::Writer<BufWriter<File>>>>,
    count: AtomicU64,
}

impl Rejects {
    fn create(args: &LoadArgs) -> Result<Self> {
        let file = match &args.rejects {
            Some(_) if args.on_error == OnError::Stop => {
                let detail = "--rejects lists skipped rows: add --on-error skip";
                return Err(CommandError::Usage(detail.into()));
            }
            Some(path) => {
                let is_input = |input: &PathBuf| {
                    let at = |path: &Path| path.canonicalize().ok();
                    at(path).is_some() && at(path) == at(input)
                };
                if args.files.iter().any(is_input) {
                    return Err(CommandError::Usage(format!(
                        "--rejects {} is one of the files to load; name another",
                        path.display()
                    )));
                }
                let file =
                    File::create(path).map_err(doing(format!("write {}", path.display())))?;
                let mut writer = csv::Writer::from_writer(BufWriter::new(file));
                writer
                    .write_record(["file", "line", "detail", "row"])
                    .map_err(doing("write the rejects"))?;
                Some(Mutex::new(writer))
            }
            None => None,
        };
        Ok(Self {
            on_error: args.on_error,
            file,
            count: AtomicU64::new(0),
        })
    }

    fn take(&self, row: BadRow) -> Result<(), LoadError> {
        if self.on_error == OnError::Stop {
            return Err(LoadError::Row(row));
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        let Some(file) = &self.file else {
            return Ok(());
        };
        let line = row.line.to_string();
        let text = String::from_utf8_lossy(&row.text);
        let cells = [&*row.file, &line, &row.detail, &text];
        let written = file.lock().write_record(cells);
        written.map_err(|error| LoadError::File {
            file: "the rejects".into(),
            what: error.to_string(),
        })
    }

    fn finish(self) -> Result<u64> {
        if let Some(file) = self.file {
            file.into_inner()
                .flush()
                .map_err(doing("write the rejects"))?;
        }
        Ok(self.count.into_inner())
    }
}

fn report(args: &LoadArgs, loaded: &Loaded, rejected: u64, json: bool) -> Result<()> {
    let bytes: u64 = loaded.runs.iter().map(|run| run.bytes).sum();
    if json {
        let report = json!({
            "dataset": args.dataset, "rows": loaded.rows, "rejected": rejected,
            "runs": loaded.runs.len(), "bytes": bytes, "spills": loaded.spills,
        });
        return say!("{report}");
    }
    say!(
        "{}: {} in {} of {}{}",
        args.dataset,
        how_many(loaded.rows, "row"),
        how_many(loaded.runs.len() as u64, "run"),
        how_many(bytes, "byte"),
        skipped(rejected)
    )?;
    say!("it counts with the next rebuild (`tallyring rebuild` does it now)")
}

fn skipped(rejected: u64) -> String {
    match rejected {
        0 => String::new(),
        rejected => format!("; {} skipped", how_many_were(rejected, "row")),
    }
}

fn report_dry_run(months: &[Month], rows: u64, rejected: u64, json: bool) -> Result<()> {
    if json {
        let months: Vec<Value> = months.iter().map(Month::json).collect();
        return say!(
            "{}",
            json!({ "rows": rows, "rejected": rejected, "months": months })
        );
    }
    say!("{}", preview::table(months).trim_end())?;
    say!(
        "{}{}; nothing changed",
        how_many(rows, "row"),
        skipped(rejected)
    )
}

fn bar(files: &[PathBuf]) -> ProgressBar {
    let bytes: Option<u64> = files
        .iter()
        .map(|file| {
            std::fs::metadata(file)
                .ok()
                .filter(std::fs::Metadata::is_file)
        })
        .map(|metadata| metadata.map(|metadata| metadata.len()))
        .sum();
    let (bar, template) = match bytes {
        Some(bytes) => (
            ProgressBar::new(bytes),
            "loading {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta} left, {msg}",
        ),
        // The length of a pipe is unknown.
        None => (
            ProgressBar::no_length(),
            "loading {spinner} {bytes} {bytes_per_sec}, {msg}",
        ),
    };
    bar.with_style(
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http_client::serve_answers;

    #[test]
    fn the_node_is_named_that_adopts_loads() {
        let nodes = json!([
            {"node": "a", "address": "http://a:1", "writes": false},
            {"node": "b", "address": "http://b:1", "writes": true},
        ]);
        let follows = json!({"writes": false, "nodes": nodes});
        assert_eq!(elsewhere(&Value::Null), None, "no node of a cluster");
        assert_eq!(elsewhere(&json!({"writes": true, "nodes": nodes})), None);
        let told = elsewhere(&follows).unwrap();
        assert!(
            told.contains("node b at http://b:1 writes the log: "),
            "{told}"
        );
        let told = elsewhere(&json!({"writes": false, "nodes": []})).unwrap();
        assert!(told.contains("no node writes the log now"), "{told}");
        // That the node writes another strand is beside the point.
        let writes = json!({"writes": true, "nodes": nodes});
        let told = elsewhere(&json!({"writes": true, "strands": [follows, writes]})).unwrap();
        assert!(
            told.contains("b at http://b:1 writes the log of strand 0"),
            "{told}"
        );
        assert_eq!(
            elsewhere(&json!({"writes": false, "strands": [writes, follows]})),
            None
        );
    }

    #[test]
    fn a_load_waits_where_another_node_took_the_log_over_before_it_was_adopted() {
        let status = |writes: bool| {
            let cluster = json!({"cluster": {"writes": writes, "nodes": []}});
            (200, cluster.to_string())
        };
        let refused = || (404, json!({"detail": "there is no load"}).to_string());
        let server = serve_answers([refused(), status(false), refused(), status(true)]);
        let waits = adopt_through(&server, "/v1/admin/datasets/h");
        assert!(
            matches!(waits, Err(CommandError::Unavailable(_))),
            "{waits:?}"
        );
        let failed = adopt_through(&server, "/v1/admin/datasets/h");
        assert!(matches!(failed, Err(CommandError::Failed(_))), "{failed:?}");
    }

    #[test]
    fn a_load_takes_a_quarter_of_the_memory_there_is_at_most_512_mib() {
        for (available, taken) in [(24 << 30, 512), (1 << 30, 256), (512 << 20, 128), (1, 32)] {
            assert_eq!(memory_default(available), taken << 20, "of {available}");
        }
    }
}
