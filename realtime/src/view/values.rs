//! The values of a subtotal over all keys of a namespace together, summed over a range.
//!
//! Files say these sums where they keep them; the lines of other files are read, and memory is. Counts without a value
//! are those that the totals have besides.

use std::ops::{ControlFlow, Range};

use hashbrown::HashMap;
use tallyring_records::line::entries;
use tallyring_records::{COUNT_MAX, TimeCode, missing_value};

use super::View;
use super::less::below_zero;
use super::minutes::Minutes;
use super::parts::File;
use super::read::Series;
use super::scan::Section;
use crate::budget::Charge;
use crate::delta::Delta;
use crate::error::Result;

/// Memory of a value besides its text, which stands there twice.
const VALUE_BYTES: usize = 128;

impl View<'_> {
    /// Reads all keys of a namespace together: totals by base bucket in `span`, and the values of a subtotal summed
    /// over `range` (Unix seconds), which lies within the span. The time grows with the number of values and files, and
    /// of keys in memory; files without sums are read as a whole. Fails as [`View::top`] does.
    pub fn values(
        &self,
        (namespace, subtotal): (&str, &str),
        span: Range<i64>,
        range: Range<i64>,
        as_of: Option<u64>,
    ) -> Result<Series> {
        let whole = Section::new(namespace, span, &Minutes::None);
        let sums = self.uncapped_totals(&whole, &self.sources(&whole, as_of)?)?;
        let totals = sums.totals;
        let section = Section::new(namespace, range, &Minutes::None);
        let sources = self.sources(&section, as_of)?;
        let mut values = Values::new(self, &section, subtotal);
        for delta in &sources.deltas {
            values.memory(delta)?;
        }
        for file in &sources.plus {
            values.file(*file)?;
        }
        if !sources.minus.is_empty() {
            let mut less = Values::new(self, &section, subtotal);
            for file in &sources.minus {
                less.file(*file)?;
            }
            if !values.take_away(&less) {
                return Err(below_zero(values.section.as_bytes(), &sources.minus));
            }
        }
        let within = totals
            .iter()
            .filter(|(code, _)| section.range.contains(&code.start()));
        let total = within.fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
        values.add_missing(total)?;
        let mut series = values.end();
        (series.totals, series.is_cut) = (totals.into_iter().collect(), sums.is_cut);
        series.runs = sources.plus.into_iter().map(File::kept).collect();
        Ok(series)
    }
}

/// Sums of values so far.
struct Values<'v> {
    view: &'v View<'v>,
    /// Prefix of the total keys of the namespace: `u|`.
    totals: &'v str,
    subtotal: &'v str,
    /// Prefix of the keys of the subtotal: `c.u|`.
    section: String,
    range: Range<i64>,
    numbers: HashMap<Box<[u8]>, u32>,
    /// By the number of the value.
    sums: Vec<u64>,
    charge: Charge,
}

impl<'v> Values<'v> {
    fn new(view: &'v View<'v>, section: &'v Section, subtotal: &'v str) -> Self {
        Self {
            view,
            totals: &section.name,
            subtotal,
            section: format!("{subtotal}.{}", section.name),
            range: section.range.clone(),
            numbers: HashMap::new(),
            sums: Vec::new(),
            charge: view.reading.charge(),
        }
    }

    fn add(&mut self, value: &[u8], count: u64) -> Result<()> {
        if let Some(&number) = self.numbers.get(value) {
            let sum = &mut self.sums[number as usize];
            *sum = sum.saturating_add(count);
            return Ok(());
        }
        self.charge.grow(VALUE_BYTES + 2 * value.len())?;
        let number = u32::try_from(self.sums.len()).expect("BUG: fewer than 2^32 values");
        self.numbers.insert(value.into(), number);
        self.sums.push(count);
        Ok(())
    }

    fn memory(&mut self, delta: &Delta) -> Result<()> {
        self.view.reading.check()?;
        let _charge = self.view.reading.charge_of(delta.most_of_values())?;
        let (range, mut refused) = (self.range.clone(), Ok(()));
        let of = (self.totals.as_bytes(), self.subtotal.as_bytes());
        let is_wanted = |code: TimeCode| range.contains(&code.start());
        delta.section_values(of, &is_wanted, &mut |value, sum| {
            if refused.is_ok() {
                refused = self.add(value, sum);
            }
        });
        refused
    }

    fn file(&mut self, file: File<'_>) -> Result<()> {
        self.view.reading.check()?;
        let File { run, cache, .. } = file;
        let meta = run.meta();
        // A run of the month before comes along, because a folded day reaches beyond its start.
        let has_none = meta.last < self.range.start || self.range.end <= meta.first;
        if has_none || !meta.sums.contains_key(&self.section) {
            return Ok(());
        }
        let range = self.range.clone();
        let (section, mut refused) = (self.section.clone(), Ok(()));
        let is_summed = run.sum_values(cache, section.as_bytes(), &range, &mut |value, sum| {
            if refused.is_ok() {
                refused = self.add(value, sum);
            }
        })?;
        refused?;
        match is_summed {
            true => Ok(()),
            false => self.lines(file),
        }
    }

    /// Adds what the lines of a run count.
    fn lines(&mut self, File { run, cache, .. }: File<'_>) -> Result<()> {
        let section = self.section.clone().into_bytes();
        let mut refused = Ok(());
        run.visit_prefix(cache, (&section, &section), &mut |key, payload| {
            if !key.starts_with(&section) {
                return ControlFlow::Break(());
            }
            let code = key.rsplit(|&byte| byte == b'.').next();
            let code = code.and_then(|code| TimeCode::parse(code).ok());
            if code.is_some_and(|code| self.range.contains(&code.start())) {
                for (value, count) in entries(payload).flatten() {
                    if refused.is_ok() {
                        refused = self.add(value, count);
                    }
                }
            }
            if refused.is_ok() {
                refused = self.view.reading.check();
            }
            match refused {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        })?;
        refused
    }

    /// Takes sums away. False where a value has less.
    fn take_away(&mut self, less: &Self) -> bool {
        less.numbers.iter().all(|(value, number)| {
            let less = less.sums[*number as usize];
            let own = self.numbers.get(value).copied();
            let sum = own.map(|own| &mut self.sums[own as usize]);
            let left = sum.and_then(|sum| Some((sum.checked_sub(less)?, sum)));
            left.map(|(left, sum)| *sum = left).is_some()
        })
    }

    /// Adds what a total counts besides the values.
    fn add_missing(&mut self, total: u64) -> Result<()> {
        let named = self
            .sums
            .iter()
            .fold(0_u64, |sum, of| sum.saturating_add(*of));
        match total.saturating_sub(named) {
            0 => Ok(()),
            rest => self.add(missing_value(self.subtotal).as_bytes(), rest),
        }
    }

    /// The values that count, numbered, with their sums.
    fn end(self) -> Series {
        let mut series = Series::default();
        let counted = |number: u32| self.sums[number as usize] > 0;
        for (value, number) in self.numbers.into_iter().filter(|(_, of)| counted(*of)) {
            let value = String::from_utf8_lossy(&value);
            series.values.push(value.into());
            series.sums.push(self.sums[number as usize].min(COUNT_MAX));
        }
        series.charges = vec![self.charge];
        series
    }
}
