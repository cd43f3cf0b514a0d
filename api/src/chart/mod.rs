//! Pictures of counts, as SVG text: a series, several in one, a week, a ranking, a waterfall and a badge.
//!
//! Pure functions: they know no store, no clock and no HTTP. Each picture stands alone, so that one
//! address serves a page, an e-mail and a README: no script, no font, no other file. It follows the
//! reader's light or dark theme by a media query of its own, unless asked for one, and says in words what it shows.
//!
//! Invariants, whatever the input:
//!
//! * The text is well-formed XML 1.0, and what comes from clients is escaped and cleaned of control
//!   characters. One chart always gives the same bytes.
//! * It is at most [`SVG_BYTES_MAX`] long: long series keep the largest count of each pixel column,
//!   long rankings sum up what lies beyond [`ROWS_MAX`] rows, and long names end in an ellipsis.
//! * Labels on one axis never overlap. Text is measured wider than most fonts set it.
//! * Styles apply below the class `tallyring` only. The one id is that of the hatching of a theme, and equal ids stand
//!   for equal patterns, so that many charts may stand inline in one page.
//!
//! `plot` says where numbers are, `shapes` draws what stands for them, `canvas` writes it down.

mod badge;
mod canvas;
mod frame;
mod heat;
mod legend;
mod lines;
mod measure;
mod number;
mod over_time;
mod picture;
mod plot;
mod ranking;
mod scale;
mod series;
mod shapes;
mod text;
mod theme;
mod timeline;
mod waterfall;
mod words;

#[cfg(test)]
mod tests;

pub use badge::badge;
pub use heat::{HeatChart, WEEKDAYS, Week, heat};
pub use lines::{LINES_MAX, LinesChart, lines};
pub use measure::{Measure, SHARE_OF_ONE};
pub use number::{exact, grouped, human};
pub use picture::{Picture, Theme, WIDTH_MAX, WIDTH_MIN};
pub use ranking::{ROWS_MAX, RankingChart, ranking};
pub use series::{BARS_MAX, SeriesChart, series};
pub(crate) use text::{clean, push_escaped};
pub(crate) use theme::page_style_sheet;
pub use timeline::dates;
pub use waterfall::{WaterfallChart, waterfall};

/// Width of a series or a ranking in its own pixels, unless asked otherwise; it scales to the width of its place.
pub const WIDTH: u32 = 800;

/// Height of a series, and of a ranking of up to ten rows; narrow ones whose words need more lines are higher.
pub const HEIGHT: u32 = 320;

/// No picture is longer, in bytes.
pub const SVG_BYTES_MAX: usize = 300_000;
