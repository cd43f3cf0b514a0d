//! `tallyring audit`: everything that people changed, oldest first, from the log and the final versions of days.
//!
//! Reads files only, so it works beside a running server. The log has all of them. The manifest has final versions of
//! which the log does not tell: an older build made them, or their records have left the log. Such a version stands
//! behind the records that it knows, and before those that it does not.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufWriter, StdoutLock, Write};

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tallyring_archive::{FinalEntry, FinalSums, Manifest, ShownSums};
use tallyring_realtime::oplog::{ReadFrom, Segment, scan, segments};
use tallyring_records::{
    DatasetGone, Day, Delete, LoggedDataset, LoggedFinal, Record, Schema, Void, decode_all,
    how_many,
};

use crate::cat::log_bar;
use crate::cli::AuditArgs;
use crate::data_directory::{blobs, manifest, require_some_store};
use crate::error::{CommandError, Result};
use crate::escape::{visible, visible_json};
use crate::out;

/// Prints the changes. Fails where the log or the manifest cannot be read.
pub(crate) fn run(args: &AuditArgs, json: bool) -> Result<()> {
    if let (Some(from), Some(to)) = (args.from, args.to)
        && from > to
    {
        let detail = format!("`--from` must not be after `--to`; got {from} and {to}");
        return Err(CommandError::Usage(detail));
    }
    require_some_store(&args.data)?;
    let blobs = blobs(&args.data)?;
    let manifest = manifest(&blobs)?;
    let segments = segments(blobs.disk()).unwrap_or_default();
    let bar = log_bar(&segments);
    let mut trail = Trail {
        args,
        manifest: &manifest,
        out: BufWriter::new(io::stdout().lock()),
        is_json: json,
        finals: finals(&manifest, segments.first()),
        told: BTreeSet::new(),
        declared: None,
        failed: None,
    };
    let read = scan(blobs.disk(), None, ReadFrom::Oldest, &mut |frame| {
        let records = decode_all(frame.payload, frame.count)?;
        for (sequence, record) in (frame.first_sequence..).zip(&records) {
            let position = Position {
                epoch: frame.epoch,
                sequence,
                written_ms: frame.written_ms,
            };
            trail.take(position, record)?;
        }
        bar.inc(frame.payload.len() as u64);
        Ok(())
    });
    bar.finish_and_clear();
    if let Some(error) = trail.failed.take() {
        return Err(out::failed(error));
    }
    read?;
    trail.end().map_err(out::failed)
}

/// The final versions of which the log does not tell, in the order of the records that they know, the next one last.
fn finals<'m>(manifest: &'m Manifest, oldest: Option<&Segment>) -> Vec<&'m FinalEntry> {
    let begun_ms = oldest.map_or(i64::MAX, Segment::created_ms);
    let is_apart = |entry: &&FinalEntry| entry.proof.is_none() || entry.at_ms < begun_ms;
    let mut finals: Vec<&FinalEntry> = manifest.archive.finals.iter().filter(is_apart).collect();
    finals.sort_by_key(|entry| (entry.upto, entry.day, entry.version));
    finals.reverse();
    finals
}

/// Where and when a record was written.
#[derive(Clone, Copy)]
struct Position {
    epoch: u32,
    sequence: u64,
    /// Unix milliseconds.
    written_ms: i64,
}

/// A change, for people and for programs.
struct Change {
    kind: &'static str,
    /// The first and the last UTC day of the events that it is about; none where it is about all.
    days: Option<(Day, Day)>,
    text: String,
    says: Value,
}

/// The output, and what was read so far.
struct Trail<'a> {
    args: &'a AuditArgs,
    manifest: &'a Manifest,
    out: BufWriter<StdoutLock<'static>>,
    is_json: bool,
    finals: Vec<&'a FinalEntry>,
    /// Day and version of final versions that were printed.
    told: BTreeSet<(Day, u32)>,
    /// The declaration in force.
    declared: Option<Schema>,
    failed: Option<io::Error>,
}

impl Trail<'_> {
    /// Prints a record of a change, and before it the final versions that do not know it. Stops the read where the
    /// output fails.
    fn take(&mut self, at: Position, record: &Record) -> Result<(), String> {
        let change = match record {
            Record::Schema(schema) => {
                let before = self.declared.replace(schema.clone());
                let before = before.or_else(|| declared_before(self.manifest, at.sequence));
                let before = before.unwrap_or_default();
                if before == *schema {
                    return Ok(());
                }
                declaration(&before, schema)
            }
            Record::Erase { users } => Change {
                kind: "erase",
                days: None,
                text: how_many(users.len() as u64, "user"),
                says: json!({ "users": users.len() }),
            },
            Record::Void(void) => voided("void", void),
            Record::VoidAsked(void) => voided("asked", void),
            Record::Delete(delete) => deleted(delete),
            Record::Final(LoggedFinal { day, version, .. })
                if self.told.contains(&(*day, *version)) =>
            {
                return Ok(());
            }
            Record::Final(logged) => {
                self.told.insert((logged.day, logged.version));
                published(logged)
            }
            Record::Dataset(logged) => loaded(logged),
            Record::DatasetGone(gone) => given_up(gone),
            _ => return Ok(()),
        };
        let printed = self.print_finals(at.sequence).and_then(|()| {
            let position = format!("{}:{}", at.epoch, at.sequence);
            self.print(at.written_ms, Some(&position), &change)
        });
        printed.map_err(|error| {
            self.failed = Some(error);
            "output".to_owned()
        })
    }

    fn end(mut self) -> io::Result<()> {
        self.print_finals(u64::MAX)?;
        // The log was full when the record was due, or a server is about to write it.
        self.finals = finals(self.manifest, None);
        self.print_finals(u64::MAX)?;
        self.out.flush()
    }

    /// Prints the final versions that know no record from this one on.
    fn print_finals(&mut self, until: u64) -> io::Result<()> {
        while let Some(entry) = self.finals.pop_if(|entry| entry.upto <= until) {
            if self.told.insert((entry.day, entry.version)) {
                self.print(entry.at_ms, None, &published(&logged(entry)))?;
            }
        }
        Ok(())
    }

    fn print(&mut self, at_ms: i64, position: Option<&str>, change: &Change) -> io::Result<()> {
        if !self.is_wanted(at_ms, change) {
            return Ok(());
        }
        let at = Timestamp::from_millisecond(at_ms).unwrap_or_default();
        let at = at.to_string();
        if !self.is_json {
            let (kind, text) = (change.kind, &change.text);
            let position = position.unwrap_or("-");
            return writeln!(self.out, "{at:<24}  {position:<12}  {kind:<8}  {text}");
        }
        let mut object = json!({ "at": at, "position": position, "change": change.kind });
        if let (Some(object), Value::Object(says)) = (object.as_object_mut(), &change.says) {
            object.extend(says.clone());
        }
        writeln!(self.out, "{}", visible_json(&object.to_string()))
    }

    fn is_wanted(&self, at_ms: i64, change: &Change) -> bool {
        let at = Day::of(at_ms.div_euclid(1_000));
        let is_of_day = match (self.args.day, change.days) {
            (Some(wanted), Some((first, last))) => (first..=last).contains(&wanted),
            // A change of all days matters to a day from its beginning on.
            (Some(wanted), None) => at >= wanted,
            (None, _) => true,
        };
        is_of_day
            && self.args.from.is_none_or(|from| at >= from)
            && self.args.to.is_none_or(|to| at <= to)
    }
}

/// The declaration that was in force before a record that changes it, where the manifest still has it.
fn declared_before(manifest: &Manifest, sequence: u64) -> Option<Schema> {
    let mut entries = manifest.intake.schemas.iter();
    let before = entries.rfind(|entry| entry.since.sequence <= sequence);
    before.map(|entry| entry.schema.clone())
}

fn voided(kind: &'static str, void: &Void) -> Change {
    let day = Day::of(void.at);
    let identity = void.identity.as_deref();
    let of = identity.map_or_else(String::new, |name| format!(" of {}", visible(name)));
    let (id, reason) = (shown(&void.id), shown(&void.reason));
    Change {
        kind,
        days: Some((day, day)),
        text: format!("{day} {id}{of} by {}: {reason}", visible(&void.actor)),
        says: json!({
            "day": day, "id": void.id, "identity": void.identity.as_deref(), "actor": void.actor,
            "reason": void.reason,
        }),
    }
}

fn deleted(delete: &Delete) -> Change {
    let Delete {
        namespace,
        key,
        from,
        to,
        reason,
        actor,
        undo,
    } = delete;
    let (of, by) = (visible(namespace), visible(actor));
    Change {
        kind: if *undo { "undelete" } else { "delete" },
        days: Some((*from, *to)),
        text: format!(
            "{from}..{to} {of} {} by {by}: {}",
            shown(key),
            shown(reason)
        ),
        says: json!({
            "namespace": namespace, "key": key, "from": from, "to": to, "actor": actor, "reason": reason,
        }),
    }
}

fn loaded(dataset: &LoggedDataset) -> Change {
    let namespaces: Vec<&str> = dataset.days.keys().map(String::as_str).collect();
    let namespaces = namespaces.join(" ");
    let (name, namespaces) = (visible(&dataset.name), visible(&namespaces));
    let span = dataset.span();
    let days = span.map_or_else(String::new, |(first, last)| format!("{first}..{last} "));
    Change {
        kind: "dataset",
        days: span,
        text: format!(
            "{days}{name}: {} of {namespaces}; content {}",
            how_many(dataset.rows, "row"),
            dataset.content
        ),
        says: json!({
            "name": dataset.name, "rows": dataset.rows, "content": dataset.content, "days": dataset.days,
        }),
    }
}

fn given_up(gone: &DatasetGone) -> Change {
    let of = loaded(&gone.dataset);
    let (actor, reason) = (visible(&gone.actor), shown(&gone.reason));
    let mut says = of.says;
    if let Value::Object(says) = &mut says {
        says.insert("actor".to_owned(), json!(gone.actor));
        says.insert("reason".to_owned(), json!(gone.reason));
    }
    Change {
        kind: "gone",
        days: of.days,
        text: format!("{} by {actor}: {reason}", of.text),
        says,
    }
}

/// A version of which the log does not tell, as the log would.
fn logged(entry: &FinalEntry) -> LoggedFinal {
    let logged = entry.logged();
    logged.unwrap_or_else(|| LoggedFinal {
        day: entry.day,
        version: entry.version,
        at_ms: entry.at_ms,
        upto: entry.upto,
        ids_from: 0,
        rules: entry.rules.clone(),
        content: String::new(),
        types: entry.types.clone(),
        forced: entry.forced,
        actor: entry.actor.clone(),
    })
}

fn published(entry: &LoggedFinal) -> Change {
    let shown = entry.types.iter().map(|(kind, sums)| (kind, sums.shown()));
    let shown: BTreeMap<&String, ShownSums> = shown.collect();
    let (day, version, rules) = (entry.day, entry.version, visible(&entry.rules));
    let forced = if entry.forced { ", forced" } else { "" };
    let by = entry.actor.as_deref();
    let by = by.map_or_else(String::new, |actor| format!(" by {}", visible(actor)));
    Change {
        kind: "final",
        days: Some((day, day)),
        text: format!(
            "{day} version {version}{forced}{by}: {}; rules {rules}",
            sums_text(&entry.types)
        ),
        says: json!({
            "day": day, "version": version, "forced": entry.forced, "actor": entry.actor, "upto": entry.upto,
            "rules": entry.rules, "types": shown,
        }),
    }
}

/// The sums of each event type before, every cause, and the sums after.
pub(crate) fn sums_text(types: &BTreeMap<String, FinalSums>) -> String {
    let types = types.iter().map(|(kind, sums)| {
        let causes = sums.causes.iter();
        let causes = causes.map(|(cause, n)| format!(" {} {n:+}", visible(cause)));
        let causes: String = causes.collect();
        format!("{} {}{causes} = {}", visible(kind), sums.before, sums.after)
    });
    types.collect::<Vec<String>>().join(", ")
}

fn declaration(before: &Schema, now: &Schema) -> Change {
    let (text, says) = differences(before, now);
    Change {
        kind: "schema",
        days: None,
        text,
        says,
    }
}

/// The names that a declaration added, removed and changed, by section, for people and for programs.
pub(crate) fn differences(before: &Schema, now: &Schema) -> (String, Value) {
    let (before, now) = (sections(before), sections(now));
    let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let (mut texts, mut says) = (Vec::new(), Map::new());
    let none = BTreeMap::new();
    for section in names {
        let before = before.get(section).unwrap_or(&none);
        let now = now.get(section).unwrap_or(&none);
        let lacks = |of: &BTreeMap<String, String>, in_all: &BTreeMap<String, String>| {
            let names = in_all.keys().filter(|name| !of.contains_key(*name));
            names.cloned().collect::<Vec<String>>()
        };
        let (added, removed) = (lacks(before, now), lacks(now, before));
        let is_changed = |(name, text): &(&String, &String)| {
            before.get(*name).is_some_and(|before| before != *text)
        };
        let changed = now.iter().filter(is_changed);
        let changed: Vec<String> = changed.map(|(name, _)| name.clone()).collect();
        let mut text = String::new();
        for (sign, names) in [('+', &added), ('-', &removed), ('~', &changed)] {
            for name in names {
                text.push_str(&format!(" {sign}{}", visible(name)));
            }
        }
        if !text.is_empty() {
            texts.push(format!("{section}{text}"));
            let differs = json!({ "added": added, "removed": removed, "changed": changed });
            says.insert(section.clone(), differs);
        }
    }
    let text = match texts.is_empty() {
        true => "the order of declarations".to_owned(),
        false => texts.join(", "),
    };
    (text, says.into())
}

/// The declarations as text, by section and name.
fn sections(schema: &Schema) -> BTreeMap<String, BTreeMap<String, String>> {
    let schema = serde_json::to_value(schema).expect("BUG: a schema is plain data");
    let Value::Object(sections) = schema else {
        return BTreeMap::new();
    };
    let named = |(section, all): (String, Value)| {
        let all: BTreeMap<String, String> = match all {
            Value::Array(all) => (all.iter())
                .map(|one| (one["name"].as_str().unwrap_or_default(), one))
                .map(|(name, one)| (name.to_owned(), one.to_string()))
                .collect(),
            Value::Object(all) => (all.into_iter())
                .map(|(name, one)| (name, one.to_string()))
                .collect(),
            _ => BTreeMap::new(),
        };
        // People know filters as rules.
        let section = match section.as_str() {
            "filters" => "rules".to_owned(),
            _ => section,
        };
        (section, all)
    };
    sections.into_iter().map(named).collect()
}

/// A text of a client in quotes, without a character that a terminal would act on.
fn shown(text: &str) -> String {
    visible(&format!("{text:?}")).into_owned()
}
