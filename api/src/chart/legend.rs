//! What lighter, dashed and dotted mean: samples with their names, in one row.

use plotters::element::{PathElement, Rectangle};
use plotters::style::Color;
use plotters::style::text_anchor::HPos;

use super::canvas::units;
use super::frame::{self, MARGIN, Root, drawn};
use super::text;
use super::theme::Role;

/// Between a sample and its name, pixels.
const DISTANCE: f64 = 8.0;

/// Half the height of a sample, pixels.
const SAMPLE_UP: f64 = 5.0;

/// A sample and what it stands for.
#[derive(Clone, Copy, Debug)]
pub struct Legend {
    /// Its name.
    pub name: &'static str,
    /// How the sample looks.
    pub role: Role,
    /// Whether the sample is a line; else it is a bar.
    pub is_line: bool,
}

impl Legend {
    fn sample_width(self) -> f64 {
        if self.is_line { 18.0 } else { 10.0 }
    }

    fn width(self) -> f64 {
        self.sample_width() + DISTANCE + text::width(self.name, Role::Label.text_px())
    }
}

/// How wide the row is, pixels; 0 for none.
pub fn width(legends: &[Legend]) -> f64 {
    let gaps = MARGIN * legends.len().saturating_sub(1) as f64;
    gaps + legends.iter().map(|legend| legend.width()).sum::<f64>()
}

/// Draws the row from `left` on, around `y`; pixels.
pub fn draw(root: &Root<'_>, legends: &[Legend], (left, y): (f64, f64)) {
    let mut left = left;
    for &legend in legends {
        let right = left + legend.sample_width();
        if legend.is_line {
            let ends = [left, right].map(|x| (units(x), units(y)));
            drawn(root.draw(&PathElement::new(ends.to_vec(), legend.role.color())));
        } else {
            let corners = [(left, y - SAMPLE_UP), (right, y + SAMPLE_UP)];
            let corners = corners.map(|(x, y)| (units(x), units(y)));
            drawn(root.draw(&Rectangle::new(corners, legend.role.color().filled())));
        }
        let at = (right + DISTANCE, y);
        frame::write(
            root,
            Role::Label,
            HPos::Left,
            at,
            f64::INFINITY,
            legend.name,
        );
        left += legend.width() + MARGIN;
    }
}
