//! Counts over time: bars, or a line over an area when there are many.

use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::combinators::{IntoBuiltRanged, WithKeyPoints};
use plotters::coord::types::RangedCoordf64;
use plotters::drawing::DrawingArea;
use plotters::element::{PathElement, Polygon, Rectangle, Text};
use plotters::style::text_anchor::HPos;
use plotters::style::{Color, TRANSPARENT};

use super::canvas::{Document, Pen, pixels, units};
use super::number::{grouped, human};
use super::scale::Scale;
use super::text;
use super::theme::Role;
use super::timeline::{Tick, Timeline};
use super::{HEIGHT, WIDTH};
use crate::calendar::Unit;

/// Up to so many buckets are drawn as bars.
pub const BARS_MAX: usize = 60;
