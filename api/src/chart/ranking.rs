//! Values by their counts: horizontal bars, largest first, what is not listed in grey at the end.

use tallyring_records::sum_capped;

use super::HEIGHT;
use super::canvas::{Anchor, Document, pixels, units};
use super::frame::{self, LINE_HEIGHT, MARGIN, PLOT_TOP, joined};
use super::number::{exact, exact_sum, human, share};
use super::picture::Picture;
use super::text;
use super::theme::Role;

/// Rows of a ranking, at most; further values are summed up with the others.
pub const ROWS_MAX: usize = 40;

/// The height of a row, pixels: as much as there is for few rows.
const ROW_HEIGHT_MIN: f64 = 20.0;
const ROW_HEIGHT_MAX: f64 = 32.0;

/// The part of its row's height that a bar takes.
const BAR_PART: f64 = 0.62;

/// Below the last row, pixels.
const BOTTOM: f64 = 24.0;

/// Names are cut at this width, pixels.
const NAME_WIDTH_MAX: f64 = 260.0;

/// The part of the picture's width that names take at most.
const NAME_PART_MAX: f64 = 0.36;

/// Pictures narrower than this, in pixels, round their counts.
const NARROW: u32 = 520;

/// Between a name, its bar and its count, pixels.
const DISTANCE: f64 = 10.0;

/// Names in the alternative text are cut as if this wide, pixels.
const DESC_NAME_PX: f64 = 400.0;

/// Rows that the alternative text names.
const DESC_ROWS_MAX: usize = 5;

const NOT_ALIGNED: &str = "boundaries rounded";
const NOTHING: &str = "Nothing counted in this range";

const ROLES: [Role; 7] = [
    Role::Card,
    Role::Title,
    Role::Muted,
    Role::Value,
    Role::Empty,
    Role::Bar,
    Role::BarOther,
];

/// The content of a ranking. Text may be anything; it is cleaned, escaped and cut to fit.
#[derive(Clone, Debug)]
pub struct RankingChart {
    /// The name of the key, such as `l/A6qOVH`.
    pub title: String,
    /// The dimension of the values, such as `country`; empty where keys are ranked.
    pub by: String,
    /// More about it, such as the range; the total is added. May be empty.
    pub subtitle: String,
    /// Names and counts, largest first.
    pub values: Vec<(String, u64)>,
    /// The sum of all values that are not listed.
    pub other: u64,
    /// Whether it holds exactly its local time; a note says so where not.
    pub aligned: bool,
    /// How it is drawn.
    pub picture: Picture,
}

/// A line of the picture; clean, not yet escaped.
struct Row {
    name: String,
    count: u64,
    numbers: String,
    bar: Role,
}

impl Row {
    /// Its name without what most addresses begin with: so more of those that differ is seen.
    fn shown(&self) -> &str {
        match self.name.strip_prefix("https://") {
            Some(rest) if !rest.is_empty() => rest,
            _ => &self.name,
        }
    }
}

/// Lines of the subtitle; only a name that is longer than a title is cut in them.
const LINES_MAX: usize = 6;

/// The picture of a ranking. It is [`HEIGHT`] high for up to ten rows and grows beyond. A name that is
/// cut is whole in its tooltip. Shares are of all values together.
pub fn ranking(chart: &RankingChart) -> String {
    let counts = chart.values.iter().map(|&(_, count)| u128::from(count));
    let total = counts.sum::<u128>() + u128::from(chart.other);
    let rows = rows(chart, total);
    let header = Header::of(chart);
    let plot_top = PLOT_TOP + LINE_HEIGHT * (header.lines.len() - 1) as f64;
    let row_room = f64::from(HEIGHT) - plot_top - BOTTOM;
    let row_height = (row_room / rows.len().max(1) as f64).clamp(ROW_HEIGHT_MIN, ROW_HEIGHT_MAX);
    let plot_height = row_height * rows.len() as f64;
    let height = f64::from(HEIGHT)
        .max(plot_top + plot_height + BOTTOM)
        .ceil();

    let desc = describe(&header.subtitle, &rows);
    let size = (chart.picture.width, height as u32);
    let look = (chart.picture.theme, &ROLES[..]);
    let mut document = Document::begin(size, true, (&header.name, &desc), look);
    let (width, _) = document.size();
    frame::draw_card(&mut document);
    frame::draw_header(&mut document, &header.title, &header.lines, 0.0);
    if total == 0 {
        let at = (width / 2.0, plot_top + row_room / 2.0);
        document.write(Role::Empty, Anchor::Middle, at, width, NOTHING);
    } else {
        draw_rows(&mut document, &rows, (plot_top, row_height));
    }
    document.end()
}

/// The lines above the rows; clean, not yet escaped.
struct Header {
    /// The title of the alternative text.
    name: String,
    title: String,
    subtitle: String,
    lines: Vec<String>,
}

impl Header {
    /// A title that has no room leaves its key to the line below.
    fn of(chart: &RankingChart) -> Self {
        let [key, by, range] =
            [&chart.title, &chart.by, &chart.subtitle].map(|part| text::clean(part));
        let name = match by.as_str() {
            "" => key.clone(),
            by => format!("{key} by {by}"),
        };
        let room = f64::from(chart.picture.width) - 2.0 * MARGIN;
        let fits = by.is_empty() || text::width(&name, Role::Title.text_px()) <= room;
        let (title, key) = match fits {
            true => (name.clone(), String::new()),
            false => (format!("by {by}"), key),
        };
        let values = chart.values.iter().map(|&(_, count)| count);
        let total = format!("total {}", exact_sum(values.chain([chart.other])));
        let note = if chart.aligned { "" } else { NOT_ALIGNED };
        let parts = [&*key, &range, &total, note];
        // A long key leaves its line to the others.
        let short = text::ellipsised(&key, Role::Muted.text_px(), room);
        let shown = [&*short, &range, &total, note];
        Self {
            lines: frame::wrapped(&shown, Role::Muted, room, LINES_MAX),
            subtitle: joined(&parts),
            name,
            title,
        }
    }
}

fn draw_rows(document: &mut Document, rows: &[Row], (plot_top, row_height): (f64, f64)) {
    let text_px = Role::Value.text_px();
    let widest = |texts: &mut dyn Iterator<Item = &str>| {
        texts
            .map(|line| text::width(line, text_px))
            .fold(0.0, f64::max)
    };
    let name_width_max = NAME_WIDTH_MAX.min(NAME_PART_MAX * document.size().0);
    let name_width = widest(&mut rows.iter().map(Row::shown)).min(name_width_max);
    let numbers_width = widest(&mut rows.iter().map(|row| row.numbers.as_str()));
    let left = MARGIN + name_width + DISTANCE;
    let right = MARGIN + numbers_width + DISTANCE;
    let most = rows.iter().map(|row| row.count).max().unwrap_or(0).max(1);
    let width = document.size().0;
    let (start, end) = (units(left), units(width) - units(right));
    let top = units(plot_top);
    let bottom = units(plot_top + row_height * rows.len() as f64);
    // How far a part of a length reaches. A hair more, so that what is nearly a whole unit counts as one.
    let reach = |length: i32, part: f64| (f64::from(length) * part + 1e-3).floor() as i32;
    let across = |count: f64| start + reach(end - start - 1, count / most as f64);
    let row_count = rows.len() as f64;
    let down = |row: f64| bottom - 1 - reach(bottom - 1 - top, (row_count - row) / row_count);
    // A row with a count is at least a pixel long.
    let least = most as f64 / pixels(end - start);
    for (index, row) in rows.iter().enumerate() {
        let middle = index as f64 + 0.5;
        let length = if row.count == 0 {
            0.0
        } else {
            (row.count as f64).max(least)
        };
        let half = BAR_PART / 2.0;
        let corners = [(0.0, middle - half), (length, middle + half)];
        let y = pixels(down(middle));
        document.with_tooltip(&format!("{}: {}", row.name, row.numbers), |document| {
            let name = (left - DISTANCE, y);
            document.write(Role::Value, Anchor::End, name, name_width, row.shown());
            document.bar(
                corners.map(|(count, row)| (across(count), down(row))),
                row.bar,
            );
            let numbers = (pixels(across(length)) + DISTANCE, y);
            let room = numbers_width;
            document.write(Role::Value, Anchor::Start, numbers, room, &row.numbers);
        });
    }
}

/// The values that have a row, and one for the others if there are any.
fn rows(chart: &RankingChart, total: u128) -> Vec<Row> {
    let numbers = |count: u64| {
        let whole = if chart.picture.width < NARROW {
            human(count)
        } else {
            exact(count)
        };
        format!("{whole} · {}", share(count, total))
    };
    let room = if chart.values.len() > ROWS_MAX || chart.other > 0 {
        ROWS_MAX - 1
    } else {
        ROWS_MAX
    };
    let (listed, beyond) = chart.values.split_at(chart.values.len().min(room));
    let mut rows: Vec<Row> = listed
        .iter()
        .map(|(name, count)| Row {
            name: match name.as_str() {
                "" => "(empty)".to_owned(),
                name => text::clean(name),
            },
            count: *count,
            numbers: numbers(*count),
            bar: Role::Bar,
        })
        .collect();
    let beyond = beyond.iter().map(|&(_, count)| count);
    let other = sum_capped(beyond.chain([chart.other]));
    if other > 0 {
        rows.push(Row {
            name: "other".to_owned(),
            count: other,
            numbers: numbers(other),
            bar: Role::BarOther,
        });
    }
    rows
}

/// The largest values in a sentence.
fn describe(subtitle: &str, rows: &[Row]) -> String {
    let mut parts = vec![subtitle.to_owned()];
    for row in rows.iter().take(DESC_ROWS_MAX) {
        let name = text::ellipsised(&row.name, Role::Value.text_px(), DESC_NAME_PX);
        parts.push(format!("{name}: {}", row.numbers));
    }
    if rows.len() > DESC_ROWS_MAX {
        parts.push(format!("and {} more", rows.len() - DESC_ROWS_MAX));
    }
    parts.join("; ")
}
