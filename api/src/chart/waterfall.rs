//! A waterfall: from all that came to all that counts, a floating bar for each difference.

use super::canvas::{Anchor, Document, units};
use super::frame::{self, LINE_HEIGHT, MARGIN, PLOT_TOP, joined};
use super::number::{exact, human};
use super::picture::Picture;
use super::text;
use super::theme::Role;

/// Rows of a waterfall, at most; the differences behind are summed up.
const ROWS_MAX: usize = 40;

/// The height of a row, pixels; of one that has its name above its bar.
const ROW_HEIGHT: f64 = 34.0;
const TALL_ROW_HEIGHT: f64 = 46.0;

/// Half the height of a bar, pixels.
const BAR_UP: f64 = 9.0;

/// Below the last row, pixels.
const BOTTOM: f64 = 18.0;

/// The part of the picture's width that names take at most.
const NAME_PART_MAX: f64 = 0.4;

/// Between a name, its bar and its number, pixels.
const DISTANCE: f64 = 10.0;

/// In pictures narrower than this, in pixels, names stand above their bars.
const NARROW: u32 = 520;

const LINES_MAX: usize = 6;
const NOTHING: &str = "Nothing of this type came on this day";

const ROLES: [Role; 9] = [
    Role::Card,
    Role::Title,
    Role::Muted,
    Role::Value,
    Role::Empty,
    Role::Axis,
    Role::Bar,
    Role::BarOther,
    Role::BarProvisional,
];

/// The content of a waterfall. Text may be anything; it is cleaned, escaped and cut to fit.
#[derive(Clone, Debug)]
pub struct WaterfallChart {
    /// The day, the event type and the version.
    pub title: String,
    /// More about it. May be empty.
    pub subtitle: String,
    /// The name and the number of the first bar.
    pub first: (String, i64),
    /// Names and signed differences, in order.
    pub differences: Vec<(String, i64)>,
    /// The name and the number of the last bar: the first one and all differences make it.
    pub last: (String, i64),
    /// How it is drawn.
    pub picture: Picture,
}

/// A line of the picture; clean, not yet escaped.
struct Row {
    name: String,
    number: String,
    /// The ends of the bar, from zero on.
    from: i64,
    to: i64,
    role: Role,
}

/// The picture of a waterfall: totals are solid, what leaves is grey, what comes back is pale with a dashed edge. It is
/// as high as its rows need.
pub fn waterfall(chart: &WaterfallChart) -> String {
    let rows = rows(chart);
    let is_narrow = chart.picture.width < NARROW;
    let title = text::clean(&chart.title);
    let subtitle = text::clean(&chart.subtitle);
    let room = f64::from(chart.picture.width) - 2.0 * MARGIN;
    let parts: Vec<&str> = subtitle.split(" · ").collect();
    let lines = frame::wrapped(&parts, Role::Muted, room, LINES_MAX);
    let top = PLOT_TOP + LINE_HEIGHT * (lines.len() - 1) as f64 - DISTANCE;
    let row_height = if is_narrow {
        TALL_ROW_HEIGHT
    } else {
        ROW_HEIGHT
    };
    let height = (top + row_height * rows.len() as f64 + BOTTOM).ceil();
    let told = rows
        .iter()
        .map(|row| format!("{}: {}", row.name, row.number));
    let told: Vec<String> = told.collect();
    let desc = joined(&[&subtitle, &told.join("; ")]);
    let size = (chart.picture.width, height as u32);
    let look = (chart.picture.theme, &ROLES[..]);
    let mut document = Document::begin(size, true, (&title, &desc), look);
    frame::draw_card(&mut document);
    frame::draw_header(&mut document, &title, &lines, 0.0);
    let most = rows.iter().map(|row| row.from.max(row.to)).max();
    match most.filter(|most| *most > 0) {
        Some(most) => draw_rows(&mut document, &rows, (top, row_height), (most, is_narrow)),
        None => {
            let at = (f64::from(size.0) / 2.0, top + row_height);
            document.write(Role::Empty, Anchor::Middle, at, room, NOTHING);
        }
    }
    document.end()
}

/// The totals and the differences between them. A bar below zero, which only wrong sums make, has no length.
fn rows(chart: &WaterfallChart) -> Vec<Row> {
    let listed = chart.differences.len().min(ROWS_MAX - 3);
    let (listed, beyond) = chart.differences.split_at(listed);
    let mut differences: Vec<(String, i64)> = listed.to_vec();
    if !beyond.is_empty() {
        let sum = beyond
            .iter()
            .fold(0, |sum: i64, of| sum.saturating_add(of.1));
        differences.push((format!("{} more", beyond.len()), sum));
    }
    let write = |number: u64| match chart.picture.width < NARROW {
        true => human(number),
        false => exact(number),
    };
    let total = |(name, number): &(String, i64)| Row {
        name: text::clean(name),
        number: write(number.unsigned_abs()),
        from: 0,
        to: (*number).max(0),
        role: Role::Bar,
    };
    let mut rows = vec![total(&chart.first)];
    let mut level = chart.first.1;
    for (name, number) in differences {
        let next = level.saturating_add(number);
        let (sign, role) = match number < 0 {
            true => ("−", Role::BarOther),
            false => ("+", Role::BarProvisional),
        };
        rows.push(Row {
            name: text::clean(&name),
            number: format!("{sign}{}", write(number.unsigned_abs())),
            from: level.max(0),
            to: next.max(0),
            role,
        });
        level = next;
    }
    rows.push(total(&chart.last));
    rows
}

fn draw_rows(
    document: &mut Document,
    rows: &[Row],
    (top, row_height): (f64, f64),
    (most, is_narrow): (i64, bool),
) {
    let text_px = Role::Value.text_px();
    let widest = |texts: &mut dyn Iterator<Item = &String>| {
        let widths = texts.map(|line| text::width(line, text_px));
        widths.fold(0.0, f64::max)
    };
    let width = document.size().0;
    let names = widest(&mut rows.iter().map(|row| &row.name)).min(NAME_PART_MAX * width);
    let numbers = widest(&mut rows.iter().map(|row| &row.number));
    let left = match is_narrow {
        true => MARGIN,
        false => MARGIN + names + DISTANCE,
    };
    let length = width - MARGIN - numbers - DISTANCE - left;
    // A bar is at least a pixel long, and inside.
    let across = |number: i64| left + (length - 1.0) * number as f64 / most as f64;
    let bar_down = row_height - BAR_UP - 6.0;
    for (index, row) in rows.iter().enumerate() {
        let row_top = top + row_height * index as f64;
        let y = row_top + bar_down;
        let (start, end) = (
            across(row.from.min(row.to)),
            across(row.from.max(row.to)) + 1.0,
        );
        document.with_tooltip(&format!("{}: {}", row.name, row.number), |document| {
            let (anchor, at, room) = match is_narrow {
                true => (
                    Anchor::Start,
                    (MARGIN, y - BAR_UP - 9.0),
                    width - 2.0 * MARGIN,
                ),
                false => (Anchor::End, (left - DISTANCE, y), names),
            };
            document.write(Role::Value, anchor, at, room, &row.name);
            let corners = [(start, y - BAR_UP), (end, y + BAR_UP)];
            document.bar(corners.map(|(x, y)| (units(x), units(y))), row.role);
            let at = (end + DISTANCE, y);
            document.write(Role::Value, Anchor::Start, at, numbers + 1.0, &row.number);
        });
        // The next bar begins where this one ends.
        if index + 1 < rows.len() {
            let x = units(across(row.to));
            let ends = [y + BAR_UP, y + row_height - BAR_UP];
            document.line(ends.map(|y| (x, units(y))), Role::Axis);
        }
    }
}
