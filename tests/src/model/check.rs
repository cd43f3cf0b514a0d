//! Comparisons of the store with its model, and of the files with the manifest.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::AtomicBool;

use tallyring_archive::{names, verify_run};
use tallyring_realtime::{Effort, KeyPlace, KeySearch, KeyText, Read, Store};
use tallyring_records::{
    COUNT_MAX, Day, MINUTES, TIME_MAX, TIME_MIN, breakdowns_from, by_minute as by_minute_of,
};

use super::book::{Book, Wrong, texts_of};
use super::datasets::wanted_of;
use super::naive::Files;
use super::{Driver, clicks};

/// Answers of a kept generation that are compared again although its files have the same bytes.
const COMPARED_AGAIN: usize = 20;

impl Driver {
    /// Compares a few keys, those of one namespace with those of another in one answer.
    pub(super) fn check_some(&mut self) -> Result<(), String> {
        let keys = self.naive.all.keys();
        if keys.is_empty() {
            return Ok(());
        }
        let mut reads = Vec::new();
        for _ in 0..3 {
            let (name, key) = self.chance.pick(&keys).clone();
            let mut subtotals: Vec<Option<String>> = vec![None];
            subtotals.extend(Self::subtotals(&name).iter().cloned().map(Some));
            let subtotal = self.chance.pick(&subtotals).clone();
            reads.push(self.ranged(name, key, subtotal));
        }
        reads.push(self.ranged("l".into(), "never counted".into(), Some("c".into())));
        self.check(&reads, None)?;
        let numbers: Vec<u64> = self.naive.generations.keys().copied().collect();
        if !numbers.is_empty() {
            let number = *self.chance.pick(&numbers);
            self.check(&reads, Some(number))?;
        }
        Ok(())
    }

    /// Compares what a few users did, in a range that begins and ends at any second.
    pub(super) fn check_actions(&mut self) -> Result<(), String> {
        if self.naive.actions.is_empty() {
            return Ok(());
        }
        let users = clicks::users();
        let few: Vec<String> = (0..3).map(|_| self.chance.pick(&users).clone()).collect();
        let span = self.naive.actions.span();
        let from = self.chance.between(span.start, span.end);
        let longest = *self.chance.pick(&[3_600, 86_400, 40 * 86_400]);
        let range = from..from + self.chance.between(1, longest);
        self.compare_actions(&few, &range)
    }

    fn compare_actions(&self, users: &[String], range: &Range<i64>) -> Result<(), String> {
        let manifest = self.store().manifest();
        let newest = manifest.archive.generations.last();
        let exact_from = newest.map_or(i64::MIN, |newest| newest.horizon().actions_from);
        let oracle = &self.naive.actions;
        self.compared.set(self.compared.get() + users.len() as u64);
        oracle
            .check(&self.store().view(), users, range, exact_from)
            .map(drop)
    }

    /// Compares the heaviest keys of a namespace, and the sum of all of them, around today or over a long time. Ranges
    /// are whole hours, or where minutes are kept hours and minutes.
    pub(super) fn check_top(&mut self) -> Result<(), String> {
        let keys = self.naive.all.keys();
        if keys.is_empty() {
            return Ok(());
        }
        if self.chance.percent(50) {
            let learned = self
                .store()
                .live()
                .learn_heavy_keys(&AtomicBool::new(false));
            learned.map_err(|error| error.to_string())?;
        }
        let (name, _) = self.chance.pick(&keys).clone();
        let limit = 1 + self.chance.below(6);
        let limit = usize::try_from(limit).map_err(|error| error.to_string())?;
        let today = self.store().status().today;
        let from = today.start() + 3_600 * self.chance.between(-30, 40);
        let mut range = from..from + 3_600 * self.chance.between(1, 48);
        let schema = self.store().schema();
        let has_minutes = schema.namespace(&name).is_some_and(|known| known.minutes);
        self.compare_values(&name, &range)?;
        if has_minutes {
            self.check_minutes(&name, &range)?;
            if self.chance.percent(60) {
                range.start += 60 * self.chance.between(0, 59);
                range.end = range.start + 60 * self.chance.between(1, 200);
            }
        } else if self.chance.percent(40) {
            // Old hours are folded into days, so the range begins with a day.
            let day = Day::of(range.start - 86_400 * self.chance.between(0, 500));
            range.start = range.start.min(day.start());
        }
        self.compare_found(&name, &range, has_minutes)?;
        self.compare_top(&name, &range, limit)
    }

    /// Compares the keys of a namespace that have a part of some key, in a range.
    fn compare_found(
        &mut self,
        name: &str,
        range: &Range<i64>,
        has_minutes: bool,
    ) -> Result<(), String> {
        let (_, key) = self.chance.pick(&self.naive.all.keys()).clone();
        let part: String = key
            .chars()
            .take(1 + self.chance.below(3) as usize)
            .collect();
        let text = match self.chance.below(3) {
            0 => KeyText::Any,
            1 => KeyText::Prefix(part.clone()),
            _ => KeyText::Contains(part.clone()),
        };
        let expected = self.naive.all.ranking(name, range).into_iter();
        let expected: BTreeMap<String, u64> = expected
            .filter(|(key, _)| match text {
                KeyText::Any => true,
                KeyText::Prefix(_) => key.starts_with(&part),
                KeyText::Contains(_) => {
                    let (key, part) = (key.to_ascii_lowercase(), part.to_ascii_lowercase());
                    key.contains(&part)
                }
            })
            .map(|(key, count)| (key.to_owned(), count.min(COUNT_MAX)))
            .collect();
        let mut read = whole(name, "", has_minutes.then(|| MINUTES.to_owned()));
        let whole_hours = |at: i64| at - at.rem_euclid(3_600);
        (read.from, read.to) = (whole_hours(range.start), whole_hours(range.end + 3_599));
        let search = KeySearch {
            text: &text,
            periods: &[(read, range.clone())],
            as_of: None,
            at_once: 1 + self.chance.below(4) as usize,
        };
        let (mut found, mut next) = (BTreeMap::new(), Some(KeyPlace::default()));
        while let Some(from) = next {
            // Each page ends with its first round.
            let mut effort = Effort::new(0, &|| true);
            let view = self.store().view();
            let searched = view.find_keys(&search, from, &mut effort, &mut |of| {
                found.insert(of.key, of.counts[0]);
                Ok(ControlFlow::Continue(()))
            });
            next = searched.map_err(|error| error.to_string())?.next;
        }
        match found == expected {
            true => Ok(()),
            false => Err(format!(
                "{text:?} of {name} in {range:?}: found {found:?}, expected {expected:?}"
            )),
        }
    }

    /// Compares the values of each subtotal over all keys of a namespace, in a range of whole hours.
    fn compare_values(&self, name: &str, range: &Range<i64>) -> Result<(), String> {
        let reader = self.store().view();
        for subtotal in Self::subtotals(name) {
            let mut expected: BTreeMap<String, u64> = BTreeMap::new();
            for (_, key) in self.naive.all.keys().iter().filter(|(of, _)| of == name) {
                let mut read = whole(name, key, Some(subtotal.clone()));
                (read.from, read.to) = (range.start, range.end);
                for (_, value, count) in self.naive.all.expected(&read).1 {
                    let sum = expected.entry(value.into_owned()).or_default();
                    *sum = (*sum + count).min(COUNT_MAX);
                }
            }
            let series = reader.values((name, subtotal), range.clone(), range.clone(), None);
            let series = series.map_err(|error| error.to_string())?;
            let texts = texts_of(&reader, &series).map_err(Wrong::text)?;
            let found: BTreeMap<String, u64> = texts.into_iter().zip(series.sums.clone()).collect();
            if found != expected {
                return Err(format!(
                    "{name} by {subtotal} in {range:?}: found {found:?}, expected {expected:?}"
                ));
            }
        }
        Ok(())
    }

    /// Compares the heaviest keys of a namespace in a range.
    pub(super) fn compare_top(
        &self,
        name: &str,
        range: &Range<i64>,
        limit: usize,
    ) -> Result<(), String> {
        let schema = self.store().schema();
        let has_minutes = schema.namespace(name).is_some_and(|known| known.minutes);
        let found = self
            .store()
            .view()
            .top(name, range.clone(), has_minutes, (limit, false), None);
        let found = found.map_err(|error| error.to_string())?;
        let expected = self.naive.all.ranking(name, range);
        let counts = |keys: &[(&str, u64)]| -> Vec<u64> {
            keys.iter().take(limit).map(|&(_, count)| count).collect()
        };
        let listed: Vec<(&str, u64)> = found
            .keys
            .iter()
            .map(|top| (top.key.as_str(), top.count))
            .collect();
        let sum: u64 = expected.iter().map(|&(_, count)| count).sum();
        let right = listed.iter().all(|listed| expected.contains(listed))
            && counts(&listed) == counts(&expected)
            && found.bound.is_none()
            && found.total == sum.min(COUNT_MAX);
        match right {
            true => Ok(()),
            false => Err(format!(
                "the top {limit} of {name} in {range:?}: found {found:?}, expected {expected:?}"
            )),
        }
    }

    /// Compares the values of a key by minute. They are exact for the last hours, and earlier ones may be forgotten,
    /// but never in part without a rest that says so.
    pub(super) fn check_breakdown(&mut self) -> Result<(), String> {
        let by_minute = |(name, _): &(String, String)| !clicks::by_minute(name).is_empty();
        let keys = self.naive.all.keys();
        let keys: Vec<_> = keys.into_iter().filter(by_minute).collect();
        if keys.is_empty() {
            return Ok(());
        }
        if self.chance.percent(30) {
            let now = self.now_ms.div_euclid(1_000);
            self.store().live().forget_breakdowns(now);
        }
        let (name, key) = self.chance.pick(&keys).clone();
        let subtotal = self.chance.pick(clicks::by_minute(&name)).clone();
        let hours = self.options.breakdown_hours;
        let exact_from = match hours {
            0 => i64::MAX,
            hours => breakdowns_from(self.latest_ms.div_euclid(1_000), hours),
        };
        let read = whole(&name, &key, Some(by_minute_of(&subtotal)));
        let checked =
            self.naive
                .all
                .check_by_minute(self.store(), &read, exact_from, &self.naive.fixed);
        self.compared.set(self.compared.get() + 1);
        checked.map_err(Wrong::text)
    }

    /// Compares the sums of all keys of a namespace by the minute.
    pub(super) fn check_minutes(&self, name: &str, range: &Range<i64>) -> Result<(), String> {
        let found = self.store().view().totals(name, range.clone(), true, None);
        let found = found.map_err(|error| error.to_string())?;
        let mut by_start: BTreeMap<i64, u64> = BTreeMap::new();
        for (code, count) in found.totals.iter() {
            let sum = by_start.entry(code.start()).or_insert(0);
            *sum = (*sum + count).min(COUNT_MAX);
        }
        let expected = self.naive.all.by_minute(name, range);
        if by_start == expected {
            return Ok(());
        }
        Err(format!(
            "minutes of {name} in {range:?}: found {by_start:?}, expected {expected:?}"
        ))
    }

    /// Compares everything by every subtotal, now and as of every kept generation.
    pub(super) fn check_all(&mut self) -> Result<(), String> {
        let reads = all_reads(&self.naive.all);
        self.check_reads(&reads)
    }

    fn check_reads(&mut self, reads: &[Read]) -> Result<(), String> {
        self.check(reads, None)?;
        let numbers: Vec<u64> = self.naive.generations.keys().copied().collect();
        for number in numbers {
            self.check_generation(number, reads)?;
        }
        self.compare_actions(&clicks::users(), &self.naive.actions.span())?;
        for pending in &self.pending {
            let mark = whole(clicks::MARKS, &pending.mark, None);
            let counts = self.store().view().read(&mark, None);
            let counts = counts.map_err(|error| error.to_string())?;
            if !counts.totals.is_empty() {
                return Err(format!("{} is visible, but it was refused", pending.mark));
            }
        }
        Ok(())
    }

    /// Compares a kept generation. Its answers follow from the bytes of its files, so as long as these are the same,
    /// all of it is compared once, and then only some.
    fn check_generation(&mut self, number: u64, reads: &[Read]) -> Result<(), String> {
        let manifest = self.store().manifest();
        let entry = manifest.archive.generation(number);
        let runs = entry.into_iter().flat_map(|entry| &entry.files);
        let files: Option<Files> = runs
            .map(|run| Some((run.name.clone(), self.disk.bytes(&run.name)?)))
            .collect();
        let files = files.ok_or_else(|| format!("generation {number} has lost a file"))?;
        if self.naive.generations[&number].compared != files || files.is_empty() {
            self.check(&all_reads(&self.naive.all), Some(number))?;
            let of = self.naive.generations.get_mut(&number);
            of.expect("BUG: it was compared").compared = files;
            return Ok(());
        }
        let some = (0..COMPARED_AGAIN.min(reads.len())).map(|_| self.again.pick(reads).clone());
        let some: Vec<Read> = some.collect();
        self.check(&some, Some(number))
    }

    /// Subtotals of the newest declaration: those not declared yet read as `-`.
    pub(super) fn subtotals(name: &str) -> &'static [String] {
        let schema = clicks::schema(clicks::SCHEMAS - 1);
        let namespace = schema.counted(name).expect("BUG: a declared namespace");
        &namespace.subtotals
    }

    pub(super) fn check(&self, reads: &[Read], as_of: Option<u64>) -> Result<(), String> {
        self.check_store(self.store(), reads, as_of)
            .map_err(Wrong::text)
    }

    pub(super) fn check_store(
        &self,
        store: &Store,
        reads: &[Read],
        as_of: Option<u64>,
    ) -> Result<(), Wrong> {
        let nothing = Book::default();
        let book = match as_of {
            None => &self.naive.all,
            Some(number) => self
                .naive
                .generations
                .get(&number)
                .map_or(&nothing, |of| &of.book),
        };
        self.compared.set(self.compared.get() + reads.len() as u64);
        book.check(None, &store.view(), reads, as_of)
    }

    /// A read of all time, or of a part that begins and ends anywhere.
    fn ranged(&mut self, namespace: String, key: String, subtotal: Option<String>) -> Read {
        let mut read = whole(&namespace, &key, subtotal);
        if self.chance.percent(50) {
            let now = self.now_ms.div_euclid(1_000);
            read.from = now - self.chance.between(-90_000, 40 * 86_400);
            read.to = read.from + self.chance.between(1, 40 * 86_400);
        }
        read
    }

    /// The generations that are kept, the one that is read, and the datasets of the next.
    pub(super) fn check_generations(&mut self) -> Result<(), String> {
        let manifest = self.store().manifest();
        let kept: Vec<u64> = manifest
            .archive
            .generations
            .iter()
            .map(|generation| generation.number)
            .collect();
        let expected: Vec<u64> = self.naive.generations.keys().copied().collect();
        if kept != expected || manifest.archive.active != self.naive.active {
            return Err(format!(
                "generation {} of {kept:?} is read, expected {} of {expected:?}",
                manifest.archive.active, self.naive.active
            ));
        }
        let wanted = wanted_of(&manifest);
        if wanted != self.naive.wanted {
            return Err(format!(
                "the datasets are {wanted:?}, expected {:?}",
                self.naive.wanted
            ));
        }
        Ok(())
    }

    /// Proves every file that the manifest names. A file that was proved and has the same bytes is proved.
    pub(super) fn verify(&mut self) -> Result<(), String> {
        if self.is_troubled() || self.fault_at.is_some() {
            return Ok(());
        }
        let before = std::mem::take(&mut self.proved);
        for entry in self.store().manifest().files() {
            let bytes = self.disk.bytes(&entry.name);
            let bytes = bytes.ok_or_else(|| format!("{} is missing", entry.name))?;
            if let Some(proved) = before.get(&entry.name)
                && proved.0 == *entry
                && proved.1 == bytes
            {
                self.proved.insert(entry.name.clone(), proved.clone());
                continue;
            }
            verify_run(&self.disk.blobs(), entry)
                .map_err(|error| format!("{} is not as it must be: {error}", entry.name))?;
            self.proved
                .insert(entry.name.clone(), (entry.clone(), bytes));
            self.stats.verified += 1;
        }
        Ok(())
    }

    /// After a start there is nothing that the manifest does not name.
    pub(super) fn check_files(&mut self) -> Result<(), String> {
        if self.is_troubled() {
            return Ok(());
        }
        let manifest = self.store().manifest();
        let named = manifest.file_names();
        for (file, _) in self.disk.files() {
            let (directory, _) = file.split_once('/').unwrap_or(("", &file));
            let sorted = names::SORTED_FILE_DIRECTORIES.contains(&directory);
            if file.ends_with(names::TEMPORARY_SUFFIX) || sorted && !named.contains(file.as_str()) {
                return Err(format!("{file} is left over after a start"));
            }
        }
        Ok(())
    }
}

/// Every key of a book with every subtotal; an answer by a subtotal has the totals, too.
pub(super) fn all_reads(book: &Book) -> Vec<Read> {
    let mut reads = Vec::new();
    for (name, key) in book.keys() {
        let subtotals = Driver::subtotals(&name);
        if subtotals.is_empty() {
            reads.push(whole(&name, &key, None));
        }
        for subtotal in subtotals {
            reads.push(whole(&name, &key, Some(subtotal.clone())));
        }
    }
    reads
}

/// A read of all time.
pub(super) fn whole(namespace: &str, key: &str, subtotal: Option<String>) -> Read {
    Read {
        namespace: namespace.to_owned(),
        key: key.to_owned(),
        subtotal,
        from: TIME_MIN,
        to: TIME_MAX,
        rolled: None,
    }
}
