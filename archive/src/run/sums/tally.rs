//! Makes sums of values while the lines of their section go by.

use std::mem;

use hashbrown::HashMap;
use tallyring_records::TimeCode;

use super::{COUNTS, Part, SUMS, Step, Sums, TIMES, VALUES, span_of, split_time};
use crate::error::Result;
use crate::run::cache::BlockCache;
use crate::run::columns::{Columns, push_number, take_number};
use crate::run::reader::Run;

/// Most values of a section that has sums.
const VALUES_MAX: usize = 1 << 16;
/// Most sums by time: 16 MiB of memory. Where base buckets have more, days are summed; where days have more, none are.
const CELLS_MAX: usize = 1 << 21;

/// The sums of the lines so far.
pub(crate) struct ValueTally {
    numbers: HashMap<Box<[u8]>, u32>,
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
    /// Sums by the number of the value, at each time.
    columns: Vec<(TimeCode, Vec<u64>)>,
    cells: usize,
    /// The place of the bucket of the line, once it has counted.
    place: Option<u32>,
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
            numbers: HashMap::new(),
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
        let number = match self.numbers.get(value) {
            Some(&number) => number as usize,
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
        if is_last || memchr::memchr2(b' ', b'\n', value).is_some() {
            self.is_sound = false;
            (self.numbers, self.sums, self.times) = Default::default();
            return None;
        }
        self.numbers.insert(value.into(), number as u32);
        self.sums.push(0);
        Some(number)
    }

    /// The texts of the sums of this section, and of those by time from the finest step on. `list` is the text of its
    /// list of values, each with a line end. None where the sums cannot be said.
    pub(in crate::run) fn texts(mut self, section: &[u8], list: &[u8]) -> Option<Texts> {
        (self.is_sound && !self.sums.is_empty()).then_some(())?;
        let mut order: Vec<u32> = Vec::with_capacity(self.sums.len());
        for listed in list
            .split(|&byte| byte == b'\n')
            .filter(|of| !of.is_empty())
        {
            order.push(self.numbers.remove(listed)?);
        }
        let mut own: Vec<(Box<[u8]>, u32)> = mem::take(&mut self.numbers).into_iter().collect();
        own.sort_unstable();
        let mut text = [SUMS, section, b"\n", VALUES].concat();
        for (value, number) in own {
            order.push(number);
            text.extend_from_slice(&value);
            text.push(b' ');
        }
        let mut columns = Columns {
            ends: vec![text.len()],
            text,
        };
        columns.text.push(b'\n');
        columns.text.extend_from_slice(COUNTS);
        for &number in &order {
            push_number(&mut columns.text, self.sums[number as usize]);
        }
        columns.text.push(b'\n');
        columns.ends.push(columns.text.len());
        Some(Texts {
            sums: columns,
            section: section.into(),
            order,
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
        let mut order = Vec::with_capacity(values.len());
        for value in values {
            let number = self.numbers.remove(value);
            let sum = number.map(|number| self.sums[number as usize]);
            if sum.is_none() || take_number(&mut counts) != sum {
                return Ok(false);
            }
            order.extend(number);
        }
        let times = run.named_list(cache, &Part::Times.key(section))?;
        let (Some(times), Some(own)) = (times, &mut self.times) else {
            return Ok(self.numbers.is_empty());
        };
        let lines = times.lines();
        own.sort();
        let mut columns = own.columns.iter();
        let is_alike = (1..lines.len()).all(|at| {
            let (own, line) = (columns.next(), split_time(lines.line(at)));
            own.zip(line).is_some_and(|((code, sums), (said, counts))| {
                let mut text = Vec::new();
                write_counts(&mut text, &order, sums);
                *code == said && text == counts
            })
        });
        Ok(is_alike && columns.next().is_none() && self.numbers.is_empty())
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
        for (code, sums) in &times.columns {
            code.write_to(&mut text);
            text.push(b' ');
            write_counts(&mut text, &self.order, sums);
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
        let sums = &mut self.columns[place as usize].1;
        if sums.len() <= number {
            self.cells += number + 1 - sums.len();
            sums.resize(number + 1, 0);
        }
        sums[number] = sums[number].saturating_add(count);
    }

    fn find(&mut self, code: TimeCode) -> u32 {
        let code = span_of(code, self.step);
        let columns = &mut self.columns;
        let place = *self.places.entry(code).or_insert_with(|| {
            columns.push((code, Vec::new()));
            columns.len() as u32 - 1
        });
        self.place = Some(place);
        place
    }

    /// These sums by day.
    fn by_day(&mut self) -> Self {
        let mut days = Self::new(Step::Days);
        for (code, sums) in mem::take(&mut self.columns) {
            days.place = None;
            for (number, &sum) in sums.iter().enumerate().filter(|(_, sum)| **sum > 0) {
                days.count(code, number, sum);
            }
        }
        days.place = None;
        days
    }

    /// Brings the times in order. Nothing can be counted then.
    fn sort(&mut self) {
        self.columns.sort_unstable_by_key(|(code, _)| *code);
    }
}

/// Appends the sums of values in this order, without zeros at the end.
fn write_counts(text: &mut Vec<u8>, order: &[u32], sums: &[u64]) {
    let mut end = text.len();
    for &number in order {
        let sum = sums.get(number as usize).copied().unwrap_or(0);
        push_number(text, sum);
        if sum > 0 {
            end = text.len();
        }
    }
    text.truncate(end);
}
