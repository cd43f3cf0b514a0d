//! Reconciles: closed days are judged again from the log and become final, while everything else goes on.
//!
//! All that is served must follow from the log, whatever happened before: nothing is unexplained. The final books must
//! be those of the naive history, and the fix is believed and followed.

use std::collections::{BTreeMap, BTreeSet};

use tallyring_archive::{Manifest, Origin, Run, RunEntry, names};
use tallyring_realtime::{Error, Reconcile, Reconciled, VoidOrder};
use tallyring_records::line::{self, Kind};
use tallyring_records::{Action, Day, Record, TimeCode, UserKey, is_actions};

use super::book::Book;
use super::commit::parts_of;
use super::fixes::Fixed;
use super::history::{Bounds, Known};
use super::naive::Cell;
use super::oracle::Deed;
use super::{Driver, commit};

impl Driver {
    /// Makes a day final that nobody has corrected by hand, or makes its next version; then perhaps once more.
    pub(super) fn reconcile(&mut self) -> Result<(), String> {
        if self.attempted_fix.is_some() || !self.pending.is_empty() {
            return Ok(());
        }
        let manifest = self.store().manifest();
        let by_hand = by_hand(&manifest);
        let buckets = self.naive.of_log().buckets();
        let mut days: BTreeSet<Day> = buckets
            .iter()
            .map(|(_, _, start)| Day::of(*start))
            .collect();
        // The model of minutes does not know a fix without them.
        let kept = manifest.archive.generations.iter();
        let minutes_from = kept.map(|kept| kept.horizon().minutes_from).max();
        let minutes_from = minutes_from.unwrap_or(i64::MIN);
        days.retain(|day| {
            !by_hand.contains(day) && is_closed(&manifest, *day) && day.start() >= minutes_from
        });
        if days.is_empty() {
            return Ok(());
        }
        let days: Vec<Day> = days.into_iter().collect();
        let day = *self.chance.pick(&days);
        for _ in 0..2 + self.chance.below(2) {
            if !self.is_risky() && !self.full {
                self.change_day(day)?;
            }
            self.reconcile_day(day)?;
            if self.is_troubled() || self.attempted_fix.is_some() || !self.pending.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Lets a reconcile find something: an id of the day is voided, counts of a key are deleted or given back, and
    /// known ids come again.
    fn change_day(&mut self, day: Day) -> Result<(), String> {
        if self.chance.percent(50) {
            self.void_some(day)?;
        }
        if self.chance.percent(50) {
            self.delete_some(day)?;
        }
        let has_passed = day.next().start() <= self.now_ms.div_euclid(1_000);
        if has_passed && self.chance.percent(80) {
            self.tap_on(day)?;
        }
        for _ in 0..self.chance.below(3) {
            let mut ids = match self.chance.percent(50) {
                true => self.naive.history.ids_of(day),
                false => self.naive.ids.keys().cloned().collect(),
            };
            ids.retain(|id| self.is_stale(id));
            if has_passed && !ids.is_empty() && !self.is_risky() {
                let id = self.chance.pick(&ids).clone();
                self.commit_of(day, Some(id))?;
            }
        }
        Ok(())
    }

    fn reconcile_day(&mut self, day: Day) -> Result<(), String> {
        self.naive
            .history
            .deletes
            .check(&self.store().intake().deletes())?;
        let load = format!("{:016x}", self.chance.bits());
        self.note(format!("reconcile {day} by {load}"));
        let done = self.judge(day, &load).and_then(|judged| match judged {
            Some((reconciled, bounds)) => self.check_and_publish(reconciled, &bounds),
            None => Ok(()),
        });
        self.forget_load(&load);
        done
    }

    fn check_and_publish(&mut self, reconciled: Reconciled, bounds: &Bounds) -> Result<(), String> {
        let day = reconciled.day;
        // The age of a segment is the clock's. A segment of a clock that had gone back looks older than those before
        // it, so the log seems to reach back to a day of which it lacks records. The day is refused then: the log does
        // not explain its counts.
        if self.stats.clock_back > 0
            && !(self.naive.history).is_whole(day, bounds.records, self.log_begins())
        {
            return match reconciled.is_new && reconciled.unexplained.is_none() {
                true => self.publish_final(reconciled),
                false => Ok(()),
            };
        }
        if !reconciled.unexplained.is_none() {
            return Err(format!("of {day}: {:?}", reconciled.unexplained));
        }
        let books = match self.book_of(&reconciled.books) {
            Ok(books) => books,
            Err(error) => return self.allow("final books", &error.to_string()),
        };
        let checked = bounds.check(&books);
        checked.map_err(|wrong| format!("of {day}: {wrong}"))?;
        self.stats.judged += 1;
        for (rule, caught) in &bounds.caught {
            *self.stats.caught.entry(rule).or_default() += caught;
        }
        let (is_new, version) = (reconciled.is_new, reconciled.version);
        let has_others = reconciled.verdicts.is_none();
        if !is_new {
            return self.check_final_actions(day, bounds);
        }
        self.publish_final(reconciled)?;
        if !self.store().manifest().archive.knows_final(day, version) {
            return Ok(());
        }
        self.check_final_actions(day, bounds)?;
        match bounds.check_users(&self.store().view(), !has_others) {
            Ok(()) => Ok(()),
            Err(wrong) => self.allow("users of a final day", &wrong),
        }
    }

    /// Compares what users did on a final day, where all kept files have it.
    fn check_final_actions(&mut self, day: Day, bounds: &Bounds) -> Result<(), String> {
        let manifest = self.store().manifest();
        let mut kept = manifest.archive.generations.iter();
        if kept.any(|kept| kept.horizon().actions_from > day.start()) {
            return Ok(());
        }
        let history = &self.naive.history;
        match history.check_actions(&self.store().view(), day, bounds) {
            Ok(()) => Ok(()),
            Err(wrong) => self.allow("actions of a final day", &wrong),
        }
    }

    /// Judges a day, perhaps while more of it comes, and tells what its books must have; none where it cannot be
    /// judged.
    fn judge(&mut self, day: Day, load: &str) -> Result<Option<(Reconciled, Bounds)>, String> {
        let begun = self.store().ledger().begin_reconcile();
        self.follow_late();
        if let Err(error) = begun {
            return self.allow("a flush", &error.to_string()).map(|()| None);
        }
        let (mut manifest, mut until) = (self.store().manifest(), self.naive.history.len());
        let has_passed = day.next().start() <= self.now_ms.div_euclid(1_000);
        if has_passed && !self.is_risky() && !self.full && self.chance.percent(50) {
            self.commit_of(day, None)?;
            // A flush removes files, and a server begins again then.
            if self.store().manifest() != manifest {
                (manifest, until) = (self.store().manifest(), self.naive.history.len());
            }
        }
        let reconcile = Reconcile {
            day,
            load,
            rules: None,
            by: None,
            shards: self.options.shards,
            level: 1,
            memory_bytes: 1 << self.chance.between(15, 20),
        };
        match reconcile.run(&self.disk.blobs(), &manifest, &|_, _| {}) {
            Ok(reconciled) => {
                let log_from = self.log_begins();
                let known = Known {
                    ids_ms: i64::from(self.options.oplog_days) * 86_400_000,
                    // A record of a clock that had gone back looks older than its segment.
                    ids_from: match self.stats.clock_back {
                        0 => log_from,
                        _ => u64::MAX,
                    },
                    log_from,
                };
                let history = &self.naive.history;
                let bounds = history.final_books(day, until, self.schema, &known);
                Ok(Some((reconciled, bounds)))
            }
            Err(Error::NotClosed { .. } | Error::Reconcile(_)) => Ok(None),
            Err(error) => self.allow("a reconcile", &error.to_string()).map(|()| None),
        }
    }

    /// The late store may have been closed.
    fn follow_late(&mut self) {
        let late = self.naive.late();
        let stores = self.store().status().stores;
        if stores.iter().any(|store| store.id == late && store.cut) {
            self.naive.cut(&[late]);
        }
    }

    /// The first record of the log.
    fn log_begins(&self) -> u64 {
        let files = self.disk.files();
        let files = files.iter().filter_map(|(file, _)| file.split_once('/'));
        let of_log = files.filter(|(directory, _)| *directory == names::OPLOG);
        let first = of_log
            .filter_map(|(_, file)| names::segment_first(file))
            .min();
        first.expect("BUG: a store has a log")
    }

    /// Voids an id that some record of a day has.
    fn void_some(&mut self, day: Day) -> Result<(), String> {
        let names = self.naive.history.ids_of(day);
        if names.is_empty() {
            return Ok(());
        }
        let name = self.chance.pick(&names).clone();
        let (identity, id) = parts_of(&name);
        let order = VoidOrder {
            identity: identity.as_ref(),
            id,
            reason: "it was a test",
            actor: "installation",
            four_eyes: false,
        };
        let voided = self.store().intake().void(order);
        self.note(format!("void {name}: {voided:?}"));
        match voided {
            Ok(voided) => {
                for logged in voided.now {
                    let Record::Void(void) = logged.record else {
                        return Err(format!("{name} is voided by {:?}", logged.record));
                    };
                    let of = void.identity.as_deref().unwrap_or_default();
                    let void_name = commit::name(of, &void.id);
                    if !self.naive.history.void(void_name, Day::of(void.at)) {
                        return Err(format!("{void:?} is of nothing that was sent"));
                    }
                }
                self.stats.voids += 1;
                self.follow_ring()
            }
            Err(error) => {
                self.naive.history.perhaps_void(name);
                self.allow("a void", &error.to_string())
            }
        }
    }

    fn publish_final(&mut self, reconciled: Reconciled) -> Result<(), String> {
        let read = |runs: &[RunEntry]| self.book_of(runs).map_err(|error| error.to_string());
        let (plus, minus) = match (read(&reconciled.plus), read(&reconciled.minus)) {
            (Ok(plus), Ok(minus)) => (plus, minus),
            (Err(error), _) | (_, Err(error)) => return self.allow("a final day", &error),
        };
        let mut actions = Vec::new();
        for (runs, sign) in [(&reconciled.plus, 1), (&reconciled.minus, -1)] {
            match self.actions_of(runs) {
                Ok(of) => {
                    actions.extend(of.into_iter().map(|(user, deed, n)| (user, deed, sign * n)))
                }
                Err(error) => return self.allow("a final day", &error.to_string()),
            }
        }
        let fixed = Fixed {
            day: reconciled.day,
            version: reconciled.version,
            plus,
            minus,
            actions,
        };
        self.note(format!(
            "  version {}: {:?} more, {:?} less, actions {:?}",
            fixed.version, fixed.plus, fixed.minus, fixed.actions
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

    /// The actions of users in runs.
    fn actions_of(
        &self,
        runs: &[RunEntry],
    ) -> tallyring_archive::Result<Vec<(UserKey, Deed, i64)>> {
        let mut found = Vec::new();
        for run in Run::open_all(&self.disk.blobs(), runs)? {
            let mut cursor = run.cursor();
            while cursor.advance()? {
                let Some((key, payload)) = cursor.line()? else {
                    break;
                };
                let (Some(user), Some((_, _, code))) =
                    (UserKey::of_line(key), line::split_subtotal(key))
                else {
                    continue;
                };
                for (value, n) in line::entries(payload).flatten() {
                    let action = Action::parse(value).expect("BUG: it is an action");
                    let at = code.start() + i64::from(action.second);
                    let deed = (at, text(action.what), action.tag);
                    found.push((user, deed, n as i64));
                }
            }
        }
        Ok(found)
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
                    Some(Kind::Users) => {}
                    _ if is_actions(key) => {}
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

/// True where no delta store of the day takes or holds anything any more.
fn is_closed(manifest: &Manifest, day: Day) -> bool {
    let mut stores = manifest.intake.stores.iter();
    let is_open = stores.any(|store| store.id.day() == Some(day) && !store.is_closed());
    day < manifest.intake.today && !is_open
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("BUG: it is text")
}
