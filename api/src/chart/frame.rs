//! The frame of a series or a ranking: the card, its title and its subtitle.

use super::canvas::{Anchor, Document};
use super::text;
use super::theme::Role;

/// Room left and right of everything, pixels.
pub(super) const MARGIN: f64 = 20.0;

/// Where the plot begins below a header of a title and one line, pixels from the top.
pub(super) const PLOT_TOP: f64 = 72.0;

/// By how much each further line of the header moves what is below it, pixels.
pub(super) const LINE_HEIGHT: f64 = 18.0;

/// Middles of the lines of the header, pixels from the top.
pub(super) const TITLE_Y: f64 = 24.0;
const SUBTITLE_Y: f64 = 46.0;

/// The middle of a line below the title, pixels from the top.
pub(super) fn line_y(index: usize) -> f64 {
    SUBTITLE_Y + LINE_HEIGHT * index as f64
}

/// The ground that everything stands on, so that it reads on a page of any colour.
pub(super) fn draw_card(document: &mut Document) {
    let (width, height) = document.size();
    document.rect((0.5, 0.5), (width - 1.0, height - 1.0), 8.0, Role::Card);
}

/// Draws the title, which leaves `taken` pixels free on its right, and the lines below it.
pub(super) fn draw_header(document: &mut Document, title: &str, lines: &[String], taken: f64) {
    let room = document.size().0 - 2.0 * MARGIN;
    let at = (MARGIN, TITLE_Y);
    document.write(Role::Title, Anchor::Start, at, room - taken, title);
    for (index, line) in lines.iter().enumerate() {
        let at = (MARGIN, line_y(index));
        document.write(Role::Muted, Anchor::Start, at, room, line);
    }
}

/// Parts of a text, with dots between those that are not empty, in lines of `room` pixels: a part that does not fit
/// begins the next one, and one that is longer than a line goes on there at a blank. The last of `lines_max` takes
/// all that is left, and is cut where it is drawn.
pub(super) fn wrapped(parts: &[&str], role: Role, room: f64, lines_max: usize) -> Vec<String> {
    let fits = |line: &str| text::width(line, role.text_px()) <= room;
    let mut lines = vec![String::new()];
    for part in parts.iter().copied().filter(|part| !part.is_empty()) {
        let line = lines.last_mut().expect("BUG: there is a line");
        let longer = joined(&[line, part]);
        if fits(&longer) {
            *line = longer;
            continue;
        }
        // A part that begins a line has no dot before it, and a word that begins one no blank.
        let is_empty = line.is_empty();
        let mut before = if is_empty { "" } else { " · " };
        if !is_empty && lines.len() < lines_max {
            lines.push(String::new());
            before = "";
        }
        for word in part.split(' ') {
            let is_last = lines.len() >= lines_max;
            let line = lines.last_mut().expect("BUG: there is a line");
            let longer = format!("{line}{before}{word}");
            if line.is_empty() || is_last || fits(&longer) {
                *line = longer;
            } else {
                lines.push(word.to_owned());
            }
            before = " ";
        }
    }
    lines
}

/// Parts of a line, with a dot between those that are not empty.
pub(super) fn joined(parts: &[&str]) -> String {
    let parts: Vec<&str> = parts
        .iter()
        .copied()
        .filter(|part| !part.is_empty())
        .collect();
    parts.join(" · ")
}
