//! Bars and lines in a plot.

use std::ops::Range;

use super::canvas::{Anchor, Document, Point, pixels};
use super::measure::Measure;
use super::plot::Plot;
use super::text;
use super::theme::Role;

/// The part of its bucket's width that a bar takes, and how wide it is at most, pixels.
const BAR_PART: f64 = 0.78;
const BAR_WIDTH_MAX: f64 = 56.0;

/// Between two counts above bars, pixels.
const LABEL_ROOM: f64 = 3.0;

/// From the top of a bar to the middle of the count above it, pixels.
const COUNT_UP: f64 = 9.0;

/// The part of its bucket's width that a bar of the period before takes.
const BEFORE_PART: f64 = 0.98;

/// Pixels.
const STRIP_HEIGHT: f64 = 8.0;

/// How far the numbers of a series may still change.
pub(super) struct Openness<'c> {
    /// The first bucket that is not settled.
    pub provisional_from: usize,
    /// For each bucket whether it is not final; empty where days never become final.
    pub not_final: &'c [bool],
}

impl Openness<'_> {
    /// The look of a bar.
    fn bar(&self, index: usize) -> Role {
        match index < self.provisional_from {
            true if self.is_hatched(index) => Role::BarNotFinal,
            true => Role::Bar,
            false => Role::BarProvisional,
        }
    }

    fn is_hatched(&self, index: usize) -> bool {
        self.not_final.get(index) == Some(&true)
    }
}

/// A bar for every bucket that has a count, and the count above it if there is room for all.
pub(super) fn bars(
    document: &mut Document,
    plot: &Plot,
    (counts, measure): (&[u64], Measure),
    openness: &Openness<'_>,
    tooltip: impl Fn(usize) -> String,
) {
    let bucket_width = plot.size().0 / counts.len() as f64;
    let half = (BAR_PART * bucket_width).min(BAR_WIDTH_MAX) / bucket_width / 2.0;
    let labels = labels((counts, measure), bucket_width);
    let least = plot.least();
    for (index, &count) in counts.iter().enumerate() {
        if count == 0 {
            continue;
        }
        let middle = index as f64 + 0.5;
        let height = (count as f64).max(least);
        let bar = [(middle - half, 0.0), (middle + half, height)];
        document.with_tooltip(&tooltip(index), |document| {
            let corners = bar.map(|corner| plot.at(corner));
            document.bar(corners, openness.bar(index));
            if openness.is_hatched(index) {
                document.bar(corners, Role::Hatch);
            }
            if let Some(label) = labels.get(index) {
                let (x, y) = plot.at((middle, height));
                let at = (pixels(x), pixels(y) - COUNT_UP);
                document.write(Role::Value, Anchor::Middle, at, bucket_width, label);
            }
        });
    }
}

/// The text above each bar: its count as exactly as there is room above all of them, or nothing.
fn labels((counts, measure): (&[u64], Measure), bucket_width: f64) -> Vec<String> {
    let text_px = Role::Value.text_px();
    let fits = |label: &String| text::width(label, text_px) + LABEL_ROOM <= bucket_width;
    let written = |write: fn(Measure, u64) -> String| -> Vec<String> {
        counts.iter().map(|&count| write(measure, count)).collect()
    };
    let mut forms = [Measure::short, Measure::shorter].map(written).into_iter();
    let fitting = forms.find(|labels| labels.iter().all(fits));
    fitting.unwrap_or_default()
}

/// A line over an area. Where buckets are narrower than a pixel it shows the largest count of each pixel
/// column. It is interrupted where nothing was counted.
pub(super) fn line(document: &mut Document, plot: &Plot, counts: &[u64], openness: &Openness<'_>) {
    let least = plot.least();
    let mut hatched = Vec::new();
    let columns: Vec<(f64, f64)> = columns(counts.len(), plot.size().0 as usize)
        .map(|buckets| {
            hatched.push(buckets.clone().any(|index| openness.is_hatched(index)));
            let middle = (buckets.start + buckets.end) as f64 / 2.0;
            let count = counts[buckets].iter().copied().max().unwrap_or(0);
            let height = if count == 0 {
                0.0
            } else {
                (count as f64).max(least)
            };
            (middle, height)
        })
        .collect();
    // A column with one provisional bucket is provisional, as is the way to it.
    let bucket_counts = counts.len();
    let from = openness.provisional_from;
    let provisional = columns_before(bucket_counts, columns.len(), from);
    for run in runs(&columns) {
        let settled = run.start..provisional.clamp(run.start, run.end);
        let open = settled.end.saturating_sub(1).max(run.start)..run.end;
        if settled.len() > 1 {
            draw_run(document, plot, &columns[settled], (Role::Area, Role::Line));
        }
        if open.len() > 1 && provisional < run.end {
            let roles = (Role::AreaProvisional, Role::LineProvisional);
            draw_run(document, plot, &columns[open], roles);
        }
        for stretch in stretches(&hatched[run.clone()]) {
            // The way to the first column is hatched, too: a single column would have no area.
            let from = run.start + stretch.start.saturating_sub(1);
            let points = &columns[from..run.start + stretch.end];
            document.area(under(plot, points), Role::Hatch);
        }
    }
}

/// Bands behind buckets that have no number.
pub(super) fn gaps(document: &mut Document, plot: &Plot, gaps: &[usize]) {
    for run in gaps.chunk_by(|one, next| one + 1 == *next) {
        let (first, last) = (run[0] as f64, run[run.len() - 1] as f64);
        let band = [(first, 0.0), (last + 1.0, plot.most)];
        document.bar(band.map(|corner| plot.at(corner)), Role::Gap);
    }
}

/// The counts of the period before: wide pale bars, which stand behind the bars of now.
pub(super) fn bars_before(document: &mut Document, plot: &Plot, counts: &[u64]) {
    let half = BEFORE_PART / 2.0;
    for (index, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let middle = index as f64 + 0.5;
        let bar = [(middle - half, 0.0), (middle + half, count as f64)];
        document.bar(bar.map(|corner| plot.at(corner)), Role::BarBefore);
    }
}

/// The counts of the period before as a dotted line.
pub(super) fn line_before(document: &mut Document, plot: &Plot, counts: &[u64]) {
    if counts.iter().any(|&count| count > 0) {
        line_alone(document, plot, counts, Role::Before);
    }
}

/// Counts as a line through all buckets, empty ones too. A single bucket is a line across it.
pub(super) fn line_alone(document: &mut Document, plot: &Plot, counts: &[u64], role: Role) {
    if let [only] = counts {
        let ends = [0.0, 1.0].map(|side| plot.at((side, *only as f64)));
        return document.line(ends, role);
    }
    let line = columns(counts.len(), plot.size().0 as usize).map(|column| {
        let middle = (column.start + column.end) as f64 / 2.0;
        let most = counts[column].iter().copied().max().unwrap_or(0);
        plot.at((middle, most as f64))
    });
    document.line(line, role);
}

/// A hatched strip on the base line below the buckets that are set.
pub(super) fn strip(document: &mut Document, plot: &Plot, are_set: &[bool]) {
    for stretch in stretches(are_set) {
        let top = STRIP_HEIGHT * plot.least();
        let corners = [(stretch.start as f64, 0.0), (stretch.end as f64, top)];
        let corners = corners.map(|corner| plot.at(corner));
        document.bar(corners, Role::BarNotFinal);
        document.bar(corners, Role::Hatch);
    }
}

fn draw_run(document: &mut Document, plot: &Plot, run: &[(f64, f64)], (area, line): (Role, Role)) {
    document.area(under(plot, run), area);
    document.line(run.iter().map(|&point| plot.at(point)), line);
}

/// The corners of the area under a line, which is not empty.
fn under(plot: &Plot, line: &[(f64, f64)]) -> impl Iterator<Item = Point> {
    let ends = [line[0].0, line[line.len() - 1].0].map(|bucket| plot.at((bucket, 0.0)));
    let points = line.iter().map(|&point| plot.at(point));
    [ends[0]].into_iter().chain(points).chain([ends[1]])
}

/// The longest ranges in which all are set.
fn stretches(are_set: &[bool]) -> Vec<Range<usize>> {
    let mut end = 0;
    let parts = are_set.chunk_by(|one, next| one == next).map(|part| {
        end += part.len();
        (part[0], end - part.len()..end)
    });
    parts.filter(|(is_set, _)| *is_set).map(|of| of.1).collect()
}

/// The buckets of each pixel column: every bucket its own where there is room.
fn columns(buckets: usize, width: usize) -> impl Iterator<Item = Range<usize>> {
    let columns = buckets.min(width.max(1));
    (0..columns).map(move |column| {
        let start = column * buckets / columns;
        start..(column + 1) * buckets / columns
    })
}

/// Columns that hold nothing from bucket `from` on.
fn columns_before(buckets: usize, columns: usize, from: usize) -> usize {
    (0..columns)
        .take_while(|column| (column + 1) * buckets / columns <= from)
        .count()
}

/// Stretches of columns that have a count, each with the empty column before and after it, so that the
/// line rises from the base line and falls back to it.
fn runs(columns: &[(f64, f64)]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (index, &(_, height)) in columns.iter().enumerate() {
        if height == 0.0 {
            continue;
        }
        let start = index.saturating_sub(1);
        let end = (index + 2).min(columns.len());
        match runs.last_mut() {
            // An empty column that ends one run may begin the next: they join.
            Some(run) if start < run.end => run.end = end,
            _ => runs.push(start..end),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_partition_the_buckets() {
        for buckets in [1, 61, 729, 730, 731, 2_000, 10_000] {
            let columns: Vec<Range<usize>> = columns(buckets, 730).collect();
            assert_eq!(columns.len(), buckets.min(730));
            assert_eq!(
                (columns[0].start, columns[columns.len() - 1].end),
                (0, buckets)
            );
            let is_gapless = columns.windows(2).all(|pair| pair[0].end == pair[1].start);
            assert!(is_gapless && columns.iter().all(|column| !column.is_empty()));
            for from in [0, 1, buckets / 2, buckets, usize::MAX] {
                let before = columns_before(buckets, columns.len(), from);
                let model = columns.iter().filter(|column| column.end <= from).count();
                assert_eq!(before, model);
            }
        }
    }

    #[test]
    fn stretches_are_the_longest() {
        assert!(stretches(&[]).is_empty() && stretches(&[false, false]).is_empty());
        assert_eq!(stretches(&[true, false, true, true]), [0..1, 2..4]);
        assert_eq!(stretches(&[false, true, false, true]), [1..2, 3..4]);
    }

    #[test]
    fn runs_leave_out_what_is_empty_on_both_sides() {
        let heights = |counts: &[u8]| {
            let columns: Vec<(f64, f64)> = counts
                .iter()
                .enumerate()
                .map(|(index, &count)| (index as f64, f64::from(count)))
                .collect();
            runs(&columns)
        };
        assert!(heights(&[0, 0, 0]).is_empty());
        assert_eq!(heights(&[5, 0, 0, 0, 5]), [0..2, 3..5]);
        assert_eq!(heights(&[0, 5, 0, 5, 0, 0, 5]), [0..5, 5..7]);
        assert_eq!(heights(&[0, 5, 0, 0, 5, 0]), [0..3, 3..6]);
    }
}
