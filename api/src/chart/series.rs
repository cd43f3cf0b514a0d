//! Counts or shares over time: bars, or a line over an area when there are many.

use super::HEIGHT;
use super::canvas::{Anchor, Document, units};
use super::frame::{self, LINE_HEIGHT, MARGIN, PLOT_TOP, TITLE_Y};
use super::legend::{self, Legend};
use super::measure::Measure;
use super::picture::Picture;
use super::plot::{Axis, Plot};
use super::scale;
use super::shapes::{self, Openness};
use super::text;
use super::theme::Role;
use super::timeline::Tick;
use super::words::{NOT_FINAL, PROVISIONAL, Words};
use crate::calendar::Unit;

/// Up to so many buckets are drawn as bars.
pub const BARS_MAX: usize = 60;

/// Lines of the header and of the footer at most; only text of clients ever needs as many.
pub(super) const LINES_MAX: usize = 8;

/// So many further lines of the header are taken from the plot; for more the picture grows.
const FURTHER_KEPT: usize = 3;

/// From the lower end of the plot to that of the picture, pixels: time labels and a footer of one line.
const PLOT_BOTTOM: f64 = 58.0;

/// Middles of what stands below the plot, pixels from the lower end of the picture.
const FOOTER_UP: f64 = 20.0;

/// Pixels between the count labels and the plot, and between the plot and the time labels.
const LABEL_DISTANCE: f64 = 8.0;

/// Time labels end so far from the sides of the picture, at least; pixels.
const EDGE: f64 = 4.0;

const NO_NUMBER: &str = "no ratio";
const NO_NUMBER_AT_ALL: &str = "No ratio in this range";

/// The part of the title's line that legends take at most.
const LEGENDS_PART_MAX: f64 = 0.67;

/// Pictures narrower than this, in pixels, have shorter words and a taller header.
const NARROW: f64 = 520.0;

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
    let layout = Layout::of(chart, &words);
    let size = (chart.picture.width, layout.height);
    let look = (chart.picture.theme, &roles(chart)[..]);
    let mut document = Document::begin(size, true, (&words.title, &words.desc), look);
    let (width, height) = document.size();
    frame::draw_card(&mut document);
    if chart.is_hatched() {
        document.define_hatch();
    }
    layout.draw(&mut document, &words.title);

    let counts: Vec<u64> = chart.points.iter().map(|&(_, count)| count).collect();
    let before = &chart.before[..chart.before.len().min(counts.len())];
    let most = counts.iter().chain(before).copied().max().unwrap_or(0);
    let count_axis = scale::reaching(most, chart.measure);
    let widths = count_axis
        .ticks
        .iter()
        .map(|(_, label)| text::width(label, Role::Label.text_px()));
    let plot_left = MARGIN + widths.fold(0.0, f64::max) + LABEL_DISTANCE;
    let plot_width = width - MARGIN - plot_left;
    let buckets = counts.len().max(1) as f64;
    let middle = |index: usize| plot_left + plot_width * (index as f64 + 0.5) / buckets;
    let ticks = match &words.timeline {
        Some(timeline) => timeline.ticks(middle, EDGE, width - EDGE),
        None => Vec::new(),
    };
    let (plot_top, plot_bottom) = (layout.plot_top, height - layout.plot_bottom);
    let plot = Plot::new(
        (plot_left, plot_top),
        (width - MARGIN, plot_bottom),
        (buckets, count_axis.end),
    );
    draw_axes(&mut document, &plot, (plot_left, &count_axis), &ticks);
    if most == 0 {
        let at = (
            plot_left + plot_width / 2.0,
            plot_top + (plot_bottom - plot_top) / 2.0,
        );
        let nothing = match chart.gaps.len() == counts.len() {
            true => NO_NUMBER_AT_ALL,
            false => chart.measure.nothing(),
        };
        document.write(Role::Empty, Anchor::Middle, at, plot_width, nothing);
    } else {
        draw_counts(&mut document, &plot, (chart, &words), &counts);
    }
    draw_baseline(&mut document, &plot, &ticks);
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

/// The lines of the grid, and the labels of both axes.
fn draw_axes(
    document: &mut Document,
    plot: &Plot,
    (plot_left, count_axis): (f64, &Axis),
    ticks: &[Tick],
) {
    for (count, _) in &count_axis.ticks {
        document.line(plot.line(*count), Role::Grid);
    }
    for (count, label) in &count_axis.ticks {
        let [(_, y), _] = plot.line(*count);
        let at = (units(plot_left) - units(LABEL_DISTANCE), y);
        document.label(Role::Label, Anchor::End, at, false, label);
    }
    for Tick { index, label } in ticks {
        let (x, _) = plot.at((*index as f64 + 0.5, 0.0));
        let at = (x, plot.bottom + units(LABEL_DISTANCE));
        document.label(Role::Label, Anchor::Middle, at, true, label);
    }
}

/// The line that counts stand on, with a mark above every time label.
fn draw_baseline(document: &mut Document, plot: &Plot, ticks: &[Tick]) {
    document.line(plot.line(0.0), Role::Axis);
    for tick in ticks {
        let (x, y) = plot.at((tick.index as f64 + 0.5, 0.0));
        let mark = [(x, y), (x, y + units(LABEL_DISTANCE / 2.0))];
        document.line(mark, Role::Axis);
    }
}

/// The marks of the picture that need a name; shorter names where there is little room.
fn legends(chart: &SeriesChart, is_narrow: bool) -> Vec<Legend> {
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

/// The lines above and below the plot; numbers, dates and zones are never cut.
struct Layout {
    lines: Vec<String>,
    /// Rows of legends.
    legends: Vec<Vec<Legend>>,
    /// Where the legends begin, and how much of the title's line they take; pixels.
    legends_at: ((f64, f64), f64),
    foot: Vec<String>,
    /// At the right of the footer; empty where it is a part of its lines.
    note: &'static str,
    /// Pixels from the upper and from the lower end of the picture.
    plot_top: f64,
    plot_bottom: f64,
    height: u32,
}

impl Layout {
    /// Legends stand at the right of the title or, where it is narrow, in rows of their own.
    fn of(chart: &SeriesChart, words: &Words) -> Self {
        let width = f64::from(chart.picture.width);
        let room = width - 2.0 * MARGIN;
        let legends = legends(chart, width < NARROW);
        let is_narrow = width < NARROW || legend::width(&legends) > LEGENDS_PART_MAX * room;
        let parts: Vec<&str> = words.parts.iter().map(String::as_str).collect();
        let lines = frame::wrapped(&parts, Role::Muted, room, LINES_MAX);
        let mut further = lines.len() - 1;
        let legends_width = legend::width(&legends);
        let legends = match is_narrow {
            true => legend::rows(&legends, room),
            false => vec![legends],
        };
        let legends_at = if legends_width == 0.0 {
            ((MARGIN, TITLE_Y), 0.0)
        } else if is_narrow {
            further += legends.len();
            ((MARGIN, frame::line_y(lines.len())), 0.0)
        } else {
            let left = width - MARGIN - legends_width;
            ((left, TITLE_Y), legends_width + MARGIN)
        };
        let (foot, note) = words.foot(room, width < NARROW);
        let below = foot.len() - 1;
        let lines_more = further.saturating_sub(FURTHER_KEPT) + below;
        Self {
            lines,
            legends,
            legends_at,
            foot,
            note,
            plot_top: PLOT_TOP + LINE_HEIGHT * further as f64,
            plot_bottom: PLOT_BOTTOM + LINE_HEIGHT * below as f64,
            height: HEIGHT + (LINE_HEIGHT * lines_more as f64) as u32,
        }
    }

    fn draw(&self, document: &mut Document, title: &str) {
        let (width, height) = document.size();
        let (at, taken) = self.legends_at;
        frame::draw_header(document, title, &self.lines, taken);
        for (index, row) in self.legends.iter().enumerate() {
            legend::draw(document, row, (at.0, at.1 + LINE_HEIGHT * index as f64));
        }
        let room = width - 2.0 * MARGIN;
        let last = height - FOOTER_UP;
        for (up, line) in self.foot.iter().rev().enumerate() {
            let at = (MARGIN, last - LINE_HEIGHT * up as f64);
            document.write(Role::Label, Anchor::Start, at, room, line);
        }
        if !self.note.is_empty() {
            let at = (width - MARGIN, last);
            document.write(Role::Label, Anchor::End, at, room, self.note);
        }
    }
}
