//! The verdict on a record, as it was before and as it is now.

use std::sync::Arc;

use tallyring_archive::{
    Blobs, Cursor, Error as ArchiveError, FinalEntry, Origin, Partition, Run, RunEntry, RunSpec,
    RunWriter,
};
use tallyring_records::{Day, Form, Increment, Role, Rules, Schema, filtered_of};

use super::ids::IdVerdicts;
use super::log::{Declared, Sent};
use super::memory::Caught;
use crate::error::Result;

/// Whether a record counts, and why not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It counts.
    Counted,
    /// An earlier record of the day has its id.
    Duplicate,
    /// An earlier record of another day has its id.
    DuplicateOfOtherDay,
    /// People took it out of the counts.
    Voided,
    /// A rule keeps it from being counted.
    Filtered(String),
}

const COUNTED: &str = "counted";
const DUPLICATE: &str = "duplicate_beyond_window";
const DUPLICATE_OF_OTHER_DAY: &str = "duplicate_other_day";
const VOIDED: &str = "voided";
const FILTERED_BY: &str = "filtered_by:";

impl Verdict {
    /// The verdict of the way in.
    fn live(sent: &Sent) -> Self {
        match &sent.filtered {
            None => Self::Counted,
            Some(rule) => Self::Filtered(rule.clone()),
        }
    }

    /// `counted`, or the reason for which the record does not count, such as `filtered_by:bots`.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Counted => COUNTED.into(),
            Self::Duplicate => DUPLICATE.into(),
            Self::DuplicateOfOtherDay => DUPLICATE_OF_OTHER_DAY.into(),
            Self::Voided => VOIDED.into(),
            Self::Filtered(rule) => format!("{FILTERED_BY}{rule}"),
        }
    }

    /// The rule, or [`Self::text`] of another verdict.
    fn name(&self) -> String {
        match self {
            Self::Filtered(rule) => rule.clone(),
            other => other.text(),
        }
    }

    fn of_text(text: &str) -> Option<Self> {
        match text {
            COUNTED => Some(Self::Counted),
            DUPLICATE => Some(Self::Duplicate),
            DUPLICATE_OF_OTHER_DAY => Some(Self::DuplicateOfOtherDay),
            VOIDED => Some(Self::Voided),
            _ => Some(Self::Filtered(text.strip_prefix(FILTERED_BY)?.to_owned())),
        }
    }
}

/// Judges the records of a day in the order of the log.
pub(super) struct Judge<'a> {
    /// The declaration of the rules.
    pub schema: &'a Schema,
    pub rules: &'a Rules,
    /// Verdicts that come before the rules.
    pub ids: IdVerdicts,
    /// Verdicts of rules with memory.
    pub caught: Caught,
    /// Verdicts of the version before.
    pub previous: Option<Exceptions>,
    /// That version; none where there is none.
    pub version: Option<&'a FinalEntry>,
    /// All declarations.
    pub declared: Declared,
}

/// The verdicts on a record.
pub(super) struct Judged {
    /// The verdict that the counts follow now.
    pub before: Verdict,
    /// The final one.
    pub after: Verdict,
    /// The rule under which it counts as filtered now.
    pub filtered_before: Option<String>,
    /// True when no rule catches the event, and some rule lacks the evidence to judge it.
    pub undecided: bool,
}

/// The counts of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CountsAs<'r> {
    /// Its increment.
    Itself,
    /// An event that this rule filtered.
    Filtered(&'r str),
}

impl Judged {
    /// True where the record had counted although an earlier one has its id.
    pub(super) fn counted_twice(&self) -> bool {
        let is_duplicate = matches!(
            self.after,
            Verdict::Duplicate | Verdict::DuplicateOfOtherDay
        );
        is_duplicate && self.before == Verdict::Counted
    }

    /// The counts of the record now; none where it counts nothing.
    pub(super) fn counts_before(&self) -> Option<CountsAs<'_>> {
        match &self.before {
            Verdict::Counted => Some(CountsAs::Itself),
            _ => self.filtered_before.as_deref().map(CountsAs::Filtered),
        }
    }

    /// The counts that the record is to have; none where it is to count nothing.
    pub(super) fn counts_after(&self) -> Option<CountsAs<'_>> {
        match &self.after {
            Verdict::Counted => Some(CountsAs::Itself),
            Verdict::Filtered(rule) => Some(CountsAs::Filtered(rule)),
            _ => None,
        }
    }
}

impl Judge<'_> {
    /// The verdicts on a record. Fails when those of the version before cannot be read.
    pub(super) fn judge(&mut self, sent: &Sent) -> Result<Judged> {
        let previous = match &mut self.previous {
            Some(previous) => previous.of(sent.sequence)?,
            None => None,
        };
        let before = previous.unwrap_or_else(|| Verdict::live(sent));
        let by_memory = self.caught.by(sent.sequence);
        let by_id = self.ids.of(sent.sequence);
        // The record that came first may have left the log since the version before, and a void is for ever.
        let was_by_id = !matches!(before, Verdict::Counted | Verdict::Filtered(_));
        if let Some(after) = by_id.or_else(|| was_by_id.then(|| before.clone())) {
            return Ok(Judged {
                filtered_before: self.filtered_before(sent, &before),
                before,
                after,
                undecided: false,
            });
        }
        let judged = self.rules.stateless(&sent.increment);
        let kept = [
            self.judged_by(sent).map(|version| (&before, version.upto)),
            Some((&Verdict::live(sent), sent.sequence)),
        ];
        let kept = kept.into_iter().flatten();
        let kept = kept.filter_map(|(verdict, at)| self.kept(verdict, at, &sent.increment));
        let caught = [judged.caught, by_memory].into_iter().flatten();
        let after = match caught.chain(kept).min() {
            Some(index) => Verdict::Filtered(self.schema.filters[index].name.clone()),
            None => Verdict::Counted,
        };
        let undecided =
            after == Verdict::Counted && (judged.undecided || self.lacks_key(&sent.increment));
        Ok(Judged {
            filtered_before: self.filtered_before(sent, &before),
            before,
            after,
            undecided,
        })
    }

    /// The rule under which a record with this verdict counts as filtered. Earlier builds counted no filtered events,
    /// neither live nor in final books.
    fn filtered_before(&self, sent: &Sent, before: &Verdict) -> Option<String> {
        let Verdict::Filtered(rule) = before else {
            return None;
        };
        let is_counted = self
            .judged_by(sent)
            .map_or(sent.counts_filtered, has_filtered);
        is_counted.then(|| rule.clone())
    }

    /// The version before, where it judged the record.
    fn judged_by(&self, sent: &Sent) -> Option<&FinalEntry> {
        self.version.filter(|version| sent.sequence < version.upto)
    }

    /// The rule of an earlier verdict, where the rule stands and its evidence is gone: the event lacks it, or it names
    /// somebody who was erased. A rule that judges one event alone judges it as before, so another verdict says that.
    /// `at` is the record as of which the verdict was found.
    fn kept(&self, verdict: &Verdict, at: u64, increment: &Increment) -> Option<usize> {
        let Verdict::Filtered(name) = verdict else {
            return None;
        };
        let mut filters = self.schema.filters.iter();
        let index = filters.position(|filter| filter.name == *name)?;
        let of_then = self.declared.at(at);
        let filter = &self.schema.filters[index];
        let mut filters_then = of_then.filters.iter();
        if !filters_then.any(|then| then.judges_as(filter)) {
            return None;
        }
        let stays = match filter.form {
            _ if !self.rules.decides(index, increment) => true,
            Form::Values { .. } => true,
            Form::List { .. } => of_then.lists == self.schema.lists,
            Form::Repeat { .. } | Form::Rate { .. } | Form::Needs { .. } => false,
        };
        stays.then_some(index)
    }

    fn lacks_key(&self, increment: &Increment) -> bool {
        self.rules
            .memory_rules()
            .any(|rule| rule.role(increment) == Some(Role::Judged) && rule.key(increment).is_none())
    }
}

/// True where the books of a version count filtered events.
fn has_filtered(version: &FinalEntry) -> bool {
    let sections = version.books.iter().flat_map(|run| run.meta.sums.keys());
    let mut namespaces = sections.filter_map(|section| section.strip_suffix('|'));
    namespaces.any(|namespace| filtered_of(namespace).is_some())
}

/// The rule of a cause that takes events away, such as `filtered_by:bots`.
pub(super) fn rule_of(cause: &str) -> Option<&str> {
    cause.strip_prefix(FILTERED_BY)
}

/// The causes of a difference, such as `restored:bots`, each with the sign of its `n`. A record that counts neither
/// before nor after moves where its reasons differ: such as from `moved:bots` (plus) to `moved:crawlers` (minus), which
/// sum to nothing. A void is for ever, so there is no `restored:voided` yet.
pub(super) fn causes(before: &Verdict, after: &Verdict) -> [Option<(String, i128)>; 2] {
    match (before, after) {
        (Verdict::Counted, Verdict::Counted) => [None, None],
        (Verdict::Counted, other) => [Some((other.text(), -1)), None],
        (other, Verdict::Counted) => [Some((format!("restored:{}", other.name()), 1)), None],
        (Verdict::Filtered(_), other) if before != other => [
            Some((format!("moved:{}", before.name()), 1)),
            Some((format!("moved:{}", other.name()), -1)),
        ],
        _ => [None, None],
    }
}

/// The verdicts of a version that are others than those of the way in, by record:
/// `verdict|00000000000012ab-filtered_by:bots`.
pub(super) struct Exceptions {
    run: Arc<Run>,
    cursor: Cursor,
    next: Option<(u64, Verdict)>,
}

const SECTION: &str = "verdict|";

impl Exceptions {
    /// Fails when the file cannot be read.
    pub(super) fn open(blobs: &Blobs, entry: &RunEntry) -> Result<Self> {
        let run = Run::open_named(blobs, entry)?;
        let mut opened = Self {
            cursor: run.cursor(),
            run,
            next: None,
        };
        opened.advance()?;
        Ok(opened)
    }

    /// The verdict on a record, if the file has one. The records are asked for in ascending order.
    fn of(&mut self, sequence: u64) -> Result<Option<Verdict>> {
        while self.next.as_ref().is_some_and(|(next, _)| *next < sequence) {
            self.advance()?;
        }
        let found = self.next.take_if(|(next, _)| *next == sequence);
        if found.is_some() {
            self.advance()?;
        }
        Ok(found.map(|(_, verdict)| verdict))
    }

    fn advance(&mut self) -> Result<()> {
        self.next = None;
        if !self.cursor.advance()? {
            return Ok(());
        }
        let line = self.cursor.line()?;
        let text = line.and_then(|(key, _)| std::str::from_utf8(key).ok());
        let read = text.and_then(|key| {
            let (sequence, verdict) = key.strip_prefix(SECTION)?.split_once('-')?;
            Some((
                u64::from_str_radix(sequence, 16).ok()?,
                Verdict::of_text(verdict)?,
            ))
        });
        let what = "the file has a line that is no verdict";
        let read = read.ok_or_else(|| ArchiveError::malformed(self.run.name(), what))?;
        self.next = Some(read);
        Ok(())
    }
}

/// Writes the verdicts that are others than those of the way in.
pub(super) struct ExceptionsWriter {
    out: RunWriter,
    payload: String,
}

impl ExceptionsWriter {
    pub(super) fn create(blobs: &Blobs, load: &str, day: Day, level: i32) -> Result<Self> {
        let spec = RunSpec {
            origin: Origin::Sorted(load.to_owned()),
            partition: Partition::month_of(day.code()),
            shard: 0,
            shards: 1,
            level,
        };
        Ok(Self {
            out: RunWriter::create(blobs, spec)?,
            payload: format!("{}:1", day.code()),
        })
    }

    /// Notes a verdict; the records come in ascending order.
    pub(super) fn note(&mut self, sent: &Sent, verdict: &Verdict) -> Result<()> {
        if *verdict != Verdict::live(sent) {
            let key = format!("{SECTION}{:016x}-{}", sent.sequence, verdict.text());
            self.out.push(key.as_bytes(), self.payload.as_bytes())?;
        }
        Ok(())
    }

    /// None where there are none.
    pub(super) fn finish(self) -> Result<Option<RunEntry>> {
        Ok(self.out.finish()?)
    }
}
