//! `tallyring export`: the counts of closed days as tables for other programs, a file for each month.
//!
//! Reads the files that the newest manifest names, so it works beside a running server and asks nothing of it.
//! Invariants: a file of a month is whole, and of one manifest. A month is written again only where the files that it
//! is made of have changed. A file ends with the last closed day; late counts of closed days that memory holds alone
//! come with a later export.

mod directory;
mod file;
mod plan;

use std::path::Path;

use serde_json::json;
use tallyring_archive::{Blobs, Manifest, Partition, Run, RunEntry, names};
use tallyring_realtime::priority;
use tallyring_rebuild::count_rows;
use tallyring_records::{Day, Namespace, how_many};

use crate::cli::ExportArgs;
use crate::data_directory::{blobs, is_of_node, manifest, require_store, server_of};
use crate::error::{CommandError, Result};
use crate::out::say;
use crate::progress::bytes_bar;
use crate::strands;
use directory::{Directory, Made, Of};
use file::MonthFiles;
use plan::{Group, Plan};

/// How often the export goes on with a newer manifest, after a server removed files of the one before.
const TRIES_MAX: u32 = 10;

/// Kinds of counts that are in no file, for people and for programs.
const LEFT_OUT: [&str; 4] = ["users", "minutes", "actions of users", "filtered events"];

/// Writes the months that changed. Fails where the data or the directory cannot be read or written, or the directory
/// has another export; the files that are there stay whole.
pub(crate) fn run(args: &ExportArgs, json: bool) -> Result<()> {
    let data = args.data.as_path();
    if let (Some(from), Some(to)) = (args.from, args.to)
        && from.start() > to.start()
    {
        return Err(CommandError::Usage(format!(
            "--from {from} is after --to {to}; give the earlier month first"
        )));
    }
    check_data(data)?;
    if server_of(data).is_some() {
        priority::run_last();
    }
    let mut stores = Stores::open(data)?;
    let mut directory = Directory::open(&args.directory, stores.of(args)?)?;
    let mut done = Done::default();
    for tries in 0.. {
        let Err(error) = stores.write(args, &mut directory, &mut done) else {
            break;
        };
        // A server may have published meanwhile, and removed files of the manifest before.
        if tries == TRIES_MAX || !stores.renew()? {
            return Err(error);
        }
    }
    done.print(&args.directory, json)
}

/// Fails for a directory that has a part of a store, or none.
fn check_data(data: &Path) -> Result<()> {
    require_store(data)?;
    if is_of_node(data) {
        return Err(CommandError::Usage(format!(
            "{} is the directory of a node of a cluster, and its files lie in the bucket: make a backup of the store, \
             and name the directory of the backup with --data",
            data.display()
        )));
    }
    match strands::directories(data)?.len() {
        1 => strands::refuse_any(data),
        _ => Ok(()),
    }
}

/// The files of all strands of a store.
struct Stores {
    blobs: Vec<Blobs>,
    manifests: Vec<Manifest>,
}

impl Stores {
    fn open(data: &Path) -> Result<Self> {
        let directories = strands::directories(data)?;
        let blobs: Vec<Blobs> = (directories.iter().map(|of| blobs(of))).collect::<Result<_>>()?;
        let manifests = blobs.iter().map(manifest).collect::<Result<_>>()?;
        Ok(Self { blobs, manifests })
    }

    /// Takes the newest manifests. False where nothing changed.
    fn renew(&mut self) -> Result<bool> {
        let newest: Vec<Manifest> = self.blobs.iter().map(manifest).collect::<Result<_>>()?;
        let numbers = |of: &[Manifest]| of.iter().map(|of| of.number).collect::<Vec<_>>();
        let has_changed = numbers(&newest) != numbers(&self.manifests);
        self.manifests = newest;
        Ok(has_changed)
    }

    /// The export that the directory is to have. Fails for a namespace that is not declared.
    fn of(&self, args: &ExportArgs) -> Result<Of> {
        let lineage = self.blobs[0].read_if_there(names::LINEAGE)?;
        let lineage = lineage.map(|text| String::from_utf8_lossy(&text).trim().to_owned());
        let mut namespaces = args.namespace.clone();
        namespaces.sort_unstable();
        namespaces.dedup();
        self.namespaces(&namespaces)?;
        Ok(Of {
            store: self.manifests[0].store_id.clone(),
            lineage,
            format: args.format,
            namespaces,
        })
    }

    /// The declared namespaces with these names; all where none is named.
    fn namespaces(&self, named: &[String]) -> Result<Vec<&Namespace>> {
        let schemas = self.manifests[0].intake.schemas.last();
        let Some(schema) = schemas.map(|entry| &entry.schema) else {
            return Ok(Vec::new());
        };
        if named.is_empty() {
            return Ok(schema.namespaces.iter().collect());
        }
        let find = |name: &String| {
            schema.namespace(name).ok_or_else(|| {
                CommandError::Usage(format!(
                    "`--namespace` must be one of {}; got `{}`",
                    schema.names(),
                    name.escape_debug()
                ))
            })
        };
        named.iter().map(find).collect()
    }

    /// Writes every month that is not there as it should be, and removes those that count nothing any more.
    fn write(&self, args: &ExportArgs, directory: &mut Directory, done: &mut Done) -> Result<()> {
        let namespaces = self.namespaces(directory.namespaces())?;
        let plan = Plan::of(&self.manifests, &namespaces, (args.from, args.to));
        done.until = Some(plan.until);
        let due: Vec<(&Group<'_>, Vec<Partition>)> = (plan.groups.iter())
            .map(|group| (group, directory.due(group)))
            .filter(|(_, months)| !months.is_empty())
            .collect();
        let bar = bytes_bar("exporting");
        bar.set_length(due.iter().map(|(group, _)| group.bytes()).sum());
        for (group, months) in due {
            let mut files = directory.begin(&months);
            self.write_group((group, &months), &namespaces, &mut files)?;
            for month in months {
                let made = directory.keep(&mut files, group, month)?;
                done.note(month, made);
            }
            directory.save()?;
            bar.inc(group.bytes());
        }
        for month in directory.superfluous(&plan, (args.from, args.to)) {
            if directory.forget(month)? {
                done.removed.push(month);
            }
        }
        directory.save()?;
        bar.finish_and_clear();
        done.all = directory.files();
        Ok(())
    }

    fn write_group(
        &self,
        (group, months): (&Group<'_>, &[Partition]),
        namespaces: &[&Namespace],
        files: &mut MonthFiles,
    ) -> Result<()> {
        let range = group.range(months);
        for runs in group.by_shard(&range) {
            let open =
                |(strand, entry): &(usize, &RunEntry)| Run::open_named(&self.blobs[*strand], entry);
            let runs = runs.iter().map(open).collect::<Result<Vec<_>, _>>()?;
            count_rows(&runs, namespaces, range.clone(), &mut |row| files.push(row))?;
        }
        Ok(())
    }
}

/// The result of an export.
#[derive(Default)]
struct Done {
    /// The first day that is not closed.
    until: Option<Day>,
    written: Vec<(Partition, Made)>,
    removed: Vec<Partition>,
    /// Files that are there.
    all: usize,
}

impl Done {
    fn note(&mut self, month: Partition, made: Option<Made>) {
        self.written.retain(|(other, _)| *other != month);
        match made {
            Some(made) if made.rows > 0 => self.written.push((month, made)),
            Some(_) => self.removed.push(month),
            None => {}
        }
    }

    fn print(&self, directory: &Path, json: bool) -> Result<()> {
        let last = self.until.map(|until| until.previous());
        if json {
            let written = self.written.iter().map(|(month, made)| {
                json!({ "month": month, "file": made.file, "rows": made.rows, "bytes": made.bytes })
            });
            let report = json!({
                "directory": directory.display().to_string(), "last_day": last, "files": self.all,
                "written": written.collect::<Vec<_>>(), "removed": self.removed, "left_out": LEFT_OUT,
            });
            return say!("{report}");
        }
        for (_, made) in &self.written {
            let (rows, bytes) = (how_many(made.rows, "row"), how_many(made.bytes, "byte"));
            say!("{}: {rows}, {bytes}", made.file)?;
        }
        for month in &self.removed {
            say!("{month}: removed, because nothing counts in it any more")?;
        }
        let unchanged = self.all.saturating_sub(self.written.len()) as u64;
        say!(
            "{} written, {unchanged} unchanged",
            how_many(self.written.len() as u64, "file")
        )?;
        if let Some(last) = last {
            say!(
                "the files go until {last} (UTC), the last day that is closed; what came late and is in memory alone \
                 comes with a later export"
            )?;
        }
        say!("left out: {}", LEFT_OUT.join(", "))
    }
}
