//! Makes a summary while the lines of its section go by.

use std::mem;

use tallyring_records::{COUNT_MAX, Day, Grain, TimeCode, line};

use super::{HEAD, Summary, TOP, TOTALS, TopList};
use crate::run::index::LIST_BYTES_MAX;
use crate::run::meta::RunMeta;

/// Most keys in the lists of one span of a partition, over all its shards.
const KEYS_MAX: usize = 1_000;

/// A list has one key for so many counts of its span, so that lists stay small beside what they are made of.
const CELLS_A_KEY: u64 = 80;

/// A section that has fewer counts for each total gets no summary: its lines are read about as fast.
const CELLS_A_TOTAL: u64 = 16;

/// Grains of totals, and their minutes.
const GRAINS: [(Grain, u32); 3] = [
    (Grain::Day, MINUTES_A_DAY),
    (Grain::Hour, 60),
    (Grain::Quarter, 15),
];

const MINUTES_A_DAY: u32 = 1_440;

/// The sums and the heaviest keys of the lines so far.
#[derive(Default)]
pub(crate) struct Tally {
    /// First minute of the partition, from 2000 on.
    first: u32,
    /// Minutes of the partition.
    minutes: u32,
    /// Most keys in a list.
    most: usize,
    /// Sums of each grain, from the first bucket of the partition on.
    totals: [Vec<u128>; GRAINS.len()],
    top: Heaviest,
    /// The heaviest keys of each day of a month; none of a year.
    days: Vec<Heaviest>,
    key: Vec<u8>,
    /// Counts of the key in days of the run before `day`.
    of_key: Cells,
    /// The day of the last bucket, from the first day of the partition on.
    day: u32,
    of_day: Cells,
    /// Whether all buckets are such as a partition has.
    is_sound: bool,
}

/// Counts of one key, and their sum.
#[derive(Default)]
struct Cells {
    cells: u64,
    sum: u64,
}

impl Tally {
    /// A tally for a section of a run with this partition and number of shards.
    pub(crate) fn new(meta: &RunMeta) -> Self {
        let (start, end) = (meta.partition.start(), meta.partition.end());
        let first = TimeCode::containing(start, Grain::Day).minutes();
        let minutes = u32::try_from((end - start) / 60).unwrap_or(0);
        let days = match meta.partition.is_year() {
            true => 0,
            false => minutes / MINUTES_A_DAY,
        };
        Self {
            first,
            minutes,
            most: KEYS_MAX.div_ceil(usize::from(meta.shards).max(1)),
            days: (0..days).map(|_| Heaviest::default()).collect(),
            is_sound: true,
            ..Self::default()
        }
    }

    /// Begins a line of the section with this stored key. Keys ascend; equal ones follow each other.
    pub(crate) fn begin(&mut self, stored: &[u8]) {
        if self.key != stored {
            self.end_key();
            self.key.clear();
            self.key.extend_from_slice(stored);
        }
    }

    /// Adds a bucket of the line.
    #[inline]
    pub(crate) fn count(&mut self, code: TimeCode, count: u64) {
        let at = code.minutes().wrapping_sub(self.first);
        let (grain, place) = match code.grain() {
            Grain::Day => (0, at / MINUTES_A_DAY),
            Grain::Hour => (1, at / 60),
            Grain::Quarter => (2, at / 15),
            Grain::Minute => (0, u32::MAX),
        };
        if at >= self.minutes || place == u32::MAX {
            self.is_sound = false;
            return;
        }
        let totals = &mut self.totals[grain];
        let place = place as usize;
        if place >= totals.len() {
            totals.resize(place + 1, 0);
        }
        totals[place] += u128::from(count);
        let day = at / MINUTES_A_DAY;
        if day != self.day {
            self.end_day();
            self.day = day;
        }
        self.of_day.cells += 1;
        self.of_day.sum = self.of_day.sum.saturating_add(count);
    }

    fn end_day(&mut self) {
        let Cells { cells, sum } = mem::take(&mut self.of_day);
        if let Some(day) = self.days.get_mut(self.day as usize) {
            day.offer(&self.key, Cells { cells, sum }, self.most);
        }
        self.of_key.cells += cells;
        self.of_key.sum = self.of_key.sum.saturating_add(sum);
    }

    fn end_key(&mut self) {
        self.end_day();
        let of_key = mem::take(&mut self.of_key);
        self.top.offer(&self.key, of_key, self.most);
    }

    /// The text of the summary of this section; none where it is not worth its bytes, or cannot be said.
    pub(crate) fn text(mut self, section: &[u8]) -> Option<Vec<u8>> {
        self.end_key();
        let totals = self.take_totals();
        let is_worth = self.top.cells >= CELLS_A_TOTAL * totals.len() as u64;
        (self.is_sound && is_worth && !totals.is_empty()).then_some(())?;
        let mut text = [HEAD, section, b"\n", TOTALS].concat();
        for (number, (code, sum)) in totals.into_iter().enumerate() {
            if number > 0 {
                text.push(b' ');
            }
            code.write_to(&mut text);
            text.extend_from_slice(format!(":{sum}").as_bytes());
        }
        text.push(b'\n');
        text.extend_from_slice(TOP);
        self.top.write(&mut text, self.most)?;
        for (number, day) in (0..).zip(self.days) {
            if day.cells > 0 {
                text.extend_from_slice(TOP);
                let first = self.first / MINUTES_A_DAY;
                Day::from_number(first + number).code().write_to(&mut text);
                text.push(b' ');
                day.write(&mut text, self.most)?;
            }
        }
        (text.len() <= LIST_BYTES_MAX as usize).then_some(text)
    }

    /// Whether a summary says what the lines say, however long its lists are.
    pub(crate) fn agrees_with(mut self, summary: &Summary) -> bool {
        self.end_key();
        let (most, first) = (self.most, self.first / MINUTES_A_DAY);
        let totals = self.take_totals();
        let agrees = |of: Heaviest, list: Option<TopList<'_>>| {
            list.is_none_or(|list| of.begins_with(list, most))
        };
        let mut days = (first..).zip(self.days);
        self.is_sound
            && summary.totals().eq(totals)
            && agrees(self.top, Some(summary.top()))
            && days.all(|(day, of)| agrees(of, summary.top_of(Day::from_number(day))))
    }

    /// The sums of buckets that count, ascending.
    fn take_totals(&mut self) -> Vec<(TimeCode, u128)> {
        let mut all = Vec::new();
        for ((grain, minutes), totals) in GRAINS.into_iter().zip(mem::take(&mut self.totals)) {
            let starts = (self.first..).step_by(minutes as usize);
            let codes = starts.map(|start| TimeCode::from_minutes(start, grain));
            all.extend(codes.zip(totals).filter(|&(_, sum)| sum > 0));
        }
        all.sort_unstable_by_key(|&(code, _)| code);
        all
    }
}

/// The heaviest keys of a span. Keys come ascending, so a later key of an equal count comes behind.
#[derive(Default)]
struct Heaviest {
    /// Twice as many keys as a list has, at most.
    keys: Vec<(u64, Box<[u8]>)>,
    /// As many keys as a list has count at least this.
    least: u64,
    /// The most that a key counts that was left out.
    rest: u64,
    cells: u64,
}

impl Heaviest {
    #[inline]
    fn offer(&mut self, key: &[u8], Cells { cells, sum }: Cells, most: usize) {
        self.cells += cells;
        let sum = sum.min(COUNT_MAX);
        if sum <= self.least {
            self.rest = self.rest.max(sum);
            return;
        }
        self.keys.push((sum, key.into()));
        if self.keys.len() >= 2 * most {
            self.shorten(most);
        }
    }

    /// Leaves out all but the `most` heaviest keys.
    fn shorten(&mut self, most: usize) {
        if self.keys.len() <= most {
            return;
        }
        let by_rank =
            |a: &(u64, Box<[u8]>), b: &(u64, Box<[u8]>)| b.0.cmp(&a.0).then(a.1.cmp(&b.1));
        let (kept, next, _) = self.keys.select_nth_unstable_by(most, by_rank);
        self.rest = self.rest.max(next.0);
        self.least = kept.iter().map(|(sum, _)| *sum).min().unwrap_or(0);
        self.keys.truncate(most);
    }

    /// Whether the list has the heaviest keys, and its rest is the largest count of the others.
    fn begins_with(mut self, list: TopList<'_>, most: usize) -> bool {
        self.shorten(most);
        self.sort();
        let listed: Vec<(&[u8], u64)> = list.keys().collect();
        let keys = self.keys.iter().map(|(sum, key)| (&**key, *sum));
        let next = self.keys.get(listed.len());
        listed.len() <= self.keys.len()
            && keys.zip(&listed).all(|(key, listed)| key == *listed)
            && list.rest == next.map_or(self.rest, |(sum, _)| *sum)
    }

    fn sort(&mut self) {
        self.keys
            .sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    }

    /// Appends the rest and the keys; none where a key cannot be said.
    fn write(mut self, text: &mut Vec<u8>, most: usize) -> Option<()> {
        let cells = usize::try_from(self.cells / CELLS_A_KEY).unwrap_or(usize::MAX);
        self.shorten(most.min(cells.max(1)));
        self.sort();
        text.extend_from_slice(self.rest.to_string().as_bytes());
        for (sum, key) in &self.keys {
            (!key.is_empty() && !key.contains(&b' ')).then_some(())?;
            line::push_entry(text, false, key, *sum);
        }
        text.push(b'\n');
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::run::meta::Sums;
    use crate::run::summary::checked;

    fn tally(count_of: impl Fn(u32) -> u64) -> Tally {
        let mut tally = Tally::new(&RunMeta {
            partition: "2012-04".parse().unwrap(),
            shard: 0,
            shards: 10,
            lines: 0,
            plain_bytes: 0,
            first: 0,
            last: 0,
            sums: Sums::new(),
            compression: String::new(),
        });
        for key in 0..400 {
            tally.begin(format!("k{key:03}").as_bytes());
            tally.count("c41l".parse().unwrap(), count_of(key));
            tally.count("c42l".parse().unwrap(), 1);
        }
        tally
    }

    fn summary(text: &str) -> Summary {
        let lines = checked(text.as_bytes().to_vec(), b"u|").expect("a summary");
        Summary::of(Arc::new(lines))
    }

    #[test]
    fn a_summary_that_says_otherwise_than_the_lines_is_told_whatever_its_lengths() {
        let count_of = |key: u32| u64::from(1 + key % 50);
        let text = tally(count_of).text(b"u|").expect("a summary");
        let text = String::from_utf8(text).unwrap();
        let expected = [
            "summary u|",
            "totals c41l:10200 c42l:400",
            "top 50 k049:51 k099:51 k149:51 k199:51 k249:51 k299:51 k349:51 k399:51 k048:50 k098:50",
            "top c41 50 k049:50 k099:50 k149:50 k199:50 k249:50",
            "top c42 1 k000:1 k001:1 k002:1 k003:1 k004:1",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
        assert!(tally(count_of).agrees_with(&summary(&text)));
        let agrees = |right: &str, other: &str| {
            let other_text = text.replacen(right, other, 1);
            assert_ne!(other_text, text);
            tally(count_of).agrees_with(&summary(&other_text))
        };
        assert!(agrees(" k199:50 k249:50", ""), "a shorter list is right");
        assert!(!agrees("c42l:400", "c42l:401"));
        assert!(!agrees("top 50 ", "top 49 "));
        assert!(!agrees("k049:51", "k050:51"));
        assert!(!agrees("k000:1 k001:1", "k000:1"));
        assert!(!tally(|key| count_of(key) + 1).agrees_with(&summary(&text)));
    }
}
