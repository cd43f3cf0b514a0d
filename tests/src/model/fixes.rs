//! Fixes of days: some counts more and some less, in runs of their own, while everything else goes on.

use std::collections::{BTreeMap, BTreeSet};

use tallyring_archive::merge::{total_payloads, write_subtotal};
use tallyring_archive::{
    Corrects, Manifest, Origin, Partition, RunEntry, RunSpec, RunWriter, Sign,
};
use tallyring_realtime::{Error, Fix, Read};
use tallyring_records::{
    COUNT_MAX, Day, LongKeys, TimeCode, UserKey, breakdowns_from, is_hash, line, of_by_minute,
    shard_of,
};

use super::book::Book;
use super::chance::fixed_bytes;
use super::check::whole;
use super::naive::{Piece, cells};
use super::oracle::Deed;
use super::{Driver, clicks};

/// A fix, and what it counts more and less.
#[derive(Clone)]
pub(super) struct Fixed {
    pub day: Day,
    pub version: u32,
    pub plus: Book,
    pub minus: Book,
    /// Actions of users, taken away where they are less than zero.
    pub actions: Vec<(UserKey, Deed, i64)>,
}

impl Fixed {
    /// True when a manifest names it.
    pub(super) fn is_in(&self, manifest: &Manifest) -> bool {
        manifest.archive.next_fix(self.day) > self.version
    }

    /// Its counts by origin and month.
    pub(super) fn pieces(&self) -> Vec<(Piece, Book)> {
        let month = Partition::month_of(self.day.code());
        let books = [(Sign::Plus, &self.plus), (Sign::Minus, &self.minus)];
        let pieces = books.map(|(sign, book)| {
            let origin = Origin::Fix {
                day: self.day,
                version: self.version,
                sign,
            };
            ((origin, month), book.clone())
        });
        pieces
            .into_iter()
            .filter(|(_, book)| !book.is_empty())
            .collect()
    }
}

impl Driver {
    /// Publishes a fix of a day that has some counts.
    pub(super) fn fix(&mut self) -> Result<(), String> {
        let Some(fixed) = self.draw_fix() else {
            return Ok(());
        };
        let load = format!("{:016x}", self.chance.bits());
        self.note(format!(
            "correct {} for time {} by {load}: {:?} more, {:?} less",
            fixed.day, fixed.version, fixed.plus, fixed.minus
        ));
        let runs = [&fixed.plus, &fixed.minus].map(|book| self.write_runs(&load, fixed.day, book));
        let [plus, minus] = match runs {
            [Ok(plus), Ok(minus)] => [plus, minus],
            [Err(error), _] | [_, Err(error)] => {
                self.forget_load(&load);
                return self.allow("a fix", &error);
            }
        };
        let fix = Fix {
            day: fixed.day,
            version: fixed.version,
            corrects: Corrects {
                from: 0,
                until: self.store().live().applied().sequence,
            },
            plus,
            minus,
        };
        match self.store().ledger().publish_fix(&fix) {
            Ok(()) => {
                self.stats.fixes += 1;
                self.naive.fix(&fixed);
                self.follow_ring()?;
                self.check_fixed(&fixed)?;
                self.verify()
            }
            Err(error) => {
                self.forget_load(&load);
                self.note(format!("  it failed: {error}"));
                self.attempted_fix = Some(fixed);
                // A doubted clock does not forget breakdowns by minute.
                match error {
                    Error::Fix(text) if text.contains("breakdowns by minute") => {
                        self.attempted_fix = None;
                        Ok(())
                    }
                    error => self.allow("a fix", &error.to_string()),
                }
            }
        }
    }

    /// Draws a fix of an old day whose minutes are kept.
    fn draw_fix(&mut self) -> Option<Fixed> {
        if self.attempted_fix.is_some() || !self.pending.is_empty() {
            return None;
        }
        let manifest = self.store().manifest();
        let kept = manifest.archive.generations.iter();
        let minutes_from = kept.map(|kept| kept.horizon().minutes_from).max();
        let minutes_from = minutes_from.unwrap_or(i64::MIN);
        let now = self.now_ms.div_euclid(1_000);
        let until = breakdowns_from(now, self.options.breakdown_hours);
        let of_log = self.naive.of_log();
        let mut buckets = of_log.buckets();
        buckets.retain(|(name, _, start)| {
            let day = Day::of(*start);
            name != clicks::MARKS && day.next().start() <= until && day.start() >= minutes_from
        });
        if buckets.is_empty() {
            return None;
        }
        let day = Day::of(self.chance.pick(&buckets).2);
        buckets.retain(|(_, _, start)| Day::of(*start) == day);
        let mut fixed = Fixed {
            day,
            version: manifest.archive.next_fix(day),
            plus: Book::default(),
            minus: Book::default(),
            actions: Vec::new(),
        };
        let mut taken = BTreeSet::new();
        for _ in 0..1 + self.chance.below(4) {
            let bucket = self.chance.pick(&buckets).clone();
            let total = of_log.total(&bucket.0, &bucket.1, bucket.2);
            let n = match self.chance.percent(50) {
                true => total,
                false => 1 + self.chance.below(total),
            };
            if taken.insert(bucket.clone()) {
                let chance = &mut self.chance;
                let more = &mut |end| chance.below(end);
                fixed.minus.take_from(&of_log, &bucket, n, more);
            }
        }
        self.draw_more(&mut fixed);
        (!fixed.plus.is_empty() || !fixed.minus.is_empty()).then_some(fixed)
    }

    /// Draws what a day counts more.
    fn draw_more(&mut self, fixed: &mut Fixed) {
        let schema = clicks::schema(self.schema);
        for _ in 0..self.chance.below(4) {
            let start = fixed.day.start();
            let mut increment = clicks::plain(&mut self.chance, schema, start);
            increment.at = start + self.chance.between(0, 86_399);
            increment.n = 1 + self.chance.below(5);
            let mut cells = cells(schema, &increment);
            cells.retain(|cell| {
                let by = cell.by.as_ref();
                by.is_none_or(|(subtotal, _)| of_by_minute(subtotal).is_none())
            });
            let is_large = cells.iter().any(|cell| {
                let total = self.naive.all.total(&cell.name, &cell.key, cell.start);
                cell.by.is_none() && total > COUNT_MAX / 2
            });
            let is_apart = cells.iter().all(|cell| {
                let by = cell.by.as_ref();
                by.is_none_or(|(subtotal, value)| {
                    let parts = subtotal.matches('*').count();
                    parts == 0 || value.matches('*').count() == parts
                })
            });
            if is_apart && !is_large {
                for cell in cells {
                    fixed.plus.add(&cell, increment.n);
                }
            }
        }
    }

    /// Writes a book as runs, one for each shard.
    fn write_runs(&self, load: &str, day: Day, book: &Book) -> Result<Vec<RunEntry>, String> {
        let shards = self.options.shards;
        let mut runs = Vec::new();
        for (shard, lines) in (0..).zip(self.lines_of(book)) {
            let spec = RunSpec {
                origin: Origin::Sorted(load.to_owned()),
                partition: Partition::month_of(day.code()),
                shard,
                shards,
                level: 1,
            };
            if lines.is_empty() {
                continue;
            }
            let write = || {
                let mut writer = RunWriter::create(&self.disk.blobs(), spec)?;
                for (key, payload) in &lines {
                    writer.push(key, payload)?;
                }
                writer.finish()
            };
            runs.extend(write().map_err(|error| error.to_string())?);
        }
        Ok(runs)
    }

    /// The lines of a book by shard.
    fn lines_of(&self, book: &Book) -> Vec<BTreeMap<Vec<u8>, Vec<u8>>> {
        let mut bytes = [0; 32];
        fixed_bytes(&mut bytes);
        let keys = LongKeys::new(bytes);
        let schema = clicks::schema(clicks::SCHEMAS - 1);
        let shards = self.options.shards;
        let mut lines = vec![BTreeMap::new(); shards.into()];
        let mut totals: BTreeMap<String, Vec<(TimeCode, u64)>> = BTreeMap::new();
        let mut values: BTreeMap<(String, String), BTreeMap<String, u64>> = BTreeMap::new();
        for (cell, n) in book.counters() {
            let namespace = schema.counted(&cell.name).expect("BUG: it is declared");
            let code = TimeCode::containing(cell.start, namespace.grain);
            let total = line::total_key(&cell.name, &keys.stored(&cell.key));
            let shard = usize::from(shard_of(total.as_bytes(), shards));
            let mut note = |raw: &str| {
                let stored = keys.stored(raw).into_owned();
                if is_hash(&stored) {
                    let text = line::escape(raw).into_bytes();
                    lines[shard].insert(line::lookup_key(&stored).into_bytes(), text);
                }
                stored
            };
            let stored = note(&cell.key);
            match &cell.by {
                None => totals.entry(total).or_default().push((code, n)),
                Some((subtotal, value)) => {
                    let prefix = line::subtotal_prefix(subtotal, &cell.name, &stored);
                    let value = match subtotal.contains('*') {
                        true => value.split('*').map(note).collect::<Vec<_>>().join("*"),
                        false => note(value),
                    };
                    let of_key = values.entry((total, format!("{prefix}{code}")));
                    *of_key.or_default().entry(value).or_insert(0) += n;
                }
            }
        }
        for (total, hours) in totals {
            let shard = usize::from(shard_of(total.as_bytes(), shards));
            let payload = total_payloads(&hours).remove(0);
            lines[shard].insert(total.into_bytes(), payload);
        }
        for ((total, key), values) in values {
            let shard = usize::from(shard_of(total.as_bytes(), shards));
            let mut values: Vec<(&[u8], u64)> = (values.iter())
                .map(|(value, n)| (value.as_bytes(), *n))
                .collect();
            let mut payload = Vec::new();
            write_subtotal(&mut payload, &mut values);
            lines[shard].insert(key.into_bytes(), payload);
        }
        lines
    }

    /// Compares all that a fix changed.
    pub(super) fn check_fixed(&self, fixed: &Fixed) -> Result<(), String> {
        let mut reads: Vec<Read> = Vec::new();
        let mut names = BTreeSet::new();
        for (name, key) in fixed.plus.keys().into_iter().chain(fixed.minus.keys()) {
            reads.push(whole(&name, &key, None));
            let subtotals = Self::subtotals(&name).iter().cloned();
            reads.extend(subtotals.map(|subtotal| whole(&name, &key, Some(subtotal))));
            names.insert(name);
        }
        self.check(&reads, None)?;
        let day = fixed.day.start()..fixed.day.next().start();
        let schema = self.store().schema();
        for name in names {
            self.compare_top(&name, &day, 5)?;
            if schema.namespace(&name).is_some_and(|known| known.minutes) {
                self.check_minutes(&name, &day)?;
                self.compare_top(&name, &(day.start + 120..day.end - 60), 5)?;
            }
        }
        Ok(())
    }
}
