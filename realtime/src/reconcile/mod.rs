//! Reconcile: a closed UTC day is judged and counted again from the log, and compared with what is served.
//!
//! The first of all records with one id counts, however long ago it came, unless people voided the id before `upto`.
//! The rules in force judge every event anew, in both directions. The records that then count are the *final books* of
//! the day, but for keys whose counts people deleted before `upto`. A record whose verdict changes, or that of a key
//! that was deleted or given back, is taken away or added by a fix. Invariant: what is served, with the fix, equals the
//! final books in every counter. A difference is *unexplained*, and the day does not become final: a file or a build is
//! wrong then. The fix moves actions of users with the verdicts; the books have none, and they are not compared.
//!
//! The counts come from the log alone. Only ids of other days come from the runs of remembered ids, so duplicates are
//! found as far back as the log reaches, or further where these do. Nothing here writes but new files in `incoming/`.

mod actions;
mod as_of;
mod books;
mod by_key;
mod compare;
mod content;
mod count;
mod days;
mod deleted;
mod guard;
mod ids;
mod log;
mod marks;
mod memory;
mod repeated;
mod rows;
mod verdict;
mod waiting;
mod what_if;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tallyring_archive::{
    Blobs, Corrects, FilteredSums, FinalEntry, FinalProof, FinalSums, IdsEntry, Manifest,
    RepeatedKeys, Run, RunEntry, Sign,
};
use tallyring_records::{Day, LongKeys, RuleSet, Rules, Schema};

use as_of::AsOf;
use by_key::ByKey;
use compare::{Weighed, compare};
use content::content_of;
use count::{Count, Counted};
use days::{begun, is_closed};
use deleted::Deleted;
use ids::{IdVerdicts, IdsOfDay, Remembered};
use log::{DayLog, Declared, LostIds, arrived_ms, unknown_until};
use memory::{Caught, EventsOfDay, times_of};
use verdict::{Exceptions, Judge};

pub use as_of::check_again;
pub use by_key::{CausesByKey, KeySums};
pub use compare::Unexplained;
pub use days::out_of_reach;
pub(crate) use days::reaches_back;
pub use days::{closed_without_final, first_not_final, no_reconcile, not_final, told_from};
pub use guard::too_much_filtered;
pub use repeated::is_much_repeated;
pub use waiting::waiting_deletes;

use crate::error::{Error, Result};
use crate::identity::long_keys_of;
use crate::intake::oldest_ms;
use crate::ledger::{Final, Fix};
use crate::oplog::oldest_segment;

/// A day to be reconciled, and how.
#[derive(Debug, Clone, Copy)]
pub struct Reconcile<'a> {
    /// The day.
    pub day: Day,
    /// Files of `incoming/` begin with these 16 hex digits.
    pub load: &'a str,
    /// Other rules than those in force: the result only tells, and is never published.
    pub rules: Option<&'a RuleSet>,
    /// The namespace, or the entity of event types, by whose keys the causes are told.
    pub by: Option<&'a str>,
    /// Shards of the final books.
    pub shards: u16,
    /// zstd level of the final books.
    pub level: i32,
    /// Memory that counts and ids may take, bytes; a quarter more for a moment.
    pub memory_bytes: u64,
}

/// The result of a reconcile. Its runs are in `incoming/`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reconciled {
    /// The day.
    pub day: Day,
    /// The version of the final books, if they are published; the version before where nothing is new.
    pub version: u32,
    /// Records of the log before this one were judged.
    pub upto: u64,
    /// Hash of the rules that judged, hex.
    pub rules: String,
    /// Sums of each event type; those of plain increments under `increment`. The causes are `duplicate_beyond_window`,
    /// `duplicate_other_day`, `voided`, `filtered_by:<rule>`, `restored:<rule>`, `restored:<cause>`,
    /// `moved:<rule>` and `moved:<cause>`.
    pub types: BTreeMap<String, FinalSums>,
    /// All that the rules filter of each event type, whether they did so as it came or this reconcile does.
    pub filtered: FilteredSums,
    /// Keys of which many events had counted although they repeat others.
    pub repeated: RepeatedKeys,
    /// The causes by key; none where they were not asked for.
    pub by: Option<CausesByKey>,
    /// True where other rules judged than those in force.
    pub is_what_if: bool,
    /// The final books, one run for each shard at most.
    pub books: Vec<RunEntry>,
    /// Verdicts that are others than those of the way in; none where there are none.
    pub verdicts: Option<RunEntry>,
    /// Counts to add to what is served.
    pub plus: Vec<RunEntry>,
    /// Counts to take away from what is served.
    pub minus: Vec<RunEntry>,
    /// The records that are added or taken away; none where there are none.
    pub corrects: Option<Corrects>,
    /// By what the version can be made again from the log.
    pub proof: Option<FinalProof>,
    /// Whether the books, some verdicts, or the orders about keys are others than those of the version before.
    pub is_new: bool,
    /// Counts that no verdict explains.
    pub unexplained: Unexplained,
}

impl Reconciled {
    /// The final version to publish, which is no what-if.
    pub fn into_final(self) -> Final {
        assert!(!self.is_what_if, "BUG: other rules judged {}", self.day);
        let fix = self.corrects.map(|corrects| Fix {
            day: self.day,
            version: self.version,
            corrects,
            plus: self.plus,
            minus: self.minus,
        });
        let entry = FinalEntry {
            day: self.day,
            version: self.version,
            at_ms: 0,
            upto: self.upto,
            rules: self.rules,
            books: self.books,
            verdicts: self.verdicts,
            types: self.types,
            filtered: Some(self.filtered),
            repeated: Some(self.repeated),
            touched: false,
            sums_only: false,
            forced: false,
            actor: None,
            proof: self.proof,
        };
        Final { entry, fix }
    }
}

impl Reconcile<'_> {
    /// Judges, counts and compares. A flush wrote `manifest` just before. `progress` is told how many records of how
    /// many were read; each is read twice, once more for rules with memory, and once more for ids of other days that
    /// come from the log. Fails when the log does not reach back to the first record of the day, when the day is not
    /// over or hours of it are folded, when a file is damaged, when the disk fails, and as [`Self::check_order`] does.
    pub fn run(
        &self,
        blobs: &Blobs,
        manifest: &Manifest,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Reconciled> {
        self.check(blobs, manifest)?;
        // Files that are open stay readable when a flush removes them.
        let served = served(blobs, manifest, self.day)?;
        let as_of = AsOf::now(self.schema(manifest)?, manifest, self.day);
        let (counted, proof) = self.judge_and_count(blobs, manifest, &as_of, progress)?;
        self.check_has_events(blobs, &counted)?;
        let unexplained = self.compare(blobs, manifest, served, &counted)?;
        let deleted = |upto: u64| Deleted::new(manifest, self.day, upto);
        // A version says that it read an order, even where no count changes: the order would wait for ever.
        let stands = as_of.before.filter(|before| {
            !is_other(before, &counted) && deleted(as_of.upto) == deleted(before.upto)
        });
        let next = || manifest.archive.next_fix(self.day);
        let version = stands.map_or_else(next, |stands| stands.version);
        Ok(Reconciled {
            is_what_if: self.rules.is_some(),
            is_new: stands.is_none(),
            unexplained,
            ..self.result(version, &as_of, counted, proof)
        })
    }

    /// The result of a day that was judged and counted, as a new version by the rules in force.
    fn result(
        &self,
        version: u32,
        as_of: &AsOf<'_>,
        counted: Counted,
        proof: FinalProof,
    ) -> Reconciled {
        Reconciled {
            day: self.day,
            version,
            upto: as_of.upto,
            rules: hash_of(&as_of.schema),
            types: counted.types,
            filtered: counted.filtered,
            repeated: counted.repeated,
            by: counted.by_key,
            is_what_if: false,
            books: counted.books,
            verdicts: counted.verdicts,
            plus: counted.plus,
            minus: counted.minus,
            corrects: counted.corrects,
            proof: Some(proof),
            is_new: true,
            unexplained: Unexplained::default(),
        }
    }

    /// Judges and counts the day as of some moment.
    fn judge_and_count(
        &self,
        blobs: &Blobs,
        manifest: &Manifest,
        as_of: &AsOf<'_>,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<(Counted, FinalProof)> {
        let AsOf {
            schema,
            upto,
            before,
            ..
        } = as_of;
        let (upto, before) = (*upto, *before);
        let keys = long_keys_of(blobs)?;
        let rules = self.compiled(blobs, schema)?;
        let by_key = self.by.map(|by| ByKey::new(schema, by)).transpose()?;
        let log = DayLog {
            disk: blobs.disk(),
            times: self.day.start()..self.day.next().start(),
            upto,
        };
        let reads = 2 + u64::from(rules.memory_rules().next().is_some());
        let part = |number: u64| part_of(progress, number, reads);
        let beside = self.with_days_beside(&log, &rules);
        let mut ids = self.by_ids(blobs, manifest, (&keys, as_of), (&beside, &part(0)))?;
        let known_from = as_of.ids_from.or(ids.known_from());
        let known_from = known_from.filter(|from| *from < upto);
        let caught = match reads {
            2 => Caught::default(),
            _ => self.by_memory(blobs, (&keys, &rules), &mut ids, (&beside, &part(1)))?,
        };
        ids.begin_again();
        let verdicts = before.and_then(|before| before.verdicts.as_ref());
        let previous = verdicts
            .map(|run| Exceptions::open(blobs, run))
            .transpose()?;
        let judge = Judge {
            schema,
            rules: &rules,
            ids,
            caught,
            previous,
            version: before,
            declared: Declared::new(&manifest.intake.schemas, |_| {}),
        };
        let mut count = Count::new(self, blobs, manifest, (as_of, &keys, by_key))?;
        count.read(&log, judge, &part(reads - 1))?;
        let counted = count.finish(blobs, schema)?;
        let proof = FinalProof {
            ids_from: known_from.unwrap_or(upto),
            ids_from_ms: known_from.and_then(|from| {
                // Where the record left the log, the runs say since when ids are known now.
                let runs = as_of
                    .ids_from
                    .is_none()
                    .then_some(&manifest.intake.ids.runs);
                arrived_ms(blobs.disk(), from).or_else(|| oldest_ms(runs?))
            }),
            content: content_of(blobs, &counted.books, counted.verdicts.as_ref())?,
            is_logged: false,
        };
        Ok((counted, proof))
    }

    /// Checks that the day can be reconciled. Fails as [`Self::run`] does, before it begins.
    pub fn check(&self, blobs: &Blobs, manifest: &Manifest) -> Result<()> {
        let day = self.day;
        let refuse = |what: String| Err(Error::Reconcile(what));
        if !is_closed(manifest, day) {
            return Err(Error::NotClosed { day });
        }
        if let Some(awaited) = manifest.archive.awaited_of(day).next() {
            return refuse(format!(
                "version {} of {day} is being made again from the log; try again once it is there",
                awaited.version
            ));
        }
        match out_of_reach(blobs, manifest, day)? {
            Some(why) => refuse(why),
            None => Ok(()),
        }
    }

    /// The first read of the log: verdicts that follow from ids. It begins again without a run of ids that is found to
    /// be damaged.
    fn by_ids(
        &self,
        blobs: &Blobs,
        manifest: &Manifest,
        of: (&LongKeys, &AsOf<'_>),
        read: (&DayLog<'_>, &(dyn Fn(u64, u64) + Sync)),
    ) -> Result<IdVerdicts> {
        let known = &manifest.intake.ids;
        // A flush merges runs while the log is read, and open ones stay readable.
        let mut remembered = Remembered::open(blobs, &known.runs)?;
        loop {
            match self.by_ids_of(&remembered, (blobs, known), of, read) {
                Err(Error::Archive(error)) => remembered.leave_out(error)?,
                found => return found,
            }
        }
    }

    /// Verdicts that follow from ids. The ids of lost runs come from the log, where that has them.
    fn by_ids_of(
        &self,
        remembered: &Remembered<'_>,
        (blobs, known): (&Blobs, &IdsEntry),
        (keys, as_of): (&LongKeys, &AsOf<'_>),
        (log, progress): (&DayLog<'_>, &(dyn Fn(u64, u64) + Sync)),
    ) -> Result<IdVerdicts> {
        let lost = LostIds::new(log.disk, remembered.lost())?;
        let mut of_day = IdsOfDay::new(blobs, keys, (self.load, self.day), self.memory_bytes / 2);
        let others = match as_of.ids_from {
            Some(from) => from..log.upto,
            None => {
                let unknown = unknown_until(log.disk, known)?;
                0..unknown.max(lost.until).min(log.upto)
            }
        };
        let reads = 1 + u64::from(!others.is_empty());
        log.read(&part_of(progress, 0, reads), &mut |part| of_day.take(part))?;
        if of_day.has_ids() && !others.is_empty() {
            of_day.take_others(log, &others, &part_of(progress, 1, reads))?;
        }
        let found = of_day.verdicts(remembered, others.start)?;
        Ok(found.known_since(lost.known_from))
    }

    /// The log with what rules with memory look at beside the day.
    fn with_days_beside<'d>(&self, log: &DayLog<'d>, rules: &Rules) -> DayLog<'d> {
        let times = rules.memory_rules().map(|rule| times_of(rule, self.day));
        let times = times.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end));
        DayLog {
            times: times.unwrap_or(log.times.clone()),
            ..log.clone()
        }
    }

    /// The read of the log for rules with memory.
    fn by_memory(
        &self,
        blobs: &Blobs,
        (keys, rules): (&LongKeys, &Rules),
        ids: &mut IdVerdicts,
        (log, progress): (&DayLog<'_>, &(dyn Fn(u64, u64) + Sync)),
    ) -> Result<Caught> {
        let of = (self.load, self.day);
        let mut events = EventsOfDay::new(blobs, (keys, rules), of, self.memory_bytes / 2);
        log.read(progress, &mut |part| events.take(part, ids))?;
        events.caught()
    }

    /// A day before the log began has a final number only where somebody sent events of it.
    fn check_has_events(&self, blobs: &Blobs, counted: &Counted) -> Result<()> {
        let oldest = oldest_segment(blobs.disk())?;
        let begun = oldest.map(|oldest| begun(&oldest));
        match begun.filter(|begun| counted.types.is_empty() && self.day < *begun) {
            Some(begun) => Err(Error::Reconcile(format!(
                "the log begins on {begun}, and has no event of {}",
                self.day
            ))),
            None => Ok(()),
        }
    }

    /// Checks that what is served, with the fix, is what the final books have.
    fn compare(
        &self,
        blobs: &Blobs,
        manifest: &Manifest,
        mut runs: Vec<Weighed>,
        counted: &Counted,
    ) -> Result<Unexplained> {
        let weighed = [
            (&counted.plus, 1),
            (&counted.minus, -1),
            (&counted.books, -1),
        ];
        for (entries, weight) in weighed {
            let open = Run::open_all(blobs, entries)?;
            runs.extend(open.into_iter().map(|run| (run, weight)));
        }
        compare(runs, self.day, has_minutes(manifest, self.day))
    }
}

/// Progress of one of the reads, as part of all.
fn part_of(
    progress: &(dyn Fn(u64, u64) + Sync),
    number: u64,
    reads: u64,
) -> impl Fn(u64, u64) + Sync {
    move |done, total| progress(number * total + done, reads * total)
}

/// Hash of the rules and of the contents of their lists, hex.
fn hash_of(rules: &Schema) -> String {
    let text = serde_json::to_vec(&(&rules.filters, &rules.lists));
    let text = text.expect("BUG: rules are plain data");
    blake3::hash(&text).to_hex()[..32].to_owned()
}

/// Whether counts, causes or verdicts differ from those of the version before. Another number of shards or another
/// compression gives other files of the same counts, and so do erased users.
fn is_other(before: &FinalEntry, now: &Counted) -> bool {
    let verdicts = |run: &Option<RunEntry>| {
        let meta = run.as_ref().map(|run| &run.meta);
        meta.map(|meta| (meta.lines, meta.plain_bytes))
    };
    let is_corrected = !(now.plus.is_empty() && now.minus.is_empty());
    is_corrected
        || sums_of(&before.books) != sums_of(&now.books)
        || verdicts(&before.verdicts) != verdicts(&now.verdicts)
}

/// Sums of all counts by section.
fn sums_of(books: &[RunEntry]) -> BTreeMap<&str, u128> {
    let mut sums = BTreeMap::new();
    for (section, sum) in books.iter().flat_map(|run| &run.meta.sums) {
        *sums.entry(&**section).or_insert(0) += sum;
    }
    sums
}

/// The runs that have all counts of the log that are served, with their signs.
fn served(blobs: &Blobs, manifest: &Manifest, day: Day) -> Result<Vec<Weighed>> {
    let (start, end) = (day.start(), day.next().start());
    let stores = manifest.intake.stores.iter();
    let runs = stores
        .flat_map(|store| &store.runs)
        .chain(&manifest.archive.runs);
    let runs = runs.filter(|run| run.meta.overlaps(start, end));
    let open = Run::open_all(blobs, runs)?.into_iter();
    Ok(open
        .map(|run| {
            let weight = match run.sign() {
                Sign::Plus => 1,
                Sign::Minus => -1,
            };
            (run, weight)
        })
        .collect())
}

/// True where all that is served has the minutes of the day.
fn has_minutes(manifest: &Manifest, day: Day) -> bool {
    let mut generations = manifest.archive.generations.iter();
    generations.all(|kept| kept.horizon().minutes_from <= day.start())
}
