//! Counts or shares over time: bars, or a line over an area when there are many.

use super::canvas::Document;
use super::frame;
use super::legend::Legend;
use super::measure::Measure;
use super::over_time::{Axes, Layout, NARROW};
use super::picture::Picture;
use super::plot::Plot;
use super::shapes::{self, Openness};
use super::theme::Role;
use super::words::{NOT_FINAL, PROVISIONAL, Words};
use crate::calendar::Unit;

/// Up to so many buckets are drawn as bars.
pub const BARS_MAX: usize = 60;

const NO_NUMBER: &str = "no ratio";
const NO_NUMBER_AT_ALL: &str = "No ratio in this range";

const ROLES: [Role; 16] = [
    Role::Card,
    Role::Title,
    Role::Muted,
    Role::Label,
    Role::Value,
    Role::Empty,
    Role::Grid,
    Role::Axis,
    Role::Bar,
    Role::BarProvisional,
    Role::Area,
    Role::AreaProvisional,
    Role::Line,
    Role::LineProvisional,
    Role::Before,
    Role::BarBefore,
];

/// The content of a series. Text may be anything; it is cleaned, escaped and cut to fit.
#[derive(Clone, Debug)]
pub struct SeriesChart {
    /// The name of the key, such as `l/A6qOVH`.
    pub title: String,
    /// More about it; the total, where buckets may be summed, and the peak are added. May be empty.
    pub subtitle: String,
    /// The length of a bucket.
    pub unit: Unit,
    /// The name of the zone whose local time the labels show.
    pub zone: String,
    /// The meaning of the numbers.
    pub measure: Measure,
    /// Each bucket's start in RFC 3339 with the local offset, and its number; oldest first, without gaps.
    /// Starts that are no such time leave the time axis without labels.
    pub points: Vec<(String, u64)>,
    /// Buckets that have no number, ascending, such as ratios of nothing: not 0, so they stand on a pale band.
    pub gaps: Vec<usize>,
    /// The first bucket that may still grow: it and those after it are drawn lighter and dashed.
    pub provisional_from: Option<usize>,
    /// For each bucket whether it is not final, and hatched; empty where days never become final.
    pub not_final: Vec<bool>,
    /// Whether every bucket holds exactly its local time; a note says so where not.
    pub aligned: bool,
    /// Counts of an earlier period, bucket by bucket, drawn pale behind the bars or as a dotted line; empty for none.
    pub before: Vec<u64>,
    /// The name of the earlier period in the legend.
    pub before_name: &'static str,
    /// Whether counting had begun when the period before did; else no change against it is told.
    pub is_before_covered: bool,
    /// How it is drawn.
    pub picture: Picture,
}

/// The picture of a series: bars up to [`BARS_MAX`] buckets, then a line. Buckets without a count leave
/// a gap; any other is at least a pixel high. 10,000 points take a few milliseconds.
pub fn series(chart: &SeriesChart) -> String {
    let words = Words::of(chart);
    let is_narrow = chart.picture.width < NARROW;
    let legends = legends(chart, is_narrow);
    let layout = Layout::of(chart.picture.width, &legends, &words);
    let size = (chart.picture.width, layout.height);
    let look = (chart.picture.theme, &roles(chart)[..]);
    let mut document = Document::begin(size, true, (&words.title, &words.desc), look);
    frame::draw_card(&mut document);
    if chart.is_hatched() {
        document.define_hatch();
    }
    layout.draw(&mut document, &words.title);

    let counts: Vec<u64> = chart.points.iter().map(|&(_, count)| count).collect();
    let before = &chart.before[..chart.before.len().min(counts.len())];
    let most = counts.iter().chain(before).copied().max().unwrap_or(0);
    let axes = Axes::of(
        &document,
        &layout,
        &words,
        (counts.len(), most, chart.measure),
    );
    axes.draw(&mut document);
    if most == 0 {
        let nothing = match chart.gaps.len() == counts.len() {
            true => NO_NUMBER_AT_ALL,
            false => chart.measure.nothing(),
        };
        axes.write_empty(&mut document, nothing);
    } else {
        draw_counts(&mut document, &axes.plot, (chart, &words), &counts);
    }
    axes.draw_baseline(&mut document);
    document.end()
}

/// The roles of the picture; some only where they are drawn.
fn roles(chart: &SeriesChart) -> Vec<Role> {
    let mut roles = ROLES.to_vec();
    if !chart.gaps.is_empty() {
        roles.push(Role::Gap);
    }
    if chart.is_hatched() {
        roles.extend([Role::BarNotFinal, Role::Hatch]);
    }
    roles
}

/// Bars or a line, with those of the period before.
fn draw_counts(
    document: &mut Document,
    plot: &Plot,
    (chart, words): (&SeriesChart, &Words),
    counts: &[u64],
) {
    let before = &chart.before[..chart.before.len().min(counts.len())];
    let openness = Openness {
        provisional_from: chart.provisional_from.unwrap_or(usize::MAX),
        not_final: chart.hatched(),
    };
    shapes::gaps(document, plot, &chart.gaps);
    if counts.len() <= BARS_MAX {
        shapes::bars_before(document, plot, before);
        let tooltip = |index: usize| words.tooltip(chart, index);
        let bars = (counts, chart.measure);
        shapes::bars(document, plot, bars, &openness, tooltip);
    } else {
        shapes::line(document, plot, counts, &openness);
        shapes::line_before(document, plot, before);
    }
}

impl SeriesChart {
    /// For each bucket whether it is hatched; empty where days never become final.
    pub(super) fn hatched(&self) -> &[bool] {
        &self.not_final[..self.not_final.len().min(self.points.len())]
    }

    /// True where some bucket is hatched.
    fn is_hatched(&self) -> bool {
        self.hatched().contains(&true)
    }
}

/// The marks of the picture that need a name; shorter names where there is little room.
fn legends(chart: &SeriesChart, is_narrow: bool) -> Vec<Legend<'static>> {
    let mut legends = Vec::new();
    let counts = chart.points.iter().map(|(_, count)| count);
    if counts.chain(&chart.before).all(|&count| count == 0) {
        return legends;
    }
    let mut add = |name, role, is_line| {
        legends.push(Legend {
            name,
            role,
            is_line,
        });
    };
    if !chart.before.is_empty() {
        let name = if is_narrow {
            "before"
        } else {
            chart.before_name
        };
        match chart.points.len() > BARS_MAX {
            true => add(name, Role::Before, true),
            false => add(name, Role::BarBefore, false),
        }
    }
    if !chart.gaps.is_empty() {
        add(NO_NUMBER, Role::Gap, false);
    }
    let from = chart.provisional_from;
    if from.is_some_and(|from| from < chart.points.len()) {
        add(PROVISIONAL, Role::BarProvisional, false);
    }
    if chart.is_hatched() {
        add(NOT_FINAL, Role::BarNotFinal, false);
    }
    legends
}
