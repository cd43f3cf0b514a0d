//! Makes sums of values while the lines of their section go by.

use std::mem;

use hashbrown::HashMap;
use tallyring_records::{Interner, TimeCode};

use super::{COUNTS, Part, SUMS, Step, Sums, TIMES, VALUES, span_of, split_time};
use crate::error::Result;
use crate::run::cache::BlockCache;
use crate::run::columns::{Columns, push_number, take_number};
use crate::run::reader::Run;

/// Most values of a section that has sums.
const VALUES_MAX: usize = 1 << 16;
/// Longest value that is summed, bytes; no stored value is as long.
const VALUE_BYTES_MAX: usize = u16::MAX as usize;
/// Most sums by time: 8 MiB of memory. Where base buckets have more, days are summed; where days have more, none are.
const CELLS_MAX: usize = 1 << 21;

/// The sums of the lines so far.
pub(crate) struct ValueTally {
    values: Interner,
    /// Sum of each value.
    sums: Vec<u64>,
    times: Option<Times>,
    /// The bucket of the line that goes by.
    code: Option<TimeCode>,
    /// Most sums by time.
    cells_max: usize,
    /// Whether all sums can be said.
    is_sound: bool,
}

/// Sums by time.
struct Times {
    step: Step,
    places: HashMap<TimeCode, u32>,
    columns: Vec<Column>,
    cells: usize,
    /// The place of the bucket of the line, once it has counted.
    place: Option<u32>,
}

/// Sums of a time by the number of the value. Nearly all are below 2^32, so two of them take the place of one.
struct Column {
    code: TimeCode,
    low: Vec<u32>,
    /// The higher bits of sums that have some.
    high: HashMap<u32, u32>,
}

/// Numbers of values in some order.
struct Order {
    numbers: Vec<u32>,
    has: Vec<bool>,
}

impl ValueTally {
    /// A tally for a section of a run that is written.
    pub(crate) fn new() -> Self {
        Self::by(Some(Step::Buckets), CELLS_MAX)
    }

    /// A tally to compare with a run that keeps sums by this step.
    pub(crate) fn to_compare(step: Option<Step>) -> Self {
        Self::by(step, usize::MAX)
    }

    fn by(step: Option<Step>, cells_max: usize) -> Self {
        Self {
            values: Interner::default(),
            sums: Vec::new(),
            times: step.map(Times::new),
            code: None,
            cells_max,
            is_sound: true,
        }
    }

    /// Begins a line of a base bucket.
    pub(crate) fn begin(&mut self, code: TimeCode) {
        self.code = Some(code);
        if let Some(times) = &mut self.times {
            times.place = None;
            if times.cells > self.cells_max {
                self.times = match times.step {
                    Step::Buckets => Some(times.by_day()),
                    Step::Days => None,
                };
            }
        }
    }

    /// Adds a count of the line.
    #[inline]
    pub(crate) fn count(&mut self, value: &[u8], count: u64) {
        if !self.is_sound || count == 0 {
            return;
        }
        let number = match self.values.find(value) {
            Some(number) => number as usize,
            None => match self.add(value) {
                Some(number) => number,
                None => return,
            },
        };
        let sum = self.sums[number].checked_add(count);
        self.is_sound &= sum.is_some();
        self.sums[number] = sum.unwrap_or(0);
        if let Some((times, code)) = self.times.as_mut().zip(self.code) {
            // No sum of a time is larger than that of the run.
            times.count(code, number, count);
        }
    }

    /// Numbers a value; none where there are too many.
    fn add(&mut self, value: &[u8]) -> Option<usize> {
        let number = self.sums.len();
        let is_last = number >= VALUES_MAX && self.cells_max < usize::MAX;
        if is_last || value.len() > VALUE_BYTES_MAX || memchr::memchr2(b' ', b'\n', value).is_some()
        {
            self.is_sound = false;
            (self.values, self.sums, self.times) = Default::default();
            return None;
        }
        self.values.intern(value);
        self.sums.push(0);
        Some(number)
    }

    /// The texts of the sums of this section, and of those by time from the finest step on. `list` is the text of its
    /// list of values, each with a line end. None where the sums cannot be said.
    pub(in crate::run) fn texts(self, section: &[u8], list: &[u8]) -> Option<Texts> {
        (self.is_sound && !self.sums.is_empty()).then_some(())?;
        let mut order = Order::of(self.sums.len());
        let lines = list.split(|&byte| byte == b'\n');
        for listed in lines.filter(|of| !of.is_empty()) {
            order.push(self.values.find(listed)?)?;
        }
        let values = &self.values;
        let mut own: Vec<(&[u8], u32)> = order
            .missing()
            .map(|number| (values.get(number), number))
            .collect();
        own.sort_unstable();
        let mut text = [SUMS, section, b"\n", VALUES].concat();
        for (value, number) in own {
            order.push(number)?;
            text.extend_from_slice(value);
            text.push(b' ');
        }
        let mut columns = Columns {
            ends: vec![text.len()],
            text,
        };
        columns.text.push(b'\n');
        columns.text.extend_from_slice(COUNTS);
        for &number in &order.numbers {
            push_number(&mut columns.text, self.sums[number as usize]);
        }
        columns.text.push(b'\n');
        columns.ends.push(columns.text.len());
        Some(Texts {
            sums: columns,
            section: section.into(),
            order: order.numbers,
            times: self.times,
        })
    }

    /// Whether the sums of a run say what the lines say.
    pub(crate) fn agrees_with(
        mut self,
        run: &Run,
        cache: &BlockCache,
        section: &[u8],
    ) -> Result<bool> {
        let Some(sums) = Sums::of(run, cache, section)? else {
            return Ok(true);
        };
        let (values, mut counts) = (sums.values()?, sums.counts());
        let mut order = Order::of(self.sums.len());
        for value in values {
            let number = self.values.find(value);
            let sum = number.map(|number| self.sums[number as usize]);
            let is_alike = sum.is_some() && take_number(&mut counts) == sum;
            if !is_alike || number.and_then(|number| order.push(number)).is_none() {
                return Ok(false);
            }
        }
        let is_whole = order.missing().next().is_none();
        let times = run.named_list(cache, &Part::Times.key(section))?;
        let (Some(times), Some(own)) = (times, &mut self.times) else {
            return Ok(is_whole);
        };
        let lines = times.lines();
        own.sort();
        let mut columns = own.columns.iter();
        let is_alike = (1..lines.len()).all(|at| {
            let (own, line) = (columns.next(), split_time(lines.line(at)));
            own.zip(line).is_some_and(|(own, (said, counts))| {
                let mut text = Vec::new();
                write_counts(&mut text, &order.numbers, own);
                own.code == said && text == counts
            })
        });
        Ok(is_alike && columns.next().is_none() && is_whole)
    }
}

/// The texts of the sums of a section.
pub(in crate::run) struct Texts {
    pub sums: Columns,
    section: Box<[u8]>,
    /// Numbers of the values in the order of the text.
    order: Vec<u32>,
    times: Option<Times>,
}

impl Texts {
    /// The sums by the finest step; the next call gives those by a coarser one. None where there is none.
    pub(in crate::run) fn next_times(&mut self) -> Option<Columns> {
        let mut times = self.times.take()?;
        times.sort();
        let mut text = [TIMES, &self.section, b" ", times.step.name(), b"\n"].concat();
        for column in &times.columns {
            column.code.write_to(&mut text);
            text.push(b' ');
            write_counts(&mut text, &self.order, column);
            text.push(b'\n');
        }
        self.times = (times.step == Step::Buckets).then(|| times.by_day());
        let ends = vec![text.len()];
        Some(Columns { text, ends })
    }
}

impl Times {
    fn new(step: Step) -> Self {
        Self {
            step,
            places: HashMap::new(),
            columns: Vec::new(),
            cells: 0,
            place: None,
        }
    }

    #[inline]
    fn count(&mut self, code: TimeCode, number: usize, count: u64) {
        let place = match self.place {
            Some(place) => place,
            None => self.find(code),
        };
        let column = &mut self.columns[place as usize];
        if column.low.len() <= number {
            self.cells += number + 1 - column.low.len();
            column.low.resize(number + 1, 0);
        }
        let low = u64::from(column.low[number]) + (count & u64::from(u32::MAX));
        column.low[number] = low as u32;
        let high = (low >> 32) + (count >> 32);
        if high > 0 {
            column.add_high(number as u32, high as u32);
        }
    }

    fn find(&mut self, code: TimeCode) -> u32 {
        let code = span_of(code, self.step);
        let columns = &mut self.columns;
        let place = *self.places.entry(code).or_insert_with(|| {
            columns.push(Column {
                code,
                low: Vec::new(),
                high: HashMap::new(),
            });
            columns.len() as u32 - 1
        });
        self.place = Some(place);
        place
    }

    /// These sums by day.
    fn by_day(&mut self) -> Self {
        let mut days = Self::new(Step::Days);
        for column in mem::take(&mut self.columns) {
            days.place = None;
            for number in 0..column.low.len() {
                let sum = column.sum(number as u32);
                if sum > 0 {
                    days.count(column.code, number, sum);
                }
            }
        }
        days.place = None;
        days
    }

    /// Brings the times in order. Nothing can be counted then.
    fn sort(&mut self) {
        self.columns.sort_unstable_by_key(|column| column.code);
    }
}

impl Column {
    fn sum(&self, number: u32) -> u64 {
        let low = self.low.get(number as usize).copied().unwrap_or(0);
        let high = match self.high.is_empty() {
            true => 0,
            false => self.high.get(&number).copied().unwrap_or(0),
        };
        u64::from(high) << 32 | u64::from(low)
    }

    #[cold]
    fn add_high(&mut self, number: u32, high: u32) {
        // No sum of a time is larger than that of the run, which is checked.
        let known = self.high.entry(number).or_default();
        *known = known.saturating_add(high);
    }
}

impl Order {
    /// An order of numbers below `count`, empty at first.
    fn of(count: usize) -> Self {
        Self {
            numbers: Vec::with_capacity(count),
            has: vec![false; count],
        }
    }

    /// Adds a number; none where it was there.
    fn push(&mut self, number: u32) -> Option<()> {
        let was_there = mem::replace(&mut self.has[number as usize], true);
        self.numbers.push(number);
        (!was_there).then_some(())
    }

    /// Numbers that are not there.
    fn missing(&self) -> impl Iterator<Item = u32> {
        let numbers = (0..).zip(&self.has);
        numbers.filter(|(_, has)| !**has).map(|(number, _)| number)
    }
}

/// Appends the sums of values in this order, without zeros at the end.
fn write_counts(text: &mut Vec<u8>, order: &[u32], sums: &Column) {
    let mut end = text.len();
    for &number in order {
        let sum = sums.sum(number);
        push_number(text, sum);
        if sum > 0 {
            end = text.len();
        }
    }
    text.truncate(end);
}
