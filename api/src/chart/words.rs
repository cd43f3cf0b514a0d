//! The words of a series: its title, its totals, its range, and how far its numbers may still change.

use tallyring_records::how_many;

use super::frame::{self, MARGIN, joined};
use super::heat::{self, HeatChart};
use super::lines::{self, LinesChart};
use super::measure::Measure;
use super::number::{exact, exact_sum, grouped};
use super::over_time::LINES_MAX;
use super::series::SeriesChart;
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
        let starts = Starts::read(chart.unit, starts.collect());
        // No other sum says anything.
        let total = match chart.measure == Measure::Counts {
            true => format!("total {}", exact_sum(chart.points.iter().map(|&(_, n)| n))),
            false => String::new(),
        };
        let counts = chart.points.iter().map(|&(_, count)| count);
        let peak = starts.peak(counts, chart.measure);
        let before = comparison(chart);
        let parts = vec![text::clean(&chart.subtitle), total, before, peak];
        let unsettled = starts.unsettled(chart.provisional_from);
        let open = starts.open(chart.hatched());
        let told = (&*chart.title, parts, chart.aligned);
        starts.words(told, &chart.zone, &[unsettled, open])
    }

    pub(super) fn of_lines(chart: &LinesChart) -> Self {
        let starts = chart.starts.iter().map(String::as_str);
        let starts = Starts::read(chart.unit, starts.collect());
        let lines = chart.lines.iter().take(lines::LINES_MAX);
        let mut told: Vec<String> = lines
            .map(|(name, counts)| {
                let total = exact_sum(counts.iter().copied());
                let peak = starts.peak(counts.iter().copied(), Measure::Counts);
                let comma = if peak.is_empty() { "" } else { ", " };
                format!("{}: total {total}{comma}{peak}", text::clean(name))
            })
            .collect();
        told.push(starts.unsettled(chart.provisional_from));
        told.push(starts.open(&chart.not_final));
        let shown = vec![how_many(chart.lines.len() as u64, "key")];
        starts.words((&chart.title, shown, chart.aligned), &chart.zone, &told)
    }

    pub(super) fn of_heat(chart: &HeatChart) -> Self {
        let starts = chart.starts.iter().map(String::as_str);
        let starts = Starts::read(Unit::Hour, starts.collect());
        let total = exact_sum(chart.week.iter().flatten().copied());
        let busiest = chart.busiest().map(|(day, hour)| {
            let count = exact(chart.week[day][hour]);
            format!("busiest {} ({count})", heat::name_of(day, hour))
        });
        let parts = vec![format!("total {total}"), busiest.unwrap_or_default()];
        starts.words((&chart.title, parts, chart.aligned), &chart.zone, &[])
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

/// When the buckets of a chart begin.
struct Starts<'c> {
    unit: Unit,
    starts: Vec<&'c str>,
    timeline: Option<Timeline>,
}

impl<'c> Starts<'c> {
    fn read(unit: Unit, starts: Vec<&'c str>) -> Self {
        Self {
            unit,
            timeline: Timeline::read(unit, starts.iter().copied()),
            starts,
        }
    }

    fn of(&self, index: usize) -> String {
        match &self.timeline {
            Some(timeline) => timeline.describe(index),
            None => text::clean(self.starts[index]),
        }
    }

    /// The largest number and its bucket, the first of several equal ones; empty where nothing was counted.
    fn peak(&self, numbers: impl Iterator<Item = u64> + Clone, measure: Measure) -> String {
        let most = numbers.clone().max().unwrap_or(0);
        match numbers.clone().position(|number| number == most) {
            Some(index) if most > 0 => {
                format!("peak {} ({})", measure.short(most), self.of(index))
            }
            _ => String::new(),
        }
    }

    /// From when on buckets may still grow; empty where none may.
    fn unsettled(&self, from: Option<usize>) -> String {
        match from {
            Some(from) if from < self.starts.len() => {
                format!("{PROVISIONAL}: from {}", self.of(from))
            }
            _ => String::new(),
        }
    }

    /// Which buckets are not final; empty where none is hatched.
    fn open(&self, hatched: &[bool]) -> String {
        let open = hatched.iter().filter(|is_open| **is_open).count();
        match hatched.iter().position(|is_open| *is_open) {
            None => String::new(),
            Some(first) if first + open == hatched.len() => {
                format!("{NOT_FINAL}: from {}", self.of(first))
            }
            Some(first) => format!(
                "{NOT_FINAL}: {open} of {}, the first {}",
                hatched.len(),
                self.of(first)
            ),
        }
    }

    /// The words of a chart with this title and these parts of its subtitle; `told` is in the description alone.
    fn words(
        self,
        (title, parts, aligned): (&str, Vec<String>, bool),
        zone: &str,
        told: &[String],
    ) -> Words {
        let range = match (&self.timeline, self.starts.len()) {
            (Some(timeline), _) => timeline.range(),
            (None, 0) => String::new(),
            (None, count) => format!("{} – {}", self.of(0), self.of(count - 1)),
        };
        let footer = [
            buckets(self.unit, self.starts.len()),
            range,
            text::clean(zone),
        ];
        let note = if aligned { "" } else { NOT_ALIGNED };
        let texts = parts.iter().chain(&footer).chain(told);
        let mut texts: Vec<&str> = texts.map(String::as_str).collect();
        texts.push(note);
        Words {
            desc: joined(&texts),
            title: text::clean(title),
            parts,
            footer,
            note,
            timeline: self.timeline,
        }
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
