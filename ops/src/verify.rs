//! `tallyring verify`: reads everything and reports every fault with its file.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use tallyring_archive::{
    Blobs, Checked, GenerationEntry, Manifest, RunEntry, manifest, names, verify_run,
};
use tallyring_realtime::oplog::{DaysOfSegments, ReadFrom, scan};
use tallyring_realtime::{Leftovers, Lock, Store};
use tallyring_rebuild::remake;
use tallyring_records::how_many;

use crate::cli::VerifyArgs;
use crate::config::Config;
use crate::data_directory::{blobs, is_of_node, open_read_only, require_some_store};
use crate::error::{CommandError, Result};
use crate::lists::BrokenList;
use crate::out::{note, say};
use crate::progress::bytes_bar;
use crate::repair::{self, Repaired};
use crate::scratch::in_scratch;
use crate::strands;

/// Checks manifests, oplog and every file that a manifest names, of all strands of a store. Fails when a fault was
/// found; each was printed.
pub(crate) fn run(args: &VerifyArgs, json: bool) -> Result<()> {
    if args.erased && is_of_node(&args.data) {
        return Err(CommandError::Usage(format!(
            "--erased looks into the store of one machine, and {} is the directory of a node: restore a backup of its \
             store, and look there",
            args.data.display()
        )));
    }
    let directories = strands::directories(&args.data)?;
    let mut reports = Vec::new();
    for (strand, data) in directories.iter().enumerate() {
        let report = match look(args, data) {
            // The others are looked at all the same. A repair that cannot begin, as beside a server, finds nothing.
            Err(lost) if directories.len() > 1 && !args.repair => Report::lost(strand, &lost),
            looked => looked?,
        };
        if !json {
            if directories.len() > 1 {
                say!("strand {strand}")?;
            }
            report.print()?;
        }
        reports.push(report);
    }
    if json {
        let mut told: Vec<Value> = reports.iter().map(Report::in_json).collect();
        match told.len() {
            1 => say!("{}", told.remove(0))?,
            _ => say!("{}", json!({ "strands": told }))?,
        }
    }
    let findings: usize = reports.iter().map(|report| report.findings.len()).sum();
    if findings == 0 {
        return check_erased(&reports);
    }
    let advice = if args.repair {
        "neither the backup, other files nor the log can heal this now: do what the findings say, or restore a backup"
    } else {
        "do not trust the named files; `tallyring verify --repair` heals them from a backup, other files or the log"
    };
    Err(CommandError::Failed(format!(
        "{}; {advice}",
        how_many(findings as u64, "finding")
    )))
}

/// Checks a store with one strand, or a strand.
fn look(args: &VerifyArgs, data: &Path) -> Result<Report> {
    require_some_store(data)?;
    let is_node = is_of_node(data);
    let Repaired { healed, failed } = if args.repair {
        repair::run(args, data)?
    } else {
        Repaired::default()
    };
    // A command that rebuilds or recompresses holds this lock too, and another node may publish at any time.
    let served = is_node || Lock::holder(data).ok().flatten().is_some();
    // Opening the store replays the log onto the runs, which proves that they fit each other.
    let opened = (!is_node).then(|| open_read_only(data)).transpose();
    let store = opened.as_ref().ok().and_then(Option::as_ref);
    let erased = store
        .filter(|_| args.erased)
        .map(|store| look_for_erased(store, args, data));
    let blobs = blobs(data)?;
    // A recount of a day judges by lists that the log alone may name.
    let schemas = store.map(Store::schemas).unwrap_or_default();
    let unopened = opened.err().map(|error| error.to_string());
    let unfound = erased.as_ref().and_then(|erased| erased.as_ref().err());
    let unfound = unfound.map(|error| format!("erased users cannot be looked for: {error}"));
    let findings = failed.into_iter().chain(unopened).chain(unfound);
    let mut findings: Vec<String> = findings.collect();
    let mut checked = Checked::default();
    let (files, manifests) = manifest_files(&blobs, &mut findings);
    let bar = bytes_bar("verifying");
    bar.set_length(files.values().map(|entry| entry.bytes).sum());
    for entry in files.values() {
        match verify_run(&blobs, entry) {
            Ok(one) => checked += one,
            // A server may have published meanwhile and removed files of the manifest before.
            Err(_) if served && !is_named(&blobs, &entry.name) => {}
            Err(error) => findings.push(error.to_string()),
        }
        bar.inc(entry.bytes);
    }
    bar.finish_and_clear();
    let broken = BrokenList::all(&blobs, &*schemas);
    findings.extend(broken.iter().map(BrokenList::to_string));
    let records = oplog(&blobs, served, &mut findings);
    let merged_again = match args.deep {
        true => merge_again(&blobs, served, &mut findings),
        false => None,
    };
    findings.dedup();
    Ok(Report {
        checked,
        manifests,
        records,
        merged_again,
        healed,
        erased: erased.and_then(Result::ok),
        not_looked_at: is_node.then_some(NOT_OF_NODE),
        findings,
    })
}

/// Leftovers of erased users.
struct Erased {
    left: Leftovers,
    /// Records of the second copy of the log that name one of them; none without a copy.
    copied: Option<u64>,
}

impl Erased {
    fn is_left(&self) -> bool {
        !self.left.is_empty() || self.copied.is_some_and(|records| records > 0)
    }

    fn print(&self) -> Result<()> {
        let (users, records) = (self.left.users, self.left.records);
        say!("erased users     {users:>14}  that may be left somewhere")?;
        say!("log records      {records:>14}  that name one of them")?;
        match self.copied {
            Some(records) => {
                say!("copied records   {records:>14}  of the second copy that name one of them")?;
            }
            None => say!("copied records                -  `--config FILE` names no second copy")?,
        }
        for (file, lines) in &self.left.lines {
            say!("ERASED {file} still has {}", how_many(*lines, "line"))?;
        }
        for file in &self.left.unread {
            say!("ERASED {file} may have some: it cannot be read")?;
        }
        Ok(())
    }
}

/// Looks for erased users in the data directory, and in the second copy of its log where the configuration names one.
fn look_for_erased(store: &Store, args: &VerifyArgs, data: &Path) -> Result<Erased> {
    let left = store.leftovers()?;
    let copy = Config::load(args.config.as_deref())?.log_copy;
    let copied = copy.map(|copy| -> Result<u64> {
        let path = strands::place_of(data, &copy.path)?;
        let shown = path.display();
        if !path.join(names::OPLOG).is_dir() {
            return Err(CommandError::Failed(format!(
                "the second copy of the log in {shown} cannot be looked at: it has no {}; is its disk there?",
                names::OPLOG
            )));
        }
        let records = store.records_of_erased(blobs(&path)?.disk());
        records
            .map_err(|error| CommandError::Failed(format!("the second copy in {shown}: {error}")))
    });
    Ok(Erased {
        left,
        copied: copied.transpose()?,
    })
}

/// Checks the files of the newest manifest; older manifests are read and checked themselves.
fn manifest_files(
    blobs: &Blobs,
    findings: &mut Vec<String>,
) -> (BTreeMap<String, RunEntry>, usize) {
    let numbers = manifest::numbers(blobs).unwrap_or_default();
    let mut files = BTreeMap::new();
    for (index, &number) in numbers.iter().enumerate() {
        match Manifest::load_number(blobs, number) {
            Ok(manifest) if index + 1 == numbers.len() => {
                files = manifest
                    .files()
                    .map(|entry| (entry.name.clone(), entry.clone()))
                    .collect();
            }
            Ok(_) => {}
            Err(error) => findings.push(error.to_string()),
        }
    }
    if numbers.is_empty() {
        findings.push("there is no manifest".into());
    }
    (files, numbers.len())
}

/// Returns how many files of the active generation were merged again with the same result.
fn merge_again(blobs: &Blobs, served: bool, findings: &mut Vec<String>) -> Option<u64> {
    let before = merged(blobs);
    match remade(blobs) {
        Ok(files) => return Some(files),
        // A server may publish and remove meanwhile.
        Err(_) if served && merged(blobs) != before => {
            note!("warning: nothing was merged again: the store was changed meanwhile");
        }
        Err(error) => findings.push(error.to_string()),
    }
    None
}

/// Merges the files of the active generation again into a temporary directory.
fn remade(blobs: &Blobs) -> Result<u64> {
    let Some(manifest) = Manifest::load(blobs)? else {
        return Ok(0);
    };
    in_scratch(|scratch| Ok(remake(blobs, scratch, &manifest)?))
}

/// The inputs and results of a merge.
fn merged(blobs: &Blobs) -> Option<(Vec<GenerationEntry>, Vec<RunEntry>)> {
    let manifest = Manifest::load(blobs).ok()??;
    let sources = manifest.archive.all_sources().cloned().collect();
    Some((manifest.archive.generations, sources))
}

fn is_named(blobs: &Blobs, name: &str) -> bool {
    let newest = Manifest::load(blobs).ok().flatten();
    newest.is_none_or(|manifest| manifest.files().any(|entry| entry.name == name))
}

/// Counts the records of the log. A torn tail comes from a crash or from damage; only the next start can tell.
fn oplog(blobs: &Blobs, served: bool, findings: &mut Vec<String>) -> u64 {
    let disk = blobs.disk();
    let mut days = DaysOfSegments::of(disk).ok();
    let read = scan(disk, None, ReadFrom::Oldest, &mut |frame| {
        days.as_mut().map_or(Ok(()), |days| days.take(&frame))
    });
    match read {
        Ok(summary) => {
            findings.extend(days.iter().flat_map(|days| days.wrong(disk)));
            if let Some(torn) = summary.torn.filter(|_| !served) {
                findings.push(format!(
                    "{} has {} bytes at offset {} that no sync covered: a write that a crash tore (the next start \
                     cuts it, nothing in it was acknowledged), or damage behind the last sealed record",
                    torn.file, torn.bytes, torn.offset
                ));
            }
            summary.end_sequence - summary.oldest_sequence
        }
        Err(error) => {
            findings.push(error.to_string());
            0
        }
    }
}

/// Told of the directory of a node, whose log is read without the counts that it adds to those of the files.
const NOT_OF_NODE: &str = "whether the log fits the files, and lists of declarations: a node replays the log at each start, which fails where \
     it does not fit";

/// The result of a check.
#[derive(Default)]
struct Report {
    checked: Checked,
    manifests: usize,
    records: u64,
    /// Files merged again, with `--deep`.
    merged_again: Option<u64>,
    /// The healed files, with `--repair`.
    healed: Vec<String>,
    /// Leftovers of erased users, with `--erased`.
    erased: Option<Erased>,
    /// Told where a part of the check was left out.
    not_looked_at: Option<&'static str>,
    findings: Vec<String>,
}

/// Fails where something of erased users is left.
fn check_erased(reports: &[Report]) -> Result<()> {
    let left = reports.iter().filter_map(|report| report.erased.as_ref());
    let left: Vec<&Erased> = left.filter(|erased| erased.is_left()).collect();
    if left.is_empty() {
        return Ok(());
    }
    let sum = |of: fn(&Erased) -> u64| -> u64 { left.iter().map(|erased| of(erased)).sum() };
    Err(CommandError::Failed(format!(
        "{}, {} and {} of its second copy still have something of erased users, which no answer shows: `tallyring \
         rebuild` writes files without it, but for those of today; the server takes it out of the log in the two \
         nights after, once the second copy is brought up; remove files of {}/ yourself",
        how_many(
            sum(|erased| (erased.left.lines.len() + erased.left.unread.len()) as u64),
            "file"
        ),
        how_many(sum(|erased| erased.left.records), "log record"),
        sum(|erased| erased.copied.unwrap_or(0)),
        names::ASIDE,
    )))
}

impl Report {
    /// Tells of a strand that cannot be opened.
    fn lost(strand: usize, error: &CommandError) -> Self {
        Self {
            findings: vec![format!("strand {strand} cannot be checked: {error}")],
            ..Self::default()
        }
    }

    fn in_json(&self) -> Value {
        let Checked {
            files,
            bytes,
            lines,
            buckets,
            subtotals,
            with_remainder,
        } = self.checked;
        json!({
            "files": files, "bytes": bytes, "lines": lines, "buckets": buckets, "subtotals": subtotals,
            "with_remainder": with_remainder, "manifests": self.manifests, "oplog_records": self.records,
            "merged_again": self.merged_again, "healed": self.healed, "findings": self.findings,
            "not_looked_at": self.not_looked_at,
            "erased": self.erased.as_ref().map(|Erased { left, copied }| json!({
                "users": left.users, "files": left.lines, "unread": left.unread, "log_records": left.records,
                "log_copy_records": copied,
            })),
        })
    }

    fn print(&self) -> Result<()> {
        let Checked {
            files,
            bytes,
            lines,
            buckets,
            subtotals,
            with_remainder,
        } = self.checked;
        say!("files            {files:>14}")?;
        say!("bytes            {bytes:>14}")?;
        say!("lines            {lines:>14}")?;
        say!("totals           {buckets:>14}  base buckets")?;
        say!("subtotals        {subtotals:>14}  compared with their total")?;
        say!(
            "with remainder   {with_remainder:>14}  counted without a value for all (reads as -)"
        )?;
        say!("manifests        {:>14}", self.manifests)?;
        say!("oplog records    {:>14}", self.records)?;
        if let Some(merged_again) = self.merged_again {
            say!("merged again     {merged_again:>14}  files, the same")?;
        }
        if let Some(erased) = &self.erased {
            erased.print()?;
        }
        for file in &self.healed {
            say!("HEALED {file}")?;
        }
        for finding in &self.findings {
            say!("WRONG  {finding}")?;
        }
        if let Some(what) = self.not_looked_at {
            say!("NOT LOOKED AT  {what}")?;
        }
        let is_left = self.erased.as_ref().is_some_and(Erased::is_left);
        if self.findings.is_empty() && !is_left {
            say!("all good")?;
        }
        Ok(())
    }
}
