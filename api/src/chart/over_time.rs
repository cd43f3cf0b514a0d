//! The frame of charts over time: the words around the plot, and its axes.

use super::HEIGHT;
use super::canvas::{Anchor, Document, units};
use super::frame::{self, LINE_HEIGHT, MARGIN, PLOT_TOP, TITLE_Y};
use super::legend::{self, Legend};
use super::measure::Measure;
use super::plot::{Axis, Plot};
use super::scale;
use super::text;
use super::theme::Role;
use super::timeline::Tick;
use super::words::Words;

/// Lines of the header and of the footer at most; only text of clients ever needs as many.
pub(super) const LINES_MAX: usize = 8;

/// Pictures narrower than this, in pixels, have shorter words and a taller header.
pub(super) const NARROW: u32 = 520;

/// So many further lines of the header are taken from the plot; for more the picture grows.
const FURTHER_KEPT: usize = 3;

/// From the lower end of the plot to that of the picture, pixels: time labels and a footer of one line.
const PLOT_BOTTOM: f64 = 58.0;

/// Middles of what stands below the plot, pixels from the lower end of the picture.
const FOOTER_UP: f64 = 20.0;

/// Pixels between the count labels and the plot, and between the plot and the time labels.
pub(super) const LABEL_DISTANCE: f64 = 8.0;

/// Time labels end so far from the sides of the picture, at least; pixels.
const EDGE: f64 = 4.0;

/// The part of the title's line that legends take at most.
const LEGENDS_PART_MAX: f64 = 0.67;

/// The plot with the labels of its axes.
pub(super) struct Axes {
    pub plot: Plot,
    counts: Axis,
    times: Vec<Tick>,
    /// Pixels from the left end of the picture, and the middle of the plot.
    left: f64,
    middle: (f64, f64),
}

impl Axes {
    /// Axes of so many buckets, for numbers up to `most`, within what the layout leaves of the document.
    pub(super) fn of(
        document: &Document,
        layout: &Layout<'_>,
        words: &Words,
        (buckets, most, measure): (usize, u64, Measure),
    ) -> Self {
        let (width, height) = document.size();
        let counts = scale::reaching(most, measure);
        let widths = counts
            .ticks
            .iter()
            .map(|(_, label)| text::width(label, Role::Label.text_px()));
        let left = MARGIN + widths.fold(0.0, f64::max) + LABEL_DISTANCE;
        let plot_width = width - MARGIN - left;
        let buckets = buckets.max(1) as f64;
        let middle = |index: usize| left + plot_width * (index as f64 + 0.5) / buckets;
        let times = match &words.timeline {
            Some(timeline) => timeline.ticks(middle, EDGE, width - EDGE),
            None => Vec::new(),
        };
        let (top, bottom) = (layout.plot_top, height - layout.plot_bottom);
        let corners = ((left, top), (width - MARGIN, bottom));
        Self {
            plot: Plot::new(corners.0, corners.1, (buckets, counts.end)),
            counts,
            times,
            left,
            middle: (left + plot_width / 2.0, top + (bottom - top) / 2.0),
        }
    }

    /// The lines of the grid, and the labels of both axes.
    pub(super) fn draw(&self, document: &mut Document) {
        for (count, _) in &self.counts.ticks {
            document.line(self.plot.line(*count), Role::Grid);
        }
        for (count, label) in &self.counts.ticks {
            let [(_, y), _] = self.plot.line(*count);
            let at = (units(self.left) - units(LABEL_DISTANCE), y);
            document.label(Role::Label, Anchor::End, at, false, label);
        }
        for Tick { index, label } in &self.times {
            let (x, _) = self.plot.at((*index as f64 + 0.5, 0.0));
            let at = (x, self.plot.bottom + units(LABEL_DISTANCE));
            document.label(Role::Label, Anchor::Middle, at, true, label);
        }
    }

    /// Words in the place of numbers.
    pub(super) fn write_empty(&self, document: &mut Document, nothing: &str) {
        let room = document.size().0 - MARGIN - self.left;
        document.write(Role::Empty, Anchor::Middle, self.middle, room, nothing);
    }

    /// The line that counts stand on, with a mark above every time label.
    pub(super) fn draw_baseline(&self, document: &mut Document) {
        document.line(self.plot.line(0.0), Role::Axis);
        for tick in &self.times {
            let (x, y) = self.plot.at((tick.index as f64 + 0.5, 0.0));
            let mark = [(x, y), (x, y + units(LABEL_DISTANCE / 2.0))];
            document.line(mark, Role::Axis);
        }
    }
}

/// The lines above and below the plot; numbers, dates and zones are never cut.
pub(super) struct Layout<'n> {
    lines: Vec<String>,
    /// Rows of legends.
    legends: Vec<Vec<Legend<'n>>>,
    /// Where the legends begin, and how much of the title's line they take; pixels.
    legends_at: ((f64, f64), f64),
    foot: Vec<String>,
    /// At the right of the footer; empty where it is a part of its lines.
    note: &'static str,
    /// Pixels from the upper and from the lower end of the picture.
    pub plot_top: f64,
    pub plot_bottom: f64,
    pub height: u32,
}

impl<'n> Layout<'n> {
    /// Legends stand at the right of the title or, where it is narrow, in rows of their own.
    pub(super) fn of(width: u32, legends: &[Legend<'n>], words: &Words) -> Self {
        let is_short = width < NARROW;
        let width = f64::from(width);
        let room = width - 2.0 * MARGIN;
        let legends_width = legend::width(legends);
        let is_narrow = is_short || legends_width > LEGENDS_PART_MAX * room;
        let parts: Vec<&str> = words.parts.iter().map(String::as_str).collect();
        let lines = frame::wrapped(&parts, Role::Muted, room, LINES_MAX);
        let mut further = lines.len() - 1;
        let legends = match is_narrow {
            true => legend::rows(legends, room),
            false => vec![legends.to_vec()],
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
        let (foot, note) = words.foot(room, is_short);
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

    pub(super) fn draw(&self, document: &mut Document, title: &str) {
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
