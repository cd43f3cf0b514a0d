//! From a request's range to its buckets.

use std::sync::{Arc, OnceLock};

use tallyring_records::{FieldError, TIME_MAX, TIME_MIN};

use super::edges;
use super::recent;
use super::unit::Unit;
use super::zone::{Zone, rfc3339_utc};
use super::{BUCKETS_DEFAULT, BUCKETS_MAX};

/// The range that a request asks for, before it is checked.
#[derive(Clone, Debug)]
pub struct Request {
    /// How long each bucket is.
    pub unit: Unit,
    /// Whose calendar the buckets follow.
    pub zone: Zone,
    /// How many buckets, 1 to [`BUCKETS_MAX`], or −1 for all of time; 7 where this and `from` are missing.
    pub units: Option<i64>,
    /// The first bucket holds this instant (Unix seconds).
    pub from: Option<i64>,
    /// The last bucket holds this instant (Unix seconds); `now` where it is missing.
    pub to: Option<i64>,
    /// The clock's time (Unix seconds).
    pub now: i64,
}

/// The buckets that a valid request selects.
#[derive(Clone, Debug)]
pub enum Selection {
    /// These buckets.
    Bounded(Buckets),
    /// Everything that was counted (`units=-1`).
    All(AllTime),
}

/// A request for the whole history (`units=-1`); what was counted decides its buckets.
#[derive(Clone, Debug)]
pub struct AllTime {
    unit: Unit,
    zone: Zone,
    to: Option<i64>,
    now: i64,
}

/// One bucket of time, in Unix seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Its first instant.
    pub start: i64,
    /// The first instant after it.
    pub end: i64,
}

/// One to [`BUCKETS_MAX`] buckets without a gap between them, oldest first.
#[derive(Clone, Debug)]
pub struct Buckets(Arc<Edges>);

#[derive(Debug)]
struct Edges {
    unit: Unit,
    zone: Zone,
    /// Every bucket's start and the last one's end: strictly ascending, at least two.
    at: Vec<i64>,
    /// The longest time that every edge from 2000 on is a multiple of, seconds; 0 where there is none of them.
    step: i64,
    /// The label of each, made once it is needed.
    labels: OnceLock<Vec<Arc<str>>>,
}

impl Request {
    /// Checks the request and computes its buckets, the first and the last one whole. `units` is malformed together
    /// with `from`. Refused are: `units` of 0, below −1, above [`BUCKETS_MAX`] or reaching back before 2000; `from` or
    /// `to` before 2000 or after 2999; `from` after `to`; a `from` more than [`BUCKETS_MAX`] buckets before `to`.
    pub fn resolve(self) -> Result<Selection, FieldError> {
        let to = self.to.unwrap_or(self.now);
        check_instant("to", to)?;
        let units = match (self.from, self.units) {
            (Some(_), Some(units)) => {
                let detail = "says where the range begins, and so does `from`; give one of them";
                return Err(FieldError::malformed("units", &units.to_string(), detail));
            }
            (Some(from), None) => {
                return Buckets::covering(self.unit, self.zone, from, to).map(Selection::Bounded);
            }
            (None, units) => units.unwrap_or(BUCKETS_DEFAULT),
        };
        if units == -1 {
            return Ok(Selection::All(AllTime {
                unit: self.unit,
                zone: self.zone,
                to: self.to,
                now: self.now,
            }));
        }
        Buckets::ending_with(self.unit, self.zone, units, to).map(Selection::Bounded)
    }
}

impl AllTime {
    /// The bucket length that was asked for.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// The zone that was asked for.
    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    /// The first instant after what it may cover, where the request says where it ends.
    pub fn end(&self) -> Option<i64> {
        let last = |to| Bucket::holding(self.unit, &self.zone, to);
        self.to.map(|to| last(to).end)
    }

    /// The buckets of a history whose first and last counted instants are `counted` (Unix seconds).
    ///
    /// They reach to `to` where the request gave it, else to the later of now and the last counted
    /// instant; where nothing was counted before that end, they are the one bucket that holds it. `units` is refused if
    /// there are more than [`BUCKETS_MAX`] buckets.
    pub fn covering(self, counted: Option<(i64, i64)>) -> Result<Buckets, FieldError> {
        let last = match (self.to, counted) {
            (Some(to), _) => to,
            (None, Some((_, last_counted))) => last_counted.max(self.now),
            (None, None) => self.now,
        };
        let first = counted.map_or(last, |(first_counted, _)| first_counted.min(last));
        check_instant("from", first)?;
        check_instant("to", last)?;
        let unit = self.unit;
        Buckets::walk(unit, self.zone, first, last).ok_or_else(|| too_many("units", "-1", unit))
    }
}

impl Bucket {
    /// The bucket that holds `instant` (Unix seconds): the same that every [`Buckets`] of this unit
    /// and zone lists. With it a sparse history of any length is rolled up without listing its zeros. Panics when
    /// `instant` is outside the years −9990 to 9990.
    pub fn holding(unit: Unit, zone: &Zone, instant: i64) -> Self {
        Self {
            start: edges::at_or_before(unit, zone, instant),
            end: edges::after(unit, zone, instant),
        }
    }
}

impl Buckets {
    /// The buckets from the one that holds `first` to the one that holds `last` (Unix seconds). `from` or `to` is
    /// refused before 2000 or after 2999; `from` is refused if `first` is after `last`, or if there are more than
    /// [`BUCKETS_MAX`] buckets (found out after that many steps).
    pub fn covering(unit: Unit, zone: Zone, first: i64, last: i64) -> Result<Self, FieldError> {
        check_instant("from", first)?;
        check_instant("to", last)?;
        if first > last {
            let detail = format!("lies after `to`, which is {}", rfc3339_utc(last));
            return Err(FieldError::refused("from", &rfc3339_utc(first), detail));
        }
        Self::walk(unit, zone, first, last)
            .ok_or_else(|| too_many("from", &rfc3339_utc(first), unit))
    }

    /// Stretches of any lengths between these edges (Unix seconds): at least two, strictly ascending. Their unit is the
    /// hour, the shortest for which no minutes are needed.
    pub(crate) fn between(edges: Vec<i64>) -> Self {
        Self::from_edges(Unit::Hour, Zone::utc(), edges)
    }

    /// The `units` buckets whose last one holds `last`.
    fn ending_with(unit: Unit, zone: Zone, units: i64, last: i64) -> Result<Self, FieldError> {
        if units < 1 {
            let detail = format!("must be 1 to {BUCKETS_MAX}, or -1 for everything counted");
            return Err(FieldError::refused("units", &units.to_string(), detail));
        }
        let count = usize::try_from(units).unwrap_or(usize::MAX);
        if count > BUCKETS_MAX {
            return Err(too_many("units", &units.to_string(), unit));
        }
        if let Some(buckets) = recent::find(unit, &zone, count, last) {
            return Ok(buckets);
        }
        let mut edges = Vec::with_capacity(count + 1);
        edges.push(edges::after(unit, &zone, last));
        let mut start = edges::at_or_before(unit, &zone, last);
        edges.push(start);
        while edges.len() <= count {
            start = edges::at_or_before(unit, &zone, start - 1);
            edges.push(start);
        }
        // The bucket that holds 2000-01-01T00:00:00Z may begin before.
        if edges[edges.len() - 2] <= TIME_MIN {
            let detail = format!(
                "reaches back before 2000-01-01T00:00:00Z in buckets of a {unit}, from when on counts are kept; ask for \
                 fewer"
            );
            return Err(FieldError::refused("units", &units.to_string(), detail));
        }
        edges.reverse();
        let buckets = Self::from_edges(unit, zone, edges);
        recent::keep(&buckets);
        Ok(buckets)
    }

    /// The buckets from `first` to `last`, which were checked; `None` if they are too many.
    fn walk(unit: Unit, zone: Zone, first: i64, last: i64) -> Option<Self> {
        let mut edge = edges::at_or_before(unit, &zone, first);
        let mut edges = vec![edge];
        while edge <= last {
            if edges.len() > BUCKETS_MAX {
                return None;
            }
            edge = edges::after(unit, &zone, edge);
            edges.push(edge);
        }
        Some(Self::from_edges(unit, zone, edges))
    }

    fn from_edges(unit: Unit, zone: Zone, edges: Vec<i64>) -> Self {
        let ascending = edges.windows(2).all(|pair| pair[0] < pair[1]);
        assert!(
            edges.len() >= 2 && ascending,
            "BUG: {unit} edges in {} do not ascend",
            zone.name()
        );
        let first = edges.partition_point(|&edge| edge < TIME_MIN);
        let step = edges[first..].iter().copied().fold(0, greatest_divisor);
        Self(Arc::new(Edges {
            unit,
            zone,
            at: edges,
            step,
            labels: OnceLock::new(),
        }))
    }

    /// How long each bucket is.
    pub fn unit(&self) -> Unit {
        self.0.unit
    }

    /// Whose calendar the buckets follow.
    pub fn zone(&self) -> &Zone {
        &self.0.zone
    }

    /// Every bucket's start in words, and the last one's end: one more than there are buckets.
    pub fn labels(&self) -> &[Arc<str>] {
        let label = |&edge| self.zone().label(edge).into();
        let labels = &self.0.labels;
        labels.get_or_init(|| self.0.at.iter().map(label).collect())
    }

    /// The label of one edge. A long range formats only this one: all labels take ten times the memory of the edges.
    pub fn label(&self, edge: usize) -> Arc<str> {
        let is_long = self.count() > recent::BUCKETS_KEPT_MAX;
        match self.0.labels.get() {
            None if is_long => self.zone().label(self.0.at[edge]).into(),
            _ => Arc::clone(&self.labels()[edge]),
        }
    }

    /// How many buckets there are, 1 to [`BUCKETS_MAX`].
    pub fn count(&self) -> usize {
        self.0.at.len() - 1
    }

    /// The first bucket's start (Unix seconds).
    pub fn start(&self) -> i64 {
        self.0.at[0]
    }

    /// The last bucket's end (Unix seconds): the first instant after the range.
    pub fn end(&self) -> i64 {
        self.0.at[self.count()]
    }

    /// Every bucket's start and the last one's end (Unix seconds): strictly ascending.
    pub fn edges(&self) -> &[i64] {
        &self.0.at
    }

    /// The buckets, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Bucket> + ExactSizeIterator + '_ {
        self.0.at.windows(2).map(|pair| Bucket {
            start: pair[0],
            end: pair[1],
        })
    }

    /// The index of the bucket that holds `instant` (Unix seconds), or `None` outside the range. A base
    /// bucket counts where its start lies, so its start is the instant to ask for.
    pub fn index_of(&self, instant: i64) -> Option<usize> {
        let edges_until = self.0.at.partition_point(|&edge| edge <= instant);
        edges_until
            .checked_sub(1)
            .filter(|&index| index < self.count())
    }

    /// Whether base buckets of `grain_secs` (3600, 900 or 60) divide into these buckets exactly: every
    /// edge is a multiple of it. Edges before 2000 part nothing that was counted and do not matter. Panics when
    /// `grain_secs` is not positive.
    pub fn aligned(&self, grain_secs: i64) -> bool {
        assert!(grain_secs > 0, "BUG: a grain of {grain_secs} seconds");
        self.0.step % grain_secs == 0
    }
}

/// The greatest divisor of both, neither of which is negative (Euclid).
fn greatest_divisor(mut a: i64, mut b: i64) -> i64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The bounds of `from` and `to`.
fn check_instant(field: &str, instant: i64) -> Result<(), FieldError> {
    let detail = match instant {
        ..TIME_MIN => {
            "is before 2000-01-01T00:00:00Z, from when on counts are kept; give a later time"
        }
        TIME_MAX.. => "is not before 3000-01-01T00:00:00Z, where ranges end; give an earlier time",
        _ => return Ok(()),
    };
    Err(FieldError::refused(field, &rfc3339_utc(instant), detail))
}

/// More buckets than an answer lists.
fn too_many(field: &str, value: &str, unit: Unit) -> FieldError {
    let detail = format!(
        "asks for more than {BUCKETS_MAX} {unit} buckets, the most that one answer lists; \
         ask for a shorter range or a longer unit"
    );
    FieldError::refused(field, value, detail)
}
