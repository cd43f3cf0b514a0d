//! Reconciles: closed days are judged again from the log and become final, while everything else goes on.
//!
//! All that is served must follow from the log, whatever happened before: nothing is unexplained. Verdicts are compared
//! with a naive model of their own, in `tests/tests/reconcile/`; here the fix is believed and followed.

use std::collections::{BTreeMap, BTreeSet};

use tallyring_archive::{Manifest, Origin, Run, RunEntry};
use tallyring_realtime::{Error, Reconcile, Reconciled};
use tallyring_records::line::{self, Kind};
use tallyring_records::{Day, TimeCode};

use super::Driver;
use super::book::Book;
use super::fixes::Fixed;
use super::naive::Cell;

impl Driver {
    /// Makes a day final that nobody has corrected by hand, or makes its next version.
    pub(super) fn reconcile(&mut self) -> Result<(), String> {
        if self.attempted_fix.is_some() || !self.pending.is_empty() {
            return Ok(());
        }
        let by_hand = by_hand(&self.store().manifest());
        let buckets = self.naive.of_log().buckets();
        let days: BTreeSet<Day> = buckets
            .iter()
            .map(|(_, _, start)| Day::of(*start))
            .collect();
        let days: Vec<Day> = days.difference(&by_hand).copied().collect();
        if days.is_empty() {
            return Ok(());
        }
        let day = *self.chance.pick(&days);
        let load = format!("{:016x}", self.chance.bits());
        let memory_bytes = 1 << self.chance.between(15, 20);
        self.note(format!("reconcile {day} by {load}"));
        let judged = self.judge(day, &load, memory_bytes);
        let reconciled = match judged {
            Ok(reconciled) => reconciled,
            Err(Error::NotClosed { .. } | Error::Reconcile(_)) => {
                self.forget_load(&load);
                return Ok(());
            }
            Err(error) => {
                self.forget_load(&load);
                return self.allow("a reconcile", &error.to_string());
            }
        };
        if !reconciled.unexplained.is_none() {
            return Err(format!("of {day}: {:?}", reconciled.unexplained));
        }
        let published = match reconciled.is_new {
            true => self.publish_final(reconciled),
            false => Ok(()),
        };
        self.forget_load(&load);
        published
    }

    fn judge(&mut self, day: Day, load: &str, memory_bytes: u64) -> Result<Reconciled, Error> {
        self.store().ledger().flush()?;
        let reconcile = Reconcile {
            day,
            load,
            shards: self.options.shards,
            level: 1,
            memory_bytes,
        };
        let manifest = self.store().manifest();
        reconcile.run(&self.disk.blobs(), &manifest, &|_, _| {})
    }

    fn publish_final(&mut self, reconciled: Reconciled) -> Result<(), String> {
        let read = |runs: &[RunEntry]| self.book_of(runs).map_err(|error| error.to_string());
        let (plus, minus) = match (read(&reconciled.plus), read(&reconciled.minus)) {
            (Ok(plus), Ok(minus)) => (plus, minus),
            (Err(error), _) | (_, Err(error)) => return self.allow("a final day", &error),
        };
        let fixed = Fixed {
            day: reconciled.day,
            version: reconciled.version,
            plus,
            minus,
        };
        self.note(format!(
            "  version {}: {:?} more, {:?} less",
            fixed.version, fixed.plus, fixed.minus
        ));
        match self
            .store()
            .ledger()
            .publish_final(&reconciled.into_final())
        {
            Ok(()) => {
                self.stats.finals += 1;
                self.naive.fix(&fixed);
                self.follow_ring()?;
                self.check_fixed(&fixed)?;
                self.verify()
            }
            Err(error) => {
                self.note(format!("  it failed: {error}"));
                self.attempted_fix = Some(fixed);
                // A doubted clock does not forget breakdowns by minute, and a kept generation may lack detail.
                match error {
                    Error::Fix(_) => {
                        self.attempted_fix = None;
                        Ok(())
                    }
                    error => self.allow("a final day", &error.to_string()),
                }
            }
        }
    }

    /// The counts of runs.
    fn book_of(&self, runs: &[RunEntry]) -> tallyring_archive::Result<Book> {
        let (mut lines, mut texts) = (Vec::new(), BTreeMap::new());
        for run in Run::open_all(&self.disk.blobs(), runs)? {
            let mut cursor = run.cursor();
            while cursor.advance()? {
                let Some((key, payload)) = cursor.line()? else {
                    break;
                };
                match line::kind_of(key) {
                    Some(Kind::Lookup) => {
                        let raw = line::unescape(payload)
                            .expect("BUG: it is text")
                            .into_owned();
                        texts.insert(text(&key[1..]), raw);
                    }
                    _ => lines.push((key.to_vec(), payload.to_vec())),
                }
            }
        }
        let raw = |stored: &str| texts.get(stored).cloned().unwrap_or(stored.to_owned());
        let mut book = Book::default();
        for (key, payload) in lines {
            let (subtotal, total, code) = match line::split_subtotal(&key) {
                Some((subtotal, total, code)) => (Some(text(subtotal)), text(total), Some(code)),
                None => (None, text(&key), None),
            };
            let (name, stored) = total.split_once('|').expect("BUG: it is a key");
            let cell = |by, code: TimeCode| Cell {
                name: name.to_owned(),
                key: raw(stored),
                by,
                start: code.start(),
            };
            match (subtotal, code) {
                (Some(subtotal), Some(code)) => {
                    for (value, n) in line::entries(&payload).flatten() {
                        let value = text(value);
                        let value = value.split('*').map(raw).collect::<Vec<_>>().join("*");
                        book.add(&cell(Some((subtotal.clone(), value)), code), n);
                    }
                }
                _ => {
                    for (code, n) in line::hours(&payload).flatten() {
                        book.add(&cell(None, code), n);
                    }
                }
            }
        }
        Ok(book)
    }
}

/// Days that a fix corrects which is of no final version: what they count does not follow from the log.
fn by_hand(manifest: &Manifest) -> BTreeSet<Day> {
    let finals = manifest.archive.finals.iter();
    let finals: BTreeSet<(Day, u32)> = finals.map(|entry| (entry.day, entry.version)).collect();
    let fixes = manifest
        .archive
        .runs
        .iter()
        .filter_map(|run| match run.origin {
            Origin::Fix { day, version, .. } => Some((day, version)),
            _ => None,
        });
    fixes
        .filter(|fix| !finals.contains(fix))
        .map(|(day, _)| day)
        .collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("BUG: it is text")
}
