//! Recount: a manifest from which everything that the log holds is replayed.
//!
//! Derived files are a function of the log, so a recount forgets how far they were made. Invariant: a delta store that
//! opened in the readable part of the log begins anew at its opening, without a run, and no source run counts it. Each
//! other record is counted by a source run, as before. Datasets are not in the log, so their runs stand in for the
//! files of the newest generation. Final days stay with their files, and fixes of days with their runs, as deltas. A
//! recount that ends early at any moment thus leaves the answers of before or those of its end. A final version whose
//! files are lost is awaited, with its fix, where the log has its record: it is made again from the log.
//!
//! A recount decides nothing anew: the log says which delta store counted each record (`Increment` or `Late`, `Rotate`,
//! `Turn`, `Cut`, `Reopen`, `Schema`). Only the day at which the ring began is not in the log, and is taken from the
//! first segment.

use std::collections::{BTreeMap, BTreeSet};

use tallyring_archive::{
    ArchiveEntry, Blobs, GenerationEntry, IdsEntry, IntakeEntry, LeftOut, LoggedDatasets, Manifest,
    Origin, RunEntry, SchemaEntry, StoreEntry, manifest, names,
};
use tallyring_records::{Day, Increment, Offset, Record, RecordError, Schema, StoreId, decode_all};

use super::lost_finals::{LoggedFinals, let_go_of_lost, newest_readable};
use super::undeclared::Undeclared;
use crate::delta::{DeltaStore, Form};
use crate::error::{Error, Result};
use crate::identity::Identity;
use crate::oplog::{Frame, ReadFrom, scan, segments};
use crate::ring::Ring;

/// The beginning of a recount. Once its manifest is committed, opening the store counts all of the log again.
#[derive(Debug)]
pub struct Recount {
    /// The manifest that counts before the log is read again.
    pub manifest: Manifest,
    /// Time of the last record of the log, Unix milliseconds. Under a clock that stands there, equal logs give equal
    /// bytes.
    pub ended_ms: i64,
    /// True when the log has every count of the ring, and no source run of the ring is left.
    pub is_whole: bool,
    /// Delta stores that are counted again. With a whole log these are all that ever existed.
    pub stores: Vec<StoreId>,
    /// Final datasets that waited in the place of lost ones.
    pub left_out: Vec<LeftOut>,
}

impl Recount {
    /// Reads the whole log and plans a recount, without changing anything. Days before `from` stay as they are.
    /// `schema` is in force at the beginning of the log where neither a manifest nor the log names another. Fails when
    /// the log is damaged or ends too early, when neither the log nor a manifest has the counts from before the log,
    /// or when `schema` lacks a namespace in which records count that follow it.
    pub fn plan(blobs: &Blobs, from: Option<Day>, schema: &Schema, shards: u16) -> Result<Self> {
        let identity = Identity::load(blobs)?.ok_or_else(|| Error::Identity {
            name: names::IDENTITY,
            what: "the file is missing, and without its secret no long key is found; restore it from a backup"
                .into(),
        })?;
        let history = LogHistory::read(blobs, identity.store_id)?;
        let store_id = identity.store_id_text();
        let mut base = newest_readable(blobs, &history.finals)?;
        if let Some(base) = base.as_ref().filter(|base| base.store_id != store_id) {
            let what = format!(
                "the file is of store {store_id}, but manifest {} belongs to another store",
                base.number
            );
            let name = names::IDENTITY;
            return Err(Error::Identity { name, what });
        }
        if let Some(base) = base
            .as_ref()
            .filter(|base| base.intake.log_until() > history.end.sequence)
        {
            return Err(Error::Missing(format!(
                "the oplog ends at record {}, but manifest {} says that runs hold records up to {}: a recount would lose \
                 those records; restore `oplog/` from a backup",
                history.end.sequence,
                base.number,
                base.intake.log_until()
            )));
        }
        let mut left_out = Vec::new();
        if let Some(base) = &mut base {
            let_go_of_lost(blobs, base, &history.finals)?;
            // The plan counts all datasets that wait.
            left_out = history.follow_datasets(&mut base.archive);
        }
        if let Some(day) = history.reopened {
            return Err(Error::Missing(format!(
                "the delta store of {day} opened again after its export, because the ring turned back, so a recount cannot \
                 tell its records apart; restore a backup"
            )));
        }
        if base.is_none() && history.began_with.is_none() {
            history.undeclared.check(schema)?;
        }
        match history.first_schema(base.as_ref(), schema) {
            Some(first) if history.oldest == 0 && from.is_none() => history.whole(base, first, shards),
            _ if history.turns.iter().any(|(record, _)| matches!(record, Record::Turn { .. })) => {
                Err(Error::Missing(
                    "the ring turned back while this log was written, so a part of the log cannot be counted again alone; \
                     restore a backup"
                        .into(),
                ))
            }
            _ => history.part(base.ok_or_else(|| history.nothing_before(from))?, from),
        }
        .and_then(|recount| Self { left_out, ..recount }.numbered(blobs, &history, store_id))
    }

    /// Gives the manifest the next number. Where no manifest is left, the number of records is used: fewer manifests
    /// existed.
    fn numbered(mut self, blobs: &Blobs, history: &LogHistory, store_id: String) -> Result<Self> {
        let archive = &mut self.manifest.archive;
        (history.finals.values()).for_each(|logged| archive.await_final(logged.clone()));
        // Without a manifest, all of them are lost.
        history.follow_datasets(archive);
        let used = manifest::numbers(blobs).unwrap_or_default();
        let newest = used.last().copied().unwrap_or(0).max(history.noted);
        if newest > 0 {
            self.manifest.number = newest + 1;
        }
        self.manifest.store_id = store_id;
        self.manifest.written_at_ms = self.ended_ms;
        self.manifest.archive.forget_datasets();
        Ok(self)
    }
}

/// History of the delta stores, as the log has it.
#[derive(Default)]
struct LogHistory {
    /// Sequence number of the oldest record.
    oldest: u64,
    /// Time at which the oldest segment was begun, Unix milliseconds.
    begun_ms: i64,
    /// Time of the last record, Unix milliseconds.
    ended_ms: i64,
    /// Offset behind the last record.
    end: Offset,
    /// Offset of the oldest record.
    begin: Offset,
    /// Sequence number of the first record that a delta store counts.
    first_counted: Option<u64>,
    /// Days of records that were not late.
    days: BTreeSet<Day>,
    schemas: Vec<SchemaEntry>,
    /// The schema with which the store began: it stands before the first one that was declared later, in one frame, or
    /// in a record of its own.
    began_with: Option<Schema>,
    undeclared: Undeclared,
    /// Records that turned the ring or gave a day a further store, each with the offset behind it.
    turns: Vec<(Record, Offset)>,
    /// Highest manifest number that is noted, 0 where none is.
    noted: u64,
    finals: LoggedFinals,
    /// Final datasets, as they were counted and given up.
    datasets: LoggedDatasets,
    /// A day whose delta store opened again after its cut.
    reopened: Option<Day>,
    cuts: BTreeMap<StoreId, Offset>,
}

impl LogHistory {
    fn read(blobs: &Blobs, store_id: [u8; 16]) -> Result<Self> {
        let segments = segments(blobs.disk())?;
        let oldest = segments.first().ok_or_else(|| {
            Error::Missing("the oplog has no segment to count again; restore a backup".into())
        })?;
        let mut history = Self {
            oldest: oldest.first_sequence(),
            begun_ms: oldest.created_ms(),
            ended_ms: oldest.created_ms(),
            begin: Offset {
                epoch: 0,
                sequence: oldest.first_sequence(),
            },
            ..Self::default()
        };
        let summary = scan(
            blobs.disk(),
            Some(store_id),
            ReadFrom::Oldest,
            &mut |frame| Ok(history.frame(frame)?),
        )?;
        history.end = Offset {
            epoch: summary.epoch,
            sequence: summary.end_sequence,
        };
        Ok(history)
    }

    fn frame(&mut self, frame: Frame<'_>) -> Result<(), RecordError> {
        self.ended_ms = frame.written_ms;
        let records = decode_all(frame.payload, frame.count)?;
        let mut records = (frame.first_sequence..).zip(records).peekable();
        while let Some((sequence, record)) = records.next() {
            let after = Offset {
                epoch: frame.epoch,
                sequence: sequence + 1,
            };
            match record {
                Record::Increment(increment) => {
                    self.count(&increment, sequence);
                    self.days.insert(Day::of(increment.at));
                }
                Record::Late(increment) => self.count(&increment, sequence),
                Record::Turn { ref opened, .. } => {
                    let is_cut = |day: &&Day| self.cuts.contains_key(&StoreId::Day(**day));
                    self.reopened = self.reopened.or(opened.iter().find(is_cut).copied());
                    self.turns.push((record, after));
                }
                Record::Rotate { .. } | Record::Reopen { .. } => self.turns.push((record, after)),
                Record::Manifest { number } => self.noted = self.noted.max(number),
                Record::Cut { stores } => {
                    for id in stores {
                        self.cuts.entry(id).or_insert(after);
                    }
                }
                Record::Final(logged) => {
                    self.finals.insert((logged.day, logged.version), logged);
                }
                Record::Dataset(_) | Record::DatasetGone(_) => self.datasets.note(&record),
                Record::Schema(schema) => {
                    let is_followed = matches!(records.peek(), Some((_, Record::Schema(_))));
                    if self.schemas.is_empty() && is_followed {
                        self.began_with = Some(schema.clone());
                    }
                    self.schemas.push(SchemaEntry::new(after, schema));
                }
                Record::BeganWith(schema) => self.began_with = Some(schema),
                _ => {}
            }
        }
        Ok(())
    }

    fn count(&mut self, increment: &Increment, sequence: u64) {
        self.first_counted.get_or_insert(sequence);
        if self.schemas.is_empty() {
            self.undeclared.note(increment);
        }
    }

    /// Tells an archive of the final datasets in the log, and returns those that waited in the place of lost ones.
    fn follow_datasets(&self, archive: &mut ArchiveEntry) -> Vec<LeftOut> {
        self.datasets.tell(archive);
        archive.leave_out_beside_lost()
    }

    /// The schema in force at the beginning of the log, if it is known.
    fn first_schema(&self, base: Option<&Manifest>, configured: &Schema) -> Option<Schema> {
        let named = base.and_then(|base| base.intake.schemas.first());
        match named {
            Some(named) if named.since.sequence == 0 => Some(named.schema.clone()),
            None => Some(self.began_with.as_ref().unwrap_or(configured).clone()),
            // The first schema record applies if no record before it counted.
            Some(_) => {
                let first = self.schemas.first()?;
                let since = first.since.sequence;
                let counted = self.first_counted.is_some_and(|counted| counted < since);
                (!counted).then(|| first.schema.clone())
            }
        }
    }

    /// Turns a ring as the log says. Returns the earliest day at which it stood.
    fn follow(&self, ring: &mut Ring) -> Day {
        let mut earliest = ring.today();
        for (record, after) in &self.turns {
            ring.follow(record, *after);
            earliest = earliest.min(ring.today());
        }
        earliest
    }

    /// Plans to count every record of the ring, from the first.
    fn whole(&self, base: Option<Manifest>, first: Schema, shards: u16) -> Result<Recount> {
        let today = Day::of(self.begun_ms.div_euclid(1_000));
        let mut ring = Ring::begin(
            today,
            Form {
                shards,
                breakdowns: false,
            },
            Offset::default(),
        );
        let begun: Vec<StoreEntry> = ring.stores().map(DeltaStore::entry).collect();
        let earliest = self.follow(&mut ring);
        let stores: Vec<StoreId> = ring.stores().map(|store| store.id).collect();
        let mut days = self.days.iter();
        if let Some(day) = days.find(|day| !stores.contains(&StoreId::Day(**day))) {
            return Err(Error::Missing(format!(
                "the oplog has records of {day}, but does not say when the delta store of that day opened, so a recount is not \
                 possible; restore a backup"
            )));
        }
        let (archive, intake) = base.map(|base| (base.archive, base.intake)).unzip();
        let archive = archive.unwrap_or_default();
        let kept = intake.map(|of| (of.erasures, of.keys, of.consumed, of.deletes));
        let (erasures, keys, consumed, deletes) = kept.unwrap_or_default();
        // Fixes are not counted again, so they stay as datasets do. All that they correct counts again.
        let fixes = archive.runs.iter().filter(|run| run.origin.is_fix());
        let generations: Vec<GenerationEntry> = of_datasets(&archive, self.ended_ms)
            .map(|generation| GenerationEntry {
                minutes_from: None,
                hours_from: None,
                breakdowns_from: None,
                actions_from: None,
                ..generation
            })
            .into_iter()
            .collect();
        let manifest = Manifest {
            number: self.end.sequence + 1,
            written_at_ms: self.ended_ms,
            plausible_at_ms: None,
            store_id: String::new(),
            intake: IntakeEntry {
                today,
                begun: Some(earliest),
                early: Some(BTreeSet::new()),
                left_log: BTreeSet::new(),
                schemas: vec![SchemaEntry::new(Offset::default(), first)],
                stores: begun,
                ids: IdsEntry::default(),
                newest_events: BTreeMap::new(),
                erasures,
                keys,
                consumed,
                deletes,
            },
            archive: ArchiveEntry {
                runs: fixes.cloned().collect(),
                active: generations.last().map_or(0, |newest| newest.number),
                generations,
                ..archive
            },
        };
        Ok(Recount {
            manifest,
            ended_ms: self.ended_ms,
            is_whole: true,
            stores,
            left_out: Vec::new(),
        })
    }

    /// Plans to count the delta stores that opened in the readable part of the log; source runs have the others.
    fn part(&self, mut manifest: Manifest, from: Option<Day>) -> Result<Recount> {
        let declared = manifest.intake.schemas.first().map(|first| first.since);
        let reach = declared
            .filter(|declared| declared.sequence > self.begin.sequence)
            .unwrap_or(self.begin);
        let is_selected = |id: StoreId| match (id, from) {
            (id, Some(from)) => id.day().is_none_or(|day| day >= from),
            _ => true,
        };
        let reaches = |opened: Offset| opened.sequence >= reach.sequence;
        let held = manifest.intake.log_until();
        let mut stores = Vec::new();
        for store in &mut manifest.intake.stores {
            // A closed delta store without runs counted nothing, or other files have its counts.
            let is_elsewhere = store.is_closed() && store.runs.is_empty();
            if !is_elsewhere && is_selected(store.id) && reaches(store.opened) {
                store.runs.clear();
                store.flushed = store.opened;
                stores.push(store.id);
            }
        }
        for (id, opened) in self.openings() {
            let is_waiting = manifest.intake.stores.iter().any(|store| store.id == id);
            let Some(&cut) = self.cuts.get(&id).filter(|_| !is_waiting) else {
                continue;
            };
            let runs = &mut manifest.archive.runs;
            let origin = exported_as(runs, id, opened);
            // Without such a run, a file with the counts of other delta stores has its counts, too.
            let is_source = runs.iter().any(|run| run.origin == origin);
            let counts_again = is_source && is_selected(id) && reaches(opened);
            // The replay would open a further store that was exported, and count it twice. It stays closed instead, and
            // the next rebuild clears it.
            let stays_closed = matches!(id, StoreId::Again(..)) && cut.sequence <= held;
            if counts_again {
                runs.retain(|run| run.origin != origin);
                stores.push(id);
            } else if !stays_closed {
                continue;
            }
            manifest.intake.stores.push(StoreEntry {
                id,
                opened,
                cut: Some(cut),
                flushed: if counts_again { opened } else { cut },
                runs: Vec::new(),
            });
        }
        manifest.intake.stores.sort_by_key(|store| store.id);
        stores.sort();
        if let Some(generation) = of_datasets(&manifest.archive, self.ended_ms) {
            manifest.archive.active = generation.number;
            manifest.archive.generations = vec![generation];
        }
        manifest.intake.ids = IdsEntry {
            flushed: reach,
            runs: Vec::new(),
            unowned_until_ms: None,
            producers: manifest.intake.ids.producers,
        };
        Ok(Recount {
            manifest,
            ended_ms: self.ended_ms,
            is_whole: false,
            stores,
            left_out: Vec::new(),
        })
    }

    /// Delta stores of days that opened in the remaining log, each with that offset. Before the first turn in the log,
    /// the ring is taken to have turned day by day: a delta store that opened then may be taken for older than it is,
    /// never for newer.
    fn openings(&self) -> Vec<(StoreId, Offset)> {
        let mut openings = Vec::new();
        let mut before: Option<Day> = None;
        for (record, after) in &self.turns {
            let today = match record {
                Record::Rotate { today } => {
                    let last = before.unwrap_or(today.previous());
                    let opens = [today.previous(), *today, today.next()];
                    let opens = opens.into_iter().filter(|day| *day > last.next());
                    openings.extend(opens.map(|day| (StoreId::Day(day), *after)));
                    *today
                }
                Record::Reopen { day } => {
                    openings.push((StoreId::Again(*day, after.sequence), *after));
                    continue;
                }
                _ => continue,
            };
            before = Some(today);
        }
        openings
    }

    fn nothing_before(&self, from: Option<Day>) -> Error {
        let what = match from {
            Some(from) => format!("the counts before {from}"),
            None => format!(
                "the counts before record {}, where the oplog begins",
                self.oldest
            ),
        };
        Error::Missing(format!(
            "no manifest can be read, and nothing else has {what}: restore `manifests/`, or the whole directory, from a backup"
        ))
    }
}

/// The origin of the source runs of a delta store. It names the record at which the store of a day opened, if another
/// store of that day was exported before.
fn exported_as(runs: &[RunEntry], id: StoreId, opened: Offset) -> Origin {
    let again = Origin::Export {
        store: id,
        from: Some(opened.sequence),
    };
    match runs.iter().any(|run| run.origin == again) {
        true => again,
        false => Origin::export_of(id),
    }
}

/// The newest generation as one that has merged the wanted datasets alone: their runs are its files, as they are. All
/// else counts as deltas. The next generation goes on from its number, and keeps no finer detail than the source runs
/// have.
fn of_datasets(archive: &ArchiveEntry, ended_ms: i64) -> Option<GenerationEntry> {
    let newest = archive.generations.last()?;
    let wanted = archive.datasets.iter().filter(|dataset| dataset.wanted);
    let mut files: Vec<RunEntry> = wanted.flat_map(|dataset| &dataset.runs).cloned().collect();
    files.sort_by_key(|run| (run.meta.partition, run.meta.shard));
    Some(GenerationEntry {
        number: newest.number,
        created_at_ms: ended_ms,
        cut_at_ms: None,
        merged: files.iter().map(|run| run.name.clone()).collect(),
        files,
        minutes_from: newest.minutes_from,
        hours_from: newest.hours_from,
        breakdowns_from: newest.breakdowns_from,
        actions_from: newest.actions_from,
        keep: newest.keep,
    })
}
