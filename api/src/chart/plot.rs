//! The part of a picture in which numbers become places.

use super::canvas::{Point, pixels, units};

/// An axis from zero to `end`, labelled at `ticks`.
pub(super) struct Axis {
    pub end: f64,
    pub ticks: Vec<(f64, String)>,
}

/// Buckets from left to right, counts upwards. A bucket is 1 wide and begins at its number.
pub(super) struct Plot {
    left: i32,
    top: i32,
    /// First places behind the plot.
    right: i32,
    /// In tenths of a pixel.
    pub bottom: i32,
    /// The numbers at the right and the upper edge.
    buckets: f64,
    pub most: f64,
}

impl Plot {
    /// A plot with these corners, in pixels, for so many buckets and for counts up to `most`.
    pub(super) fn new(
        (left, top): (f64, f64),
        (right, bottom): (f64, f64),
        (buckets, most): (f64, f64),
    ) -> Self {
        Self {
            left: units(left),
            top: units(top),
            right: units(right),
            bottom: units(bottom),
            buckets,
            most,
        }
    }

    /// The place of a bucket's number and a count.
    pub(super) fn at(&self, (bucket, count): (f64, f64)) -> Point {
        let place =
            |part: f64, from: i32, to: i32| from + (f64::from(to - from) * part).round() as i32;
        (
            place(bucket / self.buckets, self.left, self.right - 1),
            place(count / self.most, self.bottom - 1, self.top),
        )
    }

    /// The left end of the plot at this count, and its right end.
    pub(super) fn line(&self, count: f64) -> [Point; 2] {
        [0.0, self.buckets].map(|bucket| self.at((bucket, count)))
    }

    /// Width and height, pixels.
    pub(super) fn size(&self) -> (f64, f64) {
        (
            pixels(self.right - self.left),
            pixels(self.bottom - self.top),
        )
    }

    /// The count that is drawn one pixel high, the least that can be seen.
    pub(super) fn least(&self) -> f64 {
        self.most / self.size().1
    }
}
