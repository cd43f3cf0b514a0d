//! The counts of files as rows, which a load takes back.
//!
//! Invariants: counts that runs with the sign minus take away are subtracted before a row is made, and no row is made
//! of nothing. The values of each breakdown sum to their total: counts without a value stand under `-`. So rows that
//! are loaded count what they were made of.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use tallyring_archive::{BlockCache, Cursor, Error, Run, Sign};
use tallyring_records::{Namespace, TimeCode, cross, dimensions, is_hash, line, missing_value};

/// Decoded blocks that are kept for totals and texts, bytes.
const CACHE_BYTES: u64 = 16 << 20;

/// Texts of hashes that are remembered; then all are forgotten.
const TEXTS_MAX: usize = 16 << 10;

/// One count of a key in one base bucket.
#[derive(Debug)]
pub struct CountRow<'r> {
    /// Name of the namespace.
    pub namespace: &'r str,
    /// The key as it was counted.
    pub key: &'r str,
    /// The base bucket.
    pub bucket: TimeCode,
    /// At least 1.
    pub count: u64,
    /// The subtotal and its value, of several dimensions as [`cross`] joins them; none for a total.
    pub part: Option<(&'r str, &'r str)>,
}

/// Sees a row.
pub type EachRow<'e, E> = dyn FnMut(&CountRow<'_>) -> Result<(), E> + 'e;

/// Calls `each` with every total and every value of a breakdown that the runs together count of these namespaces in
/// `range` (Unix seconds), sorted by subtotal, namespace, key and bucket. One key is in memory at a time. Users,
/// minutes and actions are left out. Fails when a run is damaged, or more is taken away than is counted.
pub fn count_rows<E: From<Error>>(
    runs: &[Arc<Run>],
    namespaces: &[&Namespace],
    range: Range<i64>,
    each: &mut EachRow<'_, E>,
) -> Result<(), E> {
    let mut rows = Rows {
        lines: Lines::new(runs),
        texts: Texts::new(runs),
        totals: Totals::new(runs),
        range,
    };
    let mut sections: BTreeMap<String, (&Namespace, Option<&str>)> = BTreeMap::new();
    for namespace in namespaces {
        let name = &namespace.name;
        sections.insert(format!("{name}|"), (namespace, None));
        for subtotal in &namespace.subtotals {
            sections.insert(format!("{subtotal}.{name}|"), (namespace, Some(subtotal)));
        }
    }
    for (section, (namespace, subtotal)) in sections {
        rows.lines.begin(section.as_bytes())?;
        while let Some(key) = rows.lines.smallest() {
            match subtotal {
                None => rows.total(&namespace.name, &key, each)?,
                Some(subtotal) => rows.parts(&namespace.name, subtotal, &key, each)?,
            }
        }
    }
    Ok(())
}

struct Rows {
    lines: Lines,
    texts: Texts,
    totals: Totals,
    range: Range<i64>,
}

impl Rows {
    /// Makes rows of the total `key` (`l|abc`).
    fn total<E: From<Error>>(
        &mut self,
        namespace: &str,
        key: &[u8],
        each: &mut EachRow<'_, E>,
    ) -> Result<(), E> {
        let mut sums: BTreeMap<TimeCode, i128> = BTreeMap::new();
        let range = &self.range;
        self.lines.take(key, &mut |payload, sign| {
            add_hours(&mut sums, payload, (range, sign))
        })?;
        if sums.is_empty() {
            return Ok(());
        }
        let text = self.texts.of(line::stored_key(key))?;
        for (bucket, sum) in sums {
            let count = counted(key, sum)?;
            if count > 0 {
                each(&CountRow {
                    namespace,
                    key: &text,
                    bucket,
                    count,
                    part: None,
                })?;
            }
        }
        Ok(())
    }

    /// Makes rows of the subtotal line `key` (`c.l|abc.c41l`).
    fn parts<E: From<Error>>(
        &mut self,
        namespace: &str,
        subtotal: &str,
        key: &[u8],
        each: &mut EachRow<'_, E>,
    ) -> Result<(), E> {
        let mut sums: BTreeMap<Vec<u8>, i128> = BTreeMap::new();
        self.lines.take(key, &mut |payload, sign| {
            line::entries(payload).try_for_each(|entry| {
                let (value, count) = entry?;
                match sums.get_mut(value) {
                    Some(sum) => *sum += signed(count, sign),
                    None => {
                        sums.insert(value.to_vec(), signed(count, sign));
                    }
                }
                Some(())
            })
        })?;
        let (_, total_key, bucket) = line::split_subtotal(key).ok_or_else(|| unreadable(key))?;
        if !self.range.contains(&bucket.start()) {
            return Ok(());
        }
        let total = self.totals.of(total_key, bucket)?;
        let rest = total - sums.values().sum::<i128>();
        *sums
            .entry(missing_value(subtotal).into_bytes())
            .or_insert(0) += rest;
        let text = self.texts.of(line::stored_key(total_key))?;
        for (value, sum) in sums {
            let count = counted(key, sum)?;
            if count > 0 {
                let value = self.texts.of_value(&value, subtotal)?;
                each(&CountRow {
                    namespace,
                    key: &text,
                    bucket,
                    count,
                    part: Some((subtotal, &value)),
                })?;
            }
        }
        Ok(())
    }
}

fn signed(count: u64, sign: Sign) -> i128 {
    match sign {
        Sign::Plus => count.into(),
        Sign::Minus => -i128::from(count),
    }
}

/// Adds the buckets of a total's line that start in the range. None where the line cannot be read.
fn add_hours(
    sums: &mut BTreeMap<TimeCode, i128>,
    payload: &[u8],
    (range, sign): (&Range<i64>, Sign),
) -> Option<()> {
    line::hours(payload).try_for_each(|entry| {
        let (bucket, count) = entry?;
        if range.contains(&bucket.start()) {
            *sums.entry(bucket).or_insert(0) += signed(count, sign);
        }
        Some(())
    })
}

fn counted(key: &[u8], sum: i128) -> Result<u64, Error> {
    let key = || line::shown(key);
    match u64::try_from(sum) {
        Ok(count) => Ok(count),
        Err(_) if sum > 0 => Err(Error::Overflow { key: key() }),
        Err(_) => Err(Error::Imbalance {
            name: key(),
            what: format!(
                "{} more are taken away, or have a value, than are counted",
                -sum
            ),
        }),
    }
}

fn unreadable(key: &[u8]) -> Error {
    Error::malformed(
        "a sorted file",
        format!("`{}` is no line of counts", line::shown(key)),
    )
}

/// Lines of several runs, section by section, in the order of their keys.
struct Lines {
    sources: Vec<(Sign, Cursor)>,
    /// The key of the line on which each source of the section stands.
    heads: BinaryHeap<Reverse<(Vec<u8>, usize)>>,
    section: Vec<u8>,
    runs: Vec<Arc<Run>>,
}

impl Lines {
    fn new(runs: &[Arc<Run>]) -> Self {
        let sources = runs.iter().map(|run| (run.sign(), run.cursor()));
        Self {
            sources: sources.collect(),
            heads: BinaryHeap::new(),
            section: Vec::new(),
            runs: runs.to_vec(),
        }
    }

    /// Goes to a section, which sorts behind the last one.
    fn begin(&mut self, section: &[u8]) -> Result<(), Error> {
        self.section = section.to_vec();
        for index in 0..self.sources.len() {
            if self.runs[index].section_bytes(section) > 0 && self.sources[index].1.seek(section)? {
                self.note(index)?;
            }
        }
        Ok(())
    }

    /// The smallest key of the section that was not taken yet.
    fn smallest(&self) -> Option<Vec<u8>> {
        self.heads.peek().map(|Reverse((key, _))| key.clone())
    }

    /// Takes all lines of the smallest key. `add` gets their payloads, and says none of one that it cannot read.
    fn take(
        &mut self,
        key: &[u8],
        add: &mut dyn FnMut(&[u8], Sign) -> Option<()>,
    ) -> Result<(), Error> {
        while let Some(Reverse((next, index))) = self.heads.peek()
            && next == key
        {
            let index = *index;
            self.heads.pop();
            let (sign, cursor) = &mut self.sources[index];
            if let Some((_, payload)) = cursor.line()? {
                add(payload, *sign).ok_or_else(|| unreadable(key))?;
            }
            cursor.advance()?;
            self.note(index)?;
        }
        Ok(())
    }

    fn note(&mut self, index: usize) -> Result<(), Error> {
        if let Some((key, _)) = self.sources[index].1.line()?
            && key.starts_with(&self.section)
        {
            self.heads.push(Reverse((key.to_vec(), index)));
        }
        Ok(())
    }
}

/// Totals of the key whose breakdowns are read.
struct Totals {
    runs: Vec<Arc<Run>>,
    cache: BlockCache,
    key: Vec<u8>,
    sums: BTreeMap<TimeCode, i128>,
}

impl Totals {
    fn new(runs: &[Arc<Run>]) -> Self {
        Self {
            runs: runs.to_vec(),
            cache: BlockCache::new(CACHE_BYTES),
            key: Vec::new(),
            sums: BTreeMap::new(),
        }
    }

    fn of(&mut self, key: &[u8], bucket: TimeCode) -> Result<i128, Error> {
        if self.key != key {
            self.sums.clear();
            for run in &self.runs {
                let mut read = Some(());
                run.visit_prefix(&self.cache, (key, key), &mut |found, payload| {
                    if found == key && read.is_some() {
                        let all = i64::MIN..i64::MAX;
                        read = add_hours(&mut self.sums, payload, (&all, run.sign()));
                        return ControlFlow::Continue(());
                    }
                    ControlFlow::Break(())
                })?;
                read.ok_or_else(|| unreadable(key))?;
            }
            self.key = key.to_vec();
        }
        Ok(self.sums.get(&bucket).copied().unwrap_or(0))
    }
}

/// Texts behind the hashes of long keys and values.
struct Texts {
    runs: Vec<Arc<Run>>,
    cache: BlockCache,
    known: HashMap<Box<[u8]>, Arc<str>>,
}

impl Texts {
    fn new(runs: &[Arc<Run>]) -> Self {
        Self {
            runs: runs.to_vec(),
            cache: BlockCache::new(CACHE_BYTES),
            known: HashMap::new(),
        }
    }

    /// The text of a stored key or value. Fails where no run has it: a hash would be loaded as another text.
    fn of(&mut self, stored: &[u8]) -> Result<Arc<str>, Error> {
        if !is_hash(stored) {
            let text = std::str::from_utf8(stored).map_err(|_| unreadable(stored))?;
            return Ok(text.into());
        }
        if let Some(text) = self.known.get(stored) {
            return Ok(Arc::clone(text));
        }
        for run in &self.runs {
            if let Some(text) = run.look_up(&self.cache, stored)? {
                if self.known.len() == TEXTS_MAX {
                    self.known.clear();
                }
                let text: Arc<str> = (*text).into();
                self.known.insert(stored.into(), Arc::clone(&text));
                return Ok(text);
            }
        }
        let what = format!("none has the text of the hash {}", line::shown(stored));
        Err(Error::malformed("a sorted file", what))
    }

    /// The text of a stored value of a subtotal.
    fn of_value(&mut self, stored: &[u8], subtotal: &str) -> Result<Arc<str>, Error> {
        if dimensions(subtotal).count() == 1 {
            return self.of(stored);
        }
        let parts = stored.split(|&byte| byte == b'*');
        let parts: Vec<Arc<str>> = parts.map(|part| self.of(part)).collect::<Result<_, _>>()?;
        Ok(cross(parts.iter().map(|part| &**part)).into())
    }
}
