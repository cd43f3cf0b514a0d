//! Files of lists: read at the start, and again when they change while the server runs. And `tallyring lists`.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};
use tallyring_api::ReconcileOrder;
use tallyring_archive::{Blobs, SchemaEntry, names};
use tallyring_realtime::{Error, Store, store_list};
use tallyring_records::{
    Day, LIST_BYTES_MAX, List, ListKind, RuleSet, Schema, check_list, check_new_list, content_hash,
    grouped,
};

use crate::cli::{ListsArgs, ListsCommand};
use crate::config::{Config, ListFile, RulesFile};
use crate::data_directory::{blobs, manifest, require_store, server_of};
use crate::error::{CommandError, Result, doing};
use crate::incoming::Incoming;
use crate::out::say;
use crate::reconcile;
use crate::strands;
use crate::watched::{self, Stamp};

/// Shows the lists of a configuration, or replaces the file of one. Fails when a file cannot be used.
pub(crate) fn run(args: &ListsArgs, json: bool) -> Result<()> {
    match &args.command {
        ListsCommand::Show { config, data } => {
            let in_force = data.as_deref().map(in_force).transpose()?;
            show(&Config::load(Some(config))?, in_force.as_deref(), json)
        }
        ListsCommand::Put {
            name,
            file,
            config,
            force,
            preview: None,
            ..
        } => {
            let config = Config::load(Some(config))?;
            put(declared(&config.lists, name)?, file, *force, json)
        }
        ListsCommand::Put {
            name,
            file,
            config,
            preview: Some(day),
            by,
            data,
            ..
        } => {
            let rules = with_file(RulesFile::load(config)?, name, file)?;
            let apply = format!(
                "run `tallyring lists put {name} {} --config {}`, and `tallyring reconcile {day}` once the server has \
                 taken the file",
                file.display(),
                config.display()
            );
            preview(data, rules, (*day, by.as_deref()), (&apply, json))
        }
    }
}

/// The list of that name. A usage error names those that are declared.
fn declared<'l>(lists: &'l [ListFile], name: &str) -> Result<&'l ListFile> {
    let list = lists.iter().find(|list| list.name == *name);
    list.ok_or_else(|| {
        let names: Vec<&str> = lists.iter().map(|list| &*list.name).collect();
        CommandError::Usage(format!(
            "list `{}` is not declared; declared are: {}. Declare it as [lists.{0}]",
            name.escape_debug(),
            if names.is_empty() {
                "none".to_owned()
            } else {
                names.join(", ")
            }
        ))
    })
}

/// Rules that read another file for one of their lists. A usage error says that there is no such list.
fn with_file(mut rules: RulesFile, name: &str, file: &Path) -> Result<RulesFile> {
    declared(&rules.lists, name)?;
    for list in rules.lists.iter_mut().filter(|list| list.name == name) {
        list.path = file.to_owned();
    }
    Ok(rules)
}

/// Tells what the next reconcile of a day would change by these rules; `apply` says how they come into force.
fn preview(
    data: &Path,
    rules: RulesFile,
    (day, by): (Day, Option<&str>),
    (apply, json): (&str, bool),
) -> Result<()> {
    require_store(data)?;
    let order = ReconcileOrder {
        dry_run: true,
        by: by.map(str::to_owned),
        rules: Some(store_rules(data, rules)?),
        ..ReconcileOrder::of(day)
    };
    // The store keeps its declarations: a preview changes nothing.
    reconcile::carry_out(data, None, &order, (Some(apply), json)).map(drop)
}

/// Checks rules against the declarations in force, and stores the contents of their lists in the data directory, beside
/// a server that holds it or without one. Strands judge by lists of their own, behind a server alone. A usage error
/// names a rule or a file that cannot be used.
pub(crate) fn store_rules(data: &Path, file: RulesFile) -> Result<RuleSet> {
    if server_of(data).is_none() {
        strands::refuse_whole(data)?;
    }
    let first = blobs(&strands::first(data)?)?;
    let (mut rules, in_force) = (file.rules, manifest(&first)?);
    if let Some(in_force) = in_force.intake.schemas.last() {
        let checked = in_force.schema.with_rules(&rules);
        checked.map_err(|error| CommandError::Usage(error.detail))?;
    }
    let contents = file
        .lists
        .iter()
        .map(|list| load(list, |content| has(&first, content)));
    let contents = contents.collect::<Result<Vec<_>>>()?;
    for strand in strands::directories(data)? {
        let (blobs, incoming) = (blobs(&strand)?, Incoming::begin(&strand)?);
        for (list, (content, _)) in rules.lists.iter_mut().zip(&contents) {
            list.sha256 = store_beside(&blobs, &incoming, content)?;
        }
    }
    Ok(rules)
}

/// A list whose content is missing or damaged.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct BrokenList {
    /// Name of the list.
    pub name: String,
    /// Hash of the content.
    pub sha256: String,
}

impl BrokenList {
    /// The lists that some declaration names and whose content is not there, each once.
    pub(crate) fn all<'s>(
        blobs: &Blobs,
        schemas: impl IntoIterator<Item = &'s SchemaEntry>,
    ) -> Vec<Self> {
        let lists = schemas.into_iter().flat_map(|entry| &entry.schema.lists);
        let named: BTreeSet<(&str, &str)> =
            lists.map(|list| (&*list.name, &*list.sha256)).collect();
        let is_broken = |(_, sha256): &(&str, &str)| {
            let content = blobs.read(&names::list_content(sha256));
            !content.is_ok_and(|content| content_hash(&content) == *sha256)
        };
        let broken = named.into_iter().filter(is_broken);
        let broken = broken.map(|(name, sha256)| Self {
            name: name.to_owned(),
            sha256: sha256.to_owned(),
        });
        broken.collect()
    }
}

impl fmt::Display for BrokenList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, sha256 } = self;
        write!(
            f,
            "{file}: the content of the list `{name}` is missing or damaged, so no day can be judged by it: restore the file \
             from a backup, or put exactly that content there, whose SHA-256 is {sha256}, or start the server with the \
             configuration of the list where that is its content now, which writes it again",
            file = names::list_content(sha256)
        )
    }
}

/// Writes the content of a list durably under its hash, which is returned. A server may write the same content
/// meanwhile, so the content is whole before it has that name. Fails when the disk refuses.
fn store_beside(blobs: &Blobs, incoming: &Incoming, content: &[u8]) -> Result<String> {
    let sha256 = content_hash(content);
    let name = names::list_content(&sha256);
    if blobs.read_if_there(&name)?.as_deref() == Some(content) {
        // A process that died may have left the name in memory only.
        blobs.sync(names::RULES)?;
        return Ok(sha256);
    }
    let written = incoming.path(&sha256);
    blobs.put(&written, content)?;
    blobs.copy(&written, &name)?;
    if blobs.read_if_there(&name)?.as_deref() != Some(content) {
        return Err(CommandError::Failed(format!(
            "{name} of the data directory is damaged; remove that file and run this again"
        )));
    }
    Ok(sha256)
}

/// The lists by which a store judges, as its newest manifest names them.
fn in_force(data: &Path) -> Result<Vec<List>> {
    require_store(data)?;
    let manifest = manifest(&blobs(&strands::first(data)?)?)?;
    let in_force = manifest.intake.schemas.into_iter().last();
    Ok(in_force.map_or_else(Vec::new, |entry| entry.schema.lists))
}

/// Shows the lists of a configuration, and whether a store with these lists judges by them.
fn show(config: &Config, in_force: Option<&[List]>, json: bool) -> Result<()> {
    let mut shown = Vec::new();
    for list in &config.lists {
        let (content, entries) = load(list, |_| true)?;
        let (name, kind, sha256) = (&list.name, list.kind.name(), content_hash(&content));
        let path = list.path.display().to_string();
        let is_of_file =
            |of: &List| of.name == *name && of.kind == list.kind && of.sha256 == sha256;
        let is_in_force = in_force.map(|lists| lists.iter().any(is_of_file));
        if json {
            let mut list = json!({
                "name": name, "match": kind, "file": path, "entries": entries, "sha256": sha256,
            });
            if let Some(is_in_force) = is_in_force {
                list["in_force"] = is_in_force.into();
            }
            shown.push(list);
        } else {
            let entries = grouped(entries as u64);
            let state = match is_in_force {
                None => "",
                Some(true) => ", in force",
                Some(false) => ", not in force",
            };
            say!(
                "{name}: {entries} of {kind}, {}, {path}{state}",
                &sha256[..12]
            )?;
        }
    }
    match json {
        true => say!("{}", Value::Array(shown)),
        false if config.lists.is_empty() => say!("The configuration declares no list."),
        false => Ok(()),
    }
}

/// Puts a checked file in the place of a list's, durably and in one step.
fn put(list: &ListFile, file: &Path, force: bool, json: bool) -> Result<()> {
    let shown = file.display();
    let (content, is) = read(list.kind, file, |_| false)
        .map_err(|why| CommandError::Usage(format!("{shown}: {why}; nothing was changed")))?;
    // A list that is not there yet, or cannot be used, is replaced by any.
    let was = read(list.kind, &list.path, |_| true).map_or(0, |(_, was)| was);
    let shrank = is < was.div_ceil(2);
    if shrank && !force {
        return Err(CommandError::Failed(format!(
            "{shown} has {is} lines in the place of {was}, less than half; nothing was changed. If that is right, use \
             --force, and restart the server"
        )));
    }
    let target = list.path.display();
    let mut new = list.path.clone().into_os_string();
    new.push(".new");
    let written = File::create(&new).and_then(|mut file| {
        file.write_all(&content)?;
        file.sync_all()?;
        std::fs::rename(&new, &list.path)?;
        let folder = list.path.parent();
        let folder = folder.filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    });
    written.map_err(doing(format!("write {target}")))?;
    if json {
        let sha256 = content_hash(&content);
        return say!(
            "{}",
            json!({
                "name": list.name, "file": target.to_string(), "entries": is, "sha256": sha256,
                "needs_restart": shrank,
            })
        );
    }
    let taken = match shrank {
        true => "a running server takes it with its next start",
        false => "a running server takes it within a second",
    };
    say!("{target}: {} lines; {taken}", grouped(is as u64))
}

/// Reads the file of a list, and how many patterns or networks it holds. A usage error names a file that cannot be
/// used, with its line. A content that `is_known` was taken before.
pub(crate) fn load(list: &ListFile, is_known: impl Fn(&[u8]) -> bool) -> Result<(Vec<u8>, usize)> {
    read(list.kind, &list.path, is_known).map_err(|why| {
        CommandError::Usage(format!(
            "lists.{}.file = \"{}\": {why}",
            list.name,
            list.path.display()
        ))
    })
}

/// Reads the files of all lists whose content `in_force` does not name by its hash, and stores their contents in the
/// data directory. Returns the schema of the configuration with the hashes of all contents. Fails as [`load`] does, and
/// when the disk refuses.
pub(crate) fn declare(
    blobs: &Blobs,
    config: &Config,
    in_force: &dyn Fn(&ListFile) -> Option<String>,
) -> Result<Schema> {
    let mut schema = config.schema.clone();
    if config.lists.is_empty() {
        return Ok(schema);
    }
    let contents = config.lists.iter().map(|list| match in_force(list) {
        Some(sha256) => Ok(Err(sha256)),
        None => load(list, |content| has(blobs, content)).map(|(content, _)| Ok(content)),
    });
    let contents: Result<Vec<_>> = contents.collect();
    blobs.prepare()?;
    for (list, content) in schema.lists.iter_mut().zip(contents?) {
        list.sha256 = match content {
            Ok(content) => store_list(blobs, &content)?,
            Err(sha256) => sha256,
        };
    }
    Ok(schema)
}

/// Lists whose files are taken when they change.
pub(crate) struct Watch(Vec<Watched>);

impl Watch {
    /// The first look takes what came since the files were read.
    pub(crate) fn new(lists: Vec<ListFile>) -> Self {
        Self(lists.into_iter().map(Watched::new).collect())
    }

    /// Goes on with these lists.
    pub(crate) fn change(&mut self, lists: Vec<ListFile>) {
        let mut before = std::mem::take(&mut self.0);
        let watched = lists.into_iter().map(|list| {
            let same = before.iter().position(|known| known.list == list);
            same.map_or_else(|| Watched::new(list), |index| before.swap_remove(index))
        });
        self.0 = watched.collect();
    }

    /// Takes every file that changed since the last look, for all strands of the store.
    pub(crate) fn look(&mut self, strands: &[Arc<Store>]) {
        self.0.iter_mut().for_each(|list| list.look(strands));
    }
}

/// A list whose file may change.
struct Watched {
    list: ListFile,
    /// None before the first look, and where a good file is to be tried again.
    seen: Option<Option<Stamp>>,
    /// Why the content before stays in force.
    told: Option<String>,
}

impl Watched {
    fn new(list: ListFile) -> Self {
        Self {
            list,
            seen: None,
            told: None,
        }
    }

    /// Takes the file where it changed since the last look. A file that cannot be used leaves the content before in
    /// force.
    fn look(&mut self, strands: &[Arc<Store>]) {
        let found = Stamp::of(&self.list.path);
        if self.seen == Some(found) {
            return;
        }
        self.seen = Some(found);
        let path = self.list.path.display();
        let has_all = |content: &[u8]| {
            strands
                .iter()
                .all(|store| has(&store.world().blobs(), content))
        };
        let content = read(self.list.kind, &self.list.path, has_all).map(|(content, _)| content);
        let mut put = Ok(());
        for store in strands {
            let content = content.as_deref().map_err(String::clone);
            let in_force = content
                .and_then(|content| put_in_force(store, &self.list.name, content, &mut self.seen));
            if let Err(why) = &in_force
                && self.told.as_ref() != Some(why)
            {
                let intake = store.intake();
                intake.note_list(&self.list.name, format!("{path}: {why}"));
            }
            // Other strands take it all the same: this node may write those.
            put = put.and(in_force);
        }
        let name = self.list.name.as_str();
        match put {
            Ok(()) => {
                self.told = None;
                tracing::info!(list = name, %path, "the list is in force");
            }
            Err(why) if self.told.as_ref() == Some(&why) => {}
            Err(why) => {
                tracing::warn!(
                    list = name, %path, why,
                    "the list cannot be used; the content before stays in force"
                );
                self.told = Some(why);
            }
        }
    }
}

/// Puts the content of a list in force. Where the disk or the log may take it later, the file counts as not `seen`.
fn put_in_force(
    store: &Store,
    name: &str,
    content: &[u8],
    seen: &mut Option<Option<Stamp>>,
) -> Result<(), String> {
    store.intake().put_list(name, content).map_err(|error| {
        if !matches!(error, Error::List { .. }) {
            *seen = None;
        }
        error.to_string()
    })
}

fn read(
    kind: ListKind,
    path: &Path,
    is_known: impl Fn(&[u8]) -> bool,
) -> Result<(Vec<u8>, usize), String> {
    let wanted = "a list with one entry a line";
    let bytes = watched::read(path, LIST_BYTES_MAX, wanted)?;
    let check = if is_known(&bytes) {
        check_list
    } else {
        check_new_list
    };
    let entries = check(kind, &bytes).map_err(|error| error.to_string())?;
    Ok((bytes, entries))
}

/// True where the store has this content of a list, which was checked before it was stored.
fn has(blobs: &Blobs, content: &[u8]) -> bool {
    let stored = blobs.read_if_there(&names::list_content(&content_hash(content)));
    stored.is_ok_and(|stored| stored.as_deref() == Some(content))
}
