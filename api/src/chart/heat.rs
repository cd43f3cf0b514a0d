//! Counts by weekday and hour: a cell for each hour of the week.

use super::canvas::{Anchor, Document, units};
use super::frame::{self, MARGIN};
use super::legend::Legend;
use super::measure::Measure;
use super::number::{grouped, human};
use super::over_time::{LABEL_DISTANCE, Layout};
use super::picture::Picture;
use super::text;
use super::theme::Role;
use super::words::Words;

/// Names of the rows, from above.
pub const WEEKDAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// Sums of a week by weekday, Monday first, and by hour.
pub type Week = [[u64; 24]; 7];

/// The looks of cells with counts, each for as large a part of the largest one.
const LEVELS: [Role; 5] = [
    Role::Heat1,
    Role::Heat2,
    Role::Heat3,
    Role::Heat4,
    Role::Heat5,
];

const ROLES: [Role; 6] = [
    Role::Card,
    Role::Title,
    Role::Muted,
    Role::Label,
    Role::Empty,
    Role::Gap,
];

/// Between two labels of hours.
const HOURS_APART: usize = 6;

/// Between two cells, pixels.
const APART: f64 = 1.5;

/// The content of the picture. Text may be anything; it is cleaned, escaped and cut to fit.
#[derive(Clone, Debug)]
pub struct HeatChart {
    /// The name of the key, such as `l/A6qOVH`.
    pub title: String,
    /// The name of the zone whose weekdays and hours these are.
    pub zone: String,
    /// The start of each hour of the range in RFC 3339 with the local offset, oldest first, without gaps.
    pub starts: Vec<String>,
    /// The sums, of which each is drawn as a cell.
    pub week: Week,
    /// Whether every hour holds exactly its local time; a note says so where not.
    pub aligned: bool,
    /// How it is drawn.
    pub picture: Picture,
}

/// The picture of a week.
pub fn heat(chart: &HeatChart) -> String {
    let words = Words::of_heat(chart);
    let most = chart.most();
    let names = legend_names(most);
    let legend = |(name, role)| Legend {
        name,
        role,
        is_line: false,
    };
    let named = names.iter().map(|(name, role)| (name.as_str(), *role));
    let legends: Vec<Legend<'_>> = named.map(legend).collect();
    let layout = Layout::of(chart.picture.width, &legends, &words);
    let size = (chart.picture.width, layout.height);
    let roles = [&ROLES[..], &LEVELS].concat();
    let look = (chart.picture.theme, &roles[..]);
    let mut document = Document::begin(size, true, (&words.title, &words.desc), look);
    frame::draw_card(&mut document);
    layout.draw(&mut document, &words.title);

    let (width, height) = document.size();
    let names = WEEKDAYS.iter();
    let names = names.map(|name| text::width(name, Role::Label.text_px()));
    let left = MARGIN + names.fold(0.0, f64::max) + LABEL_DISTANCE;
    let (top, bottom) = (layout.plot_top, height - layout.plot_bottom);
    if most == 0 {
        let at = ((left + width - MARGIN) / 2.0, (top + bottom) / 2.0);
        let room = width - 2.0 * MARGIN;
        let nothing = Measure::Counts.nothing();
        document.write(Role::Empty, Anchor::Middle, at, room, nothing);
    } else {
        let cell = ((width - MARGIN - left) / 24.0, (bottom - top) / 7.0);
        draw_cells(&mut document, (left, top), cell, &chart.week);
    }
    document.end()
}

impl HeatChart {
    fn most(&self) -> u64 {
        self.week.iter().flatten().copied().max().unwrap_or(0)
    }

    /// The busiest hour of the week, the first of several: weekday and hour.
    pub(super) fn busiest(&self) -> Option<(usize, usize)> {
        let most = self.most();
        let hours = (0..7).flat_map(|day| (0..24).map(move |hour| (day, hour)));
        let mut hours = hours.filter(|&(day, hour)| self.week[day][hour] == most);
        hours.next().filter(|_| most > 0)
    }
}

/// A cell for each hour, with its count as a tooltip, and the names of weekdays and hours.
fn draw_cells(
    document: &mut Document,
    (left, top): (f64, f64),
    (width, height): (f64, f64),
    week: &Week,
) {
    let most = week.iter().flatten().copied().max().unwrap_or(0);
    for (day, hours) in week.iter().enumerate() {
        let y = top + height * day as f64;
        let at = (units(left) - units(LABEL_DISTANCE), units(y + height / 2.0));
        document.label(Role::Label, Anchor::End, at, false, WEEKDAYS[day]);
        for (hour, &count) in hours.iter().enumerate() {
            let x = left + width * hour as f64;
            let corners = [(x, y), (x + width - APART, y + height - APART)];
            let tooltip = format!("{}: {}", name_of(day, hour), grouped(u128::from(count)));
            document.with_tooltip(&tooltip, |document| {
                let corners = corners.map(|(x, y)| (units(x), units(y)));
                document.bar(corners, role_of(count, most));
            });
        }
    }
    let below = top + 7.0 * height + LABEL_DISTANCE;
    for hour in (0..24).step_by(HOURS_APART) {
        let x = left + width * (hour as f64 + 0.5);
        let at = (units(x), units(below));
        document.label(Role::Label, Anchor::Middle, at, true, &name_of_hour(hour));
    }
}

/// An hour of the week, in words.
pub(super) fn name_of(day: usize, hour: usize) -> String {
    format!("{} {}", WEEKDAYS[day], name_of_hour(hour))
}

fn name_of_hour(hour: usize) -> String {
    format!("{hour:02}:00")
}

/// The look of a cell.
fn role_of(count: u64, most: u64) -> Role {
    let levels = LEVELS.len() as u128;
    let level = (u128::from(count) * levels).div_ceil(u128::from(most.max(1)));
    match level {
        0 => Role::Gap,
        level => LEVELS[(level.min(levels) - 1) as usize],
    }
}

/// The numbers that each look stands for; looks that no whole number has are left out.
fn legend_names(most: u64) -> Vec<(String, Role)> {
    let up_to = |level: usize| {
        let part = u128::from(most) * level as u128 / LEVELS.len() as u128;
        u64::try_from(part).unwrap_or(u64::MAX)
    };
    let levels = (1..=LEVELS.len()).filter(|&level| up_to(level) > up_to(level - 1));
    levels
        .map(|level| {
            let (least, most) = (up_to(level - 1) + 1, up_to(level));
            let name = match least == most {
                true => human(most),
                false => format!("{}–{}", human(least), human(most)),
            };
            (name, LEVELS[level - 1])
        })
        .collect()
}
