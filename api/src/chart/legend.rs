//! The legend of lighter, dashed, dotted and hatched marks: samples with their names, in rows.

use super::canvas::{Anchor, Document, units};
use super::frame::MARGIN;
use super::text;
use super::theme::Role;

/// Between a sample and its name, pixels.
const DISTANCE: f64 = 8.0;

/// Half the height of a sample, pixels.
const SAMPLE_UP: f64 = 5.0;

/// A sample and what it stands for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Legend<'n> {
    /// Its name.
    pub name: &'n str,
    /// The look of the sample.
    pub role: Role,
    /// Whether the sample is a line; else it is a bar.
    pub is_line: bool,
}

impl Legend<'_> {
    fn sample_width(self) -> f64 {
        if self.is_line { 18.0 } else { 10.0 }
    }

    fn width(self) -> f64 {
        self.sample_width() + DISTANCE + text::width(self.name, Role::Label.text_px())
    }
}

/// How wide the row is, pixels; 0 for none.
pub(super) fn width(legends: &[Legend<'_>]) -> f64 {
    let gaps = MARGIN * legends.len().saturating_sub(1) as f64;
    gaps + legends.iter().map(|legend| legend.width()).sum::<f64>()
}

/// The legends in rows of at most `room` pixels, if each fits.
pub(super) fn rows<'n>(legends: &[Legend<'n>], room: f64) -> Vec<Vec<Legend<'n>>> {
    let mut rows: Vec<Vec<Legend<'n>>> = Vec::new();
    for &legend in legends {
        let row = rows.last_mut().filter(|row| {
            let longer = [&row[..], &[legend]].concat();
            width(&longer) <= room
        });
        match row {
            Some(row) => row.push(legend),
            None => rows.push(vec![legend]),
        }
    }
    rows
}

/// Draws the row from `left` on, around `y`; pixels.
pub(super) fn draw(document: &mut Document, legends: &[Legend<'_>], (mut left, y): (f64, f64)) {
    for &legend in legends {
        let right = left + legend.sample_width();
        if legend.is_line {
            document.line([left, right].map(|x| (units(x), units(y))), legend.role);
        } else {
            let corners = [(left, y - SAMPLE_UP), (right, y + SAMPLE_UP)];
            let corners = corners.map(|(x, y)| (units(x), units(y)));
            document.bar(corners, legend.role);
            if legend.role == Role::BarNotFinal {
                document.bar(corners, Role::Hatch);
            }
        }
        let at = (right + DISTANCE, y);
        let name = legend.name;
        document.write(Role::Label, Anchor::Start, at, f64::INFINITY, name);
        left += legend.width() + MARGIN;
    }
}
