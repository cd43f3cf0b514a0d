//! The words of a series: its title, its totals, its range, and how far its numbers may still change.

use tallyring_records::how_many;

use super::frame::{self, MARGIN, joined};
use super::measure::Measure;
use super::number::{exact, exact_sum, grouped};
use super::series::{LINES_MAX, SeriesChart};
use super::text;
use super::theme::Role;
use super::timeline::Timeline;
use crate::calendar::Unit;

pub(super) const PROVISIONAL: &str = "not settled yet";
pub(super) const NOT_FINAL: &str = "not final yet";
const NOT_ALIGNED: &str = "local boundaries rounded to the stored grain";
const NOT_ALIGNED_SHORT: &str = "boundaries rounded";

/// The words of the picture; clean, not yet escaped.
pub(super) struct Words {
    pub title: String,
    /// The parts of the subtitle.
    pub parts: Vec<String>,
    /// How many buckets, their range, its zone.
    footer: [String; 3],
    note: &'static str,
    pub desc: String,
    pub timeline: Option<Timeline>,
}

impl Words {
    pub(super) fn of(chart: &SeriesChart) -> Self {
        let starts = chart.points.iter().map(|(start, _)| start.as_str());
        let timeline = Timeline::read(chart.unit, starts);
        let title = text::clean(&chart.title);
        // No other sum says anything.
        let total = match chart.measure == Measure::Counts {
            true => format!("total {}", exact_sum(chart.points.iter().map(|&(_, n)| n))),
            false => String::new(),
        };
        let start = |index| match &timeline {
            Some(timeline) => timeline.describe(index),
            None => text::clean(&chart.points[index].0),
        };
        // The first of several equal ones.
        let most = chart
            .points
            .iter()
            .map(|&(_, count)| count)
            .max()
            .unwrap_or(0);
        let peak = match chart.points.iter().position(|&(_, count)| count == most) {
            Some(index) if most > 0 => {
                format!("peak {} ({})", chart.measure.short(most), start(index))
            }
            _ => String::new(),
        };
        let range = match (&timeline, chart.points.len()) {
            (Some(timeline), _) => timeline.range(),
            (None, 0) => String::new(),
            (None, count) => format!("{} – {}", start(0), start(count - 1)),
        };
        let buckets = buckets(chart.unit, chart.points.len());
        let zone = text::clean(&chart.zone);
        let footer = joined(&[&buckets, &range, &zone]);
        let note = if chart.aligned { "" } else { NOT_ALIGNED };
        let before = comparison(chart);
        let parts = vec![text::clean(&chart.subtitle), total, before, peak];
        let subtitle = joined(&parts.iter().map(String::as_str).collect::<Vec<_>>());
        let unsettled = match chart.provisional_from {
            Some(from) if from < chart.points.len() => {
                format!("{PROVISIONAL}: from {}", start(from))
            }
            _ => String::new(),
        };
        Self {
            desc: joined(&[&subtitle, &footer, &unsettled, &open(chart, start), note]),
            title,
            parts,
            footer: [buckets, range, zone],
            note,
            timeline,
        }
    }

    /// The footer in lines, and the note at the right of a single one.
    pub(super) fn foot(&self, room: f64, is_narrow: bool) -> (Vec<String>, &'static str) {
        let note = match self.note {
            NOT_ALIGNED if is_narrow => NOT_ALIGNED_SHORT,
            note => note,
        };
        let mut parts: Vec<&str> = self.footer.iter().map(String::as_str).collect();
        let line = joined(&parts);
        let wide = |line: &str| text::width(line, Role::Label.text_px());
        if note.is_empty() || wide(&line) + MARGIN + wide(note) > room {
            parts.push(note);
            (frame::wrapped(&parts, Role::Label, room, LINES_MAX), "")
        } else {
            (vec![line], note)
        }
    }

    pub(super) fn tooltip(&self, chart: &SeriesChart, index: usize) -> String {
        let (start, count) = &chart.points[index];
        let start = match &self.timeline {
            Some(timeline) => timeline.describe(index),
            None => text::clean(start),
        };
        let is_provisional = chart.provisional_from.is_some_and(|from| from <= index);
        let mut tooltip = format!("{start}: {}", chart.measure.exact(*count));
        if let Some(before) = chart.before.get(index) {
            tooltip.push_str(&format!(", before {}", exact(*before)));
        }
        let is_open = chart.hatched().get(index) == Some(&true);
        let states = [(is_provisional, PROVISIONAL), (is_open, NOT_FINAL)];
        if let Some((_, state)) = states.into_iter().find(|(is_so, _)| *is_so) {
            tooltip.push_str(", ");
            tooltip.push_str(state);
        }
        tooltip
    }
}

/// How many buckets of which length: `1 day`, `12 weeks from Monday`.
fn buckets(unit: Unit, count: usize) -> String {
    let (name, beginning) = match unit {
        Unit::Week => ("week", " from Sunday"),
        Unit::Mweek => ("week", " from Monday"),
        other => (other.as_str(), ""),
    };
    format!("{}{beginning}", how_many(count as u64, name))
}

fn sum(counts: &[u64]) -> u128 {
    counts.iter().map(|&count| u128::from(count)).sum()
}

/// The period before beside this one, over the same buckets of both: `before 32 (+25.0%)`, and where some are
/// not settled yet `settled 30, before 20 (+50.0%)`, as what may still grow would look like a fall. No change is told
/// against a period in which counting only began. Empty where nothing that is settled was counted in either.
fn comparison(chart: &SeriesChart) -> String {
    let shared = chart.before.len().min(chart.points.len());
    let settled = chart.provisional_from.unwrap_or(shared).min(shared);
    let counts: Vec<u64> = chart.points[..settled].iter().map(|of| of.1).collect();
    let compared = &chart.before[..settled];
    let (now, before) = (sum(&counts), sum(compared));
    if now == 0 && before == 0 {
        return String::new();
    }
    let mut shown = format!("before {}", exact_sum(compared.iter().copied()));
    if settled < chart.points.len() {
        shown = format!("settled {}, {shown}", exact_sum(counts));
    }
    if before == 0 || !chart.is_before_covered {
        return shown;
    }
    let percent = (now as f64 / before as f64 - 1.0) * 100.0;
    let sign = if percent < 0.0 { '−' } else { '+' };
    let size = match percent.abs() {
        size if size >= 1_000.0 => grouped(size.round() as u128),
        size => format!("{size:.1}"),
    };
    format!("{shown} ({sign}{size}%)")
}

/// Which buckets are not final; empty where none is hatched. `start` tells when a bucket begins.
fn open(chart: &SeriesChart, start: impl Fn(usize) -> String) -> String {
    let hatched = chart.hatched();
    let open = hatched.iter().filter(|is_open| **is_open).count();
    match hatched.iter().position(|is_open| *is_open) {
        None => String::new(),
        Some(first) if first + open == hatched.len() => {
            format!("{NOT_FINAL}: from {}", start(first))
        }
        Some(first) => format!(
            "{NOT_FINAL}: {open} of {}, the first {}",
            hatched.len(),
            start(first)
        ),
    }
}
