//! Reads of counts for one namespace: of one key, of all keys together, and of the heaviest ones.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use tallyring_realtime::{Read, Series as Counted};

use super::scope::Scope;
use super::select::{Labels, Reads, Series, refused};
use super::steps::told;
use crate::calendar::{Buckets, Selection};
use crate::problem::Result;
use crate::read::base::Base;
use crate::read::rollup;

/// Instants at which all keys are ranked, or broken down: each is a read of its own.
const READS_MAX: usize = 400;

/// Counts by cell, of the values of the dimensions that series are told apart by.
type Groups = Vec<(Labels, Vec<u64>)>;

impl Reads<'_> {
    /// The series of one key.
    pub(super) fn of_key(&mut self, scope: &Scope<'_>, key: &str) -> Result<Vec<Series>> {
        let groups = match &scope.windows.cells {
            None => scope.seed(0).into_iter().collect(),
            Some(cells) => {
                let base = scope.base(cells)?;
                let (from, to) = base.span(&Selection::Bounded(cells.clone()));
                let subtotal = match scope.source {
                    Some(source) => Some(base.subtotal_of(source)),
                    None => base.subtotal(),
                };
                let read = Read {
                    namespace: scope.namespace.name.clone(),
                    key: key.to_owned(),
                    subtotal,
                    from,
                    to,
                    rolled: None,
                };
                self.reads += 1;
                let counted = self.view.read(&read, None)?;
                let counts = base.counts(&counted);
                let aligned = base.aligned(&counts, cells) && !counted.is_cut;
                self.note_alignment(scope, aligned, cells);
                match scope.source {
                    Some(_) => self.groups(scope, cells, &counted)?,
                    None => vec![(Labels::new(), rollup::totals(&counts, cells))],
                }
            }
        };
        let series = groups.into_iter().map(|(mut labels, counts)| {
            self.take(scope.windows.stretches().len())?;
            labels.insert("key".to_owned(), key.to_owned());
            Ok(Series {
                labels: scope.labels(labels),
                values: scope.windows.values(&counts, scope.selector.measure),
            })
        });
        series.collect()
    }

    /// The counts of each group of values by cell.
    fn groups(&mut self, scope: &Scope<'_>, cells: &Buckets, counted: &Counted) -> Result<Groups> {
        let mut groups: Groups = scope.seed(cells.count()).into_iter().collect();
        let of_values = self.group_values(
            scope,
            counted,
            |labels| {
                groups.push((labels, vec![0; cells.count()]));
                groups.len()
            },
            cells.count(),
        )?;
        for point in &counted.points {
            let group = of_values[point.value as usize];
            let index = cells.index_of(point.code.start());
            if let (Some(group), Some(index)) = (group, index) {
                let count = &mut groups[group].1[index];
                *count = count.saturating_add(point.count);
            }
        }
        Ok(groups)
    }

    /// The group of each value, none where matchers leave it out. A new group holds so many `numbers`, and `add` tells
    /// how many there are with it; the seed is the first where there is one.
    fn group_values(
        &mut self,
        scope: &Scope<'_>,
        counted: &Counted,
        mut add: impl FnMut(Labels) -> usize,
        numbers: usize,
    ) -> Result<Vec<Option<usize>>> {
        let mut known: HashMap<Labels, usize> = HashMap::new();
        if let Some((labels, _)) = scope.seed(0) {
            known.insert(labels, 0);
        }
        let mut of_values = Vec::with_capacity(counted.values.len());
        for stored in &counted.values {
            let labels = scope.labels_of(self.view, counted, stored)?;
            let group = match labels {
                None => None,
                Some(labels) => Some(match known.get(&labels) {
                    Some(group) => *group,
                    None => {
                        self.take_group(known.len(), numbers)?;
                        let group = add(labels.clone()) - 1;
                        known.insert(labels, group);
                        group
                    }
                }),
            };
            of_values.push(group);
        }
        Ok(of_values)
    }

    /// The series of all keys together.
    pub(super) fn together(
        &mut self,
        scope: &Scope<'_>,
        top: Option<usize>,
    ) -> Result<Vec<Series>> {
        if scope.source.is_some() {
            return self.values_together(scope, top);
        }
        let counts = match &scope.windows.cells {
            None => Vec::new(),
            Some(cells) => {
                let base = scope.base(cells)?;
                let (from, to) = base.span(&Selection::Bounded(cells.clone()));
                self.reads += 1;
                let name = &scope.namespace.name;
                let counted = self.view.totals(name, from..to, base.by_minute(), None)?;
                let aligned = base.aligned(&counted.totals, cells) && !counted.is_cut;
                self.note_alignment(scope, aligned, cells);
                self.take(cells.count())?;
                rollup::totals(&counted.totals, cells)
            }
        };
        self.take(scope.windows.stretches().len())?;
        Ok(vec![Series {
            labels: scope.labels(Labels::new()),
            values: scope.windows.values(&counts, scope.selector.measure),
        }])
    }

    /// The series of all keys together, broken down: a read for each instant.
    fn values_together(&mut self, scope: &Scope<'_>, top: Option<usize>) -> Result<Vec<Series>> {
        let instants = scope.windows.stretches().len();
        let zeros: Vec<Option<f64>> = scope
            .windows
            .stretches()
            .map(|stretch| stretch.map(|_| 0.0))
            .collect();
        let seed = scope.seed(0).map(|(labels, _)| (labels, zeros.clone()));
        let mut series: BTreeMap<Labels, Vec<Option<f64>>> = seed.into_iter().collect();
        let source = scope.source.expect("BUG: values of a subtotal are asked");
        self.each(scope, |reads, (index, stretch), base, cells| {
            let name = (scope.namespace.name.as_str(), base.subtotal_of(source));
            let (from, to) = base.span(&Selection::Bounded(cells.clone()));
            let counted = reads
                .view
                .values((name.0, &name.1), from..to, stretch.clone(), None)?;
            let aligned = base.aligned(&counted.totals, cells) && !counted.is_cut;
            reads.note_alignment(scope, aligned, cells);
            let least = match top.filter(|_| scope.tells_values()) {
                Some(top) => least_of(&counted.sums, top),
                None => 1,
            };
            let values = counted.values.iter().zip(&counted.sums);
            for (stored, count) in values.filter(|(_, count)| **count >= least) {
                let Some(labels) = scope.labels_of(reads.view, &counted, stored)? else {
                    continue;
                };
                if !series.contains_key(&labels) {
                    reads.take_group(series.len(), instants)?;
                }
                let values = series.entry(labels).or_insert_with(|| zeros.clone());
                let value = told(*count, scope.selector.measure);
                values[index] = Some(values[index].unwrap_or(0.0) + value);
            }
            Ok(())
        })?;
        let series = series.into_iter();
        let named = |(labels, values)| Series {
            labels: scope.labels(labels),
            values,
        };
        Ok(series.map(named).collect())
    }

    /// The heaviest keys at each instant: a ranking for each.
    pub(super) fn ranked(&mut self, scope: &Scope<'_>, count: usize) -> Result<Vec<Series>> {
        let instants = scope.windows.stretches().len();
        let mut series: BTreeMap<String, Vec<Option<f64>>> = BTreeMap::new();
        self.each(scope, |reads, (index, stretch), base, cells| {
            let (name, by_minute) = (&scope.namespace.name, base.by_minute());
            let ranking = reads
                .view
                .top(name, stretch.clone(), by_minute, (count, false), None)?;
            let cut = (ranking.counted, ranking.is_cut);
            let aligned = base.check_ranking(cut, ranking.minutes_from, cells)?;
            reads.note_alignment(scope, aligned, cells);
            if let Some(bound) = ranking.bound {
                let warning = format!("keys that are not listed may have up to {bound} each");
                reads.notes.warnings.insert(warning);
            }
            for top in ranking.keys {
                if !series.contains_key(&top.key) {
                    reads.take(instants)?;
                }
                let values = series
                    .entry(top.key)
                    .or_insert_with(|| vec![None; instants]);
                values[index] = Some(told(top.count, scope.selector.measure));
            }
            Ok(())
        })?;
        let named = |(key, values)| Series {
            labels: scope.labels(Labels::from([("key".to_owned(), key)])),
            values,
        };
        Ok(series.into_iter().map(named).collect())
    }

    /// Reads for each instant whose stretch has begun and is not empty.
    fn each(
        &mut self,
        scope: &Scope<'_>,
        mut read: impl FnMut(&mut Self, (usize, Range<i64>), Base, &Buckets) -> Result<()>,
    ) -> Result<()> {
        let stretches = scope.windows.stretches().enumerate();
        let stretches = stretches.filter_map(|(index, stretch)| Some((index, stretch?)));
        let stretches: Vec<_> = stretches
            .filter(|(_, stretch)| !stretch.is_empty())
            .collect();
        self.passes += stretches.len();
        if self.passes > READS_MAX {
            let detail = format!(
                "must be longer: all keys are ranked, or broken down, at {READS_MAX} points at most; name a key, or \
                 give a longer step"
            );
            return Err(refused("step", detail));
        }
        for (index, stretch) in stretches {
            self.view.reading().check()?;
            self.reads += 1;
            let cells = Buckets::between(vec![stretch.start, stretch.end]);
            let base = scope.base(&cells)?;
            read(self, (index, stretch), base, &cells)?;
        }
        Ok(())
    }
}

/// The least count that has a place among the `top` highest, above 0. The texts of lower ones need not be looked up.
fn least_of(counts: &[u64], top: usize) -> u64 {
    let mut counts = counts.to_vec();
    match counts.len().checked_sub(top) {
        None | Some(0) => 1,
        Some(lower) => (*counts.select_nth_unstable(lower).1).max(1),
    }
}
