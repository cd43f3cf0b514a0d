//! The settled buckets of a namespace, told page by page: each once it is settled, and again when a late increment
//! changed it.
//!
//! A cursor alone says what was told, so the store keeps nothing for a reader. A cursor has a record of the log and a
//! settled time. A page first tells the buckets before that time which the records since then changed. Once these
//! records are all read, it tells the buckets that settled meanwhile, in windows of time, each in the order of its
//! keys. A page that ends within a window names the last key in its cursor. The record of the cursor then stays until
//! the end of the window, because a later record may change what the window has told. So every count is told at least
//! once, and the sequence number at which a page read the counts is the version of its lines.
//!
//! A cursor of several strands has a record of the log of each, and the version is the sum of the sequence numbers.
//! Such a cursor also says what the last page saw of each log, and only a view that has as much goes on from it:
//! versions of two views of which each lacks something of the other tell nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};

use tallyring_records::{Grain, MINUTES, Namespace, add_capped};

use super::Store;
use crate::budget::{Charge, Reading};
use crate::error::{Error, Result};
use crate::oplog::OplogError;
use crate::view::{Read, View};

/// Domain of the keyed hash of a cursor.
const CURSOR_DOMAIN: u8 = 7;
/// Buckets of one key in a window, at most.
const WINDOW_BUCKETS: i64 = 60;
/// Windows that one page opens, at most.
const WINDOWS_MAX: usize = 24;
/// Keys that one page looks at, at most, whether they have lines or not.
const KEYS_MAX: usize = 10_000;
/// Memory of a line besides its key, here and in its text, bytes.
const LINE_BYTES: usize = 256;

/// How far a reader of settled buckets was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosedCursor {
    /// Changes by records of each log before these sequence numbers were told.
    records: Vec<u64>,
    /// Behind the last record of each log that some page saw; empty for one log.
    seen: Vec<u64>,
    /// Buckets that end at this time or before were told, Unix seconds.
    settled: i64,
    /// The window that is told now.
    window: Option<Window>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Window {
    /// End of the window, Unix seconds.
    until: i64,
    /// Stored form of the last key that was told.
    after: Option<String>,
}

/// A settled bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosedBucket {
    /// Raw key.
    pub key: String,
    /// First instant, Unix seconds.
    pub start: i64,
    /// Number of counts.
    pub count: u64,
}

/// Some settled buckets.
#[derive(Debug)]
pub struct ClosedPage {
    /// The buckets. A bucket may come several times, also in one page.
    pub buckets: Vec<ClosedBucket>,
    /// The version of their counts, which rises from page to page wherever a count changes.
    pub version: u64,
    /// From where the next page goes on.
    pub next: ClosedCursor,
    /// Memory of the page.
    pub charge: Charge,
}

/// Reads the settled buckets of a namespace in one view.
pub struct ClosedReader<'r> {
    /// The stores of the view, in its order.
    stores: Vec<&'r Store>,
    /// Behind the last record of each log that the view counts.
    applied: Vec<u64>,
    view: &'r View<'r>,
    namespace: &'r Namespace,
    /// First instant that is not settled, Unix seconds.
    settled: i64,
}

impl ClosedCursor {
    /// Buckets that end at this time or before were told, Unix seconds.
    pub fn settled_until(&self) -> i64 {
        self.settled
    }
}

impl<'r> ClosedReader<'r> {
    /// A reader of a view of this store. `now` is in Unix seconds.
    pub fn new(
        store: &'r Store,
        view: &'r View<'r>,
        namespace: &'r Namespace,
        now: i64,
    ) -> ClosedReader<'r> {
        Self::of(vec![store], view, namespace, now)
    }

    /// A reader of a view of exactly these stores, in its order. `now` is in Unix seconds.
    ///
    /// # Panics
    /// When the view is of other stores.
    pub fn of(
        stores: Vec<&'r Store>,
        view: &'r View<'r>,
        namespace: &'r Namespace,
        now: i64,
    ) -> ClosedReader<'r> {
        let lives = stores.iter().map(|store| store.live());
        assert!(view.is_of(lives), "BUG: a view of other stores");
        let settled = view.settled_until(&namespace.name, None, now);
        let mut reader = ClosedReader {
            stores,
            applied: view
                .position()
                .offsets()
                .iter()
                .map(|of| of.sequence)
                .collect(),
            view,
            namespace,
            settled,
        };
        reader.settled = reader.bucket_of(settled);
        reader
    }

    /// Behind the last record of each log that the view counts, whose sum is the version of its pages.
    pub fn applied(&self) -> &[u64] {
        &self.applied
    }

    /// The unit of the buckets: minutes where the namespace keeps them, or hours.
    pub fn grain(&self) -> Grain {
        match self.namespace.minutes {
            true => Grain::Minute,
            false => Grain::Hour,
        }
    }

    /// First instant of the first bucket that is not settled, Unix seconds.
    pub fn settled_until(&self) -> i64 {
        self.settled
    }

    /// First instant from which on all buckets of this unit are kept; none where all are.
    pub fn kept_from(&self) -> Option<i64> {
        match self.namespace.minutes {
            true => self.view.minutes_from(None),
            false => self.view.hours_from(self.view.generation()),
        }
    }

    /// A cursor that begins with the bucket of `from` (Unix seconds), or with what settles from now on.
    pub fn begin(&self, from: Option<i64>) -> ClosedCursor {
        ClosedCursor {
            records: self.applied.clone(),
            seen: self.seen(),
            settled: from.map_or(self.settled, |from| self.bucket_of(from)),
            window: None,
        }
    }

    /// True for a cursor behind records that this view lacks: they were lost, or another node has counted them already.
    pub fn is_ahead(&self, cursor: &ClosedCursor) -> bool {
        let known = cursor.records.iter().zip(&self.applied);
        let mut known = known.chain(cursor.seen.iter().zip(&self.applied));
        known.any(|(known, applied)| known > applied)
    }

    /// True when a page after the cursor may have buckets in this view.
    pub fn has_more(&self, cursor: &ClosedCursor) -> bool {
        cursor.window.is_some() || self.has_records_after(cursor) || cursor.settled < self.settled
    }

    fn has_records_after(&self, cursor: &ClosedCursor) -> bool {
        let mut records = cursor.records.iter().zip(&self.applied);
        records.any(|(record, applied)| record < applied)
    }

    /// The ends of the logs in this view, as a cursor says them.
    fn seen(&self) -> Vec<u64> {
        match self.stores.len() {
            1 => Vec::new(),
            _ => self.applied.clone(),
        }
    }

    /// The text of a cursor.
    pub fn text_of(&self, cursor: &ClosedCursor) -> String {
        let of_logs = cursor.records.iter().chain(&cursor.seen);
        let of_logs: Vec<String> = of_logs.map(u64::to_string).collect();
        let (records, settled) = (of_logs.join("-"), cursor.settled);
        let window = cursor.window.iter().map(|window| {
            let after = window.after.as_deref().unwrap_or_default();
            let after: String = after.bytes().map(|byte| format!("{byte:02x}")).collect();
            format!(".{}.{after}", window.until)
        });
        let text = format!("{records}.{settled}{}", window.collect::<String>());
        format!("{text}.{}", self.seal(&text))
    }

    /// Reads the text of a cursor; none for a text that this store did not make for this namespace. A cursor within an
    /// hour is from when the namespace kept minutes. Where it keeps none now, the cursor goes back to the beginning of
    /// that hour, which is told as a whole.
    pub fn read_cursor(&self, text: &str) -> Option<ClosedCursor> {
        let (text, seal) = text.rsplit_once('.')?;
        (seal == self.seal(text)).then_some(())?;
        let mut fields = text.split('.');
        let mut field = || fields.next();
        let of_logs = field()?.split('-').map(|number| number.parse().ok());
        let mut records: Vec<u64> = of_logs.collect::<Option<_>>()?;
        let (logs, settled) = (self.stores.len(), field()?.parse().ok()?);
        (records.len() == logs + self.seen().len()).then_some(())?;
        let window = match (field(), field()) {
            (Some(until), Some(after)) => Some(Window {
                until: until.parse().ok()?,
                after: Some(hex(after)?).filter(|after| !after.is_empty()),
            }),
            _ => None,
        };
        let is_whole = |instant: i64| self.bucket_of(instant) == instant;
        Some(ClosedCursor {
            seen: records.split_off(logs),
            records,
            settled: self.bucket_of(settled),
            window: window.filter(|window| is_whole(settled) && is_whole(window.until)),
        })
    }

    fn seal(&self, text: &str) -> String {
        let sealed = format!("{} {text}", self.namespace.name);
        let keys = self.stores[0].live().keys();
        // Half of the bits are far more than anybody can guess.
        let bits = (keys.identity(CURSOR_DOMAIN, sealed.as_bytes()) >> 64) as u64;
        format!("{bits:016x}")
    }

    /// The buckets that follow a cursor: up to `limit`, or those of one key or one record where these are more. Fails
    /// with [`Error::CursorGone`] when the log does not hold the records that follow the cursor, and with
    /// [`Error::CursorAhead`] when this view lacks records before it.
    pub fn page(&self, mut cursor: ClosedCursor, limit: usize) -> Result<ClosedPage> {
        if self.is_ahead(&cursor) {
            let settled = cursor.settled;
            return Err(Error::CursorAhead { settled });
        }
        let mut page = Page::new(self.view.reading(), limit);
        let mut windows = 0;
        loop {
            if let Some(window) = cursor.window.take() {
                let until = window.until;
                cursor.window = self.window(cursor.settled, window, &mut page)?;
                if cursor.window.is_some() {
                    break;
                }
                cursor.settled = until;
                windows += 1;
            }
            cursor.records = self.changed(&cursor, &mut page)?;
            if self.has_records_after(&cursor) || page.room() == 0 || windows == WINDOWS_MAX {
                break;
            }
            let longest = cursor.settled + WINDOW_BUCKETS * self.grain().seconds();
            let until = self.settled.min(longest);
            if until <= cursor.settled {
                break;
            }
            cursor.window = Some(Window { until, after: None });
        }
        cursor.seen = self.seen();
        Ok(ClosedPage {
            buckets: page.buckets,
            version: self.applied.iter().sum(),
            next: cursor,
            charge: page.charge,
        })
    }

    /// Tells what the records from those of the cursor on changed in buckets that were told. Returns the record of each
    /// log from which to go on.
    fn changed(&self, cursor: &ClosedCursor, page: &mut Page) -> Result<Vec<u64>> {
        let mut changed: BTreeSet<(String, i64)> = BTreeSet::new();
        let mut charge = self.view.reading().charge();
        let mut next = Vec::with_capacity(self.stores.len());
        for ((store, from), until) in self.stores.iter().zip(&cursor.records).zip(&self.applied) {
            let changed = (&mut changed, &mut charge);
            next.push(self.changed_by(store, (*from, *until), cursor, page.room(), changed)?);
        }
        for (key, start) in changed {
            let counts = self.counts(&key, start..start + self.grain().seconds())?;
            page.take(&key, counts)?;
        }
        Ok(next)
    }

    /// Adds the buckets that records of one log changed, as many as there is room for. Returns the record from which to
    /// go on.
    fn changed_by(
        &self,
        store: &Store,
        (from, until): (u64, u64),
        cursor: &ClosedCursor,
        room: usize,
        (changed, charge): (&mut BTreeSet<(String, i64)>, &mut Charge),
    ) -> Result<u64> {
        let kept_from = self.kept_from().unwrap_or(i64::MIN);
        let read = store.intake().changes(from, until, &mut |increment| {
            let start = self.bucket_of(increment.at);
            let is_told = start + self.grain().seconds() <= cursor.settled;
            if !is_told || start < kept_from {
                return Ok(ControlFlow::Continue(()));
            }
            let keys = increment.keys.iter();
            let keys: Vec<_> = keys
                .filter(|(namespace, _)| **namespace == *self.namespace.name)
                .collect();
            if !changed.is_empty() && changed.len() + keys.len() > room {
                return Ok(ControlFlow::Break(()));
            }
            for (_, key) in keys {
                charge.grow(key.len() + LINE_BYTES)?;
                changed.insert((key.to_string(), start));
            }
            Ok(ControlFlow::Continue(()))
        });
        match read {
            Err(Error::Oplog(OplogError::Missing { .. })) => Err(self.gone(cursor)),
            read => read,
        }
    }

    /// Tells the buckets from `settled` to the end of a window. Returns the rest of the window, if it has one.
    fn window(&self, settled: i64, mut window: Window, page: &mut Page) -> Result<Option<Window>> {
        let range = settled..window.until;
        let bases = base_of(range.start)..range.end;
        let name = &self.namespace.name;
        loop {
            let wanted = page.room().min(KEYS_MAX - page.keys);
            if wanted == 0 {
                return Ok(Some(window));
            }
            let after = window.after.as_deref();
            let keys = self.view.counted_keys(name, &bases, after, wanted)?;
            let is_last = keys.len() < wanted;
            for stored in keys {
                let key = self.view.key_text(&stored)?;
                let counts = self.counts(&key, range.clone())?;
                if counts.len() > page.room() && !page.buckets.is_empty() {
                    return Ok(Some(window));
                }
                page.keys += 1;
                page.take(&key, counts)?;
                window.after = Some(stored);
            }
            if is_last {
                return Ok(None);
            }
        }
    }

    /// The counts of a key by bucket. A base bucket counts where it starts, as in every read.
    fn counts(&self, key: &str, range: Range<i64>) -> Result<BTreeMap<i64, u64>> {
        let by_minute = self.namespace.minutes;
        let read = Read {
            namespace: self.namespace.name.clone(),
            key: key.to_owned(),
            subtotal: by_minute.then(|| MINUTES.to_owned()),
            from: base_of(range.start),
            to: range.end,
            rolled: None,
        };
        let series = self.view.read(&read, None)?;
        let counts = match by_minute {
            true => series.by_minute(),
            false => series.totals,
        };
        let mut buckets = BTreeMap::new();
        for (code, count) in counts.iter() {
            let start = self.bucket_of(code.start());
            if range.contains(&start) && count > 0 {
                add_capped(buckets.entry(start).or_insert(0), count);
            }
        }
        Ok(buckets)
    }

    /// The start of the bucket that holds an instant.
    fn bucket_of(&self, instant: i64) -> i64 {
        instant - instant.rem_euclid(self.grain().seconds())
    }

    fn gone(&self, cursor: &ClosedCursor) -> Error {
        Error::CursorGone {
            settled: cursor.settled,
        }
    }
}

/// The start of the hour that holds an instant. A base bucket is an hour at most, unless it is folded.
fn base_of(instant: i64) -> i64 {
    instant - instant.rem_euclid(Grain::Hour.seconds())
}

/// A page as far as it is made.
struct Page {
    buckets: Vec<ClosedBucket>,
    limit: usize,
    /// Keys that were looked at for windows.
    keys: usize,
    bytes: usize,
    charge: Charge,
}

impl Page {
    fn new(reading: &Reading, limit: usize) -> Self {
        Self {
            buckets: Vec::new(),
            limit,
            keys: 0,
            bytes: 0,
            charge: reading.charge(),
        }
    }

    /// How many more buckets it may have.
    fn room(&self) -> usize {
        self.limit.saturating_sub(self.buckets.len())
    }

    fn take(&mut self, key: &str, counts: BTreeMap<i64, u64>) -> Result<()> {
        self.bytes += counts.len() * (key.len() + LINE_BYTES);
        self.charge.grow_to(self.bytes)?;
        let buckets = counts.into_iter().map(|(start, count)| ClosedBucket {
            key: key.to_owned(),
            start,
            count,
        });
        self.buckets.extend(buckets);
        Ok(())
    }
}

fn hex(text: &str) -> Option<String> {
    let digits = text.as_bytes().chunks(2);
    let bytes = digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    String::from_utf8(bytes.collect::<Option<_>>()?).ok()
}
