//! Counts of several keys over time: a line for each.
//!
//! Lines differ by their dashes as well as by their colours, so that they are told apart without either.

use super::canvas::Document;
use super::frame::{self, MARGIN};
use super::legend::Legend;
use super::measure::Measure;
use super::number::exact_sum;
use super::over_time::{Axes, Layout};
use super::picture::Picture;
use super::shapes;
use super::text;
use super::theme::Role;
use super::words::{NOT_FINAL, PROVISIONAL, Words};
use crate::calendar::Unit;

/// The lines of a picture, at most.
pub const LINES_MAX: usize = LINES.len();

/// The look of each line.
const LINES: [Role; 8] = [
    Role::Line1,
    Role::Line2,
    Role::Line3,
    Role::Line4,
    Role::Line5,
    Role::Line6,
    Role::Line7,
    Role::Line8,
];

const ROLES: [Role; 8] = [
    Role::Card,
    Role::Title,
    Role::Muted,
    Role::Label,
    Role::Empty,
    Role::Grid,
    Role::Axis,
    Role::Gap,
];

/// A name in the legend is at most so wide, pixels; the total follows it.
const NAME_WIDTH_MAX: f64 = 240.0;

/// The content of the picture. Text may be anything; it is cleaned, escaped and cut to fit.
#[derive(Clone, Debug)]
pub struct LinesChart {
    /// Words above the picture.
    pub title: String,
    /// The length of a bucket.
    pub unit: Unit,
    /// The name of the zone whose local time the labels show.
    pub zone: String,
    /// Each bucket's start in RFC 3339 with the local offset; oldest first, without gaps.
    pub starts: Vec<String>,
    /// The name of each line and its count in every bucket; lines beyond [`LINES_MAX`] are not drawn.
    pub lines: Vec<(String, Vec<u64>)>,
    /// The first bucket that may still grow: it and those after it stand on a pale band.
    pub provisional_from: Option<usize>,
    /// For each bucket whether it is not final, and has a hatched strip below it; empty where days never become final.
    pub not_final: Vec<bool>,
    /// Whether every bucket holds exactly its local time; a note says so where not.
    pub aligned: bool,
    /// How it is drawn.
    pub picture: Picture,
}

/// The picture of several keys.
pub fn lines(chart: &LinesChart) -> String {
    let words = Words::of_lines(chart);
    let names = chart.names();
    let legends = chart.legends(&names);
    let layout = Layout::of(chart.picture.width, &legends, &words);
    let size = (chart.picture.width, layout.height);
    let drawn = chart.lines.len().min(LINES_MAX);
    let mut roles = [&ROLES[..], &LINES[..drawn]].concat();
    if chart.is_hatched() {
        roles.extend([Role::BarNotFinal, Role::Hatch]);
    }
    let look = (chart.picture.theme, &roles[..]);
    let mut document = Document::begin(size, true, (&words.title, &words.desc), look);
    frame::draw_card(&mut document);
    if chart.is_hatched() {
        document.define_hatch();
    }
    layout.draw(&mut document, &words.title);

    let counts = chart.lines.iter().take(LINES_MAX).map(|(_, counts)| counts);
    let most = counts.clone().flatten().copied().max().unwrap_or(0);
    let buckets = chart.starts.len();
    let measure = Measure::Counts;
    let axes = Axes::of(&document, &layout, &words, (buckets, most, measure));
    let provisional: Vec<usize> = chart.provisional().collect();
    shapes::gaps(&mut document, &axes.plot, &provisional);
    axes.draw(&mut document);
    if most == 0 {
        axes.write_empty(&mut document, measure.nothing());
    } else {
        shapes::strip(&mut document, &axes.plot, &chart.not_final);
        // The first line is drawn last, above the others.
        let lines: Vec<(&Vec<u64>, Role)> = counts.zip(LINES).collect();
        for (counts, role) in lines.into_iter().rev() {
            shapes::line_alone(&mut document, &axes.plot, counts, role);
        }
    }
    axes.draw_baseline(&mut document);
    document.end()
}

impl LinesChart {
    /// Buckets that may still grow.
    fn provisional(&self) -> impl Iterator<Item = usize> {
        self.provisional_from.unwrap_or(usize::MAX)..self.starts.len()
    }

    fn is_hatched(&self) -> bool {
        self.not_final.contains(&true)
    }

    /// The names in the legend, each with its total, as wide as the picture lets them be.
    fn names(&self) -> Vec<String> {
        /// A sample, and the distance behind it.
        const SAMPLE: f64 = 26.0;
        let size = Role::Label.text_px();
        let room = f64::from(self.picture.width) - 2.0 * MARGIN - SAMPLE;
        let lines = self.lines.iter().take(LINES_MAX);
        lines
            .map(|(name, counts)| {
                let total = format!(" {}", exact_sum(counts.iter().copied()));
                let room = (room - text::width(&total, size)).min(NAME_WIDTH_MAX);
                text::ellipsised(&text::clean(name), size, room) + &total
            })
            .collect()
    }

    fn legends<'n>(&self, names: &'n [String]) -> Vec<Legend<'n>> {
        let legend = |name, role, is_line| Legend {
            name,
            role,
            is_line,
        };
        let lines = names.iter().zip(LINES);
        let mut legends: Vec<Legend<'n>> =
            lines.map(|(name, role)| legend(name, role, true)).collect();
        if self.provisional().next().is_some() {
            legends.push(legend(PROVISIONAL, Role::Gap, false));
        }
        if self.is_hatched() {
            legends.push(legend(NOT_FINAL, Role::BarNotFinal, false));
        }
        legends
    }
}
