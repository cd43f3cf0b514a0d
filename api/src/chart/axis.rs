//! An axis from zero whose labels are given.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

/// From zero to `end`, labelled at `ticks`.
pub struct Axis {
    pub end: f64,
    pub ticks: Vec<(f64, String)>,
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (start, end): (i32, i32)) -> i32 {
        start + (f64::from(end - start) * value / self.end).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        // plotters asks twice: for labelled lines, and for fainter ones between them.
        if hint.weight().allow_light_points() {
            return Vec::new();
        }
        self.ticks.iter().map(|&(value, _)| value).collect()
    }

    fn range(&self) -> Range<f64> {
        0.0..self.end
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        let tick = self.ticks.iter().find(|(tick, _)| tick == value);
        tick.map_or(String::new(), |(_, label)| label.clone())
    }
}
