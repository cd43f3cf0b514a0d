//! The last read of the log: verdicts, their sums, and the books that follow from them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use tallyring_archive::{
    Blobs, Corrects, FilteredSums, FinalSums, Manifest, RepeatedKeys, RunEntry, Sign,
};
use tallyring_records::{Day, Increment, LongKeys, Schema};

use super::actions::Actions;
use super::as_of::AsOf;
use super::books::{Book, Shelf};
use super::by_key::{ByKey, CausesByKey};
use super::deleted::{Deleted, with_keys};
use super::log::{DayLog, Declared, Sent};
use super::repeated::repeated_keys;
use super::verdict::{CountsAs, ExceptionsWriter, Judge, Judged, Verdict, causes};
use super::{Reconcile, has_minutes};
use crate::error::{Error, Result};

/// The sums and runs of a day; [`Reconciled`](super::Reconciled) says what each is.
pub(super) struct Counted {
    pub types: BTreeMap<String, FinalSums>,
    pub filtered: FilteredSums,
    pub repeated: RepeatedKeys,
    pub by_key: Option<CausesByKey>,
    pub books: Vec<RunEntry>,
    pub verdicts: Option<RunEntry>,
    pub plus: Vec<RunEntry>,
    pub minus: Vec<RunEntry>,
    pub corrects: Option<Corrects>,
}

/// Counts the records of a day.
pub(super) struct Count<'b> {
    day: Day,
    /// Declarations by which the final books count, and those by which the fix does.
    final_schemas: Declared,
    fix_schemas: Declared,
    /// Keys that are deleted in the version before, and now.
    deleted_before: Deleted<'b>,
    deleted: Deleted<'b>,
    /// None where no actions of the day are kept any more.
    actions: Option<Actions<'b>>,
    books: Book<'b>,
    plus: Book<'b>,
    minus: Book<'b>,
    /// Counts of records that had counted although they repeat others.
    twice: Book<'b>,
    verdicts: ExceptionsWriter,
    types: BTreeMap<String, FinalSums>,
    /// Sums that rules filter, by event type and rule.
    filtered: BTreeMap<String, BTreeMap<String, u128>>,
    by_key: Option<ByKey>,
    corrects: Option<Corrects>,
}

impl<'b> Count<'b> {
    /// Books in memory and in `incoming/`. Fails when the disk does.
    pub(super) fn new(
        of: &Reconcile<'b>,
        blobs: &'b Blobs,
        manifest: &'b Manifest,
        (as_of, keys, by_key): (&AsOf<'_>, &'b LongKeys, Option<ByKey>),
    ) -> Result<Self> {
        let shelf = Shelf {
            blobs,
            keys,
            load: of.load,
            shards: of.shards,
            level: of.level,
        };
        let schemas = &manifest.intake.schemas;
        let has_minutes = has_minutes(manifest, of.day);
        let without_actions = |schema: &mut Schema| {
            schema
                .events
                .iter_mut()
                .for_each(|event| event.actions = false);
        };
        let (most, rest) = (of.memory_bytes / 2, of.memory_bytes / 8);
        Ok(Self {
            day: of.day,
            final_schemas: Declared::new(schemas, without_actions),
            fix_schemas: Declared::new(schemas, |schema| {
                without_actions(schema);
                for namespace in &mut schema.namespaces {
                    namespace.uniques = false;
                    namespace.minutes &= has_minutes;
                }
            }),
            deleted_before: Deleted::new(manifest, of.day, as_of.before.map_or(0, |of| of.upto)),
            deleted: Deleted::new(manifest, of.day, as_of.upto),
            actions: Actions::new(manifest, of.day, as_of.before, keys),
            books: Book::new(shelf, 0, most),
            plus: Book::new(shelf, 1, rest),
            minus: Book::new(shelf, 2, rest),
            twice: Book::new(shelf, 3, rest),
            verdicts: ExceptionsWriter::create(blobs, of.load, of.day, of.level)?,
            types: BTreeMap::new(),
            filtered: BTreeMap::new(),
            by_key,
            corrects: None,
        })
    }

    /// Reads the log. Fails when it is damaged, and when the disk fails.
    pub(super) fn read(
        &mut self,
        log: &DayLog<'_>,
        mut judge: Judge<'_>,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<()> {
        log.read(progress, &mut |part| {
            // Each part of equal declarations is counted at once.
            let mut rest = &part.sent[..];
            while let Some(first) = rest.first() {
                let number = |sent: &Sent| self.final_schemas.number_at(sent.sequence);
                let of_first = number(first);
                let (together, others) =
                    rest.split_at(rest.partition_point(|sent| number(sent) == of_first));
                self.count(together, &mut judge)?;
                rest = others;
            }
            Ok(())
        })
    }

    fn count(&mut self, sent: &[Sent], judge: &mut Judge<'_>) -> Result<()> {
        let Some(first) = sent.first() else {
            return Ok(());
        };
        let [mut counted, mut plus, mut minus, mut twice] = <[Counts; 4]>::default();
        let (mut did, mut less) = <(Vec<&Increment>, Vec<&Increment>)>::default();
        let alike = self.deleted_before.is_empty() && self.deleted.is_empty();
        for sent in sent {
            let judged = judge.judge(sent)?;
            self.verdicts.note(sent, &judged.after)?;
            self.sum(&sent.increment, &judged)?;
            let had = |key: &_| !self.deleted_before.has(sent.sequence, key);
            let has = |key: &_| !self.deleted.has(sent.sequence, key);
            let with = |keeps: &dyn Fn(&_) -> bool| with_keys(&sent.increment, alike, keeps);
            if judged.counted_twice() {
                twice.push(with(&had), Some(CountsAs::Itself));
            }
            let (before, after) = (judged.counts_before(), judged.counts_after());
            let action = self.actions.as_ref();
            let action = action.and_then(|actions| actions.change(sent, &judged));
            match action {
                Some(Sign::Plus) => did.push(&sent.increment),
                Some(Sign::Minus) => less.push(&sent.increment),
                None => {}
            }
            // Keys that count as before are in neither.
            let is_same = before == after;
            let is_more = plus.push(with(&|key| has(key) && !(is_same && had(key))), after);
            let is_less = minus.push(with(&|key| had(key) && !(is_same && has(key))), before);
            if is_more || is_less || action.is_some() {
                let (from, until) = (sent.sequence, sent.sequence + 1);
                let corrects = self.corrects.get_or_insert(Corrects { from, until });
                corrects.until = until;
            }
            counted.push(with(&has), after);
        }
        let schema = self.final_schemas.at(first.sequence);
        self.books.count(schema, &counted.all())?;
        let schema = self.fix_schemas.at(first.sequence);
        self.plus.count(schema, &plus.all())?;
        self.minus.count(schema, &minus.all())?;
        self.twice.count(schema, &twice.all())?;
        if let Some(actions) = &self.actions {
            let schema = actions.schema_at(first.sequence);
            self.plus.count(schema, &did)?;
            self.minus.count(schema, &less)?;
        }
        Ok(())
    }

    fn sum(
        &mut self,
        increment: &Increment,
        Judged {
            before,
            after,
            undecided,
            ..
        }: &Judged,
    ) -> Result<()> {
        let kind = increment
            .event
            .as_ref()
            .map_or("increment", |event| &event.kind);
        let sums = match self.types.get_mut(kind) {
            Some(sums) => sums,
            None => self.types.entry(kind.to_owned()).or_default(),
        };
        let overflow = || Error::Reconcile(format!("the sum of `{kind}` overflows"));
        let more = |sum: &mut u128| -> Result<()> {
            *sum = sum.checked_add(increment.n.into()).ok_or_else(overflow)?;
            Ok(())
        };
        more(&mut sums.gross)?;
        if *undecided {
            more(&mut sums.undecided)?;
        }
        if *before == Verdict::Counted {
            more(&mut sums.before)?;
        }
        match after {
            Verdict::Counted => more(&mut sums.after)?,
            Verdict::Filtered(rule) => {
                let rules = self.filtered.entry(kind.to_owned()).or_default();
                more(rules.entry(rule.clone()).or_default())?;
            }
            _ => {}
        }
        for (cause, sign) in causes(before, after).into_iter().flatten() {
            let n = sign * i128::from(increment.n);
            if let Some(by_key) = &mut self.by_key {
                by_key.add((kind, &cause), increment, n)?;
            }
            let sum = sums.causes.entry(cause).or_insert(0);
            *sum = sum.checked_add(n).ok_or_else(overflow)?;
        }
        Ok(())
    }

    /// The sums and the runs. The rules of `schema` judged. Fails when the disk does.
    pub(super) fn finish(self, blobs: &Blobs, schema: &Schema) -> Result<Counted> {
        let books = self.books.finish()?;
        let (mut plus, mut minus) = (self.plus.finish()?, self.minus.finish()?);
        let twice = self.twice.finish()?;
        let before = [(&books, 1), (&plus, -1), (&minus, 1)];
        let repeated = repeated_keys(blobs, self.day, &twice, before)?;
        if let Some(actions) = &self.actions {
            actions.note_erasures(&mut plus);
            actions.note_erasures(&mut minus);
        }
        Ok(Counted {
            types: self.types,
            filtered: by_class(schema, self.filtered),
            repeated,
            by_key: self.by_key.map(ByKey::finish),
            books,
            verdicts: self.verdicts.finish()?,
            plus,
            minus,
            corrects: self.corrects,
        })
    }
}

/// Sums of rules, by their classes, too.
fn by_class(schema: &Schema, types: BTreeMap<String, BTreeMap<String, u128>>) -> FilteredSums {
    let class_of = |rule: &String| {
        let filter = schema.filters.iter().find(|filter| filter.name == *rule);
        filter.expect("BUG: a rule in force caught it").class
    };
    let of_type = |rules: BTreeMap<String, u128>| {
        let mut classes = BTreeMap::<_, BTreeMap<_, _>>::new();
        for (rule, n) in rules {
            let of_class = classes.entry(class_of(&rule)).or_default();
            of_class.insert(rule, n);
        }
        classes
    };
    let types = types.into_iter();
    types.map(|(kind, rules)| (kind, of_type(rules))).collect()
}

/// Increments to count: those of records as they are, and those that were made of others.
#[derive(Default)]
struct Counts<'i> {
    own: Vec<&'i Increment>,
    made: Vec<Increment>,
}

impl<'i> Counts<'i> {
    /// True where there is something to count.
    fn push(
        &mut self,
        increment: Option<Cow<'i, Increment>>,
        as_what: Option<CountsAs<'_>>,
    ) -> bool {
        match (increment, as_what) {
            (None, _) | (_, None) => return false,
            (Some(increment), Some(CountsAs::Filtered(rule))) => {
                self.made.push(increment.filtered_by(rule));
            }
            (Some(Cow::Borrowed(increment)), _) => self.own.push(increment),
            (Some(Cow::Owned(increment)), _) => self.made.push(increment),
        }
        true
    }

    fn all(&self) -> Vec<&Increment> {
        self.own.iter().copied().chain(&self.made).collect()
    }
}
